//! Errors of requests: the error that the server returned, or the reason why there is no response.

use std::time::Duration;

use hyper::StatusCode;
use workspace_api::error::ErrorBody;
use workspace_api::error_codes::{self, ErrorCode};

use super::ServerUrl;
use crate::error::CommandError;

/// Fields of requests, and the options that set them. Messages about a field start with its name.
const FIELD_OPTIONS: [(&str, &str); 8] = [
    ("cwd", "--cwd"),
    ("egressAllow", "--allow"),
    ("envs", "--env"),
    ("resources.cpu", "--cpu"),
    ("resources.disk", "--disk"),
    ("resources.memory", "--memory"),
    ("shell", "--shell"),
    ("template", "--template"),
];

/// Reason why a request failed.
#[derive(Debug)]
pub(crate) enum RequestError {
    /// No connection could be made, or the request could not be built; the reason.
    Unreachable(String),
    /// The TLS certificate is not trusted; the reason.
    Untrusted(String),
    /// The connection broke after it was made, or a response is not JSON; the reason.
    Disconnected(String),
    /// The response is JSON, but not of the expected type; the parser's message.
    Malformed(String),
    /// The server returned an error.
    Api(Box<ApiError>),
}

/// Error that a server returned.
#[derive(Debug)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    /// Error code; `None` if this version does not know it, or if the response is not from a workspace server.
    code: Option<ErrorCode>,
    /// Name of the error code in docs/errors.md; empty if the response is not from a workspace server.
    name: String,
    pub(crate) message: String,
    /// Name of the invalid field of the request.
    field: Option<String>,
    /// Id of the request in the log of the server.
    pub(crate) request_id: Option<String>,
    pub(crate) retry_after: Option<Duration>,
    /// Bytes of a command's input that were accepted before the error.
    pub(crate) written: usize,
}

impl ApiError {
    /// Parses the response of a failed request.
    pub(crate) fn new(status: StatusCode, retry_after: Option<Duration>, body: &[u8]) -> Self {
        match serde_json::from_slice(body) {
            Ok(ErrorBody { error }) => Self {
                status,
                code: error_codes::find(&error.name),
                written: usize::try_from(error.written()).unwrap_or(usize::MAX),
                field: error.field().map(str::to_owned),
                name: error.name,
                message: error.message,
                request_id: Some(error.request_id),
                retry_after,
            },
            // The response is not from the server, but from a proxy or another program on that port.
            Err(_) => Self {
                status,
                code: None,
                name: String::new(),
                message: format!("it responded with {status}, but is not a workspace server"),
                field: None,
                request_id: None,
                retry_after,
                written: 0,
            },
        }
    }

    /// Returns true if the API has no such path, or another program responded.
    fn is_unknown_path(&self) -> bool {
        self.code == Some(error_codes::NOT_FOUND) || self.name.is_empty()
    }

    /// Returns the option that sets the invalid field, and the message with its name instead of that of the field.
    fn option_message(&self) -> Option<(&'static str, String)> {
        let field = self.field.as_deref()?;
        let &(_, option) = FIELD_OPTIONS.iter().find(|(name, _)| *name == field)?;
        Some((option, format!("{option}{}", self.message.strip_prefix(field)?)))
    }

