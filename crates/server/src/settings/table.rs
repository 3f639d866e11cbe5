//! Table of all settings. Run `make generate` after a change: `docs/settings.md` is derived from it.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use super::value::{
    CountOrZero, Cpus, DatabaseUrl, DockerHost, DomainName, ExportsFile, GuestTransport, HostName, HostPort,
    Isolation, LogFilter, LogFormat, Milliseconds, NetworkName, NfsClients, NfsMode, Origins, Patterns,
    Program, ProviderChoice, Ranges, RuntimeKind, Secret, Size, Switch, Value,
};
use super::{Declaration, DefaultValue, HostEnvironment, SettingError, SettingsSource};

/// Declares the settings: `name: Type = default` always has a value, `name (?): Type = Absent(…)` may have none.
macro_rules! settings {
    (@type $type:ty) => { $type };
    (@type $type:ty, ?) => { Option<$type> };
    (@read $source:ident, $errors:ident, $name:ident, $type:ty, $default:expr) => {
        $source.value::<$type>(stringify!($name), $default, $errors)
    };
    (@read $source:ident, $errors:ident, $name:ident, $type:ty, $default:expr, ?) => {
        $source.optional::<$type>(stringify!($name), $errors)
    };
    ($($(#[doc = $doc:literal])+ $name:ident $(($optional:tt))? : $type:ty = $default:expr;)+) => {
        /// Validated settings of a server.
        #[derive(Debug, Clone)]
        pub struct Settings {
            $($(#[doc = $doc])+ pub $name: settings!(@type $type $(, $optional)?),)+
        }

        /// Declarations of all settings.
        pub const TABLE: &[Declaration] = &[$(Declaration {
            name: stringify!($name),
            default: $default,
            allowed: <$type as Value>::ALLOWED,
            secret: <$type as Value>::SECRET,
            doc: concat!($($doc),+),
        },)+];

        pub(super) fn build(source: &SettingsSource, errors: &mut Vec<SettingError>) -> Option<Settings> {
            // All settings are parsed before the first `?`, so that all errors are found.
            $(let $name = settings!(@read source, errors, $name, $type, $default $(, $optional)?);)+
            Some(Settings { $($name: $name?,)+ })
        }
    };
}

use DefaultValue::{Absent, Computed, Fixed};

settings! {
    /// Directory of all data of the server: catalog, key, store, workspaces, audit log.
    data_dir: PathBuf = Computed("`workspace-server` in the user's data directory", |host| data_path(host, ""));
    /// Directory of the workspaces of sandboxes.
    workspace_root: PathBuf = Computed("`workspaces` in `DATA_DIR`", |host| data_path(host, "workspaces"));
    /// Store of snapshots and episodes. `workspace --store` can use it while the server runs.
    store_dir: PathBuf = Computed("`store` in `DATA_DIR`", |host| data_path(host, "store"));
    /// Provider of workspaces: `overlay`, `clone` or `copy`. `auto` selects the first of these that works; with
    /// `NFS_MODE=system`, not `overlay`.
    workspace_provider: ProviderChoice = Fixed("auto");
    /// Address on which the API listens. Any address other than loopback requires TLS or `ALLOW_INSECURE`.
    api_host: IpAddr = Fixed("127.0.0.1");
    /// Port of the API.
    api_port: u16 = Fixed("8080");
    /// Port on 127.0.0.1 that serves `/metrics` without a key. The port of the API serves it, too, for admin keys.
    metrics_port (?): u16 = Absent("off");
    /// First admin key.
    api_key (?): Secret = Absent("created at the first start, in `DATA_DIR/api-key`");
    /// URL of the catalog: a SQLite file or a PostgreSQL database.
    database_url: DatabaseUrl = Computed("a SQLite file in `DATA_DIR`", catalog_url);
    /// PEM file with the certificate chain of the API, which is then served over TLS.
    tls_cert (?): PathBuf = Absent("no TLS");
    /// PEM file with the private key of `TLS_CERT`.
    tls_key (?): PathBuf = Absent("no TLS");
    /// Allows `API_HOST` to be other than loopback without TLS. Use it only behind a proxy that terminates TLS, or in a trusted
    /// network.
    allow_insecure: Switch = Fixed("off");
    /// Origins whose pages may call the API from a browser (CORS). `*` allows all: pages still need a key or a token, because
    /// the API uses no cookies.
    cors_origins: Origins = Fixed("");
    /// Domain of previews: port 3000 of a sandbox is shown at `3000-ID.PREVIEW_DOMAIN`. All names below it must lead to the API,
    /// and a TLS certificate must cover them. Use a domain that serves nothing else. Without one, previews are shown
    /// below `/preview/` on the host of the API only.
    preview_domain (?): DomainName = Absent("`localhost` if `API_HOST` is a loopback address");
    /// Runtime of sandboxes.
    runtime: RuntimeKind = Fixed("embedded");
    /// Program of `RUNTIME=oci`, by name or path.
    oci_runtime: Program = Fixed("runc");
    /// Address of the Docker daemon, for `RUNTIME=docker`.
    docker_host: DockerHost = Fixed("unix:///var/run/docker.sock");
    /// Docker network of sandboxes with the network `egress`, for `RUNTIME=docker`.
    docker_network: NetworkName = Fixed("bridge");
    /// Address ranges that sandboxes with the network `egress` cannot reach, unless a more specific range is allowed. The machine
    /// itself is never reachable.
    egress_deny: Ranges = Fixed("169.254.0.0/16");
    /// Nameserver for sandboxes with the network `egress`.
    egress_dns (?): SocketAddr = Absent("the machine's own");
    /// Required isolation. With `strict`, no sandbox is created if the machine lacks an isolation feature; with `best-effort`, the
    /// response names the missing features.
    require_isolation: Isolation = Computed("`strict` for root, else `best-effort`", isolation);
    /// Program of the guest agent.
    agent_program: PathBuf = Computed("`workspace-agent` beside the server", agent_path);
    /// Transport between guest agents and the server: a Unix socket in a directory that is mounted into each
    /// sandbox, or TCP with TLS. `tcp` requires `RUNTIME=docker`, and is used by sandboxes with a network; those
    /// without one use the socket.
    guest_transport: GuestTransport = Fixed("unix");
    /// Address on which the server listens for guest agents, with `GUEST_TRANSPORT=tcp`. Containers must reach it.
    grpc_host: IpAddr = Fixed("127.0.0.1");
    /// Port on which the server listens for guest agents, with `GUEST_TRANSPORT=tcp`. Running guest agents reconnect to it after a
    /// restart of the server, so use 0 only for experiments.
    grpc_port: u16 = Fixed("50051");
    /// Host and port that guest agents connect to. The host is resolved at each start of a sandbox.
    grpc_advertise (?): HostPort = Absent("the gateway of `DOCKER_NETWORK`, and `GRPC_PORT`");
    /// PEM file with the certificate chain of `GRPC_PORT`.
    grpc_tls_cert (?): PathBuf = Absent("created when first needed, in `DATA_DIR/guests.pem`");
    /// PEM file with the private key of `GRPC_TLS_CERT`.
    grpc_tls_key (?): PathBuf = Absent("created when first needed, in `DATA_DIR/guests.pem`");
    /// PEM file with the certificates that guest agents trust: that of `GRPC_PORT`, or a CA that signed it for the host of
    /// `GRPC_ADVERTISE`. A guest agent keeps the certificates of its start, so use a CA if you renew the certificate.
    grpc_tls_ca (?): PathBuf = Absent("those in `GRPC_TLS_CERT`");
    /// NFS server for the workspaces of sandboxes: `embedded` in this process, or `system`, the kernel's server, which needs
    /// root, and workspaces that are no overlays.
    nfs_mode: NfsMode = Fixed("embedded");
    /// File of exports(5) in which the server keeps a line for each workspace, with `NFS_MODE=system`.
    nfs_exports_file: ExportsFile = Fixed("/etc/exports.d/workspace.exports");
    /// Address on which NFS listens. Contents are not encrypted on their way, so use another address than loopback only in
    /// a trusted network.
    nfs_host: IpAddr = Fixed("127.0.0.1");
    /// Port of NFS and its MOUNT protocol.
    nfs_port (?): u16 = Absent("2049 if it can be used, else the port of the last start or any free one");
    /// Host name or address that clients mount, in responses of the API.
    nfs_advertise (?): HostName = Absent("`NFS_HOST`");
    /// Addresses whose clients may use NFS; `*` is all.
    nfs_allowed_ips: NfsClients = Fixed("*");
    /// Adds a secret to the path of each export. Without secrets, all clients that reach the port may mount every workspace.
    nfs_mount_secret: Switch = Fixed("on");
    /// Maximum number of connections to NFS.
    nfs_max_connections: u32 = Fixed("1024");
    /// Lifetime of a sandbox in seconds, if the request does not set one.
    default_sandbox_timeout: Duration = Fixed("3600");
    /// Maximum lifetime of a sandbox in seconds, including extensions, from its creation or its last resume. It applies to admin keys, too.
    max_sandbox_lifetime: Duration = Fixed("86400");
    /// Maximum number of sandboxes on this server, of all owners together. Those that are paused to disk do not count.
    max_sandboxes: u32 = Fixed("100");
    /// Maximum number of sandboxes of one owner, on all servers that share the catalog. Those that are paused to disk do not count. Admin keys are exempt.
    max_sandboxes_per_owner: u32 = Fixed("10");
    /// Maximum number of workspaces of one owner for agents that run in containers of their own, on all servers that share the
    /// catalog. Admin keys are exempt.
    max_workspaces_per_owner: u32 = Fixed("20");
    /// Maximum time in seconds for which a sandbox stays paused. Then it is deleted.
    max_paused: Duration = Fixed("604800");
    /// Maximum number of sandboxes of one owner that are paused to disk; they count towards no other limit. Admin keys are exempt.
    max_paused_per_owner: u32 = Fixed("100");
    /// Maximum number of snapshots of one owner; 0 is unlimited. Admin keys are exempt.
    max_snapshots_per_owner: CountOrZero = Fixed("100000");
    /// Maximum size of the snapshots and projects of one owner in the store. Content that several of them share counts once. Admin keys are exempt.
    max_snapshot_bytes_per_owner: Size = Fixed("100g");
    /// Maximum number of projects of one owner; 0 is unlimited. Admin keys are exempt.
    max_projects_per_owner: CountOrZero = Fixed("1000");
    /// Maximum number of references (names of snapshots) of one owner; 0 is unlimited. Admin keys are exempt.
    max_references_per_owner: CountOrZero = Fixed("1000");
    /// Maximum number of episodes (steps of searches over snapshots) of one owner; 0 is unlimited. Admin keys are exempt.
    max_episodes_per_owner: CountOrZero = Fixed("100000");
    /// Maximum size of the episodes of one owner in the index of the store. Admin keys are exempt.
    max_episode_bytes_per_owner: Size = Fixed("256m");
    /// Maximum number of notes (texts of agents about their steps) that are kept of one sandbox.
    max_notes_per_sandbox: u32 = Fixed("1000");
    /// Maximum number of notes of one owner; 0 is unlimited. Admin keys are exempt.
    max_notes_per_owner: CountOrZero = Fixed("100000");
    /// Maximum size of the notes of one owner in the catalog. Admin keys are exempt.
    max_note_bytes_per_owner: Size = Fixed("256m");
    /// Number of automatic snapshots that are kept of each sandbox with `trace: "command"`. Older ones are deleted, unless a
    /// reference, an episode or a sandbox uses them.
    trace_snapshots_per_sandbox: u32 = Fixed("1000");
    /// Maximum number of sandboxes that are being started, and, counted separately, of sandboxes whose files are being written. One
    /// owner gets at most half of each.
    max_concurrent_creations: u32 = Fixed("10");
    /// Maximum number of creations in the queue; further ones are refused. One owner gets at most half of the queue.
    max_queued_creations: u32 = Fixed("200");
    /// Maximum number of sandboxes in the warm pool; 0 turns it off.
    pool_size: CountOrZero = Fixed("8");
    /// Number of CPU cores of a sandbox, if the request does not set one.
    default_cpu: Cpus = Fixed("2");
    /// Maximum number of CPU cores of a sandbox.
    max_cpu: Cpus = Fixed("8");
    /// Memory of a sandbox, if the request does not give it.
    default_memory: Size = Fixed("2g");
    /// Maximum memory of a sandbox.
    max_memory: Size = Fixed("16g");
    /// Disk space of a workspace, if the request does not give it.
    default_disk: Size = Fixed("10g");
    /// Maximum disk space of a workspace.
    max_disk: Size = Fixed("100g");
    /// Maximum number of processes of a sandbox, if the request does not give it.
    default_processes: u32 = Fixed("512");
    /// Maximum number of processes that a request may set.
    max_processes: u32 = Fixed("4096");
    /// Timeout of a command in milliseconds, if the request does not set one.
    default_command_timeout: Milliseconds = Fixed("60000");
    /// Maximum size of the retained output of one command.
    output_keep: Size = Fixed("16m");
    /// Maximum size of the retained output of all commands of a sandbox, further limited by the free part of its disk
    /// limit. The oldest output is dropped first.
    sandbox_output_keep: Size = Fixed("64m");
    /// Number of ended commands per sandbox that are kept with their output.
    commands_kept: u32 = Fixed("1000");
    /// Maximum number of running commands per sandbox, not counting terminals.
    max_commands: u32 = Fixed("100");
    /// Maximum number of terminals per sandbox.
    max_terminals: u32 = Fixed("5");
    /// Seconds after which a connection to a terminal or a port is closed if the client has sent nothing, not even a pong.
    terminal_timeout: Duration = Fixed("90");
    /// Seconds that a sandbox stays `running` after its guest agent disconnected.
    agent_grace: Duration = Fixed("30");
    /// Bytes to keep free on the disk of the workspaces, at most a tenth of the disk. If less is free, sandboxes that keep
    /// writing are killed.
    disk_reserve: Size = Fixed("256m");
    /// Seconds between garbage collections of the store. A nearly full disk starts one early.
    gc_interval: Duration = Fixed("86400");
    /// Retention of sandbox events in the catalog in seconds.
    events_kept: Duration = Fixed("2592000");
    /// Seconds between checks for expired sandboxes.
    expiry_interval: Duration = Fixed("60");
    /// Rate limits per key. An admin key has only the limits that were set on the key. A request that fails with a
    /// client error (4xx) does not count, until a key has `RATE_LIMIT_OTHER` such failures in a minute.
    rate_limit: Switch = Fixed("on");
    /// Maximum number of sandboxes that a key creates per minute.
    rate_limit_create: u32 = Fixed("10");
    /// Maximum number of commands that a key runs per minute.
    rate_limit_run: u32 = Fixed("100");
    /// Maximum number of fork requests of a key per minute. The forks themselves count as sandboxes of the owner.
    rate_limit_fork: u32 = Fixed("600");
    /// Maximum number of requests of a key per minute for files and ports of sandboxes. A request may have many files.
    rate_limit_files: u32 = Fixed("6000");
    /// Maximum number of other requests of a key per minute.
    rate_limit_other: u32 = Fixed("1000");
    /// Maximum number of connections to the API, further limited to half of the server's file descriptors. At the limit, idle
    /// connections that have not been authenticated are closed for new ones.
    max_connections: u32 = Fixed("10000");
    /// Maximum number of connections from one address (from one /64 network with IPv6). Loopback is exempt. Behind a proxy on another
    /// machine, all connections come from the address of the proxy.
    max_connections_per_address: u32 = Fixed("2000");
    /// Maximum number of connections of one owner, including streams and terminals, further limited to half of all connections. At the
    /// limit, an idle connection of the same owner is closed; if none is idle, the request is refused. Admin keys are exempt.
    max_connections_per_owner: u32 = Fixed("2000");
    /// Maximum size of a request body, except for archives and files.
    max_body: Size = Fixed("2m");
    /// Maximum size of an archive that is uploaded as a snapshot or into a sandbox, both compressed and decompressed, and of a file
    /// that is written into a sandbox; also of the body of a request to a preview.
    max_upload: Size = Fixed("10g");
    /// Maximum total size of the files in such an archive. Holes of sparse files count, and so does every hard link.
    max_upload_expanded: Size = Fixed("100g");
    /// Maximum number of simultaneous uploads of snapshots.
    max_uploads: u32 = Fixed("32");
    /// Maximum number of simultaneous uploads of snapshots by one owner. Further ones wait, and are refused after a timeout.
    max_uploads_per_owner: u32 = Fixed("8");
    /// Timeout of an upload in seconds. While an upload runs, the disk space of deleted snapshots may stay occupied.
    upload_timeout: Duration = Fixed("14400");
    /// Maximum size of an archive that is imported as a template: compressed, decompressed and unpacked.
    max_template: Size = Fixed("32g");
    /// Maximum duration of a template build in seconds.
    build_timeout: Duration = Fixed("3600");
    /// Maximum number of template builds at the same time. Others wait.
    max_builds: u32 = Fixed("2");
    /// Maximum size of the archive with the recipe and the files of a template build, both compressed and decompressed.
    max_build_context: Size = Fixed("1g");
    /// Maximum size of the output that a template build reports. The rest is dropped.
    max_build_output: Size = Fixed("64m");
    /// Maximum number of steps of template builds whose results are kept for later builds.
    template_cache_steps: u32 = Fixed("500");
    /// Seconds after its last use for which the result of a step is kept.
    template_cache_age: Duration = Fixed("2592000");
    /// Path of the audit log: JSON lines, readable only by the user of the server.
    audit_log: PathBuf = Computed("`audit.log` in `DATA_DIR`", |host| data_path(host, "audit.log"));
    /// Size at which the audit log is rotated: it is renamed to `NAME.1`, the old `NAME.1` to `NAME.2`, and so on. If
    /// renaming fails, the log keeps growing.
    audit_max: Size = Fixed("64m");
    /// Number of rotated audit logs to keep.
    audit_kept: u32 = Fixed("8");
    /// Patterns whose matches are replaced by `[redacted]` in the audit log. If a pattern has a group, only the group is replaced.
    audit_redact: Patterns = Fixed("(?i)(?:password|passwd|secret|token|api[_-]?key)\\s*[=:]\\s*(\\S+)\n(?i)bearer\\s+(\\S+)");
    /// Log filter: a level, or `target=level` separated by commas.
    rust_log: LogFilter = Fixed("info");
    /// Format of log lines.
    log_format: LogFormat = Fixed("json");
    /// Seconds that running requests have to finish when the server is told to stop.
    shutdown_timeout: Duration = Fixed("30");
}

/// Returns the path of a file in `DATA_DIR`; of `DATA_DIR` itself if `name` is empty. The directory of `host` is the value
/// of the setting, or its default: it is found before other defaults are computed.
fn data_path(host: &HostEnvironment, name: &str) -> Option<String> {
    let data = host.data_dir.as_ref()?;
    let path = if name.is_empty() { data.clone() } else { data.join(name) };
    path.to_str().map(str::to_owned)
}

fn catalog_url(host: &HostEnvironment) -> Option<String> {
    // A relative `DATA_DIR` is refused anyway, and has no URL.
    let data = host.data_dir.as_ref().filter(|data| data.is_absolute())?;
    Some(workspace_catalog::sqlite_url(&data.join("catalog.db")))
}

fn isolation(host: &HostEnvironment) -> Option<String> {
    let isolation = if host.is_root { Isolation::Strict } else { Isolation::BestEffort };
    Some(isolation.as_str().to_owned())
}

fn agent_path(host: &HostEnvironment) -> Option<String> {
    host.program_directory.as_ref()?.join("workspace-agent").to_str().map(str::to_owned)
}
