//! `workspace sandbox create`

use clap::ValueEnum;
use hyper::Method;
use workspace_api::sandboxes::Sandbox;
use workspace_api::snapshots::UploadSnapshotResult;

use super::super::run::{create, create_request};
use super::super::tree_upload::{pack_in_thread, read_directory, upload_result};
use crate::args::SandboxCreate;
use crate::context::Context;
use crate::error::Result;
use crate::remote::with_client;

/// Creates a sandbox. With `--dir`, first uploads the directory as a snapshot, from which the sandbox is created.
pub(super) fn run(context: &mut Context, args: &SandboxCreate) -> Result<Sandbox> {
    let tree = args.content.dir.as_deref().map(|path| read_directory(context, path)).transpose()?;
    with_client(&args.server, async |client| {
        let mut request = create_request(&args.options, args.timeout);
        request.on_timeout = args.on_timeout.into();
        request.snapshot.clone_from(&args.content.snapshot);
        request.root = args.root.into();
        request.nfs_allowed_ips = (!args.nfs_allowed.is_empty()).then(|| args.nfs_allowed.clone());
        request.provider = args.content.provider.as_ref().and_then(api_name);
        request.materialize = args.content.materialize.as_ref().and_then(api_name);
        if let Some(tree) = tree {
            let (archive, packing) = pack_in_thread(tree)?;
            let sent =
                client.upload::<UploadSnapshotResult>(&Method::POST, "/api/v1/snapshots", archive).await;
            request.snapshot = Some(upload_result(sent, packing)?.snapshot.id);
        }
        create(client, &request).await
    })
}

/// Returns the name of a value of an option, which is also its name in the API.
fn api_name(value: &impl ValueEnum) -> Option<String> {
    value.to_possible_value().map(|value| value.get_name().to_owned())
}
