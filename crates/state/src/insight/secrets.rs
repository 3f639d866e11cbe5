//! Detection of secrets in text.
//!
//! Tokens of known providers are recognised by their prefix and their characters. Other values are recognised only if
//! they are assigned to a name such as `password`, and are random enough (by their entropy). The secret itself is never
//! part of the result.

use serde::{Deserialize, Serialize};

/// Kind of secret that a text looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SecretPattern {
    /// The first line of a private key in PEM or PGP armour.
    PrivateKey,
    /// An AWS access key id.
    AwsAccessKey,
    /// A GitHub token.
    GithubToken,
    /// A GitLab token.
    GitlabToken,
    /// A Slack token.
    SlackToken,
    /// A key that starts with `sk-`, such as the keys of OpenAI and Anthropic.
    SkKey,
    /// A live Stripe key.
    StripeKey,
    /// A Google API key.
    GoogleApiKey,
    /// An npm token.
    NpmToken,
    /// A PyPI token.
    PypiToken,
    /// A Hugging Face token.
    HuggingFaceToken,
    /// A signed JSON web token.
    JsonWebToken,
    /// A random-looking value that is assigned to a name like `password`, `secret` or `token`.
    AssignedSecret,
}

/// Returns the patterns that `line` matches, each once.
pub(crate) fn find(line: &[u8]) -> Vec<SecretPattern> {
    let mut patterns = Vec::new();
    if contains(line, b"-----BEGIN ") && contains(line, b"PRIVATE KEY") {
        patterns.push(SecretPattern::PrivateKey);
    }
    patterns.extend(
        words(line).filter_map(|(offset, word)| known_token(word).or_else(|| web_token(line, offset, word))),
    );
    if patterns.is_empty() && has_assigned_secret(line) {
        patterns.push(SecretPattern::AssignedSecret);
    }
    patterns.sort_unstable();
    patterns.dedup();
    patterns
}

/// Returns true if `text` contains `part`.
fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// Returns true for bytes of a word: letters, digits, `_` and `-`.
fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

/// Iterates over the words of a line, with their offsets.
fn words(line: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut offset = 0;
    std::iter::from_fn(move || {
        offset += line[offset..].iter().position(|byte| is_word(*byte))?;
        let start = offset;
        offset += line[offset..].iter().take_while(|byte| is_word(**byte)).count();
        Some((start, &line[start..offset]))
    })
}

/// Format of the tokens of a provider.
struct TokenFormat {
    pattern: SecretPattern,
    prefix: &'static [u8],
    /// Minimum length after the prefix, in bytes.
    rest_min: usize,
    /// Returns true for bytes that may follow the prefix.
    alphabet: fn(u8) -> bool,
}

/// Creates a [`TokenFormat`].
const fn token_format(
    pattern: SecretPattern,
    prefix: &'static [u8],
    rest_min: usize,
    alphabet: fn(u8) -> bool,
) -> TokenFormat {
    TokenFormat { pattern, prefix, rest_min, alphabet }
}

fn is_alphanumeric(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
}

/// Returns true for upper-case letters and digits.
fn is_upper(byte: u8) -> bool {
    byte.is_ascii_uppercase() || byte.is_ascii_digit()
}

/// Formats of known tokens.
const TOKEN_FORMATS: [TokenFormat; 23] = [
    token_format(SecretPattern::AwsAccessKey, b"AKIA", 16, is_upper),
    token_format(SecretPattern::AwsAccessKey, b"ASIA", 16, is_upper),
    token_format(SecretPattern::GithubToken, b"ghp_", 36, is_alphanumeric),
    token_format(SecretPattern::GithubToken, b"gho_", 36, is_alphanumeric),
    token_format(SecretPattern::GithubToken, b"ghu_", 36, is_alphanumeric),
    token_format(SecretPattern::GithubToken, b"ghs_", 36, is_alphanumeric),
    token_format(SecretPattern::GithubToken, b"ghr_", 36, is_alphanumeric),
    token_format(SecretPattern::GithubToken, b"github_pat_", 22, is_word),
    token_format(SecretPattern::GitlabToken, b"glpat-", 20, is_word),
    token_format(SecretPattern::SlackToken, b"xoxa-", 10, is_word),
    token_format(SecretPattern::SlackToken, b"xoxb-", 10, is_word),
    token_format(SecretPattern::SlackToken, b"xoxe-", 10, is_word),
    token_format(SecretPattern::SlackToken, b"xoxp-", 10, is_word),
    token_format(SecretPattern::SlackToken, b"xoxr-", 10, is_word),
    token_format(SecretPattern::SlackToken, b"xoxs-", 10, is_word),
    token_format(SecretPattern::SkKey, b"sk-", 20, is_word),
    token_format(SecretPattern::StripeKey, b"sk_live_", 16, is_alphanumeric),
    token_format(SecretPattern::StripeKey, b"rk_live_", 16, is_alphanumeric),
    token_format(SecretPattern::GoogleApiKey, b"AIza", 35, is_word),
    token_format(SecretPattern::NpmToken, b"npm_", 36, is_alphanumeric),
    token_format(SecretPattern::PypiToken, b"pypi-", 50, is_word),
    token_format(SecretPattern::HuggingFaceToken, b"hf_", 30, is_alphanumeric),
    token_format(SecretPattern::GitlabToken, b"gldt-", 20, is_word),
];

