//! Recipes: descriptions of templates in TOML.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;

use super::target::{check_source, join};
use super::variables::check_reference_syntax;
use crate::runtime::{AllowRule, Network};

/// Maximum size of a recipe in bytes.
pub const RECIPE_MAX: usize = 256 << 10;
/// Maximum number of steps.
const STEPS_MAX: usize = 200;
/// Maximum length of a command in bytes.
const RUN_MAX: usize = 64 << 10;
const DESCRIPTION_MAX: usize = 256;
/// Maximum length of the summary of a step without its kind, in characters.
const SUMMARY_MAX: usize = 72;

/// Mistake in a recipe.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct RecipeError {
    /// Number of the line, from 1.
    pub line: usize,
    /// Problem and remedy.
    pub message: String,
}

/// Description of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipe {
    /// Root filesystem that the steps change.
    pub origin: Origin,
    /// Description for lists.
    pub description: Option<String>,
    /// Network access of all commands.
    pub network: Network,
    /// Steps in order.
    pub steps: Vec<Step>,
}

/// Root filesystem that the steps of a recipe change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Files of a template.
    Template(String),
    /// Directory `/workspace/root` of a sandbox over the root filesystem of the server's machine, as a command leaves
    /// it.
    Bootstrap {
        /// Command for a shell.
        run: String,
    },
}

/// Step of a recipe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Number of its line in the recipe, from 1.
    pub line: usize,
    /// Work to do.
    pub action: Action,
}

