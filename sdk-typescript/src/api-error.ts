// Mapping of error responses to errors.

import {
    type ErrorFields,
    CommandFailedError,
    CommandNotFoundError,
    ConflictError,
    ForbiddenError,
    InvalidRequestError,
    LimitExceededError,
    NotFoundError,
    PTYLimitExceededError,
    PTYNotFoundError,
    PathNotFoundError,
    PreconditionFailedError,
    ProcessTimeoutError,
    ProjectNotFoundError,
    RateLimitedError,
    SandboxExpiredError,
    SandboxLimitExceededError,
    SandboxNotFoundError,
    SandboxNotRunningError,
    ServerError,
    SnapshotNotFoundError,
    TemplateNotFoundError,
    UnauthorizedError,
    UnexpectedResponseError,
    WorkspaceError,
} from './errors.js'

type ErrorClass = new (fields: ErrorFields & { retryAfter?: number }) => WorkspaceError

const CLASSES: Record<string, ErrorClass> = {
    SANDBOX_NOT_FOUND: SandboxNotFoundError,
    SANDBOX_EXPIRED: SandboxExpiredError,
    TEMPLATE_NOT_FOUND: TemplateNotFoundError,
    SNAPSHOT_NOT_FOUND: SnapshotNotFoundError,
    PATH_NOT_FOUND: PathNotFoundError,
    COMMAND_NOT_FOUND: CommandNotFoundError,
    PTY_NOT_FOUND: PTYNotFoundError,
    PROJECT_NOT_FOUND: ProjectNotFoundError,
    SANDBOX_NOT_RUNNING: SandboxNotRunningError,
    PRECONDITION_FAILED: PreconditionFailedError,
    SANDBOX_LIMIT_EXCEEDED: SandboxLimitExceededError,
    PTY_LIMIT_EXCEEDED: PTYLimitExceededError,
    RATE_LIMITED: RateLimitedError,
    PROCESS_TIMEOUT: ProcessTimeoutError,
    COMMAND_FAILED: CommandFailedError,
}

const RETRYABLE = new Set([
    'RATE_LIMITED',
    'QUEUE_FULL',
    'RUNTIME_UNAVAILABLE',
    'AGENT_UNAVAILABLE',
    'SANDBOX_CONFLICT',
    'UPLOAD_LIMIT_EXCEEDED',
    'UPLOADS_BUSY',
    'WORKSPACE_CHANGING',
    'WORKSPACE_BUSY',
    'COMMAND_LIMIT_EXCEEDED',
    'STDIN_FULL',
    'TICKET_LIMIT_EXCEEDED',
    'TRANSFER_LIMIT_EXCEEDED',
    'PROJECT_BUSY',
    'SHUTTING_DOWN',
    'REQUEST_TIMEOUT',
    'CATALOG_UNAVAILABLE',
    'CONNECTION_LIMIT_EXCEEDED',
    'ANSWERS_UNREAD',
])

/** Errors after which nothing was done, so that every request may be repeated. */
const NOT_PERFORMED = new Set([
    'RATE_LIMITED',
    'QUEUE_FULL',
    'SHUTTING_DOWN',
    'CATALOG_UNAVAILABLE',
    'UPLOADS_BUSY',
    'UPLOAD_LIMIT_EXCEEDED',
])

/** Returns true if the server refused the request before it did anything. */
export function wasNotPerformed(error: WorkspaceError): boolean {
    return NOT_PERFORMED.has(error.name)
}

function classOfStatus(status: number | undefined): ErrorClass {
    switch (status) {
        case 401:
            return UnauthorizedError
        case 403:
            return ForbiddenError
        case 404:
        case 410:
            return NotFoundError
        case 409:
        case 412:
            return ConflictError
        case 429:
        case 507:
            return LimitExceededError
        default:
            return status !== undefined && status >= 500 ? ServerError : InvalidRequestError
    }
}

/** Creates the error for the fields of an error of the API. `retryAfter` is in milliseconds. */
export function apiError(fields: ErrorFields & { retryAfter?: number }): WorkspaceError {
    const { name, status } = fields
    const Class = CLASSES[name] ?? classOfStatus(status)
    return new Class({ ...fields, retryable: RETRYABLE.has(name) })
}

/** Creates the error for a response that is not a success. */
export function responseError(response: Response, body: string): WorkspaceError {
    const { status } = response
    const retryAfter = parseRetryAfter(response.headers.get('retry-after'))
    const fields = parseErrorBody(body)
    if (fields) return apiError({ ...fields, status, retryAfter })
    const retryable = status === 502 || status === 503 || status === 504
    return new UnexpectedResponseError(
        `the response with status ${status} is not from a workspace server; check apiUrl`,
        status,
        retryable,
    )
}

/** Parses the body of an error; `undefined` if it is not from a workspace server. */
function parseErrorBody(body: string): ErrorFields | undefined {
    try {
        const { error } = JSON.parse(body) as { error?: Partial<ErrorFields> }
        if (typeof error?.code !== 'number' || typeof error.name !== 'string') return undefined
        const { code, name, message = name, details, requestId } = error
        return { code, name, message, details, requestId }
    } catch {
        return undefined
    }
}

function parseRetryAfter(header: string | null): number | undefined {
    const seconds = header === null ? NaN : Number(header)
    return Number.isFinite(seconds) && seconds >= 0 ? seconds * 1000 : undefined
}

/** Returns the seconds of `Retry-After` of an error in milliseconds, if there are any. */
export function retryAfterOf(error: unknown): number | undefined {
    return error instanceof RateLimitedError ? error.retryAfter : undefined
}
