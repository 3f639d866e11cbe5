//! Ids and tokens.

use uuid::Uuid;

/// Makes a unique id: the prefix, `-`, and a UUIDv7. Later ids sort after earlier ones.
pub(crate) fn new(prefix: &str) -> String {
    format!("{prefix}-{}", Uuid::now_v7().simple())
}

/// Secret token by which a guest agent authenticates.
#[derive(Clone)]
pub(crate) struct Token([u8; 32]);

impl Token {
    pub(crate) fn new() -> std::io::Result<Self> {
        let mut bytes = [0; 32];
        fill_random(&mut bytes)?;
        Ok(Self(bytes))
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn hash(&self) -> String {
        hash(&self.0).to_hex().to_string()
    }
}

#[cfg(target_os = "linux")]
fn fill_random(bytes: &mut [u8]) -> std::io::Result<()> {
    use rustix::rand::{GetRandomFlags, getrandom};
    let mut filled = 0;
    while filled < bytes.len() {
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())?;
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn fill_random(bytes: &mut [u8]) -> std::io::Result<()> {
    use std::io::Read as _;
    std::fs::File::open("/dev/urandom")?.read_exact(bytes)
}

/// Hides the token.
impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

/// Hash that no token has: compared where there is no sandbox, so that the comparison takes the same time.
pub(crate) const NO_TOKEN_HASH: &str = "0000000000000000000000000000000000000000000000000000000000000000";

fn hash(token: &[u8]) -> blake3::Hash {
    blake3::hash(token)
}

/// Compares a token with a hash, in constant time.
pub(crate) fn is_token_of(token: &[u8], hash_text: &str) -> bool {
    blake3::Hash::from_hex(hash_text).is_ok_and(|expected| expected == hash(token))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_sort_by_creation_time() {
        let (first, second) = (new("sbx"), new("sbx"));
        assert!(first.starts_with("sbx-") && first < second);
    }

    #[test]
    fn token_matches_only_its_own_hash() {
        let (one, other) = (Token::new().unwrap(), Token::new().unwrap());
        assert!(is_token_of(one.as_bytes(), &one.hash()));
        assert!(!is_token_of(one.as_bytes(), &other.hash()));
        assert!(!is_token_of(b"", &one.hash()) && !is_token_of(b"", NO_TOKEN_HASH));
        assert!(!is_token_of(one.as_bytes(), "no hash"));
        assert_eq!(format!("{one:?}"), "Token");
    }
}
