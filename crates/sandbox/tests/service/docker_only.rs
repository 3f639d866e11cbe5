//! Features of a Docker daemon only: images, and other clients.
//!
//! Helpers of `home.rs`: `TestHome` has the directory of a server and starts the service, `create` creates a sandbox
//! of the owner `alice`, and `sh` runs a shell command in a sandbox and returns its result.

use std::sync::Arc;

use libtest_mimic::Trial;
use workspace_catalog::{Filter, State};
use workspace_sandbox::runtime::{Docker, Network};
use workspace_sandbox::{NewSandbox, ReclaimPolicy, Service, Settings};

use crate::docker;
use crate::home::{TestHome, agent_program, alice, base, create, creator, run, sh, wait_until};
use crate::kind::RuntimeKind;
use crate::oci_only::unpack;
use crate::registry;

pub(crate) fn trials() -> Vec<Trial> {
    if !RuntimeKind::available().contains(&RuntimeKind::Docker) {
        return Vec::new();
    }
    macro_rules! on_docker {
        ($($name:ident),* $(,)?) => {
            vec![$(Trial::test(concat!("docker::", stringify!($name)), || {
                run(RuntimeKind::Docker, |home| Box::pin($name(home)));
                Ok(())
            })),*]
        };
    }
    on_docker![
        two_servers_share_a_daemon,
        container_of_another_client_is_not_removed,
        orphaned_container_is_removed,
        settings_of_an_image_are_ignored,
        failed_pull_reports_the_image_and_a_hint,
        progress_of_a_pull_is_in_the_state_reason,
        built_in_templates_are_listed_whether_present_or_not,
        sandbox_with_egress_is_in_the_configured_network,
    ]
}

async fn two_servers_share_a_daemon(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    let other = TestHome::new(RuntimeKind::Docker);
    let others = other.start().await;
    assert_eq!(others.runtime().known_ids().await.unwrap(), [""; 0]);
    assert_eq!(others.collect().await.unwrap().sandboxes, 0);
    assert_eq!(service.runtime().known_ids().await.unwrap(), [info.sandbox.id.as_str()]);
    assert_eq!(sh(&service, &info, "echo handles").await.stdout, "handles\n");
}

async fn container_of_another_client_is_not_removed(home: &TestHome) {
    let service = home.start().await;
    // Any name that is unique on the machine.
    let name = home.path().file_name().unwrap().to_string_lossy().trim_start_matches('.').to_owned();
    docker::run(&["create", "--name", &name, "workspace-base", "true"]);
    std::fs::create_dir_all(home.path().join("sandboxes").join(&name)).unwrap();
    // Only the directory is removed: the container has no label of this server.
    assert_eq!(service.collect().await.unwrap().sandboxes, 1);
    assert!(docker::run(&["ps", "--all", "--format", "{{.Names}}"]).lines().any(|one| one == name));
    docker::run(&["rm", &name]);
}

async fn orphaned_container_is_removed(home: &TestHome) {
    let service = home.start().await;
    let id = create(&service).await.sandbox.id;
    service.close().await;
    drop(service);
    home.catalog().await.sandboxes().delete(&id, &[]).await.unwrap();
    std::fs::remove_dir_all(home.path().join("sandboxes").join(&id)).unwrap();
    let service = home.start().await;
    assert_eq!(service.runtime().known_ids().await.unwrap(), [""; 0]);
    assert!(!docker::run(&["ps", "--all", "--format", "{{.Names}}"]).contains(&id));
}

async fn settings_of_an_image_are_ignored(home: &TestHome) {
    let service = home.start().await;
    docker::run(&["create", "--name", "odd", "workspace-base", "true"]);
    let changes = [
        "ENTRYPOINT [\"/bin/false\"]",
        "USER root",
        "VOLUME /data",
        "WORKDIR /elsewhere",
        "HEALTHCHECK --interval=1s CMD /bin/false",
        "ENV HOME=/root",
    ];
    let mut words = vec!["commit"];
    words.extend(changes.iter().flat_map(|change| ["--change", change]));
    docker::run(&[&words[..], &["odd", "odd:1"]].concat());
    docker::run(&["rm", "odd"]);
    let new = NewSandbox { template: "odd:1".to_owned(), ..base() };
    let info = service.create(creator(), new).await.unwrap();
    let ran = sh(&service, &info, "id -u; pwd; echo $HOME; touch /elsewhere/x").await;
    assert_eq!(ran.stdout, "1000\n/workspace\n/home/sandbox\n");
    assert_ne!(ran.exit.exit_code, 0);
    let health = docker::run(&["inspect", "--format", "{{.Config.Healthcheck}}", &info.sandbox.id]);
    assert!(health.contains("NONE"), "{health}");
    service.remove(&alice(), &info.sandbox.id, ReclaimPolicy::Delete).await.unwrap();
    assert_eq!(docker::run(&["volume", "ls", "--quiet"]), "");
}

