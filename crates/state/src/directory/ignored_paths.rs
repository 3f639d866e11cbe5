//! Finds the changed paths of a directory that its `.workspaceignore` files exclude from a snapshot, so that a caller
//! can treat them apart from the other changes.

use std::collections::{BTreeMap, BTreeSet};

use crate::diff::Difference;
use crate::entry::Node;
use crate::error::Result;
use crate::tree::Tree;
use crate::tree_path::{join, path_names};

use super::ignore_rules::{IGNORE_FILE, IgnoreRules};

/// Returns the paths among `differences` that a snapshot would ignore, sorted. The rules are taken from the
/// `.workspaceignore` files of the tree `before`. Removed paths are left out. For paths in an ignored directory, only
/// the path of the directory is returned.
pub fn ignored_paths(before: &Tree, differences: &[Difference]) -> Result<Vec<Vec<u8>>> {
    let mut rules = RuleCache { tree: before, by_directory: BTreeMap::new() };
    let mut ignored = BTreeSet::new();
    for difference in differences {
        if let Some(new) = &difference.new {
            ignored.extend(rules.ignored_part(&difference.path, matches!(new.node, Node::Directory(_)))?);
        }
    }
    Ok(ignored.into_iter().collect())
}

/// Cache of the ignore rules in each directory of a tree. The ignore file of a directory is read at most once.
struct RuleCache<'a> {
    tree: &'a Tree,
    by_directory: BTreeMap<Vec<u8>, IgnoreRules>,
}

impl RuleCache<'_> {
    /// Returns the shortest prefix of a path that is ignored: the path itself or a parent. `None` if the path is not
    /// ignored.
    fn ignored_part(&mut self, path: &[u8], is_directory: bool) -> Result<Option<Vec<u8>>> {
        let names = path_names(path).unwrap_or_default();
        let (mut prefix, mut ignores) = (Vec::new(), IgnoreRules::default());
        for (index, name) in names.iter().enumerate() {
            ignores = self.rules_in(&prefix, &ignores)?;
            prefix = join(&prefix, name);
            let is_directory = is_directory || index + 1 < names.len();
            if !ignores.is_empty() && ignores.is_ignored(&prefix, is_directory) {
                return Ok(Some(prefix));
            }
        }
        Ok(None)
    }

    /// Returns the rules that apply in a directory. `parent_rules` are the rules of its parent.
    fn rules_in(&mut self, directory: &[u8], parent_rules: &IgnoreRules) -> Result<IgnoreRules> {
        if let Some(rules) = self.by_directory.get(directory) {
            return Ok(rules.clone());
        }
        let file = self.tree.entry(join(directory, IGNORE_FILE))?;
        let rules = match file.map(|entry| entry.node) {
            Some(Node::File(file)) => parent_rules.with(directory, &self.tree.read(&file)?),
            _ => parent_rules.clone(),
        };
        self.by_directory.insert(directory.to_vec(), rules.clone());
        Ok(rules)
    }
}
