//! Host form of previews: `{port}-{id}.PREVIEW_DOMAIN`.

use super::target::Target;

/// Meaning of a host.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HostKind {
    /// Host of the API.
    Api,
    /// Host of a preview.
    Preview(Target),
    /// Host that can only be meant for a preview, but names none.
    Malformed,
}

/// Returns the meaning of a host with an optional port. `domain` is in lower case.
pub(crate) fn classify(authority: &str, domain: &str) -> HostKind {
    let Some(name) = host_name(authority) else { return HostKind::Api };
    let Some(below) = name.strip_suffix(domain).and_then(|rest| rest.strip_suffix('.')) else {
        return HostKind::Api;
    };
    // The label next to the domain decides. With further labels in front of it, the host is malformed.
    let label = below.rsplit('.').next().unwrap_or(below);
    match label.split_once('-') {
        Some((port, sandbox)) if is_number(port) => {
            let target = Target::parse(sandbox, port).filter(|_| label == below);
            target.map_or(HostKind::Malformed, HostKind::Preview)
        }
        _ => HostKind::Api,
    }
}

/// Returns the host of a preview, with the port of the host to which a client sent a request.
pub(crate) fn preview_host(target: &Target, domain: &str, client_host: &str) -> String {
    let Target { sandbox, port } = target;
    match split_port(client_host) {
        (_, Some(server_port)) => format!("{port}-{sandbox}.{domain}:{server_port}"),
        (_, None) => format!("{port}-{sandbox}.{domain}"),
    }
}

/// Returns the name without port and trailing dot, in lower case. `None` if it is an address or not a name.
fn host_name(authority: &str) -> Option<String> {
    let (host, _) = split_port(authority);
    let host = host.strip_suffix('.').unwrap_or(host);
    let is_name = host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte));
    is_name.then(|| host.to_ascii_lowercase())
}

fn split_port(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        Some((host, "")) => (host, None),
        Some((host, port)) if is_number(port) => (host, Some(port)),
        _ => (authority, None),
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "sbx-0190c2f1a5c07cc0a1b2c3d4e5f60718";

    fn target() -> Target {
        Target { sandbox: ID.to_owned(), port: 8080 }
    }

    #[test]
    fn hosts_of_previews_are_recognised_in_every_spelling() {
        for host in [
            format!("8080-{ID}.localhost"),
            format!("8080-{ID}.localhost:8080"),
            format!("8080-{ID}.localhost:"),
            format!("8080-{ID}.localhost."),
            format!("8080-{ID}.localhost.:8080"),
            format!("8080-{}.LOCALHOST:1", ID.to_uppercase()),
        ] {
            assert_eq!(classify(&host, "localhost"), HostKind::Preview(target()), "{host}");
        }
        let host = format!("8080-{ID}.preview.example.org");
        assert_eq!(classify(&host, "preview.example.org"), HostKind::Preview(target()));
        assert_eq!(classify(&host, "localhost"), HostKind::Api);
    }

    #[test]
    fn other_hosts_are_hosts_of_the_api() {
        for host in [
            "localhost",
            "localhost:8080",
            "api.localhost",
            "127.0.0.1:8080",
            "[::1]",
            "[::1]:8080",
            "::1",
            "",
            ":80",
            "sbx-1.localhost",
            "8080.localhost",
            "-sbx-1.localhost",
            "8080-sbx-1.localhost.example.org",
            "8080-sbx-1.notlocalhost",
            "8080-sbx-1localhost",
            "user@8080-sbx-1.localhost",
            "8080-sbx-1.localhost, localhost",
            "8080-sbx-1.localhost:80:80",
        ] {
            assert_eq!(classify(host, "localhost"), HostKind::Api, "{host}");
        }
    }

    #[test]
    fn the_api_is_not_served_on_hosts_that_look_like_previews() {
        for host in [
            "0-sbx-1.localhost",
            "65536-sbx-1.localhost",
            "080-sbx-1.localhost",
            "8080-.localhost",
            "a.8080-sbx-1.localhost",
            "8080-sbx-1.9090-sbx-2.localhost:80",
        ] {
            assert_eq!(classify(host, "localhost"), HostKind::Malformed, "{host}");
        }
    }

    #[test]
    fn a_preview_has_the_port_of_the_clients_host() {
        let host = |client: &str| preview_host(&target(), "localhost", client);
        assert_eq!(host("127.0.0.1:8081"), format!("8080-{ID}.localhost:8081"));
        assert_eq!(host("[::1]:8081"), format!("8080-{ID}.localhost:8081"));
        assert_eq!(host("api.example.org"), format!("8080-{ID}.localhost"));
        assert_eq!(host("[::1]"), format!("8080-{ID}.localhost"));
        assert_eq!(classify(&host("a:1"), "localhost"), HostKind::Preview(target()));
    }
}
