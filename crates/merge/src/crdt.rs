//! JSON that never conflicts, by automerge.
//!
//! Agents edit plain JSON. Beside each version stands its history, a document of automerge. What an agent made of the
//! base becomes operations on a fork of the base's history, and that is joined with the history of ours. Whoever made a
//! change is named by what it is, so that joining the same changes in any order, anywhere, gives the same bytes. Counters are
//! the exception: equal changes by two sides are two changes there.
//!
//! All versions are written in one form: keys in order, two spaces.

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
use crate::merge::trivial;
use crate::policy::FileRule;
use crate::strategy::Strategy;

/// Values, containers included, that a version may have. Their history takes some hundred bytes of memory for each.
const VALUES_MAX: usize = 500_000;

/// Merges `.crdt.json`.
pub(crate) struct CrdtJson;

impl Strategy for CrdtJson {
    fn name(&self) -> &'static str {
        "crdt"
    }

    fn merge(&self, input: &Input<'_>, rule: &FileRule) -> Outcome {
        let conflict = |reason: String| Outcome::Conflict(Conflict::whole("crdt", reason));
        let versions = match Plain::read(input) {
            Ok(versions) => versions,
            Err(reason) => return conflict(reason),
        };
        if let Some(whose) = versions.too_large() {
            // A version that need not be joined with another one needs no history either.
            return match trivial(input, self.accumulates(rule)) {
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

    /// Every version has a history.
    fn is_always_asked(&self) -> bool {
        true
    }

    fn accumulates(&self, rule: &FileRule) -> bool {
        Schema::new(rule).has_counters()
    }
}

/// The versions as values.
struct Plain {
    base: Data,
    ours: Data,
    theirs: Data,
}

impl Plain {
    fn read(input: &Input<'_>) -> Result<Self, String> {
        let read = |text: &[u8], whose: &str| {
            Data::parse(text)
                .ok_or_else(|| format!("{whose} is no JSON, has a key twice or is nested too deep"))
        };
        let (ours, theirs) = (read(input.versions.ours, "ours")?, read(input.versions.theirs, "theirs")?);
        let base = match input.versions.base {
            Some(base) => read(base, "the base")?,
            // Both added it: they have at least in common what they are.
            None => ours.emptied_like(&theirs),
        };
        Ok(Self { base, ours, theirs })
    }

    /// Name of a version that has too many values.
    fn too_large(&self) -> Option<&'static str> {
        let all = [("the base", &self.base), ("ours", &self.ours), ("theirs", &self.theirs)];
        all.into_iter().find(|(_, data)| data.count() > VALUES_MAX).map(|(whose, _)| whose)
    }
}

fn join(input: &Input<'_>, plain: &Plain, schema: &Schema) -> Result<Option<Merged>, AutomergeError> {
    let base = known(input.histories.base, &plain.base, schema);
    let mut base = match base {
        Some(base) => base,
        None => edited(AutoCommit::new(), &plain.base, schema, &BTreeSet::new())?,
    };
    let ours = input.histories.ours.and_then(|bytes| AutoCommit::load(bytes).ok());
    let ours = ours.and_then(|mut ours| has_all_of(&mut ours, &mut base).then_some(ours));
    let ours = ours.unwrap_or_else(|| base.fork());
    let mut ours = edited(ours, &plain.ours, schema, &BTreeSet::new())?;
    let sides = Counts::of(&mut ours)?.sides().clone();
    let mut theirs = edited(base.fork(), &plain.theirs, schema, &sides)?;
    ours.merge(&mut theirs)?;
    let Some(content) = update::read(&ours, schema) else { return Ok(None) };
    Ok(Some(Merged { content: content.to_text().into_bytes(), history: Some(ours.save()) }))
}

/// The history that stands beside a version, if it is of that version.
fn known(history: Option<&[u8]>, version: &Data, schema: &Schema) -> Option<AutoCommit> {
    let document = AutoCommit::load(history?).ok()?;
    (update::read(&document, schema).as_ref() == Some(version)).then_some(document)
}

/// Whether one history goes on from another.
fn has_all_of(one: &mut AutoCommit, other: &mut AutoCommit) -> bool {
    other.get_heads().iter().all(|head| one.get_change_by_hash(head).is_some())
}

/// A history at whose end is this version.
///
/// Changes are named by where they began and what they are: two sides that did the same made one change. Only what they added to
/// counters is named by the side, which is told from the sides that made the same change before it by a number.
fn edited(
    mut document: AutoCommit,
    version: &Data,
    schema: &Schema,
    others: &BTreeSet<counts::Side>,
) -> Result<AutoCommit, AutomergeError> {
    // What lost against other values in this version may win in a later one: a history that needs no change gets none.
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

/// Name of a side that changed counters.
fn side(name: &blake3::Hasher) -> counts::Side {
    name.finalize().to_hex()[..counts::SIDE].to_owned()
}

fn set_actor(document: &mut AutoCommit, name: &blake3::Hasher) {
    document.set_actor(ActorId::from(&name.finalize().as_bytes()[..16]));
}

/// No time: the same change is the same everywhere.
fn commit(document: &mut AutoCommit) {
    document.commit_with(CommitOptions::default().with_time(0));
}
