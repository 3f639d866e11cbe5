//! Disk space of workspaces: creating, measuring and limiting them, and freeing space on a full disk.

pub(crate) mod deleted_file_search;
pub(crate) mod full_disk;
pub(crate) mod open_workspaces;
pub(crate) mod scan;
pub(crate) mod usage;
pub(crate) mod workspace_usage;
