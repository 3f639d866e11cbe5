// TCP connection to a port of a sandbox.

import { asyncDispose } from './dispose.js'
import { ServerUnreachableError } from './errors.js'
import type { CallOptions, Transport } from './transport.js'
import { type Socket, openSocket } from './websocket.js'

/** Maximum size of a message in bytes. */
const MESSAGE_MAX = 64 << 10

/** Connects to a port, named by the parameters of its path. */
export async function connectPort(
    transport: Transport,
    path: readonly (string | number)[],
    options: CallOptions,
): Promise<PortConnection> {
    return new PortConnection(
        await openSocket(transport, { route: 'GET sandboxes/{}/ports/{}/connect', path }, options),
    )
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

    /** Closes the connection at the end of an `await using` block. */
    [asyncDispose](): Promise<void> {
        this.close()
        return Promise.resolve()
    }

    /** Yields the bytes that the program sends, until it ends its direction. */
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
