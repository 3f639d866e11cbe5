// Chromium, controlled by the DevTools protocol over a pipe.

import { type ChildProcess, spawn } from 'node:child_process'
import { accessSync, constants, mkdtempSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import type { Readable, Writable } from 'node:stream'
import { skip } from './skip.js'

/** Names of the program in distributions. */
const PROGRAMS = ['chromium', 'chromium-browser', 'google-chrome']
const OPTIONS = [
    '--headless',
    '--remote-debugging-pipe',
    '--no-sandbox',
    '--disable-gpu',
    '--disable-quic',
    '--no-first-run',
    '--no-proxy-server',
    '--disable-background-networking',
    '--disable-component-update',
    '--disable-sync',
]

interface Message {
    id?: number
    method?: string
    params?: Record<string, unknown>
    result?: Record<string, unknown>
    error?: { message: string }
}

/** Returns the path of the browser, if it is installed. Otherwise records that `test` is skipped; fails if `CI=true`. */
export function findChromium(test: string): string | undefined {
    for (const directory of (process.env['PATH'] ?? '').split(delimiter)) {
        for (const name of PROGRAMS) {
            const path = join(directory, name)
            try {
                accessSync(path, constants.X_OK)
                return path
            } catch {
                // It is elsewhere, or not installed.
            }
        }
    }
    skip(test, '`chromium`')
    return undefined
}

/** Running browser with one page. */
export class Chromium {
    readonly #profile = mkdtempSync(join(tmpdir(), 'workspace-sdk-chromium.'))
    readonly #process: ChildProcess
    readonly #exited: Promise<unknown>
    readonly #calls = new Map<number, { resolve: (message: Message) => void; reject: (error: Error) => void }>()
    readonly #events: ((message: Message) => void)[] = []
    #lastId = 0

    constructor(program: string) {
        this.#process = spawn(program, [...OPTIONS, `--user-data-dir=${this.#profile}`, 'about:blank'], {
            stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'],
        })
        this.#exited = new Promise((resolve) => this.#process.once('exit', resolve))
        this.#process.once('exit', () => {
            for (const { reject } of this.#calls.values()) reject(new Error('the browser has ended'))
        })
        let rest = ''
        const output = this.#process.stdio[4] as Readable
        output.setEncoding('utf8').on('data', (chunk: string) => {
            const messages = (rest + chunk).split('\0')
            rest = messages.pop() ?? ''
            for (const message of messages) this.#receive(JSON.parse(message) as Message)
        })
    }

    /** Opens a page, and waits until it has loaded. Returns a function that evaluates an expression there. */
    async open(url: string): Promise<(expression: string) => Promise<unknown>> {
        const { targetId } = await this.#call('Target.createTarget', { url: 'about:blank' })
        const { sessionId } = await this.#call('Target.attachToTarget', { targetId, flatten: true })
        const session = sessionId as string
        await this.#call('Page.enable', {}, session)
        const loaded = new Promise<void>((resolve) =>
            this.#events.push(({ method }) => {
                if (method === 'Page.loadEventFired') resolve()
            }),
        )
        const { errorText } = (await this.#call('Page.navigate', { url }, session)) as { errorText?: string }
        if (errorText !== undefined) throw new Error(`${url}: ${errorText}`)
        await loaded
        return async (expression) => {
            const params = { expression, awaitPromise: true, returnByValue: true }
            const { result, exceptionDetails } = (await this.#call('Runtime.evaluate', params, session)) as {
                result: { value?: unknown; description?: string }
                exceptionDetails?: { exception?: { description?: string } }
            }
            if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? 'the page threw')
            return result.value
        }
    }

    async [Symbol.asyncDispose](): Promise<void> {
        // Its other processes end with it; killed, it would leave them for a moment, in which they write.
        void this.#call('Browser.close', {}).catch(() => undefined)
        await this.#exited
        await rm(this.#profile, { recursive: true, force: true, maxRetries: 20 })
    }

    #call(method: string, params: object, sessionId?: string): Promise<Record<string, unknown>> {
        const id = (this.#lastId += 1)
        const input = this.#process.stdio[3] as Writable
        input.write(`${JSON.stringify({ id, method, params, sessionId })}\0`)
        return new Promise((resolve, reject) => {
            this.#calls.set(id, {
                resolve: ({ result, error }) => (error ? reject(new Error(error.message)) : resolve(result ?? {})),
                reject,
            })
        })
    }

    #receive(message: Message): void {
        if (message.id === undefined) {
            for (const listener of this.#events) listener(message)
            return
        }
        this.#calls.get(message.id)?.resolve(message)
        this.#calls.delete(message.id)
    }
}
