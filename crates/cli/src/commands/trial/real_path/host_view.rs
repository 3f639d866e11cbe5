//! View that the program has of the host: all files read-only, except writable overlays and hidden paths.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use workspace_host::NamespaceHolder;
use workspace_host::overlay;
use workspace_host::read_only_host::{Mount, can_omit_mounts};
use workspace_state::quote_path;

use super::git::Repository;
use super::secrets::{SecretSearch, Secrets, account_home, hidden_variables, hides_variable};
use super::trial_dir::{OverlayDirs, TrialDir};
use crate::args::Try;
use crate::error::{CommandError, Result};
use crate::remote::local_server_data_dir;
use crate::text::print_stderr;

/// Directories that are private to the program. Paths below them are only visible if they are mounted.
const PRIVATE_DIRS: [&str; 4] = ["/tmp", "/var/tmp", "/run", "/var/run"];

/// View that the program has of the host.
pub(super) struct HostView {
    /// Mounts over the read-only root, outer ones first.
    pub(super) mounts: Vec<Mount>,
    /// Hidden paths in the home directory. The mounts in them are detached before the home directory becomes the lower
    /// directory of an overlay, because the kernel accepts no lower directory with mounts in it.
    pub(super) omitted_mounts: Vec<PathBuf>,
    /// Upper directories whose changes are never kept, each with its description in messages.
    pub(super) dropped: Vec<(PathBuf, String)>,
}

/// Returns `HOME`, and all home directories of this user: `HOME` and that of the account in `/etc/passwd`. Symlinks are
/// resolved. The root directory does not count as a home directory.
pub(super) fn homes() -> (Option<PathBuf>, Vec<PathBuf>) {
    let usable = |path: PathBuf| {
        let path = fs::canonicalize(path).ok()?;
        (path.is_dir() && path.parent().is_some()).then_some(path)
    };
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|path| path.is_absolute()).and_then(usable);
    let account = account_home(rustix::process::geteuid().as_raw()).and_then(usable);
    let mut all: Vec<PathBuf> = home.iter().cloned().chain(account).collect();
    all.dedup();
    (home, all)
}

/// Finds the paths to hide, with those of `--hide` and without those of `--show`. For `--list-hidden`, also prints the
/// names of the hidden environment variables. `store` is the path of the user's store, which is hidden, too.
pub(super) fn find_secrets(args: &Try, homes: &[PathBuf], store: Option<PathBuf>) -> Result<Secrets> {
    for path in args.show.iter().chain(&args.hide) {
        if fs::symlink_metadata(path).is_err() {
            return Err(CommandError::usage(format!("{} does not exist", path.display()))
                .hint("`--list-hidden` lists the hidden paths; specify one that exists"));
        }
    }
    let own_data: Vec<PathBuf> = local_server_data_dir().into_iter().chain(store).collect();
    // The target directory and the home directory are overlays. A socket of the machine is not reachable through an
    // overlay, so it needs no mount to hide it there.
    let directory = fs::canonicalize(&args.dir).ok();
    let overlays = directory.iter().chain(homes.first()).cloned();
    let without_sockets: Vec<PathBuf> = overlays.chain(private_dirs()).collect();
    let search = SecretSearch {
        homes,
        own_data: &own_data,
        directory: directory.as_deref(),
        without_sockets: &without_sockets,
    };
    let secrets = Secrets::find(&search, &args.show, &args.hide);
    if args.list_hidden {
        let names: Vec<String> = hidden_variables()
            .into_iter()
            .filter(|name| !args.envs.iter().any(|(option, _)| option == name))
            .collect();
        if !names.is_empty() {
            let names: Vec<_> = names.iter().map(|name| quote_path(name.as_bytes())).collect();
            print_stderr(&format!("note: these environment variables are hidden: {}", names.join(" ")));
        }
    }
    Ok(secrets)
}

fn private_dirs() -> impl Iterator<Item = PathBuf> {
    PRIVATE_DIRS.iter().filter_map(|it| fs::canonicalize(it).ok())
}

