//! Settings of the sandboxes of a server.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ipnet::Ipv4Net;
use workspace_state::{Cancel, WalkLimits};
use workspace_workspace::{LazyCommand, ProviderPreference, Writers};

use crate::hooks::WorkspaceHooks;
use crate::io::memory::TransferMemory;
use crate::project_work::WorkRecorder;

/// Settings of the sandbox service. The defaults are those in docs/settings.md.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Name of this server in the catalog; it must stay the same across restarts.
    pub server: String,
    /// Directory of the sockets, output and state files of sandboxes.
    pub sandboxes_dir: PathBuf,
    /// Directory of workspaces.
    pub workspaces_dir: PathBuf,
    /// Directory of the files that workspaces share; on the filesystem of the workspaces.
    pub layers_dir: PathBuf,
    /// Directory of kept root filesystems.
    pub roots_dir: PathBuf,
    /// Directory of the files that kept root filesystems share; on the filesystem of the roots.
    pub root_layers_dir: PathBuf,
    /// Directory of the snapshot store.
    pub store_dir: PathBuf,
    /// Memory limits of one walk through a workspace, or of a comparison.
    pub walk_limits: WalkLimits,
    /// Provider of workspaces.
    pub provider: ProviderPreference,
    /// Writers of workspaces that a freeze of the sandbox does not stop, and that hold no shared access: clients of the
    /// kernel's NFS server. [`Writers::Running`] if there may be some.
    pub outside_writers: Writers,
    /// Command that serves the lazy mount, from which a new workspace reads its snapshot before the files are
    /// on disk; `None` to write all files first.
    pub lazy: Option<LazyCommand>,
    /// Default lifetime of a sandbox.
    pub default_lifetime: Duration,
    /// Maximum lifetime of a sandbox, extensions included.
    pub max_lifetime: Duration,
    /// Maximum for one extension of the lifetime.
    pub max_extension: Duration,
    /// Maximum number of sandboxes on this server.
    pub max_sandboxes: u32,
    /// Maximum number of sandboxes of each owner.
    pub sandboxes_per_owner: u32,
    /// Time for which a sandbox stays paused. Then it is removed.
    pub paused_retention: Duration,
    /// Maximum number of sandboxes of each owner that are paused on disk; they count towards no other limit.
    pub paused_per_owner: u32,
    /// Maximum number of snapshots of each owner; 0 for no limit.
    pub snapshots_per_owner: u32,
    /// Bytes of the store that the snapshots of each owner may use together.
    pub snapshot_bytes_per_owner: u64,
    /// Maximum number of notes that are kept of each sandbox.
    pub notes_per_sandbox: u32,
    /// Maximum number of notes of each owner; 0 for no limit.
    pub notes_per_owner: u32,
    /// Maximum size of the notes of each owner in bytes.
    pub note_bytes_per_owner: u64,
    /// Number of automatic snapshots that are kept of each sandbox that takes a snapshot after each command.
    pub max_kept_traces: u32,
    /// Limit on sandboxes that start, and on workspaces whose files are being written, at the same time; more
    /// wait. One owner has at most half of each.
    pub creations_at_once: u32,
    /// Maximum number of creations that wait.
    pub creations_waiting: u32,
    /// Default resource limits of a sandbox.
    pub default_resources: Resources,
    /// Maximum for the resource limits of a sandbox.
    pub max_resources: Resources,
    /// Default time limit of a command.
    pub command_timeout: Duration,
    /// Time that a guest agent may take to report the exit of a command, after the timeout of the command.
    pub command_grace: Duration,
    /// Bytes of output that are kept of each command.
    pub kept_output_bytes: u64,
    /// Bytes of output that are kept of all commands of a sandbox, the disk limit permitting.
    pub kept_output_bytes_per_sandbox: u64,
    /// Number of ended commands that are kept in each sandbox.
    pub max_kept_commands: u32,
    /// Maximum number of running commands in each sandbox, without terminals.
    pub max_commands: u32,
    /// Maximum number of open terminals in each sandbox.
    pub max_terminals: u32,
    /// Time for which a sandbox with a disconnected guest agent still counts as running.
    pub agent_grace: Duration,
    /// Timeout for a guest agent to connect for the first time.
    pub start_timeout: Duration,
    /// Interval at which expired sandboxes are removed.
    pub expiry_interval: Duration,
    /// Interval at which the server checks which workspaces are due for a scan of their disk usage.
    pub disk_interval: Duration,
    /// Bytes to keep free on the filesystem of the workspaces. If less is free and a sandbox keeps writing, a
    /// sandbox of the owner with the largest usage is stopped.
    pub disk_reserve_bytes: u64,
    /// Minimum time for which a sandbox that was stopped because the disk was full keeps its workspace.
    pub stopped_retention: Duration,
    /// Interval at which unused layers are removed.
    pub layers_interval: Duration,
    /// Interval at which unreachable objects of the store are removed.
    pub gc_interval: Duration,
    /// Time without a sandbox after which the lazy mount is unmounted and the helper process that holds the
    /// namespaces of an unprivileged server is ended. The next creation starts them again.
    pub idle_release_after: Duration,
    /// Retention of events.
    pub event_retention: Duration,
    /// Interval at which the resource usage of running sandboxes is sampled. The last 720 samples of a sandbox
    /// are kept.
    pub measurement_interval: Duration,
    /// Maximum size of the warm pool.
    pub max_pool_size: u32,
    /// True if a creation fails when a limit or isolation cannot be applied as requested.
    pub strict: bool,
    /// Networks that sandboxes with egress cannot reach, unless the allow list of the sandbox has a more
    /// specific one.
    pub egress_deny: Vec<Ipv4Net>,
    /// Resolver for sandboxes with egress; `None` for the one of the machine.
    pub egress_dns: Option<SocketAddr>,
    /// Services that use the files of workspaces from outside their sandboxes, called in this order.
    pub workspace_hooks: Vec<Arc<dyn WorkspaceHooks>>,
    /// Maximum time of one call to such a service, or to `work_recorder`.
    pub hook_timeout: Duration,
    /// Recorder of completions that the server makes by itself; `None` if there are no projects.
    pub work_recorder: Option<Arc<dyn WorkRecorder>>,
    /// Maximum time that a writer outside a sandbox waits for commits and other operations on its workspace.
    pub shared_access_timeout: Duration,
    /// Maximum time that a commit, or another operation on a workspace, waits for writers outside its sandbox.
    pub exclusive_access_timeout: Duration,
    /// Maximum duration of a template build.
    pub build_timeout: Duration,
    /// Bytes of output that a template build reports; the rest is dropped.
    pub max_build_output_bytes: u64,
    /// Maximum size of the context of a template build in bytes, compressed and decompressed.
    pub max_build_context_bytes: u64,
    /// Maximum number of template builds at the same time; more wait.
    pub builds_at_once: u32,
    /// Maximum number of steps of template builds whose results are kept.
    pub max_kept_template_steps: u32,
    /// Time after its last use for which the result of a step is kept.
    pub template_step_retention: Duration,
    /// Budget for the memory of transfers of files and of connections to ports; `None` for no limit.
    pub transfer_memory: Option<Arc<dyn TransferMemory>>,
    /// Cancels long operations, shortly before the program ends.
    pub cancel: Cancel,
}

