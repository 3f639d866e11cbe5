// Errors of commands that did not succeed, and signals to commands.

import { CommandFailedError, ProcessTimeoutError, type WorkspaceError } from './errors.js'
import type { CallOptions, Transport } from './transport.js'
import type { CommandResult, ErrorEvent, ExitEvent } from './types.js'

/** Timeout for killing a command that nobody waits for any more. */
export const KILL_TIMEOUT = 10_000
export const SIGKILL = 9
/** Creates the error for a command that did not succeed. */
export function commandError(
    event: ExitEvent | ErrorEvent,
    stdout: string,
    stderr: string,
    truncated: boolean,
): WorkspaceError {
    const { commandId, exitCode, timedOut } = event
    const details = { commandId, exitCode, stdout, stderr, truncated }
    if (event.type === 'exit' && timedOut) {
        const message = 'the command exceeded its timeout and was killed'
        return new ProcessTimeoutError({ code: 4001, name: 'PROCESS_TIMEOUT', message, details })
    }
    const message = event.type === 'error' ? event.message : `the command exited with ${exitCode}`
    return new CommandFailedError({ code: 4002, name: 'COMMAND_FAILED', message, details })
}

/** Throws `CommandFailedError` if the command did not exit with 0. */
export function checkResult(result: CommandResult): void {
    if (result.exitCode === 0) return
    const { commandId, exitCode, stdout, stderr, truncated } = result
    throw commandError({ type: 'exit', commandId, exitCode, timedOut: false, timestamp: 0 }, stdout, stderr, truncated)
}

/** Sends a signal to a command. */
export async function sendSignal(
    transport: Transport,
    sandboxId: string,
    commandId: string,
    signal: number,
    options: CallOptions = {},
): Promise<void> {
    const path = [sandboxId, commandId]
    await transport.json('POST sandboxes/{}/process/{}/kill', { path, json: { signal } }, options)
}
