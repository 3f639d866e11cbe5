//! `workspace try` at the real path of a directory, as the user who runs the tests and, if that is root, also as an ordinary
//! user.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use workspace_test_support::skip;

use crate::server::soon;
use crate::support::{Ran, succeed, wait};
use crate::terminal::Terminal;
use crate::trials::{PLACES, User, says, users};

impl User {
    /// Runs `workspace` in a directory of the place.
    fn run_in(&self, directory: &str, words: &[&str]) -> Ran {
        let mut command = self.around(&[], words);
        Ran::of(&command.current_dir(self.place.path(directory)).output().unwrap())
    }

    fn tries(&self, directory: &str, options: &[&str], line: &str) -> Ran {
        self.run_in(directory, &[&["try"], options, &["--", "sh", "-c", line]].concat())
    }

    fn absolute(&self, path: &str) -> String {
        let path = fs::canonicalize(self.place.path(path)).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Runs git in a directory of the place, before the place is given to its user.
    fn git(&self, directory: &str, words: &[&str]) {
        let mut command = self.place.program("git");
        command.current_dir(self.place.path(directory)).env("GIT_CONFIG_NOSYSTEM", "1");
        let who = ["-c", "user.name=T", "-c", "user.email=t@example.com", "-c", "init.defaultBranch=main"];
        succeed(command.args(who).args(words));
    }
}

impl User {
    /// Starts a trial with `--keep` whose program waits after a line of shell, does something meanwhile, and lets it end.
    fn keeps_after(&self, line: &str, meanwhile: impl FnOnce()) -> Ran {
        let mut child = self.begin(&["--keep"], &format!("{line}; echo ready; read line"));
        says(&mut child, "ready");
        meanwhile();
        child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
        Ran::of(&wait(child))
    }

    /// The place of the only trial that there is.
    fn trial(&self) -> String {
        let places: Vec<_> = fs::read_dir(self.place.path(PLACES)).unwrap().map(|it| it.unwrap()).collect();
        let [place] = &places[..] else { panic!("{places:?}") };
        place.path().to_str().unwrap().to_owned()
    }

