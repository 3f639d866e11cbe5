// Output of a command as a stream that survives lost connections.

import type { CommandEvents } from './command-events.js'
import { sendSignal } from './command-result.js'
import type { Route } from './generated/routes.js'
import type { CallOptions, Request, Transport } from './transport.js'
import type { CommandResult, StreamEvent } from './types.js'

/** Command whose output is streamed. */
export interface CommandSource {
    transport: Transport
    sandboxId: string
    /** Id of a command that has begun; absent for one that `start` begins. */
    commandId?: string
    /** Request that starts the command, and streams its output. It is safe to repeat. */
    start?: [Route, Request]
    /** Offset of the first byte. */
    from: number
    check: boolean
    killOnCancel: boolean
    call: CallOptions
}

/**
 * Events of a command. A lost connection is made again at the offset that was reached, so that the output has no gap
 * and no repeat. It can be iterated once.
 */
export class CommandStream implements AsyncIterable<StreamEvent> {
    readonly #source: CommandSource
    #events: Promise<CommandEvents> | undefined
    #iterator: AsyncGenerator<StreamEvent> | undefined

    /** @internal */
    constructor(source: CommandSource) {
        this.#source = source
    }

    /** Returns the id of the command, which is started if it was not. */
    async id(): Promise<string> {
        return (await this.#load()).id()
    }

    /** Sends a signal to the command and all its processes. */
    async kill(signal = 15): Promise<void> {
        await sendSignal(this.#source.transport, this.#source.sandboxId, await this.id(), signal)
    }

    /** Writes to the stdin of a command that was started with `stdin: true`. */
    async writeStdin(data: string | Uint8Array, options: { close?: boolean } & CallOptions = {}): Promise<void> {
        const { writeInput } = await import('./command-events.js')
        await writeInput(this.#source.transport, this.#source.sandboxId, await this.id(), data, options)
    }

    /** Ends the input of the command. */
    closeStdin(options: CallOptions = {}): Promise<void> {
        return this.writeStdin('', { ...options, close: true })
    }

    /** Reads the stream to its end, and returns the result of the command. Keeps at most `maxOutputSize` bytes of output. */
    async wait(options: { maxOutputSize?: number } = {}): Promise<CommandResult> {
        const { OutputCollector } = await import('./command-events.js')
        const collector = new OutputCollector(options.maxOutputSize)
        for await (const event of this) collector.add(event)
        return collector.result()
    }

    /** Yields the events of the command. The last one is `exit` or `error`. */
    [Symbol.asyncIterator](): AsyncGenerator<StreamEvent> {
        return (this.#iterator ??= this.#iterate())
    }

    async *#iterate(): AsyncGenerator<StreamEvent> {
        yield* (await this.#load()).events()
    }

    /** Programs that only wait for results do not load the code of streams. */
    #load(): Promise<CommandEvents> {
        return (this.#events ??= import('./command-events.js').then(
            ({ CommandEvents }) => new CommandEvents(this.#source),
        ))
    }
}
