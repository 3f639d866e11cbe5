//! Choice of a provider, by probing what works.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use workspace_host::Holder;
use workspace_host::overlay;
use workspace_state::platform::clone_file;

use crate::error::Result;
use crate::kind::Kind;

/// Provider that the configuration requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Choice {
    /// The best provider that works.
    #[default]
    Auto,
    /// This provider, or the best one that works if it does not.
    Prefer(Kind),
}

/// Result of probing the providers.
#[derive(Debug, Clone)]
pub struct Chosen {
    /// Provider used by default.
    pub kind: Kind,
    /// Providers that cannot be used, with reasons.
    pub lacks: Vec<(Kind, String)>,
    /// Set if another provider was requested.
    pub is_fallback: bool,
}

impl Chosen {
    /// Returns the reason why a provider cannot be used; `None` if it can.
    pub fn lack(&self, kind: Kind) -> Option<&str> {
        self.lacks.iter().find(|(lacking, _)| *lacking == kind).map(|(_, reason)| reason.as_str())
    }

    /// Returns better providers that cannot be used, with reasons, the best first.
    pub fn better(&self) -> impl Iterator<Item = (Kind, &str)> {
        let better = Kind::ALL.into_iter().take_while(|kind| *kind != self.kind);
        better.filter_map(|kind| Some((kind, self.lack(kind)?)))
    }
}

/// Probes the providers in `directory`. Overlays need a holder whose mounts are visible to the sandboxes;
/// otherwise `holder` is the reason why there is none.
pub(crate) fn choose(directory: &Path, holder: Result<&Holder, &str>, choice: Choice) -> Result<Chosen> {
    let mut lacks = Vec::new();
    let overlay = match holder {
        Ok(holder) => overlay::probe(holder, directory).map_err(|error| error.to_string()),
        Err(reason) => Err(reason.to_owned()),
    };
    lacks.extend(overlay.err().map(|reason| (Kind::Overlay, reason)));
    lacks.extend(share(directory).err().map(|reason| (Kind::Clone, reason)));
    let works = |kind: &Kind| !lacks.iter().any(|(lacking, _)| lacking == kind);
    let best = Kind::ALL.into_iter().find(works).unwrap_or(Kind::Copy);
    let kind = match choice {
        Choice::Prefer(kind) if works(&kind) => kind,
        _ => best,
    };
    let is_fallback = matches!(choice, Choice::Prefer(wanted) if wanted != kind);
    Ok(Chosen { kind, lacks, is_fallback })
}

/// Checks that files in a directory can be reflinked.
fn share(directory: &Path) -> std::result::Result<(), String> {
    let made = || -> std::io::Result<std::result::Result<(), String>> {
        let trial = directory.join(format!("trial-{}", uuid::Uuid::now_v7()));
        let copy = trial.with_extension("copy");
        let tried = File::create(&trial).and_then(|mut file| {
            file.write_all(&[7; 8192])?;
            Ok(clone_file(&trial, &copy)
                .map_err(|error| format!("the filesystem cannot share blocks between files: {error}")))
        });
        for path in [&trial, &copy] {
            drop(fs::remove_file(path));
        }
        tried
    };
    made().map_err(|error| format!("cannot write below {}: {error}", directory.display()))?
}

#[cfg(all(test, target_os = "macos"))]
mod tests {
    use super::*;
    use workspace_host::Holder;

    #[test]
    fn clone_is_chosen_where_reflinks_work_and_never_an_overlay() {
        let home = tempfile::tempdir().unwrap();
        let chosen = choose(home.path(), Ok(&Holder::Machine), Choice::Prefer(Kind::Overlay)).unwrap();
        assert!(chosen.lack(Kind::Overlay).unwrap().contains("only Linux"));
        let clones = share(home.path());
        assert_eq!(chosen.kind, if clones.is_ok() { Kind::Clone } else { Kind::Copy });
        assert!(chosen.is_fallback);
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
    }
}
