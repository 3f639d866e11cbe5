//! Streaming reader of archives: returns each member with the metadata of all its headers, then its content.
//!
//! The `tar` crate decodes the fields of headers. Extension members (pax records, long names) are decoded here, because
//! the value of a pax record may contain newlines, at which the crate ends it, and may change the length of a member.

use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom};

use tar::{EntryType, GnuExtSparseHeader, Header};

use super::block::{BLOCK, padded};
use super::error::{ArchiveError, Result, refused};
use super::member::{self, Extensions, Kind, Member, SparseForm};
use super::pax::{self, Records};
use super::sparse::SparseMap;
use crate::cancel::{Cancel, Cancelled};

/// Maximum length of an extension member in bytes. The longest path and link target and many attributes fit.
const EXTENSION_MAX: u64 = 4 << 20;
/// Maximum total length of the pax records for the whole archive, in bytes.
const GLOBAL_MAX: usize = 64 << 10;
/// Size of the read buffer for content, in bytes.
const READ_BUFFER: usize = 256 << 10;
/// Maximum number of pieces of data in a sparse map.
const PIECES_MAX: u64 = 1 << 22;

/// Source of an archive.
enum Input<'r> {
    /// Any input, of which all bytes are read.
    Stream(&'r mut dyn Read),
    /// File, in which seeking skips unread content.
    File(&'r File),
}

/// An archive that is being read.
pub(super) struct Reader<'r> {
    input: Input<'r>,
    cancel: Cancel,
    /// Read buffer for content.
    buffer: Vec<u8>,
    /// Number of bytes read or skipped so far.
    offset: u64,
    /// Number of unread bytes of the current member's content.
    content_left: u64,
    /// Number of unread bytes of the padding after that content.
    padding_left: u64,
    /// Pax records that apply to all following members.
    global: Records,
}

impl<'r> Reader<'r> {
    /// Creates a reader of a stream. It fails once `cancel` is set.
    pub(super) fn new(input: &'r mut dyn Read, cancel: Cancel) -> Self {
        Self::with_input(Input::Stream(input), cancel)
    }

    /// Creates a reader of a file, from its current position. It fails once `cancel` is set.
    pub(super) fn of_file(file: &'r File, cancel: Cancel) -> Self {
        Self::with_input(Input::File(file), cancel)
    }

    fn with_input(input: Input<'r>, cancel: Cancel) -> Self {
        let global = Records::default();
        Self { input, cancel, buffer: Vec::new(), offset: 0, content_left: 0, padding_left: 0, global }
    }

    /// Returns the number of bytes read or skipped so far.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the next member; `None` at the end of the archive. Skips unread content of the previous member.
    pub(super) fn next(&mut self) -> Result<Option<Member>> {
        let mut extensions = Extensions::default();
        loop {
            self.skip_content()?;
            let Some(header) = self.read_header()? else {
                self.read_to_end()?;
                return Ok(None);
            };
            match header.entry_type() {
                EntryType::XGlobalHeader => {
                    let records = self.read_records(&header)?;
                    self.add_global(records)?;
                }
                EntryType::XHeader => {
                    set_once(&mut extensions.pax, self.read_records(&header)?, self.offset)?;
                }
                EntryType::GNULongName => {
                    set_once(&mut extensions.long_name, self.read_long_name(&header)?, self.offset)?;
                }
                EntryType::GNULongLink => {
                    set_once(&mut extensions.long_link, self.read_long_name(&header)?, self.offset)?;
                }
                _ => return self.begin_member(&header, extensions).map(Some),
            }
        }
    }

    /// Adds records for all following members. Limits their size, and refuses extended attributes, because each member
    /// would get a copy of them.
    fn add_global(&mut self, records: Records) -> Result<()> {
        if records.has_xattrs() {
            return Err(self.malformed("extended attributes for the whole archive"));
        }
        self.global.override_with(records);
        if self.global.len() > GLOBAL_MAX {
            return Err(self.malformed("records for the whole archive that are too large"));
        }
        Ok(())
    }

    /// Combines the headers of a member. The content of the member can be read afterwards.
    fn begin_member(&mut self, header: &Header, extensions: Extensions) -> Result<Member> {
        let more_pieces = self.read_extended_map(header)?;
        let offset = self.offset;
        let malformed = |reason| ArchiveError::Malformed { reason, offset };
        let member = Member::new(header, extensions, &self.global, more_pieces).map_err(malformed)?;
        if !member.has_content() && !matches!(member.kind, Kind::Other(_)) && member.stored != 0 {
            // Other tar readers disagree on whether content follows, so an archive could hide members in it.
            return Err(refused(&member.path, "it has a size but no content"));
        }
        self.content_left = member.stored;
        let total = padded(member.stored).ok_or_else(|| malformed("an impossible size"))?;
        self.padding_left = total - member.stored;
        Ok(member)
    }

