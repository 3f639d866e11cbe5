//! User extended attributes of open files.

use std::borrow::Cow;
use std::os::fd::AsFd;

use rustix::fs::{XattrFlags, fgetxattr, flistxattr, flistxattr_query, fremovexattr, fsetxattr};
use rustix::io::Errno;

use crate::node::Xattrs;
use crate::platform::NO_ATTRIBUTE;

/// The `user.*` attributes. A filesystem without any has none.
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
            // Gone in between.
            Err(NO_ATTRIBUTE) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(xattrs)
}

/// Makes the `user.*` attributes of a file what they should be.
pub(super) fn write(file: impl AsFd, wanted: &Xattrs, fresh: bool) -> Result<(), Errno> {
    if !fresh {
        for name in read(&file)?.keys().filter(|name| !wanted.contains_key(*name)) {
            fremovexattr(&file, name.as_slice())?;
        }
    }
    for (name, value) in wanted {
        fsetxattr(&file, name.as_slice(), value, XattrFlags::empty())?;
    }
    Ok(())
}

/// What the kernel keeps its notes about an overlay in, where it keeps them in user attributes.
const OVERLAY: &[u8] = b"user.overlay.";

/// The attributes as a layer of an overlay holds them: what would be taken for the kernel's notes gets one `overlay.`
/// more, which the kernel takes off again.
pub(super) fn escape(xattrs: &Xattrs) -> Cow<'_, Xattrs> {
    if !xattrs.keys().any(|name| name.starts_with(OVERLAY)) {
        return Cow::Borrowed(xattrs);
    }
    let escaped = |name: &[u8]| match name.strip_prefix(OVERLAY) {
        Some(rest) => [OVERLAY, b"overlay.", rest].concat(),
        None => name.to_vec(),
    };
    Cow::Owned(xattrs.iter().map(|(name, value)| (escaped(name), value.clone())).collect())
}

/// The attributes of a file in a layer of such an overlay, as whoever set them knows them. The kernel's own notes are
/// none.
pub(super) fn unescape(xattrs: Xattrs) -> Xattrs {
    let own = |name: Vec<u8>| match name.strip_prefix(OVERLAY) {
        Some(rest) => rest.strip_prefix(b"overlay.").map(|rest| [OVERLAY, rest].concat()),
        None => Some(name),
    };
    xattrs.into_iter().filter_map(|(name, value)| Some((own(name)?, value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_a_note_of_the_kernels_is_escaped_and_comes_back() {
        let names = ["user.a", "user.overlay.opaque", "user.overlay.overlay.x", "user.overlayed"];
        let xattrs: Xattrs = names.iter().map(|name| (name.as_bytes().to_vec(), b"y".to_vec())).collect();
        let escaped = escape(&xattrs).into_owned();
        let wanted =
            ["user.a", "user.overlay.overlay.opaque", "user.overlay.overlay.overlay.x", "user.overlayed"];
        assert!(wanted.iter().all(|name| escaped.contains_key(name.as_bytes())), "{escaped:?}");
        assert_eq!(unescape(escaped), xattrs);
        let kernels = Xattrs::from([(b"user.overlay.origin".to_vec(), Vec::new())]);
        assert_eq!(unescape(kernels), Xattrs::new());
    }
}
