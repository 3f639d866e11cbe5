//! Kinds of values, by path.

use automerge::ObjId;

use crate::policy::{Crdt, FileRule};

/// How values are joined, by path.
pub(super) struct Schema(Vec<(Vec<String>, Crdt)>);

impl Schema {
    pub(super) fn new(rule: &FileRule) -> Self {
        let words = |path: &String| path.split('.').map(str::to_owned).collect();
        Self(rule.schema.iter().map(|(path, kind)| (words(path), *kind)).collect())
    }

    pub(super) fn kind(&self, path: &[String]) -> Crdt {
        let is = |(word, key): (&String, &String)| word == "*" || word == key;
        let found =
            self.0.iter().find(|(words, _)| words.len() == path.len() && words.iter().zip(path).all(is));
        found.map_or(Crdt::Register, |(_, kind)| *kind)
    }

    pub(super) fn has_counters(&self) -> bool {
        self.0.iter().any(|(_, kind)| *kind == Crdt::Counter)
    }
}

/// A place in a document: the keys that lead there, `*` for an element of an array.
#[derive(Debug, Default)]
pub(super) struct Place {
    pub(super) path: Vec<String>,
    /// Elements of arrays on the way, with the length of the path up to them. An element is known by its id in the document,
    /// since its index changes.
    elements: Vec<(usize, String)>,
}

impl Place {
    pub(super) fn enter(&mut self, key: String) {
        self.path.push(key);
    }

    pub(super) fn leave(&mut self) -> Option<String> {
        self.path.pop()
    }

    pub(super) fn enter_element(&mut self, id: &ObjId) {
        self.path.push("*".to_owned());
        self.elements.push((self.path.len(), id.to_string()));
    }

    pub(super) fn leave_element(&mut self) {
        self.path.pop();
        self.elements.pop();
    }

    /// Gives another id to the element that is here, since a new value took the place of the old one.
    pub(super) fn rename_element(&mut self, id: &ObjId) {
        if let Some((_, name)) = self.elements.last_mut() {
            *name = id.to_string();
        }
    }

    /// Name of the counter that is here: the innermost element, and the keys that lead on from it.
    pub(super) fn counter(&self) -> String {
        let (from, mut name) = self.elements.last().cloned().unwrap_or_default();
        for key in &self.path[from..] {
            name.push('/');
            name.push_str(&key.replace('~', "~0").replace('/', "~1"));
        }
        name.push('\n');
        name
    }
}
