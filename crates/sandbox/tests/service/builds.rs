//! Templates that are built from recipes.
//!
//! Helpers of `home.rs`: `TestHome` has the directory of a server and starts the service, `base` returns the parameters
//! of a sandbox with the template `base`, `sh` runs a shell command in a sandbox and returns its result, and `alice` is
//! the owner of all sandboxes. `import` imports a template with busybox as its only program, and `NAME=mini` in
//! `/etc/os-release`.
//!
//! Store references of builds: `template-contexts/` for the files that clients sent, `template-steps/` for cached
//! results of steps, and `template-roots/` for root filesystems of templates.

use std::process::Command;
use std::time::Duration;

use libtest_mimic::Trial;
use tokio::sync::mpsc;
use workspace_catalog::{EventKind, Filter};
use workspace_sandbox::template::TemplateError;
use workspace_sandbox::{
    BuildEvent, BuildRequest, BuiltTemplate, CacheMode, NewSandbox, RECIPE_FILE, Result, RootMode,
    SandboxError, SandboxInfo, Scope, Service,
};

use crate::home::{TIMEOUT, TestHome, agent_program, alice, base, creator, sh, wait_until};
use crate::kind::RuntimeKind;
use crate::roots::import;
use crate::trials;

/// Template that recipes start from.
const FROM: &str = "mini:1";

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for kind in RuntimeKind::available()
        .into_iter()
        .filter(|kind| matches!(kind, RuntimeKind::Docker | RuntimeKind::Oci))
    {
        trials.push(Trial::test(format!("{}::templates_cannot_be_built", kind.name()), move || {
            crate::home::run(kind, |home| Box::pin(templates_cannot_be_built(home)));
            Ok(())
        }));
    }
    let all = trials![
        recipe_becomes_a_template,
        root_made_with_programs_of_the_machine_becomes_a_template,
        steps_run_again_only_if_an_input_changed,
        failed_step_keeps_the_steps_before_it,
        copies_that_cannot_be_made_fail_the_build,
        cancelled_build_leaves_no_sandbox,
        context_that_waits_for_its_build_is_kept,
        build_has_a_time_limit,
        output_beyond_the_limit_is_dropped,
        next_server_removes_sandboxes_of_builds_and_continues,
        old_results_are_removed_and_templates_stay,
        versions_are_immutable,
        hostile_contexts_are_refused_or_harmless,
        hostile_names_are_refused,
        client_that_leaves_cancels_the_build,
        full_sandbox_fails_the_step,
    ];
    trials.extend(all.into_iter().filter(|trial| trial.name().starts_with("embedded::")));
    trials
}

/// Reports and result of a build.
#[derive(Debug)]
struct Build {
    events: Vec<BuildEvent>,
    result: Result<BuiltTemplate>,
}

impl Build {
    fn built(&self) -> &BuiltTemplate {
        self.result.as_ref().unwrap_or_else(|error| panic!("{error}: {}", self.output()))
    }

    fn output(&self) -> String {
        let mut output = String::new();
        for event in &self.events {
            if let BuildEvent::Output { data, .. } = event {
                output.push_str(&String::from_utf8_lossy(data));
            }
        }
        output
    }

    /// Numbers of the steps that did not run.
    fn cached(&self) -> Vec<usize> {
        let number = |event: &BuildEvent| match event {
            BuildEvent::Cached { number } => Some(*number),
            _ => None,
        };
        self.events.iter().filter_map(number).collect()
    }
}

fn archive(files: &[(&str, &str)]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o755);
        archive.append_data(&mut header, path, content.as_bytes()).unwrap();
    }
    archive.into_inner().unwrap()
}

async fn receive(service: &Service, archive: &[u8]) -> Result<workspace_sandbox::BuildContext> {
    let mut file = service.receive_template()?;
    std::io::Write::write_all(&mut file, archive).unwrap();
    service.receive_build(file, RECIPE_FILE).await
}

/// Starts the build of a template from a context with these files. Returns the receiver of its events, and the build.
async fn start_build(
    service: &Service,
    name: &str,
    files: &[(&str, &str)],
    cache: CacheMode,
) -> (mpsc::Receiver<BuildEvent>, impl Future<Output = Result<BuiltTemplate>> + Send + 'static) {
    let context = receive(service, &archive(files)).await.unwrap();
    let (sender, receiver) = mpsc::channel(16);
    let request =
        BuildRequest { name: name.to_owned(), context, cache, creator: creator(), created_by: None };
    let service = service.clone();
    (receiver, async move { service.build_template(request, sender).await })
}