/// Creates the view of the host, and the directories for its overlays. `directory` is the target directory.
pub(super) fn create_host_view(
    trial_dir: &mut TrialDir,
    directory: &Path,
    home: Option<&Path>,
    secrets: &Secrets,
) -> Result<HostView> {
    let mounts_inside = overlay::mounted(&NamespaceHolder::None, directory).unwrap_or_default();
    if let Some(other) = mounts_inside.first() {
        return Err(CommandError::failed(format!(
            "{} is a mount inside {}, so a trial on it is not possible",
            other.display(),
            directory.display()
        ))
        .hint("specify a directory without mounts: `--dir DIR`")
        .hint("`workspace try --template base -- …` works on a copy at /workspace instead"));
    }
    let mut mounts: Vec<Mount> = Vec::new();
    let (mut dropped, mut omitted_mounts) = (Vec::new(), Vec::new());
    for path in secrets.hidden.difference(&secrets.sockets) {
        if path == directory {
            print_stderr(&format!(
                "note: {} is hidden by default, but visible because the trial is on it",
                path.display()
            ));
        }
        mounts.push(Mount::Hide(path.clone().into_os_string()));
    }
    for path in &secrets.shown {
        mounts.push(Mount::Show(path.clone().into_os_string()));
    }
    // The program must not see the upper directories of its overlays.
    if let Some(parent) = trial_dir.path.parent() {
        mounts.push(Mount::Hide(parent.as_os_str().to_owned()));
    }
    let mut writable = vec![directory.to_owned()];
    if let Some(home) = home.filter(|home| !home.starts_with(directory)) {
        match home_overlay(trial_dir, home, directory, secrets)? {
            Some(HomeOverlay { dirs, omitted_mounts: omitted }) => {
                omitted_mounts = omitted;
                dropped.push((dirs.upper.clone(), "your home directory".to_owned()));
                mounts.push(overlay_at(home, dirs));
                writable.push(home.to_owned());
            }
            None => mounts.push(Mount::Show(home.as_os_str().to_owned())),
        }
    }
    let repository =
        Repository::around(directory).filter(|it| !secrets.hides(&it.git) && !secrets.hides(&it.top));
    if let Some(Repository { top, git }) = repository {
        let is_private = |path: &Path| private_dirs().any(|it| path.starts_with(it));
        let is_writable = |path: &Path| writable.iter().any(|it| path.starts_with(it));
        for path in [&top, &git] {
            // Outside of the private directories, all paths are visible anyway.
            if is_private(path) && path != directory && !is_writable(path) {
                mounts.push(Mount::Show(path.clone().into_os_string()));
            }
        }
        let mounted = overlay::mounted(&NamespaceHolder::None, &git).unwrap_or_default();
        if !is_writable(&git) && !directory.starts_with(&git) && mounted.is_empty() {
            let dirs = trial_dir.create_git_dirs(&git)?;
            dropped.push((dirs.upper.clone(), format!("the repository {}", git.display())));
            mounts.push(overlay_at(&git, dirs));
        }
    }
    mounts.push(overlay_at(directory, trial_dir.create_target_dirs(directory)?));
    hide_sockets(&mut mounts, secrets);
    // Inner mounts come after outer ones; at the same path the last one wins.
    mounts.sort_by_key(|mount| mount.path().components().count());
    Ok(HostView { mounts, omitted_mounts, dropped })
}

/// Adds mounts that hide the sockets to which the program could connect: those in read-only mounts. To sockets in
/// overlays it cannot connect.
fn hide_sockets(mounts: &mut Vec<Mount>, secrets: &Secrets) {
    let private_dirs: Vec<PathBuf> = private_dirs().collect();
    let (mut overlays, mut shown) = (Vec::new(), Vec::new());
    for mount in &*mounts {
        match mount {
            Mount::Overlay { .. } => overlays.push(mount.path()),
            Mount::Show(_) => shown.push(mount.path()),
            Mount::Hide(_) => {}
        }
    }
    let is_in = |path: &Path, all: &[PathBuf]| all.iter().any(|it| path.starts_with(it));
    let reachable = secrets
        .sockets
        .iter()
        .filter(|path| !is_in(path, &overlays) && (!is_in(path, &private_dirs) || is_in(path, &shown)));
    mounts.extend(reachable.map(|path| Mount::Hide(path.clone().into_os_string())));
}

fn overlay_at(path: &Path, dirs: OverlayDirs) -> Mount {
    Mount::Overlay { at: path.into(), upper: dirs.upper.into_os_string(), work: dirs.work.into_os_string() }
}

