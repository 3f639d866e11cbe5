//! `workspace template`

use std::fs::File;
use std::io::{self, ErrorKind, PipeReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use hyper::Method;
use parking_lot::Mutex;
use workspace_api::error_codes;
use workspace_api::templates::{Template, TemplateDetails};
use workspace_state::Progress as _;

use super::{table, template_build};
use crate::args::TemplateCommand;
use crate::context::Context;
use crate::error::{CommandError, Outcome, Result, io_hint};
use crate::progress::Bars;
use crate::remote::{Client, RequestError, ServerUrl, block_on};
use crate::text;

pub(crate) fn run(context: &mut Context, command: &TemplateCommand) -> Result<Outcome> {
    match command {
        TemplateCommand::Ls { server } => list(context, &Client::new(ServerUrl::new(server)?)),
        TemplateCommand::Show { name, server } => show(context, &Client::new(ServerUrl::new(server)?), name),
        TemplateCommand::Build(args) => template_build::run(context, args),
        TemplateCommand::Import { name, source, server } => {
            import(context, &Client::new(ServerUrl::new(server)?), name, source)
        }
        TemplateCommand::Rm { names, server } => remove(&Client::new(ServerUrl::new(server)?), names),
    }
}

fn list(context: &mut Context, client: &Client) -> Result<Outcome> {
    let templates: Vec<Template> = block_on(client.get("/api/v1/templates"))?;
    if context.output.is_json() {
        templates.iter().try_for_each(|template| context.output.record(template))?;
    } else {
        let rows: Vec<_> = templates.iter().map(row).collect();
        table::print(&mut context.output, &["NAME", "ON SERVER", "DESCRIPTION"], &rows)?;
    }
    Ok(Outcome::Done)
}

fn show(context: &mut Context, client: &Client, name: &str) -> Result<Outcome> {
    let details: TemplateDetails = block_on(client.get(&template_path(name)))?;
    if context.output.is_json() {
        context.output.record(&details)?;
        return Ok(Outcome::Done);
    }
    let template = &details.template;
    let mut lines = vec![("name", template.name.clone()), ("description", template.description.clone())];
    lines.extend(details.from.map(|from| ("from", from)));
    lines.extend(template.size.map(|size| ("size", format!("{size} bytes"))));
    lines.extend(template.created_at.clone().map(|time| ("created", time)));
    lines.extend(template.fetch_command.clone().map(|command| ("fetch with", command)));
    lines.extend(details.envs.into_iter().map(|(name, value)| ("env", format!("{name}={value}"))));
    for (label, value) in lines {
        context.output.line(format!("{label:<11} {}", text::escape_controls(&value)))?;
    }
    Ok(Outcome::Done)
}

fn row(template: &Template) -> Vec<String> {
    let on_server = if template.present { "yes" } else { "no" };
    let mut description = template.description.clone();
    if let Some(command) = &template.fetch_command {
        description.push_str(&format!(" (fetch with: {command})"));
    }
    vec![template.name.clone(), on_server.to_owned(), description]
}

fn import(context: &mut Context, client: &Client, name: &str, source: &Path) -> Result<Outcome> {
    let Archive { reader, size } = open(source).map_err(|error| unreadable(source, &error))?;
    let read_error = Arc::new(Mutex::new(None));
    let progress = Arc::new(Bars::new());
    progress.begin_bytes("sending", size);
    let reader =
        UploadReader { reader, progress: Arc::clone(&progress), read_error: Arc::clone(&read_error) };
    let sent = block_on(async {
        Ok(client.try_upload(&Method::PUT, &template_path(name), Box::new(reader)).await)
    })?;
    progress.end();
    // A local read error ends the upload early, and the server then reports another error. The local one is the cause.
    if let Some(error) = read_error.lock().take() {
        return Err(unreadable(source, &error));
    }
    let template: Template = sent.map_err(|failure| explain(failure, client, name))?;
    if context.output.is_json() {
        context.output.record(&template)?;
    } else {
        let size = template.size.unwrap_or_default();
        context.output.line(format!("{} {size} bytes", template.name))?;
    }
    Ok(Outcome::Done)
}

fn unreadable(source: &Path, error: &io::Error) -> CommandError {
    CommandError::failed(format!("cannot read {}: {error}", source.display())).hint(io_hint(error))
}

/// Explains a refused import.
fn explain(failure: RequestError, client: &Client, name: &str) -> CommandError {
    let hint = if failure.is(error_codes::INVALID_REQUEST) {
        "accepted: a tar of a root filesystem, of an OCI layout, or the output of `docker save`; plain, gzip or zstd"
            .to_owned()
    } else if failure.is(error_codes::TEMPLATE_EXISTS) {
        format!("choose another name, or remove that one first: `workspace template rm {name}`")
    } else if failure.is(error_codes::FORBIDDEN) {
        "only admins may import templates: use an admin key".to_owned()
    } else if failure.is(error_codes::NOT_IMPLEMENTED) {
        // A server with the runtime docker has no templates of its own, only the images of its container engine.
        "load the image into the container engine of the server, and name it with `--template`".to_owned()
    } else {
        return failure.explain(&client.server);
    };
    CommandError { hints: vec![hint], ..failure.explain(&client.server) }
}

/// Archive to upload.
struct Archive {
    reader: Box<dyn Read + Send>,
    /// Size in bytes; `None` if it is unknown.
    size: Option<u64>,
}

/// Opens the archive: a file, a directory, or stdin for `-`.
fn open(source: &Path) -> io::Result<Archive> {
    if source == Path::new("-") {
        return Ok(Archive { reader: Box::new(io::stdin()), size: None });
    }
    let file = File::open(source)?;
    let metadata = file.metadata()?;
    if !metadata.is_dir() {
        let size = metadata.is_file().then_some(metadata.len());
        return Ok(Archive { reader: Box::new(file), size });
    }
    Ok(Archive { reader: Box::new(PackedDirectory::start(source.to_owned())?), size: None })
}

/// Archive of a directory, which a thread packs while it is read. If a part of the directory cannot be packed, the
/// archive ends with that error: without it, the server would take the packed part for the whole.
struct PackedDirectory {
    reader: PipeReader,
    /// Thread that packs the directory; `None` once its result was returned.
    packing: Option<JoinHandle<io::Result<()>>>,
}

impl PackedDirectory {
    fn start(directory: PathBuf) -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        let packing = thread::spawn(move || {
            let mut archive = tar::Builder::new(writer);
            archive.follow_symlinks(false);
            archive.append_dir_all("", directory).and_then(|()| archive.finish())
        });
        Ok(Self { reader, packing: Some(packing) })
    }
}