/// Builds a template from a context with these files, and collects the events.
async fn build_with(service: &Service, name: &str, files: &[(&str, &str)], cache: CacheMode) -> Build {
    let (mut receiver, build) = start_build(service, name, files, cache).await;
    let mut events = Vec::new();
    let read = async {
        while let Some(event) = receiver.recv().await {
            events.push(event);
        }
    };
    let (result, ()) = tokio::time::timeout(TIMEOUT, async { tokio::join!(build, read) }).await.unwrap();
    Build { events, result }
}

/// Builds a template from a recipe without other files. Results of earlier builds may be used.
async fn build(service: &Service, name: &str, recipe: &str) -> Build {
    build_with(service, name, &[(RECIPE_FILE, recipe)], CacheMode::Use).await
}

async fn start(home: &TestHome) -> Service {
    let service = home.start().await;
    import(&service, FROM).await;
    service
}

async fn create(service: &Service, template: &str, root: RootMode) -> SandboxInfo {
    let new = NewSandbox { template: template.to_owned(), root, ..base() };
    service.create(creator(), new).await.unwrap()
}

async fn sandbox_count(service: &Service) -> u64 {
    service.list(&Scope::All, Filter::default()).await.unwrap().1
}

fn references(service: &Service, prefix: &str) -> usize {
    service.workspaces().store().references_with_prefix(prefix).unwrap().len()
}

async fn recipe_becomes_a_template(home: &TestHome) {
    let service = start(home).await;
    let recipe = r#"
from = "mini:1"
description = "says hello"

[[steps]]
env = { GREETING = "hello", PATH = "/opt/app:${PATH}" }

[[steps]]
workdir = "/opt/app"

[[steps]]
copy = "src"
to = "."

[[steps]]
run = "echo \"$GREETING in $PWD\" > made && cat made greet && mkdir -p /etc/app && echo 1 > /etc/app/x && rm /etc/os-release"
"#;
    let files = [(RECIPE_FILE, recipe), ("src/greet", "#!/bin/sh\necho $GREETING\n"), ("unused", "x")];
    let build = build_with(&service, "hello", &files, CacheMode::Use).await;
    let built = build.built();
    assert_eq!((built.template.name.as_str(), built.is_new), ("hello@1", true));
    assert_eq!((built.steps, built.cached), (4, 0));
    assert_eq!(built.template.envs["GREETING"], "hello");
    assert_eq!(build.output(), "hello in /opt/app\n#!/bin/sh\necho $GREETING\n");
    let steps: Vec<_> = build
        .events
        .iter()
        .filter_map(|event| match event {
            BuildEvent::Step { number, total, text } => Some(format!("[{number}/{total}] {text}")),
            _ => None,
        })
        .collect();
    assert_eq!(steps[1..3], ["[2/4] workdir /opt/app", "[3/4] copy src /opt/app"]);
    assert_eq!(sandbox_count(&service).await, 0);
    assert_eq!(references(&service, "template-contexts/"), 0);
    // By name and by version, with a kept and with a discarded root.
    for (name, root) in [("hello", RootMode::Discarded), ("hello@1", RootMode::Kept)] {
        let info = create(&service, name, root).await;
        assert_eq!(info.sandbox.template, "hello@1");
        let ran = sh(&service, &info, "greet; cat /opt/app/made /etc/app/x; ls /etc/os-release; pwd").await;
        assert_eq!(ran.stdout, "hello\nhello in /opt/app\n1\n/workspace\n", "{ran:?}");
        assert!(ran.stderr.contains("No such file"), "{ran:?}");
    }
    let listed = service.templates().await.unwrap();
    let listed = listed.iter().find(|template| template.name == "hello@1").unwrap();
    assert!(listed.present && listed.description == "says hello" && listed.size > Some(0));
    let events = home.catalog().await.events().after(0, 1_000).await.unwrap();
    let event = events.iter().find(|event| event.kind == EventKind::TemplateBuilt.as_str()).unwrap();
    assert_eq!((event.owner.as_deref(), &event.data["template"]), (Some("alice"), &"hello@1".into()));
    // It is in use, and is removed by its version only.
    let removed = service.remove_template("hello@1").await;
    assert!(matches!(removed, Err(SandboxError::TemplateUsed { .. })), "{removed:?}");
    for info in service.list(&Scope::All, Filter::default()).await.unwrap().0 {
        let policy = workspace_sandbox::ReclaimPolicy::Delete;
        service.remove(&alice(), &info.sandbox.id, policy).await.unwrap();
    }
    let removed = service.remove_template("hello").await.unwrap_err();
    assert!(removed.to_string().contains("hello@1"), "{removed}");
    let roots = references(&service, "template-roots/");
    // The files of a removed sandbox are removed in the background.
    wait_until("the root is unused", async || {
        let pins = service.workspaces().store().pins().unwrap();
        !pins.iter().any(|pin| pin.holder.contains("roots"))
    })
    .await;
    service.remove_template("hello@1").await.unwrap();
    assert_eq!(references(&service, "template-roots/"), roots - 1);
    assert!(service.template("hello").is_err());
}

