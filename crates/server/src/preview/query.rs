//! Query parameter with a preview token.

/// Name of the parameter.
pub(crate) const PARAMETER: &str = "workspace_token";

/// Splits a query into the first token and the other parameters, which stay as they are; `None` if there are none.
pub(crate) fn split_token(query: Option<&str>) -> (Option<&str>, Option<String>) {
    let Some(query) = query else { return (None, None) };
    let (mut token, mut others) = (None, Vec::new());
    for part in query.split('&') {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        if name == PARAMETER {
            token = token.or(Some(value));
        } else {
            others.push(part);
        }
    }
    let rest = others.join("&");
    (token, Some(rest).filter(|rest| !rest.is_empty() || token.is_none()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_taken_out_and_other_parameters_stay() {
        for (query, token, rest) in [
            ("workspace_token=x", Some("x"), None),
            ("a=1&workspace_token=x&b=%20&&c", Some("x"), Some("a=1&b=%20&&c")),
            ("workspace_token=x&workspace_token=y", Some("x"), None),
            ("workspace_token", Some(""), None),
            ("a=workspace_token=x", None, Some("a=workspace_token=x")),
            ("workspace_tokens=x", None, Some("workspace_tokens=x")),
            ("", None, Some("")),
        ] {
            assert_eq!(split_token(Some(query)), (token, rest.map(str::to_owned)), "{query}");
        }
        assert_eq!(split_token(None), (None, None));
    }
}
