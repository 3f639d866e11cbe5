//! Every setting, once. When one is added here, `make generate` writes the page anew.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use super::value::{
    Count, Cpus, DatabaseUrl, DockerHost, GuestTransport, HostPort, Isolation, LogFilter, LogFormat,
    Milliseconds, NetworkName, Networks, NfsMode, Origins, Patterns, Program, ProviderChoice, Ranges,
    RuntimeKind, Secret, Size, Switch, Value,
};
use super::{Declared, Fallback, HostEnvironment, SettingsSource, Wrong};

/// `name: Type = default` is a setting that always has a value, `name?: Type = absent` one that may have none.
macro_rules! settings {
    (@type $type:ty) => { $type };
    (@type $type:ty, ?) => { Option<$type> };
    (@read $source:ident, $wrong:ident, $name:ident, $type:ty, $default:expr) => {
        $source.value::<$type>(stringify!($name), $default, $wrong)
    };
    (@read $source:ident, $wrong:ident, $name:ident, $type:ty, $default:expr, ?) => {
        $source.optional::<$type>(stringify!($name), $wrong)
    };
    ($($(#[doc = $doc:literal])+ $name:ident $(($optional:tt))? : $type:ty = $default:expr;)+) => {
        /// The settings of a server, checked.
        #[derive(Debug, Clone)]
        pub struct Settings {
            $($(#[doc = $doc])+ pub $name: settings!(@type $type $(, $optional)?),)+
        }

        /// Every setting.
        pub const TABLE: &[Declared] = &[$(Declared {
            name: stringify!($name),
            default: $default,
            allowed: <$type as Value>::ALLOWED,
            secret: <$type as Value>::SECRET,
            doc: concat!($($doc),+),
        },)+];

        pub(super) fn build(source: &SettingsSource, wrong: &mut Vec<Wrong>) -> Option<Settings> {
            // Each is read before the first failure ends this, so that all that is wrong is found.
            $(let $name = settings!(@read source, wrong, $name, $type, $default $(, $optional)?);)+
            Some(Settings { $($name: $name?,)+ })
        }
    };
}

use Fallback::{Absent, Found};
const fn is(text: &'static str) -> Fallback {
    Fallback::Value(text)
}

settings! {
    /// Directory of all data of the server: catalog, key, store, workspaces, audit log.
    data_dir: PathBuf = Found("`workspace-server` in the user's data directory", |around| path(around, ""));
    /// Directory of the workspaces of sandboxes.
    workspace_root: PathBuf = Found("`workspaces` in `DATA_DIR`", |around| path(around, "workspaces"));
    /// The store of snapshots and episodes; `workspace --store` works on it beside the server.
    store_dir: PathBuf = Found("`store` in `DATA_DIR`", |around| path(around, "store"));
    /// Provider of workspaces: `overlay`, `clone` or `copy`; `auto` for the first of these that works.
    workspace_provider: ProviderChoice = is("auto");
    /// The address the API listens on. Beyond loopback it needs TLS, or `ALLOW_INSECURE`.
    api_host: IpAddr = is("127.0.0.1");
    /// The port of the API.
    api_port: u16 = is("8080");
    /// A port of 127.0.0.1 on which `/metrics` needs no key. The API's port has it too, for admin keys.
    metrics_port (?): u16 = Absent("off");
    /// The first admin key. Without it one is made and kept in `DATA_DIR/api-key`.
    api_key (?): Secret = Absent("made at the first start");
    /// URL of the catalog: a SQLite file or a PostgreSQL database.
    database_url: DatabaseUrl = Found("a SQLite file in `DATA_DIR`", catalog);
    /// A file with the certificate chain, in PEM; the API is then served over TLS.
    tls_cert (?): PathBuf = Absent("no TLS");
    /// A file with the certificate's private key, in PEM.
    tls_key (?): PathBuf = Absent("no TLS");
    /// Listen beyond loopback without TLS. Only behind a proxy that does TLS, or in a network of your own.
    allow_insecure: Switch = is("off");
    /// Origins whose pages may call the API from a browser.
    cors_origins: Origins = is("");
    /// Runtime of sandboxes.
    runtime: RuntimeKind = is("embedded");
    /// The program of `RUNTIME=oci`, by name or path.
    oci_runtime: Program = is("runc");
    /// Address of the Docker daemon, for `RUNTIME=docker`.
    docker_host: DockerHost = is("unix:///var/run/docker.sock");
    /// The Docker network of sandboxes with the network `egress` and `RUNTIME=docker`.
    docker_network: NetworkName = is("bridge");
    /// Address ranges that sandboxes with the network `egress` cannot reach unless something more specific is
    /// allowed; the machine itself is never reachable.
    egress_deny: Ranges = is("169.254.0.0/16");
    /// The nameserver that is asked for sandboxes with the network `egress`.
    egress_dns (?): SocketAddr = Absent("the machine's own");
    /// Required isolation: `strict` refuses sandboxes if the machine cannot isolate in every way.
    require_isolation: Isolation = Found("`strict` for the superuser, else `best-effort`", isolation);
    /// The guest agent that is put into sandboxes.
    agent_program: PathBuf = Found("`workspace-agent` beside the server", agent);
    /// Transport between guest agents and the server: a unix socket in a directory that is mounted into each
    /// sandbox, or TCP with TLS. `tcp` is for `RUNTIME=docker`, and for sandboxes with a network; those
    /// without one use their socket.
    guest_transport: GuestTransport = is("unix");
    /// The address on which `GUEST_TRANSPORT=tcp` listens for guest agents. Containers must reach it.
    grpc_host: IpAddr = is("127.0.0.1");
    /// The port on which `GUEST_TRANSPORT=tcp` listens for guest agents. Those that run go on dialling it, so 0 is for trying things.
    grpc_port: u16 = is("50051");
    /// The host and port that guest agents are told to dial. The server looks the host up whenever it starts a sandbox.
    grpc_advertise (?): HostPort = Absent("the gateway of `DOCKER_NETWORK`, and `GRPC_PORT`");
    /// A file with the certificate chain of that port, in PEM.
    grpc_tls_cert (?): PathBuf = Absent("one is made and kept in `DATA_DIR/guests.pem`");
    /// A file with the certificate's private key, in PEM.
    grpc_tls_key (?): PathBuf = Absent("one is made and kept in `DATA_DIR/guests.pem`");
    /// A file with the certificates that guest agents trust, in PEM: the port's own, or one that vouches for it under the host
    /// that they dial. Agents keep what they were given, so a certificate that will be renewed needs one that vouches for it.
    grpc_tls_ca (?): PathBuf = Absent("those in `GRPC_TLS_CERT`");
    /// Not used yet: NFS server.
    nfs_mode: NfsMode = is("embedded");
    /// Not used yet: port of NFS.
    nfs_port: u16 = is("2049");
    /// Not used yet: addresses that may mount over NFS.
    nfs_allowed_ips: Networks = is("*");
    /// Seconds that a sandbox lives when its creator does not say.
    default_sandbox_timeout: Duration = is("3600");
    /// Seconds that a sandbox lives at most, extensions included; for admin keys too.
    max_sandbox_lifetime: Duration = is("86400");
    /// Sandboxes of all owners.
    max_sandboxes: u32 = is("100");
    /// Sandboxes of one owner; admin keys have no such limit.
    max_sandboxes_per_owner: u32 = is("10");
    /// Snapshots of one owner; 0 for any number. Admin keys have no such limit.
    max_snapshots_per_owner: Count = is("100000");
    /// Bytes of the store that the snapshots of one owner take; content that several of them share counts once. Admin keys have
    /// no such limit.
    max_snapshot_bytes_per_owner: Size = is("100g");
    /// Episodes of one owner; 0 for any number. Admin keys have no such limit.
    max_episodes_per_owner: Count = is("100000");
    /// Bytes of the episodes of one owner, which the index of the store holds. Admin keys have no such limit.
    max_episode_bytes_per_owner: Size = is("256m");
    /// Sandboxes that are being started at one time, and as many whose files are being written; one owner has at most half of each.
    max_concurrent_creations: u32 = is("10");
    /// Creations that wait for their permit; more are refused. One owner has at most half of the places.
    max_queued_creations: u32 = is("200");
    /// Sandboxes that are started at most before anybody wants them; 0 for none.
    pool_size: Count = is("8");
    /// Cores of a sandbox when its creator does not say.
    default_cpu: Cpus = is("2");
    /// Cores that may be asked for.
    max_cpu: Cpus = is("8");
    /// Memory of a sandbox when its creator does not say.
    default_memory: Size = is("2g");
    /// Memory that may be asked for.
    max_memory: Size = is("16g");
    /// Disk of a workspace when its creator does not say.
    default_disk: Size = is("10g");
    /// Disk that may be asked for.
    max_disk: Size = is("100g");
    /// Processes of a sandbox when its creator does not say.
    default_processes: u32 = is("512");
    /// Processes that may be asked for.
    max_processes: u32 = is("4096");
    /// Milliseconds that a command runs when its caller does not say.
    default_command_timeout: Milliseconds = is("60000");
    /// Bytes of output kept per command.
    output_keep: Size = is("16m");
    /// Bytes of output kept for all commands of a sandbox, at most as many as its disk limit leaves; the
    /// oldest output is dropped first.
    sandbox_output_keep: Size = is("64m");
    /// Commands that ended and are remembered with their output, in each sandbox.
    commands_kept: u32 = is("1000");
    /// Commands that run at once in each sandbox, terminals aside.
    max_commands: u32 = is("100");
    /// Terminals of one sandbox.
    max_terminals: u32 = is("5");
    /// Seconds after which a connection to a terminal is closed if its client sent nothing, not even the answer to a ping.
    terminal_timeout: Duration = is("90");
    /// Seconds that a sandbox stays `running` without its guest agent.
    agent_grace: Duration = is("30");
    /// Bytes of the workspaces' disk that are kept free, at most a tenth of the disk: below that, a sandbox
    /// that keeps writing is ended.
    disk_reserve: Size = is("256m");
    /// Seconds between two collections of what no snapshot holds any more; also done when the disk is nearly full.
    gc_interval: Duration = is("86400");
    /// Seconds that events of sandboxes are kept in the catalog.
    events_kept: Duration = is("2592000");
    /// Seconds between two looks for expired sandboxes.
    expiry_interval: Duration = is("60");
    /// Rate limits per key. Admin keys have no limits but those given to them. A request that fails with a
    /// client error (4xx) costs nothing, until there are as many of them per minute as `RATE_LIMIT_OTHER`
    /// says.
    rate_limit: Switch = is("on");
    /// Sandboxes that a key may create a minute.
    rate_limit_create: u32 = is("10");
    /// Commands that a key may run a minute.
    rate_limit_run: u32 = is("100");
    /// Times a minute that a key may fork sandboxes; how many are made each time counts against its quota.
    rate_limit_fork: u32 = is("600");
    /// All other requests of a key a minute.
    rate_limit_other: u32 = is("1000");
    /// Connections to the API, never more than half of the files that the server may have open. When there are as many, those
    /// that are idle and have not shown a good key are closed for new ones.
    max_connections: u32 = is("10000");
    /// Connections from one address (a /64 network of IPv6), of which loopback is excepted. Behind a proxy on another machine all of
    /// them come from its address.
    max_connections_per_address: u32 = is("1000");
    /// Connections of one owner, streams and terminals included; never more than half of all. For more, idle ones of the same owner
    /// are closed; where none is idle, the request is refused. Admin keys have no such limit.
    max_connections_per_owner: u32 = is("1000");
    /// The largest body of a request.
    max_body: Size = is("2m");
    /// The largest archive that becomes a snapshot, also without its compression.
    max_upload: Size = is("10g");
    /// The most bytes that all files of such an archive have together. Holes of sparse files count, and each hard link.
    max_upload_expanded: Size = is("100g");
    /// Archives that become snapshots at one time.
    max_uploads: u32 = is("32");
    /// Archives of one owner that become snapshots at one time; more wait, and are refused after a while.
    max_uploads_per_owner: u32 = is("8");
    /// Seconds that an archive may take to come. What is deleted meanwhile may keep its place on the disk until the archive is there.
    upload_timeout: Duration = is("14400");
    /// The largest archive that becomes a template, also without its compression and when it is unpacked.
    max_template: Size = is("32g");
    /// The audit log: JSON lines, readable by the server's user alone.
    audit_log: PathBuf = Found("`audit.log` in `DATA_DIR`", |around| path(around, "audit.log"));
    /// The largest size of the audit log. One that would grow beyond it is renamed to `NAME.1`, what was that to `NAME.2`, and so
    /// on. If that cannot be done, it grows on.
    audit_max: Size = is("64m");
    /// Renamed audit logs that are kept; older ones are removed.
    audit_kept: u32 = is("8");
    /// Patterns that are replaced by `[redacted]` in the audit log; of a pattern with a group, the group
    /// alone.
    audit_redact: Patterns = is("(?i)(?:password|passwd|secret|token|api[_-]?key)\\s*[=:]\\s*(\\S+)\n(?i)bearer\\s+(\\S+)");
    /// Log filter: a level, or `target=level` separated by commas.
    rust_log: LogFilter = is("info");
    /// Format of log lines.
    log_format: LogFormat = is("json");
    /// Seconds that running requests have when the server is told to stop.
    shutdown_timeout: Duration = is("30");
}

fn path(around: &HostEnvironment, name: &str) -> Option<String> {
    let data = around.data_dir.as_ref()?;
    let path = if name.is_empty() { data.clone() } else { data.join(name) };
    path.to_str().map(str::to_owned)
}

fn catalog(around: &HostEnvironment) -> Option<String> {
    // A relative path is refused as `DATA_DIR`; there is no URL for it.
    let data = around.data_dir.as_ref().filter(|data| data.is_absolute())?;
    Some(workspace_catalog::sqlite_url(&data.join("catalog.db")))
}

fn isolation(around: &HostEnvironment) -> Option<String> {
    let isolation = if around.root { Isolation::Strict } else { Isolation::BestEffort };
    Some(isolation.as_str().to_owned())
}

fn agent(around: &HostEnvironment) -> Option<String> {
    around.program_directory.as_ref()?.join("workspace-agent").to_str().map(str::to_owned)
}
