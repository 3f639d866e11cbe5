// Events of a command over connections that may be lost. Loaded with the first stream.

import { Deadline, sleep } from './cancellation.js'
import { concat, describeBytes, encodeText, fromBase64, toBase64, toBytes } from './bytes.js'
import { KILL_TIMEOUT, SIGKILL, commandError, sendSignal } from './command-result.js'
import type { CommandSource } from './command-stream.js'
import { UnauthorizedError, UnexpectedResponseError, WorkspaceError } from './errors.js'
import { followEvents } from './event-stream.js'
import type { Route } from './generated/routes.js'
import type * as Wire from './generated/wire.js'
import type { Message } from './sse.js'
import type { CallOptions, Request, Transport } from './transport.js'
import type { CommandResult, ErrorEvent, ExitEvent, OutputEvent, StreamEvent } from './types.js'

/** Size in bytes of each of stdout and stderr that a failed stream keeps for its error. */
const TAIL_MAX = 64 << 10
/** Maximum size in bytes of the input of one request. */
const INPUT_MAX = 512 << 10
/** Delays before input is sent again that the command had no room for, in milliseconds. */
const INPUT_DELAY = 50
const INPUT_DELAY_MAX = 1_000

/** Output of a piece; its bytes are computed when they are needed. */
class OutputPiece implements OutputEvent {
    readonly commandId: string
    readonly timestamp: number
    readonly #base64: string | undefined
    readonly #text: string

    constructor(
        readonly type: 'stdout' | 'stderr',
        readonly data: string,
        readonly offset: number,
        wire: Wire.CommandEvent,
    ) {
        this.commandId = wire.commandId
        this.timestamp = wire.timestamp
        this.#base64 = wire.dataBase64 ?? undefined
        this.#text = wire.data ?? ''
    }

    get bytes(): Uint8Array {
        return this.#base64 === undefined ? encodeText(this.#text) : fromBase64(this.#base64)
    }
}

/** Incremental decoder of stdout or stderr. */
class TextPieces {
    readonly #decoder = new TextDecoder('utf-8', { ignoreBOM: true })
    /** True if the decoder may hold an incomplete character. */
    #isIncomplete = false