    fn rename(&self, from: &str, to: &str) {
        fs::rename(self.place.path(from), self.place.path(to)).unwrap();
    }
}

fn ok(ran: &Ran) {
    assert_eq!(ran.status, 0, "{}{}", ran.stdout, ran.stderr);
}

#[test]
fn a_program_runs_at_the_real_path_as_the_same_user() {
    for user in users() {
        let mine = fs::metadata(user.place.path("project")).unwrap();
        let ran = user.tries("project/src", &["--dir", ".."], "pwd; id -u; id -g; cat ../README.md");
        ok(&ran);
        let expected =
            format!("{}\n{}\n{}\n# A project\n", user.absolute("project/src"), mine.uid(), mine.gid());
        assert_eq!(ran.stdout, expected);
        // Owner and mode of the directory itself are seen as they are.
        user.place.chmod("project", 0o751);
        let ran = user.tries("project", &[], "stat -c '%a %u' .");
        ok(&ran);
        assert_eq!(ran.stdout, format!("751 {}\n", mine.uid()));
        // All else can be read and not written; processes, /tmp and the network are the program's own.
        user.place.write("project/outside", "");
        let line = "test -r /etc/passwd && ! touch /etc/new 2>/dev/null && ! touch /usr/new 2>/dev/null && \
                    touch /tmp/mine /var/tmp/mine /run/user/$(id -u)/mine && test -e /tmp/mine && \
                    test ! -e $OUTSIDE && echo mine && ! cat /proc/1/environ 2>/dev/null; echo $?; kill -9 1 2>/dev/null; ls -d /proc/[0-9]* | wc -l";
        let outside = tempfile::NamedTempFile::new_in("/tmp").unwrap();
        let outside = format!("OUTSIDE={}", outside.path().display());
        let ran = user.tries("project", &["--env", &outside], line);
        ok(&ran);
        let lines: Vec<&str> = ran.stdout.lines().collect();
        assert_eq!(lines[..2], ["mine", "0"], "{}{}", ran.stdout, ran.stderr);
        assert!(lines[2].parse::<u32>().unwrap() < 8, "{}", ran.stdout);
        assert!(!Path::new("/tmp/mine").exists());
        user.is_clean();
    }
}

#[test]
fn a_subdirectory_of_a_repository_and_a_work_tree_know_their_repository() {
    for user in users() {
        user.place.write("repo/sub/file", "one\n");
        user.place.write("repo/other", "other\n");
        user.git("repo", &["init", "-q"]);
        user.git("repo", &["add", "."]);
        user.git("repo", &["commit", "-q", "-m", "first"]);
        user.git("repo", &["worktree", "add", "-q", "-b", "tree", "../tree"]);
        let heads = |name: &str| user.place.read(&format!("repo/.git/refs/heads/{name}"));
        let before = (heads("main"), heads("tree"));
        user.own();
        let line = "set -e; test -z \"$(git status --porcelain)\"; echo two > file; git status --porcelain; \
                    git -c user.name=T -c user.email=t@example.com commit -q -a -m second; git log --format=%s";
        for directory in ["repo/sub", "tree/sub"] {
            let ran = user.tries(directory, &["--keep"], line);
            ok(&ran);
            assert_eq!(ran.stdout, " M sub/file\nsecond\nfirst\n", "{}", ran.stderr);
            assert!(ran.stderr.contains("note: changes in the repository"), "{}", ran.stderr);
            assert_eq!(user.place.read(&format!("{directory}/file")), "two\n");
        }
        assert_eq!((heads("main"), heads("tree")), before, "commits are dropped");
        assert_eq!(user.place.read("repo/other"), "other\n");
        user.is_clean();
    }
}

#[test]
fn scripts_with_absolute_paths_and_tools_of_the_home_run() {
    for user in users() {
        let shell = user.place.path("project/venv/bin/sh");
        fs::create_dir_all(shell.parent().unwrap()).unwrap();
        symlink("/bin/sh", &shell).unwrap();
        let script = format!("#!{}\necho in the environment\n", shell.display());
        user.place.write("project/venv/bin/tool", script);
        user.place.chmod("project/venv/bin/tool", 0o755);
        user.place.write("home/bin/own-tool", "#!/bin/sh\necho used > ~/cache && cat ~/cache\n");
        user.place.chmod("home/bin/own-tool", 0o755);
        user.own();
        let ran = user.tries("project", &[], "venv/bin/tool && PATH=$HOME/bin:$PATH own-tool");
        ok(&ran);
        assert_eq!(ran.stdout, "in the environment\nused\n");
        assert!(ran.stderr.contains("changes in your home directory are dropped"), "{}", ran.stderr);
        assert!(!user.place.path("home/cache").exists());
        user.is_clean();
    }
}

#[test]
fn secrets_are_hidden_unless_they_are_shown() {
    for user in users() {
        user.place.write("home/.ssh/id_ed25519", "private\n");
        user.place.write("home/.netrc", "password\n");
        user.place.write("home/plain", "plain\n");
        user.place.write("project/.env", "mine\n");
        user.place.write("elsewhere/aws/credentials", "cloud\n");
        symlink("../elsewhere/aws", user.place.path("home/.aws")).unwrap();
        user.own();
        let line = "cat ~/.ssh/id_ed25519 ~/.netrc ~/.aws/credentials /etc/shadow 2>/dev/null; ls -A ~/.ssh 2>/dev/null; \
                    cat ~/plain .env; echo $MY_TOKEN";
        let mut command = user.around(&[], &["try", "--dir", "project", "--", "sh", "-c", line]);
        let ran = Ran::of(&command.env("MY_TOKEN", "token").output().unwrap());
        ok(&ran);
        assert_eq!(ran.stdout, "plain\nmine\n\n", "{}", ran.stderr);
        let home = user.absolute("home");
        let listed = user.run(&["try", "--list-hidden", "--dir", "project"]);
        ok(&listed);
        for path in [format!("{home}/.ssh"), format!("{home}/.netrc"), "/etc/shadow".to_owned()] {
            assert!(listed.stdout.lines().any(|line| line == path), "{path}: {}", listed.stdout);
        }
        let (ssh, plain) = (format!("{home}/.ssh"), format!("{home}/plain"));
        let ran = user.tries(
            "project",
            &["--show", &ssh, "--hide", &plain, "--env", "MY_TOKEN=given"],
            "cat ~/.ssh/id_ed25519; cat ~/plain ~/.netrc 2>/dev/null; echo $MY_TOKEN",
        );
        ok(&ran);
        assert_eq!(ran.stdout, "private\ngiven\n", "{}", ran.stderr);
        let ran = user.tries("project", &["--show", "/nowhere"], "true");
        assert_eq!(ran.status, 2, "{}", ran.stderr);
        user.is_clean();
    }
}

#[test]
fn a_git_file_uncovers_nothing() {
    for user in users() {
        // A repository by its looks, in a hidden directory.
        for name in ["objects/x", "refs/x", "HEAD", "worktrees/w/x"] {
            user.place.write(&format!("home/.ssh/{name}"), "secret\n");
        }
        let hidden = user.absolute("home/.ssh");
        let project = user.absolute("project");
        user.place.write("home/.ssh/worktrees/w/gitdir", format!("{project}/.git\n"));
        user.own();
        for named in [hidden.clone(), format!("{hidden}/worktrees/w"), user.absolute("home"), "/".to_owned()]
        {
            user.place.write("project/.git", format!("gitdir: {named}\n"));
            user.own();
            let line =
                format!("cat {hidden}/HEAD {hidden}/objects/x {hidden}/worktrees/w/gitdir; ls -A {hidden}");
            let ran = user.tries("project", &[], &format!("({line}) 2>/dev/null; echo end"));
            ok(&ran);
            assert_eq!(ran.stdout, "end\n", "{named}");
        }
        user.is_clean();
    }
}

#[test]
fn all_kinds_of_changes_are_kept() {
    for user in users() {
        for (path, text) in
            [("old/a", "a"), ("old/b", "b"), ("dir/x", "x"), ("dir/y", "y"), ("one", "one"), ("gone", "g")]
        {
            user.place.write(&format!("project/{path}"), text);
        }
        fs::hard_link(user.place.path("project/one"), user.place.path("project/two")).unwrap();
        succeed(user.place.program("mkfifo").args(["-m", "644", "project/old-pipe"]));
        user.own();
        let untouched = fs::metadata(user.place.path("project/README.md")).unwrap();
        let line = "set -e; rm gone; mv old new; rm -r dir; mkdir dir; echo z > dir/z; ln one three; \
                    echo n > n1; ln n1 n2; ln -s n1 link; ln -sfn build.sh main; chmod 700 build.sh; \
                    mkdir -m 500 closed; echo secret > mode; chmod 000 mode; rm -r src; echo file > src; \
                    mkfifo -m 622 pipe; chmod 606 old-pipe; test $(id -u) != 0 || chown 1:2 pipe; \
                    touch README.md; mkdir -p a/b; echo c > a/b/c";
        let ran = user.tries("project", &["--keep"], line);
        ok(&ran);
        assert!(ran.stderr.contains("kept: wrote"), "{}", ran.stderr);
        let at = |name: &str| user.place.path("project").join(name);
        let (inode, mode) = (
            |name: &str| fs::symlink_metadata(at(name)).unwrap().ino(),
            |name: &str| fs::symlink_metadata(at(name)).unwrap().permissions().mode() & 0o7777,
        );
        assert!(!at("gone").exists() && !at("old").exists() && !at("dir/x").exists());
        for (path, text) in [
            ("new/a", "a"),
            ("new/b", "b"),
            ("dir/z", "z\n"),
            ("n2", "n\n"),
            ("src", "file\n"),
            ("a/b/c", "c\n"),
        ] {
            assert_eq!(user.place.read(&format!("project/{path}")), text);
        }
        assert_eq!((inode("one"), inode("two")), (inode("three"), inode("three")));
        assert_eq!(inode("n1"), inode("n2"));
        assert_eq!(fs::read_link(at("link")).unwrap(), Path::new("n1"));
        assert_eq!(fs::read_link(at("main")).unwrap(), Path::new("build.sh"));
        assert_eq!((mode("build.sh"), mode("closed"), mode("mode")), (0o700, 0o500, 0));
        let pipe = fs::symlink_metadata(at("pipe")).unwrap();
        assert!(pipe.file_type().is_fifo());
        assert_eq!((mode("pipe"), mode("old-pipe")), (0o622, 0o606));
        if fs::metadata(at("")).unwrap().uid() == 0 {
            assert_eq!((pipe.uid(), pipe.gid()), (1, 2));
        }
        user.place.chmod("project/mode", 0o600);
        assert_eq!(user.place.read("project/mode"), "secret\n");
        let after = fs::metadata(at("README.md")).unwrap();
        assert_eq!(
            (after.ino(), after.mtime()),
            (untouched.ino(), untouched.mtime()),
            "only its time was changed"
        );
        let names = fs::read_dir(at("")).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap());
        assert!(!names.into_iter().any(|name| name.starts_with(".workspace")), "nothing is left");
        user.is_clean();
    }
}

