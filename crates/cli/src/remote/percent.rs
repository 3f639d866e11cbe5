//! Percent-encoding of paths and queries.

/// Percent-encodes a segment of a path or the value of a query parameter.
pub(crate) fn percent_encode(bytes: &[u8]) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let escape = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    bytes.iter().map(|byte| escape(*byte)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_but_unreserved_characters_are_encoded() {
        assert_eq!(percent_encode(b"a-Z_0.~/?&=+% \xff\0"), "a-Z_0.~%2F%3F%26%3D%2B%25%20%FF%00");
    }
}
