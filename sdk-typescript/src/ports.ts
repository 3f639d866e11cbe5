// Ports of a sandbox.

import type * as Wire from './generated/wire.js'
import type { PortConnection } from './port-connection.js'
import { type CallOptions, type Transport, fields } from './transport.js'

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
        const path = [this.#sandboxId]
        const { items } = await this.#transport.json<Wire.PortList>('GET sandboxes/{}/ports', { path }, options)
        return items
    }

    /** Creates a preview: a URL that shows the HTTP server on a port to everybody who has it. */
    preview(port: number, options: Wire.CreatePreview & CallOptions = {}): Promise<Wire.Preview> {
        const request = { path: [this.#sandboxId, port], json: fields(options), repeatable: true }
        return this.#transport.json('POST sandboxes/{}/ports/{}', request, options)
    }

    /** Connects to a port. Throws `PORT_NOT_LISTENING` if nothing accepts the connection. */
    async connect(port: number, options: CallOptions = {}): Promise<PortConnection> {
        const { connectPort } = await import('./port-connection.js')
        return connectPort(this.#transport, [this.#sandboxId, port], options)
    }
}
