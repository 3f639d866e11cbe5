//! Between values and documents of automerge.
//!
//! Whole numbers, strings, true, false and null are what they are there; other numbers are kept as they are written, as
//! bytes, which JSON has not. The root of a document is a map, whose one member is the value.

use std::collections::BTreeMap;

use automerge::transaction::Transactable;
use automerge::{AutoCommit, AutomergeError, ObjId, ObjType, Prop, ROOT, ReadDoc, ScalarValue, Value};
use imara_diff::{Algorithm, Diff, InternedInput};

use super::data::Data;
use crate::policy::{Crdt, FileRule};

/// The one member of the root.
const WHOLE: &str = "value";

/// How values are joined, by path.
pub(super) struct Schema(Vec<(Vec<String>, Crdt)>);

impl Schema {
    pub(super) fn new(rule: &FileRule) -> Self {
        let words = |path: &String| path.split('.').map(str::to_owned).collect();
        Self(rule.schema.iter().map(|(path, kind)| (words(path), *kind)).collect())
    }

    fn kind(&self, path: &[String]) -> Crdt {
        let is = |(word, key): (&String, &String)| word == "*" || word == key;
        let found =
            self.0.iter().find(|(words, _)| words.len() == path.len() && words.iter().zip(path).all(is));
        found.map_or(Crdt::Register, |(_, kind)| *kind)
    }
}

/// The value that a document holds.
pub(super) fn read(document: &AutoCommit, schema: &Schema) -> Option<Data> {
    let (value, id) = document.get(ROOT, WHOLE).ok()??;
    read_value(document, &value, &id, schema, &mut Vec::new())
}

fn read_value(
    document: &AutoCommit,
    value: &Value<'_>,
    id: &ObjId,
    schema: &Schema,
    path: &mut Vec<String>,
) -> Option<Data> {
    Some(match value {
        Value::Scalar(scalar) => of_scalar(scalar)?,
        Value::Object(ObjType::Map) if schema.kind(path) == Crdt::Set => {
            Data::Array(keys(document, id).iter().filter_map(|name| Data::parse(name.as_bytes())).collect())
        }
        Value::Object(ObjType::Map | ObjType::Table) => {
            let mut members = BTreeMap::new();
            for key in keys(document, id) {
                let (value, id) = document.get(id, key.as_str()).ok()??;
                path.push(key);
                let value = read_value(document, &value, &id, schema, path);
                members.insert(path.pop()?, value?);
            }
            Data::Object(members)
        }
        Value::Object(ObjType::List) => {
            path.push("*".to_owned());
            let elements = read_elements(document, id, schema, path);
            path.pop();
            let elements = elements.into_iter().collect::<Option<_>>()?;
            Data::Array(elements)
        }
        Value::Object(ObjType::Text) => Data::String(document.text(id).ok()?),
    })
}

/// Those of a list; none for what is of a later version of automerge.
fn read_elements(
    document: &AutoCommit,
    list: &ObjId,
    schema: &Schema,
    path: &mut Vec<String>,
) -> Vec<Option<Data>> {
    let read = |at| {
        let (value, id) = document.get(list, at).ok()??;
        read_value(document, &value, &id, schema, path)
    };
    (0..document.length(list)).map(read).collect()
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
        ScalarValue::Counter(counter) => Data::Literal(i64::from(counter).to_string()),
        ScalarValue::Bytes(text) => Data::Literal(String::from_utf8(text.clone()).ok()?),
        _ => return None,
    })
}

