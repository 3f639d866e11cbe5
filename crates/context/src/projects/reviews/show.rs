//! Details of a review (a conflict that waits for a decision) for its reviewer: all versions, the merge strategies that
//! would combine them, and the operations (changes of the project) that led to the conflict.

use workspace_catalog::{Completion, Operation, Project, Review};
use workspace_merge::{FileSettings, Input, Strategies, Versions, merge_file};
use workspace_state::{Node, SnapshotId, Store, quote_path};

use super::ReviewEntry;
use super::apply::{TheirsChoice, theirs_choice};
use super::data::{ReviewData, snapshots};
use super::sides::{EntryInTree, ReviewSide, ReviewVersion, VersionLocation};
use crate::projects::error::Result;
use crate::projects::{Projects, blocking};

/// Maximum size in bytes of a file for which all merge strategies are tried.
const STRATEGY_TRIAL_SIZE_MAX: u64 = 256 << 10;

/// Review with its versions, and the changes that led to them.
#[derive(Debug, Clone, PartialEq)]
pub struct ReviewDetails {
    /// Review, and the names of its reviewers.
    pub entry: ReviewEntry,
    /// Stored details: regions, reason, and the snapshots of the versions.
    pub data: ReviewData,
    /// Version that the agent started from.
    pub base: ReviewVersion,
    /// Version that the head had when the review was opened.
    pub ours_at_opening: ReviewVersion,
    /// Version of the agent.
    pub theirs: ReviewVersion,
    /// Version of the present head.
    pub head: ReviewVersion,
    /// Sequence of the present head.
    pub sequence: i64,
    /// Result of taking the version of the agent; `None` if it cannot be taken.
    pub theirs_choice: Option<TheirsChoice>,
    /// Merge strategies that combine the present head and the version of the agent without a conflict.
    pub strategies: Vec<StrategyChoice>,
    /// Completion that caused the review; `None` if none did.
    pub completion: Option<Completion>,
    /// Operation that last changed the path before the review was opened; `None` if the path has no history.
    pub ours_operation: Option<Operation>,
    /// Snapshots between which the agent made its change.
    pub theirs_range: (SnapshotId, SnapshotId),
    /// Snapshots between which an agent made the changes that `ours_operation` merged; `None` if it is no merge.
    pub ours_range: Option<(SnapshotId, SnapshotId)>,
}

/// Merge strategy that resolves a review.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StrategyChoice {
    /// Name of the strategy.
    pub name: &'static str,
    /// Size of the merged file in bytes.
    pub size: u64,
}

impl Projects {
    /// Returns a review with all versions.
    pub async fn review_details(&self, project: &Project, id: &str) -> Result<ReviewDetails> {
        let review = self.review(project, id).await?;
        let data = ReviewData::parse(&review.opened.data)?;
        let theirs_range = snapshots(&data)?;
        let mut locations = Vec::with_capacity(4);
        for side in [ReviewSide::Base, ReviewSide::Ours, ReviewSide::Theirs, ReviewSide::Head] {
            locations.push(self.version_location(project, &review, side).await?);
        }
        let settings = self.policy(project).await?.for_agent(&review.opened.author);
        let settings = settings.conflict_settings(&review.opened.path);
        let (store, path, file_settings) = (self.store.clone(), review.opened.path.clone(), settings.file);
        let ([base, ours, theirs, head], strategies) =
            blocking(move || read_versions(&store, &locations, &path, &file_settings)).await?;
        let completion = match &review.opened.completion {
            Some(id) => self.catalog.completions().find(&project.id, id).await?,
            None => None,
        };
        let ours_operation = self.last_change(project, &review, data.sequence).await?;
        let ours_range = self.range_of(project, ours_operation.as_ref()).await?;
        Ok(ReviewDetails {
            theirs_choice: theirs_choice(&review.opened.class, head.entry.as_ref(), theirs.entry.as_ref()),
            entry: ReviewEntry { stored: review, reviewers: settings.reviewers },
            data,
            base,
            ours_at_opening: ours,
            theirs,
            head,
            sequence: project.sequence,
            strategies,
            completion,
            ours_operation,
            theirs_range,
            ours_range,
        })
    }

