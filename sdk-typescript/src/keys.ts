// Keys of the API.

import type * as Wire from './generated/wire.js'
import type { CallOptions, Transport } from './transport.js'

/** Keys. */
export class KeyService {
    readonly #transport: Transport

    /** @internal */
    constructor(transport: Transport) {
        this.#transport = transport
    }

    /** Lists all keys, without their secrets. */
    async list(options: CallOptions = {}): Promise<Wire.Key[]> {
        const { items } = await this.#transport.json<Wire.KeyList>('GET keys', {}, options)
        return items
    }

    /** Creates a key. The response is the only one that has it. */
    create(params: Wire.CreateKey, options: CallOptions = {}): Promise<Wire.NewKey> {
        return this.#transport.json('POST keys', { json: params }, options)
    }

    /** Revokes a key. */
    async revoke(id: string, options: CallOptions = {}): Promise<void> {
        await this.#transport.json('DELETE keys/{}', { path: [id] }, options)
    }

    /** Returns the key or token of the client, with its limits and usage. */
    me(options: CallOptions = {}): Promise<Wire.Identity> {
        return this.#transport.json('GET me', {}, options)
    }
}
