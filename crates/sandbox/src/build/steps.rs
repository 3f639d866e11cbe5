//! A build, from the recipe to the template.

use std::collections::BTreeMap;

use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::sleep;
use workspace_catalog::{EventKind, NewEvent};
use workspace_state::{Cancel, Expect, NewSnapshot, Snapshot, SnapshotRoot, Store, Tree, VirtualTree};
use workspace_workspace::WorkspaceError;

use super::cache::new_step_reference;
use super::context::{BuildContext, ContextFiles};
use super::copy::{self, CopyError};
use super::progress::{BuildEvent, Reports};
use super::publish::Finished;
use super::recipe::{Action, Origin, Recipe, Step};
use super::run_step::{Outcome, StepCommand, StepUser};
use super::step_key::{self, Parent};
use super::variables::expand;
use crate::blocking::blocking;
use crate::config::{NewSandbox, check_envs};
use crate::error::{Result, SandboxError};
use crate::lifecycle::cancellable::or_cancelled;
use crate::lifecycle::create::Creator;
use crate::root::mode::RootMode;
use crate::root::roots::find_snapshot;
use crate::service::Service;
use crate::template::{ImportedTemplate, TemplateError, check_template_name, split_version};

/// Use of results of earlier builds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CacheMode {
    /// A step whose result is kept does not run again.
    #[default]
    Use,
    /// All steps run, and their results replace those that are kept.
    Ignore,
}

/// Request for a build.
#[derive(Debug)]
pub struct BuildRequest {
    /// Name of the template, with a version if the next number is not wanted.
    pub name: String,
    /// Recipe and context.
    pub context: BuildContext,
    /// Use of results of earlier builds.
    pub cache: CacheMode,
    /// Owner of the sandboxes, and their quota.
    pub creator: Creator,
    /// Name of the key that builds.
    pub created_by: Option<String>,
}

/// Result of a build.
#[derive(Debug, Clone)]
pub struct BuiltTemplate {
    /// The template.
    pub template: ImportedTemplate,
    /// False if the newest version already had the same content.
    pub is_new: bool,
    /// Number of all steps.
    pub steps: usize,
    /// Number of steps that did not have to run.
    pub cached: usize,
}

impl Service {
    /// Builds a template. Reports go to `events`. The build is cancelled when the future is dropped, or the receiver.
    pub async fn build_template(
        &self,
        request: BuildRequest,
        events: mpsc::Sender<BuildEvent>,
    ) -> Result<BuiltTemplate> {
        check_template_name(&request.name)?;
        self.imported_templates()?;
        self.0.roots.available().await?;
        self.cancellable(|service, cancel| async move {
            service.build_within_limit(request, events, &cancel).await
        })
        .await
    }

    async fn build_within_limit(
        &self,
        request: BuildRequest,
        events: mpsc::Sender<BuildEvent>,
        cancel: &Cancel,
    ) -> Result<BuiltTemplate> {
        let limit = self.0.settings.build_timeout;
        // Set with `cancel`, and when the time limit is over.
        let late = cancel.child();
        let timeout = {
            let late = late.clone();
            tokio::spawn(async move {
                sleep(limit).await;
                late.cancel();
            })
        };
        let built = self.build(request, events, &late).await;
        timeout.abort();
        self.prune_build_cache().await;
        match built {
            Err(SandboxError::Cancelled) if late.is_cancelled() && !cancel.is_cancelled() => {
                Err(SandboxError::BuildTimeout { seconds: limit.as_secs() })
            }
            built => built,
        }
    }

    async fn build(
        &self,
        request: BuildRequest,
        events: mpsc::Sender<BuildEvent>,
        cancel: &Cancel,
    ) -> Result<BuiltTemplate> {
        let _permit = or_cancelled(cancel, self.0.builds.permits.acquire()).await?;
        let BuildRequest { name, context, cache, creator, created_by } = request;
        let BuildContext { recipe, files, cache_guard: _cache_guard } = context;
        let owner = creator.owner.clone();
        let mut build = Build {
            service: self,
            sandbox: NewSandbox { network: recipe.network.clone(), ..self.build_sandbox(&name, created_by) },
            files,
            cache,
            creator,
            reports: Reports::new(events, self.0.settings.max_build_output_bytes, cancel),
            cancel,
            total: recipe.step_count(),
            number: 0,
            cached: 0,
        };
        let (mut state, from) = build.begin(&recipe).await?;
        for step in &recipe.steps {
            build.step(step, &mut state).await?;
        }
        let (stem, version) = split_version(&name);
        let finished = Finished {
            name: stem.to_owned(),
            version: version.map(str::to_owned),
            root: state.root()?.clone(),
            envs: state.envs,
            from,
            description: recipe.description,
        };
        let (template, is_new) = self.publish(finished, cancel).await?;
        let built = BuiltTemplate { template, is_new, steps: build.total, cached: build.cached };
        self.emit_built(&owner, &built).await;
        Ok(built)
    }

