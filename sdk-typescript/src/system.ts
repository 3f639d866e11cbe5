// The server itself.

import type * as Wire from './generated/wire.js'
import type { CallOptions, Transport } from './transport.js'

/** State of the server. */
export class SystemService {
    readonly #transport: Transport

    /** @internal */
    constructor(transport: Transport) {
        this.#transport = transport
    }

    /** Returns name, version and main paths of the server. */
    info(options: CallOptions = {}): Promise<Wire.ServerInfo> {
        return this.#transport.json('GET /', {}, options)
    }

    /** Returns that the server runs. */
    health(options: CallOptions = {}): Promise<Wire.Health> {
        return this.#transport.json('GET /health', {}, options)
    }

    /** Returns the checks of a server that is ready. Throws if it is not. */
    ready(options: CallOptions = {}): Promise<Wire.ReadinessReport> {
        return this.#transport.json('GET /ready', {}, options)
    }

    /** Returns counts, usage and limits of the server. */
    stats(options: CallOptions = {}): Promise<Wire.SystemStats> {
        return this.#transport.json('GET stats', {}, options)
    }

    /** Lists the workspaces that can be mounted over NFS. */
    nfsExports(options: CallOptions = {}): Promise<Wire.NfsExports> {
        return this.#transport.json('GET nfs/exports', {}, options)
    }

    /** Removes expired sandboxes and what is not used any more. */
    gc(options: CallOptions = {}): Promise<Wire.GcReport> {
        return this.#transport.json('POST gc', { repeatable: true, patience: 'long' }, options)
    }

    /** Returns the metrics in the format of Prometheus. */
    metrics(options: CallOptions = {}): Promise<string> {
        return this.#transport.text('GET /metrics', {}, options)
    }

    /** Returns the description of the API. */
    openapi(options: CallOptions = {}): Promise<Record<string, unknown>> {
        return this.#transport.json('GET openapi.json', {}, options)
    }

    /** Returns the documentation page of the API. */
    docs(options: CallOptions = {}): Promise<string> {
        return this.#transport.text('GET /api/docs', {}, options)
    }
}
