//! Sandboxes: isolated processes around a workspace.
//!
//! A [`Service`] creates them, runs commands and terminals in them, and removes them. State that must outlive
//! the server is in the catalog, in files, or with the [`Runtime`]; the service recovers it when it starts.
//!
//! - `lifecycle`: creation, monitoring, expiry, removal and recovery of sandboxes, and the locks between these
//!   operations.
//! - `guest`: connections of guest agents, over a Unix socket or TCP.
//! - `command`: commands and terminals, their input and output.
//! - `io`: files, watches and ports.
//! - `snapshot`: commit, fork and restore of a sandbox's workspace.
//! - `agent_workspace`: workspaces of agents that run in containers of their own.
//! - `disk`: creating and measuring workspaces, and freeing space on a full disk.
//! - `gate` and `outside_access`: lock between a snapshot and writers outside the sandbox; `hooks`: callbacks for
//!   services that use workspaces from outside, such as exports.
//! - `root`: root filesystems that are kept; `build`: templates made by recipes.
//! - `measurements`: resource usage of running sandboxes over the last hour.
//! - `project_work`: completions of the work in sandboxes of projects that the server makes by itself.
//! - `lineage` and `notes`: origin of sandboxes, and notes that AI agents write about their steps.
//! - [`runtime`]: the programs that run sandboxes; [`template`]: their root filesystems.
//! - `service`: the state of a server and lookups of sandboxes; `settings`, `config`: parameters of a server and of a
//!   sandbox; `scope`: the sandboxes that a caller may see.
//! - `fair_semaphore`, `leaf_mutex`, `lock_table`, `retry`, `blocking`, `text`: locks, limits, tasks and checks that
//!   all of these use.

#![cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only the runtimes of Linux need all of it"))]

mod agent_workspace;
mod blocking;
mod build;
mod clock;
mod command;
mod compression;
mod config;
mod disk;
mod error;
mod failpoint;
mod fair_semaphore;
#[doc(hidden)]
pub mod fuzzing;
mod gate;
mod guest;
mod hooks;
mod id;
mod io;
mod leaf_mutex;
mod lifecycle;
mod lineage;
mod lock_rank;
mod lock_table;
mod measurements;
mod notes;
mod outside_access;
mod project_work;
mod retry;
mod root;
pub mod runtime;
mod sandbox_dir;
mod scope;
mod service;
mod settings;
mod snapshot;
mod stats;
pub mod template;
mod text;

pub use agent_workspace::AgentFiles;
pub use build::recipe;
pub use build::{BuildContext, BuildEvent, BuildRequest, BuiltTemplate, CacheMode, RECIPE_FILE};
pub use command::command_line::CommandLine;
pub use command::logs::Logs;
pub use command::output::{Output, OutputPiece, Stream};
pub use command::run::{AfterInput, CommandHandle, CommandStart, RunRequest};
pub use command::running::{CommandExit, Progress, TraceOutcome};
pub use command::terminal::{Size, TerminalRequest};
pub use command::trace::{TRACE_COMMAND_LABEL, TRACE_PENDING, TRACE_SHARED_LABEL};
pub use compression::zstd_reader;
pub use config::{Config, NewSandbox, OnEnd, OnTimeout, ResourceRequest, Trace};
pub use error::{Result, SandboxError, without_host_paths};
pub use gate::SharedAccess;
pub use guest::endpoint::ServerEndpoint;
pub use guest::identity::{Identity, IdentityError};
pub use guest::processes::Process;
pub use guest::tcp::GuestPort;
pub use hooks::{
    HookError, HookFailure, HookedWorkspace, RemovalCause, Retain, WorkspaceHooks, WorkspaceRoot,
};
pub use io::error::{FileError, FileErrorKind};
pub use io::files::{
    BatchResult, FileCondition, FileEntry, FileKind, FileListing, FileOperation, FileRead, FileWrite,
    Fingerprint, NewFile,
};
pub use io::memory::{MemoryGuard, TransferMemory};
pub use io::path::FilePath;
pub use io::ports::{ListeningPort, PortConnection, PortReader, PortWriter};
pub use io::tree::{TreeEntry, TreeReader, TreeWriter};
pub use io::watch::{FileChange, FileChangeKind, Watch};
pub use lifecycle::create::Creator;
pub use lifecycle::followers::Follower;
pub use lifecycle::pause::PauseMode;
pub use lifecycle::pause_snapshots::{paused_sandbox_of_reference, sandbox_paused_to};
pub use lifecycle::project_sandboxes::ProjectSandbox;
pub use lifecycle::quiet_work::{ActiveSandbox, QuietWork};
pub use lifecycle::recover::CollectionReport;
pub use lifecycle::remove::{EndCompletion, KeptWorkspace, ReclaimPolicy, RemoveRequest, Removed};
pub use lifecycle::work_lock::WorkLock;
pub use lineage::{ConflictingHead, HeadVersion, Lineage, ProjectBase, RevertedChanges};
pub use measurements::{MEASUREMENTS_KEPT, Measurement, MeasurementSample};
pub use notes::{NOTE_DATA_MAX, NOTE_TEXT_MAX, NewNote};
pub use outside_access::OutsideAccess;
pub use project_work::{Occasion, Work, WorkNewness, WorkRecorder};
pub use root::mode::RootMode;
pub use runtime::Runtime;
pub use sandbox_dir::SandboxDir;
pub use scope::Scope;
pub use service::{Expiry, SandboxInfo, Service};
pub use settings::{Resources, Settings};
pub use snapshot::operations::{
    FORKS_MAX, Fork, ForkResult, FreezeTime, IfInUse, NewCommit, RestoreResult, SandboxCommit,
};
pub use snapshot::rebase::{MergedFiles, QuietRebase, Rebase, RebaseDecision, RebaseFiles, RebaseResult};
pub use stats::Stats;
pub use workspace_agent_protocol::Bytes;
pub use workspace_workspace::{
    Changes, CommitResult, LazyCommand, Materialize, MoveStart, MoveTarget, ProviderKind, ProviderPreference,
    ResetMode, WorkspaceError, Workspaces, Writers,
};