    /// Emits the event of a new template. The template is there even if that fails.
    async fn emit_built(&self, owner: &str, built: &BuiltTemplate) {
        if !built.is_new {
            return;
        }
        let template = &built.template;
        let data = json!({
            "template": template.name,
            "owner": owner,
            "from": template.build.as_ref().and_then(|build| build.from.as_deref()),
            "size": template.size,
        });
        let event = NewEvent { kind: EventKind::TemplateBuilt, data };
        if let Err(error) = self.0.catalog.events().insert(Some(owner), None, &event).await {
            tracing::warn!(template = template.name, %error, "failed to emit the event of a built template");
        }
    }
}

/// A build in progress.
struct Build<'a> {
    service: &'a Service,
    /// Parameters of all its sandboxes.
    sandbox: NewSandbox,
    files: ContextFiles,
    cache: CacheMode,
    creator: Creator,
    reports: Reports,
    cancel: &'a Cancel,
    /// Number of all steps.
    total: usize,
    /// Number of the present step, from 1.
    number: usize,
    /// Number of steps that did not have to run.
    cached: usize,
}

/// State of a build after the steps so far.
struct BuildState {
    /// Snapshot with the root filesystem.
    snapshot: Snapshot,
    /// Environment variables.
    envs: BTreeMap<String, String>,
    /// Working directory.
    workdir: String,
}

impl BuildState {
    fn root(&self) -> Result<&SnapshotRoot> {
        let root = self.snapshot.root.as_deref();
        Ok(root.ok_or(WorkspaceError::NoRoot(self.snapshot.id))?)
    }

    fn parent(&self) -> Result<Parent<'_>> {
        Ok(Parent { root: self.root()?, workspace: self.snapshot.tree })
    }
}

