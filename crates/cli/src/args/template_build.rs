//! Arguments of `workspace template build`.

use std::path::PathBuf;

use clap::Args;

use super::server::Server;

/// Create a template from a recipe
///
/// A recipe is a TOML file with a template to start with (`from`) and steps (`run`, `copy`, `env`, `workdir`), which
/// run on the server. Steps whose inputs did not change since an earlier build do not run again. The result is a new
/// version of the template, NAME@VERSION. Progress goes to stderr, and the name of the version to stdout. Ctrl-C
/// cancels the build. Admins only.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace template build base
  workspace template build python
  workspace template build --name app .
  workspace template build --name app@1.4 --file recipes/app.toml --no-cache src
  workspace template build agent --print > template.toml")]
pub(crate) struct TemplateBuild {
    /// Directory with the files that the recipe copies, or a recipe of this program: base, python, node, agent
    ///
    /// Write `./python` for a directory with such a name.
    #[arg(value_name = "CONTEXT", default_value = ".")]
    pub(crate) context: PathBuf,
    /// Name of the template; with @VERSION if you do not want the next number
    #[arg(long, value_name = "NAME[@VERSION]")]
    pub(crate) name: Option<String>,
    /// Recipe [default: template.toml in CONTEXT]
    #[arg(short, long, value_name = "RECIPE")]
    pub(crate) file: Option<PathBuf>,
    /// Run all steps, also those whose results are kept from earlier builds
    #[arg(long)]
    pub(crate) no_cache: bool,
    /// Print the recipe, and build nothing
    #[arg(long)]
    pub(crate) print: bool,
    #[command(flatten)]
    pub(crate) server: Server,
}
