// Templates: root filesystems of sandboxes.

import { fromBase64, encodeText } from './bytes.js'
import { apiError } from './api-error.js'
import { ServerUnreachableError, UnexpectedResponseError } from './errors.js'
import type * as Wire from './generated/wire.js'
import { SseParser } from './sse.js'
import { type CallOptions, type Content, type Transport, readChunks } from './transport.js'
import type { BuildEvent, Template } from './types.js'

/** Templates. */
export class TemplateService {
    readonly #transport: Transport

    /** @internal */
    constructor(transport: Transport) {
        this.#transport = transport
    }

    list(options: CallOptions = {}): Promise<Template[]> {
        return this.#transport.json('list_templates', {}, options)
    }

    get(name: string, options: CallOptions = {}): Promise<Wire.TemplateDetails> {
        return this.#transport.json('get_template', { path: { name } }, options)
    }

    /** Imports a root filesystem, the output of `docker save`, or an OCI image layout. Admins only. */
    importArchive(name: string, archive: Content, options: CallOptions = {}): Promise<Template> {
        const request = { path: { name }, content: archive, patience: 'endless' } as const
        return this.#transport.json('import_template', request, options)
    }

    async delete(name: string, options: CallOptions = {}): Promise<void> {
        await this.#transport.json('remove_template', { path: { name } }, options)
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
        const { signal, timeout, ...query } = options
        const headers = { Accept: 'text/event-stream' }
        const request = { path: { name }, query, headers, content: archive, patience: 'endless' } as const
        const open = await this.#transport.open('build_template', request, { signal, timeout })
        try {
            const parser = new SseParser()
            for await (const chunk of readChunks(open, this.#transport.config.idleTimeout)) {
                for (const { comment, data } of parser.push(chunk)) {
                    if (comment !== undefined) continue
                    const event = toBuildEvent(JSON.parse(data) as Wire.BuildEvent)
                    yield event
                    if (event.type === 'done') return
                }
            }
            throw new ServerUnreachableError('the build ended before its last event')
        } finally {
            open.deadline.close()
        }
    }
}

/** Converts an event of a build. Throws the error of a build that failed. */
function toBuildEvent(wire: Wire.BuildEvent): BuildEvent {
    const { step = 0, steps = 0 } = wire as { step?: number; steps?: number }
    switch (wire.type) {
        case 'step':
            return { type: 'step', step, steps, text: wire.text ?? '' }
        case 'cached':
            return { type: 'cached', step }
        case 'output': {
            const bytes = wire.dataBase64 == null ? encodeText(wire.data ?? '') : fromBase64(wire.dataBase64)
            const stream = wire.stream === 'stderr' ? 'stderr' : 'stdout'
            return { type: 'output', stream, data: wire.data ?? new TextDecoder().decode(bytes), bytes }
        }
        case 'done':
            if (!wire.template) break
            return {
                type: 'done',
                steps,
                cached: wire.cached ?? 0,
                created: wire.created ?? true,
                template: wire.template,
            }
        case 'error':
            if (wire.error) throw apiError({ ...wire.error, status: 422 })
    }
    throw new UnexpectedResponseError(`unknown event of a build: ${wire.type}`)
}
