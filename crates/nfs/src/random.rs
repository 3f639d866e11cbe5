//! Random bytes of the kernel.

use rustix::rand::{GetRandomFlags, getrandom};

/// Returns random bytes for keys and generations.
///
/// # Panics
///
/// If the kernel has no random generator, without which no key would be safe.
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
