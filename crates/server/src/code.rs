//! The errors of the API: number, name and HTTP status. Clients depend on all three, so a row is never changed
//! or reused, only added; a test holds a copy of them.

use axum::http::StatusCode;

/// A kind of error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code {
    /// Its number.
    pub number: u16,
    /// Its name.
    pub name: &'static str,
    /// The HTTP status of its answer.
    pub status: StatusCode,
    /// What it means.
    pub meaning: &'static str,
}

macro_rules! codes {
    ($($name:ident = $number:literal, $status:ident, $meaning:literal;)+) => {
        $(
            #[doc = $meaning]
            pub const $name: Code = Code {
                number: $number,
                name: stringify!($name),
                status: StatusCode::$status,
                meaning: $meaning,
            };
        )+

        /// Every kind of error, by number.
        pub const TABLE: &[Code] = &[$($name),+];
    };
}

codes! {
    UNAUTHORIZED = 1001, UNAUTHORIZED, "The key is missing, unknown or revoked.";
    FORBIDDEN = 1002, FORBIDDEN, "The key's role does not allow this.";
    KEY_NOT_FOUND = 1003, NOT_FOUND, "There is no such key, or it was revoked.";
    LAST_ADMIN_KEY = 1004, CONFLICT, "Without this key nobody could administer the server.";

    SANDBOX_NOT_FOUND = 2001, NOT_FOUND, "There is no such sandbox, or it is another owner's.";
    TEMPLATE_NOT_FOUND = 2002, NOT_FOUND, "There is no such template.";
    SANDBOX_LIMIT_EXCEEDED = 2003, TOO_MANY_REQUESTS, "The owner or the server has as many sandboxes as allowed.";
    SANDBOX_NOT_RUNNING = 2004, CONFLICT, "The sandbox is in a state in which this cannot be done.";
    SANDBOX_EXPIRED = 2005, GONE, "The sandbox's time is over.";
    IDEMPOTENCY_CONFLICT = 2006, CONFLICT, "The idempotency key was used for another request.";
    RUNTIME_UNAVAILABLE = 2007, SERVICE_UNAVAILABLE, "What runs sandboxes cannot be used now.";
    QUEUE_FULL = 2008, SERVICE_UNAVAILABLE, "Too many sandboxes are waiting to be made.";
    NETWORK_UNAVAILABLE = 2009, UNPROCESSABLE_ENTITY, "This machine cannot give a sandbox that network.";
    ISOLATION_UNAVAILABLE = 2010, SERVICE_UNAVAILABLE, "This machine cannot isolate as required.";
    LIFETIME_EXCEEDED = 2011, UNPROCESSABLE_ENTITY, "The sandbox would live longer than allowed.";
    AGENT_UNAVAILABLE = 2012, SERVICE_UNAVAILABLE, "The sandbox's guest agent does not answer.";
    RESOURCE_LIMIT_EXCEEDED = 2013, UNPROCESSABLE_ENTITY, "More was asked for than a sandbox may have.";
    TEMPLATE_UNAVAILABLE = 2014, UNPROCESSABLE_ENTITY, "The template is known but not on this machine.";
    SANDBOX_CREATION_FAILED = 2015, INTERNAL_SERVER_ERROR, "The sandbox could not be started.";
    SANDBOX_CONFLICT = 2016, CONFLICT, "Somebody else changed the sandbox at the same time.";
    TEMPLATE_EXISTS = 2017, CONFLICT, "There is a template of that name already.";
    TEMPLATE_IN_USE = 2018, CONFLICT, "A sandbox was made of the template.";
    SANDBOX_ELSEWHERE = 2019, MISDIRECTED_REQUEST, "Another server of the same catalog looks after the sandbox.";
    SANDBOX_NAME_TAKEN = 2020, CONFLICT, "The owner has a sandbox of that name, and the request asked for a name of its own.";
    SANDBOX_OPERATION_FAILED = 2021, INTERNAL_SERVER_ERROR, "The runtime could not do that to the sandbox, which is there.";

    SNAPSHOT_NOT_FOUND = 3001, NOT_FOUND, "There is no such snapshot, or it is another owner's.";
    SNAPSHOT_IN_USE = 3002, CONFLICT, "A reference names the snapshot, or something holds on to it.";
    PATH_NOT_FOUND = 3003, NOT_FOUND, "The snapshot has nothing at that path.";
    NOT_A_FILE = 3004, UNPROCESSABLE_ENTITY, "What is at that path is a directory or a symlink, which is not followed.";
    RANGE_NOT_SATISFIABLE = 3005, RANGE_NOT_SATISFIABLE, "The file has no such bytes; `Content-Range` says how many it has.";
    ARCHIVE_INVALID = 3006, BAD_REQUEST, "The body is no tar archive, or one that is damaged or tries to reach outside itself.";
    UPLOAD_LIMIT_EXCEEDED = 3007, TOO_MANY_REQUESTS, "As many archives as allowed are being uploaded; try again.";
    SNAPSHOT_DAMAGED = 3008, INTERNAL_SERVER_ERROR, "What is stored of the snapshot is damaged; `workspace verify` says more.";
    UPLOADS_BUSY = 3009, SERVICE_UNAVAILABLE, "The server takes as many archives as it can, of several owners; try again.";
    SNAPSHOT_LIMIT_EXCEEDED = 3010, TOO_MANY_REQUESTS, "The owner has as many snapshots as allowed; delete some.";
    TREE_TOO_LARGE = 3011, UNPROCESSABLE_ENTITY, "What is to be compared or read has more entries, or longer paths, than the server goes through at once.";

    EPISODE_NOT_FOUND = 3101, NOT_FOUND, "There is no such episode, or its snapshot is another owner's.";
    EPISODE_LIMIT_EXCEEDED = 3102, TOO_MANY_REQUESTS, "The owner has as many episodes as allowed; delete some.";
    EPISODE_SHARED = 3103, CONFLICT, "Episodes of another owner follow this one, so it cannot be deleted.";

    WORKSPACE_IN_USE = 3201, CONFLICT, "Processes of the sandbox use its workspace; `force` ends them.";
    PROVIDER_UNAVAILABLE = 3202, UNPROCESSABLE_ENTITY, "This machine cannot make workspaces that way.";
    WORKSPACE_UNUSABLE = 3203, CONFLICT, "The sandbox's workspace is not there, or cannot be used.";
    WORKSPACE_TOO_DEEP = 3204, UNPROCESSABLE_ENTITY, "The sandbox's workspace is nested more deeply than a snapshot may be.";
    WORKSPACE_UNREADABLE = 3205, UNPROCESSABLE_ENTITY, "Files of the sandbox's workspace cannot be read, so a snapshot would lack them.";
    WORKSPACE_TOO_LARGE = 3206, UNPROCESSABLE_ENTITY, "The sandbox's workspace has more entries, or longer paths, than a snapshot may have.";

    PROCESS_TIMEOUT = 4001, UNPROCESSABLE_ENTITY, "The command ran longer than allowed and was ended.";
    COMMAND_FAILED = 4002, UNPROCESSABLE_ENTITY, "The command could not be started.";
    COMMAND_NOT_FOUND = 4003, NOT_FOUND, "There is no such command in this sandbox.";
    COMMAND_NOT_RUNNING = 4004, CONFLICT, "The command has ended.";
    STDIN_CLOSED = 4005, CONFLICT, "The command's input is closed.";
    OUTPUT_UNAVAILABLE = 4006, GONE, "The command's output is no longer kept.";
    COMMAND_LIMIT_EXCEEDED = 4007, TOO_MANY_REQUESTS, "The sandbox runs as many commands as allowed.";
    STDIN_FULL = 4008, TOO_MANY_REQUESTS, "The command does not read its input; try again when it has.";
    STDIN_UNCERTAIN = 4009, SERVICE_UNAVAILABLE, "The guest agent went away; some of the input may have arrived.";

    PTY_NOT_FOUND = 4101, NOT_FOUND, "There is no such terminal in this sandbox.";
    PTY_LIMIT_EXCEEDED = 4102, TOO_MANY_REQUESTS, "The sandbox has as many terminals as allowed.";
    PTY_CLOSED = 4103, GONE, "The terminal's shell has ended.";

    INTERNAL_ERROR = 9001, INTERNAL_SERVER_ERROR, "Something failed in the server; its log has the request's id.";
    RATE_LIMITED = 9002, TOO_MANY_REQUESTS, "The key made too many requests; `Retry-After` says when to try again.";
    INVALID_REQUEST = 9003, BAD_REQUEST, "The request is not understood.";
    PAYLOAD_TOO_LARGE = 9004, PAYLOAD_TOO_LARGE, "The request's body is larger than allowed.";
    NOT_FOUND = 9005, NOT_FOUND, "The API has no such path.";
    METHOD_NOT_ALLOWED = 9006, METHOD_NOT_ALLOWED, "The path does not have that method; `Allow` says which it has.";
    UNSUPPORTED_MEDIA_TYPE = 9007, UNSUPPORTED_MEDIA_TYPE, "The body must be `application/json`.";
    SHUTTING_DOWN = 9008, SERVICE_UNAVAILABLE, "The server is stopping.";
    REQUEST_TIMEOUT = 9009, REQUEST_TIMEOUT, "The request's body did not come in time.";
    URI_TOO_LONG = 9010, URI_TOO_LONG, "The request's path and query are longer than allowed.";
    HEADERS_TOO_LARGE = 9011, REQUEST_HEADER_FIELDS_TOO_LARGE, "The request's headers are larger than allowed.";
    CATALOG_UNAVAILABLE = 9012, SERVICE_UNAVAILABLE, "The catalog's database does not answer.";
    NOT_IMPLEMENTED = 9013, NOT_IMPLEMENTED, "This server cannot do that yet.";
    STORAGE_FULL = 9014, INSUFFICIENT_STORAGE, "The server's disk has no room for it.";
    CONNECTION_LIMIT_EXCEEDED = 9015, TOO_MANY_REQUESTS, "The owner has as many connections as allowed.";
    ANSWERS_UNREAD = 9016, TOO_MANY_REQUESTS, "Answers that the owner has not read yet fill the memory for them; read them.";
}

