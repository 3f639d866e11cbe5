//! Bundle of an OCI runtime: a directory with a configuration and a root filesystem.
//!
//! The root consists of read-only mounts over empty directories and files of the bundle, so that a template
//! which several sandboxes use is not changed.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use serde_json::{Value, json};
use workspace_host::launch::{SOCKETS, WORKSPACE};
use workspace_host::network::RESOLV_CONF;
use workspace_host::{
    HIDDEN_KERNEL_PATHS, HOST_ETC_ENTRIES, HOST_PROGRAM_DIRECTORIES, READ_ONLY_KERNEL_PATHS, seccomp_profile,
};

use crate::runtime::SandboxSpec;
use crate::runtime::guest::{
    AGENT, AgentTransport, ENVIRONMENT, IN_MEMORY, MemoryDirectory, User, arguments, shared_memory,
    system_v_limits,
};
use crate::sandbox_dir::SandboxDir;

const ROOT: &str = "rootfs";
/// Environment variable `PATH` of the guest agent.
const SEARCH_PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Maximum number of open files of a process.
const OPEN_FILES: u64 = 65_536;
/// Period of the processor limit, in microseconds.
const PERIOD: u64 = 100_000;
/// Entries of a root that never come from a template.
const NOT_FROM_TEMPLATE: [&str; 8] =
    ["dev", "home", "proc", "run", "sys", "tmp", "workspace", ".workspace-agent"];

/// Returns the path of the bundle of a sandbox.
pub(super) fn bundle_path(dir: &SandboxDir) -> PathBuf {
    dir.root().join("bundle")
}

/// Parts of a bundle that [`SandboxSpec`] does not have.
pub(super) struct Bundle<'a> {
    pub(super) guest_agent: &'a Path,
    /// Directory of the template; `None` for the files of the machine.
    pub(super) template: Option<&'a Path>,
    pub(super) user: User,
}

