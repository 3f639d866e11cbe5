//! The network daemon: a process that sets up the network of a sandbox and serves it until the sandbox ends.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use ipnet::Ipv4Net;
use rustix::net::{RecvFlags, recv};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{MissedTickBehavior, interval};

use super::egress::{Egress, Uplink};
use super::egress_policy::{EgressPolicy, RangeRule};
use super::host_addresses;
use super::netlink::Netlink;
use super::resolver::{self, Resolver};
use super::router::{self, Router};
use super::routes::{self, ROUTER_NETWORK, Routes};
use super::uplink::UplinkProcess;
use crate::error::{Context as _, HostError, Result};
use crate::namespace::clone::{self, Parent};
use crate::namespace::holder::{NamespaceHolder, detach_stdio};
use crate::namespace::{credentials, sandbox_ids};

/// Interval of reading the addresses of the host, if no notification comes.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Starts the network daemon of a sandbox that has not run any program yet, and waits until the network is
/// ready. `process` is the PID file descriptor of its first process. Must be called in a process with one thread.
pub(crate) fn start(process: &OwnedFd, egress: &Egress, holder: &NamespaceHolder) -> Result<()> {
    let mut child = clone::spawn(0, None, |parent| match run(parent, process, egress, holder) {
        // The sandbox has ended. The pipe to the parent is closed by then, so nobody receives this error.
        Ok(()) => HostError::sandbox_ended(),
        Err(error) => error,
    })?;
    let ready = child.wait_ready();
    if ready.is_err() {
        child.kill();
    }
    ready.map_err(HostError::into_network_error)
}

/// Runs the daemon until the sandbox ends, or its uplink.
fn run(parent: &mut Parent, process: &OwnedFd, egress: &Egress, holder: &NamespaceHolder) -> Result<()> {
    let [to, from] = parent.fds();
    close_fds_except(&[to, from, process.as_raw_fd()]).context("close inherited file descriptors")?;
    rustix::process::setsid().context("create a session")?;
    rustix::thread::set_name(c"network-daemon").context("set the process name")?;
    detach_stdio()?;
    // Opened before the addresses are read, so that no change in between is missed.
    let address_changes = Netlink::address_changes().context("watch the addresses of the host")?;
    let router = router::create(process, holder)?;
    routes::connect_sandbox(&router, &egress.uplink)?;
    let uplink = match egress.uplink {
        Uplink::UserMode => Some(UplinkProcess::start(&router, holder)?),
        Uplink::Link { .. } => None,
    };
    let served = set_up(router, egress).and_then(|network| {
        // From here on the daemon handles untrusted input. If it is root, it becomes the host user that is user 0 of
        // sandboxes. The uplink program runs as that user, too, so that the daemon can still kill it.
        let ids = sandbox_ids::ids_of(holder);
        credentials::keep_net_admin(ids.has_root().then_some(ids.outside))?;
        parent.notify()?;
        serve(process, uplink.as_ref(), &address_changes, network)
    });
    if let Some(uplink) = uplink {
        uplink.kill();
    }
    served
}

/// Network that is set up.
struct SandboxNetwork {
    resolver: Arc<Resolver>,
    /// Socket in the sandbox for DNS over UDP.
    dns_udp: std::net::UdpSocket,
    /// Listener in the sandbox for DNS over TCP.
    dns_tcp: std::net::TcpListener,
    /// Keeps the network namespace of the router alive if there is no uplink program.
    _namespace: OwnedFd,
}