    /// Returns the map of a sparse member; `None` for other members. Must be called once for each member, before its
    /// content is read, because the map may precede the data.
    pub(super) fn sparse_map(&mut self, member: &mut Member) -> Result<Option<SparseMap>> {
        let offset = self.offset;
        let malformed = |reason| ArchiveError::Malformed { reason, offset };
        match &mut member.kind {
            Kind::Sparse(SparseForm::InHeaders(pieces)) => {
                let pieces = std::mem::take(pieces);
                SparseMap::new(pieces, member.size, member.stored).map(Some).map_err(malformed)
            }
            Kind::Sparse(SparseForm::BeforeData) => {
                let pieces = self.read_map_before_data()?;
                SparseMap::new(pieces, member.size, self.content_left).map(Some).map_err(malformed)
            }
            _ => Ok(None),
        }
    }

    /// Reads the text map of GNU sparse format 1.0.
    fn read_map_before_data(&mut self) -> Result<Vec<(u64, u64)>> {
        let mut numbers = Numbers { reader: self, block: [0; BLOCK as usize], index: BLOCK as usize };
        let count = numbers.next()?;
        if count > PIECES_MAX {
            return Err(self.malformed("a sparse map that is too large"));
        }
        let mut pieces = Vec::new();
        for _ in 0..count {
            pieces.push((numbers.next()?, numbers.next()?));
        }
        Ok(pieces)
    }

    /// Reads the rest of a sparse map from the blocks after its header. Returns offset and length of each piece.
    fn read_extended_map(&mut self, header: &Header) -> Result<Vec<(u64, u64)>> {
        let mut pieces = Vec::new();
        let mut is_extended = member::has_more_map(header);
        while is_extended {
            let mut block = GnuExtSparseHeader::new();
            self.read_exact(block.as_mut_bytes())?;
            let more = member::extended_pieces(&block).map_err(|reason| self.malformed(reason))?;
            pieces.extend(more);
            if pieces.len() as u64 > PIECES_MAX {
                return Err(self.malformed("a sparse map that is too large"));
            }
            is_extended = block.is_extended();
        }
        Ok(pieces)
    }

    /// Reads a header and verifies its checksum. Returns `None` for the block of zeros that ends an archive.
    fn read_header(&mut self) -> Result<Option<Header>> {
        let mut header = Header::new_old();
        let is_first_header = self.offset == 0;
        self.read_exact(header.as_mut_bytes()).map_err(|error| match error {
            ArchiveError::Truncated { offset: 0 } if is_first_header => not_an_archive("it is empty"),
            ArchiveError::Truncated { .. } if is_first_header => {
                not_an_archive("it is shorter than a header")
            }
            other => other,
        })?;
        let bytes = header.as_bytes();
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        // The checksum is the sum of all bytes, in which the bytes of the checksum itself count as spaces.
        let counted = |index: usize| {
            if (148..156).contains(&index) { u32::from(b' ') } else { u32::from(bytes[index]) }
        };
        let sum: u32 = (0..bytes.len()).map(counted).sum();
        if header.cksum().ok() != Some(sum) {
            return Err(match is_first_header {
                true => not_an_archive("it does not begin with a header"),
                false => self.malformed("a header whose checksum is wrong"),
            });
        }
        Ok(Some(header))
    }

    /// Reads the rest of the input, so that a process that writes it into a pipe can finish. Only zeros may follow the
    /// end of the archive.
    fn read_to_end(&mut self) -> Result<()> {
        let mut buffer = vec![0; 64 << 10];
        loop {
            match self.read_some(&mut buffer)? {
                0 => return Ok(()),
                len if buffer[..len].iter().all(|byte| *byte == 0) => self.offset += len as u64,
                _ => return Err(self.malformed("data after the end of the archive")),
            }
        }
    }

    /// Reads up to `buffer.len()` bytes. Returns 0 at the end of the input. Does not advance `offset`.
    fn read_some(&mut self, buffer: &mut [u8]) -> Result<usize> {
        loop {
            self.cancel.check()?;
            let read = match &mut self.input {
                Input::Stream(input) => input.read(buffer),
                Input::File(file) => file.read(buffer),
            };
            match read {
                Ok(len) => return Ok(len),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if Cancelled::is_cause_of(&error) => return Err(Cancelled.into()),
                Err(source) => return Err(ArchiveError::Read { source }),
            }
        }
    }

    /// Passes the next `len` bytes of the current member's content to `take`, in pieces.
    pub(super) fn read_content(
        &mut self,
        mut len: u64,
        mut take: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(READ_BUFFER, 0);
        while len > 0 {
            let step = usize::try_from(len).unwrap_or(READ_BUFFER).min(READ_BUFFER);
            let read = self.read_some_content(&mut buffer[..step])?;
            take(&buffer[..read])?;
            len -= read as u64;
        }
        self.buffer = buffer;
        Ok(())
    }

    /// Reads up to `buffer.len()` bytes of content. Fails at the end of the content.
    fn read_some_content(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let step = usize::try_from(self.content_left).unwrap_or(usize::MAX).min(buffer.len());
        let read = if step == 0 { 0 } else { self.read_some(&mut buffer[..step])? };
        if read == 0 {
            return Err(ArchiveError::Truncated { offset: self.offset });
        }
        self.offset += read as u64;
        self.content_left -= read as u64;
        Ok(read)
    }

