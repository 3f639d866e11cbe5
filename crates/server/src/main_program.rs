//! The program `workspace-server`: its arguments, and its output at the start.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use workspace_agent_protocol::scheduling::shorten_time_slice;

use crate::connections::raise_open_files;
use crate::first_key::KeyOrigin;
use crate::runtime::LAZY_MOUNT_ARG;
use crate::settings::{ProviderChoice, Settings, SettingsSource};
use crate::{Shutdown, StartedServer, log, route_groups, start, write_generated_docs};

const USAGE: &str = "\
The server of Elevo Workspace: sandboxes over HTTP.

usage: workspace-server [--config FILE] [--print-config]

  --config FILE    read settings from this TOML file (or set WORKSPACE_CONFIG)
  --print-config   print the settings in effect, without secrets, and exit
  --help           print this
  --version        print the version

Every setting is also an environment variable; docs/settings.md lists them.";

/// Server URL that the command line uses by default.
const DEFAULT_ADDRESS: &str = "http://127.0.0.1:8080";

/// Time for threads to end at shutdown.
const THREADS_TIMEOUT: Duration = Duration::from_secs(1);

enum Command {
    Help,
    Version,
    Generate(PathBuf),
    Print { config: Option<PathBuf> },
    Serve { config: Option<PathBuf> },
}

