//! The view of the machine that `workspace try` gives a program: what it must not change, reach or read.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;

use workspace_test_support::{runs_as_root, skip};

use crate::support::{Ran, succeed};
use crate::trials::users;

fn ok(ran: &Ran) {
    assert_eq!(ran.status, 0, "{}{}", ran.stdout, ran.stderr);
}

#[test]
fn metadata_of_devices_cannot_be_changed() {
    for user in users() {
        // Changes to what it is anyway.
        let line = "for path in /dev/full /dev/null /dev/random /dev/tty /dev/urandom /dev/zero; do \
                    chmod $(stat -c %a $path) $path && echo changed; chown $(id -u) $path && echo changed; done; \
                    echo x > /dev/null && head -c 1 /dev/zero | wc -c; ! echo x > /dev/full";
        let ran = user.attempt(&[], line);
        ok(&ran);
        assert_eq!(ran.stdout, "1\n", "{}", ran.stderr);
        if !user.ordinary && rustix::process::geteuid().is_root() {
            assert!(ran.stderr.contains("Read-only file system"), "{}", ran.stderr);
        }
        user.is_clean();
    }
}

#[test]
fn metadata_of_the_kernels_files_cannot_be_changed() {
    for user in users() {
        // Changes to what it is anyway: an entry is the same in every /proc.
        let line = "cd /proc; for name in *; do \
                    case $name in *[!0-9]*) ;; *) continue;; esac; test -L $name && continue; \
                    chmod $(stat -c %a $name) $name 2>/dev/null && echo changed $name; done; \
                    chmod $(stat -c %a tty/drivers) tty/drivers && echo changed; \
                    cat version uptime meminfo > /dev/null && echo read; echo 500 > self/oom_score_adj && echo written";
        let ran = user.attempt(&[], line);
        ok(&ran);
        assert_eq!(ran.stdout, "read\nwritten\n", "{}", ran.stderr);
        user.is_clean();
    }
}

#[test]
fn sockets_of_the_machine_are_hidden() {
    for user in users() {
        user.place.write("repo/sub/file", "");
        let mut git = user.place.program("git");
        succeed(git.args(["init", "-q"]).current_dir(user.place.path("repo")));
        // The repository around the directory is seen where it is, read-only.
        let listeners = ["repo/socket", "repo/sub/socket", "home/socket"]
            .map(|path| UnixListener::bind(user.place.path(path)).unwrap());
        user.own();
        let line = "test -S socket && echo seen; test -e ../socket && echo there; \
                    test -S ../socket && echo reached; rm socket && echo removed";
        let ran = user.run(&["try", "--dir", "repo/sub", "--", "sh", "-c", line]);
        ok(&ran);
        assert_eq!(ran.stdout, "seen\nthere\nremoved\n", "{}", ran.stderr);
        drop(listeners);
        user.is_clean();
    }
}

#[test]
fn secrets_are_hidden_in_every_mount_of_their_filesystem() {
    // The program runs as both.
    if !runs_as_root("can mount something to look at") {
        return;
    }
    for user in users() {
        user.place.write("home/.ssh/id", "private\n");
        user.place.write("home/.ssh/deep/id", "private\n");
        user.place.write("home/.netrc", "private\n");
        user.place.write("home/plain", "plain\n");
        user.own();
        let listener = UnixListener::bind(user.place.path("home/socket")).unwrap();
        let home = fs::canonicalize(user.place.path("home")).unwrap();
        // The home, and a part of what is hidden in it.
        let mounts = "mount --bind \"$0\" /mnt && mount --bind \"$0/.ssh/deep\" /srv && exec \"$@\"";
        let before =
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", mounts, home.to_str().unwrap()];
        let line = "cat /mnt/.ssh/id /mnt/.netrc /srv/id 2>/dev/null; cat /mnt/plain; test -S /mnt/socket && echo reached";
        let words = ["try", "--dir", "project", "--", "sh", "-c", &format!("{line}; true")];
        let ran = Ran::of(&user.around(&before, &words).output().unwrap());
        ok(&ran);
        assert_eq!(ran.stdout, "plain\n", "{}", ran.stderr);
        // What is shown is shown there too.
        let words = ["try", "--dir", "project", "--show", "/mnt/.netrc", "--", "cat", "/mnt/.netrc"];
        let ran = Ran::of(&user.around(&before, &words).output().unwrap());
        ok(&ran);
        assert_eq!(ran.stdout, "private\n", "{}", ran.stderr);
        drop(listener);
        user.is_clean();
    }
}

