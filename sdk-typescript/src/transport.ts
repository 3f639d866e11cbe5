// Requests: URLs, bodies, timeouts, retries, errors and the debug log.

import { concat } from './bytes.js'
import { Deadline, sleep } from './cancellation.js'
import type { ResolvedConfig } from './config.js'
import { responseError, retryAfterOf, wasNotPerformed } from './api-error.js'
import { NotFoundError, ServerUnreachableError, UnexpectedResponseError, WorkspaceError } from './errors.js'
import { type Route, dateFields, opaqueFields } from './generated/routes.js'

/** Options of every call. */
export interface CallOptions {
    /** Cancels the call, which then rejects with the signal's reason. */
    signal?: AbortSignal
    /** Timeout of the call with its retries in milliseconds; 0 for none. */
    timeout?: number
}

/** Options of requests that the API answers for an agent. */
export interface AgentOptions extends CallOptions {
    /** Agent to act for, if the key may act for several. Default: that of the client. */
    agent?: string
}

/** Options of a request that is safe to repeat. */
export interface IdempotentOptions extends CallOptions {
    /** Key that makes a repeated request have the same effect and response. Default: a new one for each call. */
    idempotencyKey?: string
}

type Options = AgentOptions & IdempotentOptions

/** Returns the fields of a request that were given among its options. */
export function fields<T extends Options>(options: T): Omit<T, keyof Options> {
    const copy = { ...options }
    for (const name of ['signal', 'timeout', 'agent', 'idempotencyKey'] as const) delete copy[name]
    return copy
}

/** Content to send. Only streams cannot be sent again after a lost connection. */
export type Content = string | Uint8Array | ArrayBuffer | Blob | AsyncIterable<Uint8Array> | ReadableStream<Uint8Array>

/**
 * Default timeout: that of the client (`normal`), at least five minutes for operations that copy files (`long`), that of
 * the client until the response begins (`body`), or none (`endless`).
 */
export type Patience = 'normal' | 'long' | 'body' | 'endless'

/** Minimum of the default timeout of operations that copy files, in milliseconds. */
const LONG_TIMEOUT = 300_000
/** Duration of an attempt after which a lost connection does not count as a failure: it was alive. */
const LIVELY_ATTEMPT = 10_000

/** Request of an operation. */
export interface Request {
    /** Values of the parameters in the path, in their order. */
    path?: readonly (string | number)[]
    query?: object
    json?: unknown
    content?: Content
    contentType?: string
    headers?: Record<string, string | undefined>
    /** Makes a POST safe to repeat. */
    idempotencyKey?: string
    /** True for a POST that gets the idempotency key of its options, or a new one. */
    isIdempotent?: boolean
    /** True for a POST that is safe to repeat without a key. */
    repeatable?: boolean
    patience?: Patience
    /** True if the request is not repeated here: the caller does so. */
    once?: boolean
}

/** Response with the signal that ends with it. */
export interface OpenResponse {
    response: Response
    /** Must be closed after the body. */
    deadline: Deadline
}

/** Attempt that failed before the request was sent. */
class NotSent {
    constructor(readonly error: ServerUnreachableError) {}
}

/** Codes of Node.js for connections that could not be made. */
const NOT_SENT = new Set([
    'ECONNREFUSED',
    'ENOTFOUND',
    'EAI_AGAIN',
    'EHOSTUNREACH',
    'ENETUNREACH',
    'UND_ERR_CONNECT_TIMEOUT',
])

const isNode =
    typeof (globalThis as { process?: { versions?: { node?: string } } }).process?.versions?.node === 'string'
/**
 * True if bodies of requests can be streams. Browsers have none, or need HTTP/2 for them; they are the platforms with a
 * window or a worker scope that are no server runtimes.
 */
const hasRequestStreams =
    isNode || 'Deno' in globalThis || !('window' in globalThis || 'WorkerGlobalScope' in globalThis)
const USER_AGENT = 'elevo-workspace-sdk-typescript/0.1.0'

/** Sends requests to a server. */
export class Transport {
    readonly #config: ResolvedConfig

    constructor(config: ResolvedConfig) {
        this.#config = config
    }

    get config(): ResolvedConfig {
        return this.#config
    }

