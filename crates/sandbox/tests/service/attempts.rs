//! Attempts to escape from a sandbox. This program runs them inside: every attempt must fail.
//!
//! An attempt that fails prints `refused`, one that succeeds prints `GAINED`; the last line is `done`.

use std::ffi::CString;
use std::fs::{self, OpenOptions};
use std::io::{self, Read as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// First argument of this program when it runs attempts.
pub(crate) const ATTEMPT_ARG: &str = "internal-attempt";
/// Bytes of a file that are searched.
const SEARCH_MAX: u64 = 1 << 20;

/// Runs attempts, if this process was started for that.
pub(crate) fn entry() -> Option<ExitCode> {
    let mut words = std::env::args().skip(1);
    if words.next()? != ATTEMPT_ARG {
        return None;
    }
    let what = words.next()?;
    let arguments: Vec<String> = words.collect();
    match what.as_str() {
        "files" => files(&arguments),
        "first-process" => first_process(),
        "kill-all" => kill_all(),
        "mounts" => mounts(),
        "namespaces" => namespaces(),
        "devices" => devices(),
        "keyrings" => keyrings(),
        "network" => network(&arguments),
        "settings" => settings(),
        "rights" => rights(),
        "token" => token(&arguments[0], arguments.get(1)),
        "socket" => socket(),
        "calls" => calls(),
        other => panic!("no attempt `{other}`"),
    }
    println!("done");
    Some(ExitCode::SUCCESS)
}

fn must_fail<T>(what: &str, done: io::Result<T>) {
    match done {
        Ok(_) => println!("GAINED {what}"),
        Err(error) => println!("refused {what}: {error}"),
    }
}

fn must_be(what: &str, so: bool) {
    println!("{} {what}", if so { "refused" } else { "GAINED" });
}

/// Converts the result of a system call.
fn call(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Makes a system call with integers and null pointers only.
fn raw(number: libc::c_long, arguments: [libc::c_long; 5]) -> io::Result<libc::c_long> {
    let [a, b, c, d, e] = arguments;
    // SAFETY: no argument points at memory of this process.
    call(unsafe { libc::syscall(number, a, b, c, d, e, 0) })
}

fn text(path: impl AsRef<Path>) -> CString {
    CString::new(path.as_ref().as_os_str().as_encoded_bytes()).unwrap()
}

fn write_to(path: impl AsRef<Path>) -> io::Result<fs::File> {
    OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(path)
}

fn open_for_reading(path: &Path) -> io::Result<()> {
    if path.is_dir() { fs::read_dir(path).map(|_| ()) } else { fs::File::open(path).map(|_| ()) }
}

/// Reads files of the host: given ones, secrets, and files that only root may write.
fn files(named: &[String]) {
    let secrets = ["/etc/shadow", "/root", "/var/lib/docker", "/var/run/docker.sock", "/etc/ssh"];
    for path in secrets.into_iter().map(str::to_owned).chain(named.iter().cloned()) {
        let roundabout = [
            PathBuf::from(&path),
            PathBuf::from(format!("/workspace/..{path}")),
            PathBuf::from(format!("/proc/self/root{path}")),
            PathBuf::from(format!("/proc/1/root{path}")),
            PathBuf::from(format!("/proc/1/cwd{path}")),
        ];
        for path in roundabout {
            must_fail(&format!("read {}", path.display()), open_for_reading(&path));
        }
    }
    for socket in named.iter().filter(|path| path.ends_with(".sock")) {
        must_fail(&format!("dial {socket}"), UnixStream::connect(socket));
    }
    for path in ["/etc/passwd", "/.workspace-agent", "/proc/1/exe", "/bin/sh", "/usr/bin/env"] {
        must_fail(&format!("write {path}"), write_to(path));
    }
    for path in ["/x", "/etc/x", "/usr/x", "/dev/x", "/bin/x"] {
        must_fail(&format!("make {path}"), fs::write(path, "x"));
    }
    let given = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let given = given.filter_map(|entry| fs::read_link(entry.path()).ok());
    let given: Vec<_> = given.filter(|to| to.is_absolute() && !to.starts_with("/proc")).collect();
    must_be(&format!("descriptors {given:?}"), given.iter().all(|to| to.starts_with("/dev")));
}

/// Inspects the agent, which has the token in its memory and the directory for output among its file
/// descriptors.
fn first_process() {
    // SAFETY: the call takes nothing.
    let parent = unsafe { libc::getppid() };
    for pid in [1, parent] {
        for name in ["root", "cwd", "fd", "map_files"] {
            must_fail(&format!("list {name} of {pid}"), fs::read_dir(format!("/proc/{pid}/{name}")));
        }
        for name in ["environ", "mem", "maps", "auxv", "stack", "syscall"] {
            let mut byte = [0];
            let read = fs::File::open(format!("/proc/{pid}/{name}"));
            let read = read.and_then(|mut file| file.read_exact(&mut byte));
            must_fail(&format!("read {name} of {pid}"), read);
        }
        for name in ["exe", "ns/mnt", "ns/user", "ns/net"] {
            must_fail(&format!("follow {name} of {pid}"), fs::read_link(format!("/proc/{pid}/{name}")));
        }
        let pid = libc::c_long::from(pid);
        for (name, request) in [("attach", libc::PTRACE_ATTACH), ("seize", libc::PTRACE_SEIZE)] {
            let request = libc::c_long::from(request);
            must_fail(&format!("{name} {pid}"), raw(libc::SYS_ptrace, [request, pid, 0, 0, 0]));
        }
        if pid == 1 {
            limits_of_first();
        }
        let mut byte = 0_u8;
        let own = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
        let other = libc::iovec { iov_base: 0x40_0000 as *mut libc::c_void, iov_len: 1 };
        // SAFETY: one byte of this process is written to at most.
        let read = unsafe { libc::process_vm_readv(pid as i32, &raw const own, 1, &raw const other, 1, 0) };
        must_fail(&format!("read memory of {pid}"), call(read as libc::c_long));
        if let Ok(process) = raw(libc::SYS_pidfd_open, [pid, 0, 0, 0, 0]) {
            for fd in 0..16 {
                let taken = raw(libc::SYS_pidfd_getfd, [process, fd, 0, 0, 0]);
                must_fail(&format!("take descriptor {fd} of {pid}"), taken);
            }
        }
    }
}

/// Changes limits and scheduling of the agent: with fewer processes or files it could start no command.
fn limits_of_first() {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    for (name, pid) in [("limit", 1), ("limit with the upper half set", 1_i64 | 1 << 32)] {
        // SAFETY: a structure that is read.
        let set = unsafe { libc::syscall(libc::SYS_prlimit64, pid, libc::RLIMIT_NPROC, &raw const none, 0) };
        must_fail(name, call(set));
    }
    let (cpus, idle) = ([1_u64; 1], libc::sched_param { sched_priority: 0 });
    // SAFETY: structures that are read, of the sizes that are given.
    unsafe {
        must_fail("affinity", call(libc::syscall(libc::SYS_sched_setaffinity, 1, 8_usize, cpus.as_ptr())));
        must_fail(
            "scheduler",
            call(libc::syscall(libc::SYS_sched_setscheduler, 1, libc::SCHED_IDLE, &raw const idle)),
        );
    }
    must_fail("priority", raw(libc::SYS_setpriority, [0, 1, 19, 0, 0]));
    must_fail("priority of the user", raw(libc::SYS_setpriority, [2, 0, 19, 0, 0]));
    must_fail("priority of reading and writing", raw(libc::SYS_ioprio_set, [1, 1, 3 << 13, 0, 0]));
}

/// Kills every process that it can.
fn kill_all() {
    // SAFETY: the calls take numbers.
    unsafe {
        libc::kill(1, libc::SIGKILL);
        libc::kill(1, libc::SIGSTOP);
        libc::kill(-1, libc::SIGKILL);
    }
}

fn mounts() {
    let mount = |kind: &str, from: &str, to: &str, flags: libc::c_ulong| {
        let (kind, from, to) = (text(kind), text(from), text(to));
        // SAFETY: texts that end with NUL.
        let done = unsafe { libc::mount(from.as_ptr(), to.as_ptr(), kind.as_ptr(), flags, std::ptr::null()) };
        call(done.into())
    };
    must_fail("mount tmpfs", mount("tmpfs", "tmpfs", "/tmp", 0));
    must_fail("mount proc", mount("proc", "proc", "/tmp", 0));
    must_fail("bind", mount("none", "/", "/tmp", libc::MS_BIND));
    must_fail("make writable", mount("none", "none", "/", libc::MS_REMOUNT | libc::MS_BIND));
    must_fail("share", mount("none", "none", "/", libc::MS_SHARED));
    for path in ["/workspace", "/run/workspace", "/proc", "/proc/kcore", "/proc/sys", "/tmp", "/"] {
        let target = text(path);
        // SAFETY: a text that ends with NUL.
        let done = unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) };
        must_fail(&format!("unmount {path}"), call(done.into()));
    }
    let (root, kind) = (text("/"), text("tmpfs"));
    // SAFETY: texts that end with NUL.
    unsafe {
        must_fail("chroot", call(libc::chroot(root.as_ptr()).into()));
        let new = libc::syscall(libc::SYS_pivot_root, root.as_ptr(), root.as_ptr());
        must_fail("pivot_root", call(new));
        must_fail("fsopen", call(libc::syscall(libc::SYS_fsopen, kind.as_ptr(), 0)));
        let tree = libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, root.as_ptr(), 1);
        must_fail("open_tree", call(tree));
    }
}

