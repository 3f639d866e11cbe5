//! Signed texts, the common form of tokens: a prefix and, in base64url, a payload and its signature (32 bytes).

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

use crate::signing_key::SigningKey;

/// Maximum length of a text after its prefix. Ids and owners are far shorter.
const TEXT_MAX: usize = 4 << 10;

/// Signs a payload, and returns the text of both.
pub(crate) fn sign(prefix: &str, key: &SigningKey, mut payload: Vec<u8>) -> String {
    let signature = key.sign(&payload);
    payload.extend(signature);
    format!("{prefix}{}", BASE64_URL_SAFE_NO_PAD.encode(payload))
}

/// Returns the payload of a text; `None` if it was not signed with the key.
pub(crate) fn verify(prefix: &str, key: &SigningKey, text: &str) -> Option<Vec<u8>> {
    let encoded = text.strip_prefix(prefix).filter(|encoded| encoded.len() <= TEXT_MAX)?;
    let mut payload = BASE64_URL_SAFE_NO_PAD.decode(encoded).ok()?;
    let (message, signature) = payload.split_last_chunk::<{ blake3::OUT_LEN }>()?;
    if !key.verify(message, signature) {
        return None;
    }
    payload.truncate(payload.len() - blake3::OUT_LEN);
    Some(payload)
}

/// Appends a string to a payload: its length (2 bytes) and its bytes. Ids and owners have far less than 64 KiB.
pub(crate) fn push_string(payload: &mut Vec<u8>, text: &str) {
    let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
    payload.extend(length.to_be_bytes());
    payload.extend(&text.as_bytes()[..usize::from(length)]);
}

/// Reads a string at the start of a payload. Returns it with the rest of the bytes; `None` if there is none.
pub(crate) fn take_string(payload: &[u8]) -> Option<(String, &[u8])> {
    let (length, rest) = payload.split_first_chunk::<2>()?;
    let (text, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
    Some((String::from_utf8(text.to_vec()).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signing_key::SigningSecret;

    #[test]
    fn only_signed_texts_of_a_limited_length_are_accepted() {
        let key = SigningKey::derive(&SigningSecret::for_test(1), "a");
        let text = sign("x_", &key, b"payload".to_vec());
        assert_eq!(verify("x_", &key, &text).as_deref(), Some(&b"payload"[..]));
        assert_eq!(verify("y_", &key, &text), None);
        assert_eq!(verify("x_", &SigningKey::derive(&SigningSecret::for_test(1), "b"), &text), None);
        for damaged in ["", "x_", "x_AAAA", &text[..text.len() - 1], &format!("{text}A")] {
            assert_eq!(verify("x_", &key, damaged), None, "{damaged}");
        }
        assert_eq!(verify("x_", &key, &sign("x_", &key, vec![0; TEXT_MAX])), None);
    }

    #[test]
    fn strings_of_a_payload_round_trip() {
        let mut payload = Vec::new();
        push_string(&mut payload, "a\u{e4}");
        push_string(&mut payload, "");
        let (first, rest) = take_string(&payload).unwrap();
        assert_eq!((first.as_str(), take_string(rest)), ("a\u{e4}", Some((String::new(), &[][..]))));
        for cut in 0..payload.len() - 2 {
            assert!(take_string(&payload[..cut]).is_none_or(|(text, _)| text == "a\u{e4}"), "{cut}");
        }
        assert_eq!(take_string(&[0, 1, 0xff]), None);
    }
}
