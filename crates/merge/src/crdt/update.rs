//! Conversion between JSON values and automerge documents.
//!
//! The root of a document is a map with two members: the JSON value, and the increments of its counters
//! ([`Counters`]). JSON values are stored as follows:
//!
//! - Integers, strings, booleans and null are automerge scalars. The source text of other numbers is stored as bytes, a
//!   type that JSON does not have.
//! - Objects are maps and arrays are lists. An array that the schema (the CRDT types by path) declares as a set is a
//!   map instead: its keys are the elements as canonical JSON text, and all its values are `true`.
//! - An integer that the schema declares as a counter is an automerge counter that is always 0. It only marks the
//!   position; the total is the sum of the increments under the counter's name, which is derived from the position
//!   ([`Cursor::counter_name`]).

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use automerge::transaction::Transactable;
use automerge::{
    AutoCommit, AutomergeError, ObjId, ObjType, Prop, ROOT, ReadDoc, ScalarValue, Value, hydrate,
};
use imara_diff::{Algorithm, Diff, InternedInput};

use super::counters::Counters;
use super::schema::{Cursor, Schema};
use super::value::JsonValue;
use crate::file_settings::CrdtType;
use crate::text::DiffLimits;

/// Key of the value in the root map.
const VALUE_KEY: &str = "value";

/// Reads the JSON value of a document; `None` if the document is not in the format of this module, or the total of a
/// counter overflowed.
pub(super) fn read(document: &AutoCommit, schema: &Schema) -> Option<JsonValue> {
    let counters = Counters::read(document)?;
    let (value, id) = document.get(ROOT, VALUE_KEY).ok()??;
    Reader { document, schema, counters: &counters }.value(&value, &id, &mut Cursor::default())
}

/// Reader of values of a document.
struct Reader<'a> {
    document: &'a AutoCommit,
    schema: &'a Schema,
    counters: &'a Counters,
}