async fn root_made_with_programs_of_the_machine_becomes_a_template(home: &TestHome) {
    let service = home.start().await;
    let libraries = Command::new("ldd").arg(agent_program()).output().unwrap();
    let libraries = String::from_utf8(libraries.stdout).unwrap();
    let libraries: Vec<_> = libraries.split_whitespace().filter(|word| word.starts_with('/')).collect();
    let recipe = format!(
        r#"
[bootstrap]
run = """
set -e
mkdir -p root/bin root/etc
cp "$(command -v busybox)" root/bin/busybox
for name in sh cat id; do ln -s busybox root/bin/$name; done
for library in {}; do mkdir -p "root$(dirname $library)"; cp $library root$library; done
"""

[[steps]]
run = "id > /etc/built-by"
"#,
        libraries.join(" ")
    );
    let build = build(&service, "tiny", &recipe).await;
    assert_eq!((build.built().template.name.as_str(), build.built().steps), ("tiny@1", 2));
    let info = create(&service, "tiny", RootMode::Kept).await;
    let ran = sh(&service, &info, "cat /etc/built-by").await;
    let user = if rustix::process::geteuid().is_root() { "uid=0" } else { "uid=1000" };
    assert!(ran.stdout.starts_with(user), "{ran:?}");
    let again = self::build(&service, "tiny", &recipe).await;
    assert_eq!((again.cached(), again.built().is_new), (vec![1, 2], false));
    let nothing = self::build(&service, "tiny", "[bootstrap]\nrun = \"true\"").await;
    let reason = nothing.result.unwrap_err().to_string();
    assert!(reason.contains("/workspace/root"), "{reason}");
    assert_eq!(references(&service, "template-steps/"), 2);
}

async fn steps_run_again_only_if_an_input_changed(home: &TestHome) {
    let service = start(home).await;
    let recipe = |first: &str, value: &str, directory: &str, last: &str| {
        format!(
            "from = \"mini:1\"\n[[steps]]\nrun = \"{first}\"\n[[steps]]\ncopy = \"a\"\nto = \"/opt/\"\n[[steps]]\nenv = {{ \
             V = \"{value}\" }}\n[[steps]]\nworkdir = \"{directory}\"\n[[steps]]\nrun = \"{last}\"\n"
        )
    };
    let run = async |recipe: &str, content: &str, cache| {
        build_with(&service, "app", &[(RECIPE_FILE, recipe), ("a", content), ("b", content)], cache).await
    };
    let first = recipe("echo 1 > /one", "1", "/srv", "echo $V > /last");
    assert_eq!(run(&first, "1", CacheMode::Use).await.cached(), [0; 0]);
    let again = run(&first, "1", CacheMode::Use).await;
    assert_eq!(again.cached(), [1, 2, 4, 5]);
    assert_eq!((again.built().is_new, again.built().template.name.as_str()), (false, "app@1"));
    for (changed, content, cached) in [
        (recipe("echo 1 > /one", "1", "/srv", "echo new > /last"), "1", vec![1, 2, 4]),
        (recipe("echo 1 > /one", "1", "/mnt", "echo $V > /last"), "1", vec![1, 2]),
        (recipe("echo 1 > /one", "2", "/srv", "echo $V > /last"), "1", vec![1, 2, 4]),
        (first.clone(), "2", vec![1]),
        (recipe("echo 2 > /one", "1", "/srv", "echo $V > /last"), "1", vec![]),
    ] {
        let build = run(&changed, content, CacheMode::Use).await;
        assert_eq!(build.cached(), cached, "{changed}");
        assert!(build.built().is_new, "{changed}");
    }
    // All versions are there, and results of all of them are kept.
    assert_eq!(service.template("app").unwrap().name, "app@6");
    assert_eq!(run(&first, "1", CacheMode::Use).await.cached(), [1, 2, 4, 5]);
    let ignored = run(&first, "1", CacheMode::Ignore).await;
    assert_eq!(ignored.cached(), [0; 0]);
    assert_eq!(run(&first, "1", CacheMode::Use).await.cached(), [1, 2, 4, 5]);
    // A build from another template, which has other files.
    import(&service, "mini:2").await;
    let other = build_with(
        &service,
        "app",
        &[(RECIPE_FILE, &first.replace("mini:1", "mini:2")), ("a", "1")],
        CacheMode::Use,
    )
    .await;
    assert_eq!(other.cached(), [0; 0]);
}