fn namespaces() {
    for (name, flag) in [
        ("user", libc::CLONE_NEWUSER),
        ("mount", libc::CLONE_NEWNS),
        ("pid", libc::CLONE_NEWPID),
        ("network", libc::CLONE_NEWNET),
        ("ipc", libc::CLONE_NEWIPC),
        ("uts", libc::CLONE_NEWUTS),
        ("cgroup", libc::CLONE_NEWCGROUP),
    ] {
        let flag = libc::c_long::from(flag);
        must_fail(&format!("unshare {name}"), raw(libc::SYS_unshare, [flag, 0, 0, 0, 0]));
        let child = raw(libc::SYS_clone, [flag | libc::c_long::from(libc::SIGCHLD), 0, 0, 0, 0]);
        if let Ok(0) = child {
            // SAFETY: the child ends here.
            unsafe { libc::_exit(0) };
        }
        must_fail(&format!("clone into {name}"), child);
        let mut arguments = [0_u64; 11];
        arguments[0] = flag as u64;
        // SAFETY: a structure of 88 bytes, all of which this kernel knows.
        let child = unsafe { libc::syscall(libc::SYS_clone3, arguments.as_mut_ptr(), 88_usize) };
        if child == 0 {
            // SAFETY: the child ends here.
            unsafe { libc::_exit(0) };
        }
        must_fail(&format!("clone3 into {name}"), call(child));
    }
    for name in ["user", "mnt", "net", "pid", "ipc", "uts", "cgroup"] {
        for who in ["1", "self"] {
            let entered = fs::File::open(format!("/proc/{who}/ns/{name}"))
                .and_then(|namespace| raw(libc::SYS_setns, [namespace.as_raw_fd().into(), 0, 0, 0, 0]));
            must_fail(&format!("enter {name} of {who}"), entered);
        }
    }
}

