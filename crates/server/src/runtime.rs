//! Start of the sandbox service with the runtime of the settings.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use workspace_catalog::Catalog;
use workspace_sandbox::runtime::{Docker, Embedded, Oci, RuntimeError, Unavailable};
use workspace_sandbox::{
    GuestPort, LazyCommand, ProviderKind, ProviderPreference, Resources, Runtime, SandboxError, Service,
    WorkRecorder, WorkspaceHooks, Writers,
};
use workspace_state::Cancel;

use crate::owner_memory::OwnerMemory;
use crate::settings::{Isolation, NfsMode, ProviderChoice, RuntimeKind, Settings};
use crate::store::WALK_LIMITS;

/// First argument of this program when it serves a lazy mount for sandboxes.
pub const LAZY_MOUNT_ARG: &str = "internal-lazy-mount";

/// Parts of the sandbox service that do not come from the settings of the server.
pub(crate) struct ServiceParts {
    /// Id of the server in the catalog.
    pub(crate) server: String,
    /// Flag that cancels long operations.
    pub(crate) cancel: Cancel,
    /// Recorder of completions that the service makes by itself.
    pub(crate) recorder: Arc<dyn WorkRecorder>,
    /// Services that use the workspaces of sandboxes from outside.
    pub(crate) hooks: Vec<Arc<dyn WorkspaceHooks>>,
}

/// Starts the service, which recovers existing sandboxes. If the runtime is not available, the service starts without it,
/// and requests for sandboxes fail.
pub(crate) async fn start_service(
    settings: &Settings,
    parts: ServiceParts,
    catalog: Catalog,
    port: Option<GuestPort>,
) -> Result<Service, SandboxError> {
    let runtime = match start_runtime(settings).await {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::warn!(%error, "sandbox runtime unavailable");
            Arc::new(unavailable(settings, &error)?)
        }
    };
    let settings = workspace_sandbox::Settings {
        server: parts.server,
        cancel: parts.cancel,
        work_recorder: Some(parts.recorder),
        workspace_hooks: parts.hooks,
        transfer_memory: Some(Arc::new(OwnerMemory::for_transfers())),
        ..sandbox_settings(settings)
    };
    Service::start_with(settings, catalog, runtime, port).await
}

/// Creates a runtime that refuses sandboxes with the error. Templates of the embedded runtime can still be managed.
fn unavailable(settings: &Settings, error: &RuntimeError) -> Result<Unavailable, RuntimeError> {
    let runtime = Unavailable::new(settings.runtime.as_str(), error.to_string());
    match settings.runtime {
        RuntimeKind::Embedded => runtime.with_templates(settings.data_dir.join("templates")),
        RuntimeKind::Docker | RuntimeKind::Oci => Ok(runtime),
    }
}

async fn start_runtime(settings: &Settings) -> Result<Arc<dyn Runtime>, RuntimeError> {
    match settings.runtime {
        RuntimeKind::Embedded => {
            Ok(Arc::new(Embedded::start(&settings.data_dir, &settings.agent_program).await?))
        }
        RuntimeKind::Docker => {
            let (host, network) = (&settings.docker_host.0, Some(settings.docker_network.0.as_str()));
            let sandboxes = sandbox_settings(settings).sandboxes_dir;
            Ok(Arc::new(Docker::connect(host, network, &settings.agent_program, &sandboxes).await?))
        }
        RuntimeKind::Oci => {
            let (state, templates) = (settings.data_dir.join("oci"), settings.data_dir.join("templates"));
            let program = &settings.oci_runtime.0;
            Ok(Arc::new(Oci::start(program, &state, &settings.agent_program, &templates).await?))
        }
    }
}

/// Returns the path of the workspaces with a suffix: a sibling directory, because it must be on the same filesystem.
fn with_suffix(workspaces: &Path, suffix: &str) -> PathBuf {
    let mut name = workspaces.file_name().map(ToOwned::to_owned).unwrap_or_default();
    name.push(suffix);
    workspaces.with_file_name(name)
}

