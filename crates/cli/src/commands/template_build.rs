//! `workspace template build`

use std::fs::{self, Metadata};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use parking_lot::Mutex;
use workspace_api::error::ErrorFields;
use workspace_api::error_codes;
use workspace_api::template_builds::{BuildEvent, BuildEventKind};
use workspace_sandbox::recipe::Recipe;
use workspace_state::Progress as _;

use super::template::{UploadReader, template_path};
use crate::args::TemplateBuild;
use crate::context::Context;
use crate::error::{CommandError, Outcome, Result, io_hint};
use crate::progress::Bars;
use crate::remote::{BuildStream, Client, RequestError, with_client};
use crate::signals::Signals;
use crate::text;

/// Recipes that come with this program.
const RECIPES: [(&str, &str); 4] = [
    ("base", include_str!("../../../../templates/base.toml")),
    ("python", include_str!("../../../../templates/python.toml")),
    ("node", include_str!("../../../../templates/node.toml")),
    ("agent", include_str!("../../../../templates/agent.toml")),
];
/// File name of a recipe in its build context, the directory with the files that it copies.
const RECIPE_FILE: &str = "template.toml";
/// Name of the recipe in the archive. The server does not count it among the files of the build context.
const ARCHIVED_RECIPE: &str = ".workspace-recipe.toml";

pub(crate) fn run(context: &mut Context, args: &TemplateBuild) -> Result<Outcome> {
    let source = RecipeSource::find(args)?;
    if args.print {
        context.output.bytes(source.text.as_bytes())?;
        return Ok(Outcome::Done);
    }
    let name = args.name.as_deref().or(source.built_in).ok_or_else(|| {
        CommandError::usage("the template has no name").hint("name it, for example: --name app")
    })?;
    let recipe = Recipe::parse(&source.text).map_err(|error| {
        CommandError::failed(format!("{}, {error}", source.label)).hint(
            "`workspace template build python --print` shows a recipe; docs/templates.md describes them",
        )
    })?;
    let files = ContextFiles { directory: source.directory, paths: copied_paths(&recipe) };
    files.check()?;
    let no_cache = if args.no_cache { "&noCache=true" } else { "" };
    let route = format!("{}/build?recipe={ARCHIVED_RECIPE}{no_cache}", template_path(name));
    with_client(&args.server, async |client| {
        let mut signals = Signals::new()?;
        tokio::select! {
            built = build(context, client, &route, source.text, files) => built,
            signal = signals.next() => {
                text::print_stderr("note: the build is cancelled; finished steps are kept for the next one");
                Err(CommandError::interrupted(signal))
            }
        }
    })
}

/// Recipe, and the directory of the files that it copies.
struct RecipeSource {
    /// Name of a recipe that comes with this program; `None` for a file.
    built_in: Option<&'static str>,
    /// Name for errors.
    label: String,
    /// Content of the recipe, as TOML.
    text: String,
    /// Build context; `None` for a recipe that comes with this program.
    directory: Option<PathBuf>,
}

impl RecipeSource {
    fn find(args: &TemplateBuild) -> Result<Self> {
        let built_in = RECIPES.iter().find(|(name, _)| args.context == Path::new(name));
        if let (Some((name, text)), None) = (built_in, &args.file) {
            let (label, text) = (format!("recipe `{name}`"), (*text).to_owned());
            return Ok(Self { built_in: Some(name), label, text, directory: None });
        }
        let file = args.file.clone().unwrap_or_else(|| args.context.join(RECIPE_FILE));
        let text = fs::read_to_string(&file).map_err(|error| {
            let hint = match error.kind() {
                ErrorKind::NotFound => {
                    format!("name the recipe with --file, or build one of {}", recipe_names().join(", "))
                }
                _ => io_hint(&error).to_owned(),
            };
            CommandError::failed(format!("cannot read {}: {error}", file.display())).hint(hint)
        })?;
        let label = file.display().to_string();
        Ok(Self { built_in: None, label, text, directory: Some(args.context.clone()) })
    }
}

fn recipe_names() -> Vec<&'static str> {
    RECIPES.iter().map(|(name, _)| *name).collect()
}

/// Returns the paths that a recipe copies, relative to the build context, without those below others.
fn copied_paths(recipe: &Recipe) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = recipe
        .sources()
        .map(|source| Path::new(source).components().filter(|name| *name != Component::CurDir).collect())
        .collect();
    paths.sort();
    paths.dedup();
    let is_below = |path: &PathBuf, other: &PathBuf| path != other && path.starts_with(other);
    let all = paths.clone();
    if all.iter().any(|path| path.as_os_str().is_empty()) {
        return vec![PathBuf::from(".")];
    }
    paths.retain(|path| !all.iter().any(|other| is_below(path, other)));
    paths
}