    /** Returns the headers with which the server knows the caller. */
    authorization(): Record<string, string> {
        return { ...this.#config.headers, Authorization: `Bearer ${this.#config.apiKey}` }
    }

    /** Returns the URL of an operation. */
    url(route: Route, path?: readonly (string | number)[], query?: object): string {
        return this.#config.apiUrl + expandPath(route, path) + encodeQuery(query)
    }

    /** Performs an operation, and returns its JSON response with times as `Date`; `undefined` if it has no body. */
    async json<T>(route: Route, request: Request = {}, options: Options = {}): Promise<T> {
        const headers = { Accept: 'application/json', ...request.headers }
        const text = await this.#call(route, { ...request, headers }, options, readText)
        if (text === '') return undefined as T
        return parseJson(text) as T
    }

    /** Performs an operation, and returns its response as text. */
    text(route: Route, request: Request = {}, options: Options = {}): Promise<string> {
        return this.#call(route, request, options, readText)
    }

    /** Performs an operation, and returns its response as bytes. */
    bytes(route: Route, request: Request = {}, options: Options = {}): Promise<Uint8Array> {
        return this.#call(route, { patience: 'body', ...request }, options, async (open) => {
            open.deadline.stopTimer()
            const parts: Uint8Array[] = []
            for await (const part of readChunks(open, this.#config.idleTimeout)) parts.push(part)
            return concat(parts)
        })
    }

    /** Performs an operation, and returns the chunks of its response. The request is sent with the first chunk. */
    async *chunks(route: Route, request: Request = {}, options: Options = {}): AsyncGenerator<Uint8Array> {
        const open = await this.open(route, { patience: 'body', ...request }, options)
        try {
            yield* readChunks(open, this.#config.idleTimeout)
        } finally {
            open.deadline.close()
        }
    }

    /** Performs an operation, and returns the response before its body was read. */
    open(route: Route, request: Request, options: Options): Promise<OpenResponse> {
        return this.#call(route, request, options, (open) => Promise.resolve(open), true)
    }

    /** Returns the delay before a retry in milliseconds, with jitter. */
    #delay(failures: number): number {
        const { retryDelay, retryBackoff, maxRetryDelay } = this.#config
        return Math.min(retryDelay * retryBackoff ** (failures - 1), maxRetryDelay) * (0.5 + Math.random() / 2)
    }

    #timeout(patience: Patience | undefined, timeout: number | undefined): number {
        if (timeout !== undefined) return timeout
        if (patience === 'endless' || this.#config.timeout === 0) return 0
        return patience === 'long' ? Math.max(this.#config.timeout, LONG_TIMEOUT) : this.#config.timeout
    }

    /** Performs an operation with retries, and reads the response with `read`. */
    async #call<T>(
        route: Route,
        given: Request,
        options: Options,
        read: (open: OpenResponse) => Promise<T>,
        keepOpen = false,
    ): Promise<T> {
        const request = {
            ...given,
            headers: { 'X-Agent': options.agent, ...given.headers },
            idempotencyKey:
                given.idempotencyKey ??
                (given.isIdempotent ? (options.idempotencyKey ?? newIdempotencyKey()) : undefined),
        }
        const deadline = new Deadline(this.#timeout(request.patience, options.timeout), options.signal)
        let isDone = false
        try {
            const isRepeatable =
                request.repeatable === true || request.idempotencyKey !== undefined || !/^(POST|PATCH) /.test(route)
            const canSendAgain = !isStream(request.content)
            let mayBeDone = false
            for (let attempt = 1, failures = 1; ; attempt += 1, failures += 1) {
                const begun = performance.now()
                try {
                    const result = await this.#attempt(route, request, deadline, attempt, read)
                    isDone = true
                    if (keepOpen) deadline.stopTimer()
                    return result
                } catch (thrown) {
                    const error = thrown instanceof NotSent ? thrown.error : thrown
                    if (deadline.signal.aborted) throw deadline.signal.reason
                    if (!(error instanceof WorkspaceError)) throw error
                    // The lost response of the attempt before was its success.
                    if (mayBeDone && route.startsWith('DELETE ') && error instanceof NotFoundError) {
                        return await read({ response: new Response(null, { status: 204 }), deadline })
                    }
                    const isRefused = thrown instanceof NotSent || wasNotPerformed(error)
                    if (!isRefused) mayBeDone = true
                    if (request.once === true || !canSendAgain || !(isRefused || (isRepeatable && error.retryable)))
                        throw error
                    const wasAlive =
                        error instanceof ServerUnreachableError && performance.now() - begun > LIVELY_ATTEMPT
                    if (wasAlive && request.idempotencyKey !== undefined) failures = 1
                    if (failures > this.#config.retries) throw error
                    const delay = retryAfterOf(error) ?? this.#delay(failures)
                    if (delay > deadline.remaining) throw error
                    await sleep(delay, deadline.signal)
                }
            }
        } finally {
            if (!(keepOpen && isDone)) deadline.close()
        }
    }

    /** Sends a request once. */
    async #attempt<T>(
        route: Route,
        request: Request,
        deadline: Deadline,
        attempt: number,
        read: (open: OpenResponse) => Promise<T>,
    ): Promise<T> {
        const method = route.slice(0, route.indexOf(' '))
        const begun = performance.now()
        let response: Response | undefined
        let failure: unknown
        try {
            response = await this.#fetch(method, route, request, deadline.signal)
            if (!response.ok) throw responseError(response, await response.text())
            return await read({ response, deadline })
        } catch (error) {
            failure = error
            if (deadline.signal.aborted || error instanceof WorkspaceError) throw error
            throw connectionError(error, this.#config.apiUrl)
        } finally {
            this.#config.logger?.({
                method,
                path: expandPath(route, request.path),
                attempt,
                status: response?.status,
                milliseconds: performance.now() - begun,
                requestId: response?.headers.get('x-request-id') ?? undefined,
                error: failure === undefined ? undefined : failure instanceof Error ? failure.name : 'Error',
            })
        }
    }

    async #fetch(method: string, route: Route, request: Request, signal: AbortSignal): Promise<Response> {
        const headers: Record<string, string> = this.authorization()
        if (isNode) headers['User-Agent'] = USER_AGENT
        for (const [name, value] of Object.entries(request.headers ?? {})) {
            if (value !== undefined) headers[name] = value
        }
        if (request.idempotencyKey !== undefined) headers['Idempotency-Key'] = request.idempotencyKey
        const init: RequestInit & { duplex?: 'half' } = { method, headers, signal, redirect: 'error' }
        if (request.json !== undefined) {
            headers['Content-Type'] = 'application/json'
            init.body = JSON.stringify(request.json)
        } else if (request.content !== undefined) {
            headers['Content-Type'] = request.contentType ?? 'application/octet-stream'
            init.body = hasRequestStreams ? toBody(request.content) : await toBufferedBody(request.content)
            if (init.body instanceof ReadableStream) init.duplex = 'half'
        }
        // Browsers refuse to call it as a method of another object.
        const { fetch } = this.#config
        return fetch(this.url(route, request.path, request.query), init)
    }
}

