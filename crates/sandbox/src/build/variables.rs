//! References to variables in the values of `env`: `$NAME` and `${NAME}`; `$$` is a dollar sign.

use std::collections::BTreeMap;

/// Value of `PATH` in templates that do not set it.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Fails if a value has an incomplete reference. The error is a message.
pub(super) fn check_reference_syntax(value: &str) -> Result<(), String> {
    replace(value, |_| Ok(String::new())).map(drop)
}

/// Returns a value with all references replaced. The error is a message.
pub(super) fn expand(value: &str, variables: &BTreeMap<String, String>) -> Result<String, String> {
    replace(value, |name| match (variables.get(name), name) {
        (Some(value), _) => Ok(value.clone()),
        (None, "PATH") => Ok(DEFAULT_PATH.to_owned()),
        (None, _) => {
            Err(format!("there is no variable `{name}` before this step; write `$$` for a dollar sign"))
        }
    })
}

fn replace(value: &str, lookup: impl Fn(&str) -> Result<String, String>) -> Result<String, String> {
    let incomplete =
        || format!("`{value}` has an incomplete `${{`; write `${{NAME}}`, or `$$` for a dollar sign");
    let (mut result, mut rest) = (String::new(), value);
    while let Some((before, after)) = rest.split_once('$') {
        result.push_str(before);
        rest = if let Some(after) = after.strip_prefix('$') {
            result.push('$');
            after
        } else if let Some(after) = after.strip_prefix('{') {
            let (name, after) = after.split_once('}').ok_or_else(incomplete)?;
            if name.is_empty() || name.len() != name_length(name) {
                return Err(incomplete());
            }
            result.push_str(&lookup(name)?);
            after
        } else {
            let (name, after) = after.split_at(name_length(after));
            if name.is_empty() {
                return Err(incomplete());
            }
            result.push_str(&lookup(name)?);
            after
        };
    }
    Ok(result + rest)
}

/// Returns the length of the name of a variable at the start of a text.
fn name_length(text: &str) -> usize {
    text.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_replaced() {
        let variables =
            BTreeMap::from([("A".to_owned(), "one".to_owned()), ("A_1".to_owned(), "$A".to_owned())]);
        for (value, expected) in [
            ("", ""),
            ("x", "x"),
            ("$A/${A}b", "one/oneb"),
            ("$A_1", "$A"),
            ("a$$b", "a$b"),
            ("/x:$PATH", &format!("/x:{DEFAULT_PATH}")),
        ] {
            assert_eq!(expand(value, &variables).unwrap(), expected);
        }
        for value in ["$B", "${B}", "${", "${}", "$", "$-", "${A-b}"] {
            assert!(expand(value, &variables).is_err(), "{value}");
        }
    }
}