impl Read for PackedDirectory {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        if read > 0 || buffer.is_empty() {
            return Ok(read);
        }
        let panicked = |_| Err(io::Error::other("the directory could not be packed"));
        self.packing.take().map_or(Ok(()), |packing| packing.join().unwrap_or_else(panicked)).map(|()| 0)
    }
}

/// Reader of an upload that shows progress and keeps a read error.
pub(super) struct UploadReader {
    pub(super) reader: Box<dyn Read + Send>,
    pub(super) progress: Arc<Bars>,
    /// First read error, for the caller; the upload itself gets a copy of it.
    pub(super) read_error: Arc<Mutex<Option<io::Error>>>,
}

impl Read for UploadReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.reader.read(buffer) {
            Ok(read) => {
                self.progress.advance(read as u64);
                Ok(read)
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Err(error),
            Err(error) => {
                let copy = io::Error::new(error.kind(), error.to_string());
                *self.read_error.lock() = Some(error);
                Err(copy)
            }
        }
    }
}

fn remove(client: &Client, names: &[String]) -> Result<Outcome> {
    for name in names {
        block_on(client.delete::<()>(&template_path(name)))?;
    }
    Ok(Outcome::Done)
}

/// Returns the URL path of a template. A name may contain slashes, which are escaped.
pub(super) fn template_path(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let escaped = name
        .bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") });
    format!("/api/v1/templates/{}", escaped.collect::<String>())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_name_is_one_part_of_a_path() {
        assert_eq!(template_path("team/python:3.12"), "/api/v1/templates/team%2Fpython%3A3.12");
        assert_eq!(template_path("../x y"), "/api/v1/templates/..%2Fx%20y");
    }

    #[test]
    fn an_archive_of_a_directory_that_cannot_be_packed_ends_with_an_error() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("file"), "content").unwrap();
        let mut archive = Vec::new();
        open(directory.path()).unwrap().reader.read_to_end(&mut archive).unwrap();
        assert!(!archive.is_empty());
        // An archive cannot have sockets.
        let _socket = UnixListener::bind(directory.path().join("socket")).unwrap();
        let read = open(directory.path()).unwrap().reader.read_to_end(&mut Vec::new());
        assert!(read.unwrap_err().to_string().contains("socket"));
    }
}
