//! The program that is the way out of a crossing: it opens connections of the machine's for a sandbox.
//!
//! It runs in the machine's network, in namespaces of its own, as somebody without rights on the machine, and ends
//! with the keeper.

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
use rustix::process::{PidfdFlags, WaitOptions, geteuid, pidfd_open, waitpid};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::router::Crossing;
use super::routes::{LARGEST, NETWORK, PROGRAM, SANDBOX, TO_WORLD};
use crate::error::{Doing as _, HostError, Result};
use crate::namespace::clone::{self, Parent};
use crate::namespace::holder::Holder;
use crate::namespace::{credentials, id_map, sandbox_ids};
use crate::resources::limits;

/// The device that links to programs are made with.
const TUN: &str = "/dev/net/tun";
const TUN_NUMBER: (u32, u32) = (10, 200);
/// Where the program finds what it needs. Exists everywhere; what it holds on the machine is not seen there.
const PRIVATE: &str = "/tmp";
/// Where programs are looked for beside the usual places.
const MORE_PLACES: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";
/// What every `pasta` can do since August 2024.
const RECENT: &str = "--map-host-loopback";
/// How long a program may take to make its link.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(1);

/// Programs that can be the way out.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Program {
    Pasta(PathBuf),
    Slirp(PathBuf),
}

/// Why no program can be the way out of sandboxes that this user starts; none if one can.
pub fn lacks() -> Option<String> {
    Program::find().and_then(|_| tun()).err()
}

/// Whether this user can have links to programs. For the superuser they need not be everybody's.
fn tun() -> std::result::Result<(), String> {
    let opened = match geteuid().is_root() {
        true => fs::metadata(TUN).map(|_| ()),
        false => File::options().read(true).write(true).open(TUN).map(|_| ()),
    };
    opened.map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => {
            format!(
                "{TUN} cannot be opened by this user: `chmod 0666 {TUN}` lets everybody, as most systems do"
            )
        }
        _ => format!("{TUN} cannot be used ({error}): `modprobe tun` makes it"),
    })
}

impl Program {
    fn find() -> std::result::Result<Self, String> {
        let path = std::env::var("PATH").unwrap_or_default();
        let find = |name: &str| {
            let places = path.split(':').chain(MORE_PLACES.split(':')).filter(|place| place.starts_with('/'));
            places.map(|place| Path::new(place).join(name)).find(|path| path.is_file())
        };
        let pasta = find("pasta");
        if let Some(pasta) = pasta.as_ref().filter(|pasta| is_recent(pasta)) {
            return Ok(Self::Pasta(pasta.clone()));
        }
        find("slirp4netns").map(Self::Slirp).ok_or_else(|| match pasta {
            None => "neither pasta nor slirp4netns is installed; install one (the package passt has pasta)"
                .to_owned(),
            Some(_) => {
                "pasta is from before August 2024 and damages data; install a newer one, or slirp4netns"
                    .to_owned()
            }
        })
    }

    /// Nothing of the machine's is mapped into the sandbox's network, and nothing of it to the machine.
    fn command(&self, namespace: &str) -> Command {
        let bits = NETWORK.bits();
        let (program, words) = match self {
            Self::Pasta(program) => {
                let nothing =
                    "--no-map-gw -t none -u none -T none -U none --no-dhcp --no-dhcpv6 --no-ndp --no-ra";
                let network = format!("-4 -a {SANDBOX} -n {bits} -g {PROGRAM} -I {TO_WORLD}");
                let words =
                    format!("--foreground --quiet {nothing} {network} --netns-only --netns {namespace}");
                (program, words)
            }
            Self::Slirp(program) => {
                let nothing = "--disable-host-loopback --disable-dns --enable-sandbox --enable-seccomp";
                let network =
                    format!("--cidr {NETWORK} --mtu {LARGEST} --netns-type path {namespace} {TO_WORLD}");
                (program, format!("{nothing} {network}"))
            }
        };
        let mut command = Command::new(program);
        command.args(words.split(' ')).env_clear().env("PATH", MORE_PLACES).current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::null());
        limits::usual_open_files(&mut command);
        command
    }
}

/// Whether a `pasta` can be relied on: one of March 2023 repeats parts of what it passes on to whoever has ended his own
/// part of a connection. What it can do tells its age; not all that are new say their version to others than people.
fn is_recent(pasta: &Path) -> bool {
    let mut command = Command::new(pasta);
    limits::usual_open_files(&mut command);
    let said = command.arg("--help").env_clear().stdin(Stdio::null()).output();
    // One that cannot be run is of no use.
    said.is_ok_and(|said| String::from_utf8_lossy(&[said.stdout, said.stderr].concat()).contains(RECENT))
}