fn to_scalar(data: &Data, kind: Crdt) -> Option<ScalarValue> {
    Some(match (data, data.integer()) {
        (Data::Literal(_), Some(number)) if kind == Crdt::Counter => ScalarValue::counter(number),
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

/// Makes a document hold a value, by as few operations as tell what changed.
pub(super) fn write(document: &mut AutoCommit, data: &Data, schema: &Schema) -> Result<(), AutomergeError> {
    Writer { document, schema, path: Vec::new() }.set(&ROOT, Prop::Map(WHOLE.to_owned()), data)
}

struct Writer<'a> {
    document: &'a mut AutoCommit,
    schema: &'a Schema,
    path: Vec<String>,
}

impl Writer<'_> {
    /// Makes a member or an element hold a value.
    fn set(&mut self, parent: &ObjId, at: Prop, data: &Data) -> Result<(), AutomergeError> {
        let kind = self.schema.kind(&self.path);
        let before = self.document.get(parent, at.clone())?;
        let before = before.map(|(value, id)| (value.to_owned().into_owned(), id));
        match (&before, data) {
            (Some((Value::Object(ObjType::Map), id)), Data::Array(all)) if kind == Crdt::Set => {
                self.set_members(id, all)
            }
            (Some((Value::Object(ObjType::Map), id)), Data::Object(all)) if kind != Crdt::Set => {
                self.members(id, all)
            }
            (Some((Value::Object(ObjType::List), id)), Data::Array(all)) if kind != Crdt::Set => {
                self.elements(id, all)
            }
            (Some((Value::Scalar(scalar), _)), data) if of_scalar(scalar).as_ref() == Some(data) => Ok(()),
            (Some((Value::Scalar(scalar), _)), data) => match (scalar.as_ref(), data.integer()) {
                (ScalarValue::Counter(counter), Some(number)) => {
                    self.document.increment(parent, at, number.wrapping_sub(i64::from(counter)))
                }
                _ => self.put(parent, at, data, kind),
            },
            _ => self.put(parent, at, data, kind),
        }
    }

    /// Puts a value in the place of whatever is there.
    fn put(&mut self, parent: &ObjId, at: Prop, data: &Data, kind: Crdt) -> Result<(), AutomergeError> {
        match to_scalar(data, kind) {
            Some(scalar) => self.document.put(parent, at, scalar),
            None => {
                let id = self.document.put_object(parent, at, shape(data, kind))?;
                self.fill(&id, data, kind)
            }
        }
    }

    fn insert(&mut self, list: &ObjId, at: usize, data: &Data) -> Result<(), AutomergeError> {
        let kind = self.schema.kind(&self.path);
        match to_scalar(data, kind) {
            Some(scalar) => self.document.insert(list, at, scalar),
            None => {
                let id = self.document.insert_object(list, at, shape(data, kind))?;
                self.fill(&id, data, kind)
            }
        }
    }

    fn fill(&mut self, id: &ObjId, data: &Data, kind: Crdt) -> Result<(), AutomergeError> {
        match data {
            Data::Array(all) if kind == Crdt::Set => self.set_members(id, all),
            Data::Array(all) => self.elements(id, all),
            Data::Object(all) => self.members(id, all),
            Data::Literal(_) | Data::String(_) => Ok(()),
        }
    }

    fn members(&mut self, id: &ObjId, wanted: &BTreeMap<String, Data>) -> Result<(), AutomergeError> {
        for key in keys(self.document, id) {
            if !wanted.contains_key(&key) {
                self.document.delete(id, key)?;
            }
        }
        for (key, data) in wanted {
            self.path.push(key.clone());
            self.set(id, Prop::Map(key.clone()), data)?;
            self.path.pop();
        }
        Ok(())
    }

    /// A set is a map with a member for each value.
    fn set_members(&mut self, id: &ObjId, wanted: &[Data]) -> Result<(), AutomergeError> {
        let wanted: std::collections::BTreeSet<String> = wanted.iter().map(Data::to_name).collect();
        let there = keys(self.document, id);
        for name in there.iter().filter(|name| !wanted.contains(*name)) {
            self.document.delete(id, name.as_str())?;
        }
        for name in wanted.iter().filter(|name| !there.contains(name)) {
            self.document.put(id, name.as_str(), true)?;
        }
        Ok(())
    }

    /// Elements that are the same stay; the rest is changed in place as far as it goes, then removed or inserted.
    fn elements(&mut self, id: &ObjId, wanted: &[Data]) -> Result<(), AutomergeError> {
        self.path.push("*".to_owned());
        let there = read_elements(self.document, id, self.schema, &mut self.path);
        let mut input = InternedInput::default();
        input.update_before(there.into_iter());
        input.update_after(wanted.iter().cloned().map(Some));
        let diff = Diff::compute(Algorithm::Myers, &input);
        // From the end, so that the numbers of what comes before stay.
        for hunk in diff.hunks().collect::<Vec<_>>().into_iter().rev() {
            let (old, new) = (
                hunk.before.start as usize..hunk.before.end as usize,
                hunk.after.start as usize..hunk.after.end as usize,
            );
            let common = old.len().min(new.len());
            for at in (old.start + common..old.end).rev() {
                self.document.delete(id, at)?;
            }
            for (step, at) in (new.start + common..new.end).enumerate() {
                self.insert(id, old.start + common + step, &wanted[at])?;
            }
            for step in 0..common {
                self.set(id, Prop::Seq(old.start + step), &wanted[new.start + step])?;
            }
        }
        self.path.pop();
        Ok(())
    }
}

fn shape(data: &Data, kind: Crdt) -> ObjType {
    match data {
        Data::Array(_) if kind != Crdt::Set => ObjType::List,
        _ => ObjType::Map,
    }
}
