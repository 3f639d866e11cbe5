//! `workspace files url`

use workspace_api::access::{CreateSignedUrl, SignedMethod, SignedUrl};

use super::at_file;
use crate::args::FilesUrl;
use crate::commands::table;
use crate::context::Context;
use crate::error::{CommandError, Result};
use crate::text;

/// Creates a signed URL of a file, and prints it.
pub(super) fn run(context: &mut Context, args: &FilesUrl) -> Result<()> {
    let method = if args.upload { SignedMethod::Put } else { SignedMethod::Get };
    let signed = at_file(&args.at, async |client, sandbox, path| {
        let path = path.as_text().ok_or_else(|| {
            CommandError::failed(format!("{} is not UTF-8, so no URL can be signed for it", path.quoted()))
                .hint("rename the file, or read it with `workspace files get`")
        })?;
        let body = CreateSignedUrl {
            path: path.to_owned(),
            method,
            expires_in_seconds: args.expires.map(|lifetime| lifetime.as_secs()),
            max_bytes: args.max_size,
        };
        client.post::<SignedUrl>(&format!("/api/v1/sandboxes/{sandbox}/signed-url"), &body).await
    })?;
    if context.output.is_json() {
        return context.output.record(&signed);
    }
    context.output.line(&signed.url)?;
    text::print_stderr(&format!("note: it expires {}", table::time(&signed.expires_at)));
    Ok(())
}