/// Work of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Runs a command with a shell.
    Run(String),
    /// Copies files and directories of the context.
    Copy {
        /// Paths in the context.
        sources: Vec<String>,
        /// Absolute path. With a slash at its end, a directory.
        to: String,
    },
    /// Sets environment variables, also of sandboxes that are created from the template.
    Env(BTreeMap<String, String>),
    /// Sets the working directory of later steps, an absolute path, and creates it.
    Workdir(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRecipe {
    from: Option<Spanned<String>>,
    bootstrap: Option<Spanned<RawBootstrap>>,
    description: Option<Spanned<String>>,
    network: Option<Spanned<String>>,
    allow: Option<Spanned<Vec<String>>>,
    #[serde(default)]
    steps: Vec<Spanned<RawStep>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawBootstrap {
    run: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawStep {
    run: Option<String>,
    copy: Option<OneOrMany>,
    to: Option<String>,
    env: Option<BTreeMap<String, String>>,
    workdir: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "`copy` is a path of the context, or a list of paths")]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl Recipe {
    /// Parses a recipe.
    pub fn parse(text: &str) -> Result<Self, RecipeError> {
        let text = Text(text);
        if text.0.len() > RECIPE_MAX {
            return Err(RecipeError {
                line: 1,
                message: format!(
                    "a recipe has at most {RECIPE_MAX} bytes; move scripts to files, and `copy` them"
                ),
            });
        }
        let raw: RawRecipe = toml::from_str(text.0).map_err(|error| RecipeError {
            line: text.line(&error.span().unwrap_or(0..0)),
            message: error.message().trim().to_owned(),
        })?;
        let origin = text.origin(raw.from, raw.bootstrap)?;
        let network = text.network(raw.network.as_ref(), raw.allow)?;
        let description = text.description(raw.description)?;
        if raw.steps.len() > STEPS_MAX {
            let message = format!("a recipe has at most {STEPS_MAX} steps; join some with `&&`");
            return Err(text.error(&raw.steps[STEPS_MAX].span(), message));
        }
        let (mut steps, mut workdir) = (Vec::new(), "/".to_owned());
        for raw in raw.steps {
            let (span, raw) = (raw.span(), raw.into_inner());
            let action = action(raw, &workdir).map_err(|message| text.error(&span, message))?;
            if let Action::Workdir(path) = &action {
                workdir.clone_from(path);
            }
            steps.push(Step { line: text.line(&span), action });
        }
        Ok(Self { origin, description, network, steps })
    }

    /// Returns the paths of the context that the steps copy.
    pub fn sources(&self) -> impl Iterator<Item = &str> {
        self.steps.iter().flat_map(|step| match &step.action {
            Action::Copy { sources, .. } => sources.iter().map(String::as_str).collect(),
            _ => Vec::new(),
        })
    }

    /// Returns the number of steps that a build shows: those of the recipe, and the one that makes the root.
    pub fn step_count(&self) -> usize {
        self.steps.len() + usize::from(matches!(self.origin, Origin::Bootstrap { .. }))
    }
}

impl Step {
    /// Returns a line that describes the step.
    pub fn summary(&self) -> String {
        match &self.action {
            Action::Run(command) => summary("run", command),
            Action::Copy { sources, to } => summary("copy", &format!("{} {to}", sources.join(" "))),
            Action::Env(variables) => {
                let variables: Vec<_> =
                    variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
                summary("env", &variables.join(" "))
            }
            Action::Workdir(path) => summary("workdir", path),
        }
    }
}

impl Origin {
    /// Returns a line that describes the step that makes the root; `None` for a template.
    pub fn summary(&self) -> Option<String> {
        match self {
            Self::Template(_) => None,
            Self::Bootstrap { run } => Some(summary("bootstrap", run)),
        }
    }
}

/// Returns the kind of a step and the first line of its text, cut to [`SUMMARY_MAX`].
fn summary(kind: &str, text: &str) -> String {
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let first: String = lines.first().copied().unwrap_or_default().chars().take(SUMMARY_MAX).collect();
    let is_cut = lines.len() > 1 || lines.first().is_some_and(|line| line.len() > first.len());
    format!("{kind} {first}{}", if is_cut { " …" } else { "" })
}

/// Text of a recipe. Converts positions in it to numbers of lines, for errors.
struct Text<'a>(&'a str);

impl Text<'_> {
    fn line(&self, span: &Range<usize>) -> usize {
        self.0.bytes().take(span.start).filter(|byte| *byte == b'\n').count() + 1
    }

    fn error(&self, span: &Range<usize>, message: impl Into<String>) -> RecipeError {
        RecipeError { line: self.line(span), message: message.into() }
    }

    fn origin(
        &self,
        from: Option<Spanned<String>>,
        bootstrap: Option<Spanned<RawBootstrap>>,
    ) -> Result<Origin, RecipeError> {
        match (from, bootstrap) {
            (Some(from), None) if from.get_ref().trim().is_empty() => {
                Err(self.error(&from.span(), "`from` is empty; `workspace template ls` lists templates"))
            }
            (Some(from), None) => Ok(Origin::Template(from.into_inner())),
            (None, Some(bootstrap)) => {
                let span = bootstrap.span();
                let run =
                    command(bootstrap.into_inner().run).map_err(|message| self.error(&span, message))?;
                Ok(Origin::Bootstrap { run })
            }
            (Some(_), Some(bootstrap)) => {
                Err(self.error(&bootstrap.span(), "a recipe has `from` or `[bootstrap]`, not both"))
            }
            (None, None) => {
                let message = "the recipe does not say what it starts with; add `from = \"TEMPLATE\"` as its first line";
                Err(self.error(&(0..0), message))
            }
        }
    }

    fn network(
        &self,
        network: Option<&Spanned<String>>,
        allow: Option<Spanned<Vec<String>>>,
    ) -> Result<Network, RecipeError> {
        let egress = match network {
            None => false,
            Some(value) => match value.get_ref().as_str() {
                "none" => false,
                "egress" => true,
                _ => return Err(self.error(&value.span(), "`network` is \"none\" (default) or \"egress\"")),
            },
        };
        let Some(allow) = allow else {
            return Ok(if egress { Network::Egress { allow: None } } else { Network::None });
        };
        let span = allow.span();
        if !egress || allow.get_ref().is_empty() {
            let message = "`allow` lists destinations, and needs `network = \"egress\"`";
            return Err(self.error(&span, message));
        }
        let rules = allow.into_inner().iter().map(|rule| rule.parse()).collect::<Result<Vec<AllowRule>, _>>();
        let rules = rules.map_err(|error| self.error(&span, error.to_string()))?;
        Ok(Network::Egress { allow: Some(rules) })
    }

    fn description(&self, description: Option<Spanned<String>>) -> Result<Option<String>, RecipeError> {
        let Some(text) = description else { return Ok(None) };
        if text.get_ref().len() > DESCRIPTION_MAX || text.get_ref().chars().any(char::is_control) {
            let message = format!("`description` is one line of at most {DESCRIPTION_MAX} bytes");
            return Err(self.error(&text.span(), message));
        }
        Ok(Some(text.into_inner()))
    }
}

