//! Resolves names of snapshots, episodes and paths.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use workspace_state::{
    Entry, Episode, EpisodeId, Resolution, Snapshot, Store, StoreError, Tree, quote_path, unquote_path,
};

use crate::error::{CommandError, Result};
use crate::text::pluralize;

/// Minimum number of digits of an id prefix.
const ID_DIGITS_MIN: usize = 4;
/// Maximum number of candidates that are listed for an ambiguous id.
const CANDIDATES_MAX: usize = 8;

/// Returns the snapshot that `text` names: a reference, an id or an id prefix; followed by `~N`, its N-th ancestor.
pub(crate) fn snapshot(store: &Store, text: &str) -> Result<Snapshot> {
    find_snapshot(store, text)?.ok_or_else(|| unknown_snapshot(store, text))
}

/// Finds a snapshot by name; `None` if nothing has that name.
pub(crate) fn find_snapshot(store: &Store, text: &str) -> Result<Option<Snapshot>> {
    let Some((name, steps)) = steps_back(text) else { return find_named(store, text) };
    find_named(store, name)?.map(|newest| ancestor(store, name, newest, steps)).transpose()
}

/// Splits `NAME~N`; `NAME~` is `NAME~1`. `None` for a name without such a suffix. References and ids contain no `~`, so
/// this is unambiguous.
fn steps_back(text: &str) -> Option<(&str, u64)> {
    let (name, steps) = text.split_once('~')?;
    if !steps.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // A number that overflows is larger than any history is long.
    Some((name, if steps.is_empty() { 1 } else { steps.parse().unwrap_or(u64::MAX) }))
}

/// Follows first parents for a number of steps. `name` is that of the first snapshot, for errors.
fn ancestor(store: &Store, name: &str, mut snapshot: Snapshot, steps: u64) -> Result<Snapshot> {
    let too_few_ancestors = |found: u64, reason: String| {
        let ancestors = match found {
            0 => "no first-parent ancestors".to_owned(),
            _ => {
                format!("only {}", pluralize(found, "first-parent ancestor", "first-parent ancestors"))
            }
        };
        CommandError::failed(format!("`{name}` has {ancestors}: {reason}"))
    };
    for step in 0..steps {
        let id = snapshot.id;
        let Some(parent) = snapshot.parents.first() else {
            return Err(too_few_ancestors(step, format!("snapshot {id} has no parent"))
                .hint(format!("`workspace log --ref {name}` lists its ancestors")));
        };
        let found = store.find_snapshot(parent)?;
        snapshot = found.ok_or_else(|| {
            too_few_ancestors(step, format!("the next one, snapshot {parent}, was removed"))
                .hint("its ancestors may still exist: `workspace log` lists all snapshots")
        })?;
    }
    Ok(snapshot)
}

fn find_named(store: &Store, text: &str) -> Result<Option<Snapshot>> {
    match store.resolve(text)? {
        Resolution::One(id) => Ok(Some(store.snapshot(&id)?)),
        Resolution::None => Ok(None),
        Resolution::Ambiguous(ids) => Err(ambiguous("snapshot", text, ids.iter())),
    }
}

fn unknown_snapshot(store: &Store, text: &str) -> CommandError {
    let error =
        CommandError::failed(format!("snapshot `{text}` not found in store {}", store.path().display()));
    if is_too_short(text) {
        return error.hint(format!("an id prefix needs at least {ID_DIGITS_MIN} digits"));
    }
    error.hint("`workspace log` lists the snapshots of this store, `workspace refs` its references")
}

/// Returns the episode that `text` names: an id, or an id prefix.
pub(crate) fn episode(store: &Store, text: &str) -> Result<Episode> {
    if let Ok(id) = text.parse::<EpisodeId>() {
        return store.episode(&id)?.ok_or_else(|| unknown_episode(text));
    }
    let digits = digits(text);
    if digits.len() < ID_DIGITS_MIN || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(unknown_episode(text));
    }
    let mut found = store.all_episodes()?;
    found.retain(|episode| self::digits(&episode.id.to_string()).starts_with(&digits));
    match found.len() {
        0 => Err(unknown_episode(text)),
        1 => Ok(found.remove(0)),
        _ => Err(ambiguous("episode", text, found.iter().map(|episode| &episode.id))),
    }
}

