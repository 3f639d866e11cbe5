//! Procedures of MOUNT v3. The path to mount is `/NAME` for an export without a secret, or `/NAME.SECRET`, and may go
//! on with directories below the export.
//!
//! A *volume* is the directory of an export with the table of its file handles; an export can be without one for a
//! while.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::caller::{Caller, enter_export};
use super::lookup;
use super::request::{Failure, Parent};
use crate::hooks::{MountEvent, Refusal, RefusalReason};
use crate::operation::Operation;
use crate::server::{Found, Rules, VolumeInUse};
use crate::table::{FileId, ROOT};
use crate::volume::Name;
use crate::wire::{Decoder, Encode, MountStatus, Status};

/// Maximum length of a path in the protocol, in bytes.
const PATH_MAX: usize = 1024;

/// Authentication flavors in the reply to MNT: AUTH_UNIX and AUTH_NONE.
const FLAVORS: [u32; 2] = [1, 0];

impl From<Status> for MountStatus {
    fn from(status: Status) -> Self {
        match status {
            Status::NoEnt | Status::Stale => Self::NoEnt,
            Status::Access | Status::Perm => Self::Access,
            Status::NotDir => Self::NotDir,
            Status::Inval => Self::Inval,
            Status::NameTooLong => Self::NameTooLong,
            Status::Io => Self::Io,
            _ => Self::ServerFault,
        }
    }
}

/// Executes a procedure of MOUNT. Returns the status of a failed MNT; `None` after success. The other procedures cannot
/// fail.
pub(super) fn execute(
    caller: &mut Caller<'_>,
    operation: Operation,
    arguments: &mut Decoder<'_>,
    out: &mut Vec<u8>,
) -> Result<Option<MountStatus>, Failure> {
    match operation {
        Operation::Mnt => {
            let path = arguments.opaque(PATH_MAX)?;
            return Ok(mnt(caller, path, out));
        }
        Operation::Umnt => umnt(caller, arguments.opaque(PATH_MAX)?),
        Operation::UmntAll => umnt_all(caller),
        Operation::Dump => dump(caller, out),
        Operation::Export => export(caller, out),
        // The null procedure.
        _ => {}
    }
    Ok(None)
}

/// Executes MNT, and writes its result. Returns the status of a failure.
fn mnt(caller: &mut Caller<'_>, path: &[u8], out: &mut Vec<u8>) -> Option<MountStatus> {
    let start = out.len();
    match mount(caller, path, out) {
        Ok(()) => None,
        Err(status) => {
            out.truncate(start);
            out.put_u32(status as u32);
            Some(status)
        }
    }
}

/// Checks that the client may mount a path, and writes the successful result of MNT: the handle of the directory, which
/// is the root of an export or a directory below.
fn mount(caller: &mut Caller<'_>, path: &[u8], out: &mut Vec<u8>) -> Result<(), MountStatus> {
    let (first, below) = split(path);
    let rules = check(caller, first)?;
    let ((volume, _), _access) =
        enter_export(caller, |caller| match caller.context.registry.by_name(&rules.name) {
            Found::Volume(volume) => Ok((volume, ROOT)),
            Found::Detached => Err(MountStatus::ServerFault),
            Found::Nothing => Err(MountStatus::NoEnt),
        })?;
    caller.used_export.set(volume.generation());
    let id = walk(caller, &volume, &below)?;
    out.put_u32(0);
    super::encode::put_handle(out, &caller.context.key, &volume, id);
    out.put_u32(FLAVORS.len() as u32);
    FLAVORS.iter().for_each(|flavor| out.put_u32(*flavor));
    if caller.context.mounts.add(caller.client.ip(), &rules.name) {
        caller.context.observer.mounted(MountEvent { client: caller.client, export: &rules.name });
    }
    Ok(())
}

/// Splits a path into its first component and the others.
fn split(path: &[u8]) -> (&[u8], Vec<&[u8]>) {
    let mut components = path.split(|byte| *byte == b'/').filter(|it| !it.is_empty());
    (components.next().unwrap_or_default(), components.collect())
}

