//! Conversion between JSON values and automerge documents.
//!
//! Integers, strings, booleans and null map to automerge scalars. Other numbers are kept as written, as
//! bytes, a type that JSON does not have. The root of a document is a map of the value and the increments of
//! its counters.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use automerge::transaction::Transactable;
use automerge::{
    AutoCommit, AutomergeError, ObjId, ObjType, Prop, ROOT, ReadDoc, ScalarValue, Value, hydrate,
};
use imara_diff::{Algorithm, Diff, InternedInput};

use super::counts::Counts;
use super::data::Data;
use super::schema::{Cursor, Schema};
use crate::rule::Crdt;
use crate::text::DiffLimits;

/// Key in the root map of the value.
const VALUE_KEY: &str = "value";

/// Reads the value of a document; `None` if it is from a later version, or a counter overflowed.
pub(super) fn read(document: &AutoCommit, schema: &Schema) -> Option<Data> {
    let counts = Counts::read(document)?;
    let (value, id) = document.get(ROOT, VALUE_KEY).ok()??;
    Reader { document, schema, counts: &counts }.value(&value, &id, &mut Cursor::default())
}

struct Reader<'a> {
    document: &'a AutoCommit,
    schema: &'a Schema,
    counts: &'a Counts,
}

impl Reader<'_> {
    fn value(&self, value: &Value<'_>, id: &ObjId, cursor: &mut Cursor) -> Option<Data> {
        Some(match value {
            counter if is_counter(counter) => {
                Data::Literal(self.counts.total(&cursor.counter())?.to_string())
            }
            Value::Scalar(scalar) => of_scalar(scalar)?,
            Value::Object(ObjType::Map) if self.schema.kind(&cursor.path) == Crdt::Set => {
                let names = keys(self.document, id);
                Data::Array(names.iter().filter_map(|name| Data::parse(name.as_bytes())).collect())
            }
            Value::Object(ObjType::Map | ObjType::Table) => {
                let mut members = BTreeMap::new();
                for item in self.document.map_range(id, ..) {
                    cursor.enter(item.key.to_string());
                    let id = item.id();
                    let value = self.value(&item.value.into_value(), &id, cursor);
                    members.insert(cursor.leave()?, value?);
                }
                Data::Object(members)
            }
            Value::Object(ObjType::List) => {
                Data::Array(self.elements(id, cursor).into_iter().collect::<Option<_>>()?)
            }
            Value::Object(ObjType::Text) => Data::String(self.document.text(id).ok()?),
        })
    }

    /// Reads the elements of a list; `None` for an element from a later version of automerge.
    fn elements(&self, list: &ObjId, cursor: &mut Cursor) -> Vec<Option<Data>> {
        let items = self.document.list_range(list, ..);
        let elements = items.map(|item| {
            let id = item.id();
            cursor.enter_element(&id);
            let value = self.value(&item.value.into_value(), &id, cursor);
            cursor.leave_element();
            value
        });
        elements.collect()
    }
}

/// Returns whether a value is a counter, whose total is in [`Counts`].
fn is_counter(value: &Value<'_>) -> bool {
    matches!(value, Value::Scalar(scalar) if matches!(scalar.as_ref(), ScalarValue::Counter(_)))
}

fn keys(document: &AutoCommit, id: &ObjId) -> Vec<String> {
    document.map_range(id, ..).map(|item| item.key.to_string()).collect()
}

fn of_scalar(scalar: &ScalarValue) -> Option<Data> {
    Some(match scalar {
        ScalarValue::Null => Data::null(),
        ScalarValue::Boolean(yes) => Data::Literal(yes.to_string()),
        ScalarValue::Str(text) => Data::String(text.to_string()),
        ScalarValue::Int(number) => Data::Literal(number.to_string()),
        ScalarValue::Bytes(text) => Data::Literal(String::from_utf8(text.clone()).ok()?),
        _ => return None,
    })
}

fn to_scalar(data: &Data) -> Option<ScalarValue> {
    Some(match (data, data.integer()) {
        (Data::Literal(text), Some(number)) if number.to_string() == *text => ScalarValue::Int(number),
        (Data::Literal(text), _) => match text.as_str() {
            "null" => ScalarValue::Null,
            "true" => ScalarValue::Boolean(true),
            "false" => ScalarValue::Boolean(false),
            number => ScalarValue::Bytes(number.as_bytes().to_vec()),
        },
        (Data::String(text), _) => ScalarValue::Str(text.as_str().into()),
        (Data::Array(_) | Data::Object(_), _) => return None,
    })
}

