//! Merge strategy for JSON in which concurrent changes never conflict: a CRDT, implemented with automerge.
//!
//! Files are plain JSON, which any program can edit. The history of a version is an automerge document, which the
//! caller stores. The differences between the base and their version become operations on a fork of the history of the
//! base, and that fork is merged into the history of our version. Actor ids (the ids of authors in automerge) are
//! hashes of the changes. Therefore equal changes by both sides are one change, and merging the same changes in any
//! order, on any machine, gives the same bytes. Counters are the exception: equal increments by two sides are both
//! applied.
//!
//! The schema ([`FileSettings::schema`]) names the CRDT type of the values at each path: a register (a single value), a
//! set, or a counter (an integer that both sides increment).
//!
//! Merged files have a canonical format: sorted keys, indented by two spaces.

mod counters;
mod schema;
mod update;
mod value;

use std::collections::BTreeSet;

use automerge::transaction::CommitOptions;
use automerge::{ActorId, AutoCommit, AutomergeError};

use self::counters::Counters;
use self::schema::Schema;
use self::value::JsonValue;
use crate::conflict::Conflict;
use crate::file::{Input, MergedContent, Outcome};
use crate::file_settings::FileSettings;
use crate::strategy::Strategy;
use crate::unchanged_side::content_without_strategy;

/// Maximum number of values of a version, including arrays and objects. The history takes a few hundred bytes of memory
/// for each value.
const VALUES_MAX: usize = 500_000;

/// Strategy for `.crdt.json` files.
pub(crate) struct CrdtJson;

impl Strategy for CrdtJson {
    fn name(&self) -> &'static str {
        "crdt"
    }

    fn merge(&self, input: &Input<'_>, settings: &FileSettings) -> Outcome {
        let conflict = |reason: String| Outcome::Conflict(Conflict::whole("crdt", reason));
        let versions = match ParsedVersions::read(input) {
            Ok(versions) => versions,
            Err(reason) => return conflict(reason),
        };
        if let Some(version_name) = versions.first_too_large() {
            // If only one side changed the file, its version is taken without a history.
            return match content_without_strategy(input, self.applies_equal_changes_twice(settings)) {
                Some(content) => Outcome::Merged(MergedContent::new(content)),
                None => conflict(format!("{version_name} has more than {VALUES_MAX} values")),
            };
        }
        match merge_histories(input, &versions, &Schema::new(settings)) {
            Ok(Some(merged)) => Outcome::Merged(merged),
            Ok(None) => conflict("the sum of a counter has too many digits".to_owned()),
            Err(error) => conflict(format!("the versions could not be merged: {error}")),
        }
    }

    // Each version gets a history, also if only one side changed the file.
    fn is_always_run(&self) -> bool {
        true
    }

    fn applies_equal_changes_twice(&self, settings: &FileSettings) -> bool {
        Schema::new(settings).has_counters()
    }
}

/// Three parsed versions of a file.
struct ParsedVersions {
    base: JsonValue,
    ours: JsonValue,
    theirs: JsonValue,
}

impl ParsedVersions {
    /// Parses all versions. If that is not possible, returns the reason, which is shown to users in the conflict.
    fn read(input: &Input<'_>) -> Result<Self, String> {
        let parse = |text: &[u8], version_name: &str| {
            JsonValue::parse(text).ok_or_else(|| {
                format!("{version_name} is not valid JSON, has a duplicate key or is nested too deep")
            })
        };
        let (ours, theirs) = (parse(input.versions.ours, "ours")?, parse(input.versions.theirs, "theirs")?);
        let base = match input.versions.base {
            Some(base) => parse(base, "the base")?,
            // Both sides added the file: there is no base. An empty object or array, or null, is assumed.
            None => ours.assumed_base(&theirs),
        };
        Ok(Self { base, ours, theirs })
    }

    /// Returns the name of the first version with more than [`VALUES_MAX`] values; `None` if there is none.
    fn first_too_large(&self) -> Option<&'static str> {
        let all = [("the base", &self.base), ("ours", &self.ours), ("theirs", &self.theirs)];
        all.into_iter().find(|(_, value)| value.count() > VALUES_MAX).map(|(version_name, _)| version_name)
    }
}

