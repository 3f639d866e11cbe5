//! What a server answered when something was wrong, or that it did not answer.

use std::time::Duration;

use hyper::StatusCode;
use serde::Deserialize;

use super::Place;
use crate::error::CommandError;

/// Why there is no answer to work with.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Nobody answers; what the system says.
    Unreachable(String),
    /// Somebody answers who does not show that he is the server; why.
    Untrusted(String),
    /// The server answered, and then the connection broke.
    Lost(String),
    /// The server says what is wrong.
    Answered(Box<Problem>),
}

/// What a server says is wrong.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    /// Its name in docs/errors.md.
    pub(crate) name: String,
    pub(crate) message: String,
    pub(crate) request: Option<String>,
    pub(crate) retry_after: Option<Duration>,
    /// How much of a command's input was taken before that.
    pub(crate) written: usize,
}

#[derive(Deserialize)]
struct Body {
    error: Fields,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Fields {
    name: String,
    message: String,
    request_id: Option<String>,
    #[serde(default)]
    details: Details,
}

#[derive(Default, Deserialize)]
struct Details {
    #[serde(default)]
    written: usize,
}

impl Problem {
    /// Of an answer that is no success.
    pub(crate) fn new(status: StatusCode, retry_after: Option<Duration>, body: &[u8]) -> Self {
        match serde_json::from_slice(body) {
            Ok(Body { error }) => Self {
                status,
                name: error.name,
                message: error.message,
                request: error.request_id,
                retry_after,
                written: error.details.written,
            },
            // Something else than the server answered: a proxy, or another program on that port.
            Err(_) => Self {
                status,
                name: String::new(),
                message: format!("it answered {status}, but not as a workspace server does"),
                request: None,
                retry_after,
                written: 0,
            },
        }
    }

    fn hint(&self) -> Option<&'static str> {
        Some(match self.name.as_str() {
            "" => "check --server or WORKSPACE_SERVER",
            "FORBIDDEN" => "use a key with another role; admins make keys with `workspace key create`",
            "KEY_NOT_FOUND" => "`workspace key ls` lists the keys",
            "LAST_ADMIN_KEY" => "`workspace key create --role admin` makes another one",
            "SANDBOX_NOT_FOUND" => "`workspace ps` lists your sandboxes",
            "SANDBOX_NOT_RUNNING" | "SANDBOX_EXPIRED" => {
                "`workspace run` or `workspace sandbox create` make another"
            }
            "SNAPSHOT_NOT_FOUND" => "ids of a server's snapshots are given whole",
            "WORKSPACE_IN_USE" => "without `--no-force` they are ended",
            "TEMPLATE_NOT_FOUND" | "TEMPLATE_UNAVAILABLE" => "`workspace template ls` lists the templates",
            "TEMPLATE_IN_USE" => {
                "remove the sandboxes that were made of it first; `workspace ps` lists yours"
            }
            "SANDBOX_NAME_TAKEN" => "give another name, or `--allow-duplicate-name`",
            "STORAGE_FULL" => "make room on the server's machine, and try again",
            "WORKSPACE_UNREADABLE" => "`chmod u+r` them in the sandbox, or remove them",
            "SANDBOX_LIMIT_EXCEEDED" => "`workspace ps` lists sandboxes, `workspace sandbox rm` ends them",
            "RUNTIME_UNAVAILABLE" | "ISOLATION_UNAVAILABLE" | "SANDBOX_CREATION_FAILED" => {
                "`workspace status` says what the server found on its machine; its log says more"
            }
            "NETWORK_UNAVAILABLE" => "`--network none` always works",
            "COMMAND_NOT_FOUND" | "OUTPUT_UNAVAILABLE" => "`workspace ps ID` lists the commands of a sandbox",
            "COMMAND_NOT_RUNNING" => "`workspace logs ID COMMAND` shows what it printed",
            "PTY_LIMIT_EXCEEDED" => "close another terminal of this sandbox first",
            "RATE_LIMITED" => "try again in a minute",
            "SHUTTING_DOWN" | "AGENT_UNAVAILABLE" | "CATALOG_UNAVAILABLE" | "QUEUE_FULL" => {
                "try again in a moment"
            }
            _ => return None,
        })
    }
}

impl Failure {
    /// Whether it may be otherwise in a moment.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::Lost(_) => true,
            Self::Untrusted(_) => false,
            Self::Answered(problem) => {
                matches!(
                    problem.status,
                    StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS | StatusCode::BAD_GATEWAY
                )
            }
        }
    }

    /// Whether the server says that.
    pub(crate) fn is(&self, name: &str) -> bool {
        matches!(self, Self::Answered(problem) if problem.name == name)
    }

    /// For the person who typed the command.
    pub(crate) fn explain(self, place: &Place) -> CommandError {
        match self {
            Self::Unreachable(why) => unreachable(place, &why),
            Self::Untrusted(why) => untrusted(place, &why),
            Self::Lost(why) => CommandError::failed(format!("lost the server at {}: {why}", place.url))
                .hint("it may have been stopped; what runs in sandboxes goes on: see `workspace ps`"),
            Self::Answered(problem) if problem.name == "UNAUTHORIZED" => unauthorized(place, &problem),
            Self::Answered(problem) => answered(&problem),
        }
    }
}

fn unreachable(place: &Place, why: &str) -> CommandError {
    let error = CommandError::failed(format!("there is no server at {}: {why}", place.url));
    let error = if place.is_local() {
        error.hint("start one with `make up` or `workspace-server`")
    } else {
        error.hint("check the name, and whether it runs")
    };
    error.hint("`--server URL` or WORKSPACE_SERVER choose another one")
}

fn untrusted(place: &Place, why: &str) -> CommandError {
    CommandError::failed(format!("the server at {} is not trusted: {why}", place.url))
        .hint("SSL_CERT_FILE names a file with the authority's certificate that vouches for the server's")
        .hint("the certificate must be for the name in the URL")
}

fn unauthorized(place: &Place, problem: &Problem) -> CommandError {
    let error = CommandError::failed(format!("{}: {}", place.url, problem.message))
        .hint("give a key with --api-key or WORKSPACE_API_KEY");
    match &place.missing_key {
        Some(path) => error.hint(format!(
            "there is none in {}; a server with another DATA_DIR keeps its first key in DATA_DIR/api-key",
            path.display()
        )),
        None => error,
    }
}

fn answered(problem: &Problem) -> CommandError {
    let error = CommandError::failed(problem.message.clone());
    match (problem.hint(), &problem.request) {
        (Some(hint), _) => error.hint(hint),
        (None, Some(request)) if problem.status.is_server_error() => {
            error.hint(format!("the server's log has more under {request}"))
        }
        (None, _) => error.hint(format!("docs/errors.md explains {}", problem.name)),
    }
}
