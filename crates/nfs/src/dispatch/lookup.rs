//! LOOKUP and READLINK.

use super::encode::{put_handle, put_node, put_post_op};
use super::request::{Failure, Parent, Request, name};
use crate::volume::{Name, Node, Place, stat_at};
use crate::wire::{Decoder, Encode, Status};

/// LOOKUP
pub(super) fn lookup(
    request: &mut Request<'_>,
    arguments: &mut Decoder<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    let name = name(arguments)?;
    let parent = request.parent()?;
    match name.and_then(|name| find(request, &parent, &name)) {
        Ok(node) => {
            out.put_u32(0);
            put_handle(out, request.key(), request.volume, node.id);
            put_node(out, request.volume, &node);
            parent.put_before(out, request.volume);
        }
        Err(status) => {
            out.put_u32(status as u32);
            parent.put_before(out, request.volume);
        }
    }
    Ok(())
}

/// Finds an entry of a directory.
pub(super) fn find(request: &Request<'_>, parent: &Parent, name: &Name) -> Result<Node, Status> {
    match name {
        Name::This => request.volume.node(parent.id),
        Name::Parent => request.volume.parent(parent.id),
        Name::Entry(name) => {
            let stat = stat_at(&*parent.open, name)?;
            let (id, fileid) = request.volume.id_of(parent.id, name, &stat);
            let place = Place::Entry { parent: parent.open.clone(), name: name.as_c_str().into() };
            Ok(Node { id, fileid, stat, place })
        }
    }
}

/// READLINK
pub(super) fn readlink(
    request: &mut Request<'_>,
    _arguments: &mut Decoder<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    let node = request.volume.node(request.id)?;
    let target = match &node.place {
        Place::Entry { parent, name } => {
            rustix::fs::readlinkat(&parent.fd, &**name, Vec::new()).map_err(Status::from)
        }
        Place::Open(_) => Err(Status::Inval),
    };
    out.put_u32(target.as_ref().err().map_or(0, |status| *status as u32));
    put_post_op(out, request.volume, node.fileid, Some(&node.stat));
    if let Ok(target) = target {
        out.put_opaque(target.as_bytes());
    }
    Ok(())
}
