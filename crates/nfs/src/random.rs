//! Random bytes from the kernel (`getrandom`).

use rustix::rand::{GetRandomFlags, getrandom};

/// Returns cryptographically secure random bytes.
///
/// # Panics
///
/// If the kernel has no random generator, because keys would not be secure.
pub(crate) fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("the kernel gives no random bytes: {error}"),
        }
    }
    bytes
}

/// Returns a random number that is not zero.
pub(crate) fn random_u64() -> u64 {
    u64::from_le_bytes(random_bytes()).max(1)
}
