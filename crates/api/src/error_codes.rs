//! The error codes of the API: number, name and HTTP status. Clients depend on all three, so a row is never changed
//! or reused, only added; a test of the server has a copy of them.

/// Error code of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorCode {
    /// Number, unique and stable; [`RANGES`] groups them.
    pub number: u16,
    /// Name, unique and stable.
    pub name: &'static str,
    /// HTTP status of the response.
    pub status: u16,
    /// Meaning in one sentence, for `docs/errors.md`.
    pub meaning: &'static str,
}

/// Returns the error code with that name; `None` if this version does not know it.
pub fn find(name: &str) -> Option<ErrorCode> {
    TABLE.iter().copied().find(|code| code.name == name)
}

/// Defines a constant for each error code, and a table of all.
macro_rules! codes {
    ($($name:ident = $number:literal, $status:literal, $meaning:literal;)+) => {
        $(
            #[doc = $meaning]
            pub const $name: ErrorCode = ErrorCode {
                number: $number,
                name: stringify!($name),
                status: $status,
                meaning: $meaning,
            };
        )+

        /// All error codes, ordered by number.
        pub const TABLE: &[ErrorCode] = &[$($name),+];
    };
}

codes! {
    UNAUTHORIZED = 1001, 401, "The key, token or terminal ticket is missing, unknown, expired or revoked.";
    FORBIDDEN = 1002, 403, "The key's role, or the rights of the token, do not allow this.";
    KEY_NOT_FOUND = 1003, 404, "There is no such key, or it was revoked.";
    LAST_ADMIN_KEY = 1004, 409, "The last admin key cannot be revoked.";

    SANDBOX_NOT_FOUND = 2001, 404, "There is no such sandbox, or it is another owner's.";
    TEMPLATE_NOT_FOUND = 2002, 404, "There is no such template.";
    SANDBOX_LIMIT_EXCEEDED = 2003, 429, "The owner or the server has the maximum number of sandboxes.";
    SANDBOX_NOT_RUNNING = 2004, 409, "The state of the sandbox does not allow this.";
    SANDBOX_EXPIRED = 2005, 410, "The sandbox has expired.";
    IDEMPOTENCY_CONFLICT = 2006, 409, "The idempotency key was used for another request.";
    RUNTIME_UNAVAILABLE = 2007, 503, "The sandbox runtime is not available.";
    QUEUE_FULL = 2008, 503, "Too many sandbox creations are queued.";
    NETWORK_UNAVAILABLE = 2009, 422, "The requested network is not available on this machine.";
    ISOLATION_UNAVAILABLE = 2010, 503, "The machine lacks isolation that sandboxes or `REQUIRE_ISOLATION` need.";
    LIFETIME_EXCEEDED = 2011, 422, "The lifetime of the sandbox would exceed `MAX_SANDBOX_LIFETIME`.";
    AGENT_UNAVAILABLE = 2012, 503, "The guest agent of the sandbox does not respond.";
    RESOURCE_LIMIT_EXCEEDED = 2013, 422, "The requested resources exceed the limits of a sandbox.";
    TEMPLATE_UNAVAILABLE = 2014, 422, "The template is known, but not present on this machine.";
    SANDBOX_CREATION_FAILED = 2015, 500, "The sandbox could not be started.";
    SANDBOX_CONFLICT = 2016, 409, "Another request changed the sandbox at the same time.";
    TEMPLATE_EXISTS = 2017, 409, "A template with that name already exists.";
    TEMPLATE_IN_USE = 2018, 409, "A sandbox uses the template.";
    SANDBOX_ELSEWHERE = 2019, 421, "Another server that uses the same catalog runs the sandbox.";
    SANDBOX_NAME_TAKEN = 2020, 409, "The owner already has a sandbox with that name, and `uniqueName` was set.";
    SANDBOX_OPERATION_FAILED = 2021, 500, "The runtime failed to perform the operation; the sandbox still exists.";
    GUEST_OUTDATED = 2022, 409, "The guest agent of the sandbox is too old for this; fork the sandbox, and use the fork.";
    ROOT_UNAVAILABLE = 2023, 422, "The root filesystem cannot be kept with this runtime, template or snapshot.";
    USER_UNAVAILABLE = 2024, 422, "Commands of the sandbox cannot run as that user.";
    BUILD_FAILED = 2025, 422, "A step of the template's recipe failed, or the build of the template took too long.";

    SNAPSHOT_NOT_FOUND = 3001, 404, "There is no such snapshot, or it is another owner's.";
    SNAPSHOT_IN_USE = 3002, 409, "A reference, a sandbox or a mount uses the snapshot.";
    PATH_NOT_FOUND = 3003, 404, "The snapshot or the sandbox has no entry at that path.";
    NOT_A_FILE = 3004, 422, "The path is a directory, a device or a FIFO, or in a snapshot a symlink, which is not followed.";
    RANGE_NOT_SATISFIABLE = 3005, 416, "The range is outside the file; `Content-Range` has the size of the file.";
    ARCHIVE_INVALID = 3006, 400, "The body is not a valid tar archive, or a member has a path outside the archive.";
    UPLOAD_LIMIT_EXCEEDED = 3007, 429, "The limit of concurrent uploads is reached; try again.";
    SNAPSHOT_DAMAGED = 3008, 500, "The stored snapshot is damaged; run `workspace verify`.";
    UPLOADS_BUSY = 3009, 503, "The server is receiving the maximum number of uploads from all owners; try again.";
    SNAPSHOT_LIMIT_EXCEEDED = 3010, 429, "The owner has the maximum number or size of snapshots; delete some.";
    TREE_TOO_LARGE = 3011, 422, "The tree or directory has more entries, or longer paths, than are read at once.";
    REFERENCE_NOT_FOUND = 3012, 404, "There is no such reference, or it is another owner's.";
    REFERENCE_LIMIT_EXCEEDED = 3013, 429, "The owner has the maximum number of references; delete some.";
    SNAPSHOT_BASE_UNKNOWN = 3014, 409, "It is not known from which rebase of the sandbox the snapshot is.";

    EPISODE_NOT_FOUND = 3101, 404, "There is no such episode, or its snapshot is another owner's.";
    EPISODE_LIMIT_EXCEEDED = 3102, 429, "The owner has the maximum number or size of episodes; delete some.";
    EPISODE_SHARED = 3103, 409, "Episodes of another owner are descendants of this one, so it cannot be deleted.";
    NOTE_LIMIT_EXCEEDED = 3104, 429, "The sandbox or the owner has the maximum number or size of notes.";

    WORKSPACE_IN_USE = 3201, 409, "Processes of the sandbox use its workspace; `force` of a restore or rebase kills them.";
    PROVIDER_UNAVAILABLE = 3202, 422, "The requested workspace provider is not available on this machine.";
    WORKSPACE_UNUSABLE = 3203, 409, "The workspace of the sandbox is missing or cannot be used.";
    WORKSPACE_TOO_DEEP = 3204, 422, "The sandbox's workspace is nested more deeply than a snapshot may be.";
    WORKSPACE_UNREADABLE = 3205, 422, "Files of the sandbox's workspace cannot be read, so a snapshot would lack them.";
    WORKSPACE_TOO_LARGE = 3206, 422, "The sandbox's workspace has more entries or longer paths than a snapshot may have.";
    WORKSPACE_READ_ONLY = 3207, 409, "The workspace of the sandbox is read-only: it has no changes, and cannot be replaced.";
    WORKSPACE_NOT_FOUND = 3208, 404, "The agent has no workspace of the project.";
    WORKSPACE_ELSEWHERE = 3209, 421, "Another server that uses the same catalog has the directory of the workspace.";
    WORKSPACE_CHANGING = 3210, 409, "Processes kept changing the workspace while it was read; try again.";
    WORKSPACE_BUSY = 3211, 409, "The workspace is being created, moved or removed; try again.";
    WORKSPACE_UNCOMPLETED = 3212, 409, "The workspace has changes that were not completed.";
    WORKSPACE_LIMIT_EXCEEDED = 3213, 429, "The owner has the maximum number of workspaces for agents; delete some.";
    WORKSPACE_AMBIGUOUS = 3214, 409, "The agent has workspaces of several projects; name the project.";

    PROCESS_TIMEOUT = 4001, 422, "The command exceeded its timeout and was killed.";
    COMMAND_FAILED = 4002, 422, "The command could not be started. A nonzero exit code is not an error.";
    COMMAND_NOT_FOUND = 4003, 404, "There is no such command in this sandbox.";
    COMMAND_NOT_RUNNING = 4004, 409, "The command has ended.";
    STDIN_CLOSED = 4005, 409, "The stdin of the command is closed.";
    OUTPUT_UNAVAILABLE = 4006, 410, "The command's output is no longer available.";
    COMMAND_LIMIT_EXCEEDED = 4007, 429, "The sandbox runs the maximum number of commands.";
    STDIN_FULL = 4008, 429, "The command does not read its stdin, and the buffer is full; try again later.";
    STDIN_UNCERTAIN = 4009, 503, "The guest agent disconnected; a part of the input may have been written.";

    PTY_NOT_FOUND = 4101, 404, "There is no such terminal in this sandbox.";
    PTY_LIMIT_EXCEEDED = 4102, 429, "The sandbox has the maximum number of terminals.";
    PTY_CLOSED = 4103, 410, "The shell of the terminal has exited.";
    TICKET_LIMIT_EXCEEDED = 4104, 429, "The owner has the maximum number of unused tickets for terminals; try again.";

    FILE_DENIED = 4201, 403, "The user of the sandbox may not access the file.";
    FILE_CONFLICT = 4202, 409, "An entry exists, is not empty, or is of another kind than the operation needs.";
    PRECONDITION_FAILED = 4203, 412, "`If-Match` or `If-None-Match` does not fit the current state of the resource.";
    DISK_LIMIT_EXCEEDED = 4204, 507, "The disk of the sandbox is full; nothing was written.";
    TRANSFER_LIMIT_EXCEEDED = 4205, 429, "The sandbox has the maximum number of transfers, watches or connections; try again.";
    WATCH_LIMIT_EXCEEDED = 4206, 422, "The directory has more subdirectories than can be watched.";
    PORT_NOT_LISTENING = 4207, 502, "Nothing accepts connections on the port of the sandbox.";
    PREVIEW_FAILED = 4208, 502, "The program on the port of the sandbox gave no valid HTTP response.";

    PROJECT_NOT_FOUND = 5001, 404, "There is no such project, or it is another owner's.";
    PROJECT_EXISTS = 5002, 409, "The owner already has a project with that name.";
    PROJECT_MOVED = 5003, 409, "The head of the project has another sequence than the request expects.";
    PROJECT_BUSY = 5004, 503, "The head of the project changed in every attempt; try again.";
    PROJECT_IN_USE = 5005, 409, "Completions of the project wait to be merged, or agents have workspaces of it.";
    SEQUENCE_NOT_FOUND = 5006, 404, "The project has no such sequence.";
    COMPLETION_NOT_FOUND = 5007, 404, "The project has no such completion.";
    SANDBOX_WITHOUT_PROJECT = 5008, 409, "The sandbox belongs to no project, so its work can be neither completed nor rebased.";
    POLICY_INVALID = 5009, 422, "The access policy is not valid; the message names the rule.";
    AGENT_REQUIRED = 5010, 409, "The key may act for several agents; name one in the header `X-Agent`, or as `agent`.";
    PROJECT_LIMIT_EXCEEDED = 5011, 429, "The owner has the maximum number of projects; delete some.";

    REVIEW_NOT_FOUND = 5101, 404, "The project has no such review.";
    REVIEW_DECIDED = 5102, 409, "The review is decided already; the message says by whom.";
    REVIEW_FORBIDDEN = 5103, 403, "The policy of the project does not name the caller as a reviewer of the path.";
    REVIEW_OUTDATED = 5104, 409, "The head has another version of the path than the reviewer has seen; send its version as `expect`.";
    RESOLUTION_NOT_APPLICABLE = 5105, 409, "The decision cannot be applied to the present head; the message says why.";

    INTERNAL_ERROR = 9001, 500, "Internal error; search the server log for the request id.";
    RATE_LIMITED = 9002, 429, "The key made too many requests; try again after the seconds in `Retry-After`.";
    INVALID_REQUEST = 9003, 400, "The request is invalid.";
    PAYLOAD_TOO_LARGE = 9004, 413, "The body of the request is too large.";
    NOT_FOUND = 9005, 404, "The API has no such path.";
    METHOD_NOT_ALLOWED = 9006, 405, "The path does not support that method; `Allow` lists those that it supports.";
    UNSUPPORTED_MEDIA_TYPE = 9007, 415, "The body must be `application/json`.";
    SHUTTING_DOWN = 9008, 503, "The server is stopping.";
    REQUEST_TIMEOUT = 9009, 408, "The body of the request was not received in time.";
    URI_TOO_LONG = 9010, 414, "The request's path and query are longer than allowed.";
    HEADERS_TOO_LARGE = 9011, 431, "The request's headers are larger than allowed.";
    CATALOG_UNAVAILABLE = 9012, 503, "The catalog database does not respond.";
    NOT_IMPLEMENTED = 9013, 501, "The server does not implement this yet.";
    STORAGE_FULL = 9014, 507, "The server's disk is full.";
    CONNECTION_LIMIT_EXCEEDED = 9015, 429, "The owner has the maximum number of connections.";
    ANSWERS_UNREAD = 9016, 429, "The owner's unread responses exceed the memory limit; read them first.";
}

/// First number, last number and subject of each range of codes.
pub const RANGES: &[(u16, u16, &str)] = &[
    (1000, 1999, "keys"),
    (2000, 2999, "sandboxes"),
    (3000, 3099, "snapshots"),
    (3100, 3199, "episodes (steps of a search) and notes (of agents about their steps)"),
    (3200, 3999, "workspaces"),
    (4000, 4099, "commands"),
    (4100, 4199, "terminals"),
    (4200, 4299, "files and ports"),
    (5000, 5999, "projects"),
    (6000, 6999, "merge (reserved)"),
    (7000, 7999, "NFS (reserved)"),
    (9000, 9999, "the server"),
];
