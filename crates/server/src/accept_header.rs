//! Content negotiation by the header `Accept`.

use axum::http::{HeaderMap, header};

/// Returns true if `Accept` names `media_type` and does not name `application/json`. Weights (`q=`) are ignored, and a
/// client that accepts anything (`*/*`) gets JSON.
pub(crate) fn prefers(headers: &HeaderMap, media_type: &str) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let types: Vec<_> = accepted
        .flat_map(|value| value.split(','))
        .map(|range| range.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
        .collect();
    let contains = |name: &str| types.iter().any(|it| it == name);
    contains(media_type) && !contains("application/json")
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn a_media_type_is_preferred_if_it_is_named_without_json() {
        let prefers_html = |accept: &'static str| {
            let headers = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(accept))]);
            prefers(&headers, "text/html")
        };
        assert!(prefers_html("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"));
        assert!(prefers_html("Text/HTML; charset=utf-8"));
        assert!(!prefers_html("*/*"));
        assert!(!prefers_html("application/json"));
        assert!(!prefers_html("text/event-stream"));
        assert!(!prefers_html("application/json, text/html;q=0.5"));
        assert!(!prefers(&HeaderMap::new(), "text/html"));
    }
}
