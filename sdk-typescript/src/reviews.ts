// Reviews: decisions about conflicts and critical changes.

import { type AgentOptions, agentHeader } from './agent.js'
import type * as Wire from './generated/wire.js'
import type { Transport } from './transport.js'

/** Side of a review. */
export type ReviewSide = 'base' | 'ours' | 'theirs' | 'head'

/** Reviews. */
export class ReviewService {
    readonly #transport: Transport

    /** @internal */
    constructor(transport: Transport) {
        this.#transport = transport
    }

    list(project: string, params: Wire.ListReviewsQuery & AgentOptions = {}): Promise<Wire.ReviewList> {
        const { signal, timeout, agent, ...query } = params
        const request = { path: { project }, query, headers: agentHeader(agent) }
        return this.#transport.json('list_reviews', request, { signal, timeout })
    }

    get(project: string, review: string, options: AgentOptions = {}): Promise<Wire.ReviewDetails> {
        const { agent, ...call } = options
        return this.#transport.json('get_review', { path: { project, review }, headers: agentHeader(agent) }, call)
    }

    /** Decides a review. The decision is a new operation of the project. */
    resolve(
        project: string,
        review: string,
        resolution: Wire.ResolveReview,
        options: AgentOptions = {},
    ): Promise<Wire.ResolvedReview> {
        const { agent, ...call } = options
        const request = { path: { project, review }, json: resolution, headers: agentHeader(agent) }
        return this.#transport.json('resolve_review', request, call)
    }

    /** Reads the file of one side. */
    version(project: string, review: string, side: ReviewSide, options: AgentOptions = {}): Promise<Uint8Array> {
        const { agent, ...call } = options
        const request = { path: { project, review, side }, headers: agentHeader(agent) }
        return this.#transport.bytes('get_review_version', request, call)
    }
}
