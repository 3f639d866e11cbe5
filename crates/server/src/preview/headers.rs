//! Headers of requests to programs in sandboxes, and of their responses.

use std::net::IpAddr;

use axum::http::header::{
    ALT_SVC, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, COOKIE, EXPECT, FORWARDED,
    HOST, HeaderName, LOCATION, ORIGIN, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, REFERER, REFERRER_POLICY,
    SET_COOKIE, STRICT_TRANSPORT_SECURITY, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use axum::http::{HeaderMap, HeaderValue, Method, Version, request, response};
use workspace_api::previews::HostHeader;

use super::cookie;
use super::host::{HostKind, classify};
use super::query;
use super::target::Target;

/// Header with the token, for clients other than browsers.
pub(crate) const TOKEN: HeaderName = HeaderName::from_static("x-workspace-preview-token");
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const CLEAR_SITE_DATA: HeaderName = HeaderName::from_static("clear-site-data");
const SERVICE_WORKER_ALLOWED: HeaderName = HeaderName::from_static("service-worker-allowed");
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
const WEBSOCKET: HeaderValue = HeaderValue::from_static("websocket");

/// Headers that are about one connection, and are not forwarded (RFC 9110).
const HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];
/// Headers of responses that could change something for other pages of the API's host.
const HOST_WIDE: [HeaderName; 5] =
    [SET_COOKIE, CLEAR_SITE_DATA, SERVICE_WORKER_ALLOWED, ALT_SVC, STRICT_TRANSPORT_SECURITY];
/// Policy that gives pages an origin of their own, without access to anything else on the host of the API.
const SANDBOX_POLICY: HeaderValue = HeaderValue::from_static("sandbox allow-scripts allow-forms");

/// Form of the URL of a preview.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Form {
    Host,
    Path {
        /// Path up to the token, without a slash at its end.
        prefix: String,
    },
}

/// Client of a preview.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    /// Host to which the client sent the request.
    pub(crate) host: HeaderValue,
    pub(crate) address: Option<IpAddr>,
    pub(crate) is_tls: bool,
}

/// Returns true if a request asks for a WebSocket.
pub(crate) fn is_websocket(parts: &request::Parts) -> bool {
    let has = |name: HeaderName, word: &str| {
        let texts = parts.headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        texts.flat_map(|text| text.split(',')).any(|part| part.trim().eq_ignore_ascii_case(word))
    };
    parts.method == Method::GET
        && parts.version == Version::HTTP_11
        && has(UPGRADE, "websocket")
        && has(CONNECTION, "upgrade")
}

/// Returns true if a page of another host than the previews of this sandbox caused the request. Such a page must not use
/// the cookie of the preview.
pub(crate) fn is_foreign(headers: &HeaderMap, target: &Target, domain: &str) -> bool {
    let site = headers.get(SEC_FETCH_SITE).map(HeaderValue::as_bytes);
    if matches!(site, Some(b"same-origin" | b"none")) {
        return false;
    }
    // A browser names the origin in every request of a page that changes something.
    let Some(origin) = headers.get(ORIGIN) else { return false };
    let host = origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, host)| host);
    let is_own = |host: &str| match classify(host, domain) {
        HostKind::Preview(from) => from.sandbox == target.sandbox,
        HostKind::Api | HostKind::Malformed => false,
    };
    !host.is_some_and(is_own)
}

/// Changes the headers of a request for a program: without credentials and without headers about the connection.
pub(crate) fn prepare_request(
    headers: &mut HeaderMap,
    form: &Form,
    target: &Target,
    host_header: HostHeader,
    client: &Client,
) {
    let is_chunked = headers.contains_key(TRANSFER_ENCODING);
    remove_hop_by_hop(headers);
    for name in [TOKEN, EXPECT, FORWARDED, REAL_IP] {
        headers.remove(name);
    }
    let forwarded: Vec<HeaderName> =
        headers.keys().filter(|name| name.as_str().starts_with("x-forwarded-")).cloned().collect();
    for name in forwarded {
        headers.remove(name);
    }
    match form {
        // The host is that of the API, so its cookies and credentials are not meant for the program.
        Form::Path { .. } => {
            for name in [COOKIE, AUTHORIZATION, API_KEY, REFERER] {
                headers.remove(name);
            }
        }
        Form::Host => {
            cookie::remove_token(headers);
            remove_referer_with_token(headers);
        }
    }
    let localhost = HeaderValue::try_from(format!("localhost:{}", target.port));
    let host = match host_header {
        HostHeader::Localhost => localhost.unwrap_or_else(|_| client.host.clone()),
        HostHeader::Keep => client.host.clone(),
    };
    headers.insert(HOST, host);
    headers.insert(FORWARDED_HOST, client.host.clone());
    let scheme = if client.is_tls { "https" } else { "http" };
    headers.insert(FORWARDED_PROTO, HeaderValue::from_static(scheme));
    let address = client.address.and_then(|address| HeaderValue::try_from(address.to_string()).ok());
    if let Some(address) = address {
        headers.insert(FORWARDED_FOR, address);
    }
    // The header was removed with the others about the connection, but tells hyper to send a body of unknown length.
    if is_chunked {
        headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
}

/// Adds the headers that ask for a WebSocket, or accept one.
pub(crate) fn add_upgrade(headers: &mut HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, WEBSOCKET);
}