/// Returns the rules of the export that a client wants to mount. `first` is the first component of the path: the name,
/// and the secret if there is one. Fails if the secret is wrong or the client's address is not allowed. Without the
/// secret, the client gets the same status as for an unknown export, so it does not learn that the export exists.
fn check(caller: &Caller<'_>, first: &[u8]) -> Result<Arc<Rules>, MountStatus> {
    let mut parts = first.splitn(2, |byte| *byte == b'.');
    let name = String::from_utf8_lossy(parts.next().unwrap_or_default());
    let secret = parts.next();
    let refuse = |reason, status| {
        caller.context.observer.refused(Refusal { client: caller.client, export: Some(&name), reason });
        Err(status)
    };
    // An export of an earlier server that was not added again yet counts as unknown, because its secret is not known.
    let Some(rules) = caller.context.registry.rules(&name) else {
        return refuse(RefusalReason::UnknownExport, MountStatus::NoEnt);
    };
    match (&rules.secret, secret) {
        (None, None) => {}
        (Some(secret), Some(given)) if secret.matches(given) => {}
        (Some(_), _) => return refuse(RefusalReason::Secret, MountStatus::NoEnt),
        (None, Some(_)) => return refuse(RefusalReason::UnknownExport, MountStatus::NoEnt),
    }
    if !rules.clients.contains(caller.client.ip()) {
        return refuse(RefusalReason::Address, MountStatus::Access);
    }
    Ok(rules)
}

/// Looks up a directory by its path components below the root, and returns its id in the table.
fn walk(caller: &mut Caller<'_>, volume: &VolumeInUse, below: &[&[u8]]) -> Result<FileId, Status> {
    let found = caller.with_request(volume, ROOT, |request| {
        for name in below {
            let name = Name::parse(name)?;
            let parent: Parent = request.parent()?;
            let file = lookup::find(request, &parent, &name)?;
            if !file.stat.is_directory() {
                return Err(Status::NotDir);
            }
            request.id = file.id;
        }
        Ok(request.id)
    });
    volume.save_handles();
    found
}

/// Executes UMNT: removes a mount of the client from the list of mounts.
fn umnt(caller: &Caller<'_>, path: &[u8]) {
    let (first, _) = split(path);
    let name = String::from_utf8_lossy(first.split(|byte| *byte == b'.').next().unwrap_or_default());
    if caller.context.mounts.remove(caller.client.ip(), &name) {
        caller.context.observer.unmounted(MountEvent { client: caller.client, export: &name });
    }
}

/// Executes UMNTALL: removes all mounts of the client from the list of mounts.
fn umnt_all(caller: &Caller<'_>) {
    for export in caller.context.mounts.remove_client(caller.client.ip()) {
        caller.context.observer.unmounted(MountEvent { client: caller.client, export: &export });
    }
}

/// Executes DUMP: writes the mounts of this client only, so that it learns nothing of other clients.
fn dump(caller: &Caller<'_>, out: &mut Vec<u8>) {
    let client = caller.client.ip().to_canonical().to_string();
    for export in caller.context.mounts.of_client(caller.client.ip()) {
        out.put_bool(true);
        out.put_opaque(client.as_bytes());
        out.put_opaque(format!("/{export}").as_bytes());
    }
    out.put_bool(false);
}

/// Executes EXPORT: writes the exports that this client may mount without a secret.
fn export(caller: &Caller<'_>, out: &mut Vec<u8>) {
    let exports = caller.context.registry.all();
    let is_public =
        |rules: &&Arc<Rules>| rules.secret.is_none() && rules.clients.contains(caller.client.ip());
    for rules in exports.iter().filter(is_public) {
        out.put_bool(true);
        out.put_opaque(format!("/{}", rules.name).as_bytes());
        let groups: BTreeSet<String> = rules.clients.groups().into_iter().collect();
        for group in groups {
            out.put_bool(true);
            out.put_opaque(group.as_bytes());
        }
        out.put_bool(false);
    }
    out.put_bool(false);
}
