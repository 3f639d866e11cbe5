//! Which strategy is for which type of file.

use crate::file::Input;

/// A NUL so early in a file says that it is no text, as for git.
const LOOKED_AT: usize = 8000;

/// Strategies by how names of files end; the first one counts.
pub(crate) const BY_ENDING: [(&str, &str); 9] = [
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

/// By the name of the file, else by what is in it.
pub(crate) fn strategy_for(input: &Input<'_>) -> &'static str {
    if let Some(strategy) = by_name(input.path) {
        return strategy;
    }
    let versions = &input.versions;
    let all = [versions.base.unwrap_or_default(), versions.ours, versions.theirs];
    if all.into_iter().all(is_text) { "text" } else { "binary" }
}

/// Nothing if the name does not tell.
pub(crate) fn by_name(path: &str) -> Option<&'static str> {
    let name = path.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    let is_of = |ending: &str| name.len() > ending.len() && name.ends_with(ending);
    BY_ENDING.iter().find(|(ending, _)| is_of(ending)).map(|(_, strategy)| *strategy)
}

/// UTF-16 counts: its byte order mark says that the NULs are part of letters.
pub(crate) fn is_text(content: &[u8]) -> bool {
    is_utf16(content) || memchr::memchr(0, &content[..content.len().min(LOOKED_AT)]).is_none()
}

pub(crate) fn is_utf16(content: &[u8]) -> bool {
    content.len().is_multiple_of(2)
        && (content.starts_with(&[0xff, 0xfe]) || content.starts_with(&[0xfe, 0xff]))
}
