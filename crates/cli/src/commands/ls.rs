//! `workspace ls`

use workspace_state::{DirectoryNode, Entry, Node, NodeKind, Tree, quote_path};

use crate::args::Ls;
use crate::context::Context;
use crate::error::{Outcome, Result};
use crate::fields::EntryFields;
use crate::output::Output;
use crate::text::format_mode;
use crate::{names, time};

pub(crate) fn run(context: &mut Context, args: &Ls) -> Result<Outcome> {
    let store = context.store()?;
    let snapshot = names::snapshot(&store, &args.snapshot)?;
    let tree = Tree::of_snapshot(&store, &snapshot)?;
    let path = names::path(&args.path)?;
    let entry = names::entry(&tree, &args.snapshot, &path)?;
    let mut lister = Lister { tree: &tree, output: &mut context.output, long: args.long };
    match &entry.node {
        // Prints paths from the root of the tree, so that a line can be an argument of `cat`.
        Node::Directory(directory) if args.recursive => {
            lister.list_below(names::normalized(&path), directory)?;
        }
        Node::Directory(directory) => lister.list(directory)?,
        _ => lister.print(&names::normalized(&path), &entry)?,
    }
    Ok(Outcome::Done)
}

/// Printer of entries.
struct Lister<'a> {
    tree: &'a Tree,
    output: &'a mut Output,
    /// True for `--long`.
    long: bool,
}

impl Lister<'_> {
    fn list(&mut self, directory: &DirectoryNode) -> Result<()> {
        self.tree.list(directory)?.iter().try_for_each(|entry| self.print(&entry.name, entry))
    }

    /// Lists all entries below a directory, each directory before its entries. The depth of a tree has no
    /// limit, so this does not recurse.
    fn list_below(&mut self, path: Vec<u8>, directory: &DirectoryNode) -> Result<()> {
        let mut stack = vec![(path, self.tree.list(directory)?.into_iter())];
        while let Some((path, entries)) = stack.last_mut() {
            let Some(entry) = entries.next() else {
                stack.pop();
                continue;
            };
            let path = names::join(path, &entry.name);
            self.print(&path, &entry)?;
            if let Node::Directory(directory) = &entry.node {
                stack.push((path, self.tree.list(directory)?.into_iter()));
            }
        }
        Ok(())
    }

    fn print(&mut self, path: &[u8], entry: &Entry) -> Result<()> {
        if self.output.is_json() {
            return self.output.record(&EntryFields::new(path, entry));
        }
        let slash = if entry.node.kind() == NodeKind::Directory { "/" } else { "" };
        let name = format!("{}{slash}", quote_path(path));
        if self.long { self.output.line(long_line(&name, entry)) } else { self.output.line(name) }
    }
}

fn long_line(name: &str, entry: &Entry) -> String {
    let (file_type, size) = match &entry.node {
        Node::File(file) => ('-', file.size().to_string()),
        Node::Symlink(_) => ('l', "-".to_owned()),
        Node::Directory(_) => ('d', "-".to_owned()),
    };
    let mode = format_mode(file_type, entry.node.mode());
    let modified = entry.modified.map_or_else(|| "-".to_owned(), time::format);
    let target = match &entry.node {
        Node::Symlink(link) => format!(" -> {}", quote_path(&link.target)),
        _ => String::new(),
    };
    format!("{mode} {size:>12}  {modified:<26}  {name}{target}")
}
