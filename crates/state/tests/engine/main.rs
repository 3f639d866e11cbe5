//! Tests of the public interface of the state engine, with stores and directories on disk.

mod child;
mod crash;
mod crash_machine;
mod damage;
mod directory;
mod disk_full;
mod episode;
mod failures;
mod format;
mod gc;
mod history;
mod hostile;
mod preview;
mod race;
mod repair;
mod roots;
mod stopped;
mod support;
mod unsettled_rows;
mod virtual_tree;
mod walk_limits;