#[test]
fn mounts_below_hidden_paths_do_not_make_the_home_read_only() {
    if !runs_as_root("can mount something") {
        return;
    }
    if fs::read_link("/proc/self/ns/user").unwrap() != Path::new("user:[4026531837]") {
        skip("root of another user namespace than the first cannot leave out mounts");
        return;
    }
    for user in users().into_iter().filter(|user| !user.ordinary) {
        let home = fs::canonicalize(user.place.path("home")).unwrap();
        let (hidden, visible) = (home.join(".local/share/workspace-server/sandbox"), home.join("visible"));
        fs::create_dir_all(&hidden).unwrap();
        fs::create_dir(&visible).unwrap();
        let run_with_mount = |path: &Path, more: &str| {
            let script = format!("mount -t tmpfs none \"$0\" && touch \"$0/secret\" && {more} exec \"$@\"");
            let path = path.to_str().unwrap();
            let before = ["unshare", "--mount", "--propagation", "private", "sh", "-c", &script, path];
            let line = "touch ~/new && echo written; ls ~/.local/share/workspace-server; true";
            let words = ["try", "--dir", "project", "--", "sh", "-c", line];
            let ran = Ran::of(&user.around(&before, &words).output().unwrap());
            ok(&ran);
            ran
        };
        // The second time, with mounts that another one on a parent directory covers, so that their paths lead
        // nowhere.
        let cover =
            "mkdir \"$0/inner\" && mount -t tmpfs none \"$0/inner\" && mount -t tmpfs none \"${0%/*}\" &&";
        for more in ["", cover] {
            let ran = run_with_mount(&hidden, more);
            assert_eq!(ran.stdout, "written\n", "{}", ran.stderr);
            assert!(!ran.stderr.contains("read-only"), "{}", ran.stderr);
        }
        let ran = run_with_mount(&visible, "");
        assert_eq!(ran.stdout, "", "{}", ran.stderr);
        assert!(ran.stderr.contains("your home directory is read-only"), "{}", ran.stderr);
        assert!(!home.join("new").exists());
        user.is_clean();
    }
}

#[test]
fn variables_with_secrets_stay_outside_and_are_named() {
    for user in users() {
        let secret = [
            ("MYSQL_PWD", "hush"),
            ("RAILS_MASTER_KEY", "hush"),
            ("GH_PAT", "hush"),
            ("SSHPASS", "hush"),
            ("REDIS_URL", "redis://:hush@host"),
            ("PIP_INDEX_URL", "https://user:hush@host/simple"),
        ];
        let mut command =
            user.around(&[], &["try", "--dir", "project", "--env", "GH_PAT=given", "--", "env"]);
        let ran = Ran::of(&command.envs(secret).env("PLAIN_URL", "https://host:80/a@b").output().unwrap());
        ok(&ran);
        assert!(!ran.stdout.contains("hush"), "{}", ran.stdout);
        for line in ["GH_PAT=given", "PLAIN_URL=https://host:80/a@b"] {
            assert!(ran.stdout.lines().any(|it| it == line), "{line}: {}", ran.stdout);
        }
        let mut command = user.around(&[], &["try", "--dir", "project", "--list-hidden"]);
        let ran = Ran::of(&command.envs(secret).output().unwrap());
        ok(&ran);
        assert!(secret.iter().all(|(name, _)| ran.stderr.contains(name)), "{}", ran.stderr);
        assert!(!ran.stdout.contains("hush") && !ran.stderr.contains("hush"), "{}{}", ran.stdout, ran.stderr);
    }
}

#[test]
fn secrets_at_paths_that_variables_or_links_name_are_hidden() {
    for user in users() {
        let secret = [
            "cargo/credentials.toml",
            "kube/one",
            "kube/two",
            "xdg/gh/hosts.yml",
            "xdg/google-chrome-beta/Cookies",
            "xdg/Bitwarden/data.json",
            "data/keyrings/login.keyring",
            "state/bash/history",
            "history",
            "dotfiles/id",
            ".config/github-copilot/hosts.json",
            ".config/containers/auth.json",
            ".dockercfg",
            ".databrickscfg",
            ".gemini/oauth_creds.json",
            ".var/app/browser/profile",
        ];
        for path in secret {
            user.place.write(&format!("home/{path}"), "hush\n");
        }
        for path in ["cargo/config.toml", "xdg/plain", "dotfiles/plain"] {
            user.place.write(&format!("home/{path}"), "plain\n");
        }
        fs::create_dir(user.place.path("home/.ssh")).unwrap();
        symlink("../dotfiles/id", user.place.path("home/.ssh/id")).unwrap();
        user.place.write("project/kubeconfig", "mine\n");
        user.own();
        let home = user.place.path("home");
        let kube = ["home/kube/one", "home/kube/two", "project/kubeconfig"].map(|path| user.place.path(path));
        let line = format!(
            "cd ~; cat {} 2>/dev/null; cat cargo/config.toml xdg/plain dotfiles/plain \"$OLDPWD/kubeconfig\"",
            secret.join(" ")
        );
        let mut command = user.around(&[], &["try", "--dir", "project", "--", "sh", "-c", &line]);
        command
            .env("CARGO_HOME", home.join("cargo"))
            .env("KUBECONFIG", std::env::join_paths(kube).unwrap())
            .env("XDG_CONFIG_HOME", home.join("xdg"))
            .env("XDG_DATA_HOME", home.join("data"))
            .env("XDG_STATE_HOME", home.join("state"))
            .env("HISTFILE", home.join("history"));
        let ran = Ran::of(&command.output().unwrap());
        ok(&ran);
        assert_eq!(ran.stdout, "plain\nplain\nplain\nmine\n", "{}", ran.stderr);
        user.is_clean();
    }
}

#[test]
fn changes_of_what_git_runs_are_noted() {
    for user in users() {
        let mut git = user.place.program("git");
        succeed(git.args(["init", "-q"]).current_dir(user.place.path("project")));
        user.own();
        let line = "mkdir -p .git/hooks; echo true > .git/hooks/pre-commit; git config core.pager true";
        let ran = user.attempt(&["--json"], line);
        ok(&ran);
        let told: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        let noted: Vec<&str> = told["entries"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|entry| entry["notes"].as_array().unwrap().iter().any(|note| note["code"] == "git_code"))
            .map(|entry| entry["path"].as_str().unwrap())
            .collect();
        assert_eq!(noted, [".git/config", ".git/hooks/pre-commit"], "{told}");
        user.is_clean();
    }
}
