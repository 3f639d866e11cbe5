//! Files of Swagger UI, embedded in the program compressed. `pages/swagger-ui/README.md` names their origin.

use std::io::Read as _;
use std::sync::OnceLock;

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use flate2::read::GzDecoder;

use super::text_file::{CSS, JAVASCRIPT, text_file};
use crate::app::App;
use crate::error::ApiError;

/// Time that browsers cache the files. They change only with the version of the server.
const CACHE_CONTROL: &str = "public, max-age=3600";
const TEXT: &str = "text/plain; charset=utf-8";

static BUNDLE: Asset = Asset::new(JAVASCRIPT, include_bytes!("swagger-ui/swagger-ui-bundle.js.gz"));
static STYLE: Asset = Asset::new(CSS, include_bytes!("swagger-ui/swagger-ui.css.gz"));

pub(super) fn routes() -> Router<App> {
    let licence = |text: &'static str| get(async move || text_file(TEXT, text));
    Router::new()
        .route("/api/docs/swagger-ui-bundle.js", get(async |headers: HeaderMap| BUNDLE.respond(&headers)))
        .route("/api/docs/swagger-ui.css", get(async |headers: HeaderMap| STYLE.respond(&headers)))
        .route(
            "/api/docs/swagger-ui-bundle.js.LICENSE.txt",
            licence(include_str!("swagger-ui/swagger-ui-bundle.js.LICENSE.txt")),
        )
        .route("/api/docs/LICENSE", licence(include_str!("swagger-ui/LICENSE")))
        .route("/api/docs/NOTICE", licence(include_str!("swagger-ui/NOTICE")))
}

/// File that is embedded compressed with gzip.
struct Asset {
    content_type: &'static str,
    gzip: &'static [u8],
    /// Decompressed content, from the first request on that does not accept gzip.
    plain: OnceLock<Bytes>,
}

impl Asset {
    const fn new(content_type: &'static str, gzip: &'static [u8]) -> Self {
        Self { content_type, gzip, plain: OnceLock::new() }
    }

    fn respond(&self, request: &HeaderMap) -> Response {
        let headers = [
            (header::CONTENT_TYPE, self.content_type),
            (header::CACHE_CONTROL, CACHE_CONTROL),
            (header::VARY, "Accept-Encoding"),
        ];
        if accepts_gzip(request) {
            return (headers, [(header::CONTENT_ENCODING, "gzip")], self.gzip).into_response();
        }
        match self.plain() {
            Ok(plain) => (headers, plain).into_response(),
            Err(error) => ApiError::internal(error).into_response(),
        }
    }

    fn plain(&self) -> std::io::Result<Bytes> {
        if let Some(plain) = self.plain.get() {
            return Ok(plain.clone());
        }
        let mut plain = Vec::new();
        GzDecoder::new(self.gzip).read_to_end(&mut plain)?;
        Ok(self.plain.get_or_init(|| plain.into()).clone())
    }
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim().strip_prefix("q=").map_or(Some(1.0), |weight| weight.parse::<f32>().ok());
        name.trim().eq_ignore_ascii_case("gzip") && weight.is_some_and(|weight| weight > 0.0)
    })
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn gzip_is_sent_only_to_clients_that_accept_it() {
        let accepts = |value: &'static str| {
            accepts_gzip(&HeaderMap::from_iter([(header::ACCEPT_ENCODING, HeaderValue::from_static(value))]))
        };
        assert!(accepts("gzip, deflate, br, zstd"));
        assert!(accepts("br;q=1.0, GZIP;q=0.5"));
        assert!(!accepts("identity"));
        assert!(!accepts("gzip;q=0, br"));
        assert!(!accepts_gzip(&HeaderMap::new()));
    }
}