#[test]
fn changes_of_others_meanwhile_are_not_overwritten() {
    for user in users() {
        let line = "echo theirs > README.md; echo b > b; echo ready; read line";
        let mut child = user.begin(&["--keep"], line);
        says(&mut child, "ready");
        user.place.write("project/README.md", "mine\n");
        user.place.write("project/unrelated", "mine\n");
        child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
        let ran = Ran::of(&wait(child));
        assert_eq!(ran.status, 125, "{}", ran.stderr);
        assert!(
            ran.stderr.contains("conflicting changes") && ran.stderr.contains("README.md"),
            "{}",
            ran.stderr
        );
        assert!(!ran.stderr.contains("unrelated"), "{}", ran.stderr);
        assert_eq!(user.place.read("project/README.md"), "mine\n");
        assert!(!user.place.path("project/b").exists(), "nothing is done by halves");
        let command =
            ran.stderr.lines().find_map(|line| line.strip_prefix("hint: `workspace try --apply ")).unwrap();
        let place = command.split(' ').next().unwrap();
        // The next trial leaves it alone.
        ok(&user.attempt(&[], "true"));
        let again = user.run(&["try", "--apply", place]);
        assert_eq!(again.status, 125, "{}", again.stderr);
        ok(&user.run(&["try", "--apply", place, "--force"]));
        assert_eq!(user.place.read("project/README.md"), "theirs\n");
        assert_eq!(
            (user.place.read("project/b"), user.place.read("project/unrelated")),
            ("b\n".into(), "mine\n".into())
        );
        user.is_clean();
    }
}

