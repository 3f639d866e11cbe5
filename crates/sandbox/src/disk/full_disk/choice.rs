//! Choice of the sandboxes that are stopped or removed on a nearly full disk.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::disk::workspace_usage::Growth;

/// Reasons why a sandbox is stopped.
const WROTE: &str = "it kept writing";
const LARGEST_USAGE: &str = "its owner uses most of the disk";

/// Disk usage of one sandbox.
#[derive(Debug, Clone, Default)]
pub(super) struct SandboxUsage {
    pub(super) id: String,
    pub(super) owner: String,
    /// Usage of its workspace. If files are short and not bytes, each file counts as a number of bytes.
    pub(super) bytes: u64,
    /// Growth of `bytes` since the disk had enough space; zero if negligible.
    pub(super) grown_bytes: u64,
    /// The same growth in both units, to be undone if the sandbox cannot be stopped; `None` if it is negligible or the
    /// sandbox does not run.
    pub(super) counted_growth: Option<Growth>,
    pub(super) is_running: bool,
    /// Set while its files are being removed: there will be space soon.
    pub(super) is_being_removed: bool,
    /// Time since it was stopped because of the disk.
    pub(super) stopped_for: Option<Duration>,
    /// Layers that its workspace uses, and the bytes of each.
    pub(super) layers: Vec<(String, u64)>,
}

impl SandboxUsage {
    /// Returns the usage of a deleted sandbox whose files are being removed.
    pub(super) fn being_removed(id: String, owner: String, bytes: u64) -> Self {
        Self { id, owner, bytes, is_being_removed: true, ..Self::default() }
    }
}

/// A step that frees space.
#[derive(Debug)]
pub(super) enum Step<'a> {
    /// A sandbox that was stopped before is removed with its workspace.
    Remove(&'a SandboxUsage),
    /// A sandbox is stopped. Its workspace stays.
    Stop { usage: &'a SandboxUsage, reason: &'static str },
}

impl<'a> Step<'a> {
    pub(super) fn usage(&self) -> &'a SandboxUsage {
        match self {
            Self::Remove(usage) | Self::Stop { usage, .. } => usage,
        }
    }
}

/// Returns the steps in the order in which they are tried, until one succeeds. Sandboxes that have grown are stopped in
/// the order of their owners' usage, the largest first, and those of one owner in the order of `all` (most growth
/// first).
///
/// `is_severe`: less than half of the reserve is free. Then every sandbox that writes may be stopped, and none is
/// stopped for its size alone. `stopped_kept` is the time for which a stopped sandbox is kept.
pub(super) fn choose(all: &[SandboxUsage], is_severe: bool, stopped_kept: Duration) -> Vec<Step<'_>> {
    let usages = usage_by_owner(all);
    // The name decides between owners with the same usage.
    let Some((top_owner, _)) = usages.iter().max_by_key(|(name, usage)| (**usage, Reverse(**name))) else {
        return Vec::new();
    };
    let of_top_owner = || all.iter().filter(|one| one.owner == *top_owner);
    let stop = |reason| move |usage| Step::Stop { usage, reason };
    let mut growing: Vec<&SandboxUsage> = all.iter().filter(|one| one.grown_bytes > 0).collect();
    growing.sort_by_key(|one| Reverse(usages.get(one.owner.as_str()).copied()));
    let mut steps = Vec::new();
    if is_severe {
        steps.extend(growing.iter().copied().map(stop(WROTE)));
    }
    let will_free_space = of_top_owner().any(|one| one.is_being_removed);
    if !will_free_space {
        let expired = of_top_owner().filter(|one| one.stopped_for.is_some_and(|time| time >= stopped_kept));
        steps.extend(expired.max_by_key(|one| one.stopped_for).map(Step::Remove));
    }
    if is_severe || growing.is_empty() {
        return steps;
    }
    if of_top_owner().any(|one| one.grown_bytes > 0) {
        steps.extend(growing.into_iter().filter(|one| one.owner == *top_owner).map(stop(WROTE)));
    } else if !will_free_space && !of_top_owner().any(|one| one.stopped_for.is_some()) {
        let mut running: Vec<&SandboxUsage> = of_top_owner().filter(|one| one.is_running).collect();
        running.sort_by_key(|one| (Reverse(one.bytes), &one.id));
        steps.extend(running.into_iter().map(stop(LARGEST_USAGE)));
    }
    steps
}

