//! `workspace try`, as the user who runs the tests and, if that is root, also as an ordinary user.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;
use workspace_test_support::requires;

use crate::server::soon;
use crate::support::{Ran, TestDir, signal, succeed, wait};
use crate::terminal::Terminal;

/// Id of an ordinary user who owns nothing on the machine.
const ORDINARY: &str = "61236";
pub(crate) const PLACES: &str = "home/.cache/elevo-workspace/try";

/// User with a directory and a project in it.
pub(crate) struct User {
    pub(crate) place: TestDir,
    pub(crate) ordinary: bool,
}

/// Returns the users to test as. Prints a message and returns none if the machine does not support sandboxes; fails in CI.
pub(crate) fn users() -> Vec<User> {
    let may_be_another = rustix::process::geteuid().is_root();
    let mut users = vec![User::new(false)];
    users.extend(may_be_another.then(|| User::new(true)));
    users.retain(|user| {
        let ran = user.run(&["try", "--dir", "project", "--", "true"]);
        if ran.status != 0 {
            let known = ["server elsewhere", "--template base"];
            assert!(known.iter().any(|hint| ran.stderr.contains(hint)), "{}", ran.stderr);
        }
        requires(ran.status == 0, format_args!("a sandbox: {}", ran.stderr))
    });
    users
}

impl User {
    fn new(ordinary: bool) -> Self {
        let place = TestDir::with_project();
        fs::create_dir(place.path("home")).unwrap();
        let user = Self { place, ordinary };
        if ordinary {
            let programs = Path::new(env!("CARGO_BIN_EXE_workspace"));
            fs::create_dir(user.place.path("bin")).unwrap();
            for name in ["workspace", "workspace-agent"] {
                fs::copy(programs.with_file_name(name), user.place.path("bin").join(name)).unwrap();
            }
            fs::set_permissions(user.place.path(""), fs::Permissions::from_mode(0o755)).unwrap();
        }
        user.own();
        user
    }

    /// Gives all files in the directory to the user.
    pub(crate) fn own(&self) {
        if self.ordinary {
            let who = format!("{ORDINARY}:{ORDINARY}");
            succeed(Command::new("chown").args(["-R", &who]).arg(self.place.path("")));
        }
    }

    pub(crate) fn around(&self, before: &[&str], words: &[&str]) -> Command {
        let mut all: Vec<&str> = before.to_vec();
        let own = self.place.path("bin/workspace");
        if self.ordinary {
            all.extend(["setpriv", "--reuid", ORDINARY, "--regid", ORDINARY, "--clear-groups", "--"]);
            all.push(own.to_str().unwrap());
        } else {
            all.push(env!("CARGO_BIN_EXE_workspace"));
        }
        all.extend(words);
        let mut command = self.place.program(all[0]);
        command.args(&all[1..]).env("WORKSPACE_STORE", self.place.path("store"));
        command
    }

    pub(crate) fn run(&self, words: &[&str]) -> Ran {
        Ran::of(&self.around(&[], words).output().unwrap())
    }

    /// Runs `workspace try` with a line for the shell on the project.
    pub(crate) fn attempt(&self, options: &[&str], line: &str) -> Ran {
        self.run(&[&["try", "--dir", "project"], options, &["--", "sh", "-c", line]].concat())
    }

