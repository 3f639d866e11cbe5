//! Constraints between settings.

use workspace_nfs::ClientList;

use super::error::SettingError;
use super::table::Settings;
use super::value::{GuestTransport, NfsMode, ProviderChoice, RuntimeKind};

/// Returns an error for each constraint that the settings violate.
pub(super) fn conflicts(settings: &Settings) -> Vec<SettingError> {
    let mut errors = Vec::new();
    let mut require = |holds: bool, message: &str| {
        if !holds {
            errors.push(SettingError::Conflict(message.to_owned()));
        }
    };
    let tls = settings.tls_cert.is_some() && settings.tls_key.is_some();
    require(
        settings.tls_cert.is_some() == settings.tls_key.is_some(),
        "TLS_CERT and TLS_KEY must be set together",
    );
    require(
        tls || settings.api_host.is_loopback() || settings.allow_insecure.0,
        "API_HOST is not a loopback address and TLS is not configured: keys would be sent unencrypted\n\
         hint: set TLS_CERT and TLS_KEY, or ALLOW_INSECURE=on behind a proxy that terminates TLS",
    );
    require(
        settings.api_port == 0 || settings.metrics_port != Some(settings.api_port),
        "METRICS_PORT and API_PORT must be different",
    );
    let tcp = settings.guest_transport == GuestTransport::Tcp;
    require(
        !tcp || settings.runtime == RuntimeKind::Docker,
        "GUEST_TRANSPORT=tcp requires RUNTIME=docker: other runtimes use Unix sockets",
    );
    require(
        !tcp || !settings.grpc_host.is_loopback() || settings.grpc_advertise.is_some(),
        "GRPC_HOST is a loopback address, which containers cannot reach\n\
         hint: set it to the gateway of DOCKER_NETWORK or to 0.0.0.0, or set GRPC_ADVERTISE",
    );
    require(
        settings.grpc_tls_cert.is_some() == settings.grpc_tls_key.is_some(),
        "GRPC_TLS_CERT and GRPC_TLS_KEY must be set together",
    );
    require(
        settings.grpc_tls_ca.is_none() || settings.grpc_tls_cert.is_some(),
        "GRPC_TLS_CA requires GRPC_TLS_CERT",
    );
    let system_nfs = settings.nfs_mode == NfsMode::System;
    require(
        !system_nfs || !settings.nfs_mount_secret.0 || settings.nfs_allowed_ips.0 != ClientList::any(),
        "NFS_MODE=system has no secrets in paths: every client could mount every workspace\n\
         hint: set NFS_ALLOWED_IPS to the networks of your clients, or NFS_MOUNT_SECRET=off if every client may",
    );
    require(
        !system_nfs || settings.workspace_provider != ProviderChoice::Overlay,
        "NFS_MODE=system cannot export workspaces of WORKSPACE_PROVIDER=overlay\n\
         hint: set WORKSPACE_PROVIDER to auto, clone or copy",
    );
    require(
        !system_nfs || settings.nfs_port.is_none_or(|port| port == workspace_nfs::SystemNfs::PORT),
        "NFS_MODE=system cannot choose NFS_PORT: the kernel's NFS server has port 2049",
    );
    require(
        settings.default_sandbox_timeout <= settings.max_sandbox_lifetime,
        "DEFAULT_SANDBOX_TIMEOUT is greater than MAX_SANDBOX_LIFETIME",
    );
    require(settings.default_cpu <= settings.max_cpu, "DEFAULT_CPU is greater than MAX_CPU");
    require(settings.default_memory <= settings.max_memory, "DEFAULT_MEMORY is greater than MAX_MEMORY");
    require(settings.default_disk <= settings.max_disk, "DEFAULT_DISK is greater than MAX_DISK");
    require(
        settings.default_processes <= settings.max_processes,
        "DEFAULT_PROCESSES is greater than MAX_PROCESSES",
    );
    errors
}
