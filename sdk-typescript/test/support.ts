// Fixtures of the tests.

import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { type AddressInfo, type Socket, connect, createServer as createTcpServer } from 'node:net'
import { type ClientConfig, type Sandbox, WorkspaceClient } from '@elevo/workspace-sdk'

/** Client of the server that the runner of the tests has started. Retries are fast. */
export function testClient(config: ClientConfig = {}): WorkspaceClient {
    return new WorkspaceClient({ retryDelay: 5, ...config })
}

/** Creates a sandbox, and deletes it after `use`. */
export async function inSandbox(client: WorkspaceClient, use: (sandbox: Sandbox) => Promise<void>): Promise<void> {
    await using sandbox = await client.sandbox.create({ template: 'base' })
    await use(sandbox)
}

/** HTTP server with a handler in place of the real one. */
export class FakeServer {
    readonly requests: { method: string; url: string; headers: IncomingMessage['headers']; body: string }[] = []
    readonly #server: Server

    private constructor(server: Server) {
        this.#server = server
    }

    /** Starts a server. `answer` gets the number of the request, from 1. */
    static async start(
        answer: (response: ServerResponse, number: number, request: IncomingMessage) => void,
    ): Promise<FakeServer> {
        const server = createServer((request, response) => {
            let body = ''
            request.setEncoding('utf8')
            request.on('data', (chunk: string) => (body += chunk))
            request.on('end', () => {
                const { method = '', url = '', headers } = request
                fake.requests.push({ method, url, headers, body })
                answer(response, fake.requests.length, request)
            })
        })
        const fake = new FakeServer(server)
        await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
        return fake
    }

    get url(): string {
        return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`
    }

    client(config: ClientConfig = {}): WorkspaceClient {
        return testClient({ apiUrl: this.url, apiKey: 'secret-key', ...config })
    }

    async [Symbol.asyncDispose](): Promise<void> {
        this.#server.closeAllConnections()
        await new Promise((resolve) => this.#server.close(resolve))
    }
}

/** Sends a JSON response. */
export function sendJson(
    response: ServerResponse,
    status: number,
    body: unknown,
    headers: Record<string, string> = {},
): void {
    response.writeHead(status, { 'content-type': 'application/json', ...headers })
    response.end(JSON.stringify(body))
}

/** Sends an error of the API. */
export function sendError(
    response: ServerResponse,
    status: number,
    name: string,
    headers: Record<string, string> = {},
): void {
    sendJson(
        response,
        status,
        { error: { code: 9999, name, message: `the error ${name}`, details: {}, requestId: 'req-1' } },
        headers,
    )
}

/**
 * Failure of a connection: it is ended in order or reset, it stays open without passing any more bytes, or passes them
 * after a delay.
 */
export type Fault = 'end' | 'reset' | 'stall' | 'delay'

/** Delay of the fault `delay`, in milliseconds. */
const DELAY = 5

/** TCP proxy in front of a server, whose connections may fail. */
export class Proxy {
    readonly #server = createTcpServer((client) => this.#accept(client))
    readonly #target: URL
    readonly #sockets = new Set<Socket>()
    /** Number of connections so far. */
    connections = 0
    /** Bytes of responses after which the next connection fails; infinite for none. Each value is for one connection. */
    cuts: number[] = []
    /** Failure of connections at the offsets of `cuts`. */
    fault: Fault = 'end'
    /** Size of the responses on the last connection that was made. */
    lastSize = 0
    /** Largest piece in which bytes of responses are passed on. */
    pieceSize = Infinity

    private constructor(target: string) {
        this.#target = new URL(target)
    }

    static async start(target = process.env['WORKSPACE_API_URL'] ?? ''): Promise<Proxy> {
        const proxy = new Proxy(target)
        await new Promise<void>((resolve) => proxy.#server.listen(0, '127.0.0.1', resolve))
        return proxy
    }

    get url(): string {
        return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`
    }

    /** Cuts all present connections. */
    cutAll(): void {
        for (const socket of this.#sockets) socket.destroy()
    }

    #accept(client: Socket): void {
        this.connections += 1
        let left = this.cuts.shift() ?? Infinity
        this.lastSize = 0
        const server = connect(Number(this.#target.port), this.#target.hostname)
        for (const [socket, peer] of [
            [client, server],
            [server, client],
        ] as const) {
            this.#sockets.add(socket)
            socket.setNoDelay()
            socket.on('error', () => peer.destroy())
            socket.on('close', () => {
                this.#sockets.delete(socket)
                peer.destroy()
            })
        }
        client.pipe(server)
        server.on('data', (data) => {
            this.lastSize += data.length
            const part = data.subarray(0, left)
            left -= part.length
            if (left === 0 && this.fault === 'delay') {
                left = Infinity
                client.write(part)
                server.pause()
                setTimeout(() => {
                    client.write(data.subarray(part.length))
                    server.resume()
                }, DELAY)
                return
            }
            for (let start = 0; start < part.length; start += this.pieceSize) {
                client.write(part.subarray(start, start + this.pieceSize))
            }
            if (left > 0) return
            // The end comes after all bytes. A reset may overtake them, as on a real network.
            if (this.fault === 'end') client.end(() => client.destroy())
            else if (this.fault === 'reset') client.resetAndDestroy()
        })
    }

    async [Symbol.asyncDispose](): Promise<void> {
        this.cutAll()
        await new Promise((resolve) => this.#server.close(resolve))
    }
}
