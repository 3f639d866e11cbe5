// Tools for language models that work in a sandbox.

import { CommandFailedError, ProcessTimeoutError, WorkspaceError } from './errors.js'
import { toolDefinitions } from './generated/tools.js'
import type { CommandResult } from './types.js'
import type { Sandbox } from './sandbox.js'
import type { CallOptions } from './transport.js'

/** Definition of a tool, with its parameters as a JSON schema. */
export interface ToolDefinition {
    name: string
    description: string
    parameters: Record<string, unknown>
}

/** Returns the tools in the format of OpenAI: functions. */
export function openaiTools(): { type: 'function'; function: ToolDefinition }[] {
    return toolDefinitions().map((definition) => ({ type: 'function', function: definition }))
}

/** Returns the tools in the format of Anthropic. */
export function anthropicTools(): { name: string; description: string; input_schema: Record<string, unknown> }[] {
    return toolDefinitions().map(({ name, description, parameters }) => ({
        name,
        description,
        input_schema: parameters,
    }))
}

/**
 * Calls a tool, and returns text for the model. `args` is the object, or the JSON text, that the model sent. Errors of
 * the call are text, too, which begins with `error: `; a server that cannot be reached is thrown.
 */
export async function callTool(
    sandbox: Sandbox,
    name: string,
    args: Record<string, unknown> | string = {},
    options: CallOptions = {},
): Promise<string> {
    try {
        return await call(sandbox, name, parseArguments(args), options)
    } catch (error) {
        if (error instanceof ArgumentError) return `error: ${error.message}`
        if (error instanceof ProcessTimeoutError || error instanceof CommandFailedError) {
            return `error: ${error.message}${describeOutput(error.stdout, error.stderr)}`
        }
        if (error instanceof WorkspaceError && error.code !== 0) return `error: ${error.message}`
        throw error
    }
}

class ArgumentError extends Error {}

type Arguments = Record<string, unknown>

function parseArguments(args: Arguments | string): Arguments {
    if (typeof args !== 'string') return args
    try {
        const value: unknown = args.trim() === '' ? {} : JSON.parse(args)
        if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Arguments
    } catch {
        // The message is the same.
    }
    throw new ArgumentError('the arguments are not a JSON object')
}

async function call(sandbox: Sandbox, name: string, args: Arguments, options: CallOptions): Promise<string> {
    switch (name) {
        case 'run': {
            const seconds = args['timeoutSeconds'] ?? 60
            if (typeof seconds !== 'number' || !(seconds > 0))
                throw new ArgumentError('`timeoutSeconds` must be a positive number')
            const { signal, timeout: requestTimeout } = options
            const timeout = Math.ceil(seconds * 1000)
            return describeResult(await sandbox.process.run(text(args, 'command'), { timeout, signal, requestTimeout }))
        }
        case 'read_file':
            return sandbox.files.read(text(args, 'path'), options)
        case 'write_file': {
            const { path } = await sandbox.files.write(text(args, 'path'), text(args, 'content'), {
                mkdirs: true,
                ...options,
            })
            return `wrote ${path}`
        }
        case 'edit_file':
            return edit(sandbox, args, options)
        case 'commit': {
            const message = args['message'] === undefined ? undefined : text(args, 'message')
            const { snapshot } = await sandbox.commit({ message, ...options })
            return `snapshot ${snapshot.id}`
        }
        case 'diff':
            return (await sandbox.patch(options)) || 'no changes'
        default:
            throw new ArgumentError(`there is no tool \`${name}\``)
    }
}

/** Replaces a part of a file, unless somebody else changes it meanwhile. */
async function edit(sandbox: Sandbox, args: Arguments, options: CallOptions): Promise<string> {
    const path = text(args, 'path')
    const before = text(args, 'old')
    const after = text(args, 'new')
    const { etag } = await sandbox.files.stat(path, options)
    const content = await sandbox.files.read(path, { ifMatch: etag, ...options })
    const found = before === '' ? 0 : content.split(before).length - 1
    if (found !== 1) throw new ArgumentError(`\`old\` occurs ${found} times in ${path}, not exactly once`)
    // A function, because `$` is special in a replacement text.
    await sandbox.files.write(
        path,
        content.replace(before, () => after),
        { ifMatch: etag, ...options },
    )
    return `edited ${path}`
}

function text(args: Arguments, name: string): string {
    const value = args[name]
    if (typeof value !== 'string') throw new ArgumentError(`\`${name}\` must be a string`)
    return value
}

function describeResult(result: CommandResult): string {
    const truncated = result.truncated ? '\n(the output is truncated)' : ''
    return `exit code ${result.exitCode}${describeOutput(result.stdout, result.stderr)}${truncated}`
}

function describeOutput(stdout: string, stderr: string): string {
    const parts = []
    if (stdout !== '') parts.push(`stdout:\n${stdout.trimEnd()}`)
    if (stderr !== '') parts.push(`stderr:\n${stderr.trimEnd()}`)
    return parts.map((part) => `\n${part}`).join('')
}