fn devices() {
    for directory in ["/workspace", "/tmp", "/dev/shm", "/dev"] {
        for (name, kind, number) in [
            ("memory", libc::S_IFCHR, libc::makedev(1, 1)),
            ("disk", libc::S_IFBLK, libc::makedev(8, 0)),
            ("disk of a virtual machine", libc::S_IFBLK, libc::makedev(254, 0)),
        ] {
            let path = text(format!("{directory}/device"));
            // SAFETY: a text that ends with NUL.
            let made = unsafe { libc::mknod(path.as_ptr(), kind | 0o666, number) };
            must_fail(&format!("make {name} in {directory}"), call(made.into()));
        }
    }
    for name in
        ["mem", "kmem", "port", "kmsg", "vda", "sda", "loop0", "loop-control", "fuse", "kvm", "net/tun"]
    {
        must_fail(&format!("open /dev/{name}"), fs::File::open(Path::new("/dev").join(name)));
    }
    for entry in fs::read_dir("/dev").unwrap().flatten() {
        let is_block = entry.file_type().is_ok_and(|kind| kind.is_block_device());
        must_be(&format!("block device {:?}", entry.file_name()), !is_block);
    }
}

fn keyrings() {
    let (kind, name) = (text("user"), text("workspace-test"));
    let session = libc::c_long::from(libc::KEY_SPEC_SESSION_KEYRING);
    // SAFETY: texts that end with NUL, and no more bytes than there are.
    unsafe {
        let key =
            libc::syscall(libc::SYS_add_key, kind.as_ptr(), name.as_ptr(), name.as_ptr(), 4_usize, session);
        must_fail("add_key", call(key));
        let key = libc::syscall(libc::SYS_request_key, kind.as_ptr(), name.as_ptr(), 0_usize, session);
        must_fail("request_key", call(key));
    }
    let keyring = libc::c_long::from(libc::KEYCTL_GET_KEYRING_ID);
    must_fail("keyctl", raw(libc::SYS_keyctl, [keyring, session, 1, 0, 0]));
    let join = libc::c_long::from(libc::KEYCTL_JOIN_SESSION_KEYRING);
    must_fail("join a keyring", raw(libc::SYS_keyctl, [join, 0, 0, 0, 0]));
    let keys = fs::read_to_string("/proc/keys").unwrap_or_default();
    must_be("keys of the machine", keys.is_empty());
}

