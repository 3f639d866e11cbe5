//! The changes of both sides, read as deep as needed.

use workspace_state::{StoreError, Tree, diff, diff_both};

use super::changes::Changes;

type Result<T> = std::result::Result<T, StoreError>;

/// Changes of both sides.
pub(super) struct BothSides<'t> {
    pub(super) ours: Changes<'t>,
    pub(super) theirs: Changes<'t>,
    /// Set if the sides overlap only in files that both changed in place. Renames do not matter then, and
    /// directories that only one side changed have not been read.
    pub(super) are_disjoint: bool,
}

impl<'t> BothSides<'t> {
    /// Compares both sides with the base. Reads all changed directories if the sides overlap, or if
    /// `needs_full_diff` is set.
    pub(super) fn new(base: &'t Tree, [ours, theirs]: [&'t Tree; 2], needs_full_diff: bool) -> Result<Self> {
        if !needs_full_diff {
            let both = diff_both(base, ours, theirs)?;
            let by_ours = Changes::new(base, ours, both.ours.differences, both.ours.one_sided);
            let by_theirs = Changes::new(base, theirs, both.theirs.differences, both.theirs.one_sided);
            if by_ours.is_disjoint_from(&by_theirs) && by_theirs.is_disjoint_from(&by_ours) {
                return Ok(Self { ours: by_ours, theirs: by_theirs, are_disjoint: true });
            }
        }
        // Most of the time is spent reading: both sides are read in parallel.
        let (by_ours, by_theirs) = std::thread::scope(|scope| {
            let by_theirs = scope.spawn(|| diff(base, theirs));
            (diff(base, ours), by_theirs.join())
        });
        let by_theirs = by_theirs.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let mut ours = Changes::new(base, ours, by_ours?, Vec::new());
        let mut theirs = Changes::new(base, theirs, by_theirs, Vec::new());
        expand_moves(&mut ours, &mut theirs, needs_full_diff)?;
        Ok(Self { ours, theirs, are_disjoint: false })
    }
}

/// Replaces moves of directories by moves of their entries if the other side changed something there; all
/// moves by theirs if `all_of_theirs` is set.
fn expand_moves<'t>(ours: &mut Changes<'t>, theirs: &mut Changes<'t>, all_of_theirs: bool) -> Result<()> {
    loop {
        drop_equal_moves(ours, theirs);
        let opened = ours.expand_where(|from, to| theirs.overlaps_move(from, to))?;
        if !theirs.expand_where(|from, to| all_of_theirs || ours.overlaps_move(from, to))? && !opened {
            return Ok(());
        }
    }
}

/// Drops moves that both sides made alike.
fn drop_equal_moves<'t>(ours: &mut Changes<'t>, theirs: &mut Changes<'t>) {
    let same = ours.moved.iter().filter(|(from, moved)| {
        theirs.moved.get(*from).is_some_and(|other| other.to == moved.to && other.new.node == moved.new.node)
    });
    let same: Vec<Vec<u8>> = same.map(|(from, _)| from.clone()).collect();
    for from in same {
        for side in [&mut *ours, &mut *theirs] {
            if let Some(moved) = side.moved.remove(&from) {
                side.targets.remove(&moved.to);
            }
        }
    }
}
