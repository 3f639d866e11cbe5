//! Changes of both sides relative to the base. Directories that only one side changed are read only if the merge needs
//! their entries.

use workspace_state::{StoreError, Tree, diff, diff_both};

use super::changes::SideChanges;

type Result<T> = std::result::Result<T, StoreError>;

/// Set of changed directories that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DiffDepth {
    /// All changed directories if the changes of the sides overlap, or else only those that both sides
    /// changed.
    Overlapping,
    /// All changed directories.
    Full,
}

/// Changes of both sides.
pub(super) struct BothSides<'t> {
    pub(super) ours: SideChanges<'t>,
    pub(super) theirs: SideChanges<'t>,
    /// Set if the only paths that both sides changed are entries that both edited in place. Then renames do not affect
    /// the merge, and directories that only one side changed have not been read.
    pub(super) are_disjoint: bool,
}

impl<'t> BothSides<'t> {
    /// Compares both sides with the base.
    pub(super) fn new(base: &'t Tree, [ours, theirs]: [&'t Tree; 2], depth: DiffDepth) -> Result<Self> {
        if depth == DiffDepth::Overlapping {
            let both = diff_both(base, ours, theirs)?;
            let our_changes = SideChanges::new(base, ours, both.ours.differences, both.ours.one_sided);
            let their_changes =
                SideChanges::new(base, theirs, both.theirs.differences, both.theirs.one_sided);
            if our_changes.is_disjoint_from(&their_changes) && their_changes.is_disjoint_from(&our_changes) {
                return Ok(Self { ours: our_changes, theirs: their_changes, are_disjoint: true });
            }
        }
        // Reading takes most of the time, so both sides are read in parallel.
        let (our_differences, their_differences) = std::thread::scope(|scope| {
            let their_differences = scope.spawn(|| diff(base, theirs));
            (diff(base, ours), their_differences.join())
        });
        let their_differences = their_differences.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let mut ours = SideChanges::new(base, ours, our_differences?, Vec::new());
        let mut theirs = SideChanges::new(base, theirs, their_differences, Vec::new());
        expand_moves(&mut ours, &mut theirs, depth)?;
        Ok(Self { ours, theirs, are_disjoint: false })
    }
}

/// Replaces moves of whole directories by moves of their entries where the other side has changes. With
/// [`DiffDepth::Full`], replaces all moves of directories that their side made.
fn expand_moves<'t>(
    ours: &mut SideChanges<'t>,
    theirs: &mut SideChanges<'t>,
    depth: DiffDepth,
) -> Result<()> {
    // An expanded move gives changes that may overlap with other moves, so this is repeated until nothing changes.
    loop {
        drop_equal_moves(ours, theirs);
        let expanded = ours.expand_where(|from, to| theirs.overlaps_move(from, to))?;
        if !theirs.expand_where(|from, to| depth == DiffDepth::Full || ours.overlaps_move(from, to))?
            && !expanded
        {
            return Ok(());
        }
    }
}

/// Drops moves of directories that both sides made to the same path.
fn drop_equal_moves<'t>(ours: &mut SideChanges<'t>, theirs: &mut SideChanges<'t>) {
    let equal_moves = ours.directory_moves.iter().filter(|(from, moved)| {
        theirs
            .directory_moves
            .get(*from)
            .is_some_and(|other| other.to == moved.to && other.new.node == moved.new.node)
    });
    let equal_moves: Vec<Vec<u8>> = equal_moves.map(|(from, _)| from.clone()).collect();
    for from in equal_moves {
        for side in [&mut *ours, &mut *theirs] {
            if let Some(moved) = side.directory_moves.remove(&from) {
                side.targets.remove(&moved.to);
            }
        }
    }
}
