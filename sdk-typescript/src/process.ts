// Commands of a sandbox.

import { KILL_TIMEOUT, SIGKILL, checkResult, sendSignal } from './command-result.js'
import { CommandStream } from './command-stream.js'
import { Deadline } from './cancellation.js'
import { RequestTimeoutError, WorkspaceError } from './errors.js'
import type * as Wire from './generated/wire.js'
import { type CallOptions, type Request, type Transport, newIdempotencyKey, fields } from './transport.js'
import type { CommandResult, StreamEvent } from './types.js'

/** Command line for `/bin/sh -c`, or a program and its arguments without a shell. */
export type CommandLine = string | readonly string[]

interface StartOptions {
    /** Working directory. Default: `/workspace`. */
    cwd?: string
    /** Environment variables, in addition to those of the sandbox. */
    envs?: Record<string, string>
    /** Timeout of the command in milliseconds, after which it is killed; 0 for none. Default: that of the server (60000). */
    timeout?: number
    /** User that runs the command. */
    user?: string
    /** Label for filtering the list of commands. */
    tag?: string
    /**
     * Policy for output that exceeds what the server retains before it is read. Default: `block` for streams, so that
     * they have no gap; otherwise `drop`.
     */
    overflow?: Wire.Overflow
    /** Key that makes a repeated request return the same command. Default: a new one for each call. */
    idempotencyKey?: string
    /** Cancels the call; see also `killOnCancel`. */
    signal?: AbortSignal
    /** Timeout of the requests in milliseconds; 0 for none. */
    requestTimeout?: number
}

/** Options of `run`. */
export interface RunOptions extends StartOptions {
    /** Input of the command. Its stdin is closed after it. */
    stdin?: string | Uint8Array
    /** Maximum size of the output in the result in bytes. Default: 1 MiB. */
    maxOutputSize?: number
    /** Throws `CommandFailedError` if the exit code is not 0. */
    check?: boolean
    /** Kills the command if the call is cancelled. */
    killOnCancel?: boolean
    /** Called with each piece of stdout while the command runs. */
    onStdout?: (data: string) => void
    /** Called with each piece of stderr while the command runs. */
    onStderr?: (data: string) => void
}

/** Options of `runStream`. */
export interface RunStreamOptions extends StartOptions {
    /** Keeps stdin open for `writeStdin`. */
    stdin?: boolean
    /** Throws `CommandFailedError` or `ProcessTimeoutError` after the last event if the command did not exit with 0. */
    check?: boolean
    /** Kills the command if the call is cancelled, or the iteration is left. */
    killOnCancel?: boolean
}

/** Options of `start`. */
export interface BackgroundOptions extends StartOptions {
    /** Keeps stdin open for `writeStdin`. */
    stdin?: boolean
}

/** Options of `output`. */
export interface OutputOptions extends CallOptions {
    /** Offset of the first byte. Default: 0. */
    from?: number
    /** Throws if the command did not exit with 0, after the last event. */
    check?: boolean
}

/** Commands of one sandbox. */
export class ProcessService {
    readonly #transport: Transport
    readonly #sandboxId: string

    /** @internal */
    constructor(transport: Transport, sandboxId: string) {
        this.#transport = transport
        this.#sandboxId = sandboxId
    }

    /**
     * Runs a command, and waits until it has exited. A lost connection does not run it again. Throws
     * `ProcessTimeoutError` if it exceeds its timeout, and `CommandFailedError` if it cannot be started.
     */
    async run(command: CommandLine, options: RunOptions = {}): Promise<CommandResult> {
        const { stdin, onStdout, onStderr, killOnCancel } = options
        const isStreamed = stdin !== undefined || onStdout || onStderr || killOnCancel
        const result = isStreamed ? await this.#runStreamed(command, options) : await this.#runWhole(command, options)
        if (options.check) checkResult(result)
        return result
    }

