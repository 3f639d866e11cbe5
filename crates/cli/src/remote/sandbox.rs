//! Finds sandboxes by id or name.

use workspace_api::sandboxes::{Sandbox, SandboxList};

use super::Client;
use crate::error::{CommandError, Result};

const ID_PREFIX: &str = "sbx-";
const ID_DIGITS: usize = 32;
/// Shortest prefix of an id, in digits.
const ID_DIGITS_MIN: usize = 4;
const PAGE_SIZE: usize = 100;
/// Similarity from 0 to 1 above which another name is suggested: the same as that of clap for misspelt subcommands.
const SIMILARITY_MIN: f64 = 0.7;

/// Query of [`list_sandboxes`] without a filter.
pub(crate) const NO_FILTER: &str = "";

/// Lists all visible sandboxes, filtered by a query such as `&state=running`, or [`NO_FILTER`].
pub(crate) async fn list_sandboxes(client: &Client, filter_query: &str) -> Result<Vec<Sandbox>> {
    let (mut all, mut cursor) = (Vec::new(), String::new());
    loop {
        let path = format!("/api/v1/sandboxes?limit={PAGE_SIZE}{cursor}{filter_query}");
        let page: SandboxList = client.get(&path).await?;
        all.extend(page.items);
        let Some(next) = page.next else { return Ok(all) };
        cursor = format!("&cursor={next}");
    }
}

/// Finds a sandbox by its id, a prefix of it, or its name. Fails if several match.
pub(crate) async fn find_sandbox(client: &Client, name: &str) -> Result<String> {
    if is_full_id(name) {
        return Ok(name.to_owned());
    }
    let all = list_sandboxes(client, NO_FILTER).await?;
    let ids = all.iter().filter(|sandbox| matches(sandbox, name)).map(|sandbox| sandbox.id.as_str());
    let ids: Vec<&str> = ids.collect();
    match ids.as_slice() {
        [id] => Ok((*id).to_owned()),
        [] => {
            let error = CommandError::failed(format!("there is no sandbox `{name}`"));
            let error = match similar(name, all.iter().filter_map(|sandbox| sandbox.name.as_deref())) {
                Some(similar) => error.hint(format!("did you mean `{similar}`?")),
                None => error,
            };
            Err(error.hint("`workspace ps` lists your sandboxes"))
        }
        several => Err(CommandError::failed(format!("`{name}` matches {} sandboxes", several.len()))
            .hint(format!("use more digits of the id: {}", several.join(", ")))),
    }
}

/// Returns the most similar name, if it may be meant.
fn similar<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let rated = names.map(|other| (strsim::jaro(name, other), other));
    let (_, best) = rated
        .filter(|(similarity, _)| *similarity > SIMILARITY_MIN)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))?;
    Some(best)
}

fn is_full_id(name: &str) -> bool {
    name.strip_prefix(ID_PREFIX)
        .is_some_and(|digits| digits.len() == ID_DIGITS && digits.bytes().all(is_digit))
}

fn is_digit(byte: u8) -> bool {
    byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)
}

fn matches(sandbox: &Sandbox, name: &str) -> bool {
    let digits = name.strip_prefix(ID_PREFIX).unwrap_or(name);
    let id_starts_with_digits = || {
        let id_digits = sandbox.id.strip_prefix(ID_PREFIX);
        digits.len() >= ID_DIGITS_MIN && id_digits.is_some_and(|id_digits| id_digits.starts_with(digits))
    };
    sandbox.name.as_deref() == Some(name) || id_starts_with_digits()
}

/// Checks that an id can be part of a URL path.
pub(crate) fn check_id<'a>(what: &str, id: &'a str) -> Result<&'a str> {
    let is_valid = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if is_valid {
        return Ok(id);
    }
    Err(CommandError::failed(format!("`{id}` is not the id of a {what}"))
        .hint("ids have letters, digits and hyphens"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_similar_name_is_suggested() {
        let names = ["build", "work", "work-2"];
        for (typed, suggested) in
            [("wrok", Some("work")), ("work2", Some("work-2")), ("biuld", Some("build")), ("zzz", None)]
        {
            assert_eq!(similar(typed, names.into_iter()), suggested, "{typed}");
        }
    }
}
