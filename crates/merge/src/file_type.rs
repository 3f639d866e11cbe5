//! Detection of file types, and the default strategy for each.

use crate::file::Input;

/// Number of leading bytes that are searched for a NUL to detect binary files, as in git.
const BINARY_PROBE_LEN: usize = 8000;

/// Pairs of file extension and default strategy. The first match wins, so `.crdt.json`, the extension of JSON files
/// that are merged as conflict-free replicated data types, comes before `.json`.
pub(crate) const STRATEGY_BY_EXTENSION: [(&str, &str); 9] = [
    (".crdt.json", "crdt"),
    (".json", "json"),
    (".jsonc", "json"),
    (".ipynb", "notebook"),
    (".yaml", "yaml"),
    (".yml", "yaml"),
    (".toml", "toml"),
    (".jsonl", "log"),
    (".log", "log"),
];

/// Returns the default strategy of a file, by its extension or else by its content.
pub(crate) fn strategy_for(input: &Input<'_>) -> &'static str {
    if let Some(strategy) = by_extension(input.path) {
        return strategy;
    }
    let versions = &input.versions;
    let all = [versions.base.unwrap_or_default(), versions.ours, versions.theirs];
    if all.into_iter().all(is_text) { "text" } else { "binary" }
}

/// Returns the default strategy for the extension of a path, in upper or lower case; `None` if the extension is
/// unknown. An extension counts only with a name before it: `.json` has none, and `.crdt.json` has `.json`.
pub(crate) fn by_extension(path: &str) -> Option<&'static str> {
    let name = path.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    let has_extension = |extension: &str| name.len() > extension.len() && name.ends_with(extension);
    STRATEGY_BY_EXTENSION
        .iter()
        .find(|(extension, _)| has_extension(extension))
        .map(|(_, strategy)| *strategy)
}

/// Returns true if content is text, including UTF-16 with a byte order mark.
pub(crate) fn is_text(content: &[u8]) -> bool {
    is_utf16(content) || memchr::memchr(0, &content[..content.len().min(BINARY_PROBE_LEN)]).is_none()
}

/// Returns true if content is UTF-16: it starts with a byte order mark and has an even number of bytes.
pub(crate) fn is_utf16(content: &[u8]) -> bool {
    content.len().is_multiple_of(2)
        && (content.starts_with(&[0xff, 0xfe]) || content.starts_with(&[0xfe, 0xff]))
}
