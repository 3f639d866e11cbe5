//! Search for a program in the directories of `PATH`, as by `execvp`, but without its fallback to a shell.

use std::ffi::{CStr, CString};

/// Directories that are searched without `PATH`, as in the C library.
const DEFAULT_PATH: &[u8] = b"/bin:/usr/bin";
/// Maximum length of the name of a file in bytes.
const NAME_MAX: usize = 255;

/// Calls `execute` with the file of a program, or with one candidate after the other if the name is searched in
/// `PATH` of `environment`. Returns the error number of the failure that matters most.
///
/// `execute` returns an error number. The search continues if a candidate does not exist or may not be executed.
pub(crate) fn search_and_execute(
    name: &[u8],
    environment: &[CString],
    mut execute: impl FnMut(&CStr) -> i32,
) -> i32 {
    let mut execute = |file: Vec<u8>| CString::new(file).map_or(libc::EINVAL, |file| execute(&file));
    if name.is_empty() || name.len() > NAME_MAX || name.contains(&b'/') {
        return execute(name.to_vec());
    }
    let mut result = libc::ENOENT;
    for directory in search_path(environment).split(|byte| *byte == b':') {
        // An empty entry is the working directory.
        let directory = if directory.is_empty() { b".".as_slice() } else { directory };
        match execute([directory, b"/", name].concat()) {
            libc::EACCES => result = libc::EACCES,
            libc::ENOENT | libc::ENOTDIR | libc::ENAMETOOLONG | libc::ELOOP => {}
            errno => return errno,
        }
    }
    result
}

fn search_path(environment: &[CString]) -> &[u8] {
    let path = environment.iter().find_map(|variable| variable.to_bytes().strip_prefix(b"PATH="));
    path.unwrap_or(DEFAULT_PATH)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches a name, with the error number of each file. Returns the result and the files that were tried.
    fn search(name: &str, path: Option<&str>, errno: impl Fn(&str) -> i32) -> (i32, Vec<String>) {
        let variables = path.map(|path| format!("PATH={path}"));
        let variables = ["XPATH=/wrong".to_owned()].into_iter().chain(variables);
        let environment: Vec<_> = variables.map(|variable| CString::new(variable).unwrap()).collect();
        let mut tried = Vec::new();
        let result = search_and_execute(name.as_bytes(), &environment, |file| {
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
        assert_eq!(tried("ls", None), ["/bin/ls", "/usr/bin/ls"]);
        assert_eq!(search("ls", Some("/a"), missing).0, libc::ENOENT);
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
