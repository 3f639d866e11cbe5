//! Sources of settings: environment variables and a file, before they are parsed.

use std::collections::BTreeMap;
use std::env::VarError;
use std::path::{Path, PathBuf};

use super::value::Value;
use super::{Declaration, DefaultValue, SettingError, SettingsError, file};

/// Facts about the machine on which defaults depend.
#[derive(Debug, Clone, Default)]
pub struct HostEnvironment {
    /// Data directory of the user: `XDG_DATA_HOME`, or `~/.local/share`. `None` without a home directory.
    pub user_data: Option<PathBuf>,
    /// True if the server runs as root.
    pub is_root: bool,
    /// Directory of the server's executable.
    pub program_directory: Option<PathBuf>,
    /// `DATA_DIR`, set or by default. Defaults of other settings depend on it.
    pub data_dir: Option<PathBuf>,
}

/// Unparsed values of settings: variables of the environment override the file.
#[derive(Debug, Clone, Default)]
pub struct SettingsSource {
    values: BTreeMap<String, RawValue>,
    errors: Vec<SettingError>,
    host: HostEnvironment,
}

/// Unparsed value of a setting. Only a file can have lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RawValue {
    Text(String),
    List(Vec<String>),
}

impl SettingsSource {
    /// Reads the environment of this process, and the file `config`; without one, the file that `WORKSPACE_CONFIG` names.
    pub fn from_process(config: Option<&Path>) -> Result<Self, SettingsError> {
        let variable = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        let home_data = || variable("HOME").map(|home| PathBuf::from(home).join(".local/share"));
        let host = HostEnvironment {
            user_data: variable("XDG_DATA_HOME").map(PathBuf::from).or_else(home_data),
            is_root: rustix::process::geteuid().is_root(),
            program_directory: std::env::current_exe().ok().and_then(|it| it.parent().map(Path::to_owned)),
            data_dir: None,
        };
        let path = config.map(Path::to_owned).or_else(|| variable("WORKSPACE_CONFIG").map(PathBuf::from));
        let text = path.map(|path| read(&path)).transpose().map_err(|error| SettingsError(vec![error]))?;
        let (mut environment, mut errors) = (Vec::new(), Vec::new());
        for declaration in super::TABLE {
            let name = declaration.name.to_ascii_uppercase();
            match std::env::var(&name) {
                Ok(value) => environment.push((name, value)),
                Err(VarError::NotPresent) => {}
                Err(VarError::NotUnicode(_)) => {
                    let value = "not UTF-8".to_owned();
                    errors.push(SettingError::Value { name, value, allowed: declaration.allowed });
                }
            }
        }
        let mut source = Self::new(host, environment, text.as_deref());
        source.errors.extend(errors);
        Ok(source)
    }

    /// Creates a source from variables and the text of a file. An empty variable is treated as unset,
    /// because Docker Compose passes unset variables as empty ones.
    pub fn new(
        host: HostEnvironment,
        environment: impl IntoIterator<Item = (String, String)>,
        file: Option<&str>,
    ) -> Self {
        let mut source = Self { host, ..Self::default() };
        if let Some(text) = file {
            (source.values, source.errors) = file::parse(text);
        }
        for (name, value) in environment {
            if !value.is_empty() {
                source.values.insert(name.to_ascii_lowercase(), RawValue::Text(value));
            }
        }
        source.host.data_dir = source.data_dir();
        source
    }

    fn data_dir(&self) -> Option<PathBuf> {
        match self.values.get("data_dir") {
            Some(RawValue::Text(text)) => Some(PathBuf::from(text)),
            _ => self.host.user_data.as_ref().map(|data| data.join("workspace-server")),
        }
    }

    /// Returns the settings in effect as the text of a settings file. Secrets and settings without a value are
    /// comments.
    pub fn to_toml(&self) -> String {
        super::TABLE.iter().map(|declaration| self.line(declaration)).collect()
    }

    fn line(&self, declaration: &Declaration) -> String {
        let name = declaration.name;
        let value = match (self.values.get(name), declaration.default) {
            (Some(RawValue::Text(text)), _) => Some(toml::Value::from(text.clone())),
            (Some(RawValue::List(parts)), _) => Some(toml::Value::from(parts.clone())),
            (None, DefaultValue::Fixed(text)) => Some(toml::Value::from(text)),
            (None, DefaultValue::Computed(_, compute)) => compute(&self.host).map(toml::Value::from),
            (None, DefaultValue::Absent(_)) => None,
        };
        match value {
            Some(_) if declaration.secret => format!("# {name} is set and not shown\n"),
            Some(value) => format!("{name} = {value}\n"),
            None => format!("# {name} is not set\n"),
        }
    }

    /// Returns the errors of reading the file and the environment.
    pub(super) fn errors(&self) -> &[SettingError] {
        &self.errors
    }

    /// Parses the value of a setting that always has one. `None` after an error, which is added to `errors`.
    pub(super) fn value<T: Value>(
        &self,
        name: &str,
        default: DefaultValue,
        errors: &mut Vec<SettingError>,
    ) -> Option<T> {
        let text = self.text::<T>(name).and_then(|text| match text {
            Some(text) => Ok(text),
            None => self.default_text(name, default),
        });
        let value = text.and_then(|text| T::parse(&text).ok_or_else(|| invalid::<T>(name, &text)));
        value.map_err(|error| errors.push(error)).ok()
    }

    /// Parses the value of a setting that may have none (`Some(None)`). `None` after an error, which is added to
    /// `errors`.
    pub(super) fn optional<T: Value>(&self, name: &str, errors: &mut Vec<SettingError>) -> Option<Option<T>> {
        if !self.values.contains_key(name) {
            return Some(None);
        }
        self.value(name, DefaultValue::Absent(""), errors).map(Some)
    }

    fn default_text(&self, name: &str, default: DefaultValue) -> Result<String, SettingError> {
        match default {
            DefaultValue::Fixed(text) => Ok(text.to_owned()),
            DefaultValue::Computed(reason, compute) => {
                let missing = || SettingError::Missing { name: name.to_ascii_uppercase(), reason };
                compute(&self.host).ok_or_else(missing)
            }
            DefaultValue::Absent(reason) => {
                Err(SettingError::Missing { name: name.to_ascii_uppercase(), reason })
            }
        }
    }

    /// Returns the text of a setting, with the items of a list joined; `None` if it is not set.
    fn text<T: Value>(&self, name: &str) -> Result<Option<String>, SettingError> {
        match (self.values.get(name), T::SEPARATOR) {
            (None, _) => Ok(None),
            (Some(RawValue::Text(text)), _) => Ok(Some(text.clone())),
            (Some(RawValue::List(parts)), Some(separator)) => Ok(Some(parts.join(separator))),
            (Some(RawValue::List(_)), None) => Err(invalid::<T>(name, "a list")),
        }
    }
}

fn invalid<T: Value>(name: &str, text: &str) -> SettingError {
    let value = if T::SECRET { "not valid (its value is not shown)".to_owned() } else { format!("`{text}`") };
    SettingError::Value { name: name.to_ascii_uppercase(), value, allowed: T::ALLOWED }
}

fn read(path: &Path) -> Result<String, SettingError> {
    std::fs::read_to_string(path)
        .map_err(|error| SettingError::File { path: path.display().to_string(), reason: error.to_string() })
}
