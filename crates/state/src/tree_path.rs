//! Paths inside a tree.

use crate::node::is_valid_name;
use crate::quote::shorten_path;

/// Reason why a path is invalid.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BadPath {
    /// The path has a name that no entry can have, such as `..`.
    #[error("`{}` is not a path inside a tree", shorten_path(.0))]
    Invalid(Vec<u8>),
    /// The path has more than [`DEPTH_MAX`] names.
    #[error("`{}` is nested too deeply: {DEPTH_MAX} levels are allowed", shorten_path(.0))]
    TooDeep(Vec<u8>),
}

/// Maximum number of names in a path inside a tree. Linux cannot open much deeper paths in one call (`PATH_MAX`).
pub const DEPTH_MAX: usize = 1024;

/// Splits a path inside a tree into names, outermost first. Ignores names `.`, and leading, trailing and repeated
/// slashes. Fails if a name is invalid, such as `..`.
pub(crate) fn path_names(path: &[u8]) -> Result<Vec<&[u8]>, BadPath> {
    let names: Vec<&[u8]> =
        path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".").collect();
    if names.len() > DEPTH_MAX {
        return Err(BadPath::TooDeep(path.to_vec()));
    }
    if names.iter().all(|name| is_valid_name(name)) {
        Ok(names)
    } else {
        Err(BadPath::Invalid(path.to_vec()))
    }
}

/// Joins a path and a name.
pub(crate) fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    if path.is_empty() { name.to_vec() } else { [path, b"/", name].concat() }
}