/// Files that a recipe copies.
struct ContextFiles {
    /// `None` for a recipe that comes with this program.
    directory: Option<PathBuf>,
    /// Paths below the directory.
    paths: Vec<PathBuf>,
}

impl ContextFiles {
    /// Fails if a path does not exist, before anything is sent. A file that cannot be read is found when it is packed.
    fn check(&self) -> Result<()> {
        let Some(directory) = &self.directory else { return Ok(()) };
        for path in &self.paths {
            let path = directory.join(path);
            fs::symlink_metadata(&path).map_err(|error| {
                CommandError::failed(format!("cannot read {}: {error}", path.display()))
                    .hint(format!("paths of `copy` are below {}", directory.display()))
            })?;
        }
        Ok(())
    }

    /// Writes an archive with the recipe and the files.
    fn pack(&self, recipe: &str, writer: impl Write) -> io::Result<()> {
        let mut archive = tar::Builder::new(writer);
        archive.follow_symlinks(false);
        if let Some(directory) = &self.directory {
            for path in &self.paths {
                let file = directory.join(path);
                if fs::symlink_metadata(&file).is_ok_and(|metadata| is_directory(&metadata)) {
                    archive.append_dir_all(path, &file)?;
                } else {
                    archive.append_path_with_name(&file, path)?;
                }
            }
        }
        let mut header = tar::Header::new_gnu();
        header.set_size(recipe.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, ARCHIVED_RECIPE, recipe.as_bytes())?;
        archive.finish()
    }
}

fn is_directory(metadata: &Metadata) -> bool {
    metadata.file_type().is_dir()
}

async fn build(
    context: &mut Context,
    client: &Client,
    route: &str,
    recipe: String,
    files: ContextFiles,
) -> Result<Outcome> {
    let (reader, writer) = io::pipe().map_err(|error| cannot_pack(&error))?;
    let packing = thread::spawn(move || files.pack(&recipe, writer));
    let progress = Arc::new(Bars::new());
    progress.begin_bytes("sending", None);
    let read_error = Arc::new(Mutex::new(None));
    let reader: Box<dyn Read + Send> = Box::new(reader);
    let reader =
        UploadReader { reader, progress: Arc::clone(&progress), read_error: Arc::clone(&read_error) };
    let started = BuildStream::start(client, route, Box::new(reader)).await;
    progress.end();
    // A local error ends the upload early, and the server then reports another error. The local one is the cause.
    let packed = match started.is_ok() || packing.is_finished() {
        // The server may respond before it has the whole archive. A task of this thread sends the rest, so this thread
        // must not block in `join`.
        true => tokio::task::spawn_blocking(move || packing.join().unwrap_or(Ok(()))).await.unwrap_or(Ok(())),
        false => Ok(()),
    };
    let read_error = read_error.lock().take();
    if let Some(error) = packed.err().or(read_error).filter(|error| error.kind() != ErrorKind::BrokenPipe) {
        return Err(cannot_pack(&error));
    }
    let mut stream = started.map_err(|failure| explain(failure, client))?;
    let mut steps = Steps { total: 0, current: None };
    loop {
        let event = stream.next().await?;
        if context.output.is_json() {
            context.output.record(&event)?;
            context.output.flush()?;
        } else {
            steps.show(&event)?;
        }
        match event.kind {
            BuildEventKind::Done => return finish(context, event),
            BuildEventKind::Error => return Err(failed(event.error)),
            BuildEventKind::Step | BuildEventKind::Cached | BuildEventKind::Output => {}
        }
    }
}

fn cannot_pack(error: &io::Error) -> CommandError {
    CommandError::failed(format!("cannot read the files of the recipe: {error}")).hint(io_hint(error))
}

/// Explains a build that was refused.
fn explain(failure: RequestError, client: &Client) -> CommandError {
    let hint = if failure.is(error_codes::FORBIDDEN) {
        "only admins may build templates: use an admin key"
    } else if failure.is(error_codes::PAYLOAD_TOO_LARGE) {
        "copy fewer files, or raise MAX_BUILD_CONTEXT of the server"
    } else if failure.is(error_codes::NOT_IMPLEMENTED) {
        "build an image with the container engine of the server, and name it with `--template`"
    } else {
        return client.explain(failure);
    };
    CommandError { hints: vec![hint.to_owned()], ..client.explain(failure) }
}

