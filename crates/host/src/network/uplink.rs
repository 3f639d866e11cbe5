//! The uplink program, which opens connections on the host on behalf of a sandbox.
//!
//! It runs in the network namespace of the host, with other namespaces of its own and without capabilities on
//! the host, and exits with the network daemon.

use std::convert::Infallible;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, MemfdFlags, Mode, makedev, memfd_create, mknodat};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change};
use rustix::process::{Pid, PidfdFlags, WaitOptions, geteuid, getpid, pidfd_open, waitpid};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::router::Router;
use super::routes::{MTU, ROUTER_NETWORK, SANDBOX_ADDRESS, UPLINK_ADDRESS, UPLINK_LINK};
use crate::error::{Context as _, HostError, Result};
use crate::namespace::clone::{self, Parent};
use crate::namespace::holder::NamespaceHolder;
use crate::namespace::{credentials, id_map, sandbox_ids};
use crate::process::kill_on_exit_of;
use crate::resources::limits;

/// Device with which uplink programs create links.
const TUN: &str = "/dev/net/tun";
/// Major and minor number of the device: `MISC_MAJOR` and `TUN_MINOR`, which no crate defines.
const TUN_DEVICE: (u32, u32) = (10, 200);
/// Directory for a private tmpfs. It exists everywhere; its content on the host is hidden from the program.
const PRIVATE_DIR: &str = "/tmp";
/// Search path of programs, in addition to `PATH`.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";
/// Option that `pasta` has since August 2024.
const RECENT_OPTION: &str = "--map-host-loopback";
/// Maximum time until an uplink program has created its link.
const LINK_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Uplink programs.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Program {
    Pasta(PathBuf),
    Slirp(PathBuf),
}

/// Returns why this user cannot run an uplink program, or `None` if one can be run.
pub fn unavailable_reason() -> Option<String> {
    Program::find().and_then(|_| check_tun()).err()
}

/// Checks that the TUN device can be opened. Root does not need permission: the program gets a device node of
/// its own.
fn check_tun() -> std::result::Result<(), String> {
    let opened = match geteuid().is_root() {
        true => fs::metadata(TUN).map(|_| ()),
        false => File::options().read(true).write(true).open(TUN).map(|_| ()),
    };
    opened.map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => {
            format!("this user cannot open {TUN}; allow it with `chmod 0666 {TUN}`, the mode on most systems")
        }
        _ => format!("cannot use {TUN} ({error}); load it with `modprobe tun`"),
    })
}

impl Program {
    fn find() -> std::result::Result<Self, String> {
        let path = std::env::var("PATH").unwrap_or_default();
        let find = |name: &str| {
            let directories =
                path.split(':').chain(DEFAULT_PATH.split(':')).filter(|directory| directory.starts_with('/'));
            directories.map(|directory| Path::new(directory).join(name)).find(|path| path.is_file())
        };
        let pasta = find("pasta");
        if let Some(pasta) = pasta.as_ref().filter(|pasta| is_recent(pasta)) {
            return Ok(Self::Pasta(pasta.clone()));
        }
        find("slirp4netns").map(Self::Slirp).ok_or_else(|| match pasta {
            None => "neither pasta nor slirp4netns is installed; install one (the package passt has pasta)"
                .to_owned(),
            Some(_) => {
                "pasta is older than August 2024 and corrupts data; install a newer version, or slirp4netns"
                    .to_owned()
            }
        })
    }

    /// Builds the command. It forwards no ports between host and sandbox.
    fn command(&self, namespace: &str) -> Command {
        let bits = ROUTER_NETWORK.prefix_len();
        let (program, args) = match self {
            Self::Pasta(program) => {
                let isolation =
                    "--no-map-gw -t none -u none -T none -U none --no-dhcp --no-dhcpv6 --no-ndp --no-ra";
                // `-a` is the address that packets come from: that of the sandbox, behind the router. `-g` is the
                // address of `pasta` itself.
                let network =
                    format!("-4 -a {SANDBOX_ADDRESS} -n {bits} -g {UPLINK_ADDRESS} -I {UPLINK_LINK}");
                let args =
                    format!("--foreground --quiet {isolation} {network} --netns-only --netns {namespace}");
                (program, args)
            }
            Self::Slirp(program) => {
                let isolation = "--disable-host-loopback --disable-dns --enable-sandbox --enable-seccomp";
                // The program itself has the second address of the network, which is `UPLINK_ADDRESS`.
                let network = format!(
                    "--cidr {ROUTER_NETWORK} --mtu {MTU} --netns-type path {namespace} {UPLINK_LINK}"
                );
                (program, format!("{isolation} {network}"))
            }
        };
        let mut command = Command::new(program);
        command.args(args.split(' ')).env_clear().env("PATH", DEFAULT_PATH).current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::null());
        limits::reset_open_files_limit(&mut command);
        command
    }
}

