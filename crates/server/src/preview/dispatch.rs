//! Dispatch of the requests on the API's listener: to previews, by their host or path, and else to the router of the API.

use std::net::IpAddr;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{CACHE_CONTROL, CONNECTION, HOST, LOCATION, REFERRER_POLICY, SET_COOKIE};
use axum::http::uri::Authority;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use tower::ServiceExt as _;
use tracing::Instrument as _;
use workspace_api::error_codes;

use super::access::{PreviewAccess, unauthorized};
use super::headers::{self, Client, Form};
use super::host::{HostKind, classify};
use super::path::{self, PreviewPath};
use super::proxy::{Forward, forward};
use super::target::Target;
use super::{cookie, page, query};
use crate::ambiguous_length::Framing;
use crate::app::App;
use crate::body_with_permits::BodyWithPermits;
use crate::connections::Connection;
use crate::error::ApiError;
use crate::request;
use crate::request_id::Peer;

/// Maximum length of path and query in bytes.
const PATH_MAX: usize = 8 << 10;
/// Maximum size of all headers in bytes.
const HEADERS_MAX: usize = 32 << 10;
/// Header of a request for the script of a service worker.
const SERVICE_WORKER: HeaderName = HeaderName::from_static("service-worker");

/// Handler of all requests on the API's listener.
pub(crate) struct Dispatcher {
    app: App,
    router: Router,
}

/// Destination of a request.
#[derive(Debug, PartialEq, Eq)]
enum Route {
    Api,
    /// Preview in the host form; `None` if the host is below the domain of previews, but not valid.
    Host(Option<Target>),
    /// Preview in the path form.
    Path,
    /// No destination: the request is refused for this reason, because a proxy in front of the server may have sent it
    /// elsewhere.
    Ambiguous(&'static str),
}

impl Dispatcher {
    pub(crate) fn new(app: App, router: Router) -> Self {
        Self { app, router }
    }

