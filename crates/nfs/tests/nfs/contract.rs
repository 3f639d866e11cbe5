//! Contract of [`NfsProvider`], which every implementation must keep: the embedded server, and the kernel's server with
//! a program in place of `exportfs` that records the lines.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use workspace_nfs::{
    Access, ClientList, Export, Identity, NfsError, NfsProvider, NfsServer, NoObserver, Settings, SystemNfs,
    SystemSettings,
};
use workspace_test_support::requires;

use crate::fixture::open;

/// User of the exported files: clients of the kernel's server may not act as root.
const USER: Identity = Identity { uid: 54_321, gid: 54_321 };

/// Directory with the state of a server, and directories to export.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        // As the kernel reports it.
        fs::canonicalize(self.0.path()).unwrap().join(name)
    }

    /// Creates a directory to export, unless it exists, and opens it.
    fn directory(&self, name: &str) -> OwnedFd {
        let path = self.path(name);
        fs::create_dir_all(&path).unwrap();
        if Identity::own().uid == 0 {
            chown(&path, Some(USER.uid), Some(USER.gid)).unwrap();
        }
        open(&path)
    }

    fn embedded(&self) -> NfsServer {
        let mut settings = Settings::new(self.path("state"));
        settings.ports = vec![0];
        NfsServer::new(settings, Arc::new(NoObserver)).unwrap()
    }

    /// Returns the settings of the kernel's server. `exportfs` appends the content of the file to `exported`, and
    /// succeeds unless there is a file `refusal`, whose text it prints.
    fn system_settings(&self) -> SystemSettings {
        let [file, program, nfsd] = ["test.exports", "exportfs", "nfsd"].map(|name| self.path(name));
        fs::create_dir_all(&nfsd).unwrap();
        fs::write(nfsd.join("threads"), "8\n").unwrap();
        let (directory, file_name) = (self.path(""), file.display());
        let script = format!(
            "#!/bin/sh\ncd '{}' || exit 2\necho \"$*\" >> arguments\ncp '{file_name}' exported.new\n\
             mv exported.new exported\nif [ -e refusal ]; then cat refusal >&2; exit 1; fi\n",
            directory.display()
        );
        if !program.exists() {
            fs::write(&program, script).unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        }
        SystemSettings { exportfs: Some(program), nfsd, ..SystemSettings::new("srv-1", file) }
    }

    fn system(&self) -> SystemNfs {
        SystemNfs::new(self.system_settings()).unwrap()
    }

    /// Returns the lines that `exportfs` has read last, without the options.
    fn exported(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path("exported")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn refuse(&self, message: &str) {
        fs::write(self.path("refusal"), message).unwrap();
    }

    fn export(&self, name: &str) -> Export {
        let user = if Identity::own().uid == 0 { USER } else { Identity::own() };
        Export::new(name, self.directory(name), user).revision("1")
    }
}

/// Returns true if this process is root, which the kernel's server needs; otherwise the test is skipped.
#[track_caller]
fn is_root() -> bool {
    requires(Identity::own().uid == 0, "root, to export directories by the kernel's NFS server")
}

/// Runs a test on each implementation that this process can use.
fn with_each(test: impl Fn(&Place, &dyn Fn(&Place) -> Box<dyn NfsProvider>)) {
    test(&Place::new(), &|place| Box::new(place.embedded()));
    if is_root() {
        test(&Place::new(), &|place| Box::new(place.system()));
    }
}

#[test]
fn a_provider_is_started_and_stopped() {
    with_each(|place, provider| {
        let nfs = provider(place);
        assert!(!nfs.is_running());
        nfs.stop().unwrap();
        nfs.add_export(place.export("early")).unwrap();
        nfs.start().unwrap();
        assert!(nfs.is_running());
        assert!(matches!(nfs.start(), Err(NfsError::AlreadyRunning)));
        let info = nfs.get_server_info();
        assert_eq!(info.host, "127.0.0.1");
        assert!(info.port > 0);
        nfs.stop().unwrap();
        nfs.stop().unwrap();
        assert!(!nfs.is_running());
        assert_eq!(nfs.exports().len(), 1, "exports stay");
        nfs.start().unwrap();
        assert!(nfs.is_running());
        assert_eq!(nfs.get_server_info(), info);
    });
}

