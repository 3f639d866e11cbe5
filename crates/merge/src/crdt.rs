//! JSON that never conflicts, by automerge.
//!
//! Agents edit plain JSON. Beside each version stands its history, a document of automerge. What an agent made of the
//! base becomes operations on a fork of the base's history, and that is joined with the history of ours. Whoever made a
//! change is named by what it is, so that joining the same changes in any order, anywhere, gives the same bytes.
//!
//! All versions are written in one form: keys in order, two spaces.

mod data;
mod update;

use automerge::transaction::CommitOptions;
use automerge::{ActorId, AutoCommit, AutomergeError};

use self::data::Data;
use self::update::Schema;
use crate::conflict::Conflict;
use crate::file::{Input, Merged, Outcome};
use crate::policy::FileRule;
use crate::strategy::Strategy;

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
        match join(input, &versions, &Schema::new(rule)) {
            Ok(merged) => Outcome::Merged(merged),
            Err(error) => conflict(format!("the versions could not be joined: {error}")),
        }
    }

    /// Every version has a history.
    fn is_always_asked(&self) -> bool {
        true
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
}

fn join(input: &Input<'_>, plain: &Plain, schema: &Schema) -> Result<Merged, AutomergeError> {
    let base = known(input.histories.base, &plain.base, schema);
    let mut base = match base {
        Some(base) => base,
        None => edited(AutoCommit::new(), &plain.base, schema)?,
    };
    let ours = input.histories.ours.and_then(|bytes| AutoCommit::load(bytes).ok());
    let ours = ours.and_then(|mut ours| has_all_of(&mut ours, &mut base).then_some(ours));
    let ours = ours.unwrap_or_else(|| base.fork());
    let mut ours = edited(ours, &plain.ours, schema)?;
    let mut theirs = edited(base.fork(), &plain.theirs, schema)?;
    ours.merge(&mut theirs)?;
    let content = update::read(&ours, schema).unwrap_or(Data::null()).to_text();
    Ok(Merged { content: content.into_bytes(), history: Some(ours.save()) })
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

/// A history at whose end is this version. Who made the change is named by where it began and what it is.
fn edited(mut document: AutoCommit, version: &Data, schema: &Schema) -> Result<AutoCommit, AutomergeError> {
    let mut name = blake3::Hasher::new();
    for head in document.get_heads() {
        name.update(head.as_ref());
    }
    name.update(version.to_text().as_bytes());
    document.set_actor(ActorId::from(&name.finalize().as_bytes()[..16]));
    update::write(&mut document, version, schema)?;
    // No time: the same change is the same everywhere.
    document.commit_with(CommitOptions::default().with_time(0));
    Ok(document)
}