#[test]
fn a_keep_that_stops_halfway_is_completed() {
    // Nothing is closed to root.
    let is_root = rustix::process::geteuid().is_root();
    for user in users().into_iter().filter(|user| user.ordinary || !is_root) {
        user.place.write("project/z/old", "old");
        user.place.write("project/gone/x", "x");
        user.place.chmod("project/z", 0o555);
        user.own();
        let line =
            "set -e; echo a > a; rm -r gone; chmod 755 z; echo new > z/new; echo more >> z/old; chmod 555 z";
        let ran = user.tries("project", &["--keep"], line);
        assert_eq!(ran.status, 125, "{}", ran.stderr);
        assert!(ran.stderr.contains("some changes were written"), "{}", ran.stderr);
        assert!(user.place.path("project/a").exists() && !user.place.path("project/gone").exists());
        assert!(!user.place.path("project/z/new").exists());
        let next = user.attempt(&[], "true");
        ok(&next);
        let told = next.stderr.lines().find_map(|line| line.split_once("`workspace try --apply ")).unwrap();
        let place = told.1.split('`').next().unwrap();
        user.place.chmod("project/z", 0o755);
        ok(&user.run(&["try", "--apply", place]));
        assert_eq!(
            (user.place.read("project/z/new"), user.place.read("project/z/old")),
            ("new\n".into(), "oldmore\n".into())
        );
        user.is_clean();
    }
}

#[test]
fn a_directory_that_somebody_moves_in_is_not_lost() {
    for user in users() {
        user.place.write("project/build/old", "old");
        user.place.write("moved/deep/precious", "precious");
        user.own();
        for (line, to) in [
            ("rm -r build; mkdir build; echo new > build/new; echo ready; read line", "project/build/moved"),
            ("rm -r build; echo ready; read line", "project/build/moved"),
            ("mkdir fresh; echo x > fresh/x; echo ready; read line", "project/fresh"),
        ] {
            let mut child = user.begin(&["--keep"], line);
            says(&mut child, "ready");
            fs::rename(user.place.path("moved"), user.place.path(to)).unwrap();
            child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
            let ran = Ran::of(&wait(child));
            assert_eq!(user.place.read(&format!("{to}/deep/precious")), "precious", "{line}: {}", ran.stderr);
            assert_eq!(ran.status, 125, "{}", ran.stderr);
            assert!(user.place.path("project/build/old").exists(), "nothing is done by halves");
            assert!(!user.place.path("project/fresh/x").exists(), "nothing is done by halves");
            ok(&user.run(&["try", "--apply", &user.trial(), "--drop"]));
            fs::rename(user.place.path(to), user.place.path("moved")).unwrap();
        }
        user.is_clean();
    }
}