    /// Returns the hint for an error code; `None` if there is none.
    fn hint(&self) -> Option<&'static str> {
        let Some(code) = self.code else {
            return self.name.is_empty().then_some("check --server or WORKSPACE_SERVER");
        };
        Some(match code {
            error_codes::FORBIDDEN => {
                "use a key with another role; admins create keys with `workspace key create`"
            }
            error_codes::KEY_NOT_FOUND => "`workspace key ls` lists the keys",
            error_codes::LAST_ADMIN_KEY => "`workspace key create --role admin` creates another one",
            error_codes::SANDBOX_NOT_FOUND => "`workspace ps` lists your sandboxes",
            error_codes::SANDBOX_NOT_RUNNING | error_codes::SANDBOX_EXPIRED => {
                "`workspace sandbox create` creates another one"
            }
            error_codes::REVIEW_NOT_FOUND => "`workspace review ls PROJECT` lists the reviews",
            error_codes::REVIEW_DECIDED => "`workspace review show` shows the decision",
            error_codes::REVIEW_FORBIDDEN => {
                "use the key of a reviewer, or change `reviewers` with `workspace policy set`"
            }
            error_codes::REVIEW_OUTDATED => {
                "`workspace review show` shows the present version; repeat with `--expect VERSION`, or `--ours`"
            }
            error_codes::SNAPSHOT_NOT_FOUND => "use the full id of a snapshot on the server",
            error_codes::REFERENCE_NOT_FOUND => "`workspace ref ls --server URL` lists your references",
            error_codes::PRECONDITION_FAILED => {
                "check it with `workspace ref ls --server URL`, and try again"
            }
            error_codes::REFERENCE_LIMIT_EXCEEDED => {
                "`workspace ref rm --server URL NAME` removes references"
            }
            error_codes::WORKSPACE_IN_USE => {
                "`restore` without `--no-force`, and `rebase` with `--force`, kill these processes"
            }
            error_codes::WORKSPACE_NOT_FOUND => {
                "`workspace project workspace ls PROJECT` lists the workspaces"
            }
            error_codes::WORKSPACE_UNCOMPLETED => {
                "`workspace project workspace complete` merges them; `rm --discard` deletes them"
            }
            error_codes::WORKSPACE_CHANGING | error_codes::WORKSPACE_BUSY => {
                "end the processes that write to it, or try again in a moment"
            }
            error_codes::WORKSPACE_LIMIT_EXCEEDED => "`workspace project workspace rm` removes workspaces",
            error_codes::TEMPLATE_NOT_FOUND | error_codes::TEMPLATE_UNAVAILABLE => {
                "`workspace template ls` lists the templates"
            }
            error_codes::TEMPLATE_IN_USE => {
                "remove the sandboxes that use it first; `workspace ps` lists yours"
            }
            error_codes::SANDBOX_NAME_TAKEN => "choose another name, or `--allow-duplicate-name`",
            error_codes::STORAGE_FULL => "free disk space on the server, and try again",
            error_codes::WORKSPACE_UNREADABLE => "`chmod u+r` them in the sandbox, or remove them",
            error_codes::SANDBOX_LIMIT_EXCEEDED => {
                "`workspace ps` lists sandboxes, `workspace sandbox rm` removes them"
            }
            error_codes::RUNTIME_UNAVAILABLE
            | error_codes::ISOLATION_UNAVAILABLE
            | error_codes::SANDBOX_CREATION_FAILED => {
                "`workspace status` shows the checks of the server; its log has details"
            }
            error_codes::NETWORK_UNAVAILABLE => "`--network none` always works",
            error_codes::COMMAND_NOT_FOUND | error_codes::OUTPUT_UNAVAILABLE => {
                "`workspace ps SANDBOX` lists the commands of a sandbox"
            }
            error_codes::COMMAND_NOT_RUNNING => "`workspace logs SANDBOX COMMAND` prints its output",
            error_codes::ROOT_UNAVAILABLE => "`--root discarded` always works",
            error_codes::USER_UNAVAILABLE => "without `--user`, it runs as the user of the sandbox",
            error_codes::GUEST_OUTDATED => {
                "`workspace sandbox fork SANDBOX` creates a sandbox with the same files"
            }
            error_codes::PATH_NOT_FOUND => "check the spelling; a relative path starts in /workspace",
            error_codes::NOT_A_FILE => "`workspace cp` copies directories",
            error_codes::FILE_DENIED => "the user of the sandbox has no rights on it",
            error_codes::DISK_LIMIT_EXCEEDED => {
                "remove files in the sandbox; `--disk` of a new one sets its limit"
            }
            error_codes::PORT_NOT_LISTENING => {
                "`workspace ports SANDBOX` lists the ports on which programs listen"
            }
            error_codes::SNAPSHOT_IN_USE => {
                "remove the references and sandboxes that use it first; `workspace rm --ref NAME` removes a reference"
            }
            error_codes::PTY_NOT_FOUND | error_codes::PTY_CLOSED => {
                "`workspace terminal create SANDBOX` opens another one"
            }
            error_codes::TICKET_LIMIT_EXCEEDED => "a ticket that is not used ends after 30 seconds",
            error_codes::PTY_LIMIT_EXCEEDED => "close another terminal of this sandbox first",
            error_codes::RATE_LIMITED => "try again in a minute",
            error_codes::SHUTTING_DOWN
            | error_codes::AGENT_UNAVAILABLE
            | error_codes::CATALOG_UNAVAILABLE
            | error_codes::QUEUE_FULL => "try again in a moment",
            _ => return None,
        })
    }
}

