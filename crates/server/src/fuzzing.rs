//! Entry points for fuzz targets: messages of clients and settings, without a server.

use axum::extract::Query;
use axum::extract::ws::Message;
use axum::http::{HeaderMap, HeaderValue, Uri};
use workspace_api::processes::OutputQuery;

use crate::commands::last_event_id;
use crate::pty::socket::{Request, parse_message};
use crate::settings::{HostEnvironment, Settings, SettingsSource};

/// Parses a message to a terminal: as text if the bytes are UTF-8, and as binary.
pub fn terminal_message(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        match parse_message(&Message::text(text)) {
            Ok(Request::Input(data)) => assert!(data.len() <= bytes.len(), "more input than bytes"),
            Ok(Request::Resize(_) | Request::Ping | Request::Control) => {}
            Err(reason) => assert!(!reason.is_empty(), "an error without a message"),
        }
    }
    let binary = Message::binary(bytes.to_vec());
    assert_eq!(
        parse_message(&binary),
        Ok(Request::Input(bytes.to_vec())),
        "binary messages are input as they are"
    );
}

/// Parses the start of a stream of events, from a header and from a query.
pub fn event_stream_request(bytes: &[u8]) {
    if let Ok(value) = HeaderValue::from_bytes(bytes) {
        let headers = HeaderMap::from_iter([(axum::http::HeaderName::from_static("last-event-id"), value)]);
        if let Ok(id) = last_event_id(&headers) {
            let digits = String::from_utf8_lossy(bytes);
            let is_number = digits.trim_start_matches('+').bytes().all(|byte| byte.is_ascii_digit());
            assert!(id.is_some() && is_number, "{digits:?} is no id");
        }
    }
    if let Ok(uri) = Uri::try_from([&b"/output?"[..], bytes].concat()) {
        // Any result is right, but parsing must not panic.
        drop(Query::<OutputQuery>::try_from_uri(&uri));
    }
}

/// Parses settings: lines `NAME=value` of an environment and, after a line `---`, a settings file. The output of
/// `--print-config` must be valid settings again.
pub fn settings(text: &str) {
    let (environment, file) = match text.split_once("\n---\n") {
        Some((environment, file)) => (environment, Some(file)),
        None => (text, None),
    };
    let variables = environment.lines().filter_map(|line| line.split_once('='));
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let host = HostEnvironment {
        user_data: Some("/home/user/.local/share".into()),
        is_root: false,
        program_directory: Some("/usr/bin".into()),
        data_dir: None,
    };
    let source = SettingsSource::new(host.clone(), variables, file);
    let read = Settings::from_source(&source);
    let printed = source.to_toml();
    if let Err(error) = &read {
        assert!(!error.0.is_empty(), "an error without a cause");
        assert!(!error.to_string().is_empty(), "an error without a message");
        return;
    }
    let again = SettingsSource::new(host, [], Some(&printed));
    if let Err(error) = Settings::from_source(&again) {
        panic!("printed settings are invalid: {error}\n{printed}");
    }
}
