//! Entity tags in conditions of requests (RFC 9110).

use axum::http::{HeaderMap, HeaderName};

/// Returns the items of a header that is a list.
pub(crate) fn header_items<'h>(headers: &'h HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'h str> {
    let texts = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(',')).map(str::trim)
}

/// Returns true if an item of `If-None-Match` is the tag or `*`. The mark of a weak tag (`W/`) is ignored.
pub(crate) fn is_same_weakly(item: &str, tag: &str) -> bool {
    item == "*" || item.strip_prefix("W/").unwrap_or(item) == tag
}

/// Returns true if an item of `If-Match` is the tag or `*`. A weak tag is never the same.
pub(crate) fn is_same_strongly(item: &str, tag: &str) -> bool {
    item == "*" || item == tag
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderValue, header};

    use super::*;

    #[test]
    fn lists_of_tags_are_split_and_compared() {
        let mut headers = HeaderMap::new();
        headers.append(header::IF_MATCH, HeaderValue::from_static("\"a\", W/\"b\""));
        headers.append(header::IF_MATCH, HeaderValue::from_static("\"c\""));
        let items: Vec<&str> = header_items(&headers, &header::IF_MATCH).collect();
        assert_eq!(items, ["\"a\"", "W/\"b\"", "\"c\""]);
        assert!(is_same_weakly("W/\"b\"", "\"b\"") && !is_same_strongly("W/\"b\"", "\"b\""));
        assert!(is_same_weakly("*", "\"b\"") && is_same_strongly("*", "\"b\""));
        assert!(is_same_strongly("\"a\"", "\"a\"") && !is_same_strongly("a", "\"a\""));
    }
}
