//! Directories of a sandbox as tar archives, which are written as the content arrives.

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Method, header};
use axum::response::{IntoResponse as _, Response};
use workspace_api::error_codes;
use workspace_sandbox::{FileEntry, FileKind, Scope, TreeEntry, TreeReader};
use workspace_state::{TarMember, TarMemberKind, TarWriteError, TarWriter, Timestamp};

use super::content::{self, PieceSource};
use super::location::FileLocation;
use crate::app::App;
use crate::error::ApiError;

/// Approximate size of a piece in bytes.
const PIECE_SIZE: usize = 256 << 10;
/// Bits of a mode that an archive has.
const MODE_MASK: u32 = 0o7777;

/// Responds with an archive of a directory.
pub(super) async fn respond(
    app: &App,
    scope: &Scope,
    location: &FileLocation,
    method: &Method,
) -> Result<Response, ApiError> {
    let FileLocation { sandbox, path } = location;
    let follows_symlink = true;
    let root = app.sandboxes.stat_file(scope, sandbox, path, follows_symlink).await?;
    if root.kind != FileKind::Directory {
        let message = format!("{path}: this is not a directory");
        return Err(ApiError::new(error_codes::FILE_CONFLICT, message).detail("path", path.to_string()));
    }
    let body = if method == Method::HEAD {
        Body::empty()
    } else {
        let tree = app.sandboxes.read_tree(scope, sandbox, path).await?;
        content::body(Archive::new(tree, &root)?).await?
    };
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/x-tar")),
        (header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment")),
    ];
    Ok((headers, body).into_response())
}

/// Archive that is being sent.
struct Archive {
    tree: TreeReader,
    writer: TarWriter,
    has_ended: bool,
}

impl Archive {
    fn new(tree: TreeReader, root: &FileEntry) -> Result<Self, ApiError> {
        let mut writer = TarWriter::new();
        let member = TarMember {
            path: b".".to_vec(),
            kind: TarMemberKind::Directory,
            mode: mode(root.mode),
            modified: Some(Timestamp(root.mtime_ns)),
        };
        writer.add_member(&member).map_err(unexpected)?;
        Ok(Self { tree, writer, has_ended: false })
    }
}

impl PieceSource for Archive {
    async fn next_piece(&mut self) -> Result<Option<Bytes>, ApiError> {
        while self.writer.len() < PIECE_SIZE && !self.has_ended {
            match self.tree.next().await? {
                Some(entries) => entries.into_iter().try_for_each(|entry| add(&mut self.writer, entry))?,
                None => {
                    self.writer.finish().map_err(unexpected)?;
                    self.has_ended = true;
                }
            }
        }
        Ok(Some(self.writer.take()).filter(|piece| !piece.is_empty()).map(Bytes::from))
    }

    fn has_ended(&self) -> bool {
        self.has_ended && self.writer.is_empty()
    }
}

/// Writes an entry of the I/O worker into the archive. Special files, such as sockets, are left out.
fn add(writer: &mut TarWriter, entry: TreeEntry) -> Result<(), ApiError> {
    let added = match entry {
        TreeEntry::Content(data) => writer.add_content(&data),
        TreeEntry::Header { path, kind, mode: bits, mtime_ns, target, size } => {
            if !is_inside(&path) {
                return Err(ApiError::internal("the I/O worker sent a path outside of the tree"));
            }
            let kind = match kind {
                FileKind::File => TarMemberKind::File { size },
                FileKind::Directory => TarMemberKind::Directory,
                FileKind::Symlink => TarMemberKind::Symlink { target },
                FileKind::Special => return Ok(()),
            };
            let modified = Some(Timestamp(mtime_ns));
            writer.add_member(&TarMember { path, kind, mode: mode(bits), modified })
        }
    };
    added.map_err(unexpected)
}

fn mode(bits: u32) -> u16 {
    u16::try_from(bits & MODE_MASK).unwrap_or_default()
}

fn unexpected(error: TarWriteError) -> ApiError {
    ApiError::internal(format!("the I/O worker sent an invalid tree: {error}"))
}

/// Returns true for a relative path that stays below its root. The worker runs in the sandbox and is not trusted, but a
/// client may unpack the archive without checks.
fn is_inside(path: &[u8]) -> bool {
    !path.contains(&0) && path.split(|byte| *byte == b'/').all(|name| !matches!(name, b"" | b"." | b".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_entries_are_refused() {
        let header = |path: &[u8], size| TreeEntry::Header {
            path: path.to_vec(),
            kind: FileKind::File,
            mode: 0o644,
            mtime_ns: 0,
            target: Vec::new(),
            size,
        };
        for path in [&b""[..], b"/a", b"../a", b"a/../b", b"a//b", b"a\0", b"."] {
            assert!(add(&mut TarWriter::new(), header(path, 0)).is_err(), "{path:?}");
        }
        let mut writer = TarWriter::new();
        add(&mut writer, header(b"a/\xff", 1)).unwrap();
        assert!(add(&mut writer, header(b"b", 0)).is_err(), "the content of the file before is missing");
        assert!(add(&mut writer, TreeEntry::Content(Bytes::from_static(b"xy"))).is_err());
        add(&mut writer, TreeEntry::Content(Bytes::from_static(b"x"))).unwrap();
    }
}