impl Build<'_> {
    /// Returns the state before the first step, and the template that it comes from; `None` if the recipe makes its own
    /// root filesystem.
    async fn begin(&mut self, recipe: &Recipe) -> Result<(BuildState, Option<String>)> {
        let (snapshot, envs, from) = match &recipe.origin {
            Origin::Template(name) => {
                let template = self.service.template_to_build_from(name)?;
                let id = self.service.template_base(&template.name, self.cancel).await?;
                let find =
                    move |workspaces: &workspace_workspace::Workspaces| find_snapshot(workspaces.store(), id);
                (self.service.on_workspaces(find).await?, template.envs, Some(template.name))
            }
            Origin::Bootstrap { run } => (self.bootstrap(recipe, run).await?, BTreeMap::new(), None),
        };
        Ok((BuildState { snapshot, envs, workdir: "/".to_owned() }, from))
    }

    async fn bootstrap(&mut self, recipe: &Recipe, run: &str) -> Result<Snapshot> {
        self.begin_step(recipe.origin.summary().unwrap_or_default()).await?;
        let key = step_key::of_bootstrap(run, &recipe.network);
        if let Some(snapshot) = self.find_kept(&key).await? {
            return Ok(snapshot);
        }
        let reference = new_step_reference();
        let step = (run, self.sandbox.clone(), reference.as_str());
        let outcome = self.service.make_root(&self.creator, step, &mut self.reports, self.cancel).await?;
        // A parsed recipe has no line of `[bootstrap]`.
        let snapshot = self.succeeded(outcome, 1)?;
        self.service.keep_step(&key, &reference, snapshot).await
    }

    async fn step(&mut self, step: &Step, state: &mut BuildState) -> Result<()> {
        self.begin_step(step.summary()).await?;
        match &step.action {
            Action::Env(variables) => return self.set_variables(variables, step.line, state),
            Action::Workdir(path) => state.workdir.clone_from(path),
            Action::Run(_) | Action::Copy { .. } => {}
        }
        let key = self.key(step, state).await?;
        if let Some(snapshot) = self.find_kept(&key).await? {
            state.snapshot = snapshot;
            return Ok(());
        }
        let reference = new_step_reference();
        let snapshot = match &step.action {
            Action::Run(command) => self.run(command, step.line, &reference, state).await?,
            action => self.change_tree(action, step.line, &reference, state).await?,
        };
        state.snapshot = self.service.keep_step(&key, &reference, snapshot).await?;
        Ok(())
    }

    async fn begin_step(&mut self, text: String) -> Result<()> {
        self.number += 1;
        self.reports.send(BuildEvent::Step { number: self.number, total: self.total, text }).await
    }

    /// Returns the kept result of the present step, and reports it; `None` if the step has to run.
    async fn find_kept(&mut self, key: &str) -> Result<Option<Snapshot>> {
        if self.cache == CacheMode::Ignore {
            self.service.forget_step(key).await?;
            return Ok(None);
        }
        let found = self.service.find_step(key).await?;
        if found.is_some() {
            self.cached += 1;
            self.reports.send(BuildEvent::Cached { number: self.number }).await?;
        }
        Ok(found)
    }

    fn set_variables(
        &mut self,
        variables: &BTreeMap<String, String>,
        line: usize,
        state: &mut BuildState,
    ) -> Result<()> {
        let mut envs = state.envs.clone();
        for (name, value) in variables {
            let value = expand(value, &state.envs).map_err(|reason| self.failed(reason, line, None))?;
            envs.insert(name.clone(), value);
        }
        check_envs(&envs)?;
        state.envs = envs;
        Ok(())
    }

    async fn key(&self, step: &Step, state: &BuildState) -> Result<String> {
        let parent = state.parent()?;
        Ok(match &step.action {
            Action::Copy { sources, to } => {
                let store = self.store();
                let (context, sources_of_step) = (self.files.tree(&store), sources.clone());
                let copied = move || {
                    let empty = store.empty_tree()?;
                    copy::copied_tree(empty, &context?, &sources_of_step)
                };
                let copied = blocking(copied).await?.map_err(|error| self.copy_error(error, step.line))?;
                parent.of_copy(copied, sources, to)
            }
            Action::Run(command) => {
                parent.of_run(command, &state.workdir, &state.envs, &self.sandbox.network)
            }
            // `env` changes no files and has no key.
            Action::Workdir(_) | Action::Env(_) => parent.of_directory(&state.workdir),
        })
    }

    async fn run(
        &mut self,
        command: &str,
        line: usize,
        reference: &str,
        state: &BuildState,
    ) -> Result<Snapshot> {
        let step = StepCommand {
            command,
            workdir: Some(&state.workdir),
            sandbox: NewSandbox {
                template: state.root()?.template.clone(),
                snapshot: Some(state.snapshot.id),
                root: RootMode::Kept,
                envs: state.envs.clone(),
                ..self.sandbox.clone()
            },
            user: StepUser::Root,
            reference,
        };
        let outcome = self.service.run_step(&self.creator, step, &mut self.reports, self.cancel).await?;
        self.succeeded(outcome, line)
    }

    /// Executes a step that needs no sandbox.
    async fn change_tree(
        &self,
        action: &Action,
        line: usize,
        reference: &str,
        state: &BuildState,
    ) -> Result<Snapshot> {
        let (store, parent, action) = (self.store(), state.snapshot.clone(), action.clone());
        let context = self.files.tree(&store);
        let reference = reference.to_owned();
        let root = state.root()?.clone();
        let change = move || {
            let mut tree = VirtualTree::over(&Tree::open(&store, root.tree, Some(root.times))?)?;
            match &action {
                Action::Copy { sources, to } => copy::copy(&mut tree, &context?, sources, to)?,
                Action::Workdir(path) => copy::make_directory(&mut tree, path)?,
                Action::Run(_) | Action::Env(_) => {}
            }
            let new = NewSnapshot {
                parents: vec![parent.id],
                root: Some(tree.into_root(&root.template)?),
                references: vec![(reference, Expect::Absent)],
                ..NewSnapshot::with_message("step of a template build")
            };
            let mut workspace = VirtualTree::over(&Tree::of_snapshot(&store, &parent)?)?;
            Ok(workspace.commit(new)?)
        };
        blocking(change).await?.map_err(|error| self.copy_error(error, line))
    }

    /// Returns the store, whose operations are cancelled with the build.
    fn store(&self) -> Store {
        self.service.0.workspaces.store().with_cancel(self.cancel.clone())
    }

    fn succeeded(&self, outcome: Outcome, line: usize) -> Result<Snapshot> {
        match outcome {
            Outcome::Done(snapshot) => Ok(snapshot),
            Outcome::Failed(reason, exit_code) => Err(self.failed(reason, line, exit_code)),
        }
    }

    fn copy_error(&self, error: CopyError, line: usize) -> SandboxError {
        match error {
            CopyError::Invalid(reason) => self.failed(reason, line, None),
            CopyError::Tree(error) => match WorkspaceError::from(error) {
                error if error.is_cancelled() => SandboxError::Cancelled,
                error => error.into(),
            },
        }
    }

    fn failed(&self, reason: String, line: usize, exit_code: Option<i32>) -> SandboxError {
        SandboxError::BuildFailed { step: self.number, line, reason, exit_code }
    }
}

impl Service {
    /// Finds the template that a recipe starts with. `base` is a built template of this name here: the files of the
    /// machine cannot be the start of a recipe.
    fn template_to_build_from(&self, name: &str) -> Result<ImportedTemplate> {
        let resolved = self.imported_templates()?.resolve(name).map_err(TemplateError::from)?;
        let hint = || format!("; import it, or build it first: workspace template build {name}");
        let missing = || SandboxError::NoTemplate { name: name.to_owned(), hint: hint() };
        resolved.map(|(template, _)| template).ok_or_else(missing)
    }
}
