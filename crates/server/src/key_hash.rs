//! Hashes of API keys.

/// Returns the hash under which a key is stored.
pub fn hash(key: &str) -> String {
    blake3::hash(key.as_bytes()).to_hex().to_string()
}

/// Returns the part of a key's hash that is logged.
pub(crate) fn short(hash: &str) -> String {
    hash.chars().take(16).collect()
}