/// Returns the work of a step. The error is a message.
fn action(raw: RawStep, workdir: &str) -> Result<Action, String> {
    let kinds = [
        ("run", raw.run.is_some()),
        ("copy", raw.copy.is_some()),
        ("env", raw.env.is_some()),
        ("workdir", raw.workdir.is_some()),
    ];
    let given: Vec<_> = kinds.iter().filter(|(_, given)| *given).map(|(kind, _)| *kind).collect();
    if given.len() != 1 {
        let given = if given.is_empty() { "none".to_owned() } else { given.join(" and ") };
        return Err(format!(
            "a step has one of `run`, `copy`, `env` and `workdir`, and this one has {given}"
        ));
    }
    if raw.to.is_some() && raw.copy.is_none() {
        return Err("`to` belongs to `copy`".to_owned());
    }
    if let Some(run) = raw.run {
        return Ok(Action::Run(command(run)?));
    }
    if let Some(variables) = raw.env {
        return env(variables).map(Action::Env);
    }
    if let Some(path) = raw.workdir {
        return join(workdir, &path).map(Action::Workdir);
    }
    let sources = match raw.copy {
        Some(OneOrMany::One(source)) => vec![source],
        Some(OneOrMany::Many(sources)) => sources,
        None => Vec::new(),
    };
    let to = raw.to.ok_or("`copy` needs a destination: add `to = \"/PATH\"`")?;
    if sources.is_empty() {
        return Err("`copy` needs a path of the context; `\".\"` copies all of it".to_owned());
    }
    for source in &sources {
        check_source(source)?;
    }
    let trailing_slash = if to.ends_with('/') && !to.trim_matches('/').is_empty() { "/" } else { "" };
    Ok(Action::Copy { sources, to: join(workdir, &to)? + trailing_slash })
}

fn command(command: String) -> Result<String, String> {
    if command.trim().is_empty() {
        return Err("`run` is empty".to_owned());
    }
    if command.len() > RUN_MAX || command.contains('\0') {
        return Err(format!(
            "a command has at most {RUN_MAX} bytes, without a NUL; `copy` a script, and run that"
        ));
    }
    Ok(command)
}

