// Streams of server-sent events that survive lost connections.

import type { Route } from './generated/routes.js'
import { ServerUnreachableError } from './errors.js'
import { Reconnection, isDisconnection } from './reconnection.js'
import { type Message, SseParser } from './sse.js'
import { type AgentOptions, type OpenResponse, type Request, type Transport, readChunks } from './transport.js'

/** Source of a stream. */
export interface EventSource {
    /** Returns the request of the next connection. */
    request(): [Route, Request]
    /** Handles a message: returns true if it is the last one of the stream. It is called before the message is yielded. */
    accept(message: Message): boolean
}

/**
 * Yields the messages of a stream, with a new connection when one is lost, ends early, or is silent. Gives up when no
 * connection could be made for `reconnectTimeout`. The first one is tried like any request.
 */
export async function* followEvents(
    transport: Transport,
    source: EventSource,
    options: AgentOptions,
): AsyncGenerator<Message> {
    const reconnection = new Reconnection(transport.config)
    let wasOpen = false
    for (;;) {
        const [operation, request] = source.request()
        const headers = { Accept: 'text/event-stream', ...request.headers }
        try {
            const open = await transport.open(
                operation,
                { patience: 'body', ...request, headers, once: wasOpen },
                options,
            )
            wasOpen = true
            try {
                for await (const message of readMessages(open, transport.config.idleTimeout)) {
                    reconnection.noteMessage(message.comment === undefined)
                    const isLast = source.accept(message)
                    yield message
                    if (isLast) return
                }
            } finally {
                open.deadline.close()
            }
        } catch (error) {
            options.signal?.throwIfAborted()
            if (!wasOpen || !isDisconnection(error)) throw error
            await reconnection.wait(error, options.signal)
        }
    }
}

/** Yields the messages of one connection. Throws `ServerUnreachableError` when it ends, or is silent. */
async function* readMessages(open: OpenResponse, idleTimeout: number): AsyncGenerator<Message> {
    const parser = new SseParser()
    for await (const chunk of readChunks(open, idleTimeout)) yield* parser.push(chunk)
    throw new ServerUnreachableError('the stream ended before its last event')
}
