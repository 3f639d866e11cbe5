//! Sandbox tokens: their text. They are signed, and not stored.
//!
//! A token is `wst_` and, in base64url, its payload and the signature of the payload (32 bytes). Payload, in big-endian
//! order: version (1 byte, 1), rights (1 byte, see `rights.rs`), expiry in milliseconds since 1970 (8 bytes), then key
//! id, owner of the sandbox (empty for the owner of the key) and sandbox id, each as its length (2 bytes) and UTF-8.

use crate::rights::Rights;
use crate::signed_text::{self, push_string, take_string};
use crate::signing_key::{SigningKey, SigningSecret};

/// First characters of every token. A credential with them is not looked up as a key.
pub(crate) const PREFIX: &str = "wst_";
const VERSION: u8 = 1;
/// Context of the signing key. Changing it makes all tokens invalid.
const CONTEXT: &str = "elevo-workspace sandbox token v1";

/// Content of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    /// Id of the key that created it.
    pub(crate) key_id: String,
    /// Owner of the sandbox; `None` if that is the owner of the key.
    pub(crate) sandbox_owner: Option<String>,
    /// Id of the sandbox.
    pub(crate) sandbox: String,
    pub(crate) rights: Rights,
    /// Expiry in milliseconds since 1970.
    pub(crate) expires_at: i64,
}

/// Encoder and verifier of tokens.
#[derive(Debug, Clone)]
pub(crate) struct Tokens(SigningKey);

impl Tokens {
    pub(crate) fn new(secret: &SigningSecret) -> Self {
        Self(SigningKey::derive(secret, CONTEXT))
    }

    /// Returns the text of a token.
    pub(crate) fn encode(&self, token: &Token) -> String {
        let mut bytes = vec![VERSION, token.rights.bits()];
        bytes.extend(token.expires_at.to_be_bytes());
        push_string(&mut bytes, &token.key_id);
        push_string(&mut bytes, token.sandbox_owner.as_deref().unwrap_or_default());
        push_string(&mut bytes, &token.sandbox);
        signed_text::sign(PREFIX, &self.0, bytes)
    }

    /// Returns the content of a token; `None` if this text is no token of this catalog, or has expired at `now`, in
    /// milliseconds since 1970.
    pub(crate) fn verify(&self, text: &str, now: i64) -> Option<Token> {
        decode(&signed_text::verify(PREFIX, &self.0, text)?).filter(|token| now < token.expires_at)
    }
}

fn decode(payload: &[u8]) -> Option<Token> {
    let (&[version, rights], rest) = payload.split_first_chunk::<2>()?;
    let (expires_at, rest) = rest.split_first_chunk::<8>()?;
    let (key_id, rest) = take_string(rest)?;
    let (owner, rest) = take_string(rest)?;
    let (sandbox, rest) = take_string(rest)?;
    if version != VERSION || !rest.is_empty() {
        return None;
    }
    Some(Token {
        key_id,
        sandbox_owner: Some(owner).filter(|owner| !owner.is_empty()),
        sandbox,
        rights: Rights::from_bits(rights)?,
        expires_at: i64::from_be_bytes(*expires_at),
    })
}

#[cfg(test)]
mod tests {
    use workspace_api::access::Right;

    use base64::Engine as _;
    use base64::prelude::BASE64_URL_SAFE_NO_PAD;

    use super::*;

    const EXPIRY: i64 = 1_800_000_000_000;

    fn token() -> Token {
        Token {
            key_id: "key-1".to_owned(),
            sandbox_owner: None,
            sandbox: "sbx-1".to_owned(),
            rights: [Right::Process, Right::Terminal].into_iter().collect(),
            expires_at: EXPIRY,
        }
    }

    #[test]
    fn a_token_is_valid_until_it_expires() {
        let tokens = Tokens::new(&SigningSecret::for_test(1));
        for owner in [None, Some("alice".to_owned()), Some("\u{1f980}".to_owned())] {
            let token = Token { sandbox_owner: owner, ..token() };
            let text = tokens.encode(&token);
            assert_eq!(tokens.verify(&text, EXPIRY - 1), Some(token));
            assert_eq!(tokens.verify(&text, EXPIRY), None);
        }
    }

    #[test]
    fn the_payload_has_a_fixed_layout() {
        let text = Tokens::new(&SigningSecret::for_test(1)).encode(&token());
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text.strip_prefix("wst_").unwrap()).unwrap();
        let payload = b"\x01\x0c\x00\x00\x01\xa3\x18\x5c\x50\x00\x00\x05key-1\x00\x00\x00\x05sbx-1";
        assert_eq!(&bytes[..bytes.len() - 32], payload);
    }

    #[test]
    fn a_token_with_another_character_is_invalid() {
        let tokens = Tokens::new(&SigningSecret::for_test(1));
        let text = tokens.encode(&token());
        for at in 0..text.len() {
            for other in *b"Aaz09-_=.+/ \0" {
                let mut bytes = text.clone().into_bytes();
                if bytes[at] != other {
                    bytes[at] = other;
                    let changed = String::from_utf8(bytes).unwrap();
                    assert_eq!(tokens.verify(&changed, 0), None, "{changed}");
                }
            }
            assert_eq!(tokens.verify(&text[..at], 0), None, "cut at {at}");
        }
        for more in ["A", "AA", "AAAA", "=", " "] {
            assert_eq!(tokens.verify(&format!("{text}{more}"), 0), None, "{more}");
        }
    }

    #[test]
    fn every_byte_of_payload_and_signature_counts() {
        let tokens = Tokens::new(&SigningSecret::for_test(1));
        let text = tokens.encode(&token());
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text.strip_prefix(PREFIX).unwrap()).unwrap();
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                let changed = format!("{PREFIX}{}", BASE64_URL_SAFE_NO_PAD.encode(changed));
                assert_eq!(tokens.verify(&changed, 0), None, "byte {at}, bit {bit}");
            }
        }
    }

    #[test]
    fn tokens_of_another_catalog_and_other_texts_are_invalid() {
        let tokens = Tokens::new(&SigningSecret::for_test(1));
        let foreign = Tokens::new(&SigningSecret::for_test(2)).encode(&token());
        for text in [foreign.as_str(), "", "wst_", "wst_AAAA", "wsk-0123456789"] {
            assert_eq!(tokens.verify(text, 0), None, "{text}");
        }
    }

    #[test]
    fn a_signed_payload_of_another_version_or_with_an_unknown_right_is_invalid() {
        let tokens = Tokens::new(&SigningSecret::for_test(1));
        let sign = |payload: &[u8]| {
            let signed = [payload, &tokens.0.sign(payload)[..]].concat();
            format!("{PREFIX}{}", BASE64_URL_SAFE_NO_PAD.encode(signed))
        };
        let text = tokens.encode(&token());
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text.strip_prefix(PREFIX).unwrap()).unwrap();
        let payload = &bytes[..bytes.len() - 32];
        assert!(tokens.verify(&sign(payload), 0).is_some());
        for (at, byte) in [(0, 2), (1, 0x80), (11, 6), (11, 200)] {
            let mut changed = payload.to_vec();
            changed[at] = byte;
            assert_eq!(tokens.verify(&sign(&changed), 0), None, "byte {at} = {byte}");
        }
        for cut in 0..payload.len() {
            assert_eq!(tokens.verify(&sign(&payload[..cut]), 0), None, "cut at {cut}");
        }
        assert_eq!(tokens.verify(&sign(&[payload, b"x"].concat()), 0), None);
    }
}
