//! Readiness checks for sandboxes: the runtime, the disk, and the results of the last creations.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use workspace_sandbox::{Runtime, Service};

use super::Readiness;
use crate::sandboxes::creations::Creations;
use crate::settings::{Isolation, Settings};

/// Number of consecutive failures after which the check fails. A single failure may be temporary.
const FAILURES_MIN: u32 = 2;
/// Age after which failures are ignored.
const FAILURE_AGE_MAX: Duration = Duration::from_secs(60);

/// Registers the checks `runtime`, `disk` and `sandboxes`.
pub(crate) fn add_checks(
    readiness: &Readiness,
    settings: &Settings,
    service: &Service,
    creations: &Arc<Creations>,
) {
    let (runtime, strict) = (service.runtime().clone(), settings.require_isolation == Isolation::Strict);
    readiness.add("runtime", move || check_runtime(runtime.clone(), strict));
    let disks = [&settings.workspace_root, &settings.data_dir, &settings.store_dir].map(Clone::clone);
    let reserve = settings.disk_reserve.0;
    readiness.add("disk", move || {
        let result = check_disks(&disks, reserve);
        async { result }
    });
    let creations = creations.clone();
    readiness.add("sandboxes", move || {
        let failure = creations.recent_failure(FAILURES_MIN, FAILURE_AGE_MAX);
        async {
            match failure {
                Some(message) => Err(format!("the last creations failed: {message}")),
                None => Ok("the last creations succeeded".to_owned()),
            }
        }
    });
}

/// Checks the runtime. Missing isolation features only fail the check with `REQUIRE_ISOLATION=strict`.
async fn check_runtime(runtime: Arc<dyn Runtime>, strict: bool) -> Result<String, String> {
    let name = runtime.name();
    let lacks = runtime.missing_features().await.map_err(|error| error.to_string())?;
    if strict {
        let unmet = runtime.unmet_requirements().await.map_err(|error| error.to_string())?;
        if !unmet.is_empty() {
            let hint = "REQUIRE_ISOLATION=best-effort accepts missing features";
            return Err(format!("{name}: {}; {hint}", unmet.join("; ")));
        }
    }
    let missing = if lacks.is_empty() { "nothing is missing".to_owned() } else { lacks.join("; ") };
    Ok(format!("{name}: {missing}"))
}

/// Checks that each disk has at least `DISK_RESERVE` free bytes.
fn check_disks(disks: &[PathBuf], reserve: u64) -> Result<String, String> {
    for path in disks {
        let (free, reserve) = free_and_reserve(path, reserve)
            .map_err(|error| format!("cannot read the free space: {error}"))?;
        if free < reserve {
            return Err(format!("{free} bytes are free, but {reserve} must be (DISK_RESERVE)"));
        }
    }
    Ok("enough free space".to_owned())
}

/// Returns the free bytes of a disk, and the reserve, capped at a tenth of the disk.
fn free_and_reserve(path: &Path, reserve: u64) -> std::io::Result<(u64, u64)> {
    let stat = rustix::fs::statvfs(path)?;
    let (free, all) = (stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize);
    Ok((free, reserve.min(all / 10)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_with_less_than_the_reserve_is_full() {
        let directory = tempfile::tempdir().unwrap();
        let disks = [directory.path().to_owned()];
        assert!(check_disks(&disks, 1).is_ok());
        let (free, least) = free_and_reserve(directory.path(), u64::MAX).unwrap();
        assert_eq!(check_disks(&disks, u64::MAX).is_err(), free < least);
        assert!(check_disks(&[directory.path().join("none")], 1).is_err());
    }
}