/** Creates a key that makes a request safe to repeat. */
export function newIdempotencyKey(): string {
    return (
        globalThis.crypto?.randomUUID?.() ??
        Array.from({ length: 4 }, () => Math.random().toString(36).slice(2)).join('')
    )
}

const readText = ({ response }: OpenResponse): Promise<string> => response.text()

/**
 * Reads the chunks of a response. Throws `ServerUnreachableError` if the connection is lost, or silent for `idleTimeout`
 * milliseconds; 0 for no limit. Ends the connection if the consumer stops early.
 */
export async function* readChunks(
    { response, deadline }: OpenResponse,
    idleTimeout: number,
): AsyncGenerator<Uint8Array> {
    if (!response.body) return
    const reader = response.body.getReader()
    let hasEnded = false
    // Time in which the consumer does not read is not silence of the server.
    let waitingSince = Infinity
    const check = (): void => {
        if (performance.now() - waitingSince < idleTimeout) return
        deadline.abort(new ServerUnreachableError(`the connection was silent for ${idleTimeout} ms`))
    }
    const timer = idleTimeout > 0 ? setInterval(check, Math.max(idleTimeout / 4, 1)) : undefined
    try {
        for (;;) {
            waitingSince = performance.now()
            const { done, value } = await reader.read()
            waitingSince = Infinity
            if (done) break
            yield value
        }
        hasEnded = true
    } catch (error) {
        if (deadline.signal.aborted) throw deadline.signal.reason
        throw new ServerUnreachableError('the connection was lost before the end of the response', error)
    } finally {
        clearInterval(timer)
        // Not awaited: a body that is not read may take long to end.
        if (!hasEnded) void reader.cancel().catch(() => undefined)
    }
}

