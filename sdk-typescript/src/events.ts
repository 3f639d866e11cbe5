// Events of the server.

import { type AgentOptions, agentHeader } from './agent.js'
import { followEvents } from './event-stream.js'
import type { OperationId } from './generated/operations.js'
import type * as Wire from './generated/wire.js'
import { type CallOptions, type Transport, parseJson } from './transport.js'
import type { EventGap, ServerEvent } from './types.js'

/** Event of a stream, or a range of events that may be missing. */
export type FollowedEvent = ServerEvent | EventGap

/** Events of sandboxes, snapshots and projects. */
export class EventService {
    readonly #transport: Transport

    /** @internal */
    constructor(transport: Transport) {
        this.#transport = transport
    }

    /** Lists a page of events, the oldest first. */
    list(params: Wire.ListEventsQuery & CallOptions = {}): Promise<Wire.EventPage> {
        const { signal, timeout, ...query } = params
        return this.#transport.json('list_events', { query }, { signal, timeout })
    }

    /** Iterates over the stored events after `after`, and then over new ones as they occur. It ends when it is left. */
    follow(params: Omit<Wire.ListEventsQuery, 'limit'> & CallOptions = {}): AsyncGenerator<FollowedEvent> {
        return followServerEvents(this.#transport, 'list_events', {}, params)
    }
}

/** Follows events of an operation. A lost connection is made again after the last event. */
export async function* followServerEvents(
    transport: Transport,
    operation: OperationId,
    path: Record<string, string>,
    params: { after?: number } & AgentOptions,
): AsyncGenerator<FollowedEvent> {
    const { signal, timeout, agent, after, ...filters } = params
    const headers = agentHeader(agent)
    let position = after
    const messages = followEvents(
        transport,
        {
            request: () => [operation, { path, query: { ...filters, after: position }, headers }],
            accept: ({ comment, id }) => {
                if (comment === undefined && id !== '') position = Number(id)
                return false
            },
        },
        { signal, timeout },
    )
    for await (const { comment, event, data } of messages) {
        if (comment !== undefined) continue
        if (event === 'gap') yield { type: 'gap', ...(JSON.parse(data) as Wire.EventGap) }
        else yield parseJson(data, 'Event') as ServerEvent
    }
}