fn env(variables: BTreeMap<String, String>) -> Result<BTreeMap<String, String>, String> {
    for (name, value) in &variables {
        let is_first = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
        let is_valid = name.bytes().next().is_some_and(is_first)
            && name.bytes().all(|byte| is_first(byte) || byte.is_ascii_digit());
        if !is_valid {
            return Err(format!("`{name}` is no name of a variable: use letters, digits and `_`"));
        }
        if value.contains('\0') {
            return Err(format!("the value of `{name}` contains a NUL"));
        }
        check_reference_syntax(value)?;
    }
    Ok(variables)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recipe_is_parsed_with_both_ways_to_write_steps() {
        let tables = r#"
from = "debian:12"
network = "egress"
description = "an app"

[[steps]]
run = "apt-get update"

[[steps]]
workdir = "/opt/app"

[[steps]]
copy = ["a", "b/c"]
to = "lib/"

[[steps]]
env = { PATH = "/opt/app/bin:${PATH}" }
"#;
        let recipe = Recipe::parse(tables).unwrap();
        assert_eq!(recipe.origin, Origin::Template("debian:12".to_owned()));
        assert_eq!(recipe.network, Network::Egress { allow: None });
        assert_eq!(recipe.description.as_deref(), Some("an app"));
        let lines: Vec<_> = recipe.steps.iter().map(|step| step.line).collect();
        assert_eq!(lines, [6, 9, 12, 16]);
        assert_eq!(recipe.steps[1].action, Action::Workdir("/opt/app".to_owned()));
        let (sources, to) = (vec!["a".to_owned(), "b/c".to_owned()], "/opt/app/lib/".to_owned());
        assert_eq!(recipe.steps[2].action, Action::Copy { sources, to });
        assert_eq!(recipe.sources().collect::<Vec<_>>(), ["a", "b/c"]);
        let array = r#"
from = "debian:12"
network = "egress"
description = "an app"
steps = [
  { run = "apt-get update" },
  { workdir = "/opt/app" },
  { copy = ["a", "b/c"], to = "lib/" },
  { env = { PATH = "/opt/app/bin:${PATH}" } },
]
"#;
        let other = Recipe::parse(array).unwrap();
        let actions =
            |recipe: &Recipe| recipe.steps.iter().map(|step| step.action.clone()).collect::<Vec<_>>();
        assert_eq!(actions(&other), actions(&recipe));
    }

    #[test]
    fn mistakes_name_their_line_and_a_remedy() {
        let step = |text: &str| format!("from = \"a\"\n\n[[steps]]\n{text}\n");
        for (text, line, message) in [
            (String::new(), 1, "add `from"),
            ("from = \"\"".to_owned(), 1, "`from` is empty"),
            ("from = 1".to_owned(), 1, "string"),
            ("from = \"a\"\nform = \"b\"".to_owned(), 2, "unknown field `form`"),
            ("from = \"a\"\nnetwork = \"on\"".to_owned(), 2, "\"egress\""),
            ("from = \"a\"\nallow = [\"x.org\"]".to_owned(), 2, "needs `network"),
            ("from = \"a\"\n[bootstrap]\nrun = \"x\"".to_owned(), 2, "not both"),
            ("from = \"a\"\ndescription = \"a\\nb\"".to_owned(), 2, "one line"),
            (step(""), 3, "has none"),
            (step("run = \"a\"\nworkdir = \"/b\""), 3, "run and workdir"),
            (step("run = \"a\"\nto = \"/b\""), 3, "belongs to `copy`"),
            (step("run = \" \""), 3, "is empty"),
            (step("runn = \"a\""), 4, "unknown field `runn`"),
            (step("copy = \"a\""), 3, "needs a destination"),
            (step("copy = []\nto = \"/x\""), 3, "needs a path"),
            (step("copy = \"../a\"\nto = \"/x\""), 3, "outside"),
            (step("copy = \"/etc/passwd\"\nto = \"/x\""), 3, "relative"),
            (step("copy = \"a\"\nto = \"/x/../../y\""), 3, "`..`"),
            (step("copy = \"a\"\nto = \"/tmp/x\""), 3, "not kept"),
            (step("workdir = \"/proc\""), 3, "not kept"),
            (step("env = { \"a-b\" = \"c\" }"), 3, "letters"),
            (step("env = { A = \"${B\" }"), 3, "${"),
            (step("run = 'a"), 4, ""),
        ] {
            let error = Recipe::parse(&text).unwrap_err();
            assert!(error.message.contains(message), "{text:?}: {error}");
            assert_eq!(error.line, line, "{text:?}: {error}");
        }
    }

    #[test]
    fn summary_has_one_line() {
        let step = |action| Step { line: 1, action }.summary();
        assert_eq!(step(Action::Run("\n  set -e\n  make\n".to_owned())), "run set -e …");
        assert_eq!(step(Action::Run("make".to_owned())), "run make");
        assert_eq!(step(Action::Run("é".repeat(100))).chars().count(), 4 + 72 + 2);
    }
}
