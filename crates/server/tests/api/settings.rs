//! Settings: allowed values, precedence of sources, error messages.

use std::path::{Path, PathBuf};
use std::time::Duration;

use workspace_server::Settings;
use workspace_server::settings::{Cpus, HostEnvironment, Isolation, SettingsSource, Size, TABLE};

fn host_environment() -> HostEnvironment {
    HostEnvironment {
        user_data: Some(PathBuf::from("/home/a/.local/share")),
        program_directory: Some(PathBuf::from("/opt/bin")),
        ..HostEnvironment::default()
    }
}

fn settings_source(variables: &[(&str, &str)], file: Option<&str>) -> SettingsSource {
    SettingsSource::new(
        host_environment(),
        variables.iter().map(|&(name, value)| (name.into(), value.into())),
        file,
    )
}

fn read(variables: &[(&str, &str)], file: Option<&str>) -> Result<Settings, String> {
    Settings::from_source(&settings_source(variables, file)).map_err(|error| error.to_string())
}

#[test]
fn all_settings_have_defaults() {
    let settings = read(&[], None).unwrap();
    let data = Path::new("/home/a/.local/share/workspace-server");
    assert_eq!((settings.data_dir.as_path(), settings.workspace_root), (data, data.join("workspaces")));
    assert_eq!(
        (settings.audit_log, settings.agent_program),
        (data.join("audit.log"), "/opt/bin/workspace-agent".into())
    );
    assert!(settings.database_url.0.reveal().starts_with("sqlite://"));
    assert!(settings.api_host.is_loopback() && settings.api_key.is_none() && settings.metrics_port.is_none());
    assert_eq!((settings.default_cpu, settings.default_memory), (Cpus(2000), Size(2 << 30)));
    assert_eq!(settings.require_isolation, Isolation::BestEffort);
    let root = SettingsSource::new(HostEnvironment { is_root: true, ..host_environment() }, [], None);
    assert_eq!(Settings::from_source(&root).unwrap().require_isolation, Isolation::Strict);
}

#[test]
fn variables_override_the_file_and_the_file_overrides_defaults() {
    let file = "api_port = 1\nmax_sandboxes = 2\nrate_limit = false\ncors_origins = [\"https://a.org\", \"https://b.org\"]";
    let settings =
        read(&[("API_PORT", "3"), ("MAX_SANDBOXES", ""), ("SOMETHING_ELSE", "x")], Some(file)).unwrap();
    assert_eq!((settings.api_port, settings.max_sandboxes), (3, 2));
    assert_eq!((settings.rate_limit.0, settings.cors_origins.0.len()), (false, 2));
    assert_eq!(settings.expiry_interval, Duration::from_secs(60));
}

#[test]
fn all_errors_are_reported_at_once() {
    let variables = [
        ("API_PORT", "99999"),
        ("DEFAULT_MEMORY", "2 apples"),
        ("RUNTIME", "podman"),
        ("API_KEY", "short"),
        ("RUST_LOG", "a=b=c"),
        ("AUDIT_REDACT", "("),
    ];
    let error = read(&variables, Some("api_prt = 1\ntls_cert = 'relative'\nmax_disk = {}")).unwrap_err();
    let lines = [
        "API_PORT is `99999`; allowed: a port: 0 (any free one) to 65535",
        "DEFAULT_MEMORY is `2 apples`; allowed: a size such as 512m or 2g (units k, m, g, t)",
        "RUNTIME is `podman`; allowed: embedded, docker or oci",
        "API_KEY is not valid (its value is not shown); allowed: 16 to 200 visible ASCII characters",
        "AUDIT_REDACT is `(`; allowed: regular expressions, one per line",
        "the settings file has no setting `api_prt`; did you mean `api_port`?",
        "TLS_CERT is `relative`; allowed: an absolute path",
        "max_disk is a table",
    ];
    for line in lines {
        assert!(error.contains(line), "{line} in\n{error}");
    }
    assert!(error.contains("RUST_LOG is `a=b=c`") && !error.contains("short"), "{error}");
}

#[test]
fn every_setting_refuses_invalid_values() {
    for declaration in TABLE {
        // Values must not contain control characters, except in these settings.
        if matches!(declaration.name, "cors_origins" | "audit_redact") {
            continue;
        }
        let name = declaration.name.to_ascii_uppercase();
        let error = read(&[(&name, "=\u{1} wrong")], None).unwrap_err();
        assert!(error.contains(&name), "{name}: {error}");
    }
}

