// Delays and time limit of connections that are made again.

import { sleep } from './cancellation.js'
import type { ResolvedConfig } from './config.js'
import { RequestTimeoutError, ServerUnreachableError, WorkspaceError } from './errors.js'

/** Delay before the second attempt to make a lost connection again, in milliseconds. The first is made at once. */
const FIRST_DELAY = 50
/** Maximum delay in milliseconds: a restarted server is to be noticed soon. */
const DELAY_MAX = 2_000

/** Returns true for an error after which a stream is connected again. */
export function isDisconnection(error: unknown): error is WorkspaceError {
    if (error instanceof ServerUnreachableError || error instanceof RequestTimeoutError) return true
    return error instanceof WorkspaceError && error.retryable
}

/** Attempts to make a lost connection again, up to `reconnectTimeout` without a message of the server. */
export class Reconnection {
    readonly #config: ResolvedConfig
    #failures = 0
    #lostAt: number | undefined

    constructor(config: ResolvedConfig) {
        this.#config = config
    }

    /** Notes a message of the server: it is there. Only one with content is progress, after which delays begin anew. */
    noteMessage(hasContent: boolean): void {
        this.#lostAt = undefined
        if (hasContent) this.#failures = 0
    }

    /** Waits before the next attempt. Throws `error` when the time is over. */
    async wait(error: WorkspaceError, signal?: AbortSignal): Promise<void> {
        const { retryDelay, maxRetryDelay, reconnectTimeout } = this.#config
        const now = performance.now()
        this.#lostAt ??= now
        this.#failures += 1
        const longest = Math.min(
            Math.min(FIRST_DELAY, retryDelay) * 2 ** (this.#failures - 2),
            DELAY_MAX,
            maxRetryDelay,
        )
        const delay = this.#failures === 1 ? 0 : longest * (0.5 + Math.random() / 2)
        if (reconnectTimeout > 0 && now + delay - this.#lostAt >= reconnectTimeout) throw error
        await sleep(delay, signal)
    }
}
