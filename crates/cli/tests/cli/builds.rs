//! `workspace template build`.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use crate::sandboxes::busybox_root;
use crate::server::{Server, soon};

const RECIPE: &str = r#"from = "mini"

[[steps]]
copy = "src"
to = "/opt/app/"

[[steps]]
env = { WORD = "hello" }

[[steps]]
run = "echo $WORD; cat /opt/app/word"
"#;

/// Starts a server with a template `mini`, and a directory `app` with a recipe.
fn server_with_recipe() -> Option<Server> {
    let server = Server::start()?;
    server.ok(&["template", "import", "mini", busybox_root().path().to_str().unwrap()]);
    server.place.write("app/template.toml", RECIPE);
    server.place.write("app/src/word", "a word\n");
    server.place.write("app/not-copied", "x\n");
    Some(server)
}

#[test]
fn a_template_is_built_used_shown_and_removed() {
    let Some(server) = server_with_recipe() else { return };
    let built = server.run(&["template", "build", "--name", "team/app", "app"]);
    assert_eq!((built.status, built.stdout.as_str()), (0, "team/app@1\n"), "{}", built.stderr);
    for line in ["[1/3] copy src /opt/app/\n", "[2/3] env WORD=hello\n", "hello\na word\n", "[3/3] "] {
        assert!(built.stderr.contains(line), "{line}: {}", built.stderr);
    }
    assert!(!built.stderr.contains("cached"), "{}", built.stderr);
    let again = server.run(&["template", "build", "--name", "team/app", "app"]);
    assert_eq!(again.stdout, "team/app@1\n", "{}", again.stderr);
    assert!(
        again.stderr.contains("[3/3] cached\n") && again.stderr.contains("note: the newest"),
        "{}",
        again.stderr
    );
    let events = server.json(&["template", "build", "--name", "team/app@beta", "--no-cache", "app"]);
    let last = events.last().unwrap();
    assert_eq!((&last["type"], &last["cached"]), (&"done".into(), &0.into()), "{last}");
    assert_eq!(last["template"]["name"], "team/app@beta");
    let words = ["run", "--template", "team/app@1", "--", "sh", "-c", "echo $WORD; cat /opt/app/word"];
    assert_eq!(server.ok(&words), "hello\na word\n");
    let shown = server.ok(&["template", "show", "team/app@1"]);
    assert!(shown.contains("from        mini\n") && shown.contains("env         WORD=hello\n"), "{shown}");
    assert!(server.ok(&["template", "ls"]).contains("team/app@beta"));
    let refused = server.run(&["template", "rm", "team/app"]);
    assert!(refused.stderr.contains("team/app@1, team/app@beta"), "{}", refused.stderr);
    server.ok(&["template", "rm", "team/app@1", "team/app@beta"]);
}

#[test]
fn mistakes_are_explained_before_anything_is_sent() {
    let Some(server) = server_with_recipe() else { return };
    let place = &server.place;
    place.write("bad/template.toml", "from = \"mini\"\n[[steps]]\nrunn = \"x\"\n");
    place.write("missing/template.toml", "from = \"mini\"\n[[steps]]\ncopy = \"none\"\nto = \"/x\"\n");
    for (words, message) in [
        (&["template", "build", "app"][..], "hint: name it"),
        (&["template", "build", "--name", "a", "nowhere"], "build one of base, python, node, agent"),
        (&["template", "build", "--name", "a", "bad"], "template.toml, line 3: unknown field `runn`"),
        (&["template", "build", "--name", "a", "missing"], "paths of `copy` are below"),
        (&["template", "build", "--name", "a@b@c", "app"], "cannot be a template's name"),
    ] {
        let refused = server.run(words);
        assert!(refused.status != 0 && refused.stderr.contains(message), "{words:?}: {}", refused.stderr);
    }
    place.write("fails.toml", "from = \"mini\"\n[[steps]]\nrun = \"exit 4\"\n");
    let failed = server.run(&["template", "build", "--name", "a", "--file", "fails.toml"]);
    assert_eq!(failed.status, 1);
    assert!(failed.stderr.contains("step 1 of the recipe (line 2) failed"), "{}", failed.stderr);
    assert!(failed.stderr.contains("hint: finished steps are kept"), "{}", failed.stderr);
    let python = server.ok(&["template", "build", "python", "--print"]);
    assert!(python.contains("from = \"base\""), "{python}");
    let refused = server.run(&["template", "build", "python"]);
    assert!(refused.stderr.contains("workspace template build base"), "{}", refused.stderr);
}

#[test]
fn an_interrupt_cancels_the_build_and_its_sandbox() {
    let Some(server) = server_with_recipe() else { return };
    let endless = RECIPE.replace("cat /opt/app/word", "cat /dev/zero > /dev/null");
    server.place.write("app/template.toml", &endless);
    let mut command = server.workspace(&["template", "build", "--name", "app", "app"]);
    let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    while lines.next().unwrap().unwrap() != "hello" {}
    assert_eq!(server.json(&["sandbox", "ls"]).len(), 1);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert!(rest.iter().any(|line| line.contains("the build is cancelled")), "{rest:?}");
    assert!(!child.wait().unwrap().success());
    soon("its sandbox is removed", || server.json(&["sandbox", "ls"]).is_empty());
}
