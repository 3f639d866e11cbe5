//! Output of a command: lines of text, or with `--json` one JSON object per line.

use std::fmt;
use std::io::{self, BufWriter, IsTerminal, Write};

use serde::Serialize;

use crate::error::{CommandError, Result};

/// Buffered stdout or stderr. [`Output::flush`] writes the buffer.
pub(crate) struct Output {
    out: BufWriter<Box<dyn Write>>,
    json: bool,
}

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        Self { out: BufWriter::with_capacity(64 << 10, Box::new(io::stdout().lock())), json }
    }

    /// Creates an output to stderr, for a command whose stdout belongs to another program.
    pub(crate) fn to_stderr() -> Self {
        Self { out: BufWriter::new(Box::new(io::stderr())), json: false }
    }

    /// Returns true if the output is JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Returns true if stdout is a terminal.
    pub(crate) fn stdout_is_terminal() -> bool {
        io::stdout().is_terminal()
    }

    /// Writes a line of text.
    pub(crate) fn line(&mut self, line: impl fmt::Display) -> Result<()> {
        writeln!(self.out, "{line}").map_err(|error| CommandError::output_failed(&error))
    }

    /// Writes bytes unchanged.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes).map_err(|error| CommandError::output_failed(&error))
    }

    /// Writes a JSON object on one line.
    pub(crate) fn record(&mut self, record: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_vec(record)
            .map_err(|error| CommandError::failed(format!("cannot write JSON: {error}")))?;
        line.push(b'\n');
        self.bytes(&line)
    }

    /// Returns the underlying writer.
    pub(crate) fn writer(&mut self) -> &mut dyn Write {
        &mut self.out
    }

    /// Writes the buffer to stdout or stderr.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.out.flush().map_err(|error| CommandError::output_failed(&error))
    }
}
