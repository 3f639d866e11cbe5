// Notes of agents about their steps in a sandbox.

import type * as Wire from './generated/wire.js'
import { listAll } from './pages.js'
import type { CallOptions, Transport } from './transport.js'

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
        const { signal, timeout, ...rest } = options
        const json: Wire.CreateNote = { text, ...rest }
        return this.#transport.json('create_note', { path: { id: this.#sandboxId }, json }, { signal, timeout })
    }

    list(options: Wire.ListNotesQuery & CallOptions = {}): Promise<Wire.NoteList> {
        const { signal, timeout, ...query } = options
        return this.#transport.json('list_notes', { path: { id: this.#sandboxId }, query }, { signal, timeout })
    }

    listAll(options: Wire.ListNotesQuery & CallOptions = {}): AsyncIterable<Wire.Note> {
        return listAll((page) => this.list({ ...options, ...page }))
    }
}