#[test]
fn a_provider_adds_lists_and_removes_exports() {
    with_each(|place, provider| {
        let nfs = provider(place);
        nfs.start().unwrap();
        let info = nfs.add_export(place.export("b")).unwrap();
        let clients: ClientList = "10.0.0.0/8".parse().unwrap();
        nfs.add_export(place.export("a").access(Access::ReadOnly).clients(clients.clone())).unwrap();
        assert_eq!(nfs.export_info("b"), Some(info.clone()));
        assert_eq!((&*info.host, info.port), ("127.0.0.1", nfs.get_server_info().port));
        for command in [&info.mount_command, &info.mount_command_macos] {
            assert!(command.contains(&format!(" {}:{} ", info.host, info.path)), "{command}");
        }
        let listed: Vec<_> =
            nfs.exports().into_iter().map(|it| (it.name, it.access, it.clients, it.mounts)).collect();
        let expected = [
            ("a".to_owned(), Access::ReadOnly, clients, 0),
            ("b".to_owned(), Access::ReadWrite, ClientList::any(), 0),
        ];
        assert_eq!(listed, expected);
        assert!(matches!(nfs.add_export(place.export("a")), Err(NfsError::ExportExists { .. })));
        for name in ["", "a/b", "..", "a b"] {
            let export = Export::new(name, place.directory("a"), USER);
            assert!(matches!(nfs.add_export(export), Err(NfsError::InvalidName { .. })), "{name}");
        }
        fs::write(place.path("file"), b"").unwrap();
        let file = Export::new("file", open(&place.path("file")), USER);
        assert!(matches!(nfs.add_export(file), Err(NfsError::UnusableRoot { .. })));
        nfs.remove_export("b").unwrap();
        nfs.remove_export("b").unwrap();
        nfs.remove_export("none").unwrap();
        assert_eq!((nfs.export_info("b"), nfs.exports().len()), (None, 1));
        nfs.add_export(place.export("b")).unwrap();
    });
}

#[test]
fn a_provider_replaces_and_detaches_roots() {
    with_each(|place, provider| {
        let nfs = provider(place);
        nfs.start().unwrap();
        let info = nfs.add_export(place.export("a")).unwrap();
        nfs.detach_root("a").unwrap();
        nfs.detach_root("a").unwrap();
        assert_eq!(nfs.replace_root("a", place.directory("a"), "2").unwrap(), info);
        fs::write(place.path("file"), b"").unwrap();
        nfs.replace_root("a", open(&place.path("file")), "3").unwrap_err();
        assert_eq!(nfs.replace_root("a", place.directory("a"), "4").unwrap(), info);
        let no_such = |result| matches!(result, Err(NfsError::NoSuchExport { .. }));
        assert!(no_such(nfs.replace_root("b", place.directory("b"), "").map(drop)));
        assert!(no_such(nfs.detach_root("b")));
        nfs.remove_export("a").unwrap();
    });
}

#[test]
fn a_provider_is_used_by_many_threads() {
    with_each(|place, provider| {
        let nfs = provider(place);
        nfs.start().unwrap();
        std::thread::scope(|scope| {
            for number in 0..8 {
                let nfs = &nfs;
                scope.spawn(move || {
                    for name in ["x", "y"].map(|kind| format!("{kind}-{number}")) {
                        nfs.add_export(place.export(&name)).unwrap();
                        if name.starts_with('x') {
                            nfs.remove_export(&name).unwrap();
                        }
                    }
                });
            }
        });
        let names: Vec<_> = nfs.exports().into_iter().map(|export| export.name).collect();
        assert_eq!(names, (0..8).map(|number| format!("y-{number}")).collect::<Vec<_>>());
    });
}

/// Returns the line of an export with other fields than its options.
fn fields(line: &str) -> Vec<&str> {
    line.split_whitespace().map(|field| field.split('(').next().unwrap_or_default()).collect()
}