/// Resource limits of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resources {
    /// Thousandths of a processor.
    pub cpu_millis: u32,
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes in the workspace.
    pub disk: u64,
    /// Processes and threads.
    pub processes: u32,
}

const GIB: u64 = 1 << 30;
/// Link-local network, where clouds serve credentials to their machines.
const METADATA: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(169, 254, 0, 0), 16);

impl Settings {
    /// Returns the defaults, with everything below `directory`.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        let directory = directory.into();
        let resources = Resources { cpu_millis: 2_000, memory: 2 * GIB, disk: 10 * GIB, processes: 1_024 };
        Self {
            server: "this".to_owned(),
            sandboxes_dir: directory.join("sandboxes"),
            workspaces_dir: directory.join("workspaces"),
            layers_dir: directory.join("layers"),
            roots_dir: directory.join("roots"),
            root_layers_dir: directory.join("root-layers"),
            store_dir: directory.join("store"),
            walk_limits: WalkLimits::default(),
            provider: ProviderPreference::Auto,
            outside_writers: Writers::Stopped,
            lazy: None,
            default_lifetime: Duration::from_secs(3_600),
            max_lifetime: Duration::from_secs(86_400),
            max_extension: Duration::from_secs(3_600),
            max_sandboxes: 100,
            sandboxes_per_owner: 10,
            paused_retention: Duration::from_secs(7 * 86_400),
            paused_per_owner: 100,
            snapshots_per_owner: 0,
            snapshot_bytes_per_owner: u64::MAX,
            notes_per_sandbox: 1_000,
            notes_per_owner: 100_000,
            note_bytes_per_owner: 256 << 20,
            max_kept_traces: 1_000,
            creations_at_once: 10,
            creations_waiting: 1_000,
            default_resources: resources,
            max_resources: resources,
            command_timeout: Duration::from_secs(60),
            command_grace: Duration::from_secs(15),
            kept_output_bytes: 16 << 20,
            kept_output_bytes_per_sandbox: 64 << 20,
            max_kept_commands: 1_000,
            max_commands: 100,
            max_terminals: 5,
            agent_grace: Duration::from_secs(30),
            start_timeout: Duration::from_secs(30),
            expiry_interval: Duration::from_secs(60),
            disk_interval: Duration::from_secs(2),
            disk_reserve_bytes: 256 << 20,
            stopped_retention: Duration::from_secs(600),
            layers_interval: Duration::from_secs(60),
            gc_interval: Duration::from_secs(86_400),
            idle_release_after: Duration::from_secs(300),
            event_retention: Duration::from_secs(30 * 86_400),
            measurement_interval: Duration::from_secs(5),
            max_pool_size: 8,
            strict: false,
            egress_deny: vec![METADATA],
            egress_dns: None,
            workspace_hooks: Vec::new(),
            hook_timeout: Duration::from_secs(10),
            work_recorder: None,
            shared_access_timeout: Duration::from_secs(10),
            exclusive_access_timeout: Duration::from_secs(5),
            build_timeout: Duration::from_secs(3_600),
            max_build_output_bytes: 64 << 20,
            max_build_context_bytes: GIB,
            builds_at_once: 2,
            max_kept_template_steps: 500,
            template_step_retention: Duration::from_secs(30 * 86_400),
            transfer_memory: None,
            cancel: Cancel::new(),
        }
    }
}
