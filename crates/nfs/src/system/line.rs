//! Lines of exports(5): a path, its clients with their options, and the mark of the server that has written the line.

use std::fmt::Write as _;
use std::path::Path;

use crate::clients::ClientList;
use crate::export::{Access, Identity};

/// Beginning of the comment at the end of a line. The id of the server and the name of the export follow.
const MARK: &str = "# elevo-workspace ";

/// Options of every export.
///
/// `subtree_check` lets clients use only handles of files below the exported directory. Without it, a client that makes
/// up handles reaches all files of the file system, those of other workspaces included. All users of clients act as the
/// user of the sandbox, `root` too.
const OPTIONS: &str = "sync,subtree_check,sec=sys,root_squash,all_squash";

/// Export as a line describes it.
pub(super) struct Line<'a> {
    pub(super) server: &'a str,
    pub(super) name: &'a str,
    pub(super) path: &'a Path,
    pub(super) clients: &'a ClientList,
    pub(super) access: Access,
    pub(super) identity: Identity,
    /// Revision of the directory. It is part of the id of the file system in handles, so that handles of another
    /// revision are stale.
    pub(super) revision: &'a str,
}

impl Line<'_> {
    /// Returns the line with its end; `None` if no client may use the export.
    pub(super) fn text(&self) -> Option<String> {
        let options = self.options();
        let clients: Vec<String> =
            self.clients.patterns().into_iter().map(|client| format!("{client}({options})")).collect();
        if clients.is_empty() {
            return None;
        }
        let path = quoted(self.path);
        Some(format!("{path} {} {MARK}{} {}\n", clients.join(" "), self.server, self.name))
    }

    fn options(&self) -> String {
        let access = if self.access == Access::ReadOnly { "ro" } else { "rw" };
        let Identity { uid, gid } = self.identity;
        format!("{access},{OPTIONS},anonuid={uid},anongid={gid},fsid={}", self.file_system_id())
    }

    /// Returns the id of the file system in handles, in the form of a UUID. Without it, the kernel takes the UUID of
    /// the file system, which not every file system has.
    fn file_system_id(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for part in [self.server, self.name, self.revision] {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
        }
        let digits = hasher.finalize().to_hex();
        let group = |from: usize, to: usize| &digits[from..to];
        [group(0, 8), group(8, 12), group(12, 16), group(16, 20), group(20, 32)].join("-")
    }
}

/// Returns true if a line, without its end, was written by a server.
pub(super) fn is_of_server(line: &[u8], server: &str) -> bool {
    let Ok(line) = std::str::from_utf8(line) else { return false };
    let Some((before, mark)) = line.rsplit_once(MARK) else { return false };
    let name = mark.strip_prefix(server).and_then(|rest| rest.strip_prefix(' '));
    before.ends_with(' ') && name.is_some_and(crate::export::is_name)
}

/// Returns a path with octal escapes for all bytes but those that never have a meaning in exports(5).
fn quoted(path: &Path) -> String {
    let mut text = String::new();
    for byte in std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()) {
        if byte.is_ascii_alphanumeric() || b"/._-+,:@%~".contains(byte) {
            text.push(char::from(*byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(text, "\\{byte:03o}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(path: &str, clients: &str) -> Option<String> {
        let line = Line {
            server: "srv-1",
            name: "sbx-1",
            path: Path::new(path),
            clients: &clients.parse().unwrap(),
            access: Access::ReadWrite,
            identity: Identity { uid: 1000, gid: 1001 },
            revision: "r",
        };
        line.text()
    }

    #[test]
    fn a_line_has_the_options_for_each_client() {
        let text = line("/data/w", "10.0.0.0/8,fd00::1").unwrap();
        let options = "rw,sync,subtree_check,sec=sys,root_squash,all_squash,anonuid=1000,anongid=1001,fsid=";
        let (_, id) = text.split_once("fsid=").unwrap();
        let id = &id[..36];
        assert_eq!(id.bytes().filter(u8::is_ascii_hexdigit).count(), 32, "{id}");
        let expected = format!(
            "/data/w 10.0.0.0/8({options}{id}) fd00::1({options}{id}) # elevo-workspace srv-1 sbx-1\n"
        );
        assert_eq!(text, expected);
        assert!(line("/w", "*").unwrap().starts_with("/w *(rw,"));
        assert_eq!(line("/w", ""), None, "an empty list would export to everybody");
    }

    #[test]
    fn odd_names_are_quoted() {
        for (path, expected) in [
            ("/a b", "/a\\040b"),
            ("/a\"#\\(x)", "/a\\042\\043\\134\\050x\\051"),
            ("/a\n*(rw)", "/a\\012\\052\\050rw\\051"),
            ("/\u{e4}", "/\\303\\244"),
        ] {
            assert!(line(path, "*").unwrap().starts_with(&format!("{expected} *(")), "{path:?}");
        }
    }

    #[test]
    fn only_lines_with_the_mark_of_the_server_are_recognised() {
        let own = line("/w", "*").unwrap();
        assert!(is_of_server(own.trim_end().as_bytes(), "srv-1"));
        assert!(
            !is_of_server(own.trim_end().as_bytes(), "srv-2")
                && !is_of_server(own.trim_end().as_bytes(), "srv")
        );
        for other in [
            "/w *(rw)",
            "# elevo-workspace srv-1 sbx-1",
            "\"/w # elevo-workspace srv-1 sbx-1\"",
            "/w *(rw) # elevo-workspace srv-1",
            "/w *(rw) # elevo-workspace srv-1 ",
        ] {
            assert!(!is_of_server(other.as_bytes(), "srv-1"), "{other}");
        }
    }
}