#[test]
fn the_kernel_gets_the_lines_of_all_exports_with_a_root() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let foreign = "# kept\n/srv *(ro)";
    fs::write(place.path("test.exports"), foreign).unwrap();
    let mut settings = place.system_settings();
    settings.allowed_clients = "10.0.0.0/8,192.0.2.7".parse().unwrap();
    let nfs = SystemNfs::new(settings).unwrap();
    nfs.add_export(place.export("early")).unwrap();
    assert!(place.exported().is_empty(), "nothing is written before the start");
    nfs.start().unwrap();
    let odd = place.path("odd name#");
    fs::create_dir(&odd).unwrap();
    let info = nfs.add_export(Export::new("odd", open(&odd), USER)).unwrap();
    let clients = "10.1.0.0/16,198.51.100.0/24".parse().unwrap();
    nfs.add_export(place.export("some").access(Access::ReadOnly).clients(clients)).unwrap();
    nfs.add_export(place.export("nobody").clients("198.51.100.1".parse().unwrap())).unwrap();
    let lines = place.exported();
    let path = |name: &str| place.path(name).display().to_string();
    let both = ["10.0.0.0/8", "192.0.2.7"];
    let line = |path: &str, clients: &[&str], name: &str| -> Vec<String> {
        let mark = ["#", "elevo-workspace", "srv-1", name];
        [path].iter().chain(clients).chain(&mark).map(|field| (*field).to_owned()).collect()
    };
    assert_eq!(lines.len(), 5, "{lines:?}");
    assert_eq!(fields(&lines[0]), line(&path("early"), &both, "early"));
    assert_eq!(fields(&lines[1]), line(&path("odd\\040name\\043"), &both, "odd"));
    assert_eq!(fields(&lines[2]), line(&path("some"), &["10.1.0.0/16"], "some"));
    assert_eq!(lines[3..], ["# kept", "/srv *(ro)"]);
    assert!(lines[0].contains("(rw,") && lines[2].contains("(ro,"));
    for own in &lines[..3] {
        assert!(own.contains(",all_squash,anonuid=54321,anongid=54321,"), "{own}");
        assert!(!own.contains("no_root_squash") && own.contains("root_squash"), "{own}");
    }
    assert_eq!((info.port, &info.path), (2049, &path("odd name#")));
    assert_eq!(
        info.mount_command,
        format!("mount -t nfs -o vers=3,tcp '127.0.0.1:{}' /mnt", path("odd name#"))
    );
    assert_eq!(
        info.mount_command_v4.unwrap(),
        format!("mount -t nfs4 '127.0.0.1:{}' /mnt", path("odd name#"))
    );
    nfs.detach_root("early").unwrap();
    nfs.remove_export("odd").unwrap();
    nfs.stop().unwrap();
    nfs.remove_export("some").unwrap();
    assert_eq!(fs::read_to_string(place.path("test.exports")).unwrap(), foreign);
    assert_eq!(place.exported(), ["# kept", "/srv *(ro)"]);
    let arguments = fs::read_to_string(place.path("arguments")).unwrap();
    assert!(arguments.lines().all(|line| line == "-ra"), "{arguments}");
}

#[test]
fn handles_of_a_replaced_root_are_of_another_file_system() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let nfs = place.system();
    nfs.start().unwrap();
    nfs.add_export(place.export("a")).unwrap();
    let id = |place: &Place| place.exported()[0].split("fsid=").nth(1).unwrap()[..36].to_owned();
    let first = id(&place);
    nfs.replace_root("a", place.directory("a"), "1").unwrap();
    assert_eq!(id(&place), first, "clients keep what they have mounted");
    nfs.replace_root("a", place.directory("a"), "2").unwrap();
    assert_ne!(id(&place), first);
}