    async #runWhole(command: CommandLine, options: RunOptions): Promise<CommandResult> {
        const { signal, requestTimeout = 0, maxOutputSize } = options
        const request = this.#startRequest(command, options, { maxOutputSize })
        const deadline = new Deadline(requestTimeout, signal)
        const { idleTimeout } = this.#transport.config
        try {
            for (;;) {
                // Nothing is sent while the command runs, so silence says nothing about the connection. The repeated
                // request has the same key: it waits for the same command.
                try {
                    return await this.#transport.json('POST sandboxes/{}/process/run', request, {
                        signal: deadline.signal,
                        timeout: idleTimeout,
                    })
                } catch (error) {
                    if (deadline.signal.aborted || !(error instanceof RequestTimeoutError)) throw error
                }
            }
        } finally {
            deadline.close()
        }
    }

    async #runStreamed(command: CommandLine, options: RunOptions): Promise<CommandResult> {
        const { stdin, onStdout, onStderr, maxOutputSize, ...rest } = options
        const stream = this.runStream(command, { ...rest, stdin: stdin !== undefined, check: false })
        const { OutputCollector } = await import('./command-events.js')
        const collector = new OutputCollector(maxOutputSize)
        const writing = stdin === undefined ? undefined : this.#writeAll(stream, stdin, options.signal)
        // Its failure is that of the stream, or reported below.
        writing?.catch(() => undefined)
        for await (const event of stream) {
            collector.add(event)
            report(event, onStdout, onStderr)
        }
        await writing
        return collector.result()
    }

    /** Writes the whole input. A command that exits, or closes its stdin, without reading all of it is no error. */
    async #writeAll(stream: CommandStream, input: string | Uint8Array, signal?: AbortSignal): Promise<void> {
        const id = await stream.id()
        try {
            await this.writeStdin(id, input, { close: true, timeout: 0, signal })
        } catch (error) {
            const name = error instanceof WorkspaceError ? error.name : ''
            if (name === 'COMMAND_NOT_RUNNING' || name === 'STDIN_CLOSED') return
            // Otherwise the command would wait for the rest of its input. A cancelled call leaves it alone.
            if (!signal?.aborted) await this.kill(id, SIGKILL, { timeout: KILL_TIMEOUT }).catch(() => undefined)
            throw error
        }
    }

    /** Runs a command, and streams its events. It is started when the iteration begins. */
    runStream(command: CommandLine, options: RunStreamOptions = {}): CommandStream {
        const { signal, requestTimeout: timeout, stdin, check = false, killOnCancel = false } = options
        const { overflow = 'block' } = options
        const request = this.#startRequest(command, options, { stdin, stream: true, overflow })
        return new CommandStream({
            transport: this.#transport,
            sandboxId: this.#sandboxId,
            start: ['POST sandboxes/{}/process/run', request],
            from: 0,
            check,
            killOnCancel,
            call: { signal, timeout },
        })
    }

    /** Starts a command in the background. */
    async start(command: CommandLine, options: BackgroundOptions = {}): Promise<CommandHandle> {
        const { signal, requestTimeout: timeout, stdin } = options
        const request = this.#startRequest(command, options, { stdin, background: true })
        const { commandId } = await this.#transport.json<Wire.BackgroundCommand>(
            'POST sandboxes/{}/process/run',
            request,
            {
                signal,
                timeout,
            },
        )
        return new CommandHandle(this, commandId)
    }

    /** Streams the output of a command that was started before, from its start or from an offset. */
    output(commandId: string, options: OutputOptions = {}): CommandStream {
        const { from = 0, check = false, signal, timeout } = options
        return new CommandStream({
            transport: this.#transport,
            sandboxId: this.#sandboxId,
            commandId,
            from,
            check,
            killOnCancel: false,
            call: { signal, timeout },
        })
    }

    /** Lists the newest commands. */
    async list(options: Wire.ListCommandsQuery & CallOptions = {}): Promise<Wire.Command[]> {
        const path = [this.#sandboxId]
        const { items } = await this.#transport.json<Wire.CommandList>(
            'GET sandboxes/{}/process',
            { path, query: fields(options) },
            options,
        )
        return items
    }

    /** Returns a command, running or ended. */
    get(commandId: string, options: CallOptions = {}): Promise<Wire.CommandRecord> {
        return this.#transport.json('GET sandboxes/{}/process/{}', { path: this.#path(commandId) }, options)
    }

    /** Sends a signal to a command and all its processes. Default: 15 (SIGTERM). */
    kill(commandId: string, signal = 15, options: CallOptions = {}): Promise<void> {
        return sendSignal(this.#transport, this.#sandboxId, commandId, signal, options)
    }

    /** Writes to the stdin of a command that was started with `stdin: true`. Waits while the command does not read. */
    async writeStdin(
        commandId: string,
        data: string | Uint8Array,
        options: { close?: boolean } & CallOptions = {},
    ): Promise<void> {
        const { writeInput } = await import('./command-events.js')
        return writeInput(this.#transport, this.#sandboxId, commandId, data, options)
    }

    /** Lists the running processes. */
    async processes(options: CallOptions = {}): Promise<Wire.Process[]> {
        const path = [this.#sandboxId]
        const { items } = await this.#transport.json<Wire.ProcessList>('GET sandboxes/{}/processes', { path }, options)
        return items
    }

    #path(command: string): string[] {
        return [this.#sandboxId, command]
    }

    /** Returns the request that starts a command. */
    #startRequest(command: CommandLine, options: StartOptions, body: Partial<Wire.RunCommand>): Request {
        const { cwd, envs, timeout, user, tag, overflow, idempotencyKey = newIdempotencyKey() } = options
        const line = typeof command === 'string' ? { command } : { argv: [...command] }
        const json: Wire.RunCommand = { ...line, cwd, envs, timeout, user, tag, overflow, ...body }
        return { path: [this.#sandboxId], json, idempotencyKey }
    }
}

function report(event: StreamEvent, onStdout?: (data: string) => void, onStderr?: (data: string) => void): void {
    if (event.type === 'stdout' && event.data !== '') onStdout?.(event.data)
    if (event.type === 'stderr' && event.data !== '') onStderr?.(event.data)
}

/** Command that runs in the background. */
export class CommandHandle {
    readonly #service: ProcessService

    /** @internal */
    constructor(
        service: ProcessService,
        readonly commandId: string,
    ) {
        this.#service = service
    }

    /** Streams the output from its start, or from an offset. */
    output(options: OutputOptions = {}): CommandStream {
        return this.#service.output(this.commandId, options)
    }

    /** Waits until the command has exited. */
    async wait(options: CallOptions & { check?: boolean; maxOutputSize?: number } = {}): Promise<CommandResult> {
        const { check, maxOutputSize, ...call } = options
        const result = await this.output(call).wait({ maxOutputSize })
        if (check) checkResult(result)
        return result
    }

    /** Returns the state of the command. */
    status(options: CallOptions = {}): Promise<Wire.CommandRecord> {
        return this.#service.get(this.commandId, options)
    }

    /** Sends a signal to the command and all its processes. Default: 15 (SIGTERM). */
    kill(signal = 15, options: CallOptions = {}): Promise<void> {
        return this.#service.kill(this.commandId, signal, options)
    }

    /** Sends input. */
    writeStdin(data: string | Uint8Array, options: { close?: boolean } & CallOptions = {}): Promise<void> {
        return this.#service.writeStdin(this.commandId, data, options)
    }

    /** Ends the input. */
    closeStdin(options: CallOptions = {}): Promise<void> {
        return this.#service.writeStdin(this.commandId, '', { ...options, close: true })
    }
}
