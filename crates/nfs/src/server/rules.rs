//! Rules of an export.

use std::sync::Arc;

use crate::clients::ClientList;
use crate::export::{Access, Identity, MountSecret};
use crate::hooks::{DiskLimit, Gate};

/// All of an export but its directory.
pub(crate) struct Rules {
    pub(crate) name: String,
    pub(crate) identity: Identity,
    pub(crate) access: Access,
    pub(crate) clients: ClientList,
    pub(crate) secret: Option<MountSecret>,
    pub(crate) gate: Arc<dyn Gate>,
    pub(crate) disk_limit: Arc<dyn DiskLimit>,
}