impl RequestError {
    /// Returns true if a retry may succeed.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::Disconnected(_) => true,
            Self::Untrusted(_) | Self::Malformed(_) => false,
            Self::Api(error) => {
                matches!(
                    error.status,
                    StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS | StatusCode::BAD_GATEWAY
                )
            }
        }
    }

    /// Returns true if the server responded with that error code.
    pub(crate) fn is(&self, code: ErrorCode) -> bool {
        matches!(self, Self::Api(error) if error.code == Some(code))
    }

    /// Converts the failure to an error for the user, with hints.
    pub(crate) fn explain(self, server: &ServerUrl) -> CommandError {
        match self {
            Self::Unreachable(why) => unreachable(server, &why),
            Self::Untrusted(why) => untrusted(server, &why),
            Self::Disconnected(why) => {
                CommandError::failed(format!("lost the connection to the server at {}: {why}", server.url))
                    .hint("the server may have been stopped; sandboxes keep running: see `workspace ps`")
            }
            Self::Malformed(why) => {
                CommandError::failed(format!("cannot parse the server's response: {why}"))
                    .hint("the server may be newer than this command")
            }
            Self::Api(error) if error.code == Some(error_codes::UNAUTHORIZED) => unauthorized(server, &error),
            Self::Api(error) => {
                let explained = explain_api_error(&error);
                match server.path_hint() {
                    Some(hint) if error.is_unknown_path() => CommandError { hints: vec![hint], ..explained },
                    _ => explained,
                }
            }
        }
    }
}

fn unreachable(server: &ServerUrl, why: &str) -> CommandError {
    let error = CommandError::failed(format!("there is no server at {}: {why}", server.url));
    let error = if server.is_local() {
        error.hint("start one with `make up` or `workspace-server`")
    } else {
        error.hint("check the URL, and that the server runs")
    };
    error.hint("`--server URL` or WORKSPACE_SERVER selects another server")
}

fn untrusted(server: &ServerUrl, why: &str) -> CommandError {
    CommandError::failed(format!("the server at {} is not trusted: {why}", server.url))
        .hint("set SSL_CERT_FILE to a file with the certificate of the authority that signed the server's")
        .hint("the certificate must be valid for the name in the URL")
}

fn unauthorized(server: &ServerUrl, error: &ApiError) -> CommandError {
    let error = CommandError::failed(format!("{}: {}", server.url, error.message))
        .hint("pass a key with --api-key or WORKSPACE_API_KEY");
    match &server.missing_key {
        Some(path) => error.hint(format!(
            "there is no key in {}; a server with another DATA_DIR has its first key in DATA_DIR/api-key",
            path.display()
        )),
        None => error,
    }
}

fn explain_api_error(response: &ApiError) -> CommandError {
    if let Some((option, message)) = response.option_message() {
        return CommandError::failed(message).hint(format!("correct `{option}`; `--help` describes it"));
    }
    let error = CommandError::failed(response.message.clone());
    match (response.hint(), &response.request_id) {
        (Some(hint), _) => error.hint(hint),
        (None, Some(request)) if response.status.is_server_error() => {
            error.hint(format!("the server log has details under {request}"))
        }
        (None, _) => error.hint(format!("docs/errors.md explains {}", response.name)),
    }
}