    /// Returns the operation that last changed the path of a review before the review was opened. `sequence` is the
    /// sequence of the head at that time.
    async fn last_change(
        &self,
        project: &Project,
        review: &Review,
        sequence: i64,
    ) -> Result<Option<Operation>> {
        let (versions, path) = (self.catalog.file_versions(), &review.opened.path);
        let found = versions.of_path(&project.id, path, Some(sequence + 1), 1).await?;
        match found.first() {
            Some(version) => Ok(self.catalog.operations().find(&project.id, version.sequence).await?),
            None => Ok(None),
        }
    }

    /// Returns the snapshots between which an agent made the changes that an operation merged; `None` if the operation
    /// is no merge of a completion.
    async fn range_of(
        &self,
        project: &Project,
        operation: Option<&Operation>,
    ) -> Result<Option<(SnapshotId, SnapshotId)>> {
        let Some(id) = operation.and_then(|operation| operation.completion.as_ref()) else { return Ok(None) };
        let Some(completion) = self.catalog.completions().find(&project.id, id).await? else {
            return Ok(None);
        };
        let new = completion.completion;
        let (base, theirs) = (&new.base_snapshot, &new.theirs_snapshot);
        Ok(Some((crate::projects::parse_snapshot(base)?, crate::projects::parse_snapshot(theirs)?)))
    }
}

/// Reads the versions in the order base, ours, theirs, head, and tries the merge strategies.
fn read_versions(
    store: &Store,
    locations: &[Option<VersionLocation>],
    path: &[u8],
    settings: &FileSettings,
) -> Result<([ReviewVersion; 4], Vec<StrategyChoice>)> {
    let location = |index: usize| locations.get(index).and_then(Option::as_ref);
    let read = |index| ReviewVersion::read(store, location(index), path);
    let versions = [read(0)?, read(1)?, read(2)?, read(3)?];
    let strategies = match small_files(store, [location(0), location(3), location(2)])? {
        Some([base, head, theirs]) => {
            let (Some(head), Some(theirs)) = (head, theirs) else { return Ok((versions, Vec::new())) };
            let contents = Versions { base: base.as_deref(), ours: &head, theirs: &theirs };
            clean_strategies(&quote_path(path), contents, settings)
        }
        None => Vec::new(),
    };
    Ok((versions, strategies))
}

/// Returns the contents of three versions, each `None` if the version has no entry. Returns `None` if a version is no
/// file, or is too large.
fn small_files(
    store: &Store,
    locations: [Option<&VersionLocation>; 3],
) -> Result<Option<[Option<Vec<u8>>; 3]>> {
    let mut contents = [None, None, None];
    for (content, location) in contents.iter_mut().zip(locations) {
        let Some(location) = location else { continue };
        let EntryInTree { tree, entry } = location.open(store)?;
        match entry.map(|entry| entry.node) {
            None => {}
            Some(Node::File(file)) if file.size() <= STRATEGY_TRIAL_SIZE_MAX => {
                *content = Some(tree.read(&file)?);
            }
            Some(_) => return Ok(None),
        }
    }
    Ok(Some(contents))
}

/// Returns the strategies that merge versions of a file without a conflict. `settings` are the settings of the file;
/// its own strategy is ignored.
fn clean_strategies(path: &str, versions: Versions<'_>, settings: &FileSettings) -> Vec<StrategyChoice> {
    let (strategies, input) = (Strategies::default(), Input::new(path, versions));
    // A strategy that leaves every change to a review resolves nothing.
    let candidates = strategies.all().filter(|strategy| !strategy.requires_review());
    let clean = candidates.filter_map(|strategy| {
        let settings = FileSettings { strategy: Some(strategy.name().to_owned()), ..settings.clone() };
        let merge =
            merge_file(&strategies, &settings, &input).ok().filter(|merge| merge.conflict.is_none())?;
        Some(StrategyChoice { name: strategy.name(), size: merge.merged.content.len() as u64 })
    });
    clean.collect()
}
