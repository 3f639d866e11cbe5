//! CRDT types by path.

use automerge::ObjId;

use crate::rule::{Crdt, FileRule};

/// CRDT types of values, by path.
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

/// Position in a document: keys, with `*` for an array element.
#[derive(Debug, Default)]
pub(super) struct Cursor {
    pub(super) path: Vec<String>,
    /// Array elements on the path, each with the length of the path up to it. Elements are identified by
    /// their object id, since their index changes.
    elements: Vec<(usize, String)>,
}

impl Cursor {
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

    /// Replaces the id of the current element, after a new value replaced the old one.
    pub(super) fn rename_element(&mut self, id: &ObjId) {
        if let Some((_, name)) = self.elements.last_mut() {
            *name = id.to_string();
        }
    }

    /// Returns the name of the current counter: the innermost element and the keys after it.
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
