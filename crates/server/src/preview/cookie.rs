//! Cookies of previews: the one with the token, and those of the programs in sandboxes.

use axum::http::header::{COOKIE, SET_COOKIE};
use axum::http::{HeaderMap, HeaderName, HeaderValue};

/// Name of the cookie with the token.
const NAME: &str = "workspace_preview";
/// Maximum number of cookies of that name that are tried. A browser sends several if a page set others.
const CANDIDATES_MAX: usize = 8;

/// Returns the header that sets the cookie of a preview. `seconds` is its lifetime.
pub(crate) fn set_cookie(token: &str, seconds: i64, is_tls: bool) -> String {
    let secure = if is_tls { "; Secure" } else { "" };
    format!("{NAME}={token}; Max-Age={seconds}; Path=/; HttpOnly; SameSite=Lax{secure}")
}

/// Returns the tokens in the cookies of a request.
pub(crate) fn tokens(headers: &HeaderMap) -> Vec<&str> {
    let texts = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = texts.flat_map(|text| text.split(';')).filter_map(|pair| pair.split_once('='));
    let values = pairs.filter(|(name, _)| name.trim() == NAME).map(|(_, value)| value.trim());
    values.take(CANDIDATES_MAX).collect()
}

/// Removes the cookie of the preview from a request, and keeps those of the program.
pub(crate) fn remove_token(headers: &mut HeaderMap) {
    let is_of_program = |pair: &[u8]| name(pair) != NAME.as_bytes();
    rewrite(headers, &COOKIE, |value| {
        let kept: Vec<&[u8]> = value.split(|byte| *byte == b';').filter(|pair| is_of_program(pair)).collect();
        Some(kept.join(&b';')).filter(|kept| !kept.trim_ascii().is_empty())
    });
}

/// Removes `Domain` from the cookies that a program sets, so that they stay on the host of its preview. Removes cookies
/// with the name of the token.
pub(crate) fn confine(headers: &mut HeaderMap) {
    rewrite(headers, &SET_COOKIE, |value| {
        let mut parts = value.split(|byte| *byte == b';');
        let pair = parts.next().filter(|pair| name(pair) != NAME.as_bytes())?;
        let attributes = parts.filter(|attribute| !name(attribute).eq_ignore_ascii_case(b"domain"));
        Some(std::iter::once(pair).chain(attributes).collect::<Vec<_>>().join(&b';'))
    });
}

/// Returns the name of a cookie or of its attribute: the part before `=`, without spaces.
fn name(pair: &[u8]) -> &[u8] {
    pair.split(|byte| *byte == b'=').next().unwrap_or_default().trim_ascii()
}

/// Replaces all values of a header. `change` returns `None` to remove a value.
fn rewrite(headers: &mut HeaderMap, header: &HeaderName, change: impl Fn(&[u8]) -> Option<Vec<u8>>) {
    let changed: Vec<HeaderValue> = headers
        .get_all(header)
        .iter()
        .filter_map(|value| HeaderValue::from_bytes(change(value.as_bytes())?.trim_ascii()).ok())
        .collect();
    headers.remove(header);
    for value in changed {
        headers.append(header.clone(), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &HeaderName, values: &[&'static str]) -> HeaderMap {
        let values = values.iter().map(|value| (name.clone(), HeaderValue::from_static(value)));
        let mut headers = HeaderMap::new();
        values.for_each(|(name, value)| _ = headers.append(name, value));
        headers
    }

    fn values(headers: &HeaderMap, name: HeaderName) -> Vec<&str> {
        headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect()
    }

    #[test]
    fn the_program_gets_its_own_cookies_without_the_token() {
        for (sent, tokens_found, kept) in [
            ("workspace_preview=t", vec!["t"], vec![]),
            ("a=1; workspace_preview=t; b=2", vec!["t"], vec!["a=1; b=2"]),
            ("workspace_preview=t; a=1", vec!["t"], vec!["a=1"]),
            ("a=workspace_preview=t", vec![], vec!["a=workspace_preview=t"]),
            ("workspace_preview=t;workspace_preview = u ;x", vec!["t", "u"], vec!["x"]),
            ("xworkspace_preview=t", vec![], vec!["xworkspace_preview=t"]),
        ] {
            let mut headers = headers(&COOKIE, &[sent]);
            assert_eq!(tokens(&headers), tokens_found, "{sent}");
            remove_token(&mut headers);
            assert_eq!(values(&headers, COOKIE), kept, "{sent}");
        }
        let many = "workspace_preview=t;".repeat(100);
        let mut headers = HeaderMap::new();
        headers.insert(COOKIE, many.parse().unwrap());
        assert_eq!(tokens(&headers).len(), CANDIDATES_MAX);
    }

    #[test]
    fn cookies_of_the_program_lose_their_domain() {
        let mut headers = headers(
            &SET_COOKIE,
            &[
                "a=1; Domain=example.org; Path=/",
                "b=domain=x; DOMAIN = .localhost;Secure",
                "c=3; Path=/; HttpOnly",
                "workspace_preview=stolen; Path=/",
                " workspace_preview =x",
            ],
        );
        confine(&mut headers);
        assert_eq!(
            values(&headers, SET_COOKIE),
            ["a=1; Path=/", "b=domain=x;Secure", "c=3; Path=/; HttpOnly"]
        );
    }

    #[test]
    fn the_cookie_is_secure_over_tls_only() {
        assert_eq!(
            set_cookie("t", 60, true),
            "workspace_preview=t; Max-Age=60; Path=/; HttpOnly; SameSite=Lax; Secure"
        );
        assert!(!set_cookie("t", 60, false).contains("Secure"));
    }
}
