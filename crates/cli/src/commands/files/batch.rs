//! `workspace files batch` and `workspace files chmod`

use std::io::Read as _;

use serde_json::Value;
use workspace_api::files::{FileBatch, FileOperation};

use super::open;
use crate::args::{FilesBatch, FilesChmod};
use crate::context::Context;
use crate::error::{CommandError, Result, io_hint};
use crate::remote::files::{self, RemotePath};
use crate::remote::{find_sandbox, with_client};

/// Maximum size of the input in bytes, the maximum of a request.
const INPUT_MAX: u64 = 1 << 20;
/// Maximum number of operations in a request.
const OPERATIONS_MAX: usize = 1_000;

pub(super) fn run(context: &mut Context, args: &FilesBatch) -> Result<()> {
    let mut input = Vec::new();
    let read = open(&args.file)?.take(INPUT_MAX + 1).read_to_end(&mut input);
    read.map_err(|error| {
        CommandError::failed(format!("{}: {error}", args.file.display())).hint(io_hint(&error))
    })?;
    if input.len() as u64 > INPUT_MAX {
        return Err(CommandError::failed("the batch is larger than 1 MiB")
            .hint("split it; `workspace cp` and `workspace files put` write large files"));
    }
    let batch = FileBatch { operations: parse(&input)? };
    let result = with_client(&args.server, async |client| {
        let sandbox = find_sandbox(client, &args.sandbox).await?;
        files::send_batch(client, &sandbox, &batch).await
    })?;
    if context.output.is_json() {
        context.output.record(&result)?;
        context.output.flush()?;
    }
    match result.failed {
        None => Ok(()),
        Some(failed) => Err(CommandError::failed(format!(
            "operation {} of {} failed: {}",
            failed.index + 1,
            batch.operations.len(),
            failed.error.message
        ))
        .hint("the operations before it were performed, and are not undone; those after it were not")
        .hint(format!("docs/errors.md explains {}", failed.error.name))),
    }
}

pub(super) fn chmod(args: &FilesChmod) -> Result<()> {
    let paths = args.paths.iter().map(|path| RemotePath::new(path)).collect::<Result<Vec<_>>>()?;
    with_client(&args.server, async |client| {
        let sandbox = find_sandbox(client, &args.sandbox).await?;
        for paths in paths.chunks(OPERATIONS_MAX) {
            let chmod =
                |path: &RemotePath| FileOperation::Chmod { path: path.quoted(), mode: args.mode.clone() };
            files::perform(client, &sandbox, paths.iter().map(chmod).collect()).await?;
        }
        Ok(())
    })
}

/// Parses operations: JSON values one after the other, each an operation or an object with `operations`. Relative paths
/// become paths below `/workspace`.
fn parse(input: &[u8]) -> Result<Vec<FileOperation>> {
    let mut operations = Vec::new();
    for value in serde_json::Deserializer::from_slice(input).into_iter::<Value>() {
        let number = operations.len() + 1;
        let parsed = value.and_then(|value| match value.get("operations") {
            Some(_) => Ok(serde_json::from_value::<FileBatch>(value)?.operations),
            None => Ok(vec![serde_json::from_value(value)?]),
        });
        let mut parsed = parsed.map_err(|error| {
            CommandError::failed(format!("operation {number} is invalid: {error}")).hint(
                "an operation is JSON such as {\"op\": \"mkdir\", \"path\": \"src\"}; docs/files.md lists the fields",
            )
        })?;
        parsed.iter_mut().try_for_each(make_absolute)?;
        operations.append(&mut parsed);
    }
    if operations.is_empty() {
        return Err(CommandError::failed("the batch has no operations")
            .hint("an operation is JSON such as {\"op\": \"mkdir\", \"path\": \"src\"}"));
    }
    Ok(operations)
}

fn make_absolute(operation: &mut FileOperation) -> Result<()> {
    let paths = match operation {
        FileOperation::Mkdir { path, .. }
        | FileOperation::Chmod { path, .. }
        | FileOperation::Remove { path, .. }
        | FileOperation::Write { path, .. } => vec![path],
        FileOperation::Move { from, to, .. } | FileOperation::Copy { from, to, .. } => vec![from, to],
    };
    for path in paths {
        *path = RemotePath::new(path)?.quoted();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(input: &str) -> Option<String> {
        let operations = parse(input.as_bytes()).ok()?;
        Some(serde_json::to_value(&operations).unwrap().as_array().unwrap().iter().map(line).collect())
    }

    fn line(operation: &Value) -> String {
        let field = |name: &str| operation[name].as_str().unwrap_or("-").to_owned();
        format!("{} {} {} {};", field("op"), field("path"), field("from"), field("to"))
    }

    #[test]
    fn operations_are_read_line_by_line_or_as_one_object() {
        let expected = "mkdir /workspace/a - -;move - /workspace/b /tmp/c;";
        let mkdir = r#"{"op": "mkdir", "path": "a"}"#;
        let rename = r#"{"op": "move", "from": "b", "to": "/tmp/c"}"#;
        for input in [
            format!("{mkdir}\n{rename}\n"),
            format!("{mkdir}{rename}"),
            format!("{{\"operations\": [{mkdir},\n {rename}]}}"),
        ] {
            assert_eq!(paths(&input).as_deref(), Some(expected), "{input}");
        }
    }

    #[test]
    fn invalid_batches_are_refused() {
        for input in [
            "",
            "{\"operations\": []}",
            "[]",
            "{",
            r#"{"op": "mkdir"}"#,
            r#"{"op": "link", "path": "a"}"#,
            r#"{"op": "mkdir", "path": "a", "owner": 1}"#,
            r#"{"op": "mkdir", "path": "../a"}"#,
            r#"{"op": "mkdir", "path": "a"} x"#,
        ] {
            assert_eq!(paths(input), None, "{input}");
        }
    }
}
