//! Registration of the server with the rpcbind of this machine, so that `showmount` finds it. The protocol is version 2
//! of the port mapper (RFC 1833) over UDP.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use crate::random::random_bytes;
use crate::wire::{Decoder, Encode, MOUNT_PROGRAM, MOUNT_VERSION, NFS_PROGRAM, NFS_VERSION};

/// Address of rpcbind.
pub(crate) const RPCBIND: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 111);

/// RPC program number of the port mapper.
const PORT_MAPPER: u32 = 100_000;
const PORT_MAPPER_VERSION: u32 = 2;
/// Procedure that registers a program.
const SET: u32 = 1;
/// Procedure that removes a registration.
const UNSET: u32 = 2;
/// Number of TCP in a registration.
const PROTOCOL_TCP: u32 = 6;

/// Timeout of a reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(1);

/// Programs of the server and their versions.
const PROGRAMS: [(u32, u32); 2] = [(NFS_PROGRAM, NFS_VERSION), (MOUNT_PROGRAM, MOUNT_VERSION)];

/// Registers NFS and MOUNT at a port: both, or none after a failure. Fails if no rpcbind runs or if it refuses. Most
/// implementations of rpcbind refuse users other than root, and programs that another server has registered.
pub(crate) fn register(rpcbind: SocketAddr, port: u16) -> io::Result<()> {
    for (index, (program, version)) in PROGRAMS.into_iter().enumerate() {
        let refused = match call(rpcbind, SET, program, version, port.into()) {
            Ok(true) => continue,
            Ok(false) => io::ErrorKind::PermissionDenied.into(),
            Err(error) => error,
        };
        // The refused program is not unregistered, because it may be the registration of another server.
        if let Err(error) = unregister_programs(rpcbind, &PROGRAMS[..index]) {
            tracing::warn!(%error, "failed to take back half a registration with rpcbind");
        }
        return Err(refused);
    }
    Ok(())
}

/// Removes the registrations of NFS and MOUNT.
pub(crate) fn unregister(rpcbind: SocketAddr) -> io::Result<()> {
    unregister_programs(rpcbind, &PROGRAMS)
}

fn unregister_programs(rpcbind: SocketAddr, programs: &[(u32, u32)]) -> io::Result<()> {
    for (program, version) in programs {
        call(rpcbind, UNSET, *program, *version, 0)?;
    }
    Ok(())
}

/// Calls a procedure of the port mapper and returns its boolean result. UNSET ignores the port.
fn call(rpcbind: SocketAddr, procedure: u32, program: u32, version: u32, port: u32) -> io::Result<bool> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.set_read_timeout(Some(REPLY_TIMEOUT))?;
    socket.connect(rpcbind)?;
    let xid = u32::from_le_bytes(random_bytes());
    let mut request = Vec::new();
    // A call (0) of RPC version 2 with an empty credential and an empty verifier.
    let header = [xid, 0, 2, PORT_MAPPER, PORT_MAPPER_VERSION, procedure, 0, 0, 0, 0];
    let arguments = [program, version, PROTOCOL_TCP, port];
    for value in header.into_iter().chain(arguments) {
        request.put_u32(value);
    }
    socket.send(&request)?;
    let mut reply = [0; 64];
    let length = socket.recv(&mut reply)?;
    let mut reply = Decoder::new(&reply[..length]);
    // Header of a reply (1) that is accepted and successful, with an empty verifier. The result follows.
    for expected in [xid, 1, 0, 0, 0, 0] {
        if reply.u32() != Ok(expected) {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    reply.bool().map_err(|_| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Answers one call for each result. Returns procedure, program and port of each call.
    fn answer(socket: &UdpSocket, results: &[u32]) -> Vec<(u32, u32, u32)> {
        let mut seen = Vec::new();
        for result in results {
            let mut request = [0; 56];
            let (length, client) = socket.recv_from(&mut request).unwrap();
            assert_eq!(length, 56);
            let word = |index: usize| u32::from_be_bytes(request[4 * index..][..4].try_into().unwrap());
            seen.push((word(5), word(10), word(13)));
            let mut reply = Vec::new();
            [word(0), 1, 0, 0, 0, 0, *result].into_iter().for_each(|value| reply.put_u32(value));
            socket.send_to(&reply, client).unwrap();
        }
        seen
    }

    /// Runs a function with the address of a fake rpcbind, which answers with these results. Returns the function's
    /// result, and procedure, program and port of each call.
    fn with_rpcbind<T>(results: &[u32], run: impl FnOnce(SocketAddr) -> T) -> (T, Vec<(u32, u32, u32)>) {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        thread::scope(|scope| {
            let answering = scope.spawn(|| answer(&socket, results));
            let done = run(socket.local_addr().unwrap());
            (done, answering.join().unwrap())
        })
    }

    #[test]
    fn both_programs_are_registered_and_unregistered() {
        let (done, calls) = with_rpcbind(&[1, 1], |rpcbind| register(rpcbind, 4049));
        done.unwrap();
        assert_eq!(calls, [(SET, NFS_PROGRAM, 4049), (SET, MOUNT_PROGRAM, 4049)]);
        let (done, calls) = with_rpcbind(&[1, 1], unregister);
        done.unwrap();
        assert_eq!(calls, [(UNSET, NFS_PROGRAM, 0), (UNSET, MOUNT_PROGRAM, 0)]);
    }

    #[test]
    fn a_refusal_is_an_error() {
        let (done, _) = with_rpcbind(&[0], |rpcbind| register(rpcbind, 4049));
        assert_eq!(done.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }

    /// Regression test: NFS stayed registered when MOUNT was refused, also after the end of the server.
    #[test]
    fn half_a_registration_is_taken_back() {
        let (done, calls) = with_rpcbind(&[1, 0, 1], |rpcbind| register(rpcbind, 4049));
        assert_eq!(done.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(calls, [(SET, NFS_PROGRAM, 4049), (SET, MOUNT_PROGRAM, 4049), (UNSET, NFS_PROGRAM, 0)]);
    }
}
