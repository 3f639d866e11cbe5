//! What the sandboxes of a server may do, and where they are kept.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use workspace_state::{Cancel, WalkLimits};
use workspace_workspace::{Choice, LazyCommand};

use crate::runtime::Cidr;

/// How to run sandboxes. The defaults are those that the documents name.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Names this server among those of a catalog; the same whenever it starts again.
    pub node: String,
    /// Where sandboxes keep their sockets, output and notes.
    pub sandboxes: PathBuf,
    /// Where workspaces are.
    pub workspaces: PathBuf,
    /// Where the files that workspaces share are; on the filesystem of the workspaces.
    pub layers: PathBuf,
    /// Where snapshots are kept.
    pub store: PathBuf,
    /// The most that one walk through a workspace, or a comparison of it, holds in memory.
    pub walk_limits: WalkLimits,
    /// How workspaces are made.
    pub provider: Choice,
    /// What serves the files of snapshots before they are written; without it they are written first.
    pub lazy: Option<LazyCommand>,
    /// How long a sandbox lives when nobody says.
    pub timeout: Duration,
    /// How long a sandbox may live, extensions included.
    pub lifetime: Duration,
    /// The longest single extension.
    pub extension: Duration,
    /// How many there may be.
    pub sandboxes_max: u32,
    /// How many each owner may have.
    pub sandboxes_per_owner: u32,
    /// Snapshots that each owner may have; 0 for any number.
    pub snapshots_per_owner: u32,
    /// Bytes of the store that the snapshots of each owner may take together.
    pub snapshot_bytes_per_owner: u64,
    /// Limit on sandboxes that start, and on workspaces that are filled, at one time; more wait. One owner has at most half of
    /// each.
    pub creations_at_once: u32,
    /// How many may wait.
    pub creations_waiting: u32,
    /// What a sandbox gets when nobody says.
    pub default_resources: Resources,
    /// What a sandbox may ask for at most.
    pub max_resources: Resources,
    /// How long a command may run when nobody says.
    pub command_timeout: Duration,
    /// Time that a guest agent may take, after the time limit of a command, to tell how it ended.
    pub command_grace: Duration,
    /// Bytes of output that are kept of each command.
    pub output_kept: u64,
    /// Bytes of output that are kept of all commands of a sandbox, the disk limit permitting.
    pub sandbox_output_kept: u64,
    /// How many commands that ended are remembered in each sandbox.
    pub commands_kept: u32,
    /// How many commands may run at once in each sandbox, terminals aside.
    pub commands: u32,
    /// How many terminals a sandbox may have.
    pub terminals: u32,
    /// How long a sandbox whose guest agent is away still counts as running.
    pub agent_grace: Duration,
    /// How long a guest agent may take to connect for the first time.
    pub start_timeout: Duration,
    /// Between two looks for sandboxes whose time is up.
    pub expiry_interval: Duration,
    /// Between two looks at how much is in the workspaces.
    pub disk_interval: Duration,
    /// Bytes of the workspaces' filesystem that sandboxes leave free: if somebody goes on writing then, a sandbox of the owner
    /// who holds most is ended.
    pub disk_reserve: u64,
    /// Least time that the workspace of a sandbox is kept which was stopped because of the disk.
    pub stopped_kept: Duration,
    /// Layers that nobody needs are removed so often.
    pub layers_interval: Duration,
    /// What nothing reaches in the store is removed so often.
    pub gc_interval: Duration,
    /// Time without a sandbox after which the lazy view and an ordinary user's namespaces are ended.
    pub rest_after: Duration,
    /// Events that are older are forgotten.
    pub events_kept: Duration,
    /// How many sandboxes are started at most before anybody wants them.
    pub pool: u32,
    /// Whether a sandbox that cannot be limited or isolated as asked is an error.
    pub strict: bool,
    /// What sandboxes that may reach out do not reach, unless they are allowed something more specific.
    pub egress_deny: Vec<Cidr>,
    /// Who is asked what names mean for them; none for whom the machine asks.
    pub egress_dns: Option<SocketAddr>,
    /// Stops long operations when it is set, which whoever stops the program does shortly before it ends.
    pub cancel: Cancel,
}

/// What a sandbox may use.
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
/// Where clouds tell their machines secrets.
const METADATA: Cidr = Cidr::new(Ipv4Addr::new(169, 254, 0, 0), 16);

impl Settings {
    /// The defaults, with everything below `directory`.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        let directory = directory.into();
        let resources = Resources { cpu_millis: 2_000, memory: 2 * GIB, disk: 10 * GIB, processes: 1_024 };
        Self {
            node: "this".to_owned(),
            sandboxes: directory.join("sandboxes"),
            workspaces: directory.join("workspaces"),
            layers: directory.join("layers"),
            store: directory.join("store"),
            walk_limits: WalkLimits::default(),
            provider: Choice::Auto,
            lazy: None,
            timeout: Duration::from_secs(3_600),
            lifetime: Duration::from_secs(86_400),
            extension: Duration::from_secs(3_600),
            sandboxes_max: 100,
            sandboxes_per_owner: 10,
            snapshots_per_owner: 0,
            snapshot_bytes_per_owner: u64::MAX,
            creations_at_once: 10,
            creations_waiting: 1_000,
            default_resources: resources,
            max_resources: resources,
            command_timeout: Duration::from_secs(60),
            command_grace: Duration::from_secs(15),
            output_kept: 16 << 20,
            sandbox_output_kept: 64 << 20,
            commands_kept: 1_000,
            commands: 100,
            terminals: 5,
            agent_grace: Duration::from_secs(30),
            start_timeout: Duration::from_secs(30),
            expiry_interval: Duration::from_secs(60),
            disk_interval: Duration::from_secs(2),
            disk_reserve: 256 << 20,
            stopped_kept: Duration::from_secs(600),
            layers_interval: Duration::from_secs(60),
            gc_interval: Duration::from_secs(86_400),
            rest_after: Duration::from_secs(300),
            events_kept: Duration::from_secs(30 * 86_400),
            pool: 8,
            strict: false,
            egress_deny: vec![METADATA],
            egress_dns: None,
            cancel: Cancel::new(),
        }
    }
}
