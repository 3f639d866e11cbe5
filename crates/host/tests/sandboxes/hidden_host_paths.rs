//! Properties of the host that a sandbox must not learn.
//!
//! `Fixture` (`guest.rs`) has the directories of one sandbox and launches it; `Sandbox::sh` runs a shell command in it
//! and returns the output.

use std::fs;

use libtest_mimic::Trial;
use workspace_host::launch::Template;
use workspace_host::overlay::{self, Overlay, Upper};

use crate::guest::Fixture;

pub(crate) fn trials() -> Vec<Trial> {
    crate::trials![mountinfo_does_not_reveal_paths_of_the_host]
}

const MOUNTS: &str = "cat /proc/self/mountinfo /proc/self/mounts /proc/self/mountstats /proc/1/mountinfo";

fn mountinfo_does_not_reveal_paths_of_the_host() {
    for has_template in [false, true] {
        let home = Fixture::new();
        let path = |name: &str| home.path(name);
        for name in ["lower", "upper", "work"] {
            fs::create_dir(path(name)).unwrap();
        }
        let (lower, upper, work, at) = ([path("lower")], path("upper"), path("work"), path("workspace"));
        overlay::mount(
            &home.holder,
            &Overlay {
                lower: &lower,
                upper: Some(Upper { directory: &upper, work: &work }),
                mount_point: &at,
                idmap_uid: None,
            },
        )
        .unwrap();
        let template =
            if has_template { Template::Directory(crate::template::template(&home)) } else { Template::Base };
        let sandbox = home.launch(|launch| launch.template = template);
        let mounts = sandbox.sh(MOUNTS);
        assert!(mounts.contains(" /workspace "), "{mounts}");
        let directory = home.path("").file_name().unwrap().to_str().unwrap().to_owned();
        let told: Vec<&str> = mounts.lines().filter(|line| line.contains(&directory)).collect();
        assert!(told.is_empty(), "{told:#?}");
        drop(sandbox);
        overlay::unmount(&home.holder, &at).unwrap();
    }
}
