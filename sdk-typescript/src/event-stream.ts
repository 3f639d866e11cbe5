// Streams of server-sent events that survive lost connections.

import type { OperationId } from './generated/operations.js'
import { ServerUnreachableError } from './errors.js'
import { type Message, SseParser } from './sse.js'
import { type CallOptions, type OpenResponse, type Request, type Transport, readChunks } from './transport.js'

/** Source of a stream. */
export interface EventSource {
    /** Returns the request of the next connection. */
    request(): [OperationId, Request]
    /** Handles a message: returns true if it is the last one of the stream. It is called before the message is yielded. */
    accept(message: Message): boolean
}

/** Yields the messages of a stream, with a new connection when one is lost, ends early, or is silent. */
export async function* followEvents(
    transport: Transport,
    source: EventSource,
    options: CallOptions,
): AsyncGenerator<Message> {
    for (let failures = 0; ; ) {
        const [operation, request] = source.request()
        const headers = { Accept: 'text/event-stream', ...request.headers }
        const open = await transport.open(operation, { patience: 'body', ...request, headers }, options)
        try {
            for await (const message of readMessages(open, transport.config.idleTimeout)) {
                failures = 0
                const isLast = source.accept(message)
                yield message
                if (isLast) return
            }
        } catch (error) {
            if (!(error instanceof ServerUnreachableError)) throw error
            failures += 1
            if (failures > transport.config.retries) throw error
            await transport.backOff(failures, options.signal)
        } finally {
            open.deadline.close()
        }
    }
}

/** Yields the messages of one connection. Throws `ServerUnreachableError` when it ends, or is silent. */
async function* readMessages(open: OpenResponse, idleTimeout: number): AsyncGenerator<Message> {
    const parser = new SseParser()
    let lastByte = performance.now()
    const check = (): void => {
        if (performance.now() - lastByte < idleTimeout) return
        open.deadline.abort(new ServerUnreachableError(`the stream was silent for ${idleTimeout} ms`))
    }
    const timer = idleTimeout > 0 ? setInterval(check, Math.max(idleTimeout / 4, 1)) : undefined
    try {
        for await (const chunk of readChunks(open)) {
            lastByte = performance.now()
            yield* parser.push(chunk)
            // Time in which the consumer does not read is not silence of the server.
            lastByte = performance.now()
        }
    } finally {
        clearInterval(timer)
    }
    throw new ServerUnreachableError('the stream ended before its last event')
}