/// Prints the name of the template with the version that was built, such as `app@2`.
fn finish(context: &mut Context, event: BuildEvent) -> Result<Outcome> {
    let Some(template) = event.template else {
        return Err(CommandError::failed("the server did not name the template"));
    };
    if context.output.is_json() {
        return Ok(Outcome::Done);
    }
    if event.created == Some(false) {
        text::print_stderr("note: the newest version has the same content, so there is no new one");
    }
    context.output.line(text::escape_controls(&template.name))?;
    Ok(Outcome::Done)
}

fn failed(error: Option<ErrorFields>) -> CommandError {
    let Some(error) = error else { return CommandError::failed("the build failed") };
    let is = |code: error_codes::ErrorCode| error.name == code.name;
    let failed = CommandError::failed(error.message.clone());
    if is(error_codes::BUILD_FAILED) {
        return failed.hint("finished steps are kept: correct the recipe, and run the same command again");
    }
    if is(error_codes::TEMPLATE_EXISTS) {
        return failed.hint("choose another name or version: versions are never replaced");
    }
    failed
}

/// Steps as they are shown on stderr.
struct Steps {
    total: usize,
    /// Number and start of the step that runs.
    current: Option<(usize, Instant)>,
}

impl Steps {
    fn show(&mut self, event: &BuildEvent) -> Result<()> {
        match event.kind {
            BuildEventKind::Step => {
                self.end();
                let (step, total) = (event.step.unwrap_or_default(), event.steps.unwrap_or_default());
                self.total = total;
                self.current = Some((step, Instant::now()));
                text::print_stderr(&format!(
                    "[{step}/{total}] {}",
                    event.text.as_deref().unwrap_or_default()
                ));
            }
            BuildEventKind::Cached => {
                if let Some((step, _)) = self.current.take() {
                    text::print_stderr(&format!("[{step}/{}] cached", self.total));
                }
            }
            BuildEventKind::Output => return write_output(event),
            BuildEventKind::Done => self.end(),
            BuildEventKind::Error => {}
        }
        Ok(())
    }

    /// Shows the duration of the step that has ended.
    fn end(&mut self) {
        if let Some((step, began)) = self.current.take() {
            text::print_stderr(&format!("[{step}/{}] {:.1} s", self.total, began.elapsed().as_secs_f64()));
        }
    }
}

/// Writes output of a step as it is.
fn write_output(event: &BuildEvent) -> Result<()> {
    let bytes = match (&event.data, &event.data_base64) {
        (Some(text), _) => text.as_bytes().to_vec(),
        (None, Some(base64)) => BASE64_STANDARD
            .decode(base64)
            .map_err(|_| CommandError::failed("the server sent output that is not base64"))?,
        (None, None) => Vec::new(),
    };
    // A failure to write to stderr cannot be reported.
    let _ = io::stderr().lock().write_all(&bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recipes_of_this_program_are_valid() {
        for (name, text) in RECIPES {
            let recipe = Recipe::parse(text).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(recipe.description.is_some() && copied_paths(&recipe).is_empty(), "{name}");
        }
    }

    #[test]
    fn only_copied_files_are_packed() {
        let recipe = |copies: &str| {
            let text = format!("from = \"a\"\n[[steps]]\ncopy = {copies}\nto = \"/x/\"\n");
            copied_paths(&Recipe::parse(&text).unwrap())
        };
        assert_eq!(recipe("[\"a\", \"b/c\", \"./a/d\", \"ab\"]"), ["a", "ab", "b/c"].map(PathBuf::from));
        assert_eq!(recipe("[\"a\", \".\"]").len(), 1);
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("src")).unwrap();
        fs::write(directory.path().join("src/a"), "1").unwrap();
        fs::write(directory.path().join("secret"), "2").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", directory.path().join("src/link")).unwrap();
        let files = ContextFiles { directory: Some(directory.path().to_owned()), paths: vec!["src".into()] };
        let mut packed = Vec::new();
        files.pack("from = \"a\"", &mut packed).unwrap();
        let mut archive = tar::Archive::new(packed.as_slice());
        let mut names: Vec<_> = archive
            .entries()
            .unwrap()
            .map(|entry| entry.unwrap().path().unwrap().to_string_lossy().trim_end_matches('/').to_owned())
            .collect();
        names.sort();
        assert_eq!(names, [ARCHIVED_RECIPE, "src", "src/a", "src/link"]);
        let missing =
            ContextFiles { directory: Some(directory.path().to_owned()), paths: vec!["none".into()] };
        assert!(missing.check().is_err());
    }
}
