// Connection to a terminal.

import { toBytes } from './bytes.js'
import { asyncDispose } from './dispose.js'
import { ServerUnreachableError, UnexpectedResponseError, WorkspaceError } from './errors.js'
import type { PTYService } from './pty.js'
import { Reconnection, isDisconnection } from './reconnection.js'
import type { CallOptions, Transport } from './transport.js'
import type { PTYEvent } from './types.js'
import { type Socket, openSocket } from './websocket.js'

/** Ping interval in milliseconds. The server disconnects clients that are silent for 90 seconds. */
const PING_INTERVAL = 30_000

/** Message of the server, besides binary output. */
type ServerMessage =
    | { type: 'gap'; from: number; to: number }
    | { type: 'exit'; exitCode: number }
    | { type: 'error'; message: string }
    | { type: 'pong' }

/**
 * Connection to a terminal, which is made again when it is lost: the output has no gap and no repeat. Input that was
 * sent just before a connection broke may be lost. It can be iterated once.
 */
export class PTYHandle implements AsyncIterable<PTYEvent> {
    readonly #service: PTYService
    readonly #transport: Transport
    readonly #sandboxId: string
    readonly #decoder = new TextDecoder('utf-8', { ignoreBOM: true })
    #size: { cols: number; rows: number } | undefined
    #offset: number
    #socket: Socket | undefined
    #connecting: Promise<Socket> | undefined
    #pings: ReturnType<typeof setInterval> | undefined
    #exitCode: number | undefined
    #isClosed = false
    #isRef = true
    #wasConnected = false
    #iterator: AsyncGenerator<PTYEvent> | undefined

    /** @internal */
    constructor(
        service: PTYService,
        transport: Transport,
        sandboxId: string,
        readonly id: string,
        from: number,
        size?: { cols: number; rows: number },
    ) {
        this.#service = service
        this.#transport = transport
        this.#sandboxId = sandboxId
        this.#offset = from
        this.#size = size
    }

    /** URL of the WebSocket of the terminal. Connecting to it needs a key, a token or a ticket. */
    get websocketUrl(): string {
        return this.#transport.url('GET sandboxes/{}/pty/{}/ws', this.#path).replace(/^http/, 'ws')
    }

    /** Exit code of the shell, once its event was read. */
    get exitCode(): number | undefined {
        return this.#exitCode
    }

    get #path(): string[] {
        return [this.#sandboxId, this.id]
    }

    /** @internal */
    async connect(options: CallOptions = {}): Promise<void> {
        await this.#connection(options)
    }