/// Returns true if a `pasta` is recent enough: that of March 2023 repeats data on half-closed connections.
/// Its age is detected by an option, because not all recent versions print a version if the output is no
/// terminal.
fn is_recent(pasta: &Path) -> bool {
    let mut command = Command::new(pasta);
    limits::reset_open_files_limit(&mut command);
    let output = command.arg("--help").env_clear().stdin(Stdio::null()).output();
    // A program that cannot be run does not count as recent.
    output.is_ok_and(|output| {
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).contains(RECENT_OPTION)
    })
}

/// Running uplink program.
pub(super) struct UplinkProcess {
    child: clone::Child,
    /// PID file descriptor, which becomes readable when the program exits.
    pub(super) pidfd: OwnedFd,
    /// Standard error of the program, in memory.
    stderr: File,
}

impl UplinkProcess {
    /// Starts the program, and waits for its link in the router.
    pub(super) fn start(router: &Router, holder: &NamespaceHolder) -> Result<Self> {
        let program =
            Program::find().and_then(|program| check_tun().map(|()| program)).map_err(HostError::other)?;
        let stderr = memfd_create(c"stderr", MemfdFlags::CLOEXEC).context("create a memory file")?;
        let stderr = File::from(stderr);
        let daemon = getpid();
        let child = clone::spawn(libc::CLONE_NEWNS, None, |parent| {
            match exec_program((parent, daemon), &program, router, holder, &stderr) {
                Ok(never) => match never {},
                Err(error) => error,
            }
        })?;
        let pidfd = pidfd_open(child.pid, PidfdFlags::empty()).context("open the process of a program")?;
        let mut process = Self { child, pidfd, stderr };
        process.wait(router, &program)?;
        Ok(process)
    }

    fn wait(&mut self, router: &Router, program: &Program) -> Result<()> {
        self.child.notify()?;
        // Until the child executes the program. Fails if it cannot.
        while self.child.wait()? {}
        let began = Instant::now();
        loop {
            let found = router.netlink.link_index(UPLINK_LINK).context("find the uplink")?;
            if found.is_some() {
                return Ok(());
            }
            let exited = waitpid(Some(self.child.pid), WaitOptions::NOHANG).context("wait for a program")?;
            if exited.is_some() || began.elapsed() > LINK_TIMEOUT {
                let (failure, stderr) =
                    (if exited.is_some() { "exited" } else { "did not create a link" }, self.stderr());
                return Err(HostError::other(format!("the uplink program {program:?} {failure}: {stderr}")));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    fn stderr(&mut self) -> String {
        let mut stderr = String::new();
        // If it cannot be read, the message does not contain it.
        let _ = self.stderr.rewind().and_then(|()| self.stderr.read_to_string(&mut stderr));
        stderr.trim().to_owned()
    }

    /// Kills the program and waits for its exit.
    pub(super) fn kill(&self) {
        self.child.kill();
    }
}

/// Prepares the namespaces and executes the program; runs in the child of the network daemon.
fn exec_program(
    (parent, daemon): (&mut Parent, Pid),
    program: &Program,
    router: &Router,
    holder: &NamespaceHolder,
    stderr: &File,
) -> Result<Infallible> {
    let namespace = format!("{PRIVATE_DIR}/router");
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
        .context("make the mounts of the uplink program slaves")?;
    mount(
        c"tmpfs",
        PRIVATE_DIR,
        c"tmpfs",
        MountFlags::NOSUID | MountFlags::NOEXEC,
        Some(c"mode=0755,size=64k"),
    )
    .context("mount a private tmpfs")?;
    fs::write(&namespace, "").context("create a mount point")?;
    let descriptor = format!("/proc/self/fd/{}", router.namespace.as_raw_fd());
    mount_bind(descriptor, &namespace).context("bind the namespace of the router")?;
    if *holder == NamespaceHolder::None {
        // Device nodes cannot be created in a user namespace; there every user must be allowed to open the
        // device.
        if id_map::is_initial_user_namespace() {
            bind_tun().context(format!("bind {TUN} for the uplink program"))?;
        }
        let ids = sandbox_ids::ids_of(holder);
        move_into_link_name_space(router.user_namespace.as_fd(), Some(LinkNameSpaceType::User))
            .context("join the user namespace of the router")?;
        // The user namespace of the router has the ids of sandboxes. These start with root, or are only that of the
        // sandbox user (`id_map.rs`).
        if ids.has_root() {
            credentials::become_root_inside()?;
        }
    }
    // Set last, because changing credentials resets it.
    kill_on_exit_of(daemon).context("bind the uplink program to the life of the network daemon")?;
    // The daemon has opened a PID file descriptor of this process.
    parent.wait()?;
    let stderr = stderr.try_clone().context("duplicate a file descriptor")?;
    Err(program.command(&namespace).stderr(stderr).exec()).context("start the uplink")
}

/// Binds a device node that the unprivileged program may open over the device, in its own mount namespace.
fn bind_tun() -> io::Result<()> {
    let node = format!("{PRIVATE_DIR}/tun");
    let (major, minor) = TUN_DEVICE;
    mknodat(CWD, &node, FileType::CharacterDevice, Mode::from_raw_mode(0o666), makedev(major, minor))?;
    fs::set_permissions(&node, fs::Permissions::from_mode(0o666))?;
    Ok(mount_bind(&node, TUN)?)
}
