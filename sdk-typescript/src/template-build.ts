// Events of the build of a template.

import { apiError } from './api-error.js'
import { encodeText, fromBase64 } from './bytes.js'
import { ServerUnreachableError, UnexpectedResponseError } from './errors.js'
import type * as Wire from './generated/wire.js'
import { SseParser } from './sse.js'
import { type OpenResponse, readChunks } from './transport.js'
import type { BuildEvent } from './types.js'

/** Yields the events of a build. Ends the connection, and so the build, if the iteration is left. */
export async function* buildEvents(open: OpenResponse, idleTimeout: number): AsyncGenerator<BuildEvent> {
    try {
        const parser = new SseParser()
        for await (const chunk of readChunks(open, idleTimeout)) {
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