/// Changes the head of a response for a client.
pub(crate) fn prepare_response(parts: &mut response::Parts, method: &Method, form: &Form) {
    let headers = &mut parts.headers;
    let length = headers.get(CONTENT_LENGTH).cloned();
    let length = length.filter(|_| *method == Method::HEAD && !headers.contains_key(TRANSFER_ENCODING));
    remove_hop_by_hop(headers);
    // hyper adds the length of the body that it sends. Only a response to `HEAD` has another one.
    headers.remove(CONTENT_LENGTH);
    if let Some(length) = length.filter(|length| length.as_bytes().iter().all(u8::is_ascii_digit)) {
        headers.insert(CONTENT_LENGTH, length);
    }
    match form {
        Form::Host => {
            cookie::confine(headers);
            // The header would remove the cookies of other previews, too.
            headers.remove(CLEAR_SITE_DATA);
        }
        Form::Path { prefix } => {
            for name in HOST_WIDE {
                headers.remove(name);
            }
            headers.append(CONTENT_SECURITY_POLICY, SANDBOX_POLICY);
            headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
            prefix_location(headers, prefix);
        }
    }
    parts.version = Version::HTTP_11;
    parts.extensions.clear();
}

/// Keeps redirects of a program below the path of its preview.
fn prefix_location(headers: &mut HeaderMap, prefix: &str) {
    let Some(location) = headers.get(LOCATION).map(HeaderValue::as_bytes) else { return };
    let is_path = location.starts_with(b"/") && !matches!(location.get(1), Some(b'/' | b'\\'));
    if is_path && let Ok(changed) = HeaderValue::from_bytes(&[prefix.as_bytes(), location].concat()) {
        headers.insert(LOCATION, changed);
    }
}

/// Removes `Referer` if it is a URL with a token.
fn remove_referer_with_token(headers: &mut HeaderMap) {
    let has_token = |value: &HeaderValue| {
        value.as_bytes().windows(query::PARAMETER.len()).any(|part| part == query::PARAMETER.as_bytes())
    };
    if headers.get(REFERER).is_some_and(has_token) {
        headers.remove(REFERER);
    }
}