    /// Reads the content of an extension member.
    fn read_extension(&mut self, header: &Header) -> Result<Vec<u8>> {
        let size = header.entry_size().map_err(|_| self.malformed("an invalid size"))?;
        if size > EXTENSION_MAX {
            return Err(self.malformed("an extension that is too large"));
        }
        let mut bytes = vec![0; size as usize];
        self.read_exact(&mut bytes)?;
        self.padding_left = size.next_multiple_of(BLOCK) - size;
        Ok(bytes)
    }

    /// Reads the pax records in an extension member.
    fn read_records(&mut self, header: &Header) -> Result<Records> {
        let bytes = self.read_extension(header)?;
        Records::decode(&bytes).map_err(|reason| self.malformed(reason))
    }

    /// Reads the GNU long name or long link in an extension member, up to the first NUL.
    fn read_long_name(&mut self, header: &Header) -> Result<Vec<u8>> {
        let mut bytes = self.read_extension(header)?;
        if let Some(end) = bytes.iter().position(|byte| *byte == 0) {
            bytes.truncate(end);
        }
        Ok(bytes)
    }

    /// Skips the unread content and padding of the current member.
    fn skip_content(&mut self) -> Result<()> {
        let malformed = self.malformed("an impossible size");
        let mut remaining = self.content_left.checked_add(self.padding_left).ok_or(malformed)?;
        (self.content_left, self.padding_left) = (0, 0);
        if remaining == 0 || self.seek_over(remaining)? {
            return Ok(());
        }
        let mut buffer = vec![0; 32 << 10];
        while remaining > 0 {
            let step = remaining.min(buffer.len() as u64);
            self.read_exact(&mut buffer[..step as usize])?;
            remaining -= step;
        }
        Ok(())
    }

    /// Seeks forward by `len` bytes. Returns false if the input is a stream. Fails if the file is shorter.
    fn seek_over(&mut self, len: u64) -> Result<bool> {
        let Input::File(mut file) = self.input else { return Ok(false) };
        let failed = |source| ArchiveError::Read { source };
        let position = file.stream_position().map_err(failed)?;
        let is_inside = |target: &u64| file.metadata().is_ok_and(|metadata| *target <= metadata.len());
        let target = position.checked_add(len).filter(is_inside);
        let Some(target) = target else { return Err(ArchiveError::Truncated { offset: self.offset }) };
        file.seek(SeekFrom::Start(target)).map_err(failed)?;
        self.offset += len;
        Ok(true)
    }

    /// Fills the buffer. Fails if the input ends before.
    fn read_exact(&mut self, buffer: &mut [u8]) -> Result<()> {
        let mut read = 0;
        while read < buffer.len() {
            match self.read_some(&mut buffer[read..])? {
                0 => return Err(ArchiveError::Truncated { offset: self.offset + read as u64 }),
                len => read += len,
            }
        }
        self.offset += read as u64;
        Ok(())
    }

    /// Returns the error for a damaged archive, at the current offset.
    fn malformed(&self, reason: &'static str) -> ArchiveError {
        ArchiveError::Malformed { reason, offset: self.offset }
    }
}

/// Reader of the text map of GNU sparse format 1.0: a decimal number per line, in whole blocks before the data.
struct Numbers<'a, 'r> {
    reader: &'a mut Reader<'r>,
    block: [u8; BLOCK as usize],
    /// Index of the next byte in the block.
    index: usize,
}

impl Numbers<'_, '_> {
    /// Reads the next number.
    fn next(&mut self) -> Result<u64> {
        let mut digits = Vec::new();
        loop {
            match self.byte()? {
                b'\n' => break,
                digit if digits.len() < 20 => digits.push(digit),
                _ => return Err(self.reader.malformed("an invalid number")),
            }
        }
        pax::parse_number(&digits).map_err(|reason| self.reader.malformed(reason))
    }

    /// Reads the next byte. Reads the next block first if the present block has no more bytes.
    fn byte(&mut self) -> Result<u8> {
        if self.index == self.block.len() {
            if self.reader.content_left < BLOCK {
                return Err(self.reader.malformed("a sparse map that does not end"));
            }
            self.reader.read_exact(&mut self.block)?;
            self.reader.content_left -= BLOCK;
            self.index = 0;
        }
        self.index += 1;
        Ok(self.block[self.index - 1])
    }
}

fn not_an_archive(reason: &'static str) -> ArchiveError {
    ArchiveError::NotAnArchive { reason }
}

/// Sets the value of an extension. Fails if a member has two extensions of this kind.
fn set_once<T>(slot: &mut Option<T>, value: T, offset: u64) -> Result<()> {
    if slot.replace(value).is_some() {
        return Err(ArchiveError::Malformed { reason: "two extensions of the same kind", offset });
    }
    Ok(())
}
