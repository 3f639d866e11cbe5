// Reviews: decisions about conflicts and critical changes.

import type * as Wire from './generated/wire.js'
import { type AgentOptions, type Transport, fields } from './transport.js'

/** Side of a review. */
export type ReviewSide = 'base' | 'ours' | 'theirs' | 'head'

/** Reviews. */
export class ReviewService {
    readonly #transport: Transport

    /** @internal */
    constructor(transport: Transport) {
        this.#transport = transport
    }

    /** Lists a page of the reviews of a project. */
    list(project: string, params: Wire.ListReviewsQuery & AgentOptions = {}): Promise<Wire.ReviewList> {
        const request = { path: [project], query: fields(params) }
        return this.#transport.json('GET projects/{}/reviews', request, params)
    }

    /** Returns a review with the versions of its file. */
    get(project: string, review: string, options: AgentOptions = {}): Promise<Wire.ReviewDetails> {
        return this.#transport.json('GET projects/{}/reviews/{}', { path: [project, review] }, options)
    }

    /** Decides a review. The decision is a new operation of the project. */
    resolve(
        project: string,
        review: string,
        resolution: Wire.ResolveReview,
        options: AgentOptions = {},
    ): Promise<Wire.ResolvedReview> {
        const request = { path: [project, review], json: resolution }
        return this.#transport.json('POST projects/{}/reviews/{}/resolve', request, options)
    }

    /** Reads the file of one side. */
    version(project: string, review: string, side: ReviewSide, options: AgentOptions = {}): Promise<Uint8Array> {
        const request = { path: [project, review, side] }
        return this.#transport.bytes('GET projects/{}/reviews/{}/versions/{}', request, options)
    }
}