impl Bundle<'_> {
    /// Writes the bundle, and returns its path.
    pub(super) fn write(&self, spec: &SandboxSpec<'_>) -> io::Result<PathBuf> {
        let bundle = bundle_path(spec.dir);
        crate::sandbox_dir::remove_tree(&bundle)?;
        let root = bundle.join(ROOT);
        make_directory(&bundle)?;
        make_directory(&root)?;
        let mut mounts = kernel_mounts(spec);
        mounts.extend(self.make_root(&root, spec)?);
        for memory in IN_MEMORY {
            // `/var` of a template is mounted read-only, so `/var/tmp` needs a directory there to mount on.
            if memory.path != "/var/tmp" || self.has_var_tmp(&root)? {
                self.set_mode(&root, &memory)?;
                let options = memory.options(self.user, spec);
                mounts.push(json!({ "destination": memory.path, "type": "tmpfs", "source": "tmpfs", "options": options }));
            }
        }
        make_directory(&root.join("workspace"))?;
        write_file(&root.join(AGENT.trim_start_matches('/')), "")?;
        mounts.extend(spec.workspace.map(|workspace| bind(workspace, WORKSPACE, "rw")));
        mounts.push(bind(&spec.dir.sockets(), SOCKETS, "ro"));
        mounts.push(bind(self.guest_agent, AGENT, "ro"));
        fs::write(bundle.join("config.json"), self.config(spec, &mounts).to_string())?;
        Ok(bundle)
    }

    /// Returns true if there is a directory to mount `/var/tmp` on. Makes it, except in a template.
    fn has_var_tmp(&self, root: &Path) -> io::Result<bool> {
        let Some(template) = self.template else {
            make_directory(&root.join("var"))?;
            return make_directory(&root.join("var/tmp")).map(|()| true);
        };
        Ok(template.join("var/tmp").symlink_metadata().is_ok_and(|found| found.is_dir()))
    }

    /// Sets the mode of a directory of the bundle to that of the mount on it: some programs give the mount
    /// the mode of the directory and ignore the option. In a template `/var` may be a link to anywhere.
    fn set_mode(&self, root: &Path, memory: &MemoryDirectory) -> io::Result<()> {
        if self.template.is_some() && memory.path.starts_with("/var/") {
            return Ok(());
        }
        let directory = root.join(memory.path.trim_start_matches('/'));
        fs::set_permissions(directory, fs::Permissions::from_mode(memory.mode))
    }

    /// Makes the files of the root, and returns the mounts over them.
    fn make_root(&self, root: &Path, spec: &SandboxSpec<'_>) -> io::Result<Vec<Value>> {
        for name in NOT_FROM_TEMPLATE {
            if name != ".workspace-agent" {
                make_directory(&root.join(name))?;
            }
        }
        make_directory(&root.join("home/sandbox"))?;
        match self.template {
            None => self.make_base_root(root, spec),
            Some(template) => {
                let mut mounts = mount_entries(template, root, root, &mounted_entries(template)?)?;
                mounts.extend(resolv_conf_mount(template, spec)?);
                Ok(mounts)
            }
        }
    }

    fn make_base_root(&self, root: &Path, spec: &SandboxSpec<'_>) -> io::Result<Vec<Value>> {
        let etc = root.join("etc");
        make_directory(&etc)?;
        make_directory(&etc.join("ssl"))?;
        let User { uid, gid } = self.user;
        let users = format!(
            "root:x:0:0:root:/root:/usr/sbin/nologin\nsandbox:x:{uid}:{gid}:sandbox:/home/sandbox:/bin/sh\n\
             nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
        );
        write_file(&etc.join("passwd"), &users)?;
        write_file(&etc.join("group"), &format!("root:x:0:\nsandbox:x:{gid}:\nnogroup:x:65534:\n"))?;
        write_file(&etc.join("nsswitch.conf"), "passwd: files\ngroup: files\nhosts: files dns\n")?;
        write_file(&etc.join("hostname"), &format!("{}\n", spec.id))?;
        write_file(&etc.join("hosts"), &format!("127.0.0.1 localhost {}\n::1 localhost\n", spec.id))?;
        write_file(&etc.join("resolv.conf"), spec.egress.map_or("", |_| RESOLV_CONF))?;
        let mut mounts =
            mount_entries(Path::new("/"), root, root, &HOST_PROGRAM_DIRECTORIES.map(str::to_owned))?;
        mounts.extend(mount_entries(Path::new("/etc"), root, &etc, &HOST_ETC_ENTRIES.map(str::to_owned))?);
        Ok(mounts)
    }

    fn config(&self, spec: &SandboxSpec<'_>, mounts: &[Value]) -> Value {
        let none: [&str; 0] = [];
        let args: Vec<String> =
            [AGENT.to_owned()].into_iter().chain(arguments(spec.id, AgentTransport::Socket)).collect();
        let env: Vec<&str> = [SEARCH_PATH].into_iter().chain(ENVIRONMENT).collect();
        let limit = |kind: &str, max: u64| json!({ "type": kind, "soft": max, "hard": max });
        let namespaces =
            ["pid", "network", "ipc", "uts", "mount", "cgroup"].map(|kind| json!({ "type": kind }));
        let (hidden, read_only) = (
            HIDDEN_KERNEL_PATHS.map(|path| format!("/{path}")),
            READ_ONLY_KERNEL_PATHS.map(|path| format!("/{path}")),
        );
        json!({
            "ociVersion": "1.0.2",
            "root": { "path": ROOT, "readonly": true },
            "hostname": spec.id,
            "mounts": mounts,
            "process": {
                "terminal": false,
                "user": { "uid": self.user.uid, "gid": self.user.gid, "umask": 0o022 },
                "args": args,
                "env": env,
                "cwd": "/",
                "noNewPrivileges": true,
                "capabilities": {
                    "bounding": none, "effective": none, "inheritable": none, "permitted": none, "ambient": none,
                },
                "rlimits": [limit("RLIMIT_CORE", 0), limit("RLIMIT_NOFILE", open_files())],
            },
            "linux": {
                "cgroupsPath": format!("/workspace/{}", spec.id),
                "namespaces": namespaces,
                "resources": resources(spec),
                "sysctl": system_v_limits(spec).into_iter().collect::<BTreeMap<_, _>>(),
                "seccomp": seccomp_profile(),
                "maskedPaths": hidden,
                "readonlyPaths": read_only,
            },
        })
    }
}

