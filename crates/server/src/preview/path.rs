//! Path form of previews: `/preview/{id}/{port}/@TOKEN/…` on the host of the API.

use super::target::Target;

/// First characters of the paths of previews.
pub(crate) const PREFIX: &str = "/preview/";

/// Parts of the path of a preview.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PreviewPath<'p> {
    pub(crate) target: Target,
    pub(crate) token: &'p str,
    /// Part up to the token, without a slash at its end.
    pub(crate) prefix: &'p str,
    /// Path for the program in the sandbox, with a slash at its start. `None` if the path ends with the token.
    pub(crate) rest: Option<&'p str>,
}

impl<'p> PreviewPath<'p> {
    /// Parses a path; `None` if it is not the path of a preview.
    pub(crate) fn parse(path: &'p str) -> Option<Self> {
        let mut parts = path.strip_prefix(PREFIX)?.splitn(3, '/');
        let target = Target::parse(parts.next()?, parts.next()?)?;
        let last = parts.next()?;
        let token = last.strip_prefix('@')?.split('/').next()?;
        let prefix = &path[..path.len() - last.len() + 1 + token.len()];
        let rest = Some(&path[prefix.len()..]).filter(|rest| !rest.is_empty());
        Some(Self { target, token, prefix, rest })
    }
}

/// Returns the path of a preview, with a slash at its end.
pub(crate) fn preview_path(target: &Target, token: &str) -> String {
    format!("{PREFIX}{}/{}/@{token}/", target.sandbox, target.port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_after_the_token_is_for_the_program() {
        let target = Target { sandbox: "sbx-1".to_owned(), port: 80 };
        let path = preview_path(&target, "wsp_x");
        for (rest, expected) in
            [("", "/"), ("a/b", "/a/b"), ("/a//", "//a//"), ("../../x", "/../../x"), ("@y/", "/@y/")]
        {
            let path = format!("{path}{rest}");
            let parsed = PreviewPath::parse(&path).unwrap();
            assert_eq!((&parsed.target, parsed.token, parsed.rest), (&target, "wsp_x", Some(expected)));
            assert_eq!(parsed.prefix, "/preview/sbx-1/80/@wsp_x");
        }
        let parsed = PreviewPath::parse("/preview/sbx-1/80/@wsp_x").unwrap();
        assert_eq!((parsed.token, parsed.prefix, parsed.rest), ("wsp_x", "/preview/sbx-1/80/@wsp_x", None));
        for path in [
            "/preview",
            "/preview/",
            "/preview/sbx-1",
            "/preview/sbx-1/80",
            "/preview/sbx-1/80/x/@y",
            "/preview/a/b/@c/",
        ] {
            assert_eq!(PreviewPath::parse(path), None, "{path}");
        }
    }
}
