// Deadlines and cancellation of calls.

import { RequestTimeoutError } from './errors.js'

/** Longest delay of a timer. */
const TIMER_MAX = 2 ** 31 - 1

/** Signal that is aborted by the caller's signal or after a timeout, whichever is first. */
export class Deadline {
    readonly #controller = new AbortController()
    readonly #outer: AbortSignal | undefined
    readonly #expiresAt: number
    #timer: ReturnType<typeof setTimeout> | undefined

    /** `timeout` is in milliseconds; 0 for none. */
    constructor(timeout: number, outer?: AbortSignal) {
        this.#outer = outer
        this.#expiresAt = timeout > 0 ? performance.now() + timeout : Infinity
        if (outer?.aborted) {
            this.#controller.abort(outer.reason)
            return
        }
        outer?.addEventListener('abort', this.#onAbort)
        if (timeout > 0) {
            const error = new RequestTimeoutError(`the call took longer than ${timeout} ms`)
            this.#timer = setTimeout(() => this.#controller.abort(error), Math.min(timeout, TIMER_MAX))
        }
    }

    get signal(): AbortSignal {
        return this.#controller.signal
    }

    /** Milliseconds that are left; infinite without a timeout. */
    get remaining(): number {
        return this.#expiresAt - performance.now()
    }

    abort(reason: unknown): void {
        this.#controller.abort(reason)
    }

    /** Removes the timeout, but not the caller's signal: the response has begun, and may last. */
    stopTimer(): void {
        clearTimeout(this.#timer)
    }

    /** Releases the timer and the caller's signal. */
    close(): void {
        this.stopTimer()
        this.#outer?.removeEventListener('abort', this.#onAbort)
    }

    readonly #onAbort = (): void => this.#controller.abort(this.#outer?.reason)
}

/** Waits for some milliseconds. Rejects with the reason of the signal if that is aborted earlier. */
export function sleep(milliseconds: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
        if (signal?.aborted) return reject(signal.reason)
        const onAbort = (): void => {
            clearTimeout(timer)
            reject(signal?.reason)
        }
        const timer = setTimeout(() => {
            signal?.removeEventListener('abort', onAbort)
            resolve()
        }, milliseconds)
        signal?.addEventListener('abort', onAbort, { once: true })
    })
}
