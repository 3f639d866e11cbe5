//! Names of directory entries that clients send: single path components, which are checked here.

use std::ffi::CString;

use crate::wire::Status;

/// Maximum length of the name of a directory entry, in bytes.
const NAME_MAX: usize = 255;

/// Name of a directory entry in a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Name {
    /// The directory itself: `.` or an empty name.
    This,
    /// The parent directory: `..`.
    Parent,
    /// Any other name: a single path component without NUL.
    Entry(CString),
}

impl Name {
    /// Checks a name, which need not be UTF-8. Fails with NAMETOOLONG for more than 255 bytes, with ACCESS for a name
    /// with a slash, and with INVAL for one with a NUL.
    pub(crate) fn parse(name: &[u8]) -> Result<Self, Status> {
        match name {
            b"" | b"." => return Ok(Self::This),
            b".." => return Ok(Self::Parent),
            _ => {}
        }
        if name.len() > NAME_MAX {
            return Err(Status::NameTooLong);
        }
        if name.contains(&b'/') {
            return Err(Status::Access);
        }
        CString::new(name).map(Self::Entry).map_err(|_| Status::Inval)
    }

    /// Returns the name of an entry. Fails with `error_for_dots` for `.` and `..`.
    pub(crate) fn entry(self, error_for_dots: Status) -> Result<CString, Status> {
        match self {
            Self::Entry(name) => Ok(name),
            Self::This | Self::Parent => Err(error_for_dots),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_single_component() {
        assert_eq!(Name::parse(b"a b\xff"), Ok(Name::Entry(c"a b\xff".to_owned())));
        assert_eq!(Name::parse(b"..."), Ok(Name::Entry(c"...".to_owned())));
        assert_eq!(Name::parse(b"."), Ok(Name::This));
        assert_eq!(Name::parse(b".."), Ok(Name::Parent));
        for (name, status) in [
            (b"a/b".as_slice(), Status::Access),
            (b"/", Status::Access),
            (b"../etc", Status::Access),
            (b"a\0b", Status::Inval),
            (&[b'x'; 256], Status::NameTooLong),
        ] {
            assert_eq!(Name::parse(name), Err(status));
        }
        assert!(Name::parse(&[b'x'; 255]).is_ok());
    }
}