/// Overlay over the home directory.
struct HomeOverlay {
    dirs: OverlayDirs,
    /// See [`HostView::omitted_mounts`].
    omitted_mounts: Vec<PathBuf>,
}

/// Creates the directories of the overlay over the home directory. Prints a note and returns `None` if no overlay is
/// possible, so that the home directory is read-only for the program.
fn home_overlay(
    trial_dir: &mut TrialDir,
    home: &Path,
    directory: &Path,
    secrets: &Secrets,
) -> Result<Option<HomeOverlay>> {
    let mounts = overlay::mounted(&NamespaceHolder::None, home).unwrap_or_default();
    let needed = [home, directory, trial_dir.path.as_path()];
    let omitted_mounts =
        if can_omit_mounts() { hidden_paths_with_mounts(&mounts, secrets, &needed) } else { Vec::new() };
    let is_omitted = |mount: &PathBuf| omitted_mounts.iter().any(|path| mount.starts_with(path));
    if let Some(other) = mounts.iter().find(|mount| !is_omitted(mount)) {
        print_stderr(&format!(
            "note: your home directory is read-only, because {} is mounted in it",
            other.display()
        ));
        return Ok(None);
    }
    let dirs = trial_dir.create_home_dirs(home, directory)?;
    if dirs.is_none() {
        print_stderr(
            "note: your home directory is read-only, because there is no directory outside it for changes; set TMPDIR to one",
        );
    }
    Ok(dirs.map(|dirs| HomeOverlay { dirs, omitted_mounts }))
}

/// Returns the hidden paths that contain one of `mounts`, but no path that is needed or visible.
fn hidden_paths_with_mounts(mounts: &[PathBuf], secrets: &Secrets, needed: &[&Path]) -> Vec<PathBuf> {
    let has_mounts = |hidden: &&PathBuf| mounts.iter().any(|mount| mount.starts_with(hidden));
    let is_unneeded = |hidden: &&PathBuf| {
        let mut others = needed.iter().copied().chain(secrets.shown.iter().map(PathBuf::as_path));
        !others.any(|path| path.starts_with(hidden))
    };
    let hidden = secrets.hidden.difference(&secrets.sockets);
    hidden.filter(has_mounts).filter(is_unneeded).cloned().collect()
}

/// Returns the environment of the program: that of this process without secrets, and the variables of `--env`.
pub(super) fn environment(args: &Try, cwd: &Path) -> Vec<(OsString, OsString)> {
    let mut all: Vec<(OsString, OsString)> = std::env::vars_os()
        .filter(|(name, value)| !hides_variable(&name.to_string_lossy(), &value.to_string_lossy()))
        .filter(|(name, _)| {
            name != "PWD" && name != "OLDPWD" && !args.envs.iter().any(|(option, _)| name == option.as_str())
        })
        .collect();
    // The overlay over the target directory is a separate filesystem, and git would not search for the repository in
    // its parent directories.
    const DISCOVERY_VARIABLE: &str = "GIT_DISCOVERY_ACROSS_FILESYSTEM";
    if !all.iter().any(|(name, _)| name == DISCOVERY_VARIABLE) {
        all.push((DISCOVERY_VARIABLE.into(), "1".into()));
    }
    all.push(("PWD".into(), cwd.into()));
    all.extend(args.envs.iter().map(|(name, value)| (name.into(), value.into())));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_left_out_below_hidden_paths_without_visible_ones() {
        let paths = |all: &[&str]| all.iter().map(PathBuf::from).collect::<Vec<_>>();
        let secrets = Secrets {
            hidden: paths(&["/home", "/home/a/data", "/home/a/.ssh", "/home/a/kept", "/home/a/cache"])
                .into_iter()
                .collect(),
            shown: paths(&["/home/a", "/home/a/kept/shown"]).into_iter().collect(),
            ..Secrets::default()
        };
        let mounts =
            paths(&["/home/a/data/x", "/home/a/data/y", "/home/a/kept", "/home/a/cache", "/home/a/mnt"]);
        let needed = [Path::new("/home/a"), Path::new("/home/a/cache/try")];
        assert_eq!(hidden_paths_with_mounts(&mounts, &secrets, &needed), paths(&["/home/a/data"]));
    }
}
