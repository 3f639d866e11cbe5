//! The life of a sandbox: creation, supervision, expiry, removal, and recovery after a restart.

pub(crate) mod cancellable;
pub(crate) mod cleanup;
pub(crate) mod cleanup_queue;
pub(crate) mod create;
pub(crate) mod followers;
pub(crate) mod idle;
pub(crate) mod monitor;
pub(crate) mod operation;
pub(crate) mod operation_count;
pub(crate) mod operation_lock;
pub(crate) mod pause;
pub(crate) mod pause_recovery;
pub(crate) mod pause_snapshots;
pub(crate) mod pool;
pub(crate) mod project_sandboxes;
pub(crate) mod quiet_work;
pub(crate) mod recover;
pub(crate) mod remaining_work;
pub(crate) mod remove;
pub(crate) mod reservation;
pub(crate) mod resume;
pub(crate) mod work_lock;
pub(crate) mod workspace_hooks;
