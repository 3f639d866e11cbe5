// Errors of the API and of the SDK.

/** Fields of a `WorkspaceError`. */
export interface ErrorFields {
    /** Stable number of an error of the API; 0 for errors of the SDK. */
    code: number
    /** Stable name, such as `SANDBOX_NOT_FOUND`. */
    name: string
    message: string
    requestId?: string
    retryable?: boolean
    /** HTTP status; absent if there was no response. */
    status?: number
    details?: Record<string, unknown>
    cause?: unknown
}

/** Root of all errors of this SDK. */
export class WorkspaceError extends Error {
    readonly code: number
    override readonly name: string
    /** Id of the request in the log of the server. */
    readonly requestId: string | undefined
    /** True if the same request may succeed later. */
    readonly retryable: boolean
    readonly status: number | undefined
    readonly details: Record<string, unknown>

    constructor(fields: ErrorFields) {
        super(fields.message, fields.cause === undefined ? undefined : { cause: fields.cause })
        this.code = fields.code
        this.name = fields.name
        this.requestId = fields.requestId
        this.retryable = fields.retryable ?? false
        this.status = fields.status
        this.details = fields.details ?? {}
    }
}

/** The key, token or ticket is missing, unknown, expired or revoked. */
export class UnauthorizedError extends WorkspaceError {}
/** The role of the key, the rights of the token, or a policy do not allow the request. */
export class ForbiddenError extends WorkspaceError {}
/** The request is invalid, or cannot be performed as it is. */
export class InvalidRequestError extends WorkspaceError {}
/** The server failed. */
export class ServerError extends WorkspaceError {}

/** The requested resource does not exist, or not any more. */
export class NotFoundError extends WorkspaceError {}
/** The sandbox does not exist any more. */
export class SandboxGoneError extends NotFoundError {}
export class SandboxNotFoundError extends SandboxGoneError {}
export class SandboxExpiredError extends SandboxGoneError {}
export class TemplateNotFoundError extends NotFoundError {}
export class SnapshotNotFoundError extends NotFoundError {}
export class PathNotFoundError extends NotFoundError {}
export class CommandNotFoundError extends NotFoundError {}
export class PTYNotFoundError extends NotFoundError {}
export class ProjectNotFoundError extends NotFoundError {}

/** The state of the resource does not allow the request. */
export class ConflictError extends WorkspaceError {}
export class SandboxNotRunningError extends ConflictError {}
export class PreconditionFailedError extends ConflictError {}

/** A limit or quota is reached. */
export class LimitExceededError extends WorkspaceError {}
export class SandboxLimitExceededError extends LimitExceededError {}
export class PTYLimitExceededError extends LimitExceededError {}
/** The key made too many requests. */
export class RateLimitedError extends LimitExceededError {
    /** Milliseconds after which the request may be repeated, if the server named them. */
    readonly retryAfter: number | undefined

    constructor(fields: ErrorFields & { retryAfter?: number }) {
        super(fields)
        this.retryAfter = fields.retryAfter
    }
}

/** Root of the errors that have the result of a command. */
abstract class CommandError extends WorkspaceError {
    readonly commandId: string | undefined
    readonly exitCode: number | undefined
    readonly stdout: string
    readonly stderr: string
    /** True if `stdout` and `stderr` are not the whole output. */
    readonly truncated: boolean

    constructor(fields: ErrorFields) {
        super(fields)
        const { commandId, exitCode, stdout, stderr, truncated } = this.details
        this.commandId = typeof commandId === 'string' ? commandId : undefined
        this.exitCode = typeof exitCode === 'number' ? exitCode : undefined
        this.stdout = typeof stdout === 'string' ? stdout : ''
        this.stderr = typeof stderr === 'string' ? stderr : ''
        this.truncated = truncated === true
    }
}

/** The command exceeded its timeout and was killed. */
export class ProcessTimeoutError extends CommandError {}
/** The command could not be started, was lost with its sandbox, or failed although `check` was set. */
export class CommandFailedError extends CommandError {}

/** The server cannot be reached, or the connection was lost. */
export class ServerUnreachableError extends WorkspaceError {
    constructor(message: string, cause?: unknown) {
        super({ code: 0, name: 'SERVER_UNREACHABLE', message, retryable: true, cause })
    }
}

/** The call took longer than its timeout. */
export class RequestTimeoutError extends WorkspaceError {
    constructor(message: string) {
        super({ code: 0, name: 'CLIENT_TIMEOUT', message, retryable: true })
    }
}

/** The response is not from a workspace server. */
export class UnexpectedResponseError extends WorkspaceError {
    constructor(message: string, status?: number, retryable = false, cause?: unknown) {
        super({ code: 0, name: 'UNEXPECTED_RESPONSE', message, status, retryable, cause })
    }
}

/** The configuration of the client is missing or invalid. */
export class ConfigurationError extends WorkspaceError {
    constructor(message: string) {
        super({ code: 0, name: 'CONFIGURATION_INVALID', message })
    }
}

/** A workspace could not be mounted on this machine, or unmounted. */
export class MountError extends WorkspaceError {
    /** Command line that failed, or that somebody with the needed rights can run. It has the path of the export. */
    readonly command: string

    constructor(message: string, hint: string, command: string, cause?: unknown) {
        super({ code: 0, name: 'MOUNT_FAILED', message: `${message}\nhint: ${hint}`, cause })
        this.command = command
    }
}
