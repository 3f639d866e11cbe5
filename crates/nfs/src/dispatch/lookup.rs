//! Procedures LOOKUP and READLINK of NFSv3.

use super::encode::{put_file, put_handle, put_post_op};
use super::request::{Failure, Parent, Request, decode_name};
use crate::volume::{FoundFile, Locator, Name, stat_at};
use crate::wire::{Decoder, Encode, Status};

/// LOOKUP: finds an entry of a directory by its name.
pub(super) fn lookup(
    request: &mut Request<'_>,
    arguments: &mut Decoder<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    let name = decode_name(arguments)?;
    let parent = request.parent()?;
    match name.and_then(|name| find(request, &parent, &name)) {
        Ok(file) => {
            out.put_u32(0);
            put_handle(out, request.key(), request.volume, file.id);
            put_file(out, request.volume, &file);
            parent.put_before(out, request.volume);
        }
        Err(status) => {
            out.put_u32(status as u32);
            parent.put_before(out, request.volume);
        }
    }
    Ok(())
}

/// Finds an entry of a directory, and gives its file an id in the table of file handles if it has none.
pub(super) fn find(request: &Request<'_>, parent: &Parent, name: &Name) -> Result<FoundFile, Status> {
    match name {
        Name::This => request.volume.find_file(parent.id),
        Name::Parent => request.volume.parent(parent.id),
        Name::Entry(name) => {
            let stat = stat_at(&*parent.open, name)?;
            let (id, fileid) = request.volume.id_of(parent.id, name, &stat);
            let locator = Locator::Entry { parent: parent.open.clone(), name: name.as_c_str().into() };
            Ok(FoundFile { id, fileid, stat, locator })
        }
    }
}

/// READLINK: reads the target of a symlink. Fails with INVAL for other files.
pub(super) fn readlink(
    request: &mut Request<'_>,
    _arguments: &mut Decoder<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    let file = request.volume.find_file(request.id)?;
    let target = match &file.locator {
        Locator::Entry { parent, name } => {
            rustix::fs::readlinkat(&parent.fd, &**name, Vec::new()).map_err(Status::from)
        }
        Locator::Open(_) => Err(Status::Inval),
    };
    out.put_u32(target.as_ref().err().map_or(0, |status| *status as u32));
    put_post_op(out, request.volume, file.fileid, Some(&file.stat));
    if let Ok(target) = target {
        out.put_opaque(target.as_bytes());
    }
    Ok(())
}