async fn failed_pull_reports_the_image_and_a_hint(home: &TestHome) {
    let service = home.start().await;
    // No registry listens there.
    let new = NewSandbox { template: "127.0.0.1:9/none".to_owned(), ..base() };
    let refused = service.create(creator(), new).await.unwrap_err().to_string();
    for part in ["no template `127.0.0.1:9/none`", "`docker pull 127.0.0.1:9/none:latest`", "`docker load`"] {
        assert!(refused.contains(part), "{refused}");
    }
}

async fn progress_of_a_pull_is_in_the_state_reason(home: &TestHome) {
    let service = home.start().await;
    let root = tempfile::tempdir().unwrap();
    unpack(root.path());
    let image = registry::serve(root.path());
    let new = NewSandbox { template: image.clone(), ..base() };
    let maker = service.clone();
    let made = tokio::spawn(async move { maker.create(creator(), new).await });
    wait_until("the state says how far it is", async || {
        let (infos, _) = service.list(&alice(), Filter::default()).await.unwrap();
        let reason = infos.first().and_then(|info| info.sandbox.state_reason.clone()).unwrap_or_default();
        reason.starts_with(&format!("the image {image} is being pulled: ")) && reason.ends_with(" bytes")
    })
    .await;
    let info = made.await.unwrap().unwrap();
    assert_eq!((info.sandbox.state, info.sandbox.state_reason.as_deref()), (State::Running, None));
    assert_eq!(sh(&service, &info, "cat /etc/os-release").await.stdout, "NAME=mini\n");
    service.remove(&alice(), &info.sandbox.id, ReclaimPolicy::Delete).await.unwrap();
    docker::run(&["rmi", &image]);
}

async fn built_in_templates_are_listed_whether_present_or_not(home: &TestHome) {
    let service = home.start().await;
    let templates = service.runtime().templates().await.unwrap();
    for name in ["python:3.11", "python:3.12", "node:18", "node:20", "go:1.21"] {
        let template = templates.iter().find(|template| template.name == name).unwrap();
        assert!(
            !template.present && template.fetch_command.as_ref().unwrap().starts_with("docker pull"),
            "{template:?}"
        );
    }
    let base = templates.iter().find(|template| template.name == "base").unwrap();
    assert!(base.size.unwrap() > 1 << 20 && base.created_at.unwrap() > 1_600_000_000_000, "{base:?}");
}

async fn sandbox_with_egress_is_in_the_configured_network(home: &TestHome) {
    let name = format!("net{}", std::process::id());
    let sandboxes = home.path().join("sandboxes");
    let runtime = Docker::connect(&docker::host(), Some(&name), &agent_program(), &sandboxes).await.unwrap();
    let settings = Settings::new(home.path());
    let service = Service::start(settings, home.catalog().await, Arc::new(runtime)).await.unwrap();
    let new = NewSandbox { network: Network::Egress { allow: None }, ..base() };
    let refused = service.create(creator(), new.clone()).await.unwrap_err().to_string();
    assert!(refused.contains(&format!("create it with `docker network create {name}`")), "{refused}");
    docker::run(&["network", "create", &name]);
    let interfaces = "ls /sys/class/net";
    let info = service.create(creator(), new).await.unwrap();
    assert!(sh(&service, &info, interfaces).await.stdout.contains("eth0"));
    let alone = create(&service).await;
    assert!(!sh(&service, &alone, interfaces).await.stdout.contains("eth0"));
    service.remove(&alice(), &info.sandbox.id, ReclaimPolicy::Delete).await.unwrap();
    docker::run(&["network", "rm", &name]);
}
