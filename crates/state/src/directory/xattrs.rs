//! Extended attributes of open files in the namespace `user`.
//!
//! An overlay file system that is mounted with `userxattr` keeps its own data in attributes `user.overlay.*` of its
//! layers (lower and upper directories). Attributes of users with this prefix are escaped in a layer.

use std::borrow::Cow;
use std::os::fd::AsFd;

use rustix::fs::{XattrFlags, fgetxattr, flistxattr, flistxattr_query, fremovexattr, fsetxattr};
use rustix::io::Errno;

use crate::node::Xattrs;
use crate::platform::XATTR_NOT_FOUND;

/// Reads the `user.*` attributes. Returns none if the file system does not support attributes.
pub(super) fn read(file: impl AsFd) -> Result<Xattrs, Errno> {
    let mut xattrs = Xattrs::new();
    let mut names = Vec::new();
    let length = match flistxattr_query(&file) {
        Ok(0) | Err(Errno::OPNOTSUPP) => return Ok(xattrs),
        Ok(length) => length,
        Err(error) => return Err(error),
    };
    names.resize(length + 256, 0);
    let length = flistxattr(&file, &mut names[..])?;
    for name in names[..length].split(|byte| *byte == 0).filter(|name| name.starts_with(b"user.")) {
        let mut value = vec![0; 64 << 10];
        match fgetxattr(&file, name, &mut value[..]) {
            Ok(length) => {
                value.truncate(length);
                xattrs.insert(name.to_vec(), value);
            }
            // The attribute was removed after the names were listed.
            Err(XATTR_NOT_FOUND) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(xattrs)
}

/// Attributes that a file may have before [`write`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ExistingXattrs {
    /// None, because the file was just created.
    None,
    /// Any, so `write` must remove other attributes.
    Possible,
}

/// Sets the `user.*` attributes of a file to `xattrs`. Removes other `user.*` attributes if there may be any.
pub(super) fn write(file: impl AsFd, xattrs: &Xattrs, existing: ExistingXattrs) -> Result<(), Errno> {
    if existing == ExistingXattrs::Possible {
        for name in read(&file)?.keys().filter(|name| !xattrs.contains_key(*name)) {
            fremovexattr(&file, name.as_slice())?;
        }
    }
    for (name, value) in xattrs {
        fsetxattr(&file, name.as_slice(), value, XattrFlags::empty())?;
    }
    Ok(())
}

/// Prefix of the attributes that an overlay mounted with `userxattr` uses.
const OVERLAY_PREFIX: &[u8] = b"user.overlay.";

/// Escapes attributes for a layer of an overlay: inserts `overlay.` after the prefix in names that the kernel would
/// interpret. The kernel removes it again when a process reads the attribute through the overlay.
pub(super) fn escape(xattrs: &Xattrs) -> Cow<'_, Xattrs> {
    if !xattrs.keys().any(|name| name.starts_with(OVERLAY_PREFIX)) {
        return Cow::Borrowed(xattrs);
    }
    let escaped = |name: &[u8]| match name.strip_prefix(OVERLAY_PREFIX) {
        Some(rest) => [OVERLAY_PREFIX, b"overlay.", rest].concat(),
        None => name.to_vec(),
    };
    Cow::Owned(xattrs.iter().map(|(name, value)| (escaped(name), value.clone())).collect())
}

/// Reverses [`escape`] for a file in a layer of an overlay. Drops the attributes that the overlay itself uses.
pub(super) fn unescape(xattrs: Xattrs) -> Xattrs {
    let unescaped = |name: Vec<u8>| match name.strip_prefix(OVERLAY_PREFIX) {
        Some(rest) => rest.strip_prefix(b"overlay.").map(|rest| [OVERLAY_PREFIX, rest].concat()),
        None => Some(name),
    };
    xattrs.into_iter().filter_map(|(name, value)| Some((unescaped(name)?, value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlay_like_attributes_are_escaped_and_unescaped() {
        let names = ["user.a", "user.overlay.opaque", "user.overlay.overlay.x", "user.overlayed"];
        let xattrs: Xattrs = names.iter().map(|name| (name.as_bytes().to_vec(), b"y".to_vec())).collect();
        let escaped = escape(&xattrs).into_owned();
        let expected =
            ["user.a", "user.overlay.overlay.opaque", "user.overlay.overlay.overlay.x", "user.overlayed"];
        assert!(expected.iter().all(|name| escaped.contains_key(name.as_bytes())), "{escaped:?}");
        assert_eq!(unescape(escaped), xattrs);
        let overlay_attributes = Xattrs::from([(b"user.overlay.origin".to_vec(), Vec::new())]);
        assert_eq!(unescape(overlay_attributes), Xattrs::new());
    }
}