#[test]
fn moved_and_linked_files_are_kept() {
    for user in users() {
        for name in ["a", "b", "c", "d", "sub/e"] {
            user.place.write(&format!("project/{name}"), name);
        }
        user.own();
        let line = "set -e; mv a moved; ln b linked; mkdir new; mv c new/c; mv sub/e e; mv d sub/e";
        let ran = user.tries("project", &["--keep"], line);
        ok(&ran);
        for (name, text) in [("moved", "a"), ("linked", "b"), ("new/c", "c"), ("e", "sub/e"), ("sub/e", "d")]
        {
            assert_eq!(user.place.read(&format!("project/{name}")), text, "{name}");
        }
        for name in ["a", "c", "d"] {
            assert!(!user.place.path("project").join(name).exists(), "{name}");
        }
        // A name that somebody else gave meanwhile is left alone, and so is a file that somebody removed.
        let ran = user.keeps_after("mv moved again", || user.place.write("project/again", "mine"));
        assert_eq!(ran.status, 125, "{}", ran.stderr);
        assert_eq!(
            (user.place.read("project/again"), user.place.read("project/moved")),
            ("mine".into(), "a".into())
        );
        ok(&user.run(&["try", "--apply", &user.trial(), "--drop"]));
        let gone = user.place.path("project/e");
        let ran = user.keeps_after("echo more >> e", || fs::remove_file(&gone).unwrap());
        assert_eq!(ran.status, 125, "{}", ran.stderr);
        assert!(!gone.exists());
        ok(&user.run(&["try", "--apply", &user.trial(), "--drop"]));
        user.is_clean();
    }
}

#[test]
fn all_names_of_a_file_can_be_replaced_and_removed() {
    for user in users() {
        let link = |from: &str, to: &str| {
            let (from, to) = (user.place.path("project").join(from), user.place.path("project").join(to));
            fs::hard_link(from, to).unwrap();
        };
        for name in ["one", "three", "debug/deps/x", "tree/y"] {
            user.place.write(&format!("project/{name}"), name);
        }
        for (from, to) in [("one", "two"), ("three", "four"), ("debug/deps/x", "debug/x"), ("tree/y", "link")]
        {
            link(from, to);
        }
        user.own();
        let line = "set -e; for it in one two; do echo new > new; mv new $it; done; rm three four; \
                    rm debug/x debug/deps/x; echo built > debug/deps/x; ln debug/deps/x debug/x; \
                    echo new > new; mv new link; rm -r tree";
        ok(&user.tries("project", &["--keep"], line));
        for name in ["one", "two", "link"] {
            assert_eq!(user.place.read(&format!("project/{name}")), "new\n", "{name}");
        }
        for name in ["three", "four", "tree"] {
            assert!(!user.place.path("project").join(name).exists(), "{name}");
        }
        assert_eq!(user.place.read("project/debug/x"), "built\n");
        let inode = |name: &str| fs::metadata(user.place.path(name)).unwrap().ino();
        assert_eq!(inode("project/debug/x"), inode("project/debug/deps/x"));
        user.is_clean();
    }
}