/// Changes a document to hold a value, with few operations. `there` is the value it holds, if that could be
/// read. Returns the wanted totals of its counters, which [`Counts::add`] sets.
///
/// The cost of an operation grows with the size of the document. Unchanged values need none, and a new value
/// needs one for all of it.
pub(super) fn write(
    document: &mut AutoCommit,
    there: Option<&Data>,
    data: &Data,
    schema: &Schema,
) -> Result<(Counts, BTreeMap<String, i128>), AutomergeError> {
    let counts = Counts::of(document)?;
    let mut writer =
        Writer { document, schema, counts: &counts, cursor: Cursor::default(), wanted: BTreeMap::new() };
    writer.set(&ROOT, Prop::Map(VALUE_KEY.to_owned()), there, data)?;
    let wanted = writer.wanted;
    counts.retain(document, &wanted)?;
    Ok((counts, wanted))
}

struct Writer<'a> {
    document: &'a mut AutoCommit,
    schema: &'a Schema,
    counts: &'a Counts,
    cursor: Cursor,
    /// Wanted totals of counters, by name.
    wanted: BTreeMap<String, i128>,
}

impl Writer<'_> {
    /// Sets a member or an element to a value.
    fn set(
        &mut self,
        parent: &ObjId,
        at: Prop,
        there: Option<&Data>,
        data: &Data,
    ) -> Result<(), AutomergeError> {
        // With counters, unchanged values are visited too, to collect the names of their counters.
        if there == Some(data) && !self.schema.has_counters() {
            return Ok(());
        }
        let kind = self.schema.kind(&self.cursor.path);
        let before = self.document.get(parent, at.clone())?;
        let before = before.map(|(value, id)| (value.to_owned().into_owned(), id));
        if let (Crdt::Counter, Some(number)) = (kind, data.counter()) {
            if !before.is_some_and(|(value, _)| is_counter(&value)) {
                self.document.put(parent, at.clone(), ScalarValue::counter(0))?;
            }
            if let (Prop::Seq(_), Some((_, id))) = (&at, self.document.get(parent, at.clone())?) {
                self.cursor.rename_element(&id);
            }
            self.wanted.insert(self.cursor.counter(), number);
            return Ok(());
        }
        match (&before, data) {
            (Some((Value::Object(ObjType::Map), id)), Data::Array(all)) if kind == Crdt::Set => {
                self.set_members(id, all)
            }
            (Some((Value::Object(ObjType::Map), id)), Data::Object(all)) if kind != Crdt::Set => {
                let there = match there {
                    Some(Data::Object(members)) => Some(members),
                    _ => None,
                };
                self.members(id, there, all)
            }
            (Some((Value::Object(ObjType::List), id)), Data::Array(all)) if kind != Crdt::Set => {
                let there = match there {
                    Some(Data::Array(elements)) => Some(elements.as_slice()),
                    _ => None,
                };
                self.elements(id, there, all)
            }
            (Some((Value::Scalar(scalar), _)), data) if of_scalar(scalar).as_ref() == Some(data) => Ok(()),
            _ => self.put(parent, at, data, kind),
        }
    }

    /// Replaces the current value.
    fn put(&mut self, parent: &ObjId, at: Prop, data: &Data, kind: Crdt) -> Result<(), AutomergeError> {
        if let Some(scalar) = to_scalar(data) {
            return self.document.put(parent, at, scalar);
        }
        if let Some(value) = self.whole(data, kind) {
            return self.document.batch_create_object(parent, at, &value, false).map(drop);
        }
        let id = self.document.put_object(parent, at, shape(data, kind))?;
        self.fill(&id, data, kind)
    }

    fn insert(&mut self, list: &ObjId, at: usize, data: &Data) -> Result<(), AutomergeError> {
        let kind = self.schema.kind(&self.inside());
        if let (Crdt::Counter, Some(number)) = (kind, data.counter()) {
            self.document.insert(list, at, ScalarValue::counter(0))?;
            return self.in_element(list, at, |writer, _| {
                writer.wanted.insert(writer.cursor.counter(), number);
                Ok(())
            });
        }
        match to_scalar(data) {
            Some(scalar) => self.document.insert(list, at, scalar),
            None => {
                self.document.insert_object(list, at, shape(data, kind))?;
                self.in_element(list, at, |writer, id| writer.fill(id, data, kind))
            }
        }
    }

    /// Converts a new value to be inserted with a single operation; `None` if a counter is in an array, since
    /// its name is not known before it is inserted. Records the totals of its counters.
    fn whole(&mut self, data: &Data, kind: Crdt) -> Option<hydrate::Value> {
        if let (Crdt::Counter, Some(number)) = (kind, data.counter()) {
            self.wanted.insert(self.cursor.counter(), number);
            return Some(hydrate::Value::Scalar(ScalarValue::counter(0)));
        }
        if let Some(scalar) = to_scalar(data) {
            return Some(hydrate::Value::Scalar(scalar));
        }
        match data {
            Data::Array(all) if kind == Crdt::Set => {
                let there = || hydrate::Value::Scalar(ScalarValue::Boolean(true));
                let members: HashMap<_, _> = all.iter().map(|value| (value.to_name(), there())).collect();
                Some(hydrate::Value::Map(members.into()))
            }
            Data::Array(_) if self.schema.has_counters() => None,
            Data::Array(all) => self.whole_elements(all).map(hydrate::Value::from),
            Data::Object(all) => {
                let mut members = HashMap::with_capacity(all.len());
                for (key, value) in all {
                    self.cursor.enter(key.clone());
                    let kind = self.schema.kind(&self.cursor.path);
                    let whole = self.whole(value, kind);
                    members.insert(self.cursor.leave()?, whole?);
                }
                Some(hydrate::Value::Map(members.into()))
            }
            Data::Literal(_) | Data::String(_) => None,
        }
    }

    /// Converts elements of the current list like [`Writer::whole`]; `None` if the schema has counters.
    fn whole_elements(&mut self, all: &[Data]) -> Option<Vec<hydrate::Value>> {
        if self.schema.has_counters() {
            return None;
        }
        self.cursor.enter("*".to_owned());
        let kind = self.schema.kind(&self.cursor.path);
        let elements = all.iter().map(|value| self.whole(value, kind)).collect();
        self.cursor.leave();
        elements
    }

    /// Returns the path of the elements of the current list.
    fn inside(&self) -> Vec<String> {
        let mut path = self.cursor.path.clone();
        path.push("*".to_owned());
        path
    }

    /// Runs `work` with an element of a list as the current position.
    fn in_element(
        &mut self,
        list: &ObjId,
        at: usize,
        work: impl FnOnce(&mut Self, &ObjId) -> Result<(), AutomergeError>,
    ) -> Result<(), AutomergeError> {
        let Some((_, id)) = self.document.get(list, at)? else { return Ok(()) };
        self.cursor.enter_element(&id);
        let done = work(self, &id);
        self.cursor.leave_element();
        done
    }

    fn fill(&mut self, id: &ObjId, data: &Data, kind: Crdt) -> Result<(), AutomergeError> {
        match data {
            Data::Array(all) if kind == Crdt::Set => self.set_members(id, all),
            Data::Array(all) => self.elements(id, Some(&[]), all),
            Data::Object(all) => self.members(id, Some(&BTreeMap::new()), all),
            Data::Literal(_) | Data::String(_) => Ok(()),
        }
    }

    fn members(
        &mut self,
        id: &ObjId,
        there: Option<&BTreeMap<String, Data>>,
        wanted: &BTreeMap<String, Data>,
    ) -> Result<(), AutomergeError> {
        let known = there.map(|there| there.keys().cloned().collect());
        for key in known.unwrap_or_else(|| keys(self.document, id)) {
            if !wanted.contains_key(&key) {
                self.document.delete(id, key)?;
            }
        }
        for (key, data) in wanted {
            self.cursor.enter(key.clone());
            self.set(id, Prop::Map(key.clone()), there.and_then(|there| there.get(key)), data)?;
            self.cursor.leave();
        }
        Ok(())
    }

    /// Sets the members of a set, which is stored as a map with a key for each value.
    fn set_members(&mut self, id: &ObjId, wanted: &[Data]) -> Result<(), AutomergeError> {
        let wanted: BTreeSet<String> = wanted.iter().map(Data::to_name).collect();
        let there: BTreeSet<String> = keys(self.document, id).into_iter().collect();
        for name in there.difference(&wanted) {
            self.document.delete(id, name.as_str())?;
        }
        for name in wanted.difference(&there) {
            self.document.put(id, name.as_str(), true)?;
        }
        Ok(())
    }

    /// Sets the elements of a list. Those that differ only in counters stay; the others are changed in place,
    /// then removed or inserted.
    fn elements(
        &mut self,
        id: &ObjId,
        known: Option<&[Data]>,
        wanted: &[Data],
    ) -> Result<(), AutomergeError> {
        let there: Vec<Option<Cow<'_, Data>>> = match known {
            Some(known) => known.iter().map(|data| Some(Cow::Borrowed(data))).collect(),
            None => {
                let reader = Reader { document: self.document, schema: self.schema, counts: self.counts };
                let read = reader.elements(id, &mut self.cursor);
                read.into_iter().map(|data| data.map(Cow::Owned)).collect()
            }
        };
        let there: Vec<Option<&Data>> = there.iter().map(Option::as_deref).collect();
        let hunks = self.hunks(&there, wanted);
        // Before anything is removed or inserted, while the indexes are still those that were read.
        if self.schema.has_counters() {
            for (old, new) in unchanged(&hunks, there.len()) {
                self.element(id, old, there[old], &wanted[new])?;
            }
        }
        // From the end, so that the indexes of earlier elements stay valid.
        for (old, new) in hunks.into_iter().rev() {
            let common = old.len().min(new.len());
            let (gone, behind) = (old.len() - common, old.start + common);
            let added = &wanted[new.start + common..new.end];
            match self.whole_elements(added) {
                Some(values) if gone > 0 || !values.is_empty() => {
                    let gone = isize::try_from(gone).unwrap_or(isize::MAX);
                    self.document.splice(id, behind, gone, values)?;
                }
                Some(_) => {}
                None => {
                    for at in (behind..old.end).rev() {
                        self.document.delete(id, at)?;
                    }
                    for (step, data) in added.iter().enumerate() {
                        self.insert(id, behind + step, data)?;
                    }
                }
            }
            for step in 0..common {
                self.element(id, old.start + step, there[old.start + step], &wanted[new.start + step])?;
            }
        }
        Ok(())
    }

    fn element(
        &mut self,
        list: &ObjId,
        at: usize,
        there: Option<&Data>,
        data: &Data,
    ) -> Result<(), AutomergeError> {
        self.in_element(list, at, |writer, _| writer.set(list, Prop::Seq(at), there, data))
    }

    /// Returns the ranges of elements that differ in more than counters.
    fn hunks(&mut self, there: &[Option<&Data>], wanted: &[Data]) -> Vec<(Range<usize>, Range<usize>)> {
        if !self.schema.has_counters() {
            return compare(there.iter().copied(), wanted.iter().map(Some));
        }
        let (schema, mut path) = (self.schema, self.inside());
        let mut compared = |data: &Data| data.without_counts(schema, &mut path);
        let before: Vec<Option<Data>> = there.iter().map(|data| data.map(&mut compared)).collect();
        let after: Vec<Option<Data>> = wanted.iter().map(|data| Some(compared(data))).collect();
        compare(before.iter().map(Option::as_ref), after.iter().map(Option::as_ref))
    }
}