    decode(wire: Wire.CommandEvent): string {
        if (wire.dataBase64 == null && !this.#isIncomplete) return wire.data ?? ''
        const bytes = wire.dataBase64 == null ? encodeText(wire.data ?? '') : fromBase64(wire.dataBase64)
        this.#isIncomplete = true
        return this.#decoder.decode(bytes, { stream: true })
    }

    /** Returns U+FFFD if a character is incomplete. */
    flush(): string {
        if (!this.#isIncomplete) return ''
        this.#isIncomplete = false
        return this.#decoder.decode()
    }
}

/** Connections of a stream of events of a command. */
export class CommandEvents {
    readonly #source: CommandSource
    /** Cancels requests of the stream. */
    readonly #deadline: Deadline
    readonly #texts = { stdout: new TextPieces(), stderr: new TextPieces() }
    readonly #tails = { stdout: new Tail(), stderr: new Tail() }
    #messages: AsyncGenerator<Message> | undefined
    #first: Promise<Message> | undefined
    #commandId: string | undefined
    #offset: number
    #hasEnded = false
    #isCancelled = false

    constructor(source: CommandSource) {
        this.#source = source
        this.#commandId = source.commandId
        this.#offset = source.from
        this.#deadline = new Deadline(0)
    }

    /** Returns the id of the command, which is started if it was not. */
    async id(): Promise<string> {
        if (this.#commandId === undefined) await this.#begin()
        if (this.#commandId === undefined) throw new UnexpectedResponseError('the stream does not name its command')
        return this.#commandId
    }

    /** Connects, and returns the first message. */
    #begin(): Promise<Message> {
        return (this.#first ??= this.#readFirst())
    }

    async #readFirst(): Promise<Message> {
        const { transport, call } = this.#source
        this.#messages = followEvents(
            transport,
            { request: () => this.#request(), accept: (message) => this.#accept(message) },
            { signal: this.#deadline.signal, timeout: call.timeout },
        )
        const first = await this.#messages.next()
        return first.value as Message
    }

    #request(): [Route, Request] {
        if (this.#commandId === undefined && this.#source.start) return this.#source.start
        const path = [this.#source.sandboxId, this.#commandId ?? '']
        return ['GET sandboxes/{}/process/{}/output', { path, query: { from: this.#offset } }]
    }

    /** Notes the id and the offset of a message. Returns true if it is the last one. */
    #accept(message: Message): boolean {
        const { comment } = message
        if (comment !== undefined) {
            if (comment.startsWith('cmd-')) this.#commandId = comment
            return false
        }
        const offset = Number(message.id)
        if (message.id !== '' && Number.isSafeInteger(offset)) this.#offset = offset
        this.#hasEnded = message.event === 'exit' || message.event === 'error'
        return this.#hasEnded || message.event === 'ended'
    }

    /** Yields the events. */
    async *events(): AsyncGenerator<StreamEvent> {
        const { signal } = this.#source.call
        signal?.throwIfAborted()
        const onAbort = (): void => void this.#cancel(signal?.reason)
        signal?.addEventListener('abort', onAbort, { once: true })
        try {
            yield* this.#convert(await this.#begin())
            for (;;) {
                if (this.#isCancelled) throw signal?.reason
                const next = await this.#messages?.next()
                if (!next || next.done) return
                if (this.#isCancelled) throw signal?.reason
                yield* this.#convert(next.value)
            }
        } finally {
            signal?.removeEventListener('abort', onAbort)
            if (!this.#hasEnded && !this.#isCancelled)
                await this.#cancel(new DOMException('the stream was left', 'AbortError'))
            await this.#messages?.return(undefined).catch(() => undefined)
            this.#deadline.close()
        }
    }

    /** Ends the connection, after it has killed the command if that is wanted. */
    async #cancel(reason: unknown): Promise<void> {
        this.#isCancelled = true
        if (this.#source.killOnCancel && !this.#hasEnded) {
            // Until the id is known, the connection is kept: otherwise nobody could find the command.
            const timer = setTimeout(() => this.#deadline.abort(reason), KILL_TIMEOUT)
            try {
                await sendSignal(this.#source.transport, this.#source.sandboxId, await this.id(), SIGKILL)
            } catch {
                // The command has ended, or the server cannot be reached.
            } finally {
                clearTimeout(timer)
            }
        }
        this.#deadline.abort(reason)
        await this.#messages?.return(undefined).catch(() => undefined)
    }

    *#convert(message: Message): Generator<StreamEvent> {
        if (message.comment !== undefined) return
        const wire = parseEvent(message)
        const { type, commandId, timestamp } = wire
        if (type === 'stdout' || type === 'stderr') {
            const event = new OutputPiece(type, this.#texts[type].decode(wire), wire.offset ?? 0, wire)
            if (this.#source.check) this.#tails[type].add(event.data)
            yield event
            return
        }
        yield* this.#flush(wire)
        switch (type) {
            case 'gap':
                yield { type, commandId, timestamp, from: wire.from ?? 0, to: wire.to ?? 0 }
                return
            case 'exit':
            case 'error': {
                const event = endEvent(wire)
                yield event
                if (this.#source.check) throwIfFailed(event, this.#tails.stdout, this.#tails.stderr)
                return
            }
            case 'ended':
                throw new UnauthorizedError({
                    code: 1001,
                    name: 'UNAUTHORIZED',
                    message: wire.message ?? 'the access to the stream has ended',
                    details: { commandId },
                })
        }
    }

    /** Yields the incomplete characters of stdout and stderr as U+FFFD. */
    *#flush(wire: Wire.CommandEvent): Generator<StreamEvent> {
        for (const type of ['stdout', 'stderr'] as const) {
            const text = this.#texts[type].flush()
            if (text === '') continue
            if (this.#source.check) this.#tails[type].add(text)
            yield new OutputPiece(type, text, this.#offset, { ...wire, data: '', dataBase64: undefined })
        }
    }
}

/** Writes to the stdin of a command. Waits while the command does not read. */
export async function writeInput(
    transport: Transport,
    sandboxId: string,
    commandId: string,
    data: string | Uint8Array,
    options: { close?: boolean } & CallOptions,
): Promise<void> {
    const { close = false, ...call } = options
    const path = [sandboxId, commandId]
    let rest = toBytes(data)
    let delay = INPUT_DELAY
    do {
        const part = rest.subarray(0, INPUT_MAX)
        const isLast = part.length === rest.length
        const json: Wire.CommandInput = { dataBase64: toBase64(part), close: close && isLast }
        try {
            await transport.json('POST sandboxes/{}/process/{}/stdin', { path, json }, call)
            if (isLast) return
            rest = rest.subarray(part.length)
            delay = INPUT_DELAY
        } catch (error) {
            if (!(error instanceof WorkspaceError) || error.name !== 'STDIN_FULL') throw error
            const { written } = error.details
            rest = rest.subarray(typeof written === 'number' ? written : 0)
            await sleep(delay, call.signal)
            delay = Math.min(delay * 2, INPUT_DELAY_MAX)
        }
        // Input of which all but the closing was accepted still has to be closed.
    } while (rest.length > 0 || close)
}

function parseEvent(message: Message): Wire.CommandEvent {
    try {
        return JSON.parse(message.data) as Wire.CommandEvent
    } catch (error) {
        throw new UnexpectedResponseError('an event of the stream is not JSON', undefined, false, error)
    }
}

function endEvent(wire: Wire.CommandEvent): ExitEvent | ErrorEvent {
    const { commandId, timestamp } = wire
    const end = { commandId, timestamp, exitCode: wire.exitCode ?? -1, timedOut: wire.timedOut ?? false }
    if (wire.type === 'error') return { type: 'error', ...end, message: wire.message ?? 'the command could not be run' }
    const event: ExitEvent = { type: 'exit', ...end }
    if (wire.snapshot != null) event.snapshot = wire.snapshot
    if (wire.traceError != null) event.traceError = wire.traceError
    return event
}

/** Throws if the command did not exit with 0. */
function throwIfFailed(event: ExitEvent | ErrorEvent, stdout: Tail, stderr: Tail): void {
    if (event.type === 'exit' && event.exitCode === 0 && !event.timedOut) return
    throw commandError(event, stdout.text, stderr.text, stdout.isCut || stderr.isCut)
}

/** Last part of a text. */
class Tail {
    #parts: string[] = []
    #length = 0
    isCut = false

    add(text: string): void {
        this.#parts.push(text)
        this.#length += text.length
        while (this.#length > TAIL_MAX && this.#parts.length > 1) {
            this.#length -= this.#parts.shift()?.length ?? 0
            this.isCut = true
        }
    }

    get text(): string {
        return this.#parts.join('')
    }
}

/** Result of a command from its events. */
export class OutputCollector {
    readonly #parts: Record<'stdout' | 'stderr', Uint8Array[]> = { stdout: [], stderr: [] }
    #remaining: number
    #isTruncated = false
    #end: ExitEvent | ErrorEvent | undefined

    constructor(maxOutputSize = 1 << 20) {
        this.#remaining = maxOutputSize
    }

    add(event: StreamEvent): void {
        switch (event.type) {
            case 'stdout':
            case 'stderr':
                this.#addOutput(event)
                break
            case 'gap':
                this.#isTruncated = true
                break
            default:
                this.#end = event
        }
    }

    #addOutput(event: OutputEvent): void {
        if (this.#isTruncated && this.#remaining === 0) return
        const { bytes } = event
        const taken =
            bytes.length <= this.#remaining ? bytes : bytes.subarray(0, wholeCharacters(bytes, this.#remaining))
        this.#parts[event.type].push(taken)
        this.#remaining -= taken.length
        if (taken.length < bytes.length) {
            this.#isTruncated = true
            this.#remaining = 0
        }
    }

    /** Returns the result. Throws if the command could not be run, or exceeded its timeout. */
    result(): CommandResult {
        const end = this.#end
        if (!end) throw new UnexpectedResponseError('the stream has no last event')
        const out = describeBytes(concat(this.#parts.stdout))
        const err = describeBytes(concat(this.#parts.stderr))
        if (end.type === 'error' || end.timedOut) throw commandError(end, out.text, err.text, this.#isTruncated)
        const { commandId, exitCode, snapshot, traceError } = end
        const result: CommandResult = {
            commandId,
            exitCode,
            stdout: out.text,
            stderr: err.text,
            truncated: this.#isTruncated,
        }
        if (out.base64 !== undefined) result.stdoutBase64 = out.base64
        if (err.base64 !== undefined) result.stderrBase64 = err.base64
        if (snapshot !== undefined) result.snapshot = snapshot
        if (traceError !== undefined) result.traceError = traceError
        return result
    }
}

/** Returns the length of the longest prefix of at most `max` bytes that does not cut a UTF-8 character. */
function wholeCharacters(bytes: Uint8Array, max: number): number {
    let end = max
    // The first byte after the cut continues a character, which has at most three bytes before.
    for (let back = 0; back < 3 && end > 0 && ((bytes[end] ?? 0) & 0xc0) === 0x80; back += 1) end -= 1
    return ((bytes[end] ?? 0) & 0xc0) === 0x80 ? max : end
}
