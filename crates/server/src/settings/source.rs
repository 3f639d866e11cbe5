//! Sources of settings: environment variables and a file, before they are parsed.

use std::collections::BTreeMap;
use std::env::VarError;
use std::path::{Path, PathBuf};

use super::value::Value;
use super::{Declared, Fallback, SettingsError, Wrong, file};

/// Facts about the machine on which defaults depend.
#[derive(Debug, Clone, Default)]
pub struct HostEnvironment {
    /// Data directory of the user.
    pub user_data: Option<PathBuf>,
    /// True for the superuser.
    pub root: bool,
    /// Directory of this program.
    pub program_directory: Option<PathBuf>,
    /// `DATA_DIR`, given or by default.
    pub data_dir: Option<PathBuf>,
}

/// Unparsed values of settings: variables of the environment override the file.
#[derive(Debug, Clone, Default)]
pub struct SettingsSource {
    values: BTreeMap<String, Part>,
    wrong: Vec<Wrong>,
    host: HostEnvironment,
}

/// A text, or several as lists in a file are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    Text(String),
    List(Vec<String>),
}

impl SettingsSource {
    /// Reads the environment of this process, and the file `config` or else that of `WORKSPACE_CONFIG`.
    pub fn from_process(config: Option<&Path>) -> Result<Self, SettingsError> {
        let variable = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        let home_data = || variable("HOME").map(|home| PathBuf::from(home).join(".local/share"));
        let host = HostEnvironment {
            user_data: variable("XDG_DATA_HOME").map(PathBuf::from).or_else(home_data),
            root: rustix::process::geteuid().is_root(),
            program_directory: std::env::current_exe().ok().and_then(|it| it.parent().map(Path::to_owned)),
            data_dir: None,
        };
        let path = config.map(Path::to_owned).or_else(|| variable("WORKSPACE_CONFIG").map(PathBuf::from));
        let text = path.map(|path| read(&path)).transpose().map_err(|wrong| SettingsError(vec![wrong]))?;
        let (mut environment, mut wrong) = (Vec::new(), Vec::new());
        for declared in super::TABLE {
            let name = declared.name.to_ascii_uppercase();
            match std::env::var(&name) {
                Ok(value) => environment.push((name, value)),
                Err(VarError::NotPresent) => {}
                Err(VarError::NotUnicode(_)) => {
                    wrong.push(Wrong::Value { name, value: "not UTF-8".into(), allowed: declared.allowed });
                }
            }
        }
        let mut source = Self::new(host, environment, text.as_deref());
        source.wrong.extend(wrong);
        Ok(source)
    }

    /// Creates the sources from variables and the text of a file. An empty variable counts as not set,
    /// because that is how composed deployments leave one out.
    pub fn new(
        host: HostEnvironment,
        environment: impl IntoIterator<Item = (String, String)>,
        file: Option<&str>,
    ) -> Self {
        let mut source = Self { host, ..Self::default() };
        if let Some(text) = file {
            (source.values, source.wrong) = file::parse(text);
        }
        for (name, value) in environment {
            if !value.is_empty() {
                source.values.insert(name.to_ascii_lowercase(), Part::Text(value));
            }
        }
        source.host.data_dir = source.data_dir();
        source
    }

    fn data_dir(&self) -> Option<PathBuf> {
        match self.values.get("data_dir") {
            Some(Part::Text(text)) => Some(PathBuf::from(text)),
            _ => self.host.user_data.as_ref().map(|data| data.join("workspace-server")),
        }
    }

    /// Returns the settings in force, as lines of a settings file; those without a value and secrets are
    /// comments.
    pub fn shown(&self) -> String {
        super::TABLE.iter().map(|declared| self.line(declared)).collect()
    }

    fn line(&self, declared: &Declared) -> String {
        let name = declared.name;
        let value = match (self.values.get(name), declared.default) {
            (Some(Part::Text(text)), _) => Some(toml::Value::from(text.clone())),
            (Some(Part::List(parts)), _) => Some(toml::Value::from(parts.clone())),
            (None, Fallback::Value(text)) => Some(toml::Value::from(text)),
            (None, Fallback::Found(_, find)) => find(&self.host).map(toml::Value::from),
            (None, Fallback::Absent(_)) => None,
        };
        match value {
            Some(_) if declared.secret => format!("# {name} is set and not shown\n"),
            Some(value) => format!("{name} = {value}\n"),
            None => format!("# {name} is not set\n"),
        }
    }

    pub(super) fn wrong(&self) -> &[Wrong] {
        &self.wrong
    }

    /// Parses the value of a setting that always has one.
    pub(super) fn value<T: Value>(&self, name: &str, default: Fallback, wrong: &mut Vec<Wrong>) -> Option<T> {
        let text = self.text::<T>(name).and_then(|text| match text {
            Some(text) => Ok(text),
            None => self.by_default(name, default),
        });
        let value = text.and_then(|text| T::parse(&text).ok_or_else(|| refused::<T>(name, &text)));
        value.map_err(|error| wrong.push(error)).ok()
    }

    /// Parses the value of a setting that may be left out.
    pub(super) fn optional<T: Value>(&self, name: &str, wrong: &mut Vec<Wrong>) -> Option<Option<T>> {
        if !self.values.contains_key(name) {
            return Some(None);
        }
        self.value(name, Fallback::Absent(""), wrong).map(Some)
    }

    fn by_default(&self, name: &str, default: Fallback) -> Result<String, Wrong> {
        match default {
            Fallback::Value(text) => Ok(text.to_owned()),
            Fallback::Found(reason, find) => {
                let missing = || Wrong::Missing { name: name.to_ascii_uppercase(), reason };
                find(&self.host).ok_or_else(missing)
            }
            Fallback::Absent(reason) => Err(Wrong::Missing { name: name.to_ascii_uppercase(), reason }),
        }
    }

    fn text<T: Value>(&self, name: &str) -> Result<Option<String>, Wrong> {
        match (self.values.get(name), T::SEPARATOR) {
            (None, _) => Ok(None),
            (Some(Part::Text(text)), _) => Ok(Some(text.clone())),
            (Some(Part::List(parts)), Some(separator)) => Ok(Some(parts.join(separator))),
            (Some(Part::List(_)), None) => Err(refused::<T>(name, "a list")),
        }
    }
}

fn refused<T: Value>(name: &str, text: &str) -> Wrong {
    let value = if T::SECRET { "not valid (its value is not shown)".to_owned() } else { format!("`{text}`") };
    Wrong::Value { name: name.to_ascii_uppercase(), value, allowed: T::ALLOWED }
}

fn read(path: &Path) -> Result<String, Wrong> {
    std::fs::read_to_string(path)
        .map_err(|error| Wrong::File { path: path.display().to_string(), reason: error.to_string() })
}
