//! Detection of file types, and the default strategy for each.

use crate::file::Input;

/// Number of leading bytes that are searched for a NUL to detect binary files; the same as git's.
const BINARY_PROBE_LEN: usize = 8000;

/// Default strategies by file extension. The first match counts.
pub(crate) const BY_EXTENSION: [(&str, &str); 9] = [
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
    if let Some(strategy) = by_name(input.path) {
        return strategy;
    }
    let versions = &input.versions;
    let all = [versions.base.unwrap_or_default(), versions.ours, versions.theirs];
    if all.into_iter().all(is_text) { "text" } else { "binary" }
}

/// Returns the default strategy for the extension of a path; `None` if the extension is not known.
pub(crate) fn by_name(path: &str) -> Option<&'static str> {
    let name = path.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    let is_of = |ending: &str| name.len() > ending.len() && name.ends_with(ending);
    BY_EXTENSION.iter().find(|(ending, _)| is_of(ending)).map(|(_, strategy)| *strategy)
}

/// Returns true if content is text. UTF-16 is text if it has a byte order mark.
pub(crate) fn is_text(content: &[u8]) -> bool {
    is_utf16(content) || memchr::memchr(0, &content[..content.len().min(BINARY_PROBE_LEN)]).is_none()
}

pub(crate) fn is_utf16(content: &[u8]) -> bool {
    content.len().is_multiple_of(2)
        && (content.starts_with(&[0xff, 0xfe]) || content.starts_with(&[0xfe, 0xff]))
}
