// WebSocket connections of the platform, or of the package `ws` where the platform has none or sends no headers.

import { responseError } from './api-error.js'
import { ServerUnreachableError, UnexpectedResponseError } from './errors.js'
import type { Route } from './generated/routes.js'
import type { CallOptions, Transport } from './transport.js'
import { Deadline } from './cancellation.js'

/** Number of unread messages from which a connection is paused, if its implementation can be. */
const QUEUE_MAX = 64
const POLL_INTERVAL = 10
/** Bytes that a platform's WebSocket may queue before a writer waits. */
const BUFFERED_MAX = 1 << 20

/** Parts of the package `ws` that are used. */
interface WsSocket extends WebSocket {
    pause(): void
    resume(): void
    terminate(): void
    /** TCP connection, which Node.js can keep from keeping the process running. */
    _socket?: { ref?: () => void; unref?: () => void }
    once(event: 'unexpected-response', listener: (request: unknown, response: IncomingMessage) => void): void
}

interface IncomingMessage extends AsyncIterable<Uint8Array> {
    statusCode?: number
    headers: Record<string, string | string[] | undefined>
}

type WsConstructor = new (
    url: string,
    options: { headers: Record<string, string>; perMessageDeflate: boolean },
) => WsSocket

/** Connection to open. */
export interface SocketRequest {
    route: Route
    path: readonly (string | number)[]
    query?: object
    /** Creates a ticket for an implementation that cannot send headers. */
    ticket?: (options: CallOptions) => Promise<string>
}

/** Opens a WebSocket. Throws the error of the API if the server refuses it, and the implementation tells. */
export async function openSocket(transport: Transport, request: SocketRequest, options: CallOptions): Promise<Socket> {
    const { config } = transport
    const timeout = options.timeout ?? config.timeout
    const deadline = new Deadline(timeout, options.signal)
    try {
        const Platform = config.WebSocket
        const Ws = Platform ? undefined : await loadWs()
        const { route, path } = request
        const target = (query?: object): string => transport.url(route, path, query).replace(/^http/, 'ws')
        if (Ws) {
            const headers = transport.authorization()
            return await opened(new Ws(target(request.query), { headers, perMessageDeflate: false }), deadline)
        }
        const Constructor = Platform ?? globalThis.WebSocket
        if (!Constructor) throw new UnexpectedResponseError('this platform has no WebSocket: install the package ws')
        if (!request.ticket) {
            throw new UnexpectedResponseError(
                'this connection needs headers, which WebSockets of this platform cannot send: install the package ws',
            )
        }
        const ticket = await request.ticket({ signal: deadline.signal, timeout: 0 })
        return await opened(new Constructor(target({ ...request.query, ticket })), deadline)
    } finally {
        deadline.close()
    }
}

async function loadWs(): Promise<WsConstructor | undefined> {
    try {
        const module = (await import('ws')) as unknown as { WebSocket?: WsConstructor; default: WsConstructor }
        const Ws = module.WebSocket ?? module.default
        // In browsers, the package is a stub that throws.
        return typeof (Ws.prototype as Partial<WsSocket> | undefined)?.pause === 'function' ? Ws : undefined
    } catch {
        return undefined
    }
}

/** Waits until a socket is open. */
function opened(socket: WebSocket | WsSocket, { signal }: Deadline): Promise<Socket> {
    socket.binaryType = 'arraybuffer'
    return new Promise((resolve, reject) => {
        const onAbort = (): void => {
            reject(signal.reason)
            socket.close()
        }
        if (signal.aborted) return onAbort()
        signal.addEventListener('abort', onAbort, { once: true })
        let refusal: Promise<unknown> | undefined
        if ('once' in socket) {
            socket.once('unexpected-response', (_, response) => {
                refusal = readRefusal(response).then((error) => {
                    reject(error)
                    socket.terminate()
                })
            })
        }
        socket.addEventListener('error', (event) => {
            const { message } = event as { message?: string }
            if (!refusal) reject(new ServerUnreachableError(`the WebSocket failed: ${message ?? 'no reason given'}`))
        })
        // Messages may come in the same turn in which the socket opens.
        const connection = new Socket(socket)
        socket.addEventListener('open', () => {
            signal.removeEventListener('abort', onAbort)
            resolve(connection)
        })
    })
}