async fn failed_step_keeps_the_steps_before_it(home: &TestHome) {
    let service = start(home).await;
    let recipe = |last: &str| {
        format!("from = \"mini:1\"\n[[steps]]\nrun = \"echo 1 > /one\"\n[[steps]]\nrun = \"{last}\"\n")
    };
    let failed = build(&service, "app", &recipe("echo about to fail; echo 2 > /one; exit 3")).await;
    match failed.result.as_ref().unwrap_err() {
        SandboxError::BuildFailed { step: 2, line: 4, exit_code: Some(3), .. } => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(failed.output(), "about to fail\n");
    assert_eq!(sandbox_count(&service).await, 0);
    assert!(service.template("app").is_err());
    let fixed = build(&service, "app", &recipe("cat /one")).await;
    assert_eq!((fixed.cached(), fixed.output().as_str()), (vec![1], "1\n"));
    assert_eq!(fixed.built().template.name, "app@1");
    // A variable that does not exist, and a template that does not exist.
    let unknown = "from = \"mini:1\"\n[[steps]]\nenv = { A = \"$B\" }\n";
    let failed = build(&service, "app", unknown).await.result.unwrap_err();
    assert!(matches!(failed, SandboxError::BuildFailed { step: 1, line: 2, .. }), "{failed}");
    let failed = build(&service, "app", "from = \"missing\"").await.result.unwrap_err();
    assert!(matches!(failed, SandboxError::NoTemplate { .. }), "{failed}");
    let failed = build(&service, "app", "from = \"base\"").await.result.unwrap_err();
    assert!(failed.to_string().contains("workspace template build base"), "{failed}");
}

async fn copies_that_cannot_be_made_fail_the_build(home: &TestHome) {
    let service = start(home).await;
    for copy in ["copy = \"missing\"\nto = \"/x\"", "copy = \"a\"\nto = \"/etc/os-release/x\""] {
        let recipe = format!("from = \"mini:1\"\n[[steps]]\n{copy}\n");
        let failed = build_with(&service, "app", &[(RECIPE_FILE, &recipe), ("a", "1")], CacheMode::Use).await;
        let error = failed.result.unwrap_err();
        assert!(
            matches!(error, SandboxError::BuildFailed { step: 1, line: 2, exit_code: None, .. }),
            "{error}"
        );
    }
}

/// Recipe whose last step writes output and does not end.
const ENDLESS: &str =
    "from = \"mini:1\"\n[[steps]]\nrun = \"echo 1 > /one\"\n[[steps]]\nrun = \"echo started; sleep 1000\"\n";

/// Reads events until the last step of [`ENDLESS`] writes.
async fn wait_for_output(receiver: &mut mpsc::Receiver<BuildEvent>) {
    let wait = async {
        while let Some(event) = receiver.recv().await {
            if matches!(event, BuildEvent::Output { .. }) {
                return;
            }
        }
        panic!("the build ended");
    };
    tokio::time::timeout(TIMEOUT, wait).await.unwrap();
}

async fn cancelled_build_leaves_no_sandbox(home: &TestHome) {
    let service = start(home).await;
    let (mut receiver, build) = start_build(&service, "app", &[(RECIPE_FILE, ENDLESS)], CacheMode::Use).await;
    let task = tokio::spawn(build);
    wait_for_output(&mut receiver).await;
    assert_eq!(sandbox_count(&service).await, 1);
    task.abort();
    wait_until("the sandbox is removed", async || sandbox_count(&service).await == 0).await;
    wait_until("the context is removed", async || references(&service, "template-contexts/") == 0).await;
    let next = self::build(&service, "app", &ENDLESS.replace("sleep 1000", "cat /one")).await;
    assert_eq!((next.cached(), next.output().as_str()), (vec![1], "started\n1\n"));
}

async fn context_that_waits_for_its_build_is_kept(home: &TestHome) {
    let service = start(home).await;
    let (_receiver, waiting) =
        start_build(&service, "app", &[(RECIPE_FILE, "from = \"mini:1\"\n")], CacheMode::Use).await;
    // A collection removes what builds that have ended left.
    service.collect().await.unwrap();
    assert_eq!(waiting.await.unwrap().template.name, "app@1");
    wait_until("the context is removed", async || references(&service, "template-contexts/") == 0).await;
}

async fn client_that_leaves_cancels_the_build(home: &TestHome) {
    let service = start(home).await;
    let endless = ENDLESS.replace("sleep 1000", "while true; do echo more; done");
    let (mut receiver, build) =
        start_build(&service, "app", &[(RECIPE_FILE, &endless)], CacheMode::Use).await;
    let task = tokio::spawn(build);
    wait_for_output(&mut receiver).await;
    drop(receiver);
    let result = tokio::time::timeout(TIMEOUT, task).await.unwrap().unwrap();
    assert!(matches!(result, Err(SandboxError::Cancelled)), "{result:?}");
    assert_eq!(sandbox_count(&service).await, 0);
}

async fn build_has_a_time_limit(home: &TestHome) {
    let service = home.start_with(|settings| settings.build_timeout = Duration::from_secs(3)).await;
    import(&service, FROM).await;
    let late = build(&service, "app", ENDLESS).await;
    assert!(matches!(late.result, Err(SandboxError::BuildTimeout { seconds: 3 })), "{late:?}");
    assert_eq!(sandbox_count(&service).await, 0);
}

async fn output_beyond_the_limit_is_dropped(home: &TestHome) {
    let service = home.start_with(|settings| settings.max_build_output_bytes = 10).await;
    import(&service, FROM).await;
    let recipe = "from = \"mini:1\"\n[[steps]]\nrun = \"for n in 1 2 3 4 5 6 7 8 9; do echo $n; done\"\n";
    let build = build(&service, "app", recipe).await;
    assert!(build.built().is_new);
    assert!(
        build.output().starts_with("1\n2\n3\n4\n5\nthe build has written 10 bytes"),
        "{}",
        build.output()
    );
}

async fn next_server_removes_sandboxes_of_builds_and_continues(home: &TestHome) {
    let service = start(home).await;
    let (mut receiver, build) = start_build(&service, "app", &[(RECIPE_FILE, ENDLESS)], CacheMode::Use).await;
    let task = tokio::spawn(build);
    wait_for_output(&mut receiver).await;
    let sandbox = service.list(&Scope::All, Filter::default()).await.unwrap().0.pop().unwrap().sandbox;
    // As if the server had been killed, the row of the sandbox is kept, and inserted again below.
    let copy = format!("CREATE TABLE killed AS SELECT * FROM sandboxes WHERE id = '{}'", sandbox.id);
    home.sql(&copy).await;
    service.close().await;
    drop((receiver, task.await));
    drop(service);
    home.sql("DELETE FROM sandboxes").await;
    home.sql("INSERT INTO sandboxes SELECT * FROM killed").await;
    let service = home.start().await;
    wait_until("the sandbox is removed", async || sandbox_count(&service).await == 0).await;
    let next = self::build(&service, "app", &ENDLESS.replace("sleep 1000", "cat /one")).await;
    assert_eq!((next.cached(), next.built().template.name.as_str()), (vec![1], "app@1"));
}

async fn old_results_are_removed_and_templates_stay(home: &TestHome) {
    let service = home.start_with(|settings| settings.max_kept_template_steps = 1).await;
    import(&service, FROM).await;
    let recipe =
        "from = \"mini:1\"\n[[steps]]\nrun = \"echo 1 > /one\"\n[[steps]]\nrun = \"echo 2 > /two\"\n";
    build(&service, "app", recipe).await.built();
    wait_until("one result is kept", async || {
        // Sandboxes of the build may still use the others.
        service.collect().await.unwrap();
        references(&service, "template-steps/") == 1
    })
    .await;
    let server_id = "this";
    assert_eq!(home.catalog().await.template_steps().list(server_id).await.unwrap().len(), 1);
    for root in [RootMode::Kept, RootMode::Discarded] {
        let info = create(&service, "app", root).await;
        assert_eq!(sh(&service, &info, "cat /one /two").await.stdout, "1\n2\n");
    }
    // A result whose snapshot is gone is made again.
    home.sql("UPDATE template_steps SET snapshot = '00000000000000000000000000000000'").await;
    let again = build(&service, "app", recipe).await;
    assert_eq!((again.cached(), again.built().steps), (vec![], 2));
}

async fn versions_are_immutable(home: &TestHome) {
    let service = start(home).await;
    let recipe = |text: &str| format!("from = \"mini:1\"\n[[steps]]\nrun = \"echo {text} > /text\"\n");
    let names = [
        ("app@beta", "1", "app@beta"),
        ("app", "2", "app@1"),
        ("app@7", "3", "app@7"),
        ("app", "4", "app@8"),
    ];
    for (name, text, expected) in names {
        assert_eq!(build(&service, name, &recipe(text)).await.built().template.name, expected);
    }
    let exists = build(&service, "app@7", &recipe("5")).await.result;
    assert!(matches!(exists, Err(SandboxError::Template(TemplateError::Exists { .. }))), "{exists:?}");
    // A recipe can start from a version. A name without a version is that of the newest one.
    let next = build(&service, "next", "from = \"app@1\"\n[[steps]]\nrun = \"cat /text\"\n").await;
    assert_eq!(next.output(), "2\n");
    let newest = build(&service, "next", "from = \"app\"\n[[steps]]\nrun = \"cat /text\"\n").await;
    assert_eq!((newest.output().as_str(), newest.built().template.name.as_str()), ("4\n", "next@2"));
    assert_eq!(newest.built().template.build.as_ref().unwrap().from.as_deref(), Some("app@8"));
    // Imported and built templates do not share a name.
    let taken = build(&service, FROM, &recipe("6")).await.result;
    assert!(matches!(taken, Err(SandboxError::Template(TemplateError::Exists { .. }))), "{taken:?}");
    // A snapshot of a kept root belongs to its version.
    let info = create(&service, "app@1", RootMode::Kept).await;
    let commit = service.commit(&alice(), &info.sandbox.id, Default::default()).await.unwrap();
    let snapshot = Some(commit.committed.snapshot.id);
    let new = NewSandbox { template: "app".to_owned(), root: RootMode::Kept, snapshot, ..base() };
    let again = service.create(creator(), new).await.unwrap();
    assert_eq!(again.sandbox.template, "app@1");
}

/// Returns an archive with one member of any kind, after a recipe that copies everything.
fn with_member(kind: tar::EntryType, path: &str, target: &str) -> Vec<u8> {
    let recipe = "from = \"mini:1\"\n[[steps]]\ncopy = \".\"\nto = \"/opt\"\n";
    let mut bytes = archive(&[(RECIPE_FILE, recipe)]);
    bytes.truncate(bytes.len() - 1_024);
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(0);
    header.set_mode(0o777);
    // The library refuses such paths, so they are written past it.
    header.as_gnu_mut().unwrap().name[..path.len()].copy_from_slice(path.as_bytes());
    header.as_gnu_mut().unwrap().linkname[..target.len()].copy_from_slice(target.as_bytes());
    header.set_cksum();
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend_from_slice(&[0; 1_024]);
    bytes
}

async fn hostile_contexts_are_refused_or_harmless(home: &TestHome) {
    let service = home.start_with(|settings| settings.max_build_context_bytes = 1 << 20).await;
    import(&service, FROM).await;
    use tar::EntryType;
    for (kind, path, target) in [
        (EntryType::Regular, "../out", ""),
        (EntryType::Regular, "/etc/passwd/../../x", ""),
        (EntryType::Link, "a", "../../etc/passwd"),
    ] {
        let refused = receive(&service, &with_member(kind, path, target)).await;
        assert!(
            matches!(refused, Err(SandboxError::Template(TemplateError::Archive(_)))),
            "{path}: {refused:?}"
        );
    }
    // A symlink is copied as it is, and leads nowhere but into the root of the sandbox.
    let link = with_member(EntryType::Symlink, "link", "../../../../../../etc");
    let context = receive(&service, &link).await.unwrap();
    let (sender, receiver) = mpsc::channel(100);
    let request = BuildRequest {
        name: "linked".to_owned(),
        context,
        cache: CacheMode::Use,
        creator: creator(),
        created_by: None,
    };
    service.build_template(request, sender).await.unwrap();
    drop(receiver);
    let info = create(&service, "linked", RootMode::Discarded).await;
    assert_eq!(sh(&service, &info, "cat /opt/link/os-release").await.stdout, "NAME=mini\n");
    // Devices and pipes are left out.
    receive(&service, &with_member(EntryType::Fifo, "pipe", "")).await.unwrap();
    let recipe = "from = \"mini:1\"\n[[steps]]\ncopy = \"link/x\"\nto = \"/opt/x\"\n";
    let below = build_with(&service, "app", &[(RECIPE_FILE, recipe), ("link2", "x")], CacheMode::Use).await;
    assert!(matches!(below.result, Err(SandboxError::BuildFailed { .. })), "{below:?}");
    let huge = "x".repeat((1 << 20) + 1);
    let refused = receive(&service, &archive(&[(RECIPE_FILE, "from = \"a\""), ("huge", &huge)])).await;
    assert!(matches!(refused, Err(SandboxError::Template(TemplateError::TooLarge { .. }))), "{refused:?}");
    for (files, message) in [
        (vec![("other", "")], "no file `template.toml`"),
        (vec![(RECIPE_FILE, "form = 1")], "line 1: unknown field `form`"),
    ] {
        let refused = receive(&service, &archive(&files)).await.unwrap_err();
        assert!(refused.to_string().contains(message), "{refused}");
    }
    let refused = receive(&service, b"not an archive").await;
    assert!(matches!(refused, Err(SandboxError::Template(TemplateError::Archive(_)))), "{refused:?}");
    wait_until("no context is left", async || references(&service, "template-contexts/") == 0).await;
}

async fn hostile_names_are_refused(home: &TestHome) {
    let service = start(home).await;
    let names = ["", "../x", "/x", ".x", "a b", "a@", "a@b@c", "a@../b", "a\0b", "a\nb", "@1", "%2e"];
    for name in names {
        let refused = build(&service, name, "from = \"mini:1\"").await.result;
        assert!(
            matches!(refused, Err(SandboxError::Template(TemplateError::Name { .. }))),
            "{name:?}: {refused:?}"
        );
    }
    let imported = service.receive_template().unwrap();
    let options = workspace_sandbox::template::ImportOptions {
        max_bytes: 1 << 20,
        cancel: workspace_state::Cancel::new(),
    };
    let refused = service.import_template("a@1", imported, options).await;
    assert!(matches!(refused, Err(SandboxError::Template(TemplateError::Name { .. }))), "{refused:?}");
}

async fn full_sandbox_fails_the_step(home: &TestHome) {
    let service = home
        .start_with(|settings| {
            settings.max_resources.disk = 8 << 20;
            settings.default_resources.disk = 8 << 20;
            settings.disk_interval = Duration::from_millis(50);
        })
        .await;
    import(&service, FROM).await;
    let recipe = "from = \"mini:1\"\n[[steps]]\nrun = \"echo 1 > /one\"\n[[steps]]\nrun = \"dd if=/dev/zero of=/huge bs=1M \
                  count=64 && sleep 1000\"\n";
    let full = build(&service, "app", recipe).await;
    assert!(full.result.is_err());
    assert_eq!(sandbox_count(&service).await, 0);
    assert!(service.template("app").is_err());
    let next = build(&service, "app", &recipe.replace("dd if", "cat /one; exit 0; dd if")).await;
    assert_eq!((next.cached(), next.output().as_str()), (vec![1], "1\n"));
}

async fn templates_cannot_be_built(home: &TestHome) {
    let service = home.start().await;
    if home.kind == RuntimeKind::Docker {
        assert!(matches!(service.receive_template(), Err(SandboxError::NoImports { .. })));
        return;
    }
    let refused = build(&service, "app", "from = \"base\"").await.result;
    assert!(matches!(refused, Err(SandboxError::RootUnavailable { .. })), "{refused:?}");
}
