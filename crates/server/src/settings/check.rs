//! What settings must fulfil together.

use super::{Settings, Wrong};

/// Everything in which settings contradict each other.
pub(super) fn together(settings: &Settings) -> Vec<Wrong> {
    let mut wrong = Vec::new();
    let mut demand = |holds: bool, message: &str| {
        if !holds {
            wrong.push(Wrong::Together(message.to_owned()));
        }
    };
    let tls = settings.tls_cert.is_some() && settings.tls_key.is_some();
    demand(
        settings.tls_cert.is_some() == settings.tls_key.is_some(),
        "TLS_CERT and TLS_KEY belong together: set both or neither",
    );
    demand(
        tls || settings.api_host.is_loopback() || settings.allow_insecure.0,
        "API_HOST is not a loopback address and there is no TLS: keys would cross the network in plain text\n\
         hint: set TLS_CERT and TLS_KEY, or ALLOW_INSECURE=on behind a proxy that does TLS",
    );
    demand(
        settings.api_port == 0 || settings.metrics_port != Some(settings.api_port),
        "METRICS_PORT is the same as API_PORT: choose another",
    );
    demand(
        settings.default_sandbox_timeout <= settings.max_sandbox_lifetime,
        "DEFAULT_SANDBOX_TIMEOUT is more than MAX_SANDBOX_LIFETIME",
    );
    demand(settings.default_cpu <= settings.max_cpu, "DEFAULT_CPU is more than MAX_CPU");
    demand(settings.default_memory <= settings.max_memory, "DEFAULT_MEMORY is more than MAX_MEMORY");
    demand(settings.default_disk <= settings.max_disk, "DEFAULT_DISK is more than MAX_DISK");
    demand(
        settings.default_processes <= settings.max_processes,
        "DEFAULT_PROCESSES is more than MAX_PROCESSES",
    );
    wrong
}
