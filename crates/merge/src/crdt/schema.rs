//! Schema of a CRDT document (the CRDT type of each path), and positions in such a document.

use automerge::ObjId;

use crate::file_settings::{CrdtType, FileSettings};

/// CRDT types by path. Paths without an entry are registers.
pub(super) struct Schema(Vec<(Vec<String>, CrdtType)>);

impl Schema {
    pub(super) fn new(settings: &FileSettings) -> Self {
        let steps = |path: &String| path.split('.').map(str::to_owned).collect();
        Self(settings.schema.iter().map(|(path, kind)| (steps(path), *kind)).collect())
    }

    /// Returns the CRDT type of the values at a path.
    pub(super) fn kind(&self, path: &[String]) -> CrdtType {
        let matches = |(step, key): (&String, &String)| step == "*" || step == key;
        let found =
            self.0.iter().find(|(steps, _)| steps.len() == path.len() && steps.iter().zip(path).all(matches));
        found.map_or(CrdtType::Register, |(_, kind)| *kind)
    }

    /// Returns true if the schema declares a counter.
    pub(super) fn has_counters(&self) -> bool {
        self.0.iter().any(|(_, kind)| *kind == CrdtType::Counter)
    }
}

/// Position of a value in a document.
#[derive(Debug, Default)]
pub(super) struct Cursor {
    /// Keys from the root to the value, with `*` for an array element.
    pub(super) path: Vec<String>,
    /// Object id (in automerge) of each array element on the path, with the length of the path up to the element.
    /// Indexes would not identify elements, since insertions change the indexes.
    elements: Vec<(usize, String)>,
}

impl Cursor {
    /// Moves to a member of the current object.
    pub(super) fn enter(&mut self, key: String) {
        self.path.push(key);
    }

    /// Moves back to the parent, and returns the key of the member.
    pub(super) fn leave(&mut self) -> Option<String> {
        self.path.pop()
    }

    /// Moves to the element of the current array that has an object id.
    pub(super) fn enter_element(&mut self, id: &ObjId) {
        self.path.push("*".to_owned());
        self.elements.push((self.path.len(), id.to_string()));
    }

    /// Moves back to the array.
    pub(super) fn leave_element(&mut self) {
        self.path.pop();
        self.elements.pop();
    }

    /// Sets the object id of the current element, after its value was replaced.
    pub(super) fn set_element_id(&mut self, id: &ObjId) {
        if let Some((_, element_id)) = self.elements.last_mut() {
            *element_id = id.to_string();
        }
    }

    /// Returns the name of the counter at this position: the object id of the innermost array element on the path, the
    /// keys after it, and a line feed.
    pub(super) fn counter_name(&self) -> String {
        let (from, mut name) = self.elements.last().cloned().unwrap_or_default();
        for key in &self.path[from..] {
            name.push('/');
            name.push_str(&key.replace('~', "~0").replace('/', "~1"));
        }
        name.push('\n');
        name
    }
}
