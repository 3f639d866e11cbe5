//! All tasks of helpers, by name.

use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use serde::de::DeserializeOwned;

use super::protocol::json;
use crate::error::{Doing as _, HostError, Result};
use crate::mount::overlay::task as overlay;
use crate::mount::{attach, privileged_files, swap};
use crate::namespace::holder;
use crate::network::connect;
use crate::resources::disk_usage;
use crate::sandbox::{host_view, launch, probe, workspace_users};

/// What a helper does.
pub(super) fn run(name: &str, mut asked: &UnixStream, descriptors: Vec<OwnedFd>) -> Result<Vec<u8>> {
    match name {
        "launch" => {
            read(&mut asked).and_then(|order| launch::run(&order, descriptors)).and_then(|made| json(&made))
        }
        "hold" => read::<std::path::PathBuf>(&mut asked)
            .and_then(|path| holder::run(&path))
            .and_then(|held| json(&held)),
        "attach" => read(&mut asked).and_then(|order| attach::run(&order)).and_then(|()| json(&())),
        "swap" => read(&mut asked).and_then(|order| swap::run(&order)).and_then(|()| json(&())),
        "settle" => read(&mut asked).and_then(|order| swap::run_settle(&order)).and_then(|new| json(&new)),
        "users" => {
            read(&mut asked).and_then(|order| workspace_users::run(&order)).and_then(|users| json(&users))
        }
        "deleted" => read(&mut asked)
            .and_then(|order| workspace_users::deleted_here(&order))
            .and_then(|all| json(&all)),
        "rights" => read(&mut asked)
            .and_then(|holder| privileged_files::run(&holder, &descriptors))
            .and_then(|()| json(&())),
        "measure" => {
            read(&mut asked).and_then(|order| disk_usage::run(&order)).and_then(|usage| json(&usage))
        }
        "connect" => read(&mut asked).and_then(|order| connect::run(&order)).and_then(|()| json(&())),
        "overlay" => read(&mut asked).and_then(|order| overlay::run(&order)).and_then(|done| json(&done)),
        "host-view" => read(&mut asked)
            .and_then(|order| host_view::run(&order, descriptors))
            .and_then(|launched| json(&launched)),
        "probe" => read(&mut asked).and_then(|holder| probe::run(&holder)).and_then(|can| json(&can)),
        _ => Err(HostError::Helper("unknown task".to_owned())),
    }
}

fn read<T: DeserializeOwned>(asked: &mut &UnixStream) -> Result<T> {
    let mut text = Vec::new();
    asked.read_to_end(&mut text).doing("read what to do")?;
    serde_json::from_slice(&text).map_err(|error| HostError::Helper(format!("unreadable order: {error}")))
}
