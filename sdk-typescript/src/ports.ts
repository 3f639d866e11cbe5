// Ports of a sandbox.

import { asyncDispose } from './dispose.js'
import { ServerUnreachableError } from './errors.js'
import type * as Wire from './generated/wire.js'
import type { CallOptions, Transport } from './transport.js'
import { type Socket, openSocket } from './websocket.js'

/** Maximum size of a message in bytes. */
const MESSAGE_MAX = 64 << 10

/** TCP ports of one sandbox. */
export class PortService {
    readonly #transport: Transport
    readonly #sandboxId: string

    /** @internal */
    constructor(transport: Transport, sandboxId: string) {
        this.#transport = transport
        this.#sandboxId = sandboxId
    }

    /** Lists the ports on which programs listen. */
    async list(options: CallOptions = {}): Promise<Wire.ListeningPort[]> {
        const path = { id: this.#sandboxId }
        const { items } = await this.#transport.json<Wire.PortList>('list_ports', { path }, options)
        return items
    }

    /** Creates a preview: a URL that shows the HTTP server on a port to everybody who has it. */
    preview(port: number, options: Wire.CreatePreview & CallOptions = {}): Promise<Wire.Preview> {
        const { signal, timeout, ...json } = options
        const request = { path: { id: this.#sandboxId, port }, json, repeatable: true }
        return this.#transport.json('create_preview', request, { signal, timeout })
    }

    /** Connects to a port. Throws `PORT_NOT_LISTENING` if nothing accepts the connection. */
    async connect(port: number, options: CallOptions = {}): Promise<PortConnection> {
        const path = { id: this.#sandboxId, port }
        return new PortConnection(await openSocket(this.#transport, { operation: 'connect_port', path }, options))
    }
}

/** TCP connection to a port: iterate to read. */
export class PortConnection implements AsyncIterable<Uint8Array> {
    readonly #socket: Socket

    /** @internal */
    constructor(socket: Socket) {
        this.#socket = socket
    }

    /** Writes bytes. */
    async write(data: Uint8Array): Promise<void> {
        for (let start = 0; start < data.length; start += MESSAGE_MAX) {
            await this.#socket.send(data.subarray(start, start + MESSAGE_MAX))
        }
    }

    /** Ends the direction to the sandbox, as `shutdown` does. The other one stays open. */
    end(): Promise<void> {
        return this.#socket.send(new Uint8Array())
    }

    /** Closes the connection. */
    close(): void {
        this.#socket.close()
    }

    [asyncDispose](): Promise<void> {
        this.close()
        return Promise.resolve()
    }

    async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array> {
        try {
            for (;;) {
                const message = await this.#socket.next()
                if (message instanceof Uint8Array) {
                    // The program has ended its direction; the end of the connection follows.
                    if (message.length === 0) return
                    yield message
                } else if (typeof message === 'object') {
                    if (message.code === 1000) return
                    throw new ServerUnreachableError(
                        `the connection to the port was lost: ${message.reason || message.code}`,
                    )
                }
            }
        } finally {
            // The other direction may still be open.
        }
    }
}