fn unknown_episode(text: &str) -> CommandError {
    let error = CommandError::failed(format!("episode `{text}` not found"));
    if is_too_short(text) {
        return error.hint(format!("an id prefix needs at least {ID_DIGITS_MIN} digits"));
    }
    error.hint("`workspace episode tree` lists the episodes of this store")
}

/// Returns an id in lower case, without hyphens.
fn digits(text: &str) -> String {
    text.chars().filter(|character| *character != '-').collect::<String>().to_ascii_lowercase()
}

fn is_too_short(text: &str) -> bool {
    let digits = digits(text);
    digits.len() < ID_DIGITS_MIN && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Creates the error for an id prefix with several candidates. `what` is `snapshot` or `episode`.
fn ambiguous<'a, T: std::fmt::Display + 'a>(
    what: &str,
    text: &str,
    candidates: impl Iterator<Item = &'a T>,
) -> CommandError {
    let mut candidates: Vec<String> = candidates.take(CANDIDATES_MAX + 1).map(ToString::to_string).collect();
    if candidates.len() > CANDIDATES_MAX {
        candidates[CANDIDATES_MAX] = "and more".to_owned();
    }
    CommandError::failed(format!("`{text}` is ambiguous: it is a prefix of more than one {what} id"))
        .hint(format!("use more digits of one of:\n  {}", candidates.join("\n  ")))
}

/// Parses a path in a snapshot: plain, or quoted as it is printed. A path that starts with a double quote is
/// always a quoted one, so that a plain and a quoted path cannot be confused.
pub(crate) fn path(typed: &OsStr) -> Result<Cow<'_, [u8]>> {
    if !typed.as_bytes().starts_with(b"\"") {
        return Ok(Cow::Borrowed(typed.as_bytes()));
    }
    // A directory is printed with a slash after its quotes.
    let quoted = typed.to_str().map(|text| text.trim_end_matches('/'));
    quoted.and_then(unquote_path).ok_or_else(|| {
        CommandError::usage(format!(
            "`{}` begins with a double quote, but is not a quoted path",
            typed.display()
        ))
        .hint("write it as `workspace ls` prints it, in single quotes for the shell: '\"one\\ntwo\"'")
        .hint("put the whole path into one pair of double quotes: '\"one\\ntwo/three\"'")
        .hint("quote a name that begins with a double quote: '\"\\\"name\"'")
    })
}

/// Returns the entry at a path inside a snapshot. `snapshot` is its name as the user typed it, for errors.
pub(crate) fn entry(tree: &Tree, snapshot: &str, path: &[u8]) -> Result<Entry> {
    let hint = format!("`workspace ls -R {snapshot}` lists its files");
    match tree.entry(path) {
        Ok(Some(entry)) => Ok(entry),
        Ok(None) => {
            let path = quote_path(path);
            Err(CommandError::failed(format!("`{path}` is not in snapshot `{snapshot}`")).hint(hint))
        }
        // The path is invalid.
        Err(error @ StoreError::Refused(_)) => Err(CommandError::from(error).hint(hint)),
        Err(error) => Err(error.into()),
    }
}

/// Normalises a path inside a tree: no leading, trailing or repeated slashes, and no `.`.
pub(crate) fn normalized(path: &[u8]) -> Vec<u8> {
    let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".");
    names.collect::<Vec<_>>().join(&b'/')
}

/// Joins a path and a name below it.
pub(crate) fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    if path.is_empty() { name.to_vec() } else { [path, b"/", name].concat() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ancestor_suffixes_are_parsed() {
        assert_eq!(steps_back("main~3"), Some(("main", 3)));
        assert_eq!(steps_back("main~"), Some(("main", 1)));
        assert_eq!(steps_back("main~0"), Some(("main", 0)));
        assert_eq!(steps_back("main~99999999999999999999"), Some(("main", u64::MAX)));
        for text in ["main", "main~x", "main~-1", "main~1~1", "main~+1"] {
            assert_eq!(steps_back(text), None, "{text}");
        }
    }

    #[test]
    fn paths_are_normalized() {
        assert_eq!(normalized(b"/a//b/./c/"), b"a/b/c");
        assert_eq!(normalized(b"/"), b"");
        assert_eq!(join(b"", b"a"), b"a");
        assert_eq!(join(b"a", b"b"), b"a/b");
    }
}