#[test]
fn lines_of_exports_that_no_longer_exist_are_removed_at_the_start() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let other =
        SystemNfs::new(SystemSettings { server: "srv-2".to_owned(), ..place.system_settings() }).unwrap();
    other.start().unwrap();
    other.add_export(place.export("of-other")).unwrap();
    let killed = place.system();
    killed.start().unwrap();
    for name in ["kept", "gone"] {
        killed.add_export(place.export(name)).unwrap();
    }
    drop(killed);
    assert_eq!(place.exported().len(), 3, "clients keep their mounts while the server is away");
    // A server that was killed while it replaced the file.
    fs::write(place.path(".test.exports.new"), b"half a li").unwrap();
    let next = place.system();
    next.add_export(place.export("kept")).unwrap();
    next.retain_exports(&|name| name != "gone").unwrap();
    next.start().unwrap();
    let names: Vec<String> =
        place.exported().iter().map(|line| line.rsplit(' ').next().unwrap().to_owned()).collect();
    assert_eq!(names, ["kept", "of-other"]);
}

#[test]
fn an_export_that_exportfs_refuses_is_taken_back() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let nfs = place.system();
    nfs.start().unwrap();
    nfs.add_export(place.export("good")).unwrap();
    // A line of somebody else in the same files is no reason to refuse ours.
    place.refuse("exportfs: /srv/other does not exist\n");
    nfs.add_export(place.export("second")).unwrap();
    place.refuse(&format!("exportfs: {} does not support NFS export\n", place.path("bad").display()));
    let refused = nfs.add_export(place.export("bad")).unwrap_err();
    assert!(
        matches!(&refused, NfsError::ExportRefused { message, .. } if message.contains("does not support"))
    );
    assert_eq!(nfs.export_info("bad"), None);
    let lines = place.exported();
    assert!(lines.len() == 2 && !lines.iter().any(|line| line.contains("bad")), "{lines:?}");
    fs::remove_file(place.path("exportfs")).unwrap();
    assert!(matches!(nfs.add_export(place.export("third")), Err(NfsError::Exportfs { .. })));
    assert_eq!(nfs.export_info("third"), None);
    assert!(matches!(nfs.remove_export("good"), Err(NfsError::Exportfs { .. })), "it may still be exported");
    place.system_settings();
    nfs.remove_export("good").unwrap();
    assert_eq!(place.exported().len(), 1);
}

#[test]
fn directories_that_would_give_away_more_are_not_exported() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let nfs = place.system();
    nfs.start().unwrap();
    let of_root = Export::new("a", place.directory("a"), Identity::own());
    assert!(matches!(nfs.add_export(of_root), Err(NfsError::NotExportable { .. })));
    let secret = place.export("a").secret(Some(workspace_nfs::MountSecret::random()));
    assert!(matches!(nfs.add_export(secret), Err(NfsError::SecretUnsupported { .. })));
    // Another directory has the path by now.
    let moved = place.directory("moved");
    fs::rename(place.path("moved"), place.path("elsewhere")).unwrap();
    let info = nfs.add_export(Export::new("moved", moved, USER)).unwrap();
    assert_eq!(Path::new(&info.path), place.path("elsewhere"));
    let removed = place.directory("removed");
    fs::remove_dir(place.path("removed")).unwrap();
    place.directory("removed");
    let removed = Export::new("removed", removed, USER);
    assert!(matches!(nfs.add_export(removed), Err(NfsError::NotExportable { .. })));
    assert_eq!(nfs.exports().len(), 1);
}

#[test]
fn the_start_names_what_is_missing() {
    let place = Place::new();
    let settings = place.system_settings();
    let start = |settings: &SystemSettings| SystemNfs::new(settings.clone()).unwrap().start().unwrap_err();
    if Identity::own().uid != 0 {
        assert!(matches!(start(&settings), NfsError::NotRoot { .. }));
        return;
    }
    fs::write(place.path("nfsd/threads"), "0\n").unwrap();
    assert!(matches!(start(&settings), NfsError::NoKernelServer { .. }));
    fs::remove_dir_all(place.path("nfsd")).unwrap();
    assert!(matches!(start(&settings), NfsError::NoKernelServer { .. }));
    let settings = place.system_settings();
    let missing = SystemSettings { exportfs: Some(place.path("none")), ..settings.clone() };
    assert!(matches!(start(&missing), NfsError::Exportfs { .. }));
    let nowhere = SystemSettings { exports_file: place.path("none/test.exports"), ..settings };
    assert!(matches!(start(&nowhere), NfsError::State { .. }));
}