    pub(crate) fn begin(&self, options: &[&str], line: &str) -> Child {
        let words = [&["try", "--dir", "project"], options, &["--", "sh", "-c", line]].concat();
        let mut command = self.around(&[], &words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    fn log(&self) -> Vec<String> {
        self.run(&["log"]).stdout.lines().map(str::to_owned).collect()
    }

    /// Checks that no file, mount, process or snapshot of a trial is left.
    pub(crate) fn is_clean(&self) {
        let left: Vec<_> =
            fs::read_dir(self.place.path(PLACES)).unwrap().map(|it| it.unwrap().path()).collect();
        assert!(left.is_empty(), "{left:?}");
        let here = self.place.path("").to_str().unwrap().trim_end_matches('/').to_owned();
        assert!(!fs::read_to_string("/proc/self/mounts").unwrap().contains(&here));
        soon("all processes end", || {
            let all = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
            !all.filter_map(|it| fs::read(it.path().join("cmdline")).ok())
                .any(|line| String::from_utf8_lossy(&line).contains(&here))
        });
        assert_eq!(self.log(), [""; 0], "no snapshot stays");
    }
}

/// Reads a line of a program's stdout, which must be `word`.
pub(crate) fn says(child: &mut Child, word: &str) {
    let mut line = String::new();
    let out = child.stdout.as_mut().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::with_capacity(1, out), &mut line).unwrap();
    assert_eq!(line.trim_end(), word);
}

#[test]
fn changes_of_a_program_are_listed_and_dropped_by_default() {
    for user in users() {
        let ran =
            user.attempt(&[], "cat README.md; rm build.sh; echo more >> src/main.rs; echo new > new; exit 3");
        assert_eq!((ran.status, ran.stdout.as_str()), (3, "# A project\n"), "{}", ran.stderr);
        for line in [
            "removed      build.sh",
            "modified     src/main.rs  +1 -0",
            "added        new  +1 -0",
            "`--keep`",
        ] {
            assert!(ran.stderr.contains(line), "{line}: {}", ran.stderr);
        }
        assert!(user.place.path("project/build.sh").exists() && !user.place.path("project/new").exists());
        let ran = user.attempt(&["--drop"], "echo new > new");
        assert_eq!(ran.status, 0, "{}", ran.stderr);
        assert!(ran.stderr.contains("nothing of this was kept"), "{}", ran.stderr);
        assert!(!user.place.path("project/new").exists());
        let ran = user.attempt(&[], "true");
        assert_eq!((ran.status, ran.stderr.as_str()), (0, "nothing was changed\n"));
        user.is_clean();
    }
}

#[test]
fn a_nested_ignore_file_is_announced() {
    for user in users() {
        user.place.write("project/sub/.workspaceignore", "data\n");
        user.place.write("project/sub/data", "ignored");
        user.own();
        let ran = user.attempt(&["--template", "base", "--drop"], "test ! -e sub/data");
        assert_eq!(ran.status, 0, "{}", ran.stderr);
        assert!(ran.stderr.contains("note: files that .workspaceignore names"), "{}", ran.stderr);
        user.is_clean();
    }
}

#[test]
fn kept_changes_belong_to_the_owner_of_the_directory() {
    use std::os::unix::fs::MetadataExt as _;
    for user in users() {
        user.place.write("project/.workspaceignore", "target/\n");
        user.place.write("project/target/object", "built");
        user.own();
        let before = fs::metadata(user.place.path("project/README.md")).unwrap();
        let line = "test ! -e target && mkdir -p target/deep && echo x > target/deep/y && \
                    echo changed > src/main.rs && rm main && mkdir -p a/b && echo new > a/b/c && exit 7";
        let ran = user.attempt(&["--template", "base", "--keep"], line);
        assert_eq!(ran.status, 7, "{}", ran.stderr);
        assert!(ran.stderr.contains("kept: wrote"), "{}", ran.stderr);
        assert_eq!(
            ran.stderr.matches("note: files that .workspaceignore names").count(),
            1,
            "{}",
            ran.stderr
        );
        assert!(
            ran.stderr.contains("not kept because .workspaceignore names them: 1 path"),
            "{}",
            ran.stderr
        );
        assert_eq!(user.place.read("project/src/main.rs"), "changed\n");
        assert_eq!(user.place.read("project/a/b/c"), "new\n");
        assert_eq!(user.place.read("project/target/object"), "built");
        assert!(
            !user.place.path("project/target/deep").exists() && !user.place.path("project/main").is_symlink()
        );
        let after = fs::metadata(user.place.path("project/README.md")).unwrap();
        assert_eq!((after.ino(), after.mtime_nsec()), (before.ino(), before.mtime_nsec()), "untouched");
        let made = fs::metadata(user.place.path("project/a/b/c")).unwrap();
        assert_eq!(made.uid(), fs::metadata(user.place.path("project")).unwrap().uid());
        user.is_clean();
    }
}

#[test]
fn changes_that_would_go_over_newer_ones_stay_as_a_snapshot() {
    for user in users() {
        let line = "echo theirs > README.md; echo b > b; echo ready; read line";
        let mut child = user.begin(&["--template", "base", "--keep"], line);
        says(&mut child, "ready");
        user.place.write("project/README.md", "mine\n");
        child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
        let ran = Ran::of(&wait(child));
        assert_eq!(ran.status, 125, "{}", ran.stderr);
        assert!(
            ran.stderr.contains("conflicting changes") && ran.stderr.contains("README.md"),
            "{}",
            ran.stderr
        );
        assert_eq!(user.place.read("project/README.md"), "mine\n");
        assert!(!user.place.path("project/b").exists(), "nothing is done by halves");
        let command =
            ran.stderr.lines().find_map(|line| line.strip_prefix("hint: `workspace checkout ")).unwrap();
        let id = command.split(' ').next().unwrap();
        assert_eq!(user.log().len(), 2);
        let ran = user.run(&["checkout", id, "project", "--force"]);
        assert_eq!(ran.status, 0, "{}", ran.stderr);
        assert_eq!(user.place.read("project/README.md"), "theirs\n");
        assert_eq!(user.place.read("project/b"), "b\n");
    }
}

#[test]
fn programs_are_told_in_json() {
    for user in users() {
        let ran = user.attempt(&["--json"], "echo printed; echo AKIAIOSFODNN7EXAMPLE > key; exit 4");
        assert_eq!((ran.status, ran.stderr.as_str()), (4, "printed\n"));
        let told: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(
            (&told["exit_code"], &told["kept"], &told["timed_out"]),
            (&4.into(), &false.into(), &false.into())
        );
        assert_eq!((&told["entries"][0]["path"], &told["totals"]["added"]), (&"key".into(), &1.into()));
        assert!(told["totals"]["notes"].as_object().is_some_and(|notes| !notes.is_empty()), "{told}");
        let ran = user.attempt(&["--json", "--keep", "--timeout", "1s"], "echo kept > kept; sleep 100");
        let told: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!((ran.status, &told["kept"], &told["timed_out"]), (124, &true.into(), &true.into()));
        assert_eq!(user.place.read("project/kept"), "kept\n");
        user.is_clean();
    }
}

#[test]
fn on_a_terminal_somebody_is_asked() {
    for user in users() {
        let line = "tty; stty size; read -r word; echo \"$word\" > word";
        let words = ["try", "--dir", "project", "--", "sh", "-c", line];
        for (answer, kept) in [("\r", false), ("y\r", true)] {
            let mut terminal = Terminal::new(user.around(&["setsid", "--ctty"], &words));
            terminal.shows("33 91");
            terminal.enter("hello\r");
            terminal.shows("? [y/N/d(iff)] ");
            terminal.enter("d\r");
            terminal.shows("+hello");
            terminal.enter(answer);
            assert_eq!(terminal.ends(), Some(0), "{}", terminal.seen());
            assert_eq!(user.place.path("project/word").exists(), kept);
        }
        let mut terminal = Terminal::new(
            user.around(&["setsid", "--ctty"], &["try", "--dir", "project", "--", "touch", "x"]),
        );
        terminal.shows("? [y/N/d(iff)] ");
        terminal.enter("\x03");
        assert_eq!(terminal.ends(), Some(130), "{}", terminal.seen());
        assert!(!user.place.path("project/x").exists());
        user.is_clean();
    }
}

#[test]
fn signals_reach_the_program_or_end_everything() {
    for user in users() {
        let mut child =
            user.begin(&[], "trap 'echo got > got; exit 9' INT; echo ready; while :; do sleep 0.1; done");
        says(&mut child, "ready");
        signal(&child, Signal::INT);
        let ran = Ran::of(&wait(child));
        assert_eq!(ran.status, 9, "{}", ran.stderr);
        assert!(ran.stderr.contains("added        got"), "{}", ran.stderr);
        for (number, status) in [(Signal::TERM, 143), (Signal::HUP, 129)] {
            let mut child =
                user.begin(&["--keep"], "trap '' TERM HUP; echo x > x; sleep 1000 & echo ready; wait");
            says(&mut child, "ready");
            signal(&child, number);
            assert_eq!(wait(child).status.code(), Some(status));
            assert!(!user.place.path("project/x").exists());
        }
        user.is_clean();
    }
}

#[test]
fn a_sandbox_that_is_killed_leaves_nothing() {
    for user in users() {
        let options = ["--template", "base", "--keep"];
        let mut child = user.begin(&options, "echo x > x; echo ready; sleep 1000");
        says(&mut child, "ready");
        let sandboxes = user.place.path(PLACES).join(format!("{}-0/sandboxes", child.id()));
        let sandbox = fs::read_dir(sandboxes).unwrap().next().unwrap().unwrap().path();
        let noted: Value = serde_json::from_slice(&fs::read(sandbox.join("process")).unwrap()).unwrap();
        let agent = i32::try_from(noted["pid"].as_i64().unwrap()).unwrap();
        rustix::process::kill_process(rustix::process::Pid::from_raw(agent).unwrap(), Signal::KILL).unwrap();
        let ran = Ran::of(&wait(child));
        assert_ne!(ran.status, 0, "{}", ran.stderr);
        user.is_clean();
    }
}

#[test]
fn leftovers_of_a_killed_process_are_removed_by_the_next() {
    for user in users() {
        let mut child = user.begin(&["--template", "base"], "echo x > x; echo ready; exec sleep 1000");
        says(&mut child, "ready");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(user.log().len(), 1, "what the directory held");
        let mut living = user.begin(&["--template", "base", "--keep"], "echo ready; read line; echo y > y");
        says(&mut living, "ready");
        let ran = user.attempt(&["--template", "base"], "true");
        assert_eq!(ran.status, 0, "{}", ran.stderr);
        living.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
        let ran = Ran::of(&living.wait_with_output().unwrap());
        assert_eq!(ran.status, 0, "who lives is left alone: {}", ran.stderr);
        assert!(user.place.path("project/y").exists());
        user.is_clean();
    }
}

#[test]
fn many_files_are_loaded_as_they_are_read() {
    for user in users() {
        for number in 0..1_100 {
            user.place.write(&format!("project/many/{number}"), number.to_string());
        }
        user.own();
        let line = "ls many | wc -l; cat many/77; rm many/1; echo other > many/2";
        let ran = user.attempt(&["--template", "base", "--keep"], line);
        assert_eq!((ran.status, ran.stdout.as_str()), (0, "1100\n77"), "{}", ran.stderr);
        assert!(!user.place.path("project/many/1").exists());
        assert_eq!(user.place.read("project/many/2"), "other\n");
        user.is_clean();
    }
}

#[test]
fn impossible_trials_are_explained() {
    let place = TestDir::with_project();
    fs::create_dir(place.path("home")).unwrap();
    for (directory, why) in
        [("/", "is the root directory"), ("home", "contains your home"), (".", "contains your home")]
    {
        let ran = place.run(&["try", "--dir", directory, "--", "true"]);
        assert_eq!(ran.status, 2, "{}", ran.stderr);
        assert!(ran.stderr.contains(why) && ran.stderr.contains("hint: "), "{}", ran.stderr);
    }
    for (directory, why) in [("nowhere", "cannot find nowhere"), ("project/README.md", "specify a directory")]
    {
        let ran = place.run(&["try", "--dir", directory, "--", "true"]);
        assert!(ran.status == 125 && ran.stderr.contains(why), "{}: {}", ran.status, ran.stderr);
    }
    let ran = place.run(&[
        "--store",
        "project/README.md",
        "try",
        "--template",
        "base",
        "--dir",
        "project",
        "--",
        "true",
    ]);
    assert!(ran.status == 125 && ran.stderr.contains("README.md"), "{}: {}", ran.status, ran.stderr);
    let mut command = place.workspace(&["try", "--template", "base", "--dir", "project", "--", "true"]);
    let ran = Ran::of(&command.env("AGENT_PROGRAM", place.path("nowhere")).output().unwrap());
    assert!(ran.status == 125 && ran.stderr.contains("AGENT_PROGRAM selects another"), "{}", ran.stderr);
    assert_eq!(fs::read_dir(place.path(PLACES)).unwrap().count(), 0);
    let ran = place.run(&["try", "--dir", "project", "--allow", "example.com", "--", "true"]);
    assert!(ran.status == 2 && ran.stderr.contains("--network egress"), "{}", ran.stderr);
}

#[test]
fn changes_kept_in_a_checkout_count_as_local_changes() {
    for user in users() {
        user.place.ok(&["snapshot", "project", "--ref", "first"]);
        user.place.write("project/other", "second\n");
        user.place.ok(&["snapshot", "project", "--ref", "second"]);
        user.own();
        let ok = |words: &[&str]| {
            let ran = user.run(words);
            assert_eq!(ran.status, 0, "{words:?}: {}", ran.stderr);
        };
        ok(&["checkout", "first", "project"]);
        let ran = user.attempt(&["--keep"], "echo kept > README.md; echo new > new");
        assert_eq!(ran.status, 0, "{}", ran.stderr);
        // Another file changes: what was kept stays.
        ok(&["checkout", "second", "project"]);
        let read = |name: &str| fs::read_to_string(user.place.path("project").join(name)).unwrap();
        assert_eq!(
            (read("README.md"), read("other"), read("new")),
            ("kept\n".into(), "second\n".into(), "new\n".into())
        );
        // The same file changes: it is a local change like any other.
        user.place.write("third/README.md", "third\n");
        user.own();
        ok(&["snapshot", "third", "--ref", "third"]);
        let refused = user.run(&["checkout", "third", "project"]);
        assert!(refused.status == 1 && refused.stderr.contains("local changes"), "{}", refused.stderr);
        assert!(refused.stderr.contains("README.md"), "{}", refused.stderr);
        ok(&["rm", "--ref", "first", "--ref", "second", "--ref", "third"]);
    }
}

#[test]
fn names_of_one_file_stay_names_of_one_file() {
    use std::os::unix::fs::MetadataExt as _;
    for user in users() {
        user.place.write("project/one", "one\n");
        fs::hard_link(user.place.path("project/one"), user.place.path("project/two")).unwrap();
        user.own();
        let inode = |name: &str| fs::metadata(user.place.path("project").join(name)).unwrap().ino();
        // Opened for writing and given a further name, which copies the file up, but not changed.
        let ran = user.attempt(&["--keep"], "ln two a-name; : >> one; echo x > new; ln new newer");
        assert_eq!(ran.status, 0, "{}", ran.stderr);
        assert_eq!((inode("one"), inode("one")), (inode("two"), inode("a-name")));
        assert_eq!(inode("new"), inode("newer"));
    }
}