#[test]
fn a_directory_that_is_exchanged_meanwhile_is_left_alone() {
    for user in users() {
        user.place.write("project/dir/f", "old");
        user.place.write("project/build/old", "old");
        for name in ["f", "dir/f", "build/keep"] {
            user.place.write(&format!("other/{name}"), "precious");
        }
        user.own();
        let line = "set -e; echo new > f; echo new > dir/f; rm -r build; mkdir build; echo new > build/new";
        let ran = user.keeps_after(line, || {
            user.rename("project", "before");
            user.rename("other", "project");
        });
        assert_eq!(ran.status, 125, "{}", ran.stderr);
        assert!(ran.stderr.contains("was replaced"), "{}", ran.stderr);
        let place = user.trial();
        let again = user.run(&["try", "--apply", &place]);
        assert_eq!(again.status, 125, "{}", again.stderr);
        for name in ["f", "dir/f", "build/keep"] {
            assert_eq!(user.place.read(&format!("project/{name}")), "precious", "{name}");
        }
        user.rename("project", "other");
        user.rename("before", "project");
        // Nothing was read yet, and all is there.
        ok(&user.run(&["try", "--apply", &place]));
        for name in ["f", "dir/f", "build/new"] {
            assert_eq!(user.place.read(&format!("project/{name}")), "new\n", "{name}");
        }
        assert!(!user.place.path("project/build/old").exists());
        // The same inside.
        for (name, line) in [("dir", "echo newer > dir/f"), ("build", "rm -r build; mkdir build")] {
            let (inside, aside) = (format!("project/{name}"), format!("other/{name}"));
            let ran = user.keeps_after(line, || {
                user.rename(&inside, "before");
                user.rename(&aside, &inside);
            });
            assert_eq!(ran.status, 125, "{}", ran.stderr);
            let path = if name == "dir" { "project/dir/f" } else { "project/build/keep" };
            assert_eq!(user.place.read(path), "precious");
            ok(&user.run(&["try", "--apply", &user.trial(), "--drop"]));
            user.rename(&inside, &aside);
            user.rename("before", &inside);
        }
        // New files beside those of the program are no conflict.
        ok(&user.keeps_after("echo newer > dir/f", || user.place.write("project/dir/mine", "mine")));
        assert_eq!(user.place.read("project/dir/f"), "newer\n");
        user.is_clean();
    }
}

#[test]
fn changes_are_kept_without_a_diff_and_without_stderr() {
    for user in users() {
        let ran =
            user.keeps_after("echo x > x", || fs::write(Path::new(&user.trial()).join("store"), "").unwrap());
        ok(&ran);
        assert!(ran.stderr.contains("cannot compare the changes"), "{}", ran.stderr);
        assert!(
            ran.stderr.lines().any(|line| line.starts_with("changed") && line.ends_with(" x")),
            "{}",
            ran.stderr
        );
        assert_eq!(user.place.read("project/x"), "x\n");
        let words = ["try", "--dir", "project", "--keep", "--", "sh", "-c", "echo y > y"];
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        assert!(user.around(&[], &words).stderr(full).status().unwrap().success());
        assert_eq!(user.place.read("project/y"), "y\n");
        user.is_clean();
    }
}

#[test]
fn a_diff_that_cannot_be_shown_leaves_the_question_open() {
    for user in users() {
        let words = ["try", "--dir", "project", "--", "sh", "-c", "echo waits; read -r word; echo x > x"];
        let mut terminal = Terminal::new(user.around(&["setsid", "--ctty"], &words));
        terminal.shows("waits");
        fs::write(Path::new(&user.trial()).join("store"), "").unwrap();
        terminal.enter("go\r");
        terminal.shows("? [y/N/d(iff)] ");
        terminal.enter("d\r");
        terminal.shows("the difference cannot be shown");
        terminal.enter("y\r");
        assert_eq!(terminal.ends(), Some(0), "{}", terminal.seen());
        assert_eq!(user.place.read("project/x"), "x\n");
        user.is_clean();
    }
}

#[test]
fn files_that_are_closed_to_their_owner_keep_mode_and_links() {
    for user in users() {
        user.place.write("project/one", "one");
        fs::hard_link(user.place.path("project/one"), user.place.path("project/two")).unwrap();
        user.place.chmod("project/one", 0o444);
        user.own();
        let line = "set -e; ln one three; echo p > p; chmod 000 p; ln p q; echo r > r; chmod 444 r; ln r s; \
                    mkdir closed; echo x > closed/x; chmod 000 closed/x; ln closed/x x; chmod 500 closed";
        // Read once more, by another process.
        let block = || fs::create_dir(Path::new(&user.trial()).join("plan.new")).unwrap();
        let ran = user.keeps_after(line, block);
        assert_eq!(ran.status, 125, "{}", ran.stderr);
        let place = user.trial();
        fs::remove_dir(Path::new(&place).join("plan.new")).unwrap();
        ok(&user.run(&["try", "--apply", &place]));
        let of = |name: &str| {
            let found = fs::metadata(user.place.path("project").join(name)).unwrap();
            (found.ino(), found.mode() & 0o7777)
        };
        for (names, mode) in [
            (&["one", "two", "three"][..], 0o444),
            (&["p", "q"], 0),
            (&["r", "s"], 0o444),
            (&["closed/x", "x"], 0),
            (&["closed"], 0o500),
        ] {
            for name in names {
                assert_eq!(of(name), (of(names[0]).0, mode), "{name}");
            }
        }
        user.place.chmod("project/closed", 0o700);
        user.is_clean();
    }
}

