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

    /** Adds a note about what the agent does, for the history of the files that it changes. */
    create(text: string, options: Omit<Wire.CreateNote, 'text'> & CallOptions = {}): Promise<Wire.Note> {
        const json: Wire.CreateNote = { text, ...fields(options) }
        return this.#transport.json('POST sandboxes/{}/notes', { path: [this.#sandboxId], json }, options)
    }

    /** Lists a page of notes. */
    list(options: Wire.ListNotesQuery & CallOptions = {}): Promise<Wire.NoteList> {
        return this.#transport.json(
            'GET sandboxes/{}/notes',
            { path: [this.#sandboxId], query: fields(options) },
            options,
        )
    }

    /** Iterates over all notes. */
    listAll(options: Wire.ListNotesQuery & CallOptions = {}): AsyncIterable<Wire.Note> {
        return listAll((page) => this.list({ ...options, ...page }))
    }
}
