//! Settings of the server. Each has a value from the environment, from a file, or its default.
//!
//! [`TABLE`] declares every setting once; parsing, validation, `--print-config` and `docs/settings.md` are derived
//! from it. All errors are reported together, not one per start.

mod check;
mod error;
mod file;
mod page;
mod source;
mod table;
mod value;

pub use error::{SettingError, SettingsError};
pub use page::page;
pub use source::{HostEnvironment, SettingsSource};
pub use table::{Settings, TABLE};
pub use value::{
    CountOrZero, Cpus, DatabaseUrl, DockerHost, DomainName, ExportsFile, GuestTransport, HostName, HostPort,
    Isolation, LogFilter, LogFormat, Milliseconds, NetworkName, NfsClients, NfsMode, Origins, Patterns,
    Program, ProviderChoice, Ranges, RuntimeKind, Secret, Size, Switch,
};

/// Declaration of a setting.
#[derive(Debug, Clone, Copy)]
pub struct Declaration {
    /// Name in the settings file. The environment variable has the same name in capitals.
    pub name: &'static str,
    /// Value that applies if none is given.
    pub default: DefaultValue,
    /// Description of the allowed values, for error messages and `docs/settings.md`.
    pub allowed: &'static str,
    /// True if `--print-config` and error messages must not contain the value.
    pub secret: bool,
    /// Description for `docs/settings.md`.
    pub doc: &'static str,
}

/// Default value of a setting.
#[derive(Debug, Clone, Copy)]
pub enum DefaultValue {
    /// Constant.
    Fixed(&'static str),
    /// No value. The text describes the effect.
    Absent(&'static str),
    /// Value that is computed at start, with its description. `None` if it cannot be computed.
    Computed(&'static str, fn(&HostEnvironment) -> Option<String>),
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