#[test]
fn access_control_lists_are_kept() {
    use rustix::fs::{XattrFlags, getxattr, setxattr};
    const FILE: &str = "system.posix_acl_access";
    // Version 2; then tag, permissions and id of each entry: a user who is not the owner may read, and no group may.
    let entries = [(1, 6, u32::MAX), (2, 4, 61_999), (4, 0, u32::MAX), (16, 4, u32::MAX), (32, 0, u32::MAX)];
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        list.extend([u16::to_le_bytes(tag), u16::to_le_bytes(permissions)].concat());
        list.extend(u32::to_le_bytes(id));
    }
    for user in users() {
        user.place.write("project/file", "old\n");
        user.place.write("project/dir/old", "old\n");
        user.own();
        let at = |name: &str| user.place.path("project").join(name);
        let set = setxattr(at("file"), FILE, &list, XattrFlags::empty());
        if set == Err(rustix::io::Errno::NOTSUP) {
            skip("the filesystem has no access control lists");
            continue;
        }
        set.unwrap();
        setxattr(at("dir"), "system.posix_acl_default", &list, XattrFlags::empty()).unwrap();
        ok(&user.tries("project", &["--keep"], "echo new >> file; (umask 0; echo new > dir/new)"));
        assert_eq!(user.place.read("project/file"), "old\nnew\n");
        for name in ["file", "dir/new"] {
            let mut found = [0; 256];
            let length =
                getxattr(at(name), FILE, &mut found[..]).unwrap_or_else(|errno| panic!("{name}: {errno}"));
            assert_eq!(found[..length], list, "{name}");
        }
        user.is_clean();
    }
}

#[test]
fn set_user_id_bits_are_kept_only_where_they_were() {
    for user in users() {
        user.place.write("project/old", "old");
        user.place.write("project/plain", "plain");
        user.own();
        user.place.chmod("project/old", 0o4755);
        let ran = user.tries(
            "project",
            &["--keep"],
            "chmod 4711 old; echo x > new; chmod 6755 new; chmod 4744 plain",
        );
        ok(&ran);
        for name in ["new", "plain"] {
            assert!(ran.stderr.contains(&format!("{name} loses its set-user-id")), "{}", ran.stderr);
        }
        for (name, mode) in [("old", 0o4711), ("new", 0o755), ("plain", 0o744)] {
            let found = fs::metadata(user.place.path("project").join(name)).unwrap().mode() & 0o7777;
            assert_eq!(found, mode, "{name}");
        }
        user.is_clean();
    }
}

#[test]
fn holes_of_files_are_kept() {
    const LENGTH: u64 = 32 << 20;
    for user in users() {
        let line = format!(
            "printf begin > sparse; truncate -s {LENGTH} sparse; printf end >> sparse; truncate -s {LENGTH} hole"
        );
        ok(&user.tries("project", &["--keep"], &line));
        for (name, begin, end) in [("sparse", "begin", "end"), ("hole", "", "")] {
            let path = format!("project/{name}");
            let found = fs::metadata(user.place.path(&path)).unwrap();
            assert_eq!(found.len(), LENGTH + end.len() as u64);
            assert!(found.blocks() * 512 < LENGTH / 2, "{name}: {}", found.blocks());
            let text = user.place.read(&path);
            assert!(text.starts_with(begin) && text.ends_with(end));
            assert_eq!(text.bytes().filter(|byte| *byte != 0).count(), begin.len() + end.len(), "{name}");
        }
        user.is_clean();
    }
}