/// Connects to addresses of the host, and to its abstract sockets.
fn network(named: &[String]) {
    for name in named {
        match name.parse::<SocketAddr>() {
            Ok(address) => {
                let dialled = TcpStream::connect_timeout(&address, Duration::from_secs(2));
                must_fail(&format!("dial {address}"), dialled);
            }
            Err(_) => {
                let address = std::os::unix::net::SocketAddr::from_abstract_name(name).unwrap();
                must_fail(&format!("dial @{name}"), UnixStream::connect_addr(&address));
            }
        }
    }
    for (name, family, kind, protocol) in [
        ("raw", libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP),
        ("raw of the sixth version", libc::AF_INET6, libc::SOCK_RAW, libc::IPPROTO_ICMPV6),
        ("packet", libc::AF_PACKET, libc::SOCK_RAW, 0x300),
        ("machine", libc::AF_VSOCK, libc::SOCK_STREAM, 0),
    ] {
        // SAFETY: the call takes numbers.
        let socket = unsafe { libc::socket(family, kind, protocol) };
        must_fail(&format!("a {name} socket"), call(socket.into()));
    }
    // The kernel takes the lower half of the register.
    let vsock = libc::c_long::from(libc::AF_VSOCK) | 1 << 32;
    let refused = |made: io::Result<_>| made.is_err_and(|error| error.raw_os_error() == Some(libc::EPERM));
    must_be(
        "a machine socket with the upper half of the family set",
        refused(raw(libc::SYS_socket, [vsock, libc::SOCK_STREAM.into(), 0, 0, 0])),
    );
    let interfaces = fs::read_to_string("/proc/net/dev").unwrap_or_default();
    let others = interfaces.lines().skip(2).filter(|line| !line.trim_start().starts_with("lo:"));
    // Tunnels that every new network namespace has lead nowhere, and cannot be enabled.
    let up = others.filter(|line| line.split_whitespace().nth(1).is_some_and(|bytes| bytes != "0"));
    must_be("a network of the machine's", up.count() == 0);
}

fn settings() {
    for path in [
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/kernel/hostname",
        "/proc/sys/kernel/modprobe",
        "/proc/sys/kernel/randomize_va_space",
        "/proc/sys/vm/overcommit_memory",
        "/proc/sys/net/ipv4/ip_forward",
        "/proc/sysrq-trigger",
        "/proc/1/oom_score_adj",
        "/proc/1/comm",
        "/sys/kernel/uevent_helper",
        "/sys/kernel/mm/transparent_hugepage/enabled",
        "/sys/power/state",
    ] {
        must_fail(&format!("write {path}"), write_to(path));
    }
    for path in ["/proc/kcore", "/proc/timer_list", "/sys/firmware/x"] {
        let read = fs::read(path)
            .and_then(|bytes| if bytes.is_empty() { Err(io::Error::other("empty")) } else { Ok(bytes) });
        must_fail(&format!("read {path}"), read);
    }
    groups(Path::new("/sys/fs/cgroup"), 3);
}

/// Writes to cgroups: no file can be written, and none can be created.
fn groups(directory: &Path, depth: u32) {
    must_fail(&format!("make a group in {}", directory.display()), fs::create_dir(directory.join("x")));
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && depth > 0 => groups(&path, depth - 1),
            Ok(kind) if kind.is_file() && write_to(&path).is_ok() => println!("GAINED {}", path.display()),
            _ => {}
        }
    }
}

/// Checks that it has no privileges, whatever owner and mode this program has.
fn rights() {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_whitespace().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    for name in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        let rights = field(name);
        must_be(&format!("{name} {rights:?}"), rights[0].chars().all(|digit| digit == '0'));
    }
    for name in ["Uid:", "Gid:"] {
        let ids = field(name);
        must_be(&format!("{name} {ids:?}"), ids.iter().all(|id| *id == ids[0] && id != "0"));
    }
    must_be("NoNewPrivs", field("NoNewPrivs:") == ["1"]);
    must_be("Seccomp", field("Seccomp:") == ["2"]);
    must_fail("setuid", raw(libc::SYS_setuid, [0; 5]));
    must_fail("setgid", raw(libc::SYS_setgid, [0; 5]));
    must_fail("setgroups", raw(libc::SYS_setgroups, [0; 5]));
}

