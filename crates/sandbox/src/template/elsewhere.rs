//! What stands in for unpacking on systems other than Linux, which cannot keep an archive from leaving its directory.

use std::io;
use std::path::Path;

use super::TemplateError;

pub(super) struct Unpacker {
    pub(super) size: u64,
    pub(super) left_out: u64,
}

impl Unpacker {
    pub(super) fn new(_root: &Path) -> io::Result<Self> {
        Err(needs_linux())
    }

    pub(super) fn layer(&mut self, _layer: impl io::Read) -> Result<(), TemplateError> {
        Err(needs_linux().into())
    }
}

fn needs_linux() -> io::Error {
    io::Error::other("templates of files need Linux; with RUNTIME=docker a template is the name of an image")
}
