//! Search for a program in the directories of `PATH`, as by `execvp`, but without its fallback to a shell.

use std::ffi::CStr;

/// Directories that are searched if `PATH` is not set, as in the C library.
const DEFAULT_PATH: &[u8] = b"/bin:/usr/bin";
/// Maximum length of the name of a file in bytes.
const NAME_MAX: usize = 255;
/// Maximum length of a path in bytes, including the NUL.
const PATH_MAX: usize = 4096;

/// Calls `execute` with the file of a program, or with one candidate after the other if the name is looked up in
/// `path`, the value of `PATH`. Returns the error number of the failure that matters most.
///
/// `execute` returns an error number. The search continues if a candidate does not exist or may not be executed. The
/// search allocates nothing: it runs in a child that shares the memory of its supervisor (as after `vfork`), where an
/// allocation would stay after the child has executed the program.
pub(crate) fn search_and_execute(
    name: &CStr,
    path: Option<&[u8]>,
    mut execute: impl FnMut(&CStr) -> i32,
) -> i32 {
    let bytes = name.to_bytes();
    if bytes.is_empty() || bytes.len() > NAME_MAX || bytes.contains(&b'/') {
        return execute(name);
    }
    let mut result = libc::ENOENT;
    for directory in path.unwrap_or(DEFAULT_PATH).split(|byte| *byte == b':') {
        // An empty entry is the working directory.
        let directory = if directory.is_empty() { b".".as_slice() } else { directory };
        let mut buffer = [0; PATH_MAX];
        // A longer path could not be executed.
        let Some(file) = join(&mut buffer, [directory, b"/", name.to_bytes_with_nul()]) else { continue };
        match execute(file) {
            libc::EACCES => result = libc::EACCES,
            libc::ENOENT | libc::ENOTDIR | libc::ENAMETOOLONG | libc::ELOOP => {}
            errno => return errno,
        }
    }
    result
}

/// Concatenates pieces, of which the last ends with a NUL. `None` if they do not fit.
fn join<'a>(buffer: &'a mut [u8; PATH_MAX], pieces: [&[u8]; 3]) -> Option<&'a CStr> {
    let mut len = 0;
    for piece in pieces {
        buffer.get_mut(len..len + piece.len())?.copy_from_slice(piece);
        len += piece.len();
    }
    CStr::from_bytes_until_nul(buffer).ok()
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use super::*;

    /// Looks a name up, with the error number of each file. Returns the result and the files that were tried.
    fn search(name: &str, path: Option<&str>, errno: impl Fn(&str) -> i32) -> (i32, Vec<String>) {
        let mut tried = Vec::new();
        let name = CString::new(name).unwrap();
        let result = search_and_execute(&name, path.map(str::as_bytes), |file| {
            tried.push(file.to_str().unwrap().to_owned());
            errno(tried.last().unwrap())
        });
        (result, tried)
    }

    #[test]
    fn directories_are_searched_in_order() {
        let missing = |_: &str| libc::ENOENT;
        let tried = |name: &str, path| search(name, path, missing).1;
        assert_eq!(tried("ls", Some("/a:/b c")), ["/a/ls", "/b c/ls"]);
        assert_eq!(tried("ls", Some(":/a:")), ["./ls", "/a/ls", "./ls"], "an empty entry is the directory");
        assert_eq!(tried("ls", Some("")), ["./ls"]);
        // Without the variable `PATH`.
        assert_eq!(tried("ls", None), ["/bin/ls", "/usr/bin/ls"]);
        assert_eq!(search("ls", Some("/a"), missing).0, libc::ENOENT);
        let long = "x".repeat(PATH_MAX - "/ls\0".len());
        assert_eq!(
            tried("ls", Some(&format!("{long}:/a:x{long}:/b"))),
            [&format!("{long}/ls"), "/a/ls", "/b/ls"]
        );
    }

    #[test]
    fn a_name_with_a_slash_is_not_searched() {
        for name in ["/bin/ls", "./ls", "bin/ls", ""] {
            assert_eq!(search(name, Some("/a"), |_| libc::ENOENT), (libc::ENOENT, vec![name.to_owned()]));
        }
        let long = "x".repeat(NAME_MAX + 1);
        assert_eq!(search(&long, Some("/a:/b"), |_| libc::ENAMETOOLONG), (libc::ENAMETOOLONG, vec![long]));
    }

    #[test]
    fn a_denied_file_is_reported_only_if_no_other_can_be_executed() {
        let denied = |file: &str| if file == "/a/ls" { libc::EACCES } else { libc::ENOENT };
        assert_eq!(search("ls", Some("/a:/b"), denied).0, libc::EACCES);
        let invalid = |file: &str| if file == "/a/ls" { libc::EACCES } else { libc::ENOEXEC };
        let (result, tried) = search("ls", Some("/a:/b:/c"), invalid);
        assert_eq!((result, tried.len()), (libc::ENOEXEC, 2), "the search ends with another error");
    }
}
