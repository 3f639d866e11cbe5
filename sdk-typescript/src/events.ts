// Events of the server.

import type { Route } from './generated/routes.js'
import type * as Wire from './generated/wire.js'
import { type AgentOptions, type CallOptions, type Transport, fields, parseJson } from './transport.js'
import type { EventPage, ServerEvent } from './server-events.js'
import type { EventGap } from './types.js'

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
    list(params: Wire.ListEventsQuery & CallOptions = {}): Promise<EventPage> {
        return this.#transport.json('GET events', { query: fields(params) }, params)
    }

    /** Iterates over the stored events after `after`, and then over new ones as they occur. It ends when it is left. */
    follow(params: Omit<Wire.ListEventsQuery, 'limit'> & CallOptions = {}): AsyncGenerator<FollowedEvent> {
        return followServerEvents(this.#transport, 'GET events', [], params)
    }
}

/** Follows events of an operation. A lost connection is made again after the last event. */
export async function* followServerEvents(
    transport: Transport,
    route: Route,
    path: string[],
    params: { after?: number } & AgentOptions,
): AsyncGenerator<FollowedEvent> {
    const { signal, timeout, agent, after, ...filters } = params
    let position = after
    const { followEvents } = await import('./event-stream.js')
    const messages = followEvents(
        transport,
        {
            request: () => [route, { path, query: { ...filters, after: position } }],
            accept: ({ comment, id }) => {
                if (comment === undefined && id !== '') position = Number(id)
                return false
            },
        },
        { signal, timeout, agent },
    )
    for await (const { comment, event, data } of messages) {
        if (comment !== undefined) continue
        if (event === 'gap') yield { type: 'gap', ...(JSON.parse(data) as Wire.EventGap) }
        else yield parseJson(data) as ServerEvent
    }
}