/** Maps an error of `fetch`, or of a body. */
function connectionError(error: unknown, apiUrl: string): ServerUnreachableError | NotSent {
    const cause = (error as { cause?: { code?: string; message?: string } } | undefined)?.cause
    const reason = cause?.code ?? cause?.message ?? (error instanceof Error ? error.message : String(error))
    if (cause?.code !== undefined && NOT_SENT.has(cause.code)) {
        return new NotSent(new ServerUnreachableError(`${apiUrl} cannot be reached: ${reason}`, error))
    }
    return new ServerUnreachableError(`the connection to ${apiUrl} was lost: ${reason}`, error)
}

/** Parses JSON of the API, with times as `Date`. */
export function parseJson(text: string): unknown {
    try {
        return reviveDates(JSON.parse(text))
    } catch (error) {
        throw new UnexpectedResponseError('the response is not JSON; check apiUrl', undefined, false, error)
    }
}

/** Replaces the times of a value in place. */
function reviveDates(value: unknown): unknown {
    if (typeof value !== 'object' || value === null) return value
    const object = value as Record<string, unknown>
    for (const key of Object.keys(object)) {
        const field = object[key]
        if (typeof field === 'string') {
            if (dateFields.has(key)) object[key] = new Date(field)
        } else if (!opaqueFields.has(key) || (key === 'data' && 'type' in object)) {
            // Only the data of events has a type beside it, and is described by the API.
            reviveDates(field)
        }
    }
    return value
}

/** Returns the path of a route with its parameters. Only `{path}` may contain slashes. */
function expandPath(route: Route, values: readonly (string | number)[] = []): string {
    let index = 0
    const path = route.slice(route.indexOf(' ') + 1).replace(/\{(path)?\}/g, (_, isPath: string | undefined) => {
        const value = String(values[index++] ?? '')
        return isPath ? value.split('/').map(encodeURIComponent).join('/') : encodeURIComponent(value)
    })
    return path.startsWith('/') ? path : `/api/v1/${path}`
}

function encodeQuery(query: object = {}): string {
    const search = new URLSearchParams()
    for (const [name, value] of Object.entries(query) as [string, unknown][]) {
        for (const item of Array.isArray(value) ? value : [value]) {
            if (item === undefined || item === null) continue
            search.append(name, item instanceof Date ? item.toISOString() : String(item))
        }
    }
    const text = search.toString()
    return text === '' ? '' : `?${text}`
}

/** Returns true if the content can be sent only once. */
function isStream(content: Content | undefined): content is AsyncIterable<Uint8Array> | ReadableStream<Uint8Array> {
    return (
        typeof content === 'object' &&
        !(content instanceof Uint8Array || content instanceof ArrayBuffer || content instanceof Blob)
    )
}

function toBody(content: Content): BodyInit {
    if (!isStream(content)) return content as BodyInit
    return content instanceof ReadableStream ? content : toReadableStream(content)
}

/** Converts content for platforms without streams in requests: a stream is read to its end before it is sent. */
async function toBufferedBody(content: Content): Promise<BodyInit> {
    if (!isStream(content)) return content as BodyInit
    const parts: BlobPart[] = []
    const source = content instanceof ReadableStream ? readerOf(content) : content
    for await (const part of source) parts.push(part as Uint8Array<ArrayBuffer>)
    return new Blob(parts)
}

/** Iterates over a stream, also where streams cannot be iterated. */
async function* readerOf(stream: ReadableStream<Uint8Array>): AsyncGenerator<Uint8Array> {
    const reader = stream.getReader()
    for (;;) {
        const { done, value } = await reader.read()
        if (done) return
        yield value
    }
}

/** Converts chunks into a stream that is read no faster than it is sent. */
function toReadableStream(chunks: AsyncIterable<Uint8Array>): ReadableStream<Uint8Array> {
    const iterator = chunks[Symbol.asyncIterator]()
    return new ReadableStream<Uint8Array>({
        async pull(controller) {
            const next = await iterator.next()
            if (next.done) controller.close()
            else controller.enqueue(next.value)
        },
        async cancel(reason) {
            await iterator.return?.(reason)
        },
    })
}