/// Returns the pattern of a word that is a token of a known provider.
fn known_token(word: &[u8]) -> Option<SecretPattern> {
    TOKEN_FORMATS.iter().find_map(|format| {
        let rest = word.strip_prefix(format.prefix)?;
        let fits = rest.len() >= format.rest_min && rest.iter().all(|byte| (format.alphabet)(*byte));
        // An AWS access key id has a fixed length. A word without a digit is more likely a CSS class than a token.
        let fits = fits && (format.pattern != SecretPattern::AwsAccessKey || rest.len() == format.rest_min);
        (fits && rest.iter().any(u8::is_ascii_digit)).then_some(format.pattern)
    })
}

/// Recognises a signed JSON web token, `eyJ….eyJ….…`. `word` is its first part, at `offset`.
fn web_token(line: &[u8], offset: usize, word: &[u8]) -> Option<SecretPattern> {
    let rest = line[offset + word.len()..].strip_prefix(b".eyJ").filter(|_| word.starts_with(b"eyJ"))?;
    let end = rest.iter().position(|byte| !is_word(*byte))?;
    let signature = rest[end..].strip_prefix(b".")?;
    let signed = signature.iter().take_while(|byte| is_word(**byte)).count() >= 16;
    (signed && word.len() >= 16).then_some(SecretPattern::JsonWebToken)
}

/// Names of secret values, in lower case.
const SECRET_NAMES: [&[u8]; 12] = [
    b"password",
    b"passwd",
    b"passphrase",
    b"secret",
    b"token",
    b"apikey",
    b"api_key",
    b"api-key",
    b"access_key",
    b"private_key",
    b"credential",
    b"secretkey",
];
/// Maximum length in bytes of a name that is examined. With this limit and [`VALUE_MAX`], the cost of a hostile line is
/// linear in its length.
const NAME_MAX: usize = 64;
/// Maximum length in bytes of a value that is examined.
const VALUE_MAX: usize = 512;

/// Returns true if the line assigns a random-looking value to a name of a secret, with `=` or `:`.
fn has_assigned_secret(line: &[u8]) -> bool {
    line.iter().enumerate().any(|(offset, byte)| {
        matches!(byte, b'=' | b':')
            && names_a_secret(name_before(&line[..offset]))
            && assigns_secret(&line[offset..])
    })
}

/// Returns the name at the end of `text`, which is the line before an assignment.
fn name_before(text: &[u8]) -> &[u8] {
    let text = &text[text.len().saturating_sub(NAME_MAX + 8)..];
    let end = text.iter().rposition(|byte| !matches!(byte, b' ' | b'\t' | b'"' | b'\'' | b']' | b':'));
    let text = &text[..end.map_or(0, |end| end + 1)];
    let start = text.iter().rposition(|byte| !is_word(*byte) && *byte != b'.').map_or(0, |offset| offset + 1);
    &text[start..]
}

/// Returns true if the name contains one of [`SECRET_NAMES`] as a word. Accepts `apiToken` and `TOKEN_2`, but not
/// `tokenizer`.
fn names_a_secret(name: &[u8]) -> bool {
    let lower = name.to_ascii_lowercase();
    SECRET_NAMES.iter().any(|secret_name| {
        lower.windows(secret_name.len()).enumerate().any(|(offset, window)| {
            let end = offset + secret_name.len();
            let last = name[end - 1];
            window == *secret_name
                && name.get(end).is_none_or(|next| {
                    !next.is_ascii_alphabetic() || next.is_ascii_uppercase() != last.is_ascii_uppercase()
                })
        })
    })
}

/// Returns true if `text`, the line from `=` or `:` on, assigns a random-looking value.
fn assigns_secret(text: &[u8]) -> bool {
    let skipped = text.iter().take(16).take_while(|byte| matches!(byte, b'=' | b':' | b'>' | b' ' | b'\t'));
    let text = &text[skipped.count()..];
    let text = &text[..text.len().min(VALUE_MAX)];
    match text {
        [quote @ (b'"' | b'\'' | b'`'), rest @ ..] => {
            let value = rest.split(|byte| byte == quote).next().unwrap_or_default();
            looks_random(value, 16, 1, 3.0)
        }
        _ => {
            let len = text.iter().take_while(|byte| is_word(**byte) || b"+/=".contains(byte)).count();
            let is_delimited = text.get(len).is_none_or(|next| b" \t\r\n,;\"'".contains(next));
            is_delimited && looks_random(&text[..len], 20, 3, 3.5)
        }
    }
}

