//! Making the crossing: the network namespace between a sandbox's and the machine's.
//!
//! Who has entered another network namespace cannot always come back, so a child does it, and sends what was opened
//! there.

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
use crate::error::{Doing as _, HostError, Result};
use crate::namespace::clone::{self, Parent};
use crate::namespace::credentials;
use crate::namespace::holder::Holder;
use crate::namespace::id_map::{self, Range};
use crate::namespace::sandbox_ids;

/// Where programs inside ask what names mean.
const NAMES: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 53);
/// Whether it matters where a packet comes from, for the network namespace of whoever looks.
const SOURCES: &str = "/proc/sys/net/ipv4/conf/all/rp_filter";
/// How many descriptors the child sends.
const SENT: usize = 6;

/// A crossing without links, and what was opened in the sandbox.
pub(super) struct Crossing {
    /// Where names are asked for, inside.
    pub(super) names: UdpSocket,
    /// The same for long questions and answers.
    pub(super) long_names: TcpListener,
    /// The sandbox's network.
    pub(super) inside: Netlink,
    /// The crossing's.
    pub(super) here: Netlink,
    /// The crossing.
    pub(super) namespace: OwnedFd,
    /// To whom it belongs: users who have no rights on the machine.
    pub(super) users: OwnedFd,
}

/// Makes one for the sandbox with this first process.
pub(super) fn make(process: &OwnedFd, holder: &Holder) -> Result<Crossing> {
    let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let (receiver, sender) = pair.doing("make a pair of sockets")?;
    let users = (*holder == Holder::Machine).then(|| sandbox_ids::users(holder));
    let mut child = clone::child(0, None, |parent| match enter(parent, process, users, &sender) {
        Ok(()) => HostError::other("done"),
        Err(error) => error,
    })?;
    let made = accompany(&mut child, users, &receiver);
    child.kill();
    made
}

fn accompany(child: &mut clone::Child, users: Option<Range>, receiver: &OwnedFd) -> Result<Crossing> {
    if let Some(users) = users {
        child.ready()?;
        id_map::map(child.pid, &[users], &[users])?;
        child.done()?;
    }
    child.ready()?;
    let received = receive(receiver).doing("take what was opened in a sandbox")?;
    let [names, long_names, inside, here, namespace, users] = received;
    Ok(Crossing {
        names: names.into(),
        long_names: long_names.into(),
        inside: inside.into(),
        here: here.into(),
        namespace,
        users,
    })
}

/// What the child does.
fn enter(parent: &mut Parent, process: &OwnedFd, users: Option<Range>, sender: &OwnedFd) -> Result<()> {
    move_into_thread_name_spaces(process.as_fd(), ThreadNameSpaceType::NETWORK)
        .doing("enter the sandbox's network, for which it takes the superuser")?;
    let names = UdpSocket::bind(NAMES).doing("listen for names in the sandbox")?;
    let long_names = TcpListener::bind(NAMES).doing("listen for names in the sandbox")?;
    let inside = Netlink::here().doing("look at the sandbox's network")?;
    if let Some(users) = users {
        unshare(libc::CLONE_NEWUSER).doing("make users for the crossing")?;
        parent.done()?;
        parent.wait()?;
        if users.has_root() {
            credentials::become_root_inside()?;
        }
    }
    unshare(libc::CLONE_NEWNET).doing("make a network")?;
    take_any_source().doing(format!("write {SOURCES}"))?;
    let here = Netlink::here().doing("look at a new network")?;
    let namespace = |kind: &str| File::open(format!("/proc/self/ns/{kind}")).doing("open a new namespace");
    let opened: [OwnedFd; SENT] = [
        names.into(),
        long_names.into(),
        inside.into(),
        here.into(),
        namespace("net")?.into(),
        namespace("user")?.into(),
    ];
    send(sender, &opened).doing("pass on what was opened in a sandbox")?;
    parent.done()?;
    parent.wait()
}

/// The way out asks for the sandbox from an address that the fence shuts. Where the machine drops what no answer would
/// lead back to, a new network does so too.
fn take_any_source() -> io::Result<()> {
    if std::fs::read_to_string(SOURCES)?.trim() == "0" {
        return Ok(());
    }
    std::fs::write(SOURCES, "0")
}

fn unshare(namespaces: libc::c_int) -> io::Result<()> {
    // SAFETY: the call takes a number.
    if unsafe { libc::unshare(namespaces) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn send(sender: &OwnedFd, opened: &[OwnedFd; SENT]) -> io::Result<()> {
    let descriptors = opened.each_ref().map(|one| one.as_fd());
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SENT))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::other("no room for descriptors"));
    }
    sendmsg(sender, &[IoSlice::new(b"x")], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

fn receive(receiver: &OwnedFd) -> io::Result<[OwnedFd; SENT]> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SENT))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    recvmsg(receiver, &mut [IoSliceMut::new(&mut [0])], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let received = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect(),
        _ => Vec::new(),
    });
    let received: Vec<OwnedFd> = received.collect();
    received.try_into().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
}
