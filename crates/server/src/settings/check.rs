//! Constraints between settings.

use super::error::SettingError;
use super::table::Settings;
use super::value::{GuestTransport, RuntimeKind};

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
        "TLS_CERT and TLS_KEY belong together: set both or neither",
    );
    require(
        tls || settings.api_host.is_loopback() || settings.allow_insecure.0,
        "API_HOST is not a loopback address and there is no TLS: keys would cross the network in plain text\n\
         hint: set TLS_CERT and TLS_KEY, or ALLOW_INSECURE=on behind a proxy that does TLS",
    );
    require(
        settings.api_port == 0 || settings.metrics_port != Some(settings.api_port),
        "METRICS_PORT is the same as API_PORT: choose another",
    );
    let tcp = settings.guest_transport == GuestTransport::Tcp;
    require(
        !tcp || settings.runtime == RuntimeKind::Docker,
        "GUEST_TRANSPORT=tcp is for RUNTIME=docker: sandboxes of other runtimes always reach the server's sockets",
    );
    require(
        !tcp || !settings.grpc_host.is_loopback() || settings.grpc_advertise.is_some(),
        "GRPC_HOST is a loopback address, which no container reaches\n\
         hint: set it to the gateway of DOCKER_NETWORK or to 0.0.0.0, or set GRPC_ADVERTISE",
    );
    require(
        settings.grpc_tls_cert.is_some() == settings.grpc_tls_key.is_some(),
        "GRPC_TLS_CERT and GRPC_TLS_KEY belong together: set both or neither",
    );
    require(
        settings.grpc_tls_ca.is_none() || settings.grpc_tls_cert.is_some(),
        "GRPC_TLS_CA needs GRPC_TLS_CERT, which is not set",
    );
    require(
        settings.default_sandbox_timeout <= settings.max_sandbox_lifetime,
        "DEFAULT_SANDBOX_TIMEOUT is more than MAX_SANDBOX_LIFETIME",
    );
    require(settings.default_cpu <= settings.max_cpu, "DEFAULT_CPU is more than MAX_CPU");
    require(settings.default_memory <= settings.max_memory, "DEFAULT_MEMORY is more than MAX_MEMORY");
    require(settings.default_disk <= settings.max_disk, "DEFAULT_DISK is more than MAX_DISK");
    require(
        settings.default_processes <= settings.max_processes,
        "DEFAULT_PROCESSES is more than MAX_PROCESSES",
    );
    errors
}
