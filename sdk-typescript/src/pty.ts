// Terminals of a sandbox.

import type * as Wire from './generated/wire.js'
import type { PTYHandle } from './pty-handle.js'
import { type CallOptions, type Transport, fields } from './transport.js'
import type { PTYOptions } from './types.js'

/** Terminals of one sandbox. */
export class PTYService {
    readonly #transport: Transport
    readonly #sandboxId: string

    /** @internal */
    constructor(transport: Transport, sandboxId: string) {
        this.#transport = transport
        this.#sandboxId = sandboxId
    }

    /** Opens a terminal, and connects to it. */
    async create(options: PTYOptions, call: CallOptions = {}): Promise<PTYHandle> {
        const path = [this.#sandboxId]
        const terminal = await this.#transport.json<Wire.Terminal>(
            'POST sandboxes/{}/pty',
            { path, json: options },
            call,
        )
        const size = { cols: options.cols, rows: options.rows }
        return this.#connect(terminal.id, 0, call, size)
    }

    /** Connects to a terminal. Begins with its retained output, or at an offset. */
    async attach(ptyId: string, options: { from?: number } & CallOptions = {}): Promise<PTYHandle> {
        const { from = 0, ...call } = options
        return this.#connect(ptyId, from, call)
    }

    /** Sets the size of a terminal. */
    async resize(ptyId: string, cols: number, rows: number, options: CallOptions = {}): Promise<void> {
        const json: Wire.ResizeTerminal = { cols, rows }
        await this.#transport.json(
            'POST sandboxes/{}/pty/{}/resize',
            { path: this.#path(ptyId), json, repeatable: true },
            options,
        )
    }

    /** Closes a terminal, and kills all its processes. */
    async kill(ptyId: string, options: CallOptions = {}): Promise<void> {
        await this.#transport.json('DELETE sandboxes/{}/pty/{}', { path: this.#path(ptyId) }, options)
    }

    /** Creates a ticket for one connection without a key, for example from a browser. It is valid for 30 seconds. */
    ticket(ptyId: string, options: Wire.CreateTicket & CallOptions = {}): Promise<Wire.TerminalTicket> {
        const request = { path: this.#path(ptyId), json: fields(options), repeatable: true }
        return this.#transport.json('POST sandboxes/{}/pty/{}/ticket', request, options)
    }

    async #connect(
        ptyId: string,
        from: number,
        options: CallOptions,
        size?: { cols: number; rows: number },
    ): Promise<PTYHandle> {
        // Programs without terminals do not load the code for them.
        const { PTYHandle } = await import('./pty-handle.js')
        const handle = new PTYHandle(this, this.#transport, this.#sandboxId, ptyId, from, size)
        await handle.connect(options)
        return handle
    }

    #path(pty: string): string[] {
        return [this.#sandboxId, pty]
    }
}
