// Episodes: steps of searches over snapshots.

import type * as Wire from './generated/wire.js'
import { listAll } from './pages.js'
import type { CallOptions, Transport } from './transport.js'

/** Episodes. */
export class EpisodeService {
    readonly #transport: Transport

    /** @internal */
    constructor(transport: Transport) {
        this.#transport = transport
    }

    create(params: Wire.CreateEpisode, options: CallOptions = {}): Promise<Wire.Episode> {
        return this.#transport.json('create_episode', { json: params }, options)
    }

    get(id: string, options: CallOptions = {}): Promise<Wire.Episode> {
        return this.#transport.json('get_episode', { path: { id } }, options)
    }

    /** Deletes an episode and its descendants. */
    async delete(id: string, options: CallOptions = {}): Promise<void> {
        await this.#transport.json('delete_episode', { path: { id } }, options)
    }

    /** Lists a page of searches: episodes without a parent. */
    list(params: Wire.ListSearchesQuery & CallOptions = {}): Promise<Wire.SearchList> {
        const { signal, timeout, ...query } = params
        return this.#transport.json('list_searches', { query }, { signal, timeout })
    }

    listAll(params: Wire.ListSearchesQuery & CallOptions = {}): AsyncIterable<Wire.Search> {
        return listAll((page) => this.list({ ...params, ...page }))
    }

    /** Returns the episode with the highest reward below one. */
    best(id: string, options: CallOptions = {}): Promise<Wire.Episode> {
        return this.#transport.json('get_best_episode', { path: { id } }, options)
    }

    children(id: string, params: Wire.ListEpisodeChildrenQuery & CallOptions = {}): Promise<Wire.EpisodeList> {
        const { signal, timeout, ...query } = params
        return this.#transport.json('list_episode_children', { path: { id }, query }, { signal, timeout })
    }

    /** Returns the episodes from the root to one. */
    path(id: string, params: Wire.GetEpisodePathQuery & CallOptions = {}): Promise<Wire.EpisodePath> {
        const { signal, timeout, ...query } = params
        return this.#transport.json('get_episode_path', { path: { id }, query }, { signal, timeout })
    }

    subtree(id: string, params: Wire.GetEpisodeSubtreeQuery & CallOptions = {}): Promise<Wire.EpisodeSubtree> {
        const { signal, timeout, ...query } = params
        return this.#transport.json('get_episode_subtree', { path: { id }, query }, { signal, timeout })
    }
}
