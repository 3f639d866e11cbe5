//! Paths inside a tree.

use crate::node::is_valid_name;
use crate::quote::shorten_path;

/// Reason why a path is invalid.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BadPath {
    /// The path leaves the tree, or has impossible names.
    #[error("`{}` is not a path inside a tree", shorten_path(.0))]
    Invalid(Vec<u8>),
    /// The path has too many components.
    #[error("`{}` is nested too deeply: {DEPTH_MAX} levels are allowed", shorten_path(.0))]
    TooDeep(Vec<u8>),
}

/// Deepest tree that is ever created. Linux opens deeper paths only in several steps.
pub const DEPTH_MAX: usize = 1024;

/// Splits a path inside a tree into names, outermost first. Leading and repeated slashes are ignored;
/// impossible names and names that leave the tree are rejected.
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
