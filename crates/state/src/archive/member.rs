//! Members of an archive: combines the metadata of a member from its ustar header, its pax records and its GNU
//! extensions.

use tar::{EntryType, GnuExtSparseHeader, GnuSparseHeader, Header};

use super::pax::{EffectiveRecords, Records};
use crate::node::Xattrs;
use crate::snapshot::Timestamp;

/// Kind of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    /// A file with holes, and the location of the map: offset and length of each piece of data.
    Sparse(SparseForm),
    Directory,
    Symlink,
    HardLink,
    /// Another kind, such as a device, with its description. Imports and extractions skip it.
    Other(&'static str),
}

/// Location of the map of a sparse file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SparseForm {
    /// In the headers, from which it is already decoded: offset and length of each piece of data.
    InHeaders(Vec<(u64, u64)>),
    /// As text before the data (GNU sparse format 1.0).
    BeforeData,
}

/// A member without its content.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) path: Vec<u8>,
    pub(super) kind: Kind,
    /// Target of a symlink or hard link; empty for other kinds.
    pub(super) target: Vec<u8>,
    pub(super) mode: u16,
    /// Modification time; `None` if a [`Timestamp`] cannot hold it.
    pub(super) modified: Option<Timestamp>,
    /// User extended attributes.
    pub(super) xattrs: Xattrs,
    /// Length of the content in the archive, in bytes; of a sparse file, with a map that precedes the data.
    pub(super) stored: u64,
    /// Length of the file in bytes, with its holes.
    pub(super) size: u64,
}

/// Content of the extension members that precede the header of a member.
#[derive(Debug, Default)]
pub(super) struct Extensions {
    /// Path from a GNU long name member.
    pub(super) long_name: Option<Vec<u8>>,
    /// Link target from a GNU long link member.
    pub(super) long_link: Option<Vec<u8>>,
    pub(super) pax: Option<Records>,
}

impl Member {
    /// Combines the headers: pax records take precedence over GNU extensions, and both over the header. `global` has
    /// the pax records for the whole archive, and `more_pieces` the part of a sparse map that follows the header.
    pub(super) fn new(
        header: &Header,
        extensions: Extensions,
        global: &Records,
        more_pieces: Vec<(u64, u64)>,
    ) -> Result<Self, &'static str> {
        let pax = EffectiveRecords { member: extensions.pax.unwrap_or_default(), global };
        let owned = |bytes: &[u8]| bytes.to_vec();
        let path = match (pax.get(b"GNU.sparse.name"), pax.get(b"path")) {
            (Some(name), _) | (None, Some(name)) => owned(name),
            (None, None) => extensions.long_name.unwrap_or_else(|| header.path_bytes().into_owned()),
        };
        let target = pax.get(b"linkpath").map(owned).or(extensions.long_link);
        let target = target.or_else(|| header.link_name_bytes().map(std::borrow::Cow::into_owned));
        let stored = match pax.number(b"size")? {
            Some(size) => size,
            None => header.entry_size().map_err(|_| "an invalid size")?,
        };
        let kind = kind(header, &pax, &path, more_pieces)?;
        let size = real_size(header, &pax, &kind)?.unwrap_or(stored);
        Ok(Self {
            path,
            target: target.unwrap_or_default(),
            mode: (header.mode().map_err(|_| "an invalid mode")? & 0o7777) as u16,
            modified: modified(header, &pax)?,
            xattrs: pax.member.xattrs(),
            stored,
            size,
            kind,
        })
    }

    /// Returns true for kinds that have content in the archive.
    pub(super) fn has_content(&self) -> bool {
        matches!(self.kind, Kind::File | Kind::Sparse(_))
    }
}

