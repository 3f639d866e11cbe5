//! Result of a merge with its conflict markers.

use workspace_merge::{
    ConflictMarkers, DiffLimits, Favor, FileMerge, Input, Style, TextMerge, UnknownStrategy, Versions,
};

use crate::args::{ConflictStyle, MergeFile};

/// A merged file with its conflict markers.
pub(super) struct MergedFile {
    pub(super) content: Vec<u8>,
    /// Number of unresolved conflicts.
    pub(super) conflicts: usize,
}

impl MergedFile {
    /// Creates the result. `conflict_sides` returns both sides, with every change merged that does not conflict; it
    /// is only called for conflicts.
    pub(super) fn new(
        args: &MergeFile,
        merged: &FileMerge,
        input: &Input<'_>,
        conflict_sides: impl FnOnce() -> Result<Option<[Vec<u8>; 2]>, UnknownStrategy>,
    ) -> Result<Self, UnknownStrategy> {
        let without_markers = |conflicts| Ok(Self { content: merged.merged.content.clone(), conflicts });
        let Some(conflict) = merged.conflict.as_ref().filter(|_| !merged.is_resolved()) else {
            return without_markers(0);
        };
        let conflict_count = conflict.locations.len().max(1);
        let Versions { base, ours, theirs } = input.versions;
        // Markers are ASCII: they would damage binary files and UTF-16.
        let can_have_markers = [ours, theirs].iter().all(|text| !text.contains(&0));
        if merged.strategy == Some("binary") || !can_have_markers {
            return without_markers(conflict_count);
        }
        // Partly merged sides have no base, so styles that show the base merge the original versions by lines.
        let sides = if style(args) == Style::Merge { conflict_sides()? } else { None };
        let three_way = || TextMerge::new(base.unwrap_or_default(), ours, theirs, DiffLimits::default());
        let text = match &sides {
            Some([ours, theirs]) => TextMerge::between(ours, theirs, DiffLimits::default()),
            None => three_way(),
        };
        let Ok(text) = text else { return without_markers(conflict_count) };
        if args.union {
            return Ok(Self { content: text.favor(Favor::Union), conflicts: 0 });
        }
        let (content, conflicts) = text.render(style(args), &conflict_markers(args));
        if conflicts > 0 {
            return Ok(Self { content, conflicts });
        }
        // The lines merge, but the values conflict or a rule requires a review: every change is shown as a conflict.
        let Ok(text) = three_way() else { return without_markers(conflict_count) };
        let (content, conflicts) = text.with_all_in_conflict().render(style(args), &conflict_markers(args));
        Ok(Self { content, conflicts: conflicts.max(1) })
    }
}

fn style(args: &MergeFile) -> Style {
    match args.style {
        _ if args.diff3 => Style::Diff3,
        _ if args.zdiff3 => Style::Zdiff3,
        ConflictStyle::Merge => Style::Merge,
        ConflictStyle::Diff3 => Style::Diff3,
        ConflictStyle::Zdiff3 => Style::Zdiff3,
    }
}

/// Returns the conflict markers; their labels are the file names by default, as in git.
pub(super) fn conflict_markers(args: &MergeFile) -> ConflictMarkers<'_> {
    let files = [&args.ours, &args.base, &args.theirs];
    let label = |index: usize| {
        let option = args.labels.get(index).map(String::as_str);
        option.unwrap_or_else(|| files[index].to_str().unwrap_or_default())
    };
    ConflictMarkers {
        ours: label(0),
        base: label(1),
        theirs: label(2),
        marker_size: usize::from(args.marker_size),
    }
}