/// Removes the headers about a connection, also those that `Connection` names.
fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let texts = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named = texts.flat_map(|text| text.split(',')).filter_map(|name| name.trim().parse().ok());
    // These decide where a message goes and where it ends.
    let is_allowed = |name: &HeaderName| ![HOST, CONTENT_LENGTH].contains(name);
    let named: Vec<HeaderName> = named.filter(is_allowed).collect();
    for name in named.into_iter().chain(HOP_BY_HOP) {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{Request, Response};

    fn target() -> Target {
        Target { sandbox: "sbx-1".to_owned(), port: 3000 }
    }

    fn path_form() -> Form {
        Form::Path { prefix: "/preview/sbx-1/3000/@t".to_owned() }
    }

    fn map(headers: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_static(value));
        }
        map
    }

    fn prepared(sent: &[(&'static str, &'static str)], form: &Form, host_header: HostHeader) -> HeaderMap {
        let mut headers = map(sent);
        let client = Client {
            host: HeaderValue::from_static("3000-sbx-1.localhost:8080"),
            address: Some("10.0.0.7".parse().unwrap()),
            is_tls: true,
        };
        prepare_request(&mut headers, form, &target(), host_header, &client);
        headers
    }

    fn response(sent: &[(&'static str, &'static str)], method: &Method, form: &Form) -> HeaderMap {
        let (mut parts, ()) = Response::new(()).into_parts();
        (parts.headers, parts.version) = (map(sent), Version::HTTP_10);
        prepare_response(&mut parts, method, form);
        assert_eq!(parts.version, Version::HTTP_11);
        parts.headers
    }

    const SENT: &[(&str, &str)] = &[
        ("host", "evil"),
        ("connection", "close, X-Secret, host, content-length"),
        ("x-secret", "1"),
        ("keep-alive", "1"),
        ("te", "trailers"),
        ("upgrade", "h2c"),
        ("proxy-authorization", "x"),
        ("transfer-encoding", "chunked"),
        ("expect", "100-continue"),
        ("x-workspace-preview-token", "t"),
        ("x-forwarded-for", "1.2.3.4"),
        ("x-forwarded-for", "5.6.7.8"),
        ("x-forwarded-prefix", "/x"),
        ("forwarded", "for=1.2.3.4"),
        ("x-real-ip", "1.2.3.4"),
        ("cookie", "a=1; workspace_preview=t"),
        ("authorization", "Basic x"),
        ("referer", "http://x/?workspace_token=t"),
        ("accept", "*/*"),
    ];

    #[test]
    fn requests_lose_credentials_and_headers_about_the_connection() {
        let expected = [
            ("accept", "*/*"),
            ("authorization", "Basic x"),
            ("cookie", "a=1"),
            ("host", "3000-sbx-1.localhost:8080"),
            ("transfer-encoding", "chunked"),
            ("x-forwarded-for", "10.0.0.7"),
            ("x-forwarded-host", "3000-sbx-1.localhost:8080"),
            ("x-forwarded-proto", "https"),
        ];
        assert_eq!(prepared(SENT, &Form::Host, HostHeader::Keep), map(&expected));
        let without: Vec<_> =
            expected.into_iter().filter(|(name, _)| !["authorization", "cookie"].contains(name)).collect();
        assert_eq!(prepared(SENT, &path_form(), HostHeader::Keep), map(&without));
        let localhost = prepared(&[], &Form::Host, HostHeader::Localhost);
        assert_eq!(localhost["host"], "localhost:3000");
        assert_eq!(localhost["x-forwarded-host"], "3000-sbx-1.localhost:8080");
        let kept =
            prepared(&[("referer", "http://x/y"), ("content-length", "3")], &Form::Host, HostHeader::Keep);
        assert_eq!(
            (&kept["referer"], &kept["content-length"]),
            (&"http://x/y".parse().unwrap(), &"3".parse().unwrap())
        );
    }

    #[test]
    fn responses_of_the_path_form_are_sandboxed() {
        let sent = [
            ("set-cookie", "a=1"),
            ("clear-site-data", "\"*\""),
            ("service-worker-allowed", "/"),
            ("alt-svc", "h2=\":1\""),
            ("strict-transport-security", "max-age=1"),
            ("referrer-policy", "unsafe-url"),
            ("content-security-policy", "default-src *"),
            ("location", "/login"),
            ("connection", "content-security-policy"),
            ("content-type", "text/html"),
        ];
        let headers = response(&sent, &Method::GET, &path_form());
        let expected = [
            ("content-security-policy", "sandbox allow-scripts allow-forms"),
            ("content-type", "text/html"),
            ("location", "/preview/sbx-1/3000/@t/login"),
            ("referrer-policy", "no-referrer"),
        ];
        assert_eq!(headers, map(&expected));
        let own = response(&[("content-security-policy", "default-src *")], &Method::GET, &path_form());
        assert_eq!(own.get_all(CONTENT_SECURITY_POLICY).iter().count(), 2);
        for location in ["//evil.org/", "/\\evil.org", "https://evil.org/", "relative"] {
            let headers = response(&[("location", location)], &Method::GET, &path_form());
            assert_eq!(headers["location"], location);
        }
    }

    #[test]
    fn responses_of_the_host_form_keep_cookies_without_domain() {
        let sent =
            [("set-cookie", "a=1; Domain=localhost"), ("location", "/login"), ("clear-site-data", "\"*\"")];
        let headers = response(&sent, &Method::GET, &Form::Host);
        assert_eq!(headers, map(&[("set-cookie", "a=1"), ("location", "/login")]));
    }

    #[test]
    fn only_responses_to_head_keep_their_length() {
        let length = |sent: &[(&'static str, &'static str)], method: Method| {
            response(sent, &method, &Form::Host).get(CONTENT_LENGTH).map(|it| it.to_str().unwrap().to_owned())
        };
        assert_eq!(length(&[("content-length", "5")], Method::HEAD).as_deref(), Some("5"));
        assert_eq!(length(&[("content-length", "5")], Method::GET), None);
        assert_eq!(length(&[("content-length", "5, 5")], Method::HEAD), None);
        let both = [("content-length", "5"), ("transfer-encoding", "chunked")];
        assert_eq!(length(&both, Method::HEAD), None);
    }

    #[test]
    fn only_pages_of_the_same_sandbox_may_use_the_cookie() {
        let foreign =
            |headers: &[(&'static str, &'static str)]| is_foreign(&map(headers), &target(), "localhost");
        assert!(!foreign(&[]));
        assert!(!foreign(&[("origin", "http://3000-sbx-1.localhost:8080")]));
        assert!(!foreign(&[("origin", "http://5000-sbx-1.localhost")]));
        assert!(!foreign(&[("origin", "null"), ("sec-fetch-site", "same-origin")]));
        for origin in
            ["http://3000-sbx-2.localhost:8080", "http://localhost:8080", "null", "https://evil.org"]
        {
            assert!(foreign(&[("origin", origin)]), "{origin}");
            assert!(foreign(&[("origin", origin), ("sec-fetch-site", "same-site")]), "{origin}");
        }
    }

    #[test]
    fn only_websockets_are_upgrades() {
        let is = |method: Method, headers: &[(&'static str, &'static str)]| {
            let mut request = Request::new(());
            (*request.method_mut(), *request.headers_mut()) = (method, map(headers));
            is_websocket(&request.into_parts().0)
        };
        let asks = [("connection", "keep-alive, Upgrade"), ("upgrade", "WebSocket")];
        assert!(is(Method::GET, &asks));
        assert!(!is(Method::POST, &asks) && !is(Method::GET, &asks[..1]) && !is(Method::GET, &asks[1..]));
        assert!(!is(Method::GET, &[("connection", "upgrade"), ("upgrade", "h2c")]));
    }
}
