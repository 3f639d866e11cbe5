//! The content of files in snapshots.

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use workspace_state::{ChunkId, Extent, FileNode, Node, SnapshotId, Store, StoreError};

use super::address::Place;
use super::body::{self, PIECE};
use super::tree::{entry, not_a_file, open};
use crate::app::App;
use crate::auth::Caller;
use crate::code;
use crate::error::{ApiError, ErrorBody};
use crate::sandboxes::scope;
use crate::store::with_store;

/// Get the content of a file, or a range of it. Symlinks are not followed.
#[utoipa::path(get, path = "/api/v1/snapshots/{id}/files/{path}", tag = "snapshots", operation_id = "get_snapshot_file",
    params(
        ("id" = String, Path),
        ("path" = String, Path, description = "Slashes may be there as they are or as `%2F`"),
        ("Range" = Option<String>, Header, description = "One range of bytes; all of the file is sent for several"),
        ("If-None-Match" = Option<String>, Header, description = "The `ETag` of what is known already"),
    ),
    responses(
        (status = 200, description = "The content", body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 206, description = "The range", body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 304, description = "It is what is known already"),
        (status = "default", description = "An error", body = ErrorBody),
    ))]
pub(super) async fn content(
    State(app): State<App>,
    caller: Caller,
    place: Place,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let snapshot = app.snapshots().find(&scope(&caller), &place.id).await?;
    let opened = with_store(&app.store, move |store| {
        let tree = open(store, &snapshot)?;
        match entry(&tree, &place.path)?.node {
            Node::File(file) => Ok((Source { store: tree.store().clone(), snapshot: snapshot.id }, file)),
            other => Err(not_a_file(&place.path, &other)),
        }
    });
    let (source, file) = opened.await?;
    answer(&method, &headers, source, file).await
}

async fn answer(
    method: &Method,
    headers: &HeaderMap,
    source: Source,
    file: FileNode,
) -> Result<Response, ApiError> {
    let (size, tag) = (file.size(), identity(&file));
    let mut about = vec![
        (header::ETAG, tag.clone()),
        (header::ACCEPT_RANGES, "bytes".to_owned()),
        // The content never changes; who may see it does.
        (header::CACHE_CONTROL, "private, no-cache".to_owned()),
    ];
    if values(headers, &header::IF_NONE_MATCH).any(|known| matches(known, &tag)) {
        return respond(StatusCode::NOT_MODIFIED, about, Body::empty());
    }
    // A range of what has changed since is of no use.
    let same = headers.get(header::IF_RANGE).is_none_or(|known| known.as_bytes() == tag.as_bytes());
    let range = headers.get(header::RANGE).filter(|_| same && method == Method::GET);
    let range = range.and_then(|range| range.to_str().ok()).and_then(Range::parse);
    let (status, from, len) = match range {
        None => (StatusCode::OK, 0, size),
        Some(range) => {
            let (from, len) = range.within(size).ok_or_else(|| outside(size))?;
            about.push((header::CONTENT_RANGE, format!("bytes {from}-{}/{size}", from + len - 1)));
            (StatusCode::PARTIAL_CONTENT, from, len)
        }
    };
    about.push((header::CONTENT_TYPE, "application/octet-stream".to_owned()));
    about.push((header::CONTENT_LENGTH, len.to_string()));
    let silent = method == Method::HEAD || len == 0;
    let body =
        if silent { Body::empty() } else { body::stream(Content::new(source, file, from, len)).await? };
    respond(status, about, body)
}

fn respond(status: StatusCode, about: Vec<(HeaderName, String)>, body: Body) -> Result<Response, ApiError> {
    let mut response = (status, body).into_response();
    for (name, value) in about {
        let value = HeaderValue::try_from(value).map_err(ApiError::internal)?;
        response.headers_mut().insert(name, value);
    }
    Ok(response)
}

/// Names the content alone: equal content is cut into equal chunks, which are named by their hashes.
fn identity(file: &FileNode) -> String {
    let mut hasher = blake3::Hasher::new();
    for extent in &file.extents {
        hasher.update(&extent.len().to_le_bytes());
        match extent {
            Extent::Data { chunk, .. } => hasher.update(&[1]).update(chunk.as_bytes()),
            Extent::Hole { .. } => hasher.update(&[0]),
        };
    }
    format!("\"{}\"", hasher.finalize().to_hex())
}

/// The elements of a header that is a list.
fn values<'h>(headers: &'h HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'h str> {
    let texts = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(',')).map(str::trim)
}

fn matches(known: &str, tag: &str) -> bool {
    known == "*" || known.strip_prefix("W/").unwrap_or(known) == tag
}

fn outside(size: u64) -> ApiError {
    let error = ApiError::new(code::RANGE_NOT_SATISFIABLE, format!("the file has {size} bytes"));
    let error = error.detail("size", size);
    match HeaderValue::try_from(format!("bytes */{size}")) {
        Ok(value) => error.header(header::CONTENT_RANGE, value),
        Err(_) => error,
    }
}

/// A range of bytes as it is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Range {
    /// From one byte to another, or to the end.
    From(u64, Option<u64>),
    /// So many at the end.
    Last(u64),
}

