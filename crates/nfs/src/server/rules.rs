//! Rules of an export: its settings without its directory, which can be replaced while the rules stay.

use std::sync::Arc;

use crate::clients::ClientList;
use crate::export::{Access, Identity, MountSecret};
use crate::hooks::{DiskLimit, Gate};

/// Settings of an export: everything but its directory.
pub(crate) struct Rules {
    pub(crate) name: String,
    pub(crate) identity: Identity,
    pub(crate) access: Access,
    pub(crate) clients: ClientList,
    pub(crate) secret: Option<MountSecret>,
    pub(crate) gate: Arc<dyn Gate>,
    pub(crate) disk_limit: Arc<dyn DiskLimit>,
}
