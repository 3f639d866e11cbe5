//! Command line: a subcommand, paths, and `--name value` options.

use std::collections::HashMap;
use std::path::PathBuf;
use std::str::FromStr;

/// Arguments after the subcommand.
#[derive(Debug, Default)]
pub(crate) struct Args {
    paths: Vec<PathBuf>,
    options: HashMap<String, String>,
    json: bool,
}

impl Args {
    /// Parses options; `--json` is the only one without a value.
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut args = Self::default();
        while let Some(word) = words.next() {
            match word.strip_prefix("--") {
                Some("json") => args.json = true,
                Some(name) => {
                    let value = words.next().ok_or_else(|| format!("--{name} needs a value"))?;
                    args.options.insert(name.to_owned(), value);
                }
                None => args.paths.push(word.into()),
            }
        }
        Ok(args)
    }

    /// Returns whether results are printed as JSON.
    pub(crate) fn json(&self) -> bool {
        self.json
    }

    /// Returns the next path; `what` names it in the error if there is none.
    pub(crate) fn path(&mut self, what: &str) -> Result<PathBuf, String> {
        if self.paths.is_empty() {
            return Err(format!("{what} is missing"));
        }
        Ok(self.paths.remove(0))
    }

    /// Returns the value of `--name`, or `default`.
    pub(crate) fn option<T: FromStr>(&mut self, name: &str, default: T) -> Result<T, String> {
        let Some(value) = self.options.remove(name) else {
            return Ok(default);
        };
        value.parse().map_err(|_| format!("--{name} cannot be `{value}`"))
    }

    /// Fails if there are unused arguments.
    pub(crate) fn finish(self) -> Result<(), String> {
        match (self.options.keys().next(), self.paths.first()) {
            (Some(name), _) => Err(format!("unknown option --{name}")),
            (None, Some(path)) => Err(format!("unexpected argument {}", path.display())),
            (None, None) => Ok(()),
        }
    }
}
