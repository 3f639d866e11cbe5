//! Projects and git: imports of repositories, bundles and archives, exports with history.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use crate::server::Server;
use crate::support::succeed;

/// Server without sandboxes, and a directory for repositories.
struct Fixture {
    server: Server,
}

impl Fixture {
    fn new() -> Self {
        let server = Server::without_sandboxes(&[]);
        server.ok(&["project", "create", "site"]);
        Self { server }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.server.place.path(name)
    }

    fn git(&self, directory: &Path, words: &[&str]) -> String {
        let mut command = self.server.place.program("git");
        command.current_dir(directory).env("GIT_CONFIG_NOSYSTEM", "1");
        for role in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{role}_NAME"), "Ada Lovelace");
            command.env(format!("GIT_{role}_EMAIL"), "ada@example.org");
            command.env(format!("GIT_{role}_DATE"), "2001-09-09T01:46:40+0200");
        }
        command.args([
            "-c",
            "init.defaultBranch=main",
            "-c",
            "commit.gpgsign=false",
            "-c",
            "core.quotePath=false",
        ]);
        succeed(command.args(words)).stdout
    }

    fn commit(&self, repository: &Path, message: &str) {
        self.git(repository, &["add", "-A"]);
        self.git(repository, &["commit", "-q", "-m", message]);
    }

    /// Creates a repository of two commits and a merge, with an executable file, a symlink and a name that is not UTF-8.
    fn repository(&self) -> PathBuf {
        let path = self.path("repository");
        fs::create_dir(&path).unwrap();
        self.git(&path, &["init", "-q"]);
        fs::write(path.join("run.sh"), "#!/bin/sh\n").unwrap();
        fs::set_permissions(path.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
        symlink("run.sh", path.join("link")).unwrap();
        fs::write(path.join(OsStr::from_bytes(b"caf\xe9 \"x\"")), "latin\n").unwrap();
        self.commit(&path, "first\n\nwith a body");
        self.git(&path, &["checkout", "-q", "-b", "side"]);
        fs::write(path.join("side"), "side\n").unwrap();
        self.commit(&path, "side");
        self.git(&path, &["checkout", "-q", "main"]);
        self.git(&path, &["merge", "-q", "--no-ff", "-m", "merge side", "side"]);
        fs::remove_file(path.join("side")).unwrap();
        fs::write(path.join("run.sh"), "#!/bin/bash\n").unwrap();
        self.commit(&path, "third");
        path
    }

    fn log(&self) -> Vec<serde_json::Value> {
        let mut log = self.server.json(&["project", "log", "site"]);
        log.reverse();
        log
    }

    fn messages(&self) -> Vec<String> {
        self.log().iter().map(|entry| entry["message"].as_str().unwrap().to_owned()).collect()
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn the_tree_of_a_commit_is_imported_with_its_message_and_author() {
    let fixture = Fixture::new();
    let repository = fixture.repository();
    fs::write(repository.join("untracked"), "u\n").unwrap();
    let imported = fixture.server.ok(&["project", "import", "site", text(&repository), "--git"]);
    assert!(imported.starts_with("sequence 1: 2 files"), "{imported}");
    let log = fixture.log();
    assert_eq!(log[0]["message"], "third");
    assert_eq!(log[0]["author"], "Ada Lovelace <ada@example.org>");
    assert_eq!(log[0]["commitTime"], "2001-09-08T23:46:40.000Z");
    assert_eq!(log[0]["commit"], fixture.git(&repository, &["rev-parse", "HEAD"]).trim());
    let copy = fixture.path("copy");
    fixture.server.ok(&["project", "export", "site", text(&copy)]);
    assert_eq!(fs::metadata(copy.join("run.sh")).unwrap().permissions().mode() & 0o777, 0o755);
    assert_eq!(fs::read_link(copy.join("link")).unwrap(), Path::new("run.sh"));
    assert_eq!(fs::read(copy.join(OsStr::from_bytes(b"caf\xe9 \"x\""))).unwrap(), b"latin\n");
    assert!(!copy.join("untracked").exists() && !copy.join(".git").exists());
    let older =
        fixture.server.ok(&["project", "import", "site", text(&repository), "--git=side", "-m", "mine"]);
    assert!(older.starts_with("sequence 2: "), "{older}");
    assert_eq!(fixture.messages(), ["third", "mine"]);
    let missing = fixture.server.run(&["project", "import", "site", text(&repository), "--git=nothing"]);
    assert!(missing.stderr.contains("there is no commit `nothing`"), "{}", missing.stderr);
}

#[test]
fn a_history_is_imported_by_first_parents_and_continued() {
    let fixture = Fixture::new();
    let repository = fixture.repository();
    let words = ["project", "import", "site", text(&repository), "--history"];
    assert_eq!(fixture.server.ok(&words), "sequences 1 to 3: 3 commits\n");
    assert_eq!(fixture.messages(), ["first\n\nwith a body", "merge side", "third"]);
    assert_eq!(fixture.server.ok(&words), "nothing differs: 0 commits\n");
    fs::write(repository.join("new"), "n\n").unwrap();
    fixture.commit(&repository, "fourth");
    assert_eq!(fixture.server.ok(&words), "sequences 4 to 4: 1 commit\n");
    let diff = fixture.server.ok(&["project", "diff", "site"]);
    assert_eq!(diff, "added        new\n");
}

#[test]
fn bundles_bare_repositories_and_urls_are_imported() {
    let fixture = Fixture::new();
    let repository = fixture.repository();
    let (bundle, bare) = (fixture.path("x.bundle"), fixture.path("bare"));
    fixture.git(&repository, &["bundle", "create", "-q", text(&bundle), "side"]);
    fixture.git(&repository, &["clone", "-q", "--bare", ".", text(&bare)]);
    fixture.server.ok(&["project", "import", "site", text(&bundle)]);
    fixture.server.ok(&["project", "import", "site", text(&bare)]);
    fixture.server.ok(&["project", "import", "site", &format!("file://{}", text(&repository)), "--git=side"]);
    assert_eq!(fixture.messages(), ["side", "third", "side"]);
    let url = format!("file://{}", text(&repository));
    assert_eq!(
        fixture.server.ok(&["project", "import", "site", &url, "--history"]),
        "sequences 4 to 6: 3 commits\n"
    );
}

#[test]
fn nothing_that_a_hostile_repository_configures_is_executed() {
    let fixture = Fixture::new();
    let repository = fixture.repository();
    let mark = fixture.path("executed");
    let program = fixture.path("program");
    fs::write(&program, format!("#!/bin/sh\ntouch {}\n", text(&mark))).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    for hook in ["post-checkout", "reference-transaction", "post-merge", "pre-push", "upload-pack"] {
        fs::create_dir_all(repository.join(".git/hooks")).unwrap();
        fs::copy(&program, repository.join(".git/hooks").join(hook)).unwrap();
    }
    for setting in
        ["core.fsmonitor", "core.sshCommand", "core.alternateRefsCommand", "core.pager", "diff.external"]
    {
        fixture.git(&repository, &["config", setting, text(&program)]);
    }
    // A missing object would be fetched from the promisor, through a program.
    fixture.git(&repository, &["config", "remote.origin.url", &format!("ext::{}", text(&program))]);
    fixture.git(&repository, &["config", "remote.origin.promisor", "true"]);
    fixture.git(&repository, &["config", "protocol.ext.allow", "always"]);
    fixture.server.ok(&["project", "import", "site", text(&repository), "--git"]);
    let blob = fixture.git(&repository, &["rev-parse", "HEAD:run.sh"]);
    let (directory, name) = blob.trim().split_at(2);
    fs::remove_file(repository.join(".git/objects").join(directory).join(name)).unwrap();
    let _ = fs::remove_file(&mark);
    let failed = fixture.server.run(&["project", "import", "site", text(&repository), "--git"]);
    assert_ne!(failed.status, 0);
    assert!(!mark.exists(), "{}", failed.stderr);
    for source in ["ext::sh -c id", "--upload-pack=id"] {
        let refused = fixture.server.run(&["project", "import", "site", "--git", "--", source]);
        assert_ne!(refused.status, 0);
        assert!(refused.stderr.contains("hint: "), "{}", refused.stderr);
    }
    assert_eq!(fixture.messages(), ["third"]);
}

#[test]
fn an_empty_repository_imports_nothing() {
    let fixture = Fixture::new();
    let path = fixture.path("empty");
    fs::create_dir(&path).unwrap();
    fixture.git(&path, &["init", "-q"]);
    for option in ["--git", "--history"] {
        let ran = fixture.server.run(&["project", "import", "site", text(&path), option]);
        assert_eq!((ran.status, ran.stdout.as_str()), (0, ""), "{}", ran.stderr);
        assert!(ran.stderr.contains("no commits"), "{}", ran.stderr);
    }
    assert!(fixture.log().is_empty());
}

#[test]
fn an_export_has_one_commit_per_sequence_and_continues() {
    let fixture = Fixture::new();
    let repository = fixture.repository();
    fixture.server.ok(&["project", "import", "site", text(&repository), "--history"]);
    let target = fixture.path("target");
    assert_eq!(fixture.server.ok(&["project", "export", "site", "--git", text(&target)]), "3 commits\n");
    let log = fixture.git(&target, &["log", "--reverse", "--format=%an <%ae> %at %s"]);
    let author = "Ada Lovelace <ada@example.org> 999992800";
    assert_eq!(log, format!("{author} first\n{author} merge side\n{author} third\n"));
    // The files are those of the original commits: content, modes, symlinks and names.
    let trees = |path: &Path, revision: &str| {
        let list = ["log", "--first-parent", "--format=%T", revision];
        fixture.git(path, &list)
    };
    assert_eq!(trees(&target, "main"), trees(&repository, "main"));
    assert_eq!(fs::read_to_string(target.join("run.sh")).unwrap(), "#!/bin/bash\n");
    assert_eq!(fixture.git(&target, &["status", "--porcelain"]), "");
    let trailer =
        fixture.git(&target, &["log", "-1", "--format=%(trailers:key=Workspace-Sequence,valueonly)"]);
    assert_eq!(trailer.trim(), "3");
    assert_eq!(fixture.server.ok(&["project", "export", "site", "--git", text(&target)]), "0 commits\n");
    // A message cannot forge the position of the next export.
    let files = fixture.path("files");
    fs::create_dir_all(files.join("deep")).unwrap();
    fs::write(files.join("deep/file"), "d\n").unwrap();
    let forged = "change\n\nWorkspace-Sequence: 99";
    fixture.server.ok(&["project", "import", "site", text(&files), "-m", forged]);
    fs::rename(files.join("deep"), files.join("moved")).unwrap();
    fixture.server.ok(&["project", "import", "site", text(&files), "-m", "move"]);
    fixture.git(&target, &["checkout", "-q", "--detach"]);
    let branch = ["project", "export", "site", "--git", text(&target), "--branch", "main"];
    assert_eq!(fixture.server.ok(&branch), "2 commits\n");
    assert_eq!(fixture.git(&target, &["ls-tree", "-r", "--name-only", "main"]), "moved/file\n");
    let at = fixture.git(
        &target,
        &["log", "--format=%(trailers:key=Workspace-Sequence,valueonly,separator=%x2C)", "main"],
    );
    assert_eq!(at, "5\n4\n3\n2\n1\n");
}

#[test]
fn an_export_does_not_replace_what_is_not_its_own() {
    let fixture = Fixture::new();
    let repository = fixture.repository();
    fixture.server.ok(&["project", "import", "site", text(&repository), "--git"]);
    let before = fixture.git(&repository, &["rev-parse", "main"]);
    let refused = fixture.server.run(&["project", "export", "site", "--git", text(&repository)]);
    assert!(refused.stderr.contains("is no export of project `site`"), "{}", refused.stderr);
    assert_eq!(fixture.git(&repository, &["rev-parse", "main"]), before);
    let branch = ["project", "export", "site", "--git", text(&repository), "--branch", "export"];
    assert_eq!(fixture.server.ok(&branch), "1 commit\n");
    fixture.git(&repository, &["checkout", "-q", "export"]);
    fs::write(repository.join("run.sh"), "mine\n").unwrap();
    let refused = fixture.server.run(&branch);
    assert!(refused.stderr.contains("is checked out"), "{}", refused.stderr);
    assert_eq!(fs::read_to_string(repository.join("run.sh")).unwrap(), "mine\n");
    let files = fixture.path("files");
    fs::create_dir(&files).unwrap();
    fs::write(files.join("a"), "a\n").unwrap();
    let refused = fixture.server.run(&["project", "export", "site", "--git", text(&files)]);
    assert!(refused.stderr.contains("neither empty nor a git repository"), "{}", refused.stderr);
    for name in ["-f", "a..b", ""] {
        let refused =
            fixture.server.run(&["project", "export", "site", "--git", "new", &format!("--branch={name}")]);
        assert_ne!(refused.status, 0, "{name}");
    }
}

#[test]
fn bundles_and_archives_are_exported_and_imported_again() {
    let fixture = Fixture::new();
    let bundle = fixture.path("site.bundle");
    let empty = fixture.server.run(&["project", "export", "site", "--bundle", text(&bundle)]);
    assert!(empty.stderr.contains("no changes yet"), "{}", empty.stderr);
    let repository = fixture.repository();
    fixture.server.ok(&["project", "import", "site", text(&repository), "--history"]);
    let words = ["project", "export", "site", "--bundle", text(&bundle), "--at", "2"];
    assert_eq!(fixture.server.ok(&words), "2 commits\n");
    let tar = fixture.path("site.tar");
    fixture.server.ok(&["project", "export", "site", "--tar", text(&tar)]);
    fixture.server.ok(&["project", "create", "copy"]);
    let imported = fixture.server.ok(&["project", "import", "copy", text(&bundle), "--history"]);
    assert_eq!(imported, "sequences 1 to 2: 2 commits\n");
    fixture.server.ok(&["project", "import", "copy", text(&tar)]);
    let mut stdin = fixture.server.workspace(&["project", "import", "copy", "-"]);
    let same = succeed(stdin.stdin(fs::File::open(&tar).unwrap()));
    assert!(same.stdout.starts_with("nothing differs: 2 files"), "{}", same.stdout);
    let piped = fixture.server.workspace(&["project", "export", "copy", "--tar", "-"]).output().unwrap();
    assert!(piped.status.success() && piped.stdout.len() > 1024);
}

#[test]
fn a_missing_git_is_named_with_a_way_out() {
    let fixture = Fixture::new();
    let repository = fixture.repository();
    let mut command = fixture.server.workspace(&["project", "import", "site", text(&repository), "--git"]);
    let ran = command.env("PATH", fixture.path("nothing")).output().unwrap();
    let stderr = String::from_utf8_lossy(&ran.stderr);
    assert!(stderr.contains("`git` is not installed") && stderr.contains("hint: "), "{stderr}");
}