/// Runs the program. It is part of the library, because the futures of a server are compiled where they are polled:
/// in the program itself they would be compiled a second time.
pub fn main() -> ExitCode {
    // Helpers of sandboxes are this program started again. They must run before any thread exists.
    if let Some(code) = workspace_host::helper_main() {
        return code;
    }
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|argument| argument == LAZY_MOUNT_ARG) {
        return match workspace_mount::daemon_main(arguments) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::FAILURE
            }
        };
    }
    let result = match parse_arguments(std::env::args_os().skip(1)) {
        Ok(command) => run(command),
        Err(argument) => {
            eprintln!("error: unknown argument {argument}\nhint: workspace-server --help");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse_arguments(mut arguments: impl Iterator<Item = OsString>) -> Result<Command, String> {
    let (mut config, mut print) = (None, false);
    while let Some(argument) = arguments.next() {
        match argument.to_str() {
            Some("--help" | "-h") => return Ok(Command::Help),
            Some("--version" | "-V") => return Ok(Command::Version),
            Some("--print-config") => print = true,
            Some("--config") => {
                config = Some(arguments.next().map(PathBuf::from).ok_or("--config without a file")?);
            }
            // Writes the generated documents; not in the help, because only `make generate` needs it.
            Some("generate") => {
                return arguments
                    .next()
                    .map(|it| Command::Generate(it.into()))
                    .ok_or_else(|| "generate".to_owned());
            }
            _ => return Err(format!("`{}`", argument.to_string_lossy())),
        }
    }
    Ok(if print { Command::Print { config } } else { Command::Serve { config } })
}

type RunResult = Result<(), Box<dyn std::error::Error>>;

fn run(command: Command) -> RunResult {
    match command {
        Command::Help => println!("{USAGE}"),
        Command::Version => println!("workspace-server {}", env!("CARGO_PKG_VERSION")),
        Command::Generate(directory) => write_generated_docs(&directory)?,
        Command::Print { config } => {
            let source = SettingsSource::from_process(config.as_deref())?;
            Settings::from_source(&source)?;
            print!("{}", source.to_toml());
        }
        Command::Serve { config } => serve(config.as_deref())?,
    }
    Ok(())
}

fn serve(config: Option<&Path>) -> RunResult {
    let settings = Settings::from_source(&SettingsSource::from_process(config)?)?;
    log::init(&settings)?;
    raise_open_files();
    // Threads inherit it, so it is set before they start. Without it, requests wait while sandboxes keep the CPUs busy.
    if let Err(error) = shorten_time_slice() {
        tracing::warn!(%error, "failed to request a short scheduler slice");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let served: Result<_, Box<dyn std::error::Error>> = runtime.block_on(async {
        let started = start(settings, |_| route_groups()).await?;
        stop_on_signals(&started.app.shutdown, started.app.settings.shutdown_timeout)?;
        announce(&started).await;
        let StartedServer { server, lock, .. } = started;
        server.run().await;
        // The lock on `DATA_DIR` is held until the threads have ended.
        Ok(lock)
    });
    // A thread that does not end would keep the process alive. Stopping it is as safe as killing the process.
    runtime.shutdown_timeout(THREADS_TIMEOUT);
    served.map(drop)
}

/// Begins a graceful shutdown at SIGTERM or SIGINT. `SHUTDOWN_TIMEOUT` bounds it, so a second signal has no
/// effect.
fn stop_on_signals(shutdown: &Shutdown, limit: Duration) -> std::io::Result<()> {
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        let (mut signals, shutdown) = (signal(kind)?, shutdown.clone());
        tokio::spawn(async move {
            signals.recv().await;
            shutdown.begin();
            // A closed stdout is not an error.
            let _ = writeln!(
                std::io::stdout(),
                "Stopping, after requests in progress have ended, or after {} s (SHUTDOWN_TIMEOUT). \
                 Sandboxes go on running.",
                limit.as_secs()
            );
        });
    }
    Ok(())
}

/// Prints addresses and paths. A closed stdout is not an error.
async fn announce(started: &StartedServer) {
    let text = announcement(started, &describe_runtime(started).await);
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// Describes the runtime: its name, the reason for the choice, and missing features.
async fn describe_runtime(started: &StartedServer) -> String {
    let runtime = started.app.sandboxes.runtime();
    let name = runtime.name();
    match runtime.missing_features().await {
        Ok(lacks) if lacks.is_empty() => format!("{name} (RUNTIME); nothing is missing"),
        Ok(lacks) => format!("{name} (RUNTIME); {}", lacks.join("; ")),
        Err(error) => format!("{name} (RUNTIME), which is not available: {error}"),
    }
}

/// Describes the workspace provider and the reason for the choice.
fn describe_provider(started: &StartedServer) -> String {
    let selection = started.app.sandboxes.workspaces().provider_selection();
    let cannot = |kind, reason: &str| format!("; {kind} cannot be used: {reason}");
    // A fallback is not the provider of the settings, so the reason is printed for each one that was tried.
    if selection.is_fallback {
        let unavailable = selection.unavailable.iter().map(|(kind, reason)| cannot(*kind, reason));
        let unavailable: String = unavailable.collect();
        return format!("{}, not as set by WORKSPACE_PROVIDER{unavailable}", selection.kind);
    }
    let setting = match started.app.settings.workspace_provider {
        ProviderChoice::Auto => "",
        _ => ", as set by WORKSPACE_PROVIDER",
    };
    let unavailable: String =
        selection.unavailable_faster().map(|(kind, reason)| cannot(kind, reason)).collect();
    format!("{}{setting}{unavailable}", selection.kind)
}

fn announcement(started: &StartedServer, runtime: &str) -> String {
    let settings = &started.app.settings;
    let key = match &started.key {
        KeyOrigin::Setting => "from API_KEY".to_owned(),
        KeyOrigin::Kept(path) => format!("in {}", path.display()),
        KeyOrigin::Created(path) => format!("created just now, in {}", path.display()),
    };
    let metrics = started.metrics.map(|address| format!("metrics    http://{address}/metrics\n"));
    let nfs = started.app.nfs.address().map(|address| format!("NFS        {address}\n"));
    let guests = started.guests.map(|address| format!("guests     over TLS on {address}\n"));
    format!(
        "API        {address}\n{nfs}docs       {address}/api/docs\nkey        {key}\ncatalog    {catalog}\ndata       {data}\nstore      {store}\n\
         {metrics}{guests}workspace  {provider}\nruntime    {runtime}\n\n\
         Try it:    {variables}workspace run -- echo hello\n",
        address = started.address,
        catalog = settings.database_url.kind(),
        data = settings.data_dir.display(),
        store = settings.store_dir.display(),
        metrics = metrics.unwrap_or_default(),
        guests = guests.unwrap_or_default(),
        nfs = nfs.unwrap_or_default(),
        provider = describe_provider(started),
        variables = client_variables(started),
    )
}

/// Returns the environment variables that the command line needs to find this server and its key; empty if the defaults
/// are right.
fn client_variables(started: &StartedServer) -> String {
    let (address, data) = (started.address.to_string(), &started.app.settings.data_dir);
    let mut text = String::new();
    if address != DEFAULT_ADDRESS {
        text.push_str(&format!("WORKSPACE_SERVER={address} "));
    }
    if started.key == KeyOrigin::Setting {
        text.push_str("WORKSPACE_API_KEY=… ");
    } else if Some(data) != default_data_dir().as_ref() {
        text.push_str(&format!("DATA_DIR='{}' ", data.display().to_string().replace('\'', "'\\''")));
    }
    text
}

/// Returns the data directory in which the command line looks for the key if `DATA_DIR` is not set.
fn default_data_dir() -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let user = absolute("XDG_DATA_HOME").or_else(|| Some(absolute("HOME")?.join(".local/share")));
    user.map(|data| data.join("workspace-server"))
}