    /// Handles the next request of a connection.
    pub(crate) async fn handle(&self, request: Request, framing: &Framing) -> Response {
        let is_ambiguous = framing.is_next_ambiguous();
        let route = if is_ambiguous {
            Route::Ambiguous("the request has both Content-Length and Transfer-Encoding")
        } else {
            route(&request, self.app.previews.domain())
        };
        match route {
            Route::Api => {
                let Ok(response) = self.router.clone().oneshot(request).await;
                response
            }
            route => serve(&self.app, route, request).await,
        }
    }
}

/// Decides where a request goes. `domain` is that of the host form, in lower case.
fn route(request: &Request, domain: Option<&str>) -> Route {
    let mut hosts = request.headers().get_all(HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return Route::Ambiguous("the request has two Host headers");
    }
    // A client that uses a proxy names the host in the request line, too.
    let authority = request.uri().authority().map(Authority::as_str);
    let is_other =
        |name: &str| host.is_some_and(|host| !host.as_bytes().eq_ignore_ascii_case(name.as_bytes()));
    if authority.is_some_and(is_other) {
        return Route::Ambiguous("the host in the request line is not that in the Host header");
    }
    let host = authority.or_else(|| host.and_then(|host| host.to_str().ok()));
    let kind = host.zip(domain).map_or(HostKind::Api, |(host, domain)| classify(host, domain));
    match kind {
        HostKind::Preview(target) => Route::Host(Some(target)),
        HostKind::Malformed => Route::Host(None),
        HostKind::Api if request.uri().path().starts_with(path::PREFIX) => Route::Path,
        HostKind::Api => Route::Api,
    }
}

/// Serves a request for a preview. Does for it what the middleware of the API (`request.rs`) does for its routes:
/// request id, log line, metrics, error body.
async fn serve(app: &App, route: Route, request: Request) -> Response {
    let began = Instant::now();
    // A shutdown waits only for the head of the response, because the body may be a stream without end.
    let _running = app.shutdown.enter();
    let connection = request.extensions().get::<Connection>().cloned();
    let guard = connection.as_ref().map(Connection::begin_request);
    let id = request::request_id(request.headers());
    // Paths may contain tokens, so they are in no log line.
    let endpoint = format!("{} (preview)", request::method_label(request.method()));
    let accepts_html = page::accepts_html(request.headers());
    let span = tracing::info_span!("request", request_id = id, owner = tracing::field::Empty);
    let handled = async { handle(app, route, request).await.unwrap_or_else(ApiError::into_response) };
    let response = request::catch_panic(handled).instrument(span.clone()).await;
    let _entered = span.enter();
    let mut response = request::render_error(response, &id);
    request::add_retry_after(&mut response);
    let response = page::finish(response, &id, accepts_html);
    request::record(app, &endpoint, &response, began.elapsed());
    // An unauthenticated connection counts as idle as soon as it has its response, even while the client reads it.
    let guard = guard.filter(|_| connection.is_some_and(|it| it.is_authenticated()));
    response.map(|body| Body::new(BodyWithPermits::new(body, guard)))
}

async fn handle(app: &App, route: Route, request: Request) -> Result<Response, ApiError> {
    let close = HeaderValue::from_static("close");
    if app.shutdown.has_begun() {
        let error = ApiError::new(error_codes::SHUTTING_DOWN, "the server is stopping");
        return Err(error.header(CONNECTION, close));
    }
    if let Route::Ambiguous(reason) = route {
        return Err(ApiError::new(error_codes::INVALID_REQUEST, reason).header(CONNECTION, close));
    }
    request::check_limits(&request, PATH_MAX, HEADERS_MAX)?;
    if matches!(*request.method(), Method::CONNECT | Method::TRACE) {
        return Err(ApiError::new(error_codes::METHOD_NOT_ALLOWED, "previews do not support that method"));
    }
    let address = request.extensions().get::<Peer>().map(|peer| peer.0);
    match route {
        Route::Host(Some(target)) => serve_host(app, &target, address, request).await,
        Route::Path => serve_path(app, address, request).await,
        // Only `Host(None)` gets here: `Api` is not for this function, and `Ambiguous` was refused above.
        Route::Host(None) | Route::Api | Route::Ambiguous(_) => Err(unauthorized(app, address, false)),
    }
}

/// Serves a request of the host form. A token in the query becomes a cookie, by a redirect. A token in the header or in
/// the query counts before cookies.
async fn serve_host(
    app: &App,
    target: &Target,
    address: Option<IpAddr>,
    request: Request,
) -> Result<Response, ApiError> {
    let (in_query, rest) = query::split_token(request.uri().query());
    let in_header = request.headers().get(headers::TOKEN).and_then(|value| value.to_str().ok());
    let uri = uri(request.uri().path(), rest.as_deref())?;
    let explicit: Vec<&str> = in_header.into_iter().chain(in_query).collect();
    let is_upgrade = request.headers().contains_key(header::UPGRADE);
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    if let Some(access) = PreviewAccess::verify(app, target, &explicit).await? {
        admit(&request, &access)?;
        return match in_query.filter(|_| in_header.is_none() && is_read && !is_upgrade) {
            Some(token) => redirect_with_cookie(app, &access, token, &uri),
            None => forward(app, to_forward(app, access, Form::Host, uri, address, request)).await,
        };
    }
    let cookies = cookie::tokens(request.headers());
    let was_sent = !explicit.is_empty() || !cookies.is_empty();
    let access = PreviewAccess::verify(app, target, &cookies).await?;
    let access = access.ok_or_else(|| unauthorized(app, address, was_sent))?;
    let changes = is_upgrade || !(is_read || request.method() == Method::OPTIONS);
    let domain = app.previews.domain().unwrap_or_default();
    // A browser sends the cookie with requests of other sites' pages, too (CSRF).
    if changes && headers::is_foreign(request.headers(), target, domain) {
        let message = "a page of another host sent this request; only pages of the same sandbox may";
        return Err(ApiError::new(error_codes::FORBIDDEN, message));
    }
    admit(&request, &access)?;
    forward(app, to_forward(app, access, Form::Host, uri, address, request)).await
}

/// Serves a request of the path form.
async fn serve_path(app: &App, address: Option<IpAddr>, request: Request) -> Result<Response, ApiError> {
    let parsed = PreviewPath::parse(request.uri().path());
    let Some(PreviewPath { target, token, prefix, rest }) = parsed else {
        return Err(unauthorized(app, address, false));
    };
    let access = PreviewAccess::verify(app, &target, &[token]).await?;
    let access = access.ok_or_else(|| unauthorized(app, address, true))?;
    admit(&request, &access)?;
    if request.headers().contains_key(SERVICE_WORKER) {
        let message = "previews on the host of the API have no service workers";
        return Err(ApiError::new(error_codes::FORBIDDEN, message));
    }
    let (_, other_parameters) = query::split_token(request.uri().query());
    let Some(rest) = rest else {
        // Relative links of the page start at the slash.
        let location = uri(&format!("{prefix}/"), other_parameters.as_deref())?;
        return redirect(StatusCode::TEMPORARY_REDIRECT, &location.to_string());
    };
    let uri = uri(rest, other_parameters.as_deref())?;
    let form = Form::Path { prefix: prefix.to_owned() };
    forward(app, to_forward(app, access, form, uri, address, request)).await
}

/// Counts the connection as one of the owner's. Fails if the owner has too many.
fn admit(request: &Request, access: &PreviewAccess) -> Result<(), ApiError> {
    let caller = &access.caller;
    tracing::Span::current().record("owner", caller.owner.as_str());
    let Some(connection) = request.extensions().get::<Connection>() else { return Ok(()) };
    let owner = (!caller.is_admin()).then_some(caller.owner.as_str());
    connection.set_authenticated(owner).map_err(|limit| {
        let message = format!("{limit} connections of the same owner have requests in progress; close some");
        ApiError::new(error_codes::CONNECTION_LIMIT_EXCEEDED, message)
            .detail("limit", limit)
            .header(CONNECTION, HeaderValue::from_static("close"))
    })
}

fn to_forward(
    app: &App,
    access: PreviewAccess,
    form: Form,
    uri: Uri,
    address: Option<IpAddr>,
    request: Request,
) -> Forward {
    let in_line = request.uri().authority().and_then(|name| HeaderValue::from_str(name.as_str()).ok());
    let host = in_line.or_else(|| request.headers().get(HOST).cloned());
    let host = host.unwrap_or_else(|| HeaderValue::from_static("localhost"));
    let client = Client { host, address, is_tls: app.settings.tls_cert.is_some() };
    Forward { access, form, client, uri, request }
}

/// Creates a URI of path and query.
fn uri(path: &str, query: Option<&str>) -> Result<Uri, ApiError> {
    let text = match query {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    let parsed = Uri::builder().path_and_query(text).build();
    parsed.map_err(|_| ApiError::new(error_codes::INVALID_REQUEST, "the path is not valid"))
}

/// Redirects to the same URL without the token, which becomes a cookie.
fn redirect_with_cookie(
    app: &App,
    access: &PreviewAccess,
    token: &str,
    uri: &Uri,
) -> Result<Response, ApiError> {
    let cookie = cookie::set_cookie(token, access.seconds_left(), app.settings.tls_cert.is_some());
    let mut response = redirect(StatusCode::SEE_OTHER, &same_host(&uri.to_string()))?;
    let cookie = HeaderValue::try_from(cookie).map_err(ApiError::internal)?;
    response.headers_mut().insert(SET_COOKIE, cookie);
    Ok(response)
}

/// Returns a location on the same host: browsers take `//name` and `/\name` for other hosts.
fn same_host(location: &str) -> String {
    let is_other = matches!(location.as_bytes().get(1), Some(b'/' | b'\\'));
    if is_other { format!("/.{location}") } else { location.to_owned() }
}

fn redirect(status: StatusCode, location: &str) -> Result<Response, ApiError> {
    let mut response = status.into_response();
    let location = HeaderValue::try_from(location).map_err(ApiError::internal)?;
    let headers = [
        (LOCATION, location),
        (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    response.headers_mut().extend(headers);
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(uri: &str, hosts: &[&str]) -> Request {
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = uri.parse().unwrap();
        for host in hosts {
            request.headers_mut().append(HOST, host.parse().unwrap());
        }
        request
    }

    fn preview() -> Route {
        Route::Host(Some(Target { sandbox: "sbx-1".to_owned(), port: 80 }))
    }

    const HOST_NAME: &str = "80-sbx-1.localhost:8080";

    #[test]
    fn the_host_decides_before_the_path() {
        let route = |uri: &str, hosts: &[&str]| route(&request(uri, hosts), Some("localhost"));
        for uri in ["/", "/api/v1/sandboxes", "/preview/sbx-1/80/@x/", "/health"] {
            assert_eq!(route(uri, &[HOST_NAME]), preview(), "{uri}");
        }
        assert_eq!(route("/api/v1/sandboxes", &["localhost:8080"]), Route::Api);
        assert_eq!(route("/preview/sbx-1/80/@x/", &["localhost:8080"]), Route::Path);
        assert_eq!(route("/previews", &["localhost:8080"]), Route::Api);
        assert_eq!(route("/health", &["a.80-sbx-1.localhost"]), Route::Host(None));
        assert_eq!(route("/health", &[]), Route::Api);
    }

    #[test]
    fn without_a_domain_there_is_only_the_path_form() {
        let route = |uri: &str| route(&request(uri, &[HOST_NAME]), None);
        assert_eq!(route("/health"), Route::Api);
        assert_eq!(route("/preview/"), Route::Path);
    }

    #[test]
    fn a_request_has_one_host() {
        let route = |uri: &str, hosts: &[&str]| route(&request(uri, hosts), Some("localhost"));
        for hosts in [[HOST_NAME, "localhost"], ["localhost", HOST_NAME], ["localhost", "localhost"]] {
            assert!(matches!(route("/", &hosts), Route::Ambiguous(_)), "{hosts:?}");
        }
        let in_line = format!("http://{HOST_NAME}/health");
        assert_eq!(route(&in_line, &[HOST_NAME]), preview());
        assert_eq!(route(&in_line, &[]), preview());
        assert!(matches!(route(&in_line, &["localhost:8080"]), Route::Ambiguous(_)));
        assert!(matches!(route("http://localhost/health", &[HOST_NAME]), Route::Ambiguous(_)));
    }

    #[test]
    fn a_redirect_stays_on_the_host() {
        for (location, expected) in [
            ("/", "/"),
            ("/a?b=c", "/a?b=c"),
            ("//evil.org/", "/.//evil.org/"),
            ("/\\evil.org", "/./\\evil.org"),
        ] {
            assert_eq!(same_host(location), expected);
        }
    }
}