/// Returns the differing ranges of two sequences.
fn compare<'a>(
    before: impl ExactSizeIterator<Item = Option<&'a Data>>,
    after: impl ExactSizeIterator<Item = Option<&'a Data>>,
) -> Vec<(Range<usize>, Range<usize>)> {
    let is_long = before.len() + after.len() > DiffLimits::default().exact;
    let mut input = InternedInput::default();
    input.update_before(before);
    input.update_after(after);
    let algorithm = if is_long { Algorithm::Histogram } else { Algorithm::Myers };
    let range = |range: Range<u32>| range.start as usize..range.end as usize;
    let diff = Diff::compute(algorithm, &input);
    diff.hunks().map(|hunk| (range(hunk.before), range(hunk.after))).collect()
}

/// Returns the pairs of old and new indexes of elements outside all hunks.
fn unchanged(hunks: &[(Range<usize>, Range<usize>)], length: usize) -> Vec<(usize, usize)> {
    let (mut pairs, mut old_at, mut new_at) = (Vec::new(), 0, 0);
    for (old, new) in hunks {
        pairs.extend((old_at..old.start).zip(new_at..new.start));
        (old_at, new_at) = (old.end, new.end);
    }
    pairs.extend((old_at..length).zip(new_at..));
    pairs
}

fn shape(data: &Data, kind: Crdt) -> ObjType {
    match data {
        Data::Array(_) if kind != Crdt::Set => ObjType::List,
        _ => ObjType::Map,
    }
}
