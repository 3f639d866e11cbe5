//! Selection of the workspace provider by probing which providers work. A provider is a method of making the directory
//! of a workspace: overlay, clone (reflinked files) or copy.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use workspace_host::NamespaceHolder;
use workspace_host::overlay;
use workspace_state::platform::reflink_path;

use crate::error::Result;
use crate::provider_kind::ProviderKind;

/// Provider that the configuration requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ProviderPreference {
    /// The fastest provider that works.
    #[default]
    Auto,
    /// This provider. If it does not work, the fastest provider that works.
    Prefer(ProviderKind),
    /// The fastest provider that works and whose workspaces are plain directories: clone or copy.
    PlainDirectory,
}

/// Result of probing the providers.
#[derive(Debug, Clone)]
pub struct ProviderSelection {
    /// Provider used by default.
    pub kind: ProviderKind,
    /// Providers that cannot be used, with reasons.
    pub unavailable: Vec<(ProviderKind, String)>,
    /// Set if the requested provider does not work, and `kind` is used instead.
    pub is_fallback: bool,
}

impl ProviderSelection {
    /// Returns the reason why a provider cannot be used; `None` if it can.
    pub fn unavailable_reason(&self, kind: ProviderKind) -> Option<&str> {
        self.unavailable.iter().find(|(other, _)| *other == kind).map(|(_, reason)| reason.as_str())
    }

    /// Returns the unavailable providers that would be faster than the selected one, with reasons, the
    /// fastest first.
    pub fn unavailable_faster(&self) -> impl Iterator<Item = (ProviderKind, &str)> {
        let faster = ProviderKind::ALL.into_iter().take_while(|kind| *kind != self.kind);
        faster.filter_map(|kind| Some((kind, self.unavailable_reason(kind)?)))
    }
}

/// Probes the providers in `directory`. Selects the preferred provider if it works, else the fastest one that works. An
/// error in `holder` (the namespace holder, a process that keeps the namespaces of overlay mounts) is the reason why
/// sandboxes cannot see overlay mounts.
pub(crate) fn select_provider(
    directory: &Path,
    holder: Result<&NamespaceHolder, &str>,
    preference: ProviderPreference,
) -> Result<ProviderSelection> {
    let mut unavailable = Vec::new();
    let overlay = match holder {
        Ok(holder) => overlay::probe(holder, directory).map_err(|error| error.to_string()),
        Err(reason) => Err(reason.to_owned()),
    };
    unavailable.extend(overlay.err().map(|reason| (ProviderKind::Overlay, reason)));
    unavailable.extend(probe_reflink(directory).err().map(|reason| (ProviderKind::Clone, reason)));
    let is_available = |kind: &ProviderKind| !unavailable.iter().any(|(other, _)| other == kind);
    let fastest = ProviderKind::ALL.into_iter().find(is_available).unwrap_or(ProviderKind::Copy);
    let kind = match preference {
        ProviderPreference::Prefer(kind) if is_available(&kind) => kind,
        ProviderPreference::PlainDirectory if is_available(&ProviderKind::Clone) => ProviderKind::Clone,
        ProviderPreference::PlainDirectory => ProviderKind::Copy,
        _ => fastest,
    };
    let is_fallback = matches!(preference, ProviderPreference::Prefer(preferred) if preferred != kind);
    Ok(ProviderSelection { kind, unavailable, is_fallback })
}

/// Checks that files in a directory can be reflinked. Fails with the reason.
fn probe_reflink(directory: &Path) -> std::result::Result<(), String> {
    // The outer error is a failure to create a file, the inner one a failure of the reflink.
    let probe = || -> std::io::Result<std::result::Result<(), String>> {
        let original = directory.join(format!("trial-{}", uuid::Uuid::now_v7()));
        let copy = original.with_extension("copy");
        let cloned = File::create(&original).and_then(|mut file| {
            file.write_all(&[7; 8192])?;
            Ok(reflink_path(&original, &copy)
                .map_err(|error| format!("the filesystem cannot share blocks between files: {error}")))
        });
        for path in [&original, &copy] {
            drop(fs::remove_file(path));
        }
        cloned
    };
    probe().map_err(|error| format!("cannot write below {}: {error}", directory.display()))?
}

#[cfg(all(test, target_os = "macos"))]
mod tests {
    use super::*;
    use workspace_host::NamespaceHolder;

    #[test]
    fn clone_is_selected_where_reflinks_work_and_never_an_overlay() {
        let home = tempfile::tempdir().unwrap();
        let preference = ProviderPreference::Prefer(ProviderKind::Overlay);
        let selection = select_provider(home.path(), Ok(&NamespaceHolder::None), preference).unwrap();
        assert!(selection.unavailable_reason(ProviderKind::Overlay).unwrap().contains("only Linux"));
        let reflink = probe_reflink(home.path());
        let expected = if reflink.is_ok() { ProviderKind::Clone } else { ProviderKind::Copy };
        assert_eq!(selection.kind, expected);
        assert!(selection.is_fallback);
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
    }
}