#[test]
fn every_setting_is_used() {
    let sources = source_files(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")));
    let text: String = sources.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    for declaration in TABLE {
        assert!(text.contains(&format!("settings.{}", declaration.name)), "{} is not used", declaration.name);
    }
}

fn source_files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let (directories, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let files = files.into_iter().filter(|path| path.extension().is_some_and(|it| it == "rs"));
    files.chain(directories.iter().flat_map(|it| source_files(it))).collect()
}

#[test]
fn a_syntax_error_names_the_line_without_its_text() {
    let error = read(&[], Some("api_port = 1\napi_key = the-secret-itself\n")).unwrap_err();
    assert!(error.contains("line 2") && !error.contains("secret"), "{error}");
    let list = read(&[], Some("api_port = [1, 2]")).unwrap_err();
    assert!(list.contains("API_PORT is `a list`"), "{list}");
}

#[test]
fn conflicting_settings_are_refused() {
    let wrong: [(&[(&str, &str)], &str); 11] = [
        (&[("TLS_CERT", "/a")], "must be set together"),
        (&[("API_HOST", "0.0.0.0")], "ALLOW_INSECURE=on"),
        (&[("METRICS_PORT", "8080")], "API_PORT must be different"),
        (&[("MAX_SANDBOX_LIFETIME", "60")], "DEFAULT_SANDBOX_TIMEOUT"),
        (&[("DEFAULT_CPU", "100")], "MAX_CPU"),
        (&[("MAX_DISK", "1g")], "DEFAULT_DISK"),
        (&[("GUEST_TRANSPORT", "tcp"), ("GRPC_HOST", "0.0.0.0")], "requires RUNTIME=docker"),
        (&[("GUEST_TRANSPORT", "tcp"), ("RUNTIME", "oci"), ("GRPC_HOST", "::")], "requires RUNTIME=docker"),
        (&[("GUEST_TRANSPORT", "tcp"), ("RUNTIME", "docker")], "GRPC_HOST is a loopback address"),
        (&[("GRPC_TLS_KEY", "/a")], "GRPC_TLS_CERT and GRPC_TLS_KEY must be set together"),
        (&[("GRPC_TLS_CA", "/a")], "GRPC_TLS_CA requires GRPC_TLS_CERT"),
    ];
    for (variables, expected) in wrong {
        let error = read(variables, None).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    assert!(read(&[("API_HOST", "0.0.0.0"), ("ALLOW_INSECURE", "on")], None).is_ok());
    let tcp = [("GUEST_TRANSPORT", "tcp"), ("RUNTIME", "docker")];
    for more in [("GRPC_HOST", "0.0.0.0"), ("GRPC_ADVERTISE", "server.example:50051")] {
        assert!(read(&[&tcp[..], &[more]].concat(), None).is_ok(), "{more:?}");
    }
    assert!(read(&[("API_HOST", "::"), ("TLS_CERT", "/a"), ("TLS_KEY", "/b")], None).is_ok());
}

#[test]
fn without_a_home_directory_data_dir_is_required() {
    let error = Settings::from_source(&SettingsSource::new(HostEnvironment::default(), [], None))
        .unwrap_err()
        .to_string();
    assert!(error.contains("DATA_DIR is not set"), "{error}");
}

#[test]
fn printed_settings_parse_again_and_contain_no_secrets() {
    let file = "cors_origins = ['https://a.org', 'https://b.org']\nmetrics_port = 9090";
    let given = settings_source(&[("API_KEY", "the-secret-key-itself"), ("MAX_SANDBOXES", "7")], Some(file));
    let shown = given.to_toml();
    assert!(!shown.contains("the-secret") && shown.contains("# api_key is set and not shown"), "{shown}");
    let again = read(&[], Some(&shown)).unwrap();
    assert_eq!((again.max_sandboxes, again.metrics_port), (7, Some(9090)));
    assert_eq!((again.cors_origins.0.len(), again.audit_redact.0.len()), (2, 2));
}

#[test]
fn a_relative_data_directory_is_refused() {
    // The second cannot be part of a URL, such as the default of DATABASE_URL.
    for path in ["data", "data:1/x", "../data", "."] {
        let given = settings_source(&[("DATA_DIR", path)], None);
        let error = Settings::from_source(&given).unwrap_err().to_string();
        assert!(error.contains("absolute path") && error.contains(path), "{error}");
        // `--print-config` still works.
        assert!(given.to_toml().contains(&format!("data_dir = \"{path}\"")), "{}", given.to_toml());
    }
}
