//! What both sides did, looked into as far as it matters.

use workspace_state::{StoreError, Tree, diff, diff_both};

use super::changes::Changes;

type Result<T> = std::result::Result<T, StoreError>;

/// What both sides did.
pub(super) struct Both<'t> {
    pub(super) ours: Changes<'t>,
    pub(super) theirs: Changes<'t>,
    /// Whether the sides have nothing to do with each other but in files that both changed where they are. No rename
    /// matters then, and directories that only one side changed have not been looked into.
    pub(super) are_apart: bool,
}

impl<'t> Both<'t> {
    /// Looks into everything if the sides are not apart, or if that is wanted.
    pub(super) fn new(base: &'t Tree, [ours, theirs]: [&'t Tree; 2], wants_everything: bool) -> Result<Self> {
        if !wants_everything {
            let both = diff_both(base, ours, theirs)?;
            let by_ours = Changes::new(base, ours, both.ours.differences, both.ours.one_sided);
            let by_theirs = Changes::new(base, theirs, both.theirs.differences, both.theirs.one_sided);
            if by_ours.is_apart_from(&by_theirs) && by_theirs.is_apart_from(&by_ours) {
                return Ok(Self { ours: by_ours, theirs: by_theirs, are_apart: true });
            }
        }
        // Most of the time goes into reading what differs: both sides are read at once.
        let (by_ours, by_theirs) = std::thread::scope(|scope| {
            let by_theirs = scope.spawn(|| diff(base, theirs));
            (diff(base, ours), by_theirs.join())
        });
        let by_theirs = by_theirs.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let mut ours = Changes::new(base, ours, by_ours?, Vec::new());
        let mut theirs = Changes::new(base, theirs, by_theirs, Vec::new());
        open_moves(&mut ours, &mut theirs, wants_everything)?;
        Ok(Self { ours, theirs, are_apart: false })
    }
}

/// Looks into directories that moved as far as both sides touched them, or into all that theirs moved.
fn open_moves<'t>(ours: &mut Changes<'t>, theirs: &mut Changes<'t>, all_of_theirs: bool) -> Result<()> {
    loop {
        forget_same_moves(ours, theirs);
        let opened = ours.open_where(|from, to| theirs.meets(from, to))?;
        if !theirs.open_where(|from, to| all_of_theirs || ours.meets(from, to))? && !opened {
            return Ok(());
        }
    }
}

/// What both sides moved to one place is there.
fn forget_same_moves<'t>(ours: &mut Changes<'t>, theirs: &mut Changes<'t>) {
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
