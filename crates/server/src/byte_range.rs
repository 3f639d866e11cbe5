//! Ranges of bytes in requests for content (RFC 9110).

use axum::http::{HeaderValue, header};
use workspace_api::error_codes;

use crate::error::ApiError;

/// Creates the error for a range outside of content of this size.
pub(crate) fn not_satisfiable(size: u64) -> ApiError {
    let error = ApiError::new(error_codes::RANGE_NOT_SATISFIABLE, format!("the file has {size} bytes"));
    let error = error.detail("size", size);
    match HeaderValue::try_from(format!("bytes */{size}")) {
        Ok(value) => error.header(header::CONTENT_RANGE, value),
        Err(_) => error,
    }
}

/// Requested range of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ByteRange {
    /// Offsets of the first and the last byte (inclusive); `None` for the end of the content.
    From(u64, Option<u64>),
    /// Number of bytes at the end of the content.
    Last(u64),
}

impl ByteRange {
    /// Parses the header `Range` with a single range. `None` for several ranges and unknown forms, which are ignored:
    /// the whole file is sent.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (unit, range) = text.split_once('=')?;
        let (first, last) = range.trim().split_once('-')?;
        let number = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            // A number that does not fit is beyond the end of every file.
            digits.then(|| text.parse().unwrap_or(u64::MAX))
        };
        if !unit.trim().eq_ignore_ascii_case("bytes") {
            return None;
        }
        match (first, last) {
            ("", last) => number(last).map(Self::Last),
            (first, "") => number(first).map(|first| Self::From(first, None)),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                (first <= last).then_some(Self::From(first, Some(last)))
            }
        }
    }

    /// Returns offset and length of the range in content of `size` bytes; `None` if no byte is in the range.
    pub(crate) fn within(self, size: u64) -> Option<(u64, u64)> {
        let (from, len) = match self {
            Self::From(from, last) => {
                let end = last.map_or(size, |last| last.saturating_add(1).min(size));
                (from, end.saturating_sub(from))
            }
            Self::Last(len) => (size.saturating_sub(len), len.min(size)),
        };
        (len > 0).then_some((from, len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_parsed_as_rfc_9110_says() {
        for (text, size, expected) in [
            ("bytes=0-0", 10, Some((0, 1))),
            ("bytes=2-5", 10, Some((2, 4))),
            ("Bytes = 2-", 10, Some((2, 8))),
            ("bytes=5-999999999999999999999999", 10, Some((5, 5))),
            ("bytes=-3", 10, Some((7, 3))),
            ("bytes=-30", 10, Some((0, 10))),
            ("bytes=-0", 10, None),
            ("bytes=10-", 10, None),
            ("bytes=10-12", 10, None),
            ("bytes=0-", 0, None),
            ("bytes=-5", 0, None),
        ] {
            assert_eq!(ByteRange::parse(text).unwrap().within(size), expected, "{text} of {size}");
        }
        for text in [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=a-b",
            "bytes=5-2",
            "bytes=0-1,3-4",
            "lines=0-1",
            "bytes=+1-2",
        ] {
            assert_eq!(ByteRange::parse(text), None, "{text}");
        }
    }
}