impl Reader<'_> {
    /// Converts an automerge value to JSON. `id` is its object id, and the cursor is at its position. `None` as for
    /// [`read`].
    fn value(&self, value: &Value<'_>, id: &ObjId, cursor: &mut Cursor) -> Option<JsonValue> {
        Some(match value {
            counter if is_counter(counter) => {
                JsonValue::Literal(self.counters.total(&cursor.counter_name())?.to_string())
            }
            Value::Scalar(scalar) => from_scalar(scalar)?,
            Value::Object(ObjType::Map) if self.schema.kind(&cursor.path) == CrdtType::Set => {
                let set_keys = keys(self.document, id);
                JsonValue::Array(set_keys.iter().filter_map(|key| JsonValue::parse(key.as_bytes())).collect())
            }
            Value::Object(ObjType::Map | ObjType::Table) => {
                let mut members = BTreeMap::new();
                for item in self.document.map_range(id, ..) {
                    cursor.enter(item.key.to_string());
                    let id = item.id();
                    let value = self.value(&item.value.into_value(), &id, cursor);
                    members.insert(cursor.leave()?, value?);
                }
                JsonValue::Object(members)
            }
            Value::Object(ObjType::List) => {
                JsonValue::Array(self.elements(id, cursor).into_iter().collect::<Option<_>>()?)
            }
            Value::Object(ObjType::Text) => JsonValue::String(self.document.text(id).ok()?),
        })
    }

    /// Reads the elements of a list; `None` for each element that cannot be read.
    fn elements(&self, list: &ObjId, cursor: &mut Cursor) -> Vec<Option<JsonValue>> {
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

/// Returns true if a value marks the position of a counter. Its total is in [`Counters`].
fn is_counter(value: &Value<'_>) -> bool {
    matches!(value, Value::Scalar(scalar) if matches!(scalar.as_ref(), ScalarValue::Counter(_)))
}

/// Returns the keys of a map.
fn keys(document: &AutoCommit, id: &ObjId) -> Vec<String> {
    document.map_range(id, ..).map(|item| item.key.to_string()).collect()
}

/// Converts an automerge scalar to JSON; `None` if [`to_scalar`] never returns such a scalar.
fn from_scalar(scalar: &ScalarValue) -> Option<JsonValue> {
    Some(match scalar {
        ScalarValue::Null => JsonValue::null(),
        ScalarValue::Boolean(yes) => JsonValue::Literal(yes.to_string()),
        ScalarValue::Str(text) => JsonValue::String(text.to_string()),
        ScalarValue::Int(number) => JsonValue::Literal(number.to_string()),
        ScalarValue::Bytes(text) => JsonValue::Literal(String::from_utf8(text.clone()).ok()?),
        _ => return None,
    })
}

/// Converts a number, boolean, null or string to an automerge scalar; `None` for arrays and objects. Numbers other than
/// integers in their usual notation become bytes.
fn to_scalar(data: &JsonValue) -> Option<ScalarValue> {
    Some(match (data, data.integer()) {
        (JsonValue::Literal(text), Some(number)) if number.to_string() == *text => ScalarValue::Int(number),
        (JsonValue::Literal(text), _) => match text.as_str() {
            "null" => ScalarValue::Null,
            "true" => ScalarValue::Boolean(true),
            "false" => ScalarValue::Boolean(false),
            number => ScalarValue::Bytes(number.as_bytes().to_vec()),
        },
        (JsonValue::String(text), _) => ScalarValue::Str(text.as_str().into()),
        (JsonValue::Array(_) | JsonValue::Object(_), _) => return None,
    })
}

/// Changes the value of a document to `data`, with as few operations as possible: none for an unchanged value, and one
/// for a new value. The cost of an operation grows with the size of the document.
///
/// `current` is the value of the document; `None` if it could not be read. Totals of counters are not changed yet. The
/// function returns the current counters, and the total that each counter has in `data`, by name. The caller adds the
/// differences with [`Counters::add_increments`], as separate operations, because equal increments by two sides must
/// both count.
pub(super) fn write(
    document: &mut AutoCommit,
    current: Option<&JsonValue>,
    data: &JsonValue,
    schema: &Schema,
) -> Result<(Counters, BTreeMap<String, i128>), AutomergeError> {
    let counters = Counters::read_or_create(document)?;
    let mut writer = Writer {
        document,
        schema,
        counters: &counters,
        cursor: Cursor::default(),
        target_totals: BTreeMap::new(),
    };
    writer.set(&ROOT, Prop::Map(VALUE_KEY.to_owned()), current, data)?;
    let target_totals = writer.target_totals;
    counters.retain(document, &target_totals)?;
    Ok((counters, target_totals))
}

/// Writer of a new value into a document.
struct Writer<'a> {
    document: &'a mut AutoCommit,
    schema: &'a Schema,
    /// Counters before the changes.
    counters: &'a Counters,
    /// Position of the current value, which the schema and the names of counters depend on.
    cursor: Cursor,
    /// Total of each counter in the new value, by name.
    target_totals: BTreeMap<String, i128>,
}