/// Returns true for a value of at least `len` bytes with at least `digits` digits, a letter, and an entropy of
/// at least `bits` bits per byte.
fn looks_random(value: &[u8], len: usize, digits: usize, bits: f64) -> bool {
    value.len() >= len
        && value.iter().all(|byte| is_word(*byte) || b"+/=.~!@#$%^&*".contains(byte))
        && value.iter().filter(|byte| byte.is_ascii_digit()).count() >= digits
        && value.iter().any(u8::is_ascii_alphabetic)
        && bits_per_byte(value) >= bits
}

/// Returns the Shannon entropy of the bytes.
fn bits_per_byte(value: &[u8]) -> f64 {
    let mut counts = [0u32; 256];
    for byte in value {
        counts[usize::from(*byte)] += 1;
    }
    let total = value.len() as f64;
    counts
        .iter()
        .filter(|count| **count > 0)
        .map(|count| f64::from(*count) / total)
        .map(|share| -share * share.log2())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a token. It is assembled here, so that secret scanners do not report this file.
    fn token(prefix: &str, len: usize) -> String {
        let body: String = "a1B2c3D4e5F6g7H8i9J0".chars().cycle().take(len).collect();
        format!("{prefix}{body}")
    }

    fn found(line: &str) -> Vec<SecretPattern> {
        find(line.as_bytes())
    }

    #[test]
    fn tokens_of_known_providers_are_found() {
        use SecretPattern::*;
        for (prefix, len, pattern) in [
            ("ghp_", 36, GithubToken),
            ("github_pat_", 40, GithubToken),
            ("glpat-", 20, GitlabToken),
            ("xoxb-", 24, SlackToken),
            ("sk-", 48, SkKey),
            ("sk-ant-api03-", 48, SkKey),
            ("sk_live_", 24, StripeKey),
            ("AIza", 35, GoogleApiKey),
            ("npm_", 36, NpmToken),
            ("pypi-AgE", 60, PypiToken),
            ("hf_", 34, HuggingFaceToken),
        ] {
            let token = token(prefix, len);
            assert_eq!(found(&format!("curl -H 'Authorization: Bearer {token}'\n")), [pattern], "{prefix}");
            assert_eq!(found(&format!("https://x:{token}@example.com")), [pattern], "{prefix}");
            assert_eq!(found(&token[..prefix.len() + 5]), [], "{prefix}");
        }
        assert_eq!(found(&format!("AKIA{}", "Q7".repeat(8))), [AwsAccessKey]);
        // The sample key in the documentation of AWS is found too.
        assert_eq!(found(&format!("AKIA{}", "IOSFODNN7EXAMPLE")), [AwsAccessKey]);
        assert_eq!(found(&format!("XAKIA{}", "Q7".repeat(8))), []);
        assert_eq!(found(&format!("AKIA{}", "Q7".repeat(9))), []);
    }

    #[test]
    fn keys_and_web_tokens_are_found() {
        for kind in ["", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED "] {
            assert_eq!(found(&format!("-----BEGIN {kind}PRIVATE KEY-----")), [SecretPattern::PrivateKey]);
        }
        assert_eq!(found("-----BEGIN PUBLIC KEY-----"), []);
        let part = token("eyJ", 30);
        assert_eq!(found(&format!("x {part}.{part}.{part}")), [SecretPattern::JsonWebToken]);
        assert_eq!(found(&format!("{part}.{part}")), []);
    }

    #[test]
    fn random_looking_values_of_secret_names_are_found() {
        let value = "kX9vQ2mZ7pL4wR8t";
        for line in [
            format!("password = \"{value}\""),
            format!("  \"client_secret\": \"{value}\","),
            format!("dbPassword: '{value}'"),
            format!("config['api_key'] = '{value}'"),
            format!("let apiToken = \"{value}\";"),
            format!(":password => \"{value}\""),
            format!("export API_TOKEN={value}{value}"),
        ] {
            assert_eq!(found(&line), [SecretPattern::AssignedSecret], "{line}");
        }
    }

    #[test]
    fn ordinary_text_is_not_a_secret() {
        for line in [
            "",
            "let token = parser.next_token();",
            "password: process.env.DATABASE_PASSWORD_1",
            "tokenizer_hash = \"kX9vQ2mZ7pL4wR8t\"",
            "password = \"changeme\"",
            "secret: \"aaaaaaaaaaaaaaaaaaaaaaaa1\"",
            "token_url: \"https://example.com/oauth2/token\"",
            "max_tokens = 1234567890123456789",
            "class=\"sk-fading-circle-animation-wrapper\"",
            "the secret of success = hard work, 10000 hours of it",
            "checksum = \"kX9vQ2mZ7pL4wR8tkX9vQ2mZ7pL4wR8t\"",
            "task-0123456789abcdefghijklmnop",
        ] {
            assert_eq!(found(line), [], "{line}");
        }
    }

    #[test]
    fn hostile_lines_are_searched_in_linear_time() {
        for unit in ["=", "token:", "token=\"", "eyJ.", "sk-", "a", "'", ":::"] {
            find(unit.repeat((1 << 17) / unit.len()).as_bytes());
        }
        find(&[0xff; 1 << 16]);
    }
}
