//! Preview tokens: their text. They are signed, and not stored.
//!
//! A token is `wsp_` and, in base64url, its payload and a BLAKE3 keyed hash of the payload (32 bytes). Payload, in
//! big-endian order: version (1 byte, 1), options (1 byte, 1 for `Host: localhost`), port (2 bytes), expiry in
//! milliseconds since 1970 (8 bytes), then key id and sandbox id, each as its length (2 bytes) and UTF-8.
//!
//! The key of the hash is derived from the secret in the catalog (`signing_key.rs`), so all servers of a catalog accept the
//! same tokens.

use workspace_api::previews::HostHeader;

use super::target::Target;
use crate::signed_text::{self, push_string, take_string};
use crate::signing_key::{SigningKey, SigningSecret};

const PREFIX: &str = "wsp_";
const VERSION: u8 = 1;
/// Bit of the options: the program gets `Host: localhost`.
const LOCALHOST_BIT: u8 = 1;
/// Context from which the signing key is derived. Changing it makes all tokens invalid.
const CONTEXT: &str = "elevo-workspace preview token v1";

/// Content of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PreviewToken {
    /// Id of the key that created it.
    pub(crate) key_id: String,
    pub(crate) target: Target,
    pub(crate) host_header: HostHeader,
    /// Expiry in milliseconds since 1970.
    pub(crate) expires_at: i64,
}

/// Encoder and verifier of tokens.
#[derive(Debug, Clone)]
pub(crate) struct PreviewTokens(SigningKey);

impl PreviewTokens {
    pub(crate) fn new(secret: &SigningSecret) -> Self {
        Self(SigningKey::derive(secret, CONTEXT))
    }

    /// Returns the text of a token.
    pub(crate) fn encode(&self, token: &PreviewToken) -> String {
        let options = match token.host_header {
            HostHeader::Keep => 0,
            HostHeader::Localhost => LOCALHOST_BIT,
        };
        let mut bytes = vec![VERSION, options];
        bytes.extend(token.target.port.to_be_bytes());
        bytes.extend(token.expires_at.to_be_bytes());
        push_string(&mut bytes, &token.key_id);
        push_string(&mut bytes, &token.target.sandbox);
        signed_text::sign(PREFIX, &self.0, bytes)
    }

    /// Returns the content of a token; `None` if this text is no token of this catalog for this target, or has expired
    /// at `now`, in milliseconds since 1970.
    pub(crate) fn verify(&self, text: &str, target: &Target, now: i64) -> Option<PreviewToken> {
        decode(&signed_text::verify(PREFIX, &self.0, text)?)
            .filter(|token| now < token.expires_at && token.target == *target)
    }
}

fn decode(payload: &[u8]) -> Option<PreviewToken> {
    let (&[version, options], rest) = payload.split_first_chunk::<2>()?;
    let (port, rest) = rest.split_first_chunk::<2>()?;
    let (expires_at, rest) = rest.split_first_chunk::<8>()?;
    let (key_id, rest) = take_string(rest)?;
    let (sandbox, rest) = take_string(rest)?;
    let host_header = match options {
        0 => HostHeader::Keep,
        LOCALHOST_BIT => HostHeader::Localhost,
        _ => return None,
    };
    let target = Target { sandbox, port: u16::from_be_bytes(*port) };
    let expires_at = i64::from_be_bytes(*expires_at);
    let is_valid = version == VERSION && rest.is_empty();
    is_valid.then_some(PreviewToken { key_id, target, host_header, expires_at })
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::prelude::BASE64_URL_SAFE_NO_PAD;

    use super::*;

    const EXPIRY: i64 = 1_800_000_000_000;

    fn target() -> Target {
        Target { sandbox: "sbx-1".to_owned(), port: 8080 }
    }

    fn token() -> PreviewToken {
        PreviewToken {
            key_id: "key-1".to_owned(),
            target: target(),
            host_header: HostHeader::Keep,
            expires_at: EXPIRY,
        }
    }

    #[test]
    fn a_token_is_valid_for_its_target_until_it_expires() {
        let tokens = PreviewTokens::new(&SigningSecret::for_test(1));
        for host_header in [HostHeader::Keep, HostHeader::Localhost] {
            let token = PreviewToken { host_header, ..token() };
            let text = tokens.encode(&token);
            assert_eq!(tokens.verify(&text, &target(), EXPIRY - 1), Some(token));
            assert_eq!(tokens.verify(&text, &target(), EXPIRY), None);
            assert_eq!(tokens.verify(&text, &Target { port: 8081, ..target() }, 0), None);
            assert_eq!(tokens.verify(&text, &Target { sandbox: "sbx-2".to_owned(), port: 8080 }, 0), None);
        }
    }

    #[test]
    fn the_payload_has_a_fixed_layout() {
        let text = PreviewTokens::new(&SigningSecret::for_test(1))
            .encode(&PreviewToken { host_header: HostHeader::Localhost, ..token() });
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text.strip_prefix("wsp_").unwrap()).unwrap();
        let payload = b"\x01\x01\x1f\x90\x00\x00\x01\xa3\x18\x5c\x50\x00\x00\x05key-1\x00\x05sbx-1";
        assert_eq!(&bytes[..bytes.len() - 32], payload);
    }

    #[test]
    fn every_bit_of_payload_and_signature_counts() {
        let tokens = PreviewTokens::new(&SigningSecret::for_test(1));
        let text = tokens.encode(&token());
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text.strip_prefix(PREFIX).unwrap()).unwrap();
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                let changed = format!("{PREFIX}{}", BASE64_URL_SAFE_NO_PAD.encode(changed));
                assert_eq!(tokens.verify(&changed, &target(), 0), None, "byte {at}, bit {bit}");
            }
            let cut = format!("{PREFIX}{}", BASE64_URL_SAFE_NO_PAD.encode(&bytes[..at]));
            assert_eq!(tokens.verify(&cut, &target(), 0), None, "cut at {at}");
        }
        for text in
            [&format!("{text}A"), &format!("{text}="), "", "wsp_", "wsp_AAAA", "wst_AAAA", &"x".repeat(4096)]
        {
            assert_eq!(tokens.verify(text, &target(), 0), None, "{text}");
        }
    }

    #[test]
    fn signatures_of_another_secret_or_context_are_invalid() {
        let tokens = PreviewTokens::new(&SigningSecret::for_test(1));
        let another = PreviewTokens::new(&SigningSecret::for_test(2)).encode(&token());
        let other_context =
            PreviewTokens(SigningKey::derive(&SigningSecret::for_test(1), "another")).encode(&token());
        for text in [another, other_context] {
            assert_eq!(tokens.verify(&text, &target(), 0), None);
        }
    }
}
