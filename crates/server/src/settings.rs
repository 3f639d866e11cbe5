//! Settings of the server. Each has a value from the environment, from a file, or its default.
//!
//! [`TABLE`] declares every setting once; parsing, validation, `--print-config` and `docs/settings.md` are derived
//! from it. All errors are reported together, not one per start.

mod check;
mod file;
mod page;
mod source;
mod table;
mod value;

pub use page::page;
pub use source::{HostEnvironment, SettingsSource};
pub use table::{Settings, TABLE};
pub use value::{
    Count, Cpus, DatabaseUrl, DockerHost, GuestTransport, HostPort, Isolation, LogFilter, LogFormat,
    Milliseconds, NetworkName, Origins, Patterns, Program, ProviderChoice, Ranges, RuntimeKind, Secret, Size,
    Switch,
};

/// Declaration of a setting.
#[derive(Debug, Clone, Copy)]
pub struct Declaration {
    /// Name in the settings file. The environment variable has the same name in capitals.
    pub name: &'static str,
    /// Value that applies if none is given.
    pub default: Fallback,
    /// Description of the allowed values, for error messages and `docs/settings.md`.
    pub allowed: &'static str,
    /// True if `--print-config` and error messages must not contain the value.
    pub secret: bool,
    /// Description for `docs/settings.md`.
    pub doc: &'static str,
}

/// Default value of a setting.
#[derive(Debug, Clone, Copy)]
pub enum Fallback {
    /// Constant.
    Value(&'static str),
    /// No value. The text describes the effect.
    Absent(&'static str),
    /// Value that is computed at start, with its description. `None` if it cannot be computed.
    Computed(&'static str, fn(&HostEnvironment) -> Option<String>),
}

/// All errors in the settings.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct SettingsError(pub Vec<SettingError>);

/// Error in one setting, or in a combination of settings.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum SettingError {
    #[error("{name} is {value}; allowed: {allowed}")]
    Value { name: String, value: String, allowed: &'static str },
    #[error("{name} is not set, and its default cannot be found: {reason}")]
    Missing { name: String, reason: &'static str },
    #[error("the settings file has no setting `{key}`{hint}")]
    Unknown { key: String, hint: String },
    #[error("cannot read the settings file {path}: {reason}")]
    File { path: String, reason: String },
    #[error("{0}")]
    Conflict(String),
}

impl Settings {
    /// Parses and validates all values, and fills in the defaults.
    pub fn from_source(source: &SettingsSource) -> Result<Self, SettingsError> {
        let mut errors = source.errors().to_vec();
        let settings = table::build(source, &mut errors);
        if let Some(settings) = &settings {
            errors.extend(check::conflicts(settings));
        }
        match settings {
            Some(settings) if errors.is_empty() => Ok(settings),
            _ => Err(SettingsError(errors)),
        }
    }
}
