//! The settings: one table of them, each read from the environment, from a file, or left at its default.
//!
//! [`TABLE`] declares every setting once; reading, checking, `--print-config` and `docs/settings.md` all come
//! from there. Whatever is wrong is said at once, not one mistake per start.

mod check;
mod error;
mod file;
mod page;
mod source;
mod table;
mod value;

pub use error::{SettingsError, Wrong};
pub use page::page;
pub use source::{HostEnvironment, SettingsSource};
pub use table::{Settings, TABLE};
pub use value::{
    Count, Cpus, DatabaseUrl, DockerHost, GuestTransport, HostPort, Isolation, LogFilter, LogFormat,
    Milliseconds, NetworkName, Networks, NfsMode, Origins, Patterns, Program, ProviderChoice, Ranges,
    RuntimeKind, Secret, Size, Switch,
};

/// A setting as it is declared.
#[derive(Debug, Clone, Copy)]
pub struct Declared {
    /// Its name in the file; in capitals, that of its variable.
    pub name: &'static str,
    /// Default value.
    pub default: Fallback,
    /// Allowed values.
    pub allowed: &'static str,
    /// True if the value is never shown.
    pub secret: bool,
    /// Description for `docs/settings.md`.
    pub doc: &'static str,
}

/// Default value of a setting.
#[derive(Debug, Clone, Copy)]
pub enum Fallback {
    /// Always the same.
    Value(&'static str),
    /// Not there, with what that means.
    Absent(&'static str),
    /// Found out at start, described in words.
    Found(&'static str, fn(&HostEnvironment) -> Option<String>),
}

impl Settings {
    /// Checks what was given and fills in the defaults.
    pub fn from_source(source: &SettingsSource) -> Result<Self, SettingsError> {
        let mut wrong = source.wrong().to_vec();
        let settings = table::build(source, &mut wrong);
        if let Some(settings) = &settings {
            wrong.extend(check::together(settings));
        }
        match settings {
            Some(settings) if wrong.is_empty() => Ok(settings),
            _ => Err(SettingsError(wrong)),
        }
    }
}
