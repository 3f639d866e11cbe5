//! `workspace cat`

use serde::Serialize;
use workspace_state::{Extent, FileNode, Node, Store, Tree, quote_path};

use crate::args::Cat;
use crate::context::Context;
use crate::error::{CommandError, Outcome, Result};
use crate::fields::{EntryFields, text_or_hex};
use crate::names;
use crate::output::Output;
use crate::text::shell_word;

/// Content of holes.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// File as `--json` prints it. `content` is `None` if it is not UTF-8, `content_hex` if it is.
#[derive(Serialize)]
struct Content {
    #[serde(flatten)]
    entry: EntryFields,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_hex: Option<String>,
}

pub(crate) fn run(context: &mut Context, args: &Cat) -> Result<Outcome> {
    let store = context.store()?;
    let snapshot = names::snapshot(&store, &args.snapshot)?;
    let tree = Tree::of_snapshot(&store, &snapshot)?;
    let path = names::path(&args.path)?;
    let entry = names::entry(&tree, &args.snapshot, &path)?;
    let Node::File(file) = &entry.node else { return Err(not_a_file(args, &path, &entry.node)) };
    if context.output.is_json() {
        let (content, content_hex) = text_or_hex(&tree.read(file)?);
        let entry = EntryFields::new(&names::normalized(&path), &entry);
        context.output.record(&Content { entry, content, content_hex })?;
    } else {
        write_file(&store, file, &mut context.output)?;
    }
    Ok(Outcome::Done)
}

/// Writes a file chunk by chunk.
fn write_file(store: &Store, file: &FileNode, output: &mut Output) -> Result<()> {
    for extent in &file.extents {
        match extent {
            Extent::Data { len, .. } => {
                output.bytes(&store.read_extents(std::slice::from_ref(extent), 0, *len)?)?;
            }
            Extent::Hole { len } => write_zeros(*len, output)?,
        }
    }
    Ok(())
}

fn write_zeros(mut len: u64, output: &mut Output) -> Result<()> {
    while len > 0 {
        let count = len.min(ZEROS.len() as u64);
        output.bytes(&ZEROS[..count as usize])?;
        len -= count;
    }
    Ok(())
}

fn not_a_file(args: &Cat, path: &[u8], node: &Node) -> CommandError {
    let path = quote_path(path);
    match node {
        Node::Symlink(link) => {
            CommandError::failed(format!("`{path}` is a symlink to `{}`", quote_path(&link.target)))
                .hint("specify the file it points to")
        }
        _ => CommandError::failed(format!("`{path}` is a directory")).hint(format!(
            "`workspace ls {} {}` lists it",
            args.snapshot,
            shell_word(&path)
        )),
    }
}
