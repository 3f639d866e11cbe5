//! TCP ports for servers that are stopped and started again.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

/// Candidate ports. They are below the kernel's ephemeral port range, because an outgoing connection could get an
/// ephemeral port while the server is down.
const STABLE_PORTS: std::ops::Range<u32> = 12_000..32_000;

/// Returns a TCP port on which nobody listens. It is not reserved. Each process, and each call in it, starts its search at a different port.
pub fn stable_port() -> u16 {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let length = STABLE_PORTS.end - STABLE_PORTS.start;
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    let first = std::process::id().wrapping_mul(7_919).wrapping_add(call.wrapping_mul(101)) % length;
    let mut candidates = (0..length).map(|n| STABLE_PORTS.start + (first + n) % length);
    let is_free = |port: &u32| TcpListener::bind((Ipv4Addr::UNSPECIFIED, *port as u16)).is_ok();
    candidates.find(is_free).expect("a free port") as u16
}
