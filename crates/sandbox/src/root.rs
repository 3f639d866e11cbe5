//! Kept root filesystems of sandboxes.
//!
//! The changes of a kept root are a second workspace of the sandbox, over the files of its template, in a set
//! of their own ([`roots::Roots`]). Commit, fork and restore treat it together with `/workspace`.

mod create;
pub(crate) mod mode;
mod restore;
pub(crate) mod roots;
pub(crate) mod skeleton;
mod template_base;
pub(crate) mod template_import;
