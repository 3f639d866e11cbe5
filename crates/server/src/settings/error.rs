//! Errors in the settings.

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
    #[error("the settings file is not TOML at line {line}: {reason}")]
    Syntax { line: usize, reason: String },
    #[error("{0}")]
    Conflict(String),
}