/// Sets the routes, first those that deny.
fn set_up(router: Router, egress: &Egress) -> Result<SandboxNetwork> {
    let Router { dns_udp, dns_tcp, sandbox, netlink, namespace, .. } = router;
    let routes = Routes::connect_uplink(sandbox, netlink, &egress.uplink)?;
    let host_ranges = host_ranges().context("read the addresses of the host")?;
    let policy = EgressPolicy::new(egress, host_ranges);
    // The routing table is empty at first. With this order no address is ever reachable that a later entry denies.
    let (denied, allowed): (Vec<_>, Vec<_>) = policy.table().partition(|(_, rule)| *rule == RangeRule::Deny);
    for (range, rule) in denied.into_iter().chain(allowed) {
        routes.set(range, rule).context(format!("set the route to {range}"))?;
    }
    // TCP ports of the host that stay reachable although its addresses are denied.
    for destination in &egress.except {
        routes.allow_port(*destination).context(format!("set the route to {destination}"))?;
    }
    for result in [dns_udp.set_nonblocking(true), dns_tcp.set_nonblocking(true)] {
        result.context("listen for DNS queries in the sandbox")?;
    }
    let resolver = Resolver::new(egress.allow.as_deref(), egress.dns, policy, routes);
    Ok(SandboxNetwork { resolver: Arc::new(resolver), dns_udp, dns_tcp, _namespace: namespace })
}

/// Returns the ranges of the host and of the router.
fn host_ranges() -> io::Result<Vec<Ipv4Net>> {
    let mut ranges = host_addresses::addresses()?;
    ranges.push(ROUTER_NETWORK);
    Ok(ranges)
}

/// Serves DNS and follows the addresses of the host until the sandbox or the uplink ends.
fn serve(
    process: &OwnedFd,
    uplink: Option<&UplinkProcess>,
    address_changes: &OwnedFd,
    network: SandboxNetwork,
) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("start an async runtime")?;
    runtime.block_on(async {
        let SandboxNetwork { resolver, dns_udp, dns_tcp, _namespace } = network;
        let dns_udp = tokio::net::UdpSocket::from_std(dns_udp).context("listen for DNS queries")?;
        let dns_tcp = tokio::net::TcpListener::from_std(dns_tcp).context("listen for DNS queries")?;
        tokio::select! {
            () = resolver::serve_udp(dns_udp, resolver.clone()) => Ok(()),
            () = resolver::serve_tcp(dns_tcp, resolver.clone()) => Ok(()),
            failed = follow_host_addresses(address_changes, &resolver) => {
                failed.context("follow the addresses of the host")
            }
            exited = exited(process) => exited.context("watch the sandbox"),
            exited = async {
                match uplink {
                    Some(uplink) => exited(&uplink.pidfd).await,
                    None => std::future::pending().await,
                }
            } => exited.context("watch the uplink"),
        }
    })
}

async fn exited(process: &OwnedFd) -> io::Result<()> {
    watch(process)?.readable().await.map(|_| ())
}

fn watch(fd: &OwnedFd) -> io::Result<AsyncFd<BorrowedFd<'_>>> {
    // SAFETY: the file descriptor is open for as long as it is borrowed.
    Ok(unsafe { AsyncFd::register_with_interest(fd.as_fd(), Interest::READABLE) }?)
}

/// Denies every address that the host gets. Returns only with an error: a daemon that cannot deny an address
/// must end, and the network with it.
async fn follow_host_addresses(address_changes: &OwnedFd, resolver: &Resolver) -> io::Result<()> {
    let address_changes = watch(address_changes)?;
    let mut poll = interval(POLL_INTERVAL);
    poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            ready = address_changes.readable() => {
                let mut ready = ready?;
                // The content does not matter, nor whether the buffer of the socket overflowed.
                let mut buffer = [0; 8_192];
                while recv(address_changes.get_ref(), &mut buffer[..], RecvFlags::DONTWAIT).is_ok() {}
                ready.clear_ready();
            }
            _ = poll.tick() => {}
        }
        resolver.deny(host_ranges()?)?;
    }
}

/// Closes all inherited file descriptors except these and standard input, output and error.
fn close_fds_except(kept: &[RawFd]) -> io::Result<()> {
    let kept: BTreeSet<RawFd> = kept.iter().copied().collect();
    let mut next = 3;
    let close = |first: RawFd, last: libc::c_uint| {
        // SAFETY: nothing in this process uses these file descriptors from here on.
        let closed = unsafe { libc::syscall(libc::SYS_close_range, first as libc::c_uint, last, 0) };
        if closed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    for fd in kept {
        if fd > next {
            close(next, (fd - 1) as libc::c_uint)?;
        }
        next = next.max(fd + 1);
    }
    close(next, libc::c_uint::MAX)
}