    /** Sends input. */
    async write(data: string | Uint8Array): Promise<void> {
        // Unread messages of an ended connection come again: the next one begins where reading has got to.
        if (this.#socket && !this.#socket.isOpen) this.#disconnect(this.#socket)
        const socket = await this.#connection()
        await socket.send(toBytes(data))
    }

    /** Sets the size of the terminal. */
    async resize(cols: number, rows: number, options: CallOptions = {}): Promise<void> {
        this.#size = { cols, rows }
        await this.#service.resize(this.id, cols, rows, options)
    }

    /** Closes the terminal, and kills all its processes. */
    kill(options: CallOptions = {}): Promise<void> {
        return this.#service.kill(this.id, options)
    }

    /** Reads the output to its end, and returns the exit code of the shell. */
    async wait(): Promise<number> {
        for await (const event of this) void event
        if (this.#exitCode === undefined) throw new UnexpectedResponseError('the terminal ended without an exit code')
        return this.#exitCode
    }

    /** Lets Node.js exit although the terminal is connected. By default, an open terminal keeps it running, like a socket. */
    unref(): this {
        return this.#setRef(false)
    }

    /** Takes back `unref`. */
    ref(): this {
        return this.#setRef(true)
    }

    #setRef(isRef: boolean): this {
        this.#isRef = isRef
        this.#socket?.setRef(isRef)
        return this
    }

    /** Ends the connection. The terminal stays; `attach` connects again. */
    close(): void {
        this.#isClosed = true
        this.#disconnect(this.#socket)
    }

    /** Ends the connection at the end of an `await using` block. The terminal stays. */
    [asyncDispose](): Promise<void> {
        this.close()
        return Promise.resolve()
    }

    /** Yields output, gaps and errors, and at last the exit. */
    [Symbol.asyncIterator](): AsyncGenerator<PTYEvent> {
        return (this.#iterator ??= this.#events())
    }

    async *#events(): AsyncGenerator<PTYEvent> {
        try {
            const reconnection = new Reconnection(this.#transport.config)
            while (!this.#isClosed) {
                const socket = await this.#connection()
                const message = await socket.next()
                if (typeof message === 'string' || message instanceof Uint8Array) {
                    reconnection.noteMessage(true)
                    const event = typeof message === 'string' ? this.#parse(message) : this.#output(message)
                    if (event) yield event
                    if (event?.type === 'exit') return
                    continue
                }
                // A writer may have replaced the connection already.
                this.#disconnect(socket)
                if (this.#isClosed) return
                if (this.#socket) continue
                if (message.code === 1000)
                    throw new UnexpectedResponseError(`the terminal was closed: ${message.reason}`)
                const reason = message.reason || message.code
                await reconnection.wait(
                    new ServerUnreachableError(`the connection to the terminal was lost: ${reason}`),
                )
            }
        } finally {
            this.#disconnect(this.#socket)
        }
    }

    #output(bytes: Uint8Array): PTYEvent {
        const offset = this.#offset
        this.#offset += bytes.length
        return { type: 'output', data: this.#decoder.decode(bytes, { stream: true }), bytes, offset }
    }

    #parse(text: string): PTYEvent | undefined {
        const message = JSON.parse(text) as ServerMessage
        switch (message.type) {
            case 'gap':
                this.#offset = message.to
                return { type: 'gap', from: message.from, to: message.to }
            case 'exit':
                this.#exitCode = message.exitCode
                return { type: 'exit', exitCode: message.exitCode }
            case 'error':
                return { type: 'error', message: message.message }
            default:
                return undefined
        }
    }

    /** Returns the open connection, or makes one. */
    async #connection(options: CallOptions = {}): Promise<Socket> {
        if (this.#isClosed) throw new ServerUnreachableError('the connection to the terminal was closed')
        if (this.#socket) return this.#socket
        this.#connecting ??= this.#open(options).finally(() => (this.#connecting = undefined))
        return this.#connecting
    }

    async #open(options: CallOptions): Promise<Socket> {
        const { retries } = this.#transport.config
        const reconnection = new Reconnection(this.#transport.config)
        for (let failures = 1; ; failures += 1) {
            try {
                // After a restart of the server, input would be lost until the agent of the sandbox is connected. Resizing tells.
                if (this.#size && this.#wasConnected) await this.#checkAgent(this.#size, options)
                const socket = await openSocket(
                    this.#transport,
                    {
                        route: 'GET sandboxes/{}/pty/{}/ws',
                        path: this.#path,
                        query: { binary: true, from: this.#offset },
                        ticket: async (call) => (await this.#service.ticket(this.id, call)).ticket,
                    },
                    options,
                )
                this.#socket = socket
                this.#wasConnected = true
                socket.setRef(this.#isRef)
                this.#pings = setInterval(() => this.#ping(socket), PING_INTERVAL)
                // The connection keeps the process running, or not. Timers of browsers are numbers.
                if (typeof this.#pings === 'object') this.#pings.unref()
                return socket
            } catch (error) {
                options.signal?.throwIfAborted()
                // The first connection is tried like any request; a lost one is worth more patience.
                if (!isDisconnection(error) || (!this.#wasConnected && failures > retries)) throw error
                await reconnection.wait(error, options.signal)
            }
        }
    }

    async #checkAgent({ cols, rows }: { cols: number; rows: number }, options: CallOptions): Promise<void> {
        try {
            await this.#service.resize(this.id, cols, rows, options)
        } catch (error) {
            // The connection to a closed terminal still delivers its exit code.
            if (!(error instanceof WorkspaceError) || error.retryable) throw error
        }
    }

    #ping(socket: Socket): void {
        const { idleTimeout } = this.#transport.config
        if (idleTimeout > 0 && performance.now() - socket.lastMessage > Math.max(idleTimeout, PING_INTERVAL * 1.5)) {
            socket.drop('the server was silent')
        } else if (socket.isOpen) {
            void socket.send('{"type":"ping"}').catch(() => undefined)
        }
    }

    #disconnect(socket: Socket | undefined): void {
        socket?.close()
        if (socket !== this.#socket) return
        clearInterval(this.#pings)
        this.#socket = undefined
    }
}
