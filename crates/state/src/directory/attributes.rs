//! User extended attributes of open files.

use std::os::fd::AsFd;

use rustix::fs::{XattrFlags, fgetxattr, flistxattr, flistxattr_query, fremovexattr, fsetxattr};
use rustix::io::Errno;

use crate::node::Xattrs;

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
            Err(Errno::NODATA) => {}
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