/// Which numbers are for what.
pub const RANGES: &[(u16, u16, &str)] = &[
    (1000, 1999, "keys"),
    (2000, 2999, "sandboxes"),
    (3000, 3099, "snapshots"),
    (3100, 3199, "episodes"),
    (3200, 3999, "workspaces"),
    (4000, 4099, "commands"),
    (4100, 4199, "terminals"),
    (5000, 5999, "projects (kept)"),
    (6000, 6999, "merge (kept)"),
    (7000, 7999, "NFS (kept)"),
    (9000, 9999, "the server"),
];

const HEAD: &str = "# Errors of the API

<!-- Generated by `make generate` from the table in the source; do not edit. -->

An error's answer is

```json
{
  \"error\": {
    \"code\": 2001,
    \"name\": \"SANDBOX_NOT_FOUND\",
    \"message\": \"Sandbox 'sbx-abc123' not found\",
    \"details\": { \"sandboxId\": \"sbx-abc123\" },
    \"requestId\": \"req-xyz789\"
  }
}
```

Numbers, names and statuses never change. `requestId` is also in the header `X-Request-Id` and in the server's log.
";

/// `docs/errors.md`.
pub fn page() -> String {
    let ranges: String =
        RANGES.iter().map(|(from, to, what)| format!("| {from}–{to} | {what} |\n")).collect();
    let row = |code: &Code| {
        let Code { number, name, status, meaning } = code;
        format!("| {number} | `{name}` | {} | {meaning} |\n", status.as_u16())
    };
    let rows: String = TABLE.iter().map(row).collect();
    format!(
        "{HEAD}\n| numbers | of |\n|---|---|\n{ranges}\n| code | name | HTTP | meaning |\n|---|---|---|---|\n{rows}"
    )
}
