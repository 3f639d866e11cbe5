// Templates: root filesystems of sandboxes.

import type * as Wire from './generated/wire.js'
import { type CallOptions, type Content, type Transport, fields } from './transport.js'
import type { BuildEvent, Template } from './types.js'

/** Templates. */
export class TemplateService {
    readonly #transport: Transport

    /** @internal */
    constructor(transport: Transport) {
        this.#transport = transport
    }

    /** Lists the templates. */
    list(options: CallOptions = {}): Promise<Template[]> {
        return this.#transport.json('GET templates', {}, options)
    }

    /** Returns a template with its versions. */
    get(name: string, options: CallOptions = {}): Promise<Wire.TemplateDetails> {
        return this.#transport.json('GET templates/{}', { path: [name] }, options)
    }

    /** Imports a root filesystem, the output of `docker save`, or an OCI image layout. Admins only. */
    importArchive(name: string, archive: Content, options: CallOptions = {}): Promise<Template> {
        const request = { path: [name], content: archive, patience: 'endless' } as const
        return this.#transport.json('PUT templates/{}', request, options)
    }

    /** Deletes a version of a template, or an imported one. Admins only. */
    async delete(name: string, options: CallOptions = {}): Promise<void> {
        await this.#transport.json('DELETE templates/{}', { path: [name] }, options)
    }

    /**
     * Builds a template from an archive with a recipe. The build is cancelled when the iteration is left, or the
     * connection is lost. Admins only.
     */
    async *build(
        name: string,
        archive: Content,
        options: Wire.BuildTemplateQuery & CallOptions = {},
    ): AsyncGenerator<BuildEvent> {
        const { buildEvents } = await import('./template-build.js')
        const headers = { Accept: 'text/event-stream' }
        const query = fields(options)
        const request = { path: [name], query, headers, content: archive, patience: 'endless' } as const
        const open = await this.#transport.open('POST templates/{}/build', request, options)
        yield* buildEvents(open, this.#transport.config.idleTimeout)
    }
}
