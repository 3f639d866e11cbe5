// Types of the API for users: the generated wire types, and those that are written by hand.

import type * as Wire from './generated/wire.js'

export type * as Wire from './generated/wire.js'
export type * from './server-events.js'

/** Page of a list. */
export interface ListResponse<T> {
    items: T[]
    limit: number
    total?: number
    page?: number
    /** Cursor of the next page; absent on the last page. */
    next?: string | null
}

/** States of a sandbox. */
export type SandboxState = 'starting' | 'running' | 'paused' | 'stopping' | 'stopped' | 'error'

/** Parameters of a new sandbox. */
export type CreateSandboxParams = Omit<Wire.CreateSandbox, 'template'> & Partial<Pick<Wire.CreateSandbox, 'template'>>
/** Filters and page of a list of sandboxes. */
export type ListParams = Wire.ListSandboxesQuery
/** Result of the deletion of several sandboxes. */
export type BatchDeleteResponse = Wire.BatchDeleteResult
/** Last lines of output of all commands. */
export type LogsResponse = Wire.Logs
/** Present usage of a sandbox. */
export type SandboxStats = Wire.SandboxStats
/** Result of a command. */
export type CommandResult = Wire.CommandResult
/** Parameters of a new terminal. */
export type PTYOptions = Wire.OpenTerminal
/** Address of a workspace for NFS clients. */
export type NFSInfo = Omit<Wire.NfsInfo, 'mountCommandV4'> & { readonly mountCommandV4?: string | undefined }
/** Template of sandboxes. */
export type Template = Wire.Template

interface CommandEventBase {
    commandId: string
    /** Milliseconds since 1970-01-01 UTC. */
    timestamp: number
}

/** Output of a command. */
export interface OutputEvent extends CommandEventBase {
    type: 'stdout' | 'stderr'
    /** Text, decoded incrementally: bytes of an incomplete character come with the next event. */
    data: string
    /** Bytes of this event. */
    readonly bytes: Uint8Array
    /** Offset of the first byte in the output of the command. */
    offset: number
}

/** Output that is no longer retained. */
export interface GapEvent extends CommandEventBase {
    type: 'gap'
    /** Offset of the first dropped byte. */
    from: number
    /** Offset of the first byte after the dropped ones. */
    to: number
}

/** End of a command. */
export interface ExitEvent extends CommandEventBase {
    type: 'exit'
    /** Exit code; 128 + n if the command was killed by signal n. */
    exitCode: number
    timedOut: boolean
    /** Id of the automatic snapshot after the command. */
    snapshot?: string
    /** Reason why there is no automatic snapshot although files may have changed. */
    traceError?: string
}

/** End of a command that could not be started, or was lost. */
export interface ErrorEvent extends CommandEventBase {
    type: 'error'
    message: string
    exitCode: number
    timedOut: boolean
}

/** Event of a command. `exit` or `error` is the last one. */
export type StreamEvent = OutputEvent | GapEvent | ExitEvent | ErrorEvent

/** Change of a watched file or directory. */
export type WatchEvent =
    | { type: 'created' | 'removed' | 'modified' | 'attributes'; path: string; directory: boolean }
    | { type: 'renamed'; from: string; path: string; directory: boolean }
    /** Changes below `path` were lost, maybe because the connection was: list that directory again. */
    | { type: 'dropped'; path: string }
    /** Last event. */
    | { type: 'ended'; reason: string }

/** Event of a template build. `done` is the last one. */
export type BuildEvent =
    | { type: 'step'; step: number; steps: number; text: string }
    | { type: 'cached'; step: number }
    | { type: 'output'; stream: 'stdout' | 'stderr'; data: string; bytes: Uint8Array }
    | { type: 'done'; steps: number; cached: number; created: boolean; template: Template }

/** Range of events that may be missing from a stream, because they were deleted before it got to them. */
export interface EventGap {
    type: 'gap'
    from: number
    to: number
}

/** Event of a terminal. `exit` is the last one. */
export type PTYEvent =
    | { type: 'output'; data: string; bytes: Uint8Array; offset: number }
    | { type: 'gap'; from: number; to: number }
    | { type: 'error'; message: string }
    | { type: 'exit'; exitCode: number }