impl Writer<'_> {
    /// Sets the member or element `prop` (key or index) of `parent` to a value. The cursor is at this position.
    /// `current` is the value to replace; `None` if it does not exist or could not be read.
    fn set(
        &mut self,
        parent: &ObjId,
        prop: Prop,
        current: Option<&JsonValue>,
        data: &JsonValue,
    ) -> Result<(), AutomergeError> {
        // If the schema has counters, unchanged values are visited too: `target_totals` needs all
        // counters.
        if current == Some(data) && !self.schema.has_counters() {
            return Ok(());
        }
        let kind = self.schema.kind(&self.cursor.path);
        let stored = self.document.get(parent, prop.clone())?;
        let stored = stored.map(|(value, id)| (value.to_owned().into_owned(), id));
        if let (CrdtType::Counter, Some(number)) = (kind, data.counter()) {
            if !stored.is_some_and(|(value, _)| is_counter(&value)) {
                self.document.put(parent, prop.clone(), ScalarValue::counter(0))?;
            }
            // If `put` replaced the element, the new one has another object id, which is part of the counter's name.
            if let (Prop::Seq(_), Some((_, id))) = (&prop, self.document.get(parent, prop.clone())?) {
                self.cursor.set_element_id(&id);
            }
            self.target_totals.insert(self.cursor.counter_name(), number);
            return Ok(());
        }
        match (&stored, data) {
            (Some((Value::Object(ObjType::Map), id)), JsonValue::Array(elements))
                if kind == CrdtType::Set =>
            {
                self.write_set(id, elements)
            }
            (Some((Value::Object(ObjType::Map), id)), JsonValue::Object(members))
                if kind != CrdtType::Set =>
            {
                let current = match current {
                    Some(JsonValue::Object(current_members)) => Some(current_members),
                    _ => None,
                };
                self.write_members(id, current, members)
            }
            (Some((Value::Object(ObjType::List), id)), JsonValue::Array(elements))
                if kind != CrdtType::Set =>
            {
                let current = match current {
                    Some(JsonValue::Array(current_elements)) => Some(current_elements.as_slice()),
                    _ => None,
                };
                self.write_elements(id, current, elements)
            }
            (Some((Value::Scalar(scalar), _)), data) if from_scalar(scalar).as_ref() == Some(data) => Ok(()),
            _ => self.put(parent, prop, data, kind),
        }
    }

    /// Replaces the value at the position of the cursor, which is the member or element `prop` of `parent`.
    fn put(
        &mut self,
        parent: &ObjId,
        prop: Prop,
        data: &JsonValue,
        kind: CrdtType,
    ) -> Result<(), AutomergeError> {
        if let Some(scalar) = to_scalar(data) {
            return self.document.put(parent, prop, scalar);
        }
        if matches!(prop, Prop::Seq(_)) && self.schema.has_counters() {
            let id = self.document.put_object(parent, prop, object_type(data, kind))?;
            // The new element has another object id, which is part of the names of the counters in it.
            self.cursor.set_element_id(&id);
            return self.fill(&id, data, kind);
        }
        if let Some(value) = self.hydrate(data, kind) {
            return self.document.batch_create_object(parent, prop, &value, false).map(drop);
        }
        let id = self.document.put_object(parent, prop, object_type(data, kind))?;
        self.fill(&id, data, kind)
    }

    /// Inserts an element into `list` at an index. The cursor is at the list.
    fn insert(&mut self, list: &ObjId, index: usize, data: &JsonValue) -> Result<(), AutomergeError> {
        let kind = self.schema.kind(&self.element_path());
        if let (CrdtType::Counter, Some(number)) = (kind, data.counter()) {
            self.document.insert(list, index, ScalarValue::counter(0))?;
            return self.in_element(list, index, |writer, _| {
                writer.target_totals.insert(writer.cursor.counter_name(), number);
                Ok(())
            });
        }
        match to_scalar(data) {
            Some(scalar) => self.document.insert(list, index, scalar),
            None => {
                self.document.insert_object(list, index, object_type(data, kind))?;
                self.in_element(list, index, |writer, id| writer.fill(id, data, kind))
            }
        }
    }

    /// Converts the value at the position of the cursor to a value of `automerge::hydrate`, which a single operation
    /// can insert with all its content. Also records the totals of its counters. `None` if the value contains an
    /// array and the schema has counters: the name of a counter in an array element contains the object id of the
    /// element, which is unknown before the insertion.
    fn hydrate(&mut self, data: &JsonValue, kind: CrdtType) -> Option<hydrate::Value> {
        if let (CrdtType::Counter, Some(number)) = (kind, data.counter()) {
            self.target_totals.insert(self.cursor.counter_name(), number);
            return Some(hydrate::Value::Scalar(ScalarValue::counter(0)));
        }
        if let Some(scalar) = to_scalar(data) {
            return Some(hydrate::Value::Scalar(scalar));
        }
        match data {
            JsonValue::Array(elements) if kind == CrdtType::Set => {
                let true_value = || hydrate::Value::Scalar(ScalarValue::Boolean(true));
                let members: HashMap<_, _> =
                    elements.iter().map(|value| (value.to_set_key(), true_value())).collect();
                Some(hydrate::Value::Map(members.into()))
            }
            JsonValue::Array(_) if self.schema.has_counters() => None,
            JsonValue::Array(elements) => self.hydrate_elements(elements).map(hydrate::Value::from),
            JsonValue::Object(members) => {
                let mut hydrated_members = HashMap::with_capacity(members.len());
                for (key, value) in members {
                    self.cursor.enter(key.clone());
                    let kind = self.schema.kind(&self.cursor.path);
                    let hydrated = self.hydrate(value, kind);
                    hydrated_members.insert(self.cursor.leave()?, hydrated?);
                }
                Some(hydrate::Value::Map(hydrated_members.into()))
            }
            JsonValue::Literal(_) | JsonValue::String(_) => None,
        }
    }

    /// Converts elements of the list at the position of the cursor like [`Writer::hydrate`]; `None` if the schema has
    /// counters.
    fn hydrate_elements(&mut self, elements: &[JsonValue]) -> Option<Vec<hydrate::Value>> {
        if self.schema.has_counters() {
            return None;
        }
        self.cursor.enter("*".to_owned());
        let kind = self.schema.kind(&self.cursor.path);
        let hydrated = elements.iter().map(|value| self.hydrate(value, kind)).collect();
        self.cursor.leave();
        hydrated
    }

    /// Returns the schema path of the elements of the list at the position of the cursor.
    fn element_path(&self) -> Vec<String> {
        let mut path = self.cursor.path.clone();
        path.push("*".to_owned());
        path
    }

    /// Runs `work` with the cursor at an element of a list. `work` also gets the object id of the element.
    fn in_element(
        &mut self,
        list: &ObjId,
        index: usize,
        work: impl FnOnce(&mut Self, &ObjId) -> Result<(), AutomergeError>,
    ) -> Result<(), AutomergeError> {
        let Some((_, id)) = self.document.get(list, index)? else { return Ok(()) };
        self.cursor.enter_element(&id);
        let result = work(self, &id);
        self.cursor.leave_element();
        result
    }

    /// Writes the content of a new, empty container: the map or list `id` at the position of the cursor.
    fn fill(&mut self, id: &ObjId, data: &JsonValue, kind: CrdtType) -> Result<(), AutomergeError> {
        match data {
            JsonValue::Array(elements) if kind == CrdtType::Set => self.write_set(id, elements),
            JsonValue::Array(elements) => self.write_elements(id, Some(&[]), elements),
            JsonValue::Object(members) => self.write_members(id, Some(&BTreeMap::new()), members),
            JsonValue::Literal(_) | JsonValue::String(_) => Ok(()),
        }
    }

    /// Sets the members of a map. `current` are its current members; `None` if they could not be read.
    fn write_members(
        &mut self,
        id: &ObjId,
        current: Option<&BTreeMap<String, JsonValue>>,
        target: &BTreeMap<String, JsonValue>,
    ) -> Result<(), AutomergeError> {
        let known_keys = current.map(|current| current.keys().cloned().collect());
        for key in known_keys.unwrap_or_else(|| keys(self.document, id)) {
            if !target.contains_key(&key) {
                self.document.delete(id, key)?;
            }
        }
        for (key, data) in target {
            self.cursor.enter(key.clone());
            self.set(id, Prop::Map(key.clone()), current.and_then(|current| current.get(key)), data)?;
            self.cursor.leave();
        }
        Ok(())
    }

    /// Sets the elements of a set, which is stored as a map with one key per element.
    fn write_set(&mut self, id: &ObjId, target: &[JsonValue]) -> Result<(), AutomergeError> {
        let target: BTreeSet<String> = target.iter().map(JsonValue::to_set_key).collect();
        let current: BTreeSet<String> = keys(self.document, id).into_iter().collect();
        for key in current.difference(&target) {
            self.document.delete(id, key.as_str())?;
        }
        for key in target.difference(&current) {
            self.document.put(id, key.as_str(), true)?;
        }
        Ok(())
    }

    /// Sets the elements of a list. `known` are its current elements; `None` if this function must read them.
    /// Elements that differ only in counters are kept. In each range that differs, as many elements as possible are
    /// changed in place, and the rest is removed or inserted.
    fn write_elements(
        &mut self,
        id: &ObjId,
        known: Option<&[JsonValue]>,
        target: &[JsonValue],
    ) -> Result<(), AutomergeError> {
        let current: Vec<Option<Cow<'_, JsonValue>>> = match known {
            Some(known) => known.iter().map(|data| Some(Cow::Borrowed(data))).collect(),
            None => {
                let reader = Reader { document: self.document, schema: self.schema, counters: self.counters };
                let elements = reader.elements(id, &mut self.cursor);
                elements.into_iter().map(|data| data.map(Cow::Owned)).collect()
            }
        };
        let current: Vec<Option<&JsonValue>> = current.iter().map(Option::as_deref).collect();
        let hunks = self.hunks(&current, target);
        // Counters in kept elements are written first, while indexes in the document and in `current` are equal.
        if self.schema.has_counters() {
            for (old, new) in unchanged(&hunks, current.len()) {
                self.write_element(id, old, current[old], &target[new])?;
            }
        }
        // The hunks are applied from the end, so that the indexes of earlier elements stay valid.
        for (old, new) in hunks.into_iter().rev() {
            let common = old.len().min(new.len());
            let (removed_count, end_of_common) = (old.len() - common, old.start + common);
            let added = &target[new.start + common..new.end];
            match self.hydrate_elements(added) {
                Some(values) if removed_count > 0 || !values.is_empty() => {
                    let removed_count = isize::try_from(removed_count).unwrap_or(isize::MAX);
                    self.document.splice(id, end_of_common, removed_count, values)?;
                }
                Some(_) => {}
                None => {
                    for index in (end_of_common..old.end).rev() {
                        self.document.delete(id, index)?;
                    }
                    for (offset, data) in added.iter().enumerate() {
                        self.insert(id, end_of_common + offset, data)?;
                    }
                }
            }
            for offset in 0..common {
                self.write_element(
                    id,
                    old.start + offset,
                    current[old.start + offset],
                    &target[new.start + offset],
                )?;
            }
        }
        Ok(())
    }

    /// Sets the element of a list at an index. `current` is the element to replace; `None` if it could not be read.
    fn write_element(
        &mut self,
        list: &ObjId,
        index: usize,
        current: Option<&JsonValue>,
        data: &JsonValue,
    ) -> Result<(), AutomergeError> {
        self.in_element(list, index, |writer, _| writer.set(list, Prop::Seq(index), current, data))
    }

    /// Returns the pairs of old and new ranges of elements that differ in more than counters.
    fn hunks(
        &mut self,
        current: &[Option<&JsonValue>],
        target: &[JsonValue],
    ) -> Vec<(Range<usize>, Range<usize>)> {
        if !self.schema.has_counters() {
            return compare(current.iter().copied(), target.iter().map(Some));
        }
        let (schema, mut path) = (self.schema, self.element_path());
        let mut without_counters = |data: &JsonValue| data.with_counters_at_zero(schema, &mut path);
        let before: Vec<Option<JsonValue>> =
            current.iter().map(|data| data.map(&mut without_counters)).collect();
        let after: Vec<Option<JsonValue>> = target.iter().map(|data| Some(without_counters(data))).collect();
        compare(before.iter().map(Option::as_ref), after.iter().map(Option::as_ref))
    }
}

/// Returns the pairs of old and new ranges in which two sequences differ. Long sequences are compared by the faster
/// histogram algorithm, with the limit for lines of texts.
fn compare<'a>(
    before: impl ExactSizeIterator<Item = Option<&'a JsonValue>>,
    after: impl ExactSizeIterator<Item = Option<&'a JsonValue>>,
) -> Vec<(Range<usize>, Range<usize>)> {
    let is_long = before.len() + after.len() > DiffLimits::default().myers_lines;
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
    let (mut pairs, mut old_start, mut new_start) = (Vec::new(), 0, 0);
    for (old, new) in hunks {
        pairs.extend((old_start..old.start).zip(new_start..new.start));
        (old_start, new_start) = (old.end, new.end);
    }
    pairs.extend((old_start..length).zip(new_start..));
    pairs
}

/// Returns the automerge type of an array or object, which the schema declares as `kind`.
fn object_type(data: &JsonValue, kind: CrdtType) -> ObjType {
    match data {
        JsonValue::Array(_) if kind != CrdtType::Set => ObjType::List,
        _ => ObjType::Map,
    }
}