async function readRefusal(response: IncomingMessage): Promise<Error> {
    const decoder = new TextDecoder()
    let body = ''
    try {
        for await (const chunk of response) body += decoder.decode(chunk, { stream: true })
    } catch {
        // The status is known without the body.
    }
    const headers = new Headers()
    const retryAfter = response.headers['retry-after']
    if (typeof retryAfter === 'string') headers.set('retry-after', retryAfter)
    return responseError({ status: response.statusCode ?? 0, headers } as Response, body)
}

/** Why a connection ended. */
export interface SocketEnd {
    code: number
    reason: string
}

/** Open connection: messages are read with `next`, in order. */
export class Socket {
    readonly #socket: WebSocket | WsSocket
    readonly #queue: (string | Uint8Array)[] = []
    #end: SocketEnd | undefined
    #wake: (() => void) | undefined
    #isPaused = false
    /** Time of the last message, by `performance.now()`. */
    lastMessage = performance.now()

    constructor(socket: WebSocket | WsSocket) {
        this.#socket = socket
        socket.addEventListener('message', ({ data }) => {
            this.lastMessage = performance.now()
            this.#queue.push(typeof data === 'string' ? data : new Uint8Array(data as ArrayBuffer))
            if (this.#queue.length > QUEUE_MAX && 'pause' in this.#socket && !this.#isPaused) {
                this.#isPaused = true
                this.#socket.pause()
            }
            this.#wake?.()
        })
        socket.addEventListener('close', ({ code, reason }) => {
            this.#end ??= { code, reason }
            this.#wake?.()
        })
    }

    get isOpen(): boolean {
        return this.#end === undefined && this.#socket.readyState === 1
    }

    /** Returns the next message, or the end of the connection after the last one. */
    async next(): Promise<string | Uint8Array | SocketEnd> {
        for (;;) {
            const message = this.#queue.shift()
            if (this.#isPaused && this.#queue.length === 0 && 'resume' in this.#socket) {
                this.#isPaused = false
                this.#socket.resume()
            }
            if (message !== undefined) return message
            if (this.#end) return this.#end
            await new Promise<void>((resolve) => (this.#wake = resolve))
            this.#wake = undefined
        }
    }

    /** Sends a message, and waits while too much is unsent. Throws if the connection has ended. */
    async send(data: string | Uint8Array): Promise<void> {
        if (!this.isOpen) throw new ServerUnreachableError('the connection has ended')
        this.#socket.send(data as string)
        while (this.isOpen && this.#socket.bufferedAmount > BUFFERED_MAX) {
            await new Promise((resolve) => setTimeout(resolve, POLL_INTERVAL))
        }
    }

    /** Closes the connection; unread messages are dropped. */
    close(end: SocketEnd = { code: 1000, reason: 'closed by the client' }): void {
        this.#end ??= end
        this.#queue.length = 0
        if (this.#isPaused && 'resume' in this.#socket) this.#socket.resume()
        this.#socket.close()
        this.#wake?.()
    }

    /** Lets the process end, or not, while the connection is open, if the implementation can. */
    setRef(isRef: boolean): void {
        if (!('_socket' in this.#socket)) return
        if (isRef) this.#socket._socket?.ref?.()
        else this.#socket._socket?.unref?.()
    }

    /** Drops the connection without waiting for the server. */
    drop(reason: string): void {
        this.close({ code: 1006, reason })
        if ('terminate' in this.#socket) this.#socket.terminate()
    }
}
