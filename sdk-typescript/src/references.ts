// References: names of snapshots.

import type * as Wire from './generated/wire.js'
import { listAll } from './pages.js'
import { type CallOptions, type Transport, fields } from './transport.js'

/** Condition on the present value of a reference. */
export interface ReferenceConditions extends CallOptions {
    /** ETag that the reference must have: the id of its snapshot in double quotes; `*` for any. */
    ifMatch?: string
    /** `*` if the reference must not exist. */
    ifNoneMatch?: string
}

/** References. */
export class ReferenceService {
    readonly #transport: Transport

    /** @internal */
    constructor(transport: Transport) {
        this.#transport = transport
    }

    /** Lists a page of references. */
    list(params: Wire.ListReferencesQuery & CallOptions = {}): Promise<Wire.ReferenceList> {
        return this.#transport.json('GET references', { query: fields(params) }, params)
    }

    /** Iterates over all references. */
    listAll(params: Wire.ListReferencesQuery & CallOptions = {}): AsyncIterable<Wire.Reference> {
        return listAll((page) => this.list({ ...params, ...page }))
    }

    /** Returns a reference. */
    get(name: string, options: CallOptions = {}): Promise<Wire.Reference> {
        return this.#transport.json('GET references/{}', { path: [name] }, options)
    }

    /** Creates or moves a reference. */
    set(name: string, snapshot: string, options: ReferenceConditions = {}): Promise<Wire.Reference> {
        const { ifMatch, ifNoneMatch, ...call } = options
        const headers = { 'If-Match': ifMatch, 'If-None-Match': ifNoneMatch }
        return this.#transport.json('PUT references/{}', { path: [name], headers, json: { snapshot } }, call)
    }

    /** Deletes a reference. Its snapshot stays. */
    async delete(name: string, options: Omit<ReferenceConditions, 'ifNoneMatch'> = {}): Promise<void> {
        const { ifMatch, ...call } = options
        await this.#transport.json('DELETE references/{}', { path: [name], headers: { 'If-Match': ifMatch } }, call)
    }
}