/// Makes a `resolv.conf`, and returns its mount over that of the template; `None` if the template has none.
/// Without a file, programs use the resolver at 127.0.0.1 by default, which is the same.
fn resolv_conf_mount(template: &Path, spec: &SandboxSpec<'_>) -> io::Result<Option<Value>> {
    if spec.egress.is_none() {
        return Ok(None);
    }
    let Some(mount_point) = find_file(template, "etc/resolv.conf")? else { return Ok(None) };
    let path = bundle_path(spec.dir).join("resolv.conf");
    write_file(&path, RESOLV_CONF)?;
    Ok(Some(bind(&path, &mount_point.to_string_lossy(), "ro")))
}

/// Returns the path inside of the file that a path of a template leads to. Symlinks are resolved as if the
/// template were `/`. `None` if there is no such file in the directories that come from the template.
fn find_file(template: &Path, path: &str) -> io::Result<Option<PathBuf>> {
    let template = template.canonicalize()?;
    let (flags, resolve) =
        (OFlags::PATH | OFlags::CLOEXEC, ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS);
    let file = match openat2(fs::File::open(&template)?, path, flags, Mode::empty(), resolve) {
        Ok(file) => fs::File::from(file),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let real = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let Ok(relative) = real.strip_prefix(&template) else { return Ok(None) };
    let is_hidden = NOT_FROM_TEMPLATE.iter().any(|name| relative.starts_with(name));
    Ok((file.metadata()?.is_file() && !is_hidden).then(|| Path::new("/").join(relative)))
}

fn resources(spec: &SandboxSpec<'_>) -> Value {
    let limits = spec.limits;
    let mut resources = json!({ "devices": [{ "allow": false, "access": "rwm" }] });
    if let Some(memory) = limits.memory_bytes {
        // Memory and swap together: no swap.
        resources["memory"] = json!({ "limit": memory, "swap": memory });
    }
    if let Some(millis) = limits.cpu_millis {
        // The kernel takes no less than a thousandth of a second.
        let quota = (u64::from(millis) * PERIOD / 1000).max(1000);
        resources["cpu"] = json!({ "quota": quota, "period": PERIOD });
    }
    if let Some(processes) = limits.processes {
        resources["pids"] = json!({ "limit": processes });
    }
    resources
}

/// Returns the limit of open files of this process; more could not be granted.
fn open_files() -> u64 {
    use rustix::process::{Resource, getrlimit};
    getrlimit(Resource::Nofile).maximum.map_or(OPEN_FILES, |max| max.min(OPEN_FILES))
}

/// Returns the mounts of the kernel's filesystems.
fn kernel_mounts(spec: &SandboxSpec<'_>) -> Vec<Value> {
    let mount = |kind: &str, to: &str, options: &[&str]| json!({ "destination": to, "type": kind, "source": kind, "options": options });
    let shm = shared_memory(spec).map_or("size=64m".to_owned(), |bytes| format!("size={bytes}"));
    vec![
        mount("proc", "/proc", &["nosuid", "nodev", "noexec"]),
        mount("tmpfs", "/dev", &["nosuid", "noexec", "strictatime", "mode=755", "size=64k"]),
        mount("devpts", "/dev/pts", &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"]),
        mount("tmpfs", "/dev/shm", &["nosuid", "nodev", "noexec", "mode=1777", &shm]),
        mount("sysfs", "/sys", &["nosuid", "nodev", "noexec", "ro"]),
    ]
}

fn bind(from: &Path, to: &str, access: &str) -> Value {
    json!({
        "destination": to,
        "type": "bind",
        "source": from.to_string_lossy(),
        "options": ["bind", "private", access, "nosuid", "nodev"],
    })
}

/// Lists the entries of a template that are mounted: all but those in [`NOT_FROM_TEMPLATE`].
fn mounted_entries(template: &Path) -> io::Result<Vec<String>> {
    let names = fs::read_dir(template)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut names = names.collect::<io::Result<Vec<_>>>()?;
    names.retain(|name| !NOT_FROM_TEMPLATE.contains(&name.as_str()));
    Ok(names)
}

/// Makes the mount points for entries of `from` at `to`, which is below `root`, and returns the mounts. Symlinks
/// are copied.
fn mount_entries(from: &Path, root: &Path, to: &Path, names: &[String]) -> io::Result<Vec<Value>> {
    let inside = Path::new("/").join(to.strip_prefix(root).unwrap_or(to));
    let mut mounts = Vec::new();
    for name in names {
        let (source, target) = (from.join(name), to.join(name));
        let Ok(found) = source.symlink_metadata() else { continue };
        if found.is_symlink() {
            symlink(fs::read_link(&source)?, &target)?;
            continue;
        }
        if found.is_dir() {
            make_directory(&target)?;
        } else if found.is_file() {
            write_file(&target, "")?;
        } else {
            continue;
        }
        mounts.push(bind(&source, &inside.join(name).to_string_lossy(), "ro"));
    }
    Ok(mounts)
}

/// Makes a directory that all users inside may enter, independent of the umask of this process.
fn make_directory(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}

fn write_file(path: &Path, text: &str) -> io::Result<()> {
    fs::write(path, text)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o644))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::{Egress, Limits, Uplink};

    /// Returns the mount point of `resolv.conf` in a sandbox with egress.
    fn mount_point(template: &Path) -> Option<String> {
        let home = tempfile::tempdir().unwrap();
        let dir = SandboxDir::new(home.path().to_owned());
        fs::create_dir(bundle_path(&dir)).unwrap();
        let egress =
            Egress { allow: None, deny: Vec::new(), except: Vec::new(), dns: None, uplink: Uplink::UserMode };
        let spec = SandboxSpec {
            id: "sbx-1",
            template: "mini:1",
            workspace: None,
            anchor: None,
            root: None,
            dir: &dir,
            token: b"",
            limits: &Limits::default(),
            progress: &tokio::sync::watch::Sender::default(),
            egress: Some(&egress),
            endpoint: None,
        };
        let mount = resolv_conf_mount(template, &spec).unwrap()?;
        assert_eq!(fs::read_to_string(mount["source"].as_str().unwrap()).unwrap(), RESOLV_CONF);
        Some(mount["destination"].as_str().unwrap().to_owned())
    }

    #[test]
    fn resolv_conf_is_replaced_where_its_symlinks_lead_inside_the_template() {
        let template = tempfile::tempdir().unwrap();
        let root = template.path();
        for directory in ["etc", "run/resolver", "usr/lib"] {
            fs::create_dir_all(root.join(directory)).unwrap();
        }
        fs::write(root.join("usr/lib/resolv.conf"), "nameserver 192.0.2.1\n").unwrap();
        fs::write(root.join("run/resolver/stub.conf"), "nameserver 192.0.2.1\n").unwrap();
        let resolv_conf = root.join("etc/resolv.conf");
        assert_eq!(mount_point(root), None);
        for (target, expected) in [
            ("../usr/lib/resolv.conf", Some("/usr/lib/resolv.conf")),
            ("/usr/lib/resolv.conf", Some("/usr/lib/resolv.conf")),
            ("../../../../usr/lib/resolv.conf", Some("/usr/lib/resolv.conf")),
            // `/run` inside is empty, and not the one of the template.
            ("../run/resolver/stub.conf", None),
            ("/nonexistent", None),
            ("resolv.conf", None),
            ("/usr/lib", None),
        ] {
            symlink(target, &resolv_conf).unwrap();
            assert_eq!(mount_point(root).as_deref(), expected, "{target}");
            fs::remove_file(&resolv_conf).unwrap();
        }
        fs::write(&resolv_conf, "nameserver 192.0.2.1\n").unwrap();
        assert_eq!(mount_point(root).as_deref(), Some("/etc/resolv.conf"));
    }
}
