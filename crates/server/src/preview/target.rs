//! Target of a preview: a port of a sandbox.

/// Maximum length of a label of a DNS name.
const LABEL_MAX: usize = 63;

/// Port of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Target {
    /// Id of the sandbox. It need not exist.
    pub(crate) sandbox: String,
    /// Number of the port, not 0.
    pub(crate) port: u16,
}

impl Target {
    /// Parses id and port; `None` if they are not written as the server writes them.
    pub(crate) fn parse(sandbox: &str, port: &str) -> Option<Self> {
        let is_id = (1..=LABEL_MAX).contains(&sandbox.len())
            && sandbox.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'));
        let is_port = port.bytes().all(|byte| byte.is_ascii_digit()) && !port.starts_with('0');
        let port = port.parse().ok().filter(|_| is_id && is_port)?;
        Some(Self { sandbox: sandbox.to_owned(), port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_spelling_of_a_target_is_valid() {
        let target = Target::parse("sbx-1a", "65535").unwrap();
        assert_eq!((target.sandbox.as_str(), target.port), ("sbx-1a", 65_535));
        for (sandbox, port) in [
            ("sbx-1", "0"),
            ("sbx-1", "080"),
            ("sbx-1", "+80"),
            ("sbx-1", "65536"),
            ("sbx-1", ""),
            ("", "80"),
            ("SBX-1", "80"),
            ("../x", "80"),
            ("sbx_1", "80"),
            (&"a".repeat(64), "80"),
        ] {
            assert_eq!(Target::parse(sandbox, port), None, "{sandbox} {port}");
        }
    }
}
