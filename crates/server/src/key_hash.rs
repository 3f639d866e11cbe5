//! Hashes of API keys.

/// Returns the BLAKE3 hash under which a key is stored, in hexadecimal.
pub fn hash(key: &str) -> String {
    blake3::hash(key.as_bytes()).to_hex().to_string()
}

/// Returns the first 16 digits of a hash, which may be logged.
pub(crate) fn short(hash: &str) -> String {
    hash.chars().take(16).collect()
}
