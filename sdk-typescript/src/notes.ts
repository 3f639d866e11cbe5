// Notes of agents about their steps in a sandbox.

import type * as Wire from './generated/wire.js'
import { listAll } from './pages.js'
import { type CallOptions, type Transport, fields } from './transport.js'

/** Notes of one sandbox. */
export class NoteService {
    readonly #transport: Transport
    readonly #sandboxId: string

    /** @internal */
    constructor(transport: Transport, sandboxId: string) {
        this.#transport = transport
        this.#sandboxId = sandboxId
    }

    create(text: string, options: Omit<Wire.CreateNote, 'text'> & CallOptions = {}): Promise<Wire.Note> {
        const json: Wire.CreateNote = { text, ...fields(options) }
        return this.#transport.json('POST sandboxes/{}/notes', { path: [this.#sandboxId], json }, options)
    }

    list(options: Wire.ListNotesQuery & CallOptions = {}): Promise<Wire.NoteList> {
        return this.#transport.json(
            'GET sandboxes/{}/notes',
            { path: [this.#sandboxId], query: fields(options) },
            options,
        )
    }

    listAll(options: Wire.ListNotesQuery & CallOptions = {}): AsyncIterable<Wire.Note> {
        return listAll((page) => this.list({ ...options, ...page }))
    }
}
