//! Signed URLs of files. They are verified by their signature, and not stored.
//!
//! A URL ends with `?expires=SECONDS&key=KEY_ID&maxBytes=N&signature=BASE64URL`. The signature covers method, sandbox,
//! path, maximum size, expiry and `KEY_ID`, the id of the API key of the caller that created the URL. No other
//! parameter is allowed, because it would not be signed.

use axum::http::{Method, Uri};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::Deserialize;
use workspace_api::access::{Right, SignedMethod};

use crate::signing_key::{SigningKey, SigningSecret};

/// Context of the signing key. Changing it makes all signed URLs invalid.
const CONTEXT: &str = "elevo-workspace signed URL v1";

/// Access that a signed URL gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SignedFile {
    pub(crate) method: SignedMethod,
    /// Id of the sandbox.
    pub(crate) sandbox: String,
    /// Path without the first slash, as in the route.
    pub(crate) path: String,
    /// Maximum size of an upload in bytes; `None` if the URL does not limit it.
    pub(crate) max_bytes: Option<u64>,
    /// Expiry in seconds since 1970.
    pub(crate) expires: i64,
    /// Id of the API key of the caller that created the URL.
    pub(crate) key_id: String,
}

impl SignedFile {
    /// Returns the right that a request needs.
    pub(crate) fn right(&self) -> Right {
        right(self.method)
    }

    /// Returns the signed bytes. Texts have their length in front, so that no two files have the same bytes.
    fn message(&self) -> Vec<u8> {
        let mut message = Vec::new();
        for text in [self.method.as_str(), &self.sandbox, &self.path, &self.key_id] {
            message.extend((text.len() as u64).to_be_bytes());
            message.extend(text.as_bytes());
        }
        message.extend(self.expires.to_be_bytes());
        message.push(u8::from(self.max_bytes.is_some()));
        message.extend(self.max_bytes.unwrap_or(0).to_be_bytes());
        message
    }
}

/// Returns the right that requests with a method need.
pub(crate) fn right(method: SignedMethod) -> Right {
    match method {
        SignedMethod::Get => Right::FilesRead,
        SignedMethod::Put => Right::FilesWrite,
    }
}

/// Query of a signed URL.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SignedQuery {
    expires: i64,
    key: String,
    max_bytes: Option<u64>,
    signature: String,
}

/// Signer and verifier of URLs.
#[derive(Debug, Clone)]
pub(crate) struct SignedUrls(SigningKey);

impl SignedUrls {
    /// Derives the key from the secret of the catalog, so that all servers of a catalog accept the same URLs.
    pub(crate) fn new(secret: &SigningSecret) -> Self {
        Self(SigningKey::derive(secret, CONTEXT))
    }

    /// Returns path and query of the URL of a file.
    pub(crate) fn sign(&self, file: &SignedFile) -> String {
        let signature = BASE64_URL_SAFE_NO_PAD.encode(self.0.sign(&file.message()));
        let max_bytes = file.max_bytes.map(|bytes| format!("&maxBytes={bytes}")).unwrap_or_default();
        let (sandbox, path) = (escape(&file.sandbox, b""), escape(&file.path, b"/"));
        let (expires, key) = (file.expires, escape(&file.key_id, b""));
        format!(
            "/api/v1/sandboxes/{sandbox}/files/{path}?expires={expires}&key={key}{max_bytes}&signature={signature}"
        )
    }

    /// Returns the access that the query of a request gives to a file; `None` if the signature is missing, wrong or
    /// expired at `now`, in milliseconds since 1970. The parameters of the path must be decoded.
    pub(crate) fn verify(
        &self,
        method: &Method,
        uri: &Uri,
        (sandbox, path): (&str, &str),
        now: i64,
    ) -> Option<SignedFile> {
        let method = match *method {
            Method::GET | Method::HEAD => SignedMethod::Get,
            Method::PUT => SignedMethod::Put,
            _ => return None,
        };
        let query = axum::extract::Query::<SignedQuery>::try_from_uri(uri).ok()?.0;
        let signature = BASE64_URL_SAFE_NO_PAD.decode(&query.signature).ok()?;
        let file = SignedFile {
            method,
            sandbox: sandbox.to_owned(),
            path: path.to_owned(),
            max_bytes: query.max_bytes,
            expires: query.expires,
            key_id: query.key,
        };
        let is_valid = self.0.verify(&file.message(), &signature) && now < file.expires.saturating_mul(1_000);
        is_valid.then_some(file)
    }
}

