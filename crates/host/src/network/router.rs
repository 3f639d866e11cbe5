//! The router: a network namespace between that of a sandbox and that of the host.
//!
//! A process that has entered another network namespace cannot always come back, so a child does it and sends
//! the file descriptors that it opened there.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use rustix::thread::{ThreadNameSpaceType, move_into_thread_name_spaces};

use super::netlink::Netlink;
use crate::error::{Context as _, HostError, Result};
use crate::namespace::clone::{self, Parent};
use crate::namespace::credentials;
use crate::namespace::holder::NamespaceHolder;
use crate::namespace::id_map::{self, IdRange};
use crate::namespace::sandbox_ids;

/// Address of the DNS server in the sandbox.
const DNS_ADDRESS: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 53);
/// Reverse path filter of the network namespace of the reading process.
const RP_FILTER: &str = "/proc/sys/net/ipv4/conf/all/rp_filter";
/// Number of file descriptors that the child sends.
const FD_COUNT: usize = 6;

/// Router without links, and sockets that were opened in the sandbox.
pub(super) struct Router {
    /// DNS socket in the sandbox.
    pub(super) dns_udp: UdpSocket,
    /// DNS listener in the sandbox.
    pub(super) dns_tcp: TcpListener,
    /// Netlink socket of the sandbox.
    pub(super) sandbox: Netlink,
    /// Netlink socket of the router.
    pub(super) netlink: Netlink,
    /// Network namespace of the router.
    pub(super) namespace: OwnedFd,
    /// User namespace that owns it, without capabilities on the host.
    pub(super) user_namespace: OwnedFd,
}

/// Creates the router of a sandbox. `process` is the PID file descriptor of its first process.
pub(super) fn create(process: &OwnedFd, holder: &NamespaceHolder) -> Result<Router> {
    let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let (receiver, sender) = pair.context("create a socket")?;
    let ids = (*holder == NamespaceHolder::None).then(|| sandbox_ids::ids_of(holder));
    let mut child = clone::spawn(0, None, |parent| match enter(parent, process, ids, &sender) {
        // Not reached: the child waits until it is killed.
        Ok(()) => HostError::other("done"),
        Err(error) => error,
    })?;
    let router = receive_router(&mut child, ids, &receiver);
    child.kill();
    router
}

/// Receives the sockets of a router from the child process that has set it up. `ids` are the ids of its new user
/// namespace; `None` if it stays in that of the namespace holder.
fn receive_router(child: &mut clone::Child, ids: Option<IdRange>, receiver: &OwnedFd) -> Result<Router> {
    if let Some(ids) = ids {
        child.wait_ready()?;
        id_map::write(child.pid, &[ids], &[ids])?;
        child.notify()?;
    }
    child.wait_ready()?;
    let received = receive(receiver).context("receive file descriptors")?;
    let [dns_udp, dns_tcp, sandbox, netlink, namespace, user_namespace] = received;
    Ok(Router {
        dns_udp: dns_udp.into(),
        dns_tcp: dns_tcp.into(),
        sandbox: sandbox.into(),
        netlink: netlink.into(),
        namespace,
        user_namespace,
    })
}

/// Opens the sockets in the sandbox, creates the namespaces of the router and sends the file descriptors of all of
/// them; runs in the child. `ids` are the ids of the new user namespace; `None` to stay in that of the
/// holder.
fn enter(parent: &mut Parent, process: &OwnedFd, ids: Option<IdRange>, sender: &OwnedFd) -> Result<()> {
    move_into_thread_name_spaces(process.as_fd(), ThreadNameSpaceType::NETWORK)
        .context("enter the network namespace of the sandbox, which needs root")?;
    let dns_udp = UdpSocket::bind(DNS_ADDRESS).context("listen for DNS queries in the sandbox")?;
    let dns_tcp = TcpListener::bind(DNS_ADDRESS).context("listen for DNS queries in the sandbox")?;
    let sandbox = Netlink::open_in_current_namespace().context("open a netlink socket in the sandbox")?;
    if let Some(ids) = ids {
        unshare(libc::CLONE_NEWUSER).context("create the user namespace of the router")?;
        parent.notify()?;
        // The parent maps the ids.
        parent.wait()?;
        if ids.has_root() {
            credentials::become_root_inside()?;
        }
    }
    unshare(libc::CLONE_NEWNET).context("create the network namespace of the router")?;
    disable_source_check().context(format!("write {RP_FILTER}"))?;
    let netlink = Netlink::open_in_current_namespace().context("open a netlink socket in the router")?;
    let namespace = |kind: &str| File::open(format!("/proc/self/ns/{kind}")).context("open a new namespace");
    let opened: [OwnedFd; FD_COUNT] = [
        dns_udp.into(),
        dns_tcp.into(),
        sandbox.into(),
        netlink.into(),
        namespace("net")?.into(),
        namespace("user")?.into(),
    ];
    send(sender, &opened).context("send file descriptors")?;
    parent.notify()?;
    // The parent kills this process when it has received them.
    parent.wait()
}

/// Disables the reverse path filter: the uplink sends ARP requests for the sandbox from an address that the
/// policy denies. A new network namespace inherits the setting of the host.
fn disable_source_check() -> io::Result<()> {
    if std::fs::read_to_string(RP_FILTER)?.trim() == "0" {
        return Ok(());
    }
    std::fs::write(RP_FILTER, "0")
}

fn unshare(namespaces: libc::c_int) -> io::Result<()> {
    // SAFETY: the call takes an integer.
    if unsafe { libc::unshare(namespaces) } == 0 {
        Ok(())
    } else {
        Err(clone::without_enospc(io::Error::last_os_error()))
    }
}

fn send(sender: &OwnedFd, opened: &[OwnedFd; FD_COUNT]) -> io::Result<()> {
    let descriptors = opened.each_ref().map(|fd| fd.as_fd());
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FD_COUNT))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::other("too many file descriptors for one message"));
    }
    sendmsg(sender, &[IoSlice::new(b"x")], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

fn receive(receiver: &OwnedFd) -> io::Result<[OwnedFd; FD_COUNT]> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FD_COUNT))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    recvmsg(receiver, &mut [IoSliceMut::new(&mut [0])], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let received = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect(),
        _ => Vec::new(),
    });
    let received: Vec<OwnedFd> = received.collect();
    received.try_into().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
}
