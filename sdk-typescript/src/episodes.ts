// Episodes: steps of searches over snapshots.

import type * as Wire from './generated/wire.js'
import { listAll } from './pages.js'
import { type CallOptions, type Transport, fields } from './transport.js'

/** Episodes. */
export class EpisodeService {
    readonly #transport: Transport

    /** @internal */
    constructor(transport: Transport) {
        this.#transport = transport
    }

    /** Records a step: the snapshot after an action, and its reward. */
    create(params: Wire.CreateEpisode, options: CallOptions = {}): Promise<Wire.Episode> {
        return this.#transport.json('POST episodes', { json: params }, options)
    }

    /** Returns an episode. */
    get(id: string, options: CallOptions = {}): Promise<Wire.Episode> {
        return this.#transport.json('GET episodes/{}', { path: [id] }, options)
    }

    /** Deletes an episode and its descendants. */
    async delete(id: string, options: CallOptions = {}): Promise<void> {
        await this.#transport.json('DELETE episodes/{}', { path: [id] }, options)
    }

    /** Lists a page of searches: episodes without a parent. */
    list(params: Wire.ListSearchesQuery & CallOptions = {}): Promise<Wire.SearchList> {
        return this.#transport.json('GET episodes', { query: fields(params) }, params)
    }

    /** Iterates over all searches. */
    listAll(params: Wire.ListSearchesQuery & CallOptions = {}): AsyncIterable<Wire.Search> {
        return listAll((page) => this.list({ ...params, ...page }))
    }

    /** Returns the episode with the highest reward below one. */
    best(id: string, options: CallOptions = {}): Promise<Wire.Episode> {
        return this.#transport.json('GET episodes/{}/best', { path: [id] }, options)
    }

    /** Lists a page of the children of an episode. */
    children(id: string, params: Wire.ListEpisodeChildrenQuery & CallOptions = {}): Promise<Wire.EpisodeList> {
        return this.#transport.json('GET episodes/{}/children', { path: [id], query: fields(params) }, params)
    }

    /** Returns the episodes from the root to one. */
    path(id: string, params: Wire.GetEpisodePathQuery & CallOptions = {}): Promise<Wire.EpisodePath> {
        return this.#transport.json('GET episodes/{}/path', { path: [id], query: fields(params) }, params)
    }

    /** Returns an episode and all below it. */
    subtree(id: string, params: Wire.GetEpisodeSubtreeQuery & CallOptions = {}): Promise<Wire.EpisodeSubtree> {
        return this.#transport.json('GET episodes/{}/subtree', { path: [id], query: fields(params) }, params)
    }
}