/// The program while it runs.
pub(super) struct Link {
    child: clone::Child,
    /// Can be read from when it has ended.
    pub(super) ended: OwnedFd,
    /// What it says.
    said: File,
}

impl Link {
    /// Starts the program, and waits for its link in the crossing.
    pub(super) fn start(crossing: &Crossing, holder: &Holder) -> Result<Self> {
        let program =
            Program::find().and_then(|program| tun().map(|()| program)).map_err(HostError::other)?;
        let said = memfd_create(c"said", MemfdFlags::CLOEXEC).doing("make room for what a program says")?;
        let said = File::from(said);
        let child = clone::child(libc::CLONE_NEWNS, None, |parent| {
            match become_program(parent, &program, crossing, holder, &said) {
                Ok(never) => match never {},
                Err(error) => error,
            }
        })?;
        let ended = pidfd_open(child.pid, PidfdFlags::empty()).doing("look at a program")?;
        let mut link = Self { child, ended, said };
        link.wait(crossing, &program)?;
        Ok(link)
    }

    fn wait(&mut self, crossing: &Crossing, program: &Program) -> Result<()> {
        self.child.done()?;
        while self.child.wait()? {}
        let began = Instant::now();
        loop {
            let found = crossing.here.link(TO_WORLD).doing("look for the link to the world")?;
            if found.is_some() {
                return Ok(());
            }
            let ended = waitpid(Some(self.child.pid), WaitOptions::NOHANG).doing("look at a program")?;
            if ended.is_some() || began.elapsed() > PATIENCE {
                let (why, said) = (if ended.is_some() { "ended" } else { "makes no link" }, self.said());
                return Err(HostError::other(format!("{program:?}, the way out, {why}: {said}")));
            }
            std::thread::sleep(LOOK);
        }
    }

    fn said(&mut self) -> String {
        let mut said = String::new();
        // What cannot be read was not said.
        let _ = self.said.rewind().and_then(|()| self.said.read_to_string(&mut said));
        said.trim().to_owned()
    }

    /// Ends it.
    pub(super) fn end(&self) {
        self.child.kill();
    }
}

/// What the child does until it is the program.
fn become_program(
    parent: &mut Parent,
    program: &Program,
    crossing: &Crossing,
    holder: &Holder,
    said: &File,
) -> Result<Infallible> {
    let namespace = format!("{PRIVATE}/crossing");
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
        .doing("keep mounts to a program")?;
    mount(c"tmpfs", PRIVATE, c"tmpfs", MountFlags::NOSUID | MountFlags::NOEXEC, Some(c"mode=0755,size=64k"))
        .doing("make room for a program")?;
    fs::write(&namespace, "").doing("make room for a namespace")?;
    let descriptor = format!("/proc/self/fd/{}", crossing.namespace.as_raw_fd());
    mount_bind(descriptor, &namespace).doing("show a program its crossing")?;
    if *holder == Holder::Machine {
        // In a user namespace nobody can make devices; there everybody must be allowed to open it.
        if id_map::is_initial_user_namespace() {
            show_tun().doing(format!("show a program {TUN}"))?;
        }
        let users = sandbox_ids::users(holder);
        move_into_link_name_space(crossing.users.as_fd(), Some(LinkNameSpaceType::User))
            .doing("join the users of the crossing")?;
        if users.has_root() {
            credentials::become_root_inside()?;
        }
    }
    // After all that would undo it; whoever is told to go on then has a parent that ends it.
    // SAFETY: the call takes numbers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    parent.wait()?;
    let said = said.try_clone().doing("pass on where to speak")?;
    Err(program.command(&namespace).stderr(said).exec()).doing("start the way out")
}

/// Lets the program, which will be nobody, open the device: only it sees this.
fn show_tun() -> io::Result<()> {
    let node = format!("{PRIVATE}/tun");
    let (major, minor) = TUN_NUMBER;
    mknodat(CWD, &node, FileType::CharacterDevice, Mode::from_raw_mode(0o666), makedev(major, minor))?;
    fs::set_permissions(&node, fs::Permissions::from_mode(0o666))?;
    Ok(mount_bind(&node, TUN)?)
}