/// Searches for 32 bytes with that hash, in binary and hexadecimal, in every readable file, or in one
/// directory.
fn token(hash: &str, named: Option<&String>) {
    let hash = blake3::Hash::from_hex(hash).unwrap();
    let mut seen = 0_u64;
    if let Some(directory) = named {
        return search_all(Path::new(directory), &hash, &mut seen, 8);
    }
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let path = process.path();
        for name in ["environ", "cmdline"] {
            search(&path.join(name), &hash, &mut seen);
        }
        for open in fs::read_dir(path.join("fd")).into_iter().flatten().flatten() {
            search(&open.path(), &hash, &mut seen);
        }
    }
    for directory in ["/run", "/tmp", "/dev/shm", "/var/tmp", "/home", "/etc"] {
        search_all(Path::new(directory), &hash, &mut seen, 8);
    }
    must_be(&format!("the token in {seen} files"), seen > 0);
}

fn search_all(directory: &Path, hash: &blake3::Hash, seen: &mut u64, depth: u32) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && depth > 0 => search_all(&entry.path(), hash, seen, depth - 1),
            _ => search(&entry.path(), hash, seen),
        }
    }
}

fn search(path: &Path, hash: &blake3::Hash, seen: &mut u64) {
    // A pipe or a socket would be read from another process; a terminal has no end.
    let is_file = fs::metadata(path).is_ok_and(|found| found.is_file());
    let Some(file) = is_file.then(|| fs::File::open(path).ok()).flatten() else { return };
    let mut bytes = Vec::new();
    if file.take(SEARCH_MAX).read_to_end(&mut bytes).is_err() {
        return;
    }
    *seen += 1;
    if contains_token(&bytes, hash) {
        println!("GAINED the token in {}", path.display());
    }
}

/// Returns true if 32 bytes with that hash are among the bytes.
pub(crate) fn contains_token(bytes: &[u8], hash: &blake3::Hash) -> bool {
    let plain = bytes.windows(32).any(|piece| blake3::hash(piece) == *hash);
    let digits = |piece: &[u8]| -> Option<Vec<u8>> {
        let text = std::str::from_utf8(piece).ok()?;
        (0..64).step_by(2).map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok()).collect()
    };
    let is_digit = |piece: &&[u8]| piece[0].is_ascii_hexdigit() && piece[63].is_ascii_hexdigit();
    let mut hexadecimal = bytes.windows(64).filter(is_digit).filter_map(digits);
    plain || hexadecimal.any(|piece| blake3::hash(&piece) == *hash)
}

/// Replaces the directory of the server's socket.
fn socket() {
    let path = "/run/workspace/agent.sock";
    must_fail("remove it", fs::remove_file(path));
    must_fail("rename it", fs::rename(path, "/run/workspace/other"));
    must_fail("rename its directory", fs::rename("/run/workspace", "/run/other"));
    must_fail("make another", std::os::unix::net::UnixListener::bind("/run/workspace/other.sock"));
    must_fail("be given the token", UnixStream::connect("/run/workspace/start.sock"));
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o000);
    must_fail("close it", fs::set_permissions(path, mode));
    must_fail("link to it", fs::hard_link(path, "/workspace/agent.sock"));
    must_fail("write beside it", fs::write("/run/workspace/x", ""));
}

/// Makes system calls that no program inside needs, and that were used to escape before.
fn calls() {
    for (name, number) in [
        ("acct", libc::SYS_acct),
        ("bpf", libc::SYS_bpf),
        ("delete_module", libc::SYS_delete_module),
        ("finit_module", libc::SYS_finit_module),
        ("init_module", libc::SYS_init_module),
        ("kexec_load", libc::SYS_kexec_load),
        ("lookup_dcookie", libc::SYS_lookup_dcookie),
        ("open_by_handle_at", libc::SYS_open_by_handle_at),
        ("perf_event_open", libc::SYS_perf_event_open),
        ("quotactl", libc::SYS_quotactl),
        ("reboot", libc::SYS_reboot),
        ("setdomainname", libc::SYS_setdomainname),
        ("sethostname", libc::SYS_sethostname),
        ("settimeofday", libc::SYS_settimeofday),
        ("swapon", libc::SYS_swapon),
        ("syslog", libc::SYS_syslog),
        ("userfaultfd", libc::SYS_userfaultfd),
        ("vhangup", libc::SYS_vhangup),
    ] {
        let refused = match raw(number, [0; 5]) {
            Err(error) => matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS)),
            Ok(_) => false,
        };
        must_be(name, refused);
    }
    for (name, number) in [("clone3", libc::SYS_clone3), ("a call of a later kernel", 1000)] {
        let missing = raw(number, [0; 5]).is_err_and(|error| error.raw_os_error() == Some(libc::ENOSYS));
        must_be(&format!("{name} as if there were none"), missing);
    }
}