impl Range {
    /// One range. What is not understood, and several ranges, are as good as none: the whole is sent then.
    fn parse(text: &str) -> Option<Self> {
        let (unit, range) = text.split_once('=')?;
        let (first, last) = range.trim().split_once('-')?;
        let number = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            // A number beyond all numbers is beyond every file.
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

    /// The first byte and how many, in content of that size.
    fn within(self, size: u64) -> Option<(u64, u64)> {
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

/// The snapshot that a file is read from. Holding one keeps nothing from being collected: how long a client reads must not
/// decide when the store gets rid of what others removed.
struct Source {
    store: Store,
    snapshot: SnapshotId,
}

impl Source {
    fn chunk(&self, id: &ChunkId) -> Result<Vec<u8>, StoreError> {
        self.store.read_chunk(id).map_err(|error| match (&error, self.store.find_snapshot(&self.snapshot)) {
            // It was removed while it was read, and then collected.
            (StoreError::MissingChunk(_), Ok(None)) => StoreError::UnknownSnapshot(self.snapshot),
            _ => error,
        })
    }
}

/// A range of a file, chunk by chunk. Each is read once.
struct Content {
    source: Source,
    extents: Vec<Extent>,
    /// The present extent, and how much of it is done.
    at: usize,
    done: u64,
    left: u64,
}

impl Content {
    fn new(source: Source, file: FileNode, from: u64, len: u64) -> Self {
        let (mut at, mut done) = (0, from);
        while let Some(extent) = file.extents.get(at).filter(|extent| extent.len() <= done) {
            done -= extent.len();
            at += 1;
        }
        Self { source, extents: file.extents, at, done, left: len }
    }

    /// Adds what is left of the present extent, of a hole no more than a piece.
    fn add(&mut self, out: &mut Vec<u8>) -> Result<(), StoreError> {
        let short = || StoreError::Refused("a file is shorter than it says".to_owned());
        let extent = *self.extents.get(self.at).ok_or_else(short)?;
        let rest = (extent.len() - self.done).min(self.left);
        let added = match extent {
            Extent::Data { chunk, .. } => {
                let chunk = self.source.chunk(&chunk)?;
                let from = usize::try_from(self.done).map_err(|_| short())?;
                let len = usize::try_from(rest).map_err(|_| short())?;
                let part = chunk.get(from..).and_then(|chunk| chunk.get(..len));
                out.extend_from_slice(part.ok_or_else(short)?);
                rest
            }
            Extent::Hole { .. } => {
                let len = rest.min(PIECE as u64);
                out.resize(out.len() + len as usize, 0);
                len
            }
        };
        self.done += added;
        self.left -= added;
        if self.done == extent.len() {
            (self.at, self.done) = (self.at + 1, 0);
        }
        Ok(())
    }
}

impl Iterator for Content {
    type Item = Result<Bytes, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut piece = Vec::new();
        while piece.len() < PIECE && self.left > 0 {
            if let Err(error) = self.add(&mut piece) {
                return Some(Err(error));
            }
        }
        (!piece.is_empty()).then(|| Ok(piece.into()))
    }
}

#[cfg(test)]
mod tests {
    use workspace_state::{GcOptions, NewSnapshot, Quiet};

    use super::*;

    #[test]
    fn ranges_are_read_as_they_are_meant() {
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
            assert_eq!(Range::parse(text).unwrap().within(size), expected, "{text} of {size}");
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
            assert_eq!(Range::parse(text), None, "{text}");
        }
    }

    #[test]
    fn every_range_of_a_file_with_holes_is_what_it_is_in_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open_or_create(directory.path().join("store")).unwrap();
        let mut noise = vec![0; 700_000];
        blake3::Hasher::new().finalize_xof().fill(&mut noise);
        let whole = [&noise[..], &vec![0; 1_500_000], &noise[..300_000], &vec![0; 600_000]].concat();
        let mut tree = store.empty_tree().unwrap();
        tree.write("file", whole.clone()).unwrap();
        let snapshot = tree.commit(NewSnapshot::default()).unwrap();
        let tree = open(&store, &snapshot).unwrap();
        let Node::File(file) = entry(&tree, b"file").unwrap().node else { panic!("not a file") };
        assert!(file.extents.len() > 3 && file.extents.iter().any(|it| matches!(it, Extent::Hole { .. })));
        let size = whole.len() as u64;
        for from in [0, 1, 65_536, 699_999, 700_000, 1_000_000, 2_200_000, 2_499_999, size - 1] {
            for len in [1, 2, 300_000, 1_000_000, size] {
                let len = len.min(size - from);
                let source = Source { store: store.clone(), snapshot: snapshot.id };
                let pieces = Content::new(source, file.clone(), from, len);
                let found: Vec<u8> = pieces.flat_map(Result::unwrap).collect();
                assert!(found == whole[from as usize..(from + len) as usize], "{from} {len}");
            }
        }
    }

    #[test]
    fn a_reader_keeps_nothing_from_being_collected() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open_or_create(directory.path().join("store")).unwrap();
        let mut noise = vec![0; 3 << 20];
        blake3::Hasher::new().finalize_xof().fill(&mut noise);
        let mut tree = store.empty_tree().unwrap();
        tree.write("file", noise).unwrap();
        let snapshot = tree.commit(NewSnapshot::default()).unwrap();
        drop(tree);
        let Node::File(file) = entry(&open(&store, &snapshot).unwrap(), b"file").unwrap().node else {
            panic!("not a file")
        };
        let size = file.size();
        let source = Source { store: store.clone(), snapshot: snapshot.id };
        let mut pieces = Content::new(source, file, 0, size);
        pieces.next().unwrap().unwrap();

        store.remove_snapshots(&[snapshot.id]).unwrap();
        let report = store.collect_garbage(&GcOptions::default(), &Quiet).unwrap();
        assert!(report.dead_bytes > 2 << 20, "{report:?}");
        assert_eq!(report.condemned_bytes, 0, "nothing waits for the reader");
        let error = pieces.next().unwrap().unwrap_err();
        assert!(matches!(error, StoreError::UnknownSnapshot(id) if id == snapshot.id), "{error}");
    }
}