/// Determines the kind of a member. `more_pieces` is the part of a sparse map that follows the header.
fn kind(
    header: &Header,
    pax: &EffectiveRecords<'_>,
    path: &[u8],
    more_pieces: Vec<(u64, u64)>,
) -> Result<Kind, &'static str> {
    Ok(match header.entry_type() {
        // In the oldest format, directories are files whose names end in a slash.
        EntryType::Regular | EntryType::Continuous if path.ends_with(b"/") => Kind::Directory,
        EntryType::Regular | EntryType::Continuous => match sparse_form(pax)? {
            Some(form) => Kind::Sparse(form),
            None => Kind::File,
        },
        EntryType::GNUSparse => {
            let gnu = header.as_gnu().ok_or("a sparse file without its map")?;
            let mut pieces = pieces(&gnu.sparse)?;
            pieces.extend(more_pieces);
            Kind::Sparse(SparseForm::InHeaders(pieces))
        }
        EntryType::Directory => Kind::Directory,
        EntryType::Symlink => Kind::Symlink,
        EntryType::Link => Kind::HardLink,
        EntryType::Char | EntryType::Block => Kind::Other("a device"),
        EntryType::Fifo => Kind::Other("a fifo"),
        _ => Kind::Other("an entry of an unknown kind"),
    })
}

/// Returns true if the sparse map continues after the header.
pub(super) fn has_more_map(header: &Header) -> bool {
    header.entry_type() == EntryType::GNUSparse && header.as_gnu().is_some_and(tar::GnuHeader::is_extended)
}

/// Returns the pieces in a block that continues a sparse map.
pub(super) fn extended_pieces(block: &GnuExtSparseHeader) -> Result<Vec<(u64, u64)>, &'static str> {
    pieces(&block.sparse)
}

/// Decodes offset and length of each piece of data from a sparse map.
fn pieces(headers: &[GnuSparseHeader]) -> Result<Vec<(u64, u64)>, &'static str> {
    const INVALID_PIECE: &str = "an invalid sparse piece";
    let used = headers.iter().filter(|piece| !piece.is_empty());
    used.map(|piece| {
        Ok((piece.offset().map_err(|_| INVALID_PIECE)?, piece.length().map_err(|_| INVALID_PIECE)?))
    })
    .collect()
}

/// Returns the location of the map that pax records describe; `None` if the file is not sparse.
fn sparse_form(pax: &EffectiveRecords<'_>) -> Result<Option<SparseForm>, &'static str> {
    match (pax.get(b"GNU.sparse.major"), pax.get(b"GNU.sparse.minor")) {
        (Some(b"1"), Some(b"0")) => return Ok(Some(SparseForm::BeforeData)),
        (None | Some(b"0"), _) => {}
        _ => return Err("a sparse file of an unknown format"),
    }
    let Some(map) = pax.get(b"GNU.sparse.map") else {
        // Format 0.0 has a record for each piece, all with the same key.
        let is_format_0_0 =
            pax.get(b"GNU.sparse.numblocks").is_some() || pax.get(b"GNU.sparse.offset").is_some();
        return if is_format_0_0 { Err("a sparse file of format 0.0") } else { Ok(None) };
    };
    let numbers: Vec<u64> =
        map.split(|byte| *byte == b',').map(super::pax::parse_number).collect::<Result<_, _>>()?;
    if !numbers.len().is_multiple_of(2) {
        return Err("a sparse map with an incomplete piece");
    }
    Ok(Some(SparseForm::InHeaders(numbers.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect())))
}

/// Returns the length of a sparse file with its holes; `None` for other kinds.
fn real_size(header: &Header, pax: &EffectiveRecords<'_>, kind: &Kind) -> Result<Option<u64>, &'static str> {
    if !matches!(kind, Kind::Sparse(_)) {
        return Ok(None);
    }
    if let Some(gnu) = header.as_gnu().filter(|_| header.entry_type() == EntryType::GNUSparse) {
        return gnu.real_size().map(Some).map_err(|_| "an invalid size");
    }
    let size = pax.number(b"GNU.sparse.realsize")?.or(pax.number(b"GNU.sparse.size")?);
    size.map(Some).ok_or("a sparse file without its size")
}

/// Returns the modification time of a member; `None` if a [`Timestamp`] cannot hold it.
fn modified(header: &Header, pax: &EffectiveRecords<'_>) -> Result<Option<Timestamp>, &'static str> {
    if let Some(time) = pax.modified()? {
        return Ok(Some(time));
    }
    let seconds = header.mtime().map_err(|_| "an invalid time")?;
    Ok(i64::try_from(seconds).ok().and_then(|seconds| seconds.checked_mul(1_000_000_000)).map(Timestamp))
}
