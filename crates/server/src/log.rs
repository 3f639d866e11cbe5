//! Log of the server, on stderr.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

use crate::settings::{LogFormat, Settings};

/// Installs the log subscriber of the settings. Panics if it is called twice in a process.
pub(crate) fn init(settings: &Settings) -> Result<(), ParseError> {
    let filter = EnvFilter::try_new(&settings.rust_log.0)?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match settings.log_format {
        LogFormat::Json => lines.json().flatten_event(true).with_span_list(false).init(),
        LogFormat::Text => lines.with_ansi(false).init(),
    }
    Ok(())
}