/// Returns the bytes of each owner's workspaces, and of layers that no other owner uses.
fn usage_by_owner(all: &[SandboxUsage]) -> BTreeMap<&str, u64> {
    let mut usage: BTreeMap<&str, u64> = BTreeMap::new();
    let mut layers: BTreeMap<&str, (u64, BTreeSet<&str>)> = BTreeMap::new();
    for one in all {
        *usage.entry(&one.owner).or_default() += one.bytes;
        for (name, bytes) in &one.layers {
            let (size, owners) = layers.entry(name).or_default();
            *size = *bytes;
            owners.insert(&one.owner);
        }
    }
    for (bytes, owners) in layers.values() {
        if let (Some(owner), 1) = (owners.first(), owners.len()) {
            *usage.entry(owner).or_default() += bytes;
        }
    }
    usage
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: Duration = Duration::from_secs(600);

    fn running(id: &str, owner: &str, bytes: u64, grown_bytes: u64) -> SandboxUsage {
        let (id, owner) = (id.to_owned(), owner.to_owned());
        SandboxUsage { id, owner, bytes, grown_bytes, is_running: true, ..SandboxUsage::default() }
    }

    fn stopped(id: &str, owner: &str, bytes: u64, time: Duration) -> SandboxUsage {
        SandboxUsage { is_running: false, stopped_for: Some(time), ..running(id, owner, bytes, 0) }
    }

    /// Last argument of [`chosen`]: at least half of the reserve is free.
    const MODERATE: bool = false;
    /// Last argument of [`chosen`]: less than half of the reserve is free.
    const SEVERE: bool = true;

    /// Returns the ids of the steps, with `-` before a removal.
    fn chosen(all: &[SandboxUsage], is_severe: bool) -> Vec<String> {
        let word = |step: Step<'_>| match step {
            Step::Remove(usage) => format!("-{}", usage.id),
            Step::Stop { usage, .. } => usage.id.clone(),
        };
        choose(all, is_severe, KEPT).into_iter().map(word).collect()
    }

    #[test]
    fn owner_with_the_largest_usage_is_stopped_first() {
        let all = [
            running("bob", "bob", 30, 5),
            running("small", "alice", 20, 0),
            running("large", "alice", 25, 0),
        ];
        assert_eq!(chosen(&all, MODERATE), ["large", "small"]);
        // With severe shortage, only sandboxes that write are stopped, of whichever owner.
        assert_eq!(chosen(&all, SEVERE), ["bob"]);
        let Step::Stop { reason, .. } = choose(&all, MODERATE, KEPT)[0] else { panic!("nothing is removed") };
        assert_eq!(reason, LARGEST_USAGE);
        // One that writes is stopped before a larger one.
        let all =
            [running("grew", "alice", 5, 2), running("bob", "bob", 30, 9), running("large", "alice", 40, 0)];
        assert_eq!(chosen(&all, MODERATE), ["grew"]);
        assert_eq!(chosen(&all, SEVERE), ["grew", "bob"]);
    }

    #[test]
    fn no_sandbox_is_stopped_while_none_writes() {
        let all = [running("a", "alice", 100, 0), running("b", "bob", 1, 0)];
        assert!(
            chosen(&all, MODERATE).is_empty()
                && chosen(&all, SEVERE).is_empty()
                && chosen(&[], SEVERE).is_empty()
        );
    }

    #[test]
    fn stopped_sandbox_is_kept_for_a_while_and_then_removed_first() {
        let bob = running("bob", "bob", 10, 5);
        let more = running("more", "alice", 50, 0);
        let fresh = stopped("fresh", "alice", 100, KEPT / 2);
        // No other one of hers is stopped meanwhile: that would free no space sooner.
        assert!(chosen(&[bob.clone(), more.clone(), fresh.clone()], MODERATE).is_empty());
        let all = [
            bob.clone(),
            more.clone(),
            stopped("old", "alice", 10, KEPT),
            stopped("oldest", "alice", 10, KEPT * 2),
            fresh,
        ];
        assert_eq!(chosen(&all, MODERATE), ["-oldest"]);
        assert_eq!(chosen(&all, SEVERE), ["bob", "-oldest"]);
        // Sandboxes of owners with less usage stay.
        let all = [more, stopped("other", "bob", 10, KEPT * 2)];
        assert!(chosen(&all, MODERATE).is_empty());
        // Space that is being freed is waited for.
        let being_removed = SandboxUsage::being_removed("gone".to_owned(), "alice".to_owned(), 1);
        let all = [bob, stopped("old", "alice", 100, KEPT), being_removed];
        assert!(chosen(&all, MODERATE).is_empty());
    }

    #[test]
    fn layers_count_for_their_only_owner() {
        let over = |one: SandboxUsage, layers: &[(&str, u64)]| SandboxUsage {
            layers: layers.iter().map(|(name, bytes)| ((*name).to_owned(), *bytes)).collect(),
            ..one
        };
        let all = [
            over(running("bob", "bob", 30, 0), &[("shared", 1_000)]),
            over(running("one", "alice", 5, 0), &[("shared", 1_000), ("own", 20)]),
            over(running("two", "alice", 6, 0), &[("own", 20)]),
            running("carol", "carol", 1, 1),
        ];
        let usage = usage_by_owner(&all);
        assert_eq!((usage["alice"], usage["bob"], usage["carol"]), (31, 30, 1));
        assert_eq!(chosen(&all, MODERATE), ["two", "one"]);
    }
}
