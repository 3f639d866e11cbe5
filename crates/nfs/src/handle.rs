//! File handles. The numbers are little-endian:
//!
//! ```text
//! offset  content
//! 0       generation: u64, random number of the export in its present state
//! 8       id of the file in the table of the export: u64
//! 16      MAC of both: first 16 bytes of keyed BLAKE3 with the key of the server
//! ```
//!
//! An export gets another generation when its directory is replaced; handles with the former one are stale then.

use crate::state_dir::KEY_LEN;
use crate::table::FileId;

/// Length of a handle in bytes. The protocol allows 64.
pub(crate) const HANDLE_LEN: usize = 32;

/// Offset of the MAC in bytes.
const MAC_AT: usize = 16;

/// Content of a file handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Handle {
    /// Random number of an export in one state, unique over all exports.
    pub(crate) generation: u64,
    /// Id of the file in the table of the export.
    pub(crate) id: FileId,
}

impl Handle {
    pub(crate) fn encode(self, key: &[u8; KEY_LEN]) -> [u8; HANDLE_LEN] {
        let mut bytes = [0; HANDLE_LEN];
        bytes[..8].copy_from_slice(&self.generation.to_le_bytes());
        bytes[8..MAC_AT].copy_from_slice(&self.id.0.to_le_bytes());
        let mac = blake3::keyed_hash(key, &bytes[..MAC_AT]);
        bytes[MAC_AT..].copy_from_slice(&mac.as_bytes()[..HANDLE_LEN - MAC_AT]);
        bytes
    }

    /// Decodes a handle. `None` if its length or its MAC is wrong.
    pub(crate) fn decode(key: &[u8; KEY_LEN], bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; HANDLE_LEN] = bytes.try_into().ok()?;
        let generation = u64::from_le_bytes(*bytes.first_chunk()?);
        let id = FileId(u64::from_le_bytes(*bytes[8..].first_chunk()?));
        let handle = Self { generation, id };
        is_equal(&handle.encode(key), bytes).then_some(handle)
    }
}

/// Returns true if both are equal. The time of the comparison does not depend on the content.
fn is_equal(one: &[u8; HANDLE_LEN], other: &[u8; HANDLE_LEN]) -> bool {
    let differences = one.iter().zip(other).fold(0, |found, (a, b)| found | (a ^ b));
    std::hint::black_box(differences) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const HANDLE: Handle = Handle { generation: 7, id: FileId(1 << 40) };

    #[test]
    fn a_handle_is_decoded_with_the_key_that_made_it() {
        let bytes = HANDLE.encode(&[1; KEY_LEN]);
        assert_eq!(Handle::decode(&[1; KEY_LEN], &bytes), Some(HANDLE));
        assert_eq!(Handle::decode(&[2; KEY_LEN], &bytes), None);
    }

    #[test]
    fn no_changed_bit_and_no_other_length_is_accepted() {
        let bytes = HANDLE.encode(&[1; KEY_LEN]);
        for bit in 0..HANDLE_LEN * 8 {
            let mut forged = bytes;
            forged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Handle::decode(&[1; KEY_LEN], &forged), None, "bit {bit}");
        }
        for length in [0, 8, 31] {
            assert_eq!(Handle::decode(&[1; KEY_LEN], &bytes[..length]), None);
        }
        assert_eq!(Handle::decode(&[1; KEY_LEN], &[bytes.as_slice(), &[0]].concat()), None);
    }

    /// Clients use handles also after a restart or an update of the server, so their format must not change.
    #[test]
    fn the_format_of_handles_is_frozen() {
        let hex: String = HANDLE.encode(&[1; KEY_LEN]).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "07000000000000000000000000010000cf21f3875d2c808e6f017d56bae8db7c");
    }
}