fn sandbox_settings(settings: &Settings) -> workspace_sandbox::Settings {
    // The kernel's NFS server exports plain directories, and nobody can stop its clients.
    let is_nfs_of_kernel = settings.nfs_mode == NfsMode::System;
    workspace_sandbox::Settings {
        outside_writers: if is_nfs_of_kernel { Writers::Running } else { Writers::Stopped },
        workspaces_dir: settings.workspace_root.clone(),
        layers_dir: with_suffix(&settings.workspace_root, "-layers"),
        roots_dir: with_suffix(&settings.workspace_root, "-roots"),
        root_layers_dir: with_suffix(&settings.workspace_root, "-root-layers"),
        store_dir: settings.store_dir.clone(),
        walk_limits: WALK_LIMITS,
        provider: match settings.workspace_provider {
            ProviderChoice::Auto if is_nfs_of_kernel => ProviderPreference::PlainDirectory,
            ProviderChoice::Auto => ProviderPreference::Auto,
            ProviderChoice::Overlay => ProviderPreference::Prefer(ProviderKind::Overlay),
            ProviderChoice::Clone => ProviderPreference::Prefer(ProviderKind::Clone),
            ProviderChoice::Copy => ProviderPreference::Prefer(ProviderKind::Copy),
        },
        lazy: std::env::current_exe()
            .ok()
            .map(|program| LazyCommand { program, args: vec![LAZY_MOUNT_ARG.into()] }),
        default_lifetime: settings.default_sandbox_timeout,
        max_lifetime: settings.max_sandbox_lifetime,
        max_sandboxes: settings.max_sandboxes,
        sandboxes_per_owner: settings.max_sandboxes_per_owner,
        paused_retention: settings.max_paused,
        paused_per_owner: settings.max_paused_per_owner,
        snapshots_per_owner: settings.max_snapshots_per_owner.0,
        snapshot_bytes_per_owner: settings.max_snapshot_bytes_per_owner.0,
        notes_per_sandbox: settings.max_notes_per_sandbox,
        notes_per_owner: settings.max_notes_per_owner.0,
        note_bytes_per_owner: settings.max_note_bytes_per_owner.0,
        max_kept_traces: settings.trace_snapshots_per_sandbox,
        build_timeout: settings.build_timeout,
        max_build_output_bytes: settings.max_build_output.0,
        max_build_context_bytes: settings.max_build_context.0,
        builds_at_once: settings.max_builds,
        max_kept_template_steps: settings.template_cache_steps,
        template_step_retention: settings.template_cache_age,
        creations_at_once: settings.max_concurrent_creations,
        creations_waiting: settings.max_queued_creations,
        default_resources: Resources {
            cpu_millis: settings.default_cpu.0,
            memory: settings.default_memory.0,
            disk: settings.default_disk.0,
            processes: settings.default_processes,
        },
        max_resources: Resources {
            cpu_millis: settings.max_cpu.0,
            memory: settings.max_memory.0,
            disk: settings.max_disk.0,
            processes: settings.max_processes,
        },
        command_timeout: settings.default_command_timeout.0,
        kept_output_bytes: settings.output_keep.0,
        kept_output_bytes_per_sandbox: settings.sandbox_output_keep.0,
        max_kept_commands: settings.commands_kept,
        max_commands: settings.max_commands,
        max_terminals: settings.max_terminals,
        agent_grace: settings.agent_grace,
        disk_reserve_bytes: settings.disk_reserve.0,
        expiry_interval: settings.expiry_interval,
        gc_interval: settings.gc_interval,
        event_retention: settings.events_kept,
        max_pool_size: settings.pool_size.0,
        strict: settings.require_isolation == Isolation::Strict,
        egress_deny: settings.egress_deny.0.clone(),
        egress_dns: settings.egress_dns,
        ..workspace_sandbox::Settings::new(&settings.data_dir)
    }
}
