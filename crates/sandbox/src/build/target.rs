//! Paths in recipes.

/// Directories of a root filesystem that other filesystems are mounted on in a sandbox, so that nothing below them is
/// part of a template.
const NOT_KEPT: [&str; 6] = ["dev", "proc", "run", "sys", "tmp", "workspace"];
const PATH_MAX: usize = 4_095;

/// Returns an absolute path in the root filesystem, from one that may be relative to a working directory, without a
/// slash at its end. The error is a message.
pub(super) fn join(workdir: &str, path: &str) -> Result<String, String> {
    let absolute = if path.starts_with('/') { path.to_owned() } else { format!("{workdir}/{path}") };
    check_text(path)?;
    let names: Vec<_> = absolute.split('/').filter(|name| !name.is_empty() && *name != ".").collect();
    if names.contains(&"..") {
        return Err(format!("`{path}` contains `..`; write the path without it"));
    }
    if names.first().is_some_and(|first| NOT_KEPT.contains(first)) {
        return Err(format!("`{path}` is not kept in a template; choose a path outside of /{}", names[0]));
    }
    Ok(format!("/{}", names.join("/")))
}

/// Returns true if the content of a path of a root filesystem, without a slash at its start, is kept.
pub(super) fn is_kept(path: &[u8]) -> bool {
    let first = path.split(|byte| *byte == b'/').next().unwrap_or_default();
    !NOT_KEPT.iter().any(|name| name.as_bytes() == first)
}

/// Fails if a path is not one inside the context. The error is a message.
pub(super) fn check_source(path: &str) -> Result<(), String> {
    check_text(path)?;
    if path.starts_with('/') {
        return Err(format!("`{path}` is absolute; a path of the context is relative"));
    }
    if path.split('/').any(|name| name == "..") {
        return Err(format!("`{path}` may be outside of the context; write the path without `..`"));
    }
    Ok(())
}

fn check_text(path: &str) -> Result<(), String> {
    if path.is_empty() || path.len() > PATH_MAX || path.contains('\0') {
        return Err(format!("a path has between 1 and {PATH_MAX} bytes, without a NUL"));
    }
    Ok(())
}

/// Returns a path of the context as the path of an entry of a tree; empty for all of it.
pub(super) fn tree_path(path: &str) -> String {
    let names: Vec<_> = path.split('/').filter(|name| !name.is_empty() && *name != ".").collect();
    names.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_joined_and_normalized() {
        for (workdir, path, expected) in [
            ("/", "a", "/a"),
            ("/opt", "a/", "/opt/a"),
            ("/opt", "/a//b/./c", "/a/b/c"),
            ("/opt", ".", "/opt"),
            ("/", "/", "/"),
        ] {
            assert_eq!(join(workdir, path).unwrap(), expected);
        }
        for path in ["", "..", "a/../b", "/tmp", "/workspace/a", "/dev/x", "a\0b"] {
            assert!(join("/", path).is_err(), "{path:?}");
        }
        assert_eq!(join("/", "/tmpfiles").unwrap(), "/tmpfiles");
    }

    #[test]
    fn sources_stay_inside_the_context() {
        for path in ["../a", "a/..", "/a", "", "a\0"] {
            assert!(check_source(path).is_err(), "{path:?}");
        }
        for (path, expected) in [(".", ""), ("./a/", "a"), ("a//b", "a/b"), ("...", "...")] {
            check_source(path).unwrap();
            assert_eq!(tree_path(path), expected);
        }
    }
}
