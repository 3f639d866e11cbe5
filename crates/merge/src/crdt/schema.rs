//! Schema of a CRDT document, and positions in it.

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

    pub(super) fn has_counters(&self) -> bool {
        self.0.iter().any(|(_, kind)| *kind == CrdtType::Counter)
    }
}

/// Position in a document: keys, with `*` for an array element.
#[derive(Debug, Default)]
pub(super) struct Cursor {
    pub(super) path: Vec<String>,
    /// Object id of each array element on the path, with the length of the path up to it. Indexes would not
    /// identify elements, since insertions change them.
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

    /// Sets the object id of the current element, after its value was replaced.
    pub(super) fn set_element_id(&mut self, id: &ObjId) {
        if let Some((_, element_id)) = self.elements.last_mut() {
            *element_id = id.to_string();
        }
    }

    /// Returns the name of the counter at this position: the id of the innermost array element and the keys
    /// after it.
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