/// Merges the histories of our and their version; `None` if the sum of a counter has too many digits.
fn merge_histories(
    input: &Input<'_>,
    versions: &ParsedVersions,
    schema: &Schema,
) -> Result<Option<MergedContent>, AutomergeError> {
    let base = stored_history(input.histories.base, &versions.base, schema);
    let mut base = match base {
        Some(base) => base,
        None => extend_to(AutoCommit::new(), &versions.base, schema, &BTreeSet::new())?,
    };
    let ours = input.histories.ours.and_then(|bytes| AutoCommit::load(bytes).ok());
    let ours = ours.and_then(|mut ours| contains_changes_of(&mut ours, &mut base).then_some(ours));
    let ours = ours.unwrap_or_else(|| base.fork());
    let mut ours = extend_to(ours, &versions.ours, schema, &BTreeSet::new())?;
    let contributions = Counters::read_or_create(&mut ours)?.contributions().clone();
    let mut theirs = extend_to(base.fork(), &versions.theirs, schema, &contributions)?;
    ours.merge(&mut theirs)?;
    let Some(content) = update::read(&ours, schema) else { return Ok(None) };
    Ok(Some(MergedContent { content: content.to_text().into_bytes(), history: Some(ours.save()) }))
}

/// Loads the stored history of a version; `None` if it is invalid or does not end in that version.
fn stored_history(history: Option<&[u8]>, version: &JsonValue, schema: &Schema) -> Option<AutoCommit> {
    let document = AutoCommit::load(history?).ok()?;
    (update::read(&document, schema).as_ref() == Some(version)).then_some(document)
}

/// Returns true if the history `one` contains all changes of the history `other`.
fn contains_changes_of(one: &mut AutoCommit, other: &mut AutoCommit) -> bool {
    other.get_heads().iter().all(|head| one.get_change_by_hash(head).is_some())
}

/// Adds operations to a history so that it ends in `version`.
///
/// The actor id is a hash of the heads (last changes) of the history and of the new version, so that equal changes by
/// two sides are the same change. Increments of counters are different: equal increments by two sides must both count.
/// Therefore they get an id of their own, which identifies the contribution of this side. It is a hash that includes a
/// number, chosen so that the id is not among `others`, the ids of contributions by sides that may have made the same
/// change.
fn extend_to(
    mut document: AutoCommit,
    version: &JsonValue,
    schema: &Schema,
    others: &BTreeSet<counters::ContributionId>,
) -> Result<AutoCommit, AutomergeError> {
    // A history that already ends in this version is not changed. An operation would discard concurrent values that
    // lost in this merge, but may win in a later one.
    let current = update::read(&document, schema);
    if current.as_ref() == Some(version) {
        return Ok(document);
    }
    let mut hasher = blake3::Hasher::new();
    for head in document.get_heads() {
        hasher.update(head.as_ref());
    }
    hasher.update(version.to_text().as_bytes());
    set_actor(&mut document, &hasher);
    let (counters, target_totals) = update::write(&mut document, current.as_ref(), version, schema)?;
    commit(&mut document);
    let mut hashers = (0_u64..).map(|number| {
        let mut hasher = hasher.clone();
        hasher.update(&number.to_le_bytes());
        hasher
    });
    let is_unused = |hasher: &blake3::Hasher| {
        let id = contribution_id(hasher);
        !others.contains(&id) && !counters.contributions().contains(&id)
    };
    if let Some(hasher) = hashers.find(is_unused) {
        set_actor(&mut document, &hasher);
        counters.add_increments(&mut document, &target_totals, &contribution_id(&hasher))?;
        commit(&mut document);
    }
    Ok(document)
}

/// Returns the id of a contribution, under which its increments are stored.
fn contribution_id(hasher: &blake3::Hasher) -> counters::ContributionId {
    hasher.finalize().to_hex()[..counters::CONTRIBUTION_ID_LEN].to_owned()
}

/// Sets the actor id of the following operations.
fn set_actor(document: &mut AutoCommit, hasher: &blake3::Hasher) {
    document.set_actor(ActorId::from(&hasher.finalize().as_bytes()[..16]));
}

/// Commits without a timestamp, so that equal changes have equal hashes.
fn commit(document: &mut AutoCommit) {
    document.commit_with(CommitOptions::default().with_time(0));
}