#[test]
fn changes_that_cannot_be_noted_are_not_lost() {
    for user in users() {
        // As on a full disk: no file of the place can be written.
        let block = |place: &str| {
            for name in ["plan.new", "trial.new"] {
                fs::create_dir(Path::new(place).join(name)).unwrap();
            }
        };
        let ran = user.keeps_after("echo x > x; rm build.sh; echo h > ~/h", || block(&user.trial()));
        assert_eq!(ran.status, 125, "{}", ran.stderr);
        assert!(ran.stderr.contains("nothing is lost"), "{}", ran.stderr);
        assert!(user.place.path("project/build.sh").exists() && !user.place.path("project/x").exists());
        let place = user.trial();
        let name = Path::new(&place).file_name().unwrap().to_str().unwrap().to_owned();
        let of_home = fs::read_dir("/var/tmp").unwrap().filter_map(Result::ok);
        let ending = format!("-try-{name}");
        assert_eq!(of_home.filter(|it| it.file_name().to_string_lossy().ends_with(&ending)).count(), 0);
        let next = user.attempt(&[], "true");
        ok(&next);
        assert!(next.stderr.contains(&format!("/{name};")), "{}", next.stderr);
        for name in ["plan.new", "trial.new"] {
            fs::remove_dir(Path::new(&place).join(name)).unwrap();
        }
        ok(&user.run(&["try", "--apply", &place]));
        assert_eq!(user.place.read("project/x"), "x\n");
        assert!(!user.place.path("project/build.sh").exists());
        user.is_clean();
    }
}

#[test]
fn a_trial_that_is_killed_ends_its_program_and_is_cleared_away_by_the_next() {
    for user in users() {
        let marker = format!("{}.5", 100_000 + std::process::id());
        let line = format!("echo x > x; echo h > ~/h; sleep {marker} & echo ready; exec sleep {marker}");
        let mut child = user.begin(&["--keep"], &line);
        says(&mut child, "ready");
        let runs = || {
            let all = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
            all.filter_map(|it| fs::read(it.path().join("cmdline")).ok())
                .any(|line| line.starts_with(b"sleep\0") && String::from_utf8_lossy(&line).contains(&marker))
        };
        soon("the program runs", runs);
        child.kill().unwrap();
        child.wait().unwrap();
        soon("the program ends", || !runs());
        assert_eq!(fs::read_dir(user.place.path(PLACES)).unwrap().count(), 1);
        let of_home = || {
            let all = fs::read_dir("/var/tmp").unwrap().filter_map(Result::ok);
            let ending = format!("-try-{}-0", child.id());
            all.filter(|it| it.file_name().to_string_lossy().ends_with(&ending)).count()
        };
        assert_eq!(of_home(), 1);
        let mut living = user.begin(&["--keep"], "echo ready; read line; echo y > y");
        says(&mut living, "ready");
        ok(&user.attempt(&[], "true"));
        living.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
        let ran = Ran::of(&wait(living));
        ok(&ran);
        assert!(user.place.path("project/y").exists() && !user.place.path("project/x").exists());
        assert_eq!(of_home(), 0);
        user.is_clean();
    }
}

#[test]
fn many_files_are_read_without_a_snapshot() {
    for user in users() {
        for number in 0..2_000 {
            user.place.write(&format!("project/many/{number}"), number.to_string());
        }
        user.own();
        let ran = user.tries(
            "project",
            &["--keep"],
            "ls many | wc -l; cat many/77; rm many/1; echo other > many/2",
        );
        ok(&ran);
        assert_eq!(ran.stdout, "2000\n77");
        assert!(!user.place.path("project/many/1").exists());
        assert_eq!(user.place.read("project/many/2"), "other\n");
        assert!(!user.place.path("store").exists(), "no store is made");
        user.is_clean();
    }
}

#[test]
fn a_program_that_is_not_there_is_told_as_shells_do() {
    for user in users() {
        let ran = user.run(&["try", "--dir", "project", "--", "no-such-program"]);
        assert_eq!(ran.status, 127, "{}", ran.stderr);
        assert!(ran.stderr.contains("cannot run no-such-program"), "{}", ran.stderr);
        let ran = user.run(&["try", "--dir", "project", "--", "./README.md"]);
        assert_eq!(ran.status, 126, "{}", ran.stderr);
        user.is_clean();
    }
}

#[test]
fn files_in_memory_have_one_bound() {
    for user in users() {
        let line = "df --output=size -k /tmp /var/tmp /run /dev/shm | tail -n +2 | sort -u | wc -l; \
                    df --output=size -k /tmp | tail -1; awk '/MemTotal/ { print $2 }' /proc/meminfo";
        let ran = user.tries("project", &[], line);
        ok(&ran);
        let numbers: Vec<u64> = ran.stdout.split_whitespace().map(|word| word.parse().unwrap()).collect();
        let [different, size, memory] = numbers[..] else { panic!("{}", ran.stdout) };
        assert_eq!(different, 1);
        assert!(size <= memory / 4 + 4, "{size} of {memory}");
    }
}
