//! Names and secrets.

use uuid::Uuid;

/// A new name: the word, and what no other has. Names made later sort later.
pub(crate) fn new(word: &str) -> String {
    format!("{word}-{}", Uuid::now_v7().simple())
}

/// What a guest agent proves itself with.
#[derive(Clone)]
pub(crate) struct Token([u8; 32]);

impl Token {
    pub(crate) fn new() -> std::io::Result<Self> {
        let mut bytes = [0; 32];
        fill(&mut bytes)?;
        Ok(Self(bytes))
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// What is kept of it.
    pub(crate) fn hash(&self) -> String {
        hash(&self.0).to_hex().to_string()
    }
}

#[cfg(target_os = "linux")]
fn fill(bytes: &mut [u8]) -> std::io::Result<()> {
    use rustix::rand::{GetRandomFlags, getrandom};
    let mut filled = 0;
    while filled < bytes.len() {
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())?;
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn fill(bytes: &mut [u8]) -> std::io::Result<()> {
    use std::io::Read as _;
    std::fs::File::open("/dev/urandom")?.read_exact(bytes)
}

/// Never shown.
impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

/// The hash of no token: compared where there is none to compare with, so that this takes as long.
pub(crate) const NOBODYS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

fn hash(token: &[u8]) -> blake3::Hash {
    blake3::hash(token)
}

/// Whether a token is the one of that hash. Takes as long whichever it is: hashes of this kind compare so.
pub(crate) fn is_token_of(token: &[u8], hash_text: &str) -> bool {
    blake3::Hash::from_hex(hash_text).is_ok_and(|expected| expected == hash(token))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_sort_by_the_time_they_were_made() {
        let (first, second) = (new("sbx"), new("sbx"));
        assert!(first.starts_with("sbx-") && first < second);
    }

    #[test]
    fn a_token_fits_its_own_hash_only() {
        let (one, other) = (Token::new().unwrap(), Token::new().unwrap());
        assert!(is_token_of(one.as_bytes(), &one.hash()));
        assert!(!is_token_of(one.as_bytes(), &other.hash()));
        assert!(!is_token_of(b"", &one.hash()) && !is_token_of(b"", NOBODYS));
        assert!(!is_token_of(one.as_bytes(), "no hash"));
        assert_eq!(format!("{one:?}"), "Token");
    }
}
