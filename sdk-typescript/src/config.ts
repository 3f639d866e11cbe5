// Configuration of a client, from its arguments and the environment.

import { ConfigurationError } from './errors.js'

/** Entry of the debug log: one for each attempt of a request. It has no headers, bodies and queries. */
export interface LogEntry {
    method: string
    path: string
    /** Number of the attempt, from 1. */
    attempt: number
    /** HTTP status; absent if there was no response. */
    status?: number
    milliseconds: number
    requestId?: string
    /** Name of the error, if the attempt failed. */
    error?: string
}

/** Constructor of a WebSocket, like that of browsers. */
export type WebSocketConstructor = new (url: string) => WebSocket

/** Configuration of a client. Durations are in milliseconds. */
export interface ClientConfig {
    /** URL of the server. Default: `WORKSPACE_API_URL`, or `http://127.0.0.1:8080`. */
    apiUrl?: string | undefined
    /** Key or token. Default: `WORKSPACE_API_KEY`. */
    apiKey?: string | undefined
    /** Timeout of a call, with its retries; 0 for none. Default: 30000. */
    timeout?: number
    /** Maximum number of retries of a request. Default: 3. */
    retries?: number
    /** Delay before the first retry. Default: 1000. */
    retryDelay?: number
    /** Factor of the delay of each further retry. Default: 2. */
    retryBackoff?: number
    /** Maximum delay before a retry. Default: 30000. */
    maxRetryDelay?: number
    /** Time without any byte, not even a keepalive, after which a stream is reconnected; 0 for none. Default: 45000. */
    idleTimeout?: number
    /** Time for which a lost stream or terminal is connected again without success; 0 for no limit. Default: 60000. */
    reconnectTimeout?: number
    /** Agent to act for, if the key may act for several (`X-Agent`). */
    agent?: string
    /** Headers of every request. */
    headers?: Record<string, string>
    /** Logs requests to stderr, without secrets. Default: true if `WORKSPACE_DEBUG` is `1`. */
    debug?: boolean
    /** Receiver of the debug log, instead of stderr. */
    logger?: (entry: LogEntry) => void
    /** Implementation of `fetch`. Default: that of the platform. */
    fetch?: typeof fetch
    /** Implementation of WebSockets without headers, as in browsers: terminals connect with tickets. */
    WebSocket?: WebSocketConstructor
}

type Defaulted =
    | 'apiUrl'
    | 'apiKey'
    | 'timeout'
    | 'retries'
    | 'retryDelay'
    | 'retryBackoff'
    | 'maxRetryDelay'
    | 'idleTimeout'
    | 'reconnectTimeout'
    | 'fetch'

type DefaultedFields = { [Name in Defaulted]: NonNullable<ClientConfig[Name]> }

/** Configuration with all defaults. */
export interface ResolvedConfig extends DefaultedFields {
    headers: Record<string, string>
    logger: ((entry: LogEntry) => void) | undefined
    WebSocket: WebSocketConstructor | undefined
}

const NUMBERS = [
    'timeout',
    'retries',
    'retryDelay',
    'retryBackoff',
    'maxRetryDelay',
    'idleTimeout',
    'reconnectTimeout',
] as const
const DEFAULT_URL = 'http://127.0.0.1:8080'

/** Returns a variable of the environment; `undefined` if it is not set, empty, or there is no environment. */
function variable(name: string): string | undefined {
    const { process } = globalThis as { process?: { env?: Record<string, string | undefined> } }
    return process?.env?.[name] || undefined
}

/** Adds the defaults and the environment. Throws `ConfigurationError` if something is missing or invalid. */
export function resolveConfig(config: ClientConfig): ResolvedConfig {
    const apiKey = config.apiKey ?? variable('WORKSPACE_API_KEY')
    if (!apiKey) {
        throw new ConfigurationError('no API key: set WORKSPACE_API_KEY, or pass apiKey to WorkspaceClient')
    }
    const implementation = config.fetch ?? globalThis.fetch
    if (typeof implementation !== 'function') {
        throw new ConfigurationError('this platform has no fetch: pass one to WorkspaceClient')
    }
    const debug = config.debug ?? variable('WORKSPACE_DEBUG') === '1'
    const resolved: ResolvedConfig = {
        apiUrl: normalizeUrl(config.apiUrl ?? variable('WORKSPACE_API_URL') ?? DEFAULT_URL),
        apiKey,
        timeout: config.timeout ?? 30_000,
        retries: config.retries ?? 3,
        retryDelay: config.retryDelay ?? 1_000,
        retryBackoff: config.retryBackoff ?? 2,
        maxRetryDelay: config.maxRetryDelay ?? 30_000,
        idleTimeout: config.idleTimeout ?? 45_000,
        reconnectTimeout: config.reconnectTimeout ?? 60_000,
        headers: { ...config.headers, ...(config.agent === undefined ? {} : { 'X-Agent': config.agent }) },
        logger: config.logger ?? (debug ? logToStderr : undefined),
        fetch: implementation,
        WebSocket: config.WebSocket,
    }
    for (const name of NUMBERS) {
        if (!(resolved[name] >= 0)) throw new ConfigurationError(`${name} must be a number that is not negative`)
    }
    return resolved
}

/** Removes a trailing slash and the prefix of the API. */
function normalizeUrl(text: string): string {
    let url: URL
    try {
        url = new URL(text)
    } catch {
        throw new ConfigurationError(`apiUrl is not a URL: ${JSON.stringify(text)}`)
    }
    if (url.protocol !== 'http:' && url.protocol !== 'https:') {
        throw new ConfigurationError(`apiUrl must begin with http:// or https://: ${JSON.stringify(text)}`)
    }
    if (url.username || url.password) throw new ConfigurationError('apiUrl must not contain a user or a password')
    return (url.origin + url.pathname).replace(/\/+$/, '').replace(/\/api\/v1$/, '')
}

function logToStderr(entry: LogEntry): void {
    const { method, path, attempt, status, milliseconds, requestId, error } = entry
    const parts = [method, path, status ?? '-', `${Math.round(milliseconds)}ms`]
    if (attempt > 1) parts.push(`attempt=${attempt}`)
    if (requestId) parts.push(requestId)
    if (error) parts.push(error)
    console.error(`workspace-sdk ${parts.join(' ')}`)
}
