//! The keeper: the process that puts up a sandbox's network and looks after it until the sandbox ends.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{RecvFlags, recv};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{MissedTickBehavior, interval};

use super::cidr::Cidr;
use super::egress::{Egress, Way};
use super::egress_policy::{Fence, Gate};
use super::host_addresses;
use super::netlink::Netlink;
use super::resolver::{self, Resolver};
use super::router::{self, Crossing};
use super::routes::{self, NETWORK, Roads};
use super::uplink::Link;
use crate::error::{Doing as _, HostError, Result};
use crate::namespace::clone::{self, Parent};
use crate::namespace::holder::{Holder, let_go_of_output};
use crate::namespace::{credentials, sandbox_ids};

/// Between two looks at the machine's addresses, if nothing tells of a change.
const LOOK: Duration = Duration::from_secs(5);

/// Starts the keeper of a sandbox that has run nothing yet; its network is there when this returns. To be called in a
/// process with one thread.
pub(crate) fn start(process: &OwnedFd, egress: &Egress, holder: &Holder) -> Result<()> {
    let mut child = clone::child(0, None, |parent| match keep(parent, process, egress, holder) {
        Ok(()) => HostError::sandbox_ended(),
        Err(error) => error,
    })?;
    let ready = child.ready();
    if ready.is_err() {
        child.kill();
    }
    ready.map_err(HostError::of_network)
}

/// What the keeper does.
fn keep(parent: &mut Parent, process: &OwnedFd, egress: &Egress, holder: &Holder) -> Result<()> {
    let [to, from] = parent.descriptors();
    close_all_but(&[to, from, process.as_raw_fd()]).doing("let go of what others opened")?;
    rustix::process::setsid().doing("begin a session")?;
    rustix::thread::set_name(c"egress-keeper").doing("take a name")?;
    let_go_of_output()?;
    // Before the machine is looked at: what changes after that is seen.
    let changes = Netlink::changes().doing("watch the machine's addresses")?;
    let crossing = router::make(process, holder)?;
    routes::to_sandbox(&crossing, &egress.way)?;
    let link = match egress.way {
        Way::Program => Some(Link::start(&crossing, holder)?),
        Way::Link { .. } => None,
    };
    let kept = put_up(crossing, egress).and_then(|open| {
        // From here on it deals with what others write. Whom it becomes is who runs the way out, and may end it.
        let users = sandbox_ids::users(holder);
        credentials::keep_networks(users.has_root().then_some(users.outside))?;
        parent.done()?;
        look_after(process, link.as_ref(), &changes, open)
    });
    if let Some(link) = link {
        link.end();
    }
    kept
}

/// A network that can be used.
struct Open {
    resolver: Arc<Resolver>,
    names: std::net::UdpSocket,
    long_names: std::net::TcpListener,
    /// Keeps the crossing, where no program does.
    _namespace: OwnedFd,
}

/// Puts up the fence and opens it where it is to be open.
fn put_up(crossing: Crossing, egress: &Egress) -> Result<Open> {
    let Crossing { names, long_names, inside, here, namespace, .. } = crossing;
    let roads = Roads::to_world(inside, here, &egress.way)?;
    let own = own().doing("look for the machine's addresses")?;
    let fence = Fence::new(egress, own);
    // What is shut first: the table begins empty, and nothing is open that a later entry shuts.
    let (shut, open): (Vec<_>, Vec<_>) = fence.table().partition(|(_, gate)| *gate == Gate::Shut);
    for (range, gate) in shut.into_iter().chain(open) {
        roads.set(range, gate).doing(format!("set the route to {range}"))?;
    }
    for to in &egress.except {
        roads.except(*to).doing(format!("set the route to {to}"))?;
    }
    for socket in [names.set_nonblocking(true), long_names.set_nonblocking(true)] {
        socket.doing("listen for names in the sandbox")?;
    }
    let resolver = Resolver::new(egress.allow.as_deref(), egress.dns, fence, roads);
    Ok(Open { resolver: Arc::new(resolver), names, long_names, _namespace: namespace })
}

/// What is this machine: its addresses, and those of the crossing.
fn own() -> io::Result<Vec<Cidr>> {
    let mut own = host_addresses::addresses()?;
    own.push(NETWORK);
    Ok(own)
}

/// Stays until the sandbox has ended, or the way out.
fn look_after(process: &OwnedFd, link: Option<&Link>, changes: &OwnedFd, open: Open) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.doing("wait for what happens")?;
    runtime.block_on(async {
        let Open { resolver, names, long_names, _namespace } = open;
        let names = tokio::net::UdpSocket::from_std(names).doing("listen for names")?;
        let long_names = tokio::net::TcpListener::from_std(long_names).doing("listen for names")?;
        tokio::select! {
            () = resolver::packets(names, resolver.clone()) => Ok(()),
            () = resolver::connections(long_names, resolver.clone()) => Ok(()),
            shut = follow_machine(changes, &resolver) => shut.doing("follow the machine's addresses"),
            ended = ended(process) => ended.doing("watch the sandbox"),
            ended = async {
                match link {
                    Some(link) => ended(&link.ended).await,
                    None => std::future::pending().await,
                }
            } => ended.doing("watch the way out"),
        }
    })
}

async fn ended(process: &OwnedFd) -> io::Result<()> {
    watch(process)?.readable().await.map(|_| ())
}

fn watch(fd: &OwnedFd) -> io::Result<AsyncFd<BorrowedFd<'_>>> {
    // SAFETY: the descriptor is open for as long as it is borrowed.
    Ok(unsafe { AsyncFd::register_with_interest(fd.as_fd(), Interest::READABLE) }?)
}

/// Shuts the fence for every address that the machine gets. Ends with an error only: a keeper that cannot shut it must
/// not keep it open.
async fn follow_machine(changes: &OwnedFd, resolver: &Resolver) -> io::Result<()> {
    let changes = watch(changes)?;
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            told = changes.readable() => {
                let mut told = told?;
                // That something changed is enough; also that more did than there was room to tell.
                let mut buffer = [0; 8_192];
                while recv(changes.get_ref(), &mut buffer[..], RecvFlags::DONTWAIT).is_ok() {}
                told.clear_ready();
            }
            _ = look.tick() => {}
        }
        resolver.shut(own()?)?;
    }
}

/// Closes every descriptor that this process got from its maker, but these and the first three.
fn close_all_but(kept: &[RawFd]) -> io::Result<()> {
    let kept: BTreeSet<RawFd> = kept.iter().copied().collect();
    let mut next = 3;
    let close = |first: RawFd, last: libc::c_uint| {
        // SAFETY: closes descriptors that nothing in this process uses any more.
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