/// Percent-encodes a text, except letters, digits, `-._~` and the bytes in `plain`.
fn escape(text: &str, plain: &[u8]) -> String {
    let is_plain =
        |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || plain.contains(&byte);
    let escape =
        |byte: u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPIRES: i64 = 1_800_000_000;
    const PATH: &str = "workspace/a b/\u{e9}.txt";

    fn file() -> SignedFile {
        SignedFile {
            method: SignedMethod::Put,
            sandbox: "sbx-1".to_owned(),
            path: PATH.to_owned(),
            max_bytes: Some(10),
            expires: EXPIRES,
            key_id: "key-1".to_owned(),
        }
    }

    fn urls() -> SignedUrls {
        SignedUrls::new(&SigningSecret::for_test(1))
    }

    fn verify(url: &str, method: &Method, sandbox: &str, path: &str) -> Option<SignedFile> {
        let uri: Uri = url.parse().ok()?;
        urls().verify(method, &uri, (sandbox, path), EXPIRES * 1_000 - 1)
    }

    #[test]
    fn a_signed_url_is_valid_for_its_file_until_it_expires() {
        let url = urls().sign(&file());
        assert!(
            url.starts_with("/api/v1/sandboxes/sbx-1/files/workspace/a%20b/%C3%A9.txt?expires="),
            "{url}"
        );
        assert_eq!(verify(&url, &Method::PUT, "sbx-1", PATH), Some(file()));
        let uri: Uri = url.parse().unwrap();
        assert_eq!(urls().verify(&Method::PUT, &uri, ("sbx-1", PATH), EXPIRES * 1_000), None);
    }

    #[test]
    fn a_signed_url_is_invalid_for_anything_else() {
        let url = urls().sign(&file());
        for (method, sandbox, path) in [
            (Method::GET, "sbx-1", PATH),
            (Method::HEAD, "sbx-1", PATH),
            (Method::DELETE, "sbx-1", PATH),
            (Method::PUT, "sbx-2", PATH),
            (Method::PUT, "sbx-1", "workspace/other"),
            (Method::PUT, "sbx-1", ""),
        ] {
            assert_eq!(verify(&url, &method, sandbox, path), None, "{method} {sandbox} {path}");
        }
        let get = SignedFile { method: SignedMethod::Get, max_bytes: None, ..file() };
        let url = urls().sign(&get);
        assert!(!url.contains("maxBytes"), "{url}");
        assert_eq!(verify(&url, &Method::HEAD, "sbx-1", PATH), Some(get));
        assert_eq!(verify(&url, &Method::PUT, "sbx-1", PATH), None);
    }

    #[test]
    fn a_changed_query_is_invalid() {
        let url = urls().sign(&file());
        let start = url.find('?').unwrap() + 1;
        for at in start..url.len() {
            for other in *b"Aaz019-_" {
                let mut bytes = url.clone().into_bytes();
                if bytes[at] != other {
                    bytes[at] = other;
                    let changed = String::from_utf8(bytes).unwrap();
                    assert_eq!(verify(&changed, &Method::PUT, "sbx-1", PATH), None, "{changed}");
                }
            }
        }
        for (from, to) in [
            ("&maxBytes=10", ""),
            ("maxBytes=10", "maxBytes=11"),
            ("key=key-1", "key=key-2"),
            ("&signature", "&mode=755&signature"),
            ("&signature", "&archive=tar&signature"),
            ("?expires", "?expires=1&expires"),
        ] {
            let changed = url.replace(from, to);
            assert_ne!(changed, url);
            assert_eq!(verify(&changed, &Method::PUT, "sbx-1", PATH), None, "{changed}");
        }
        assert_eq!(verify(url.split('?').next().unwrap(), &Method::PUT, "sbx-1", PATH), None);
    }

    #[test]
    fn fields_cannot_be_moved_into_each_other() {
        let one = SignedFile { sandbox: "a".to_owned(), path: "bc".to_owned(), ..file() };
        let other = SignedFile { sandbox: "ab".to_owned(), path: "c".to_owned(), ..file() };
        assert_ne!(one.message(), other.message());
        let unlimited = SignedFile { max_bytes: None, ..file() };
        let nothing = SignedFile { max_bytes: Some(0), ..file() };
        assert_ne!(unlimited.message(), nothing.message());
    }

    #[test]
    fn a_signature_of_another_catalog_is_invalid() {
        let url = SignedUrls::new(&SigningSecret::for_test(2)).sign(&file());
        assert_eq!(verify(&url, &Method::PUT, "sbx-1", PATH), None);
    }
}
