//! Strategy for JSON that never conflicts, with automerge.
//!
//! Agents edit plain JSON. Each version has a stored history, an automerge document. The changes of an agent
//! become operations on a fork of the base's history, which is merged with the history of ours. Actor ids are
//! hashes of the changes, so that merging the same changes in any order, on any machine, gives the same
//! bytes. Counters are the exception: equal changes by two sides count twice.
//!
//! All versions have the same format: sorted keys, indented by two spaces.

mod counts;
mod data;
mod schema;
mod update;

use std::collections::BTreeSet;

use automerge::transaction::CommitOptions;
use automerge::{ActorId, AutoCommit, AutomergeError};

use self::counts::Counts;
use self::data::Data;
use self::schema::Schema;
use crate::conflict::Conflict;
use crate::file::{Input, Merged, Outcome};
use crate::rule::FileRule;
use crate::strategy::Strategy;
use crate::trivial::trivial;

/// Limit for values of a version, including containers. Their history takes some hundred bytes of memory
/// each.
const VALUES_MAX: usize = 500_000;

/// Strategy for `.crdt.json` files.
pub(crate) struct CrdtJson;

impl Strategy for CrdtJson {
    fn name(&self) -> &'static str {
        "crdt"
    }

    fn merge(&self, input: &Input<'_>, rule: &FileRule) -> Outcome {
        let conflict = |reason: String| Outcome::Conflict(Conflict::whole("crdt", reason));
        let versions = match ParsedVersions::read(input) {
            Ok(versions) => versions,
            Err(reason) => return conflict(reason),
        };
        if let Some(whose) = versions.too_large() {
            // A version that is taken as it is needs no history.
            return match trivial(input, self.is_cumulative(rule)) {
                Some(content) => Outcome::Merged(Merged::new(content)),
                None => conflict(format!("{whose} has more than {VALUES_MAX} values")),
            };
        }
        match join(input, &versions, &Schema::new(rule)) {
            Ok(Some(merged)) => Outcome::Merged(merged),
            Ok(None) => conflict("the sum of a counter has too many digits".to_owned()),
            Err(error) => conflict(format!("the versions could not be joined: {error}")),
        }
    }

    /// Each version needs a history.
    fn is_always_run(&self) -> bool {
        true
    }

    fn is_cumulative(&self, rule: &FileRule) -> bool {
        Schema::new(rule).has_counters()
    }
}

/// Three parsed versions.
struct ParsedVersions {
    base: Data,
    ours: Data,
    theirs: Data,
}

impl ParsedVersions {
    fn read(input: &Input<'_>) -> Result<Self, String> {
        let read = |text: &[u8], whose: &str| {
            Data::parse(text)
                .ok_or_else(|| format!("{whose} is no JSON, has a key twice or is nested too deep"))
        };
        let (ours, theirs) = (read(input.versions.ours, "ours")?, read(input.versions.theirs, "theirs")?);
        let base = match input.versions.base {
            Some(base) => read(base, "the base")?,
            // Both sides added the file: they have at least the type of the root in common.
            None => ours.common_base(&theirs),
        };
        Ok(Self { base, ours, theirs })
    }

    /// Returns the name of a version that exceeds the limit for values.
    fn too_large(&self) -> Option<&'static str> {
        let all = [("the base", &self.base), ("ours", &self.ours), ("theirs", &self.theirs)];
        all.into_iter().find(|(_, data)| data.count() > VALUES_MAX).map(|(whose, _)| whose)
    }
}

fn join(
    input: &Input<'_>,
    plain: &ParsedVersions,
    schema: &Schema,
) -> Result<Option<Merged>, AutomergeError> {
    let base = stored_history(input.histories.base, &plain.base, schema);
    let mut base = match base {
        Some(base) => base,
        None => extended_to(AutoCommit::new(), &plain.base, schema, &BTreeSet::new())?,
    };
    let ours = input.histories.ours.and_then(|bytes| AutoCommit::load(bytes).ok());
    let ours = ours.and_then(|mut ours| contains_changes_of(&mut ours, &mut base).then_some(ours));
    let ours = ours.unwrap_or_else(|| base.fork());
    let mut ours = extended_to(ours, &plain.ours, schema, &BTreeSet::new())?;
    let sides = Counts::of(&mut ours)?.sides().clone();
    let mut theirs = extended_to(base.fork(), &plain.theirs, schema, &sides)?;
    ours.merge(&mut theirs)?;
    let Some(content) = update::read(&ours, schema) else { return Ok(None) };
    Ok(Some(Merged { content: content.to_text().into_bytes(), history: Some(ours.save()) }))
}

/// Returns the stored history of a version, if it really ends in that version.
fn stored_history(history: Option<&[u8]>, version: &Data, schema: &Schema) -> Option<AutoCommit> {
    let document = AutoCommit::load(history?).ok()?;
    (update::read(&document, schema).as_ref() == Some(version)).then_some(document)
}

/// Returns whether a history contains all changes of another.
fn contains_changes_of(one: &mut AutoCommit, other: &mut AutoCommit) -> bool {
    other.get_heads().iter().all(|head| one.get_change_by_hash(head).is_some())
}

/// Extends a history so that it ends in `version`.
///
/// Actor ids are hashes of the starting point and the new version: two sides with equal changes have made the
/// same change. Only increments of counters belong to a side. A side gets a number to distinguish it from
/// others that made the same change.
fn extended_to(
    mut document: AutoCommit,
    version: &Data,
    schema: &Schema,
    others: &BTreeSet<counts::Side>,
) -> Result<AutoCommit, AutomergeError> {
    // A value that lost against another one here may win later: a history that already ends in this version
    // is not changed.
    let there = update::read(&document, schema);
    if there.as_ref() == Some(version) {
        return Ok(document);
    }
    let mut name = blake3::Hasher::new();
    for head in document.get_heads() {
        name.update(head.as_ref());
    }
    name.update(version.to_text().as_bytes());
    set_actor(&mut document, &name);
    let (counts, wanted) = update::write(&mut document, there.as_ref(), version, schema)?;
    commit(&mut document);
    let mut names = (0_u64..).map(|number| {
        let mut name = name.clone();
        name.update(&number.to_le_bytes());
        name
    });
    let is_free = |name: &blake3::Hasher| {
        let side = side(name);
        !others.contains(&side) && !counts.sides().contains(&side)
    };
    if let Some(name) = names.find(is_free) {
        set_actor(&mut document, &name);
        counts.add(&mut document, &wanted, &side(&name))?;
        commit(&mut document);
    }
    Ok(document)
}

/// Returns the id of a side that changed counters.
fn side(name: &blake3::Hasher) -> counts::Side {
    name.finalize().to_hex()[..counts::SIDE_LEN].to_owned()
}

fn set_actor(document: &mut AutoCommit, name: &blake3::Hasher) {
    document.set_actor(ActorId::from(&name.finalize().as_bytes()[..16]));
}

/// Commits without a timestamp, so that equal changes have equal hashes.
fn commit(document: &mut AutoCommit) {
    document.commit_with(CommitOptions::default().with_time(0));
}
