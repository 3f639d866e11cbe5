//! Names that clients send.

use std::ffi::CString;

use crate::wire::Status;

/// Longest name of a directory entry.
const NAME_MAX: usize = 255;

/// Name of a directory entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Name {
    /// `.`, or an empty name.
    This,
    /// `..`
    Parent,
    /// Any other: a single component without NUL.
    Entry(CString),
}

impl Name {
    /// Checks a name. It is bytes, and need not be UTF-8.
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

    /// Returns the name of an entry. `.` and `..` give `special`.
    pub(crate) fn entry(self, special: Status) -> Result<CString, Status> {
        match self {
            Self::Entry(name) => Ok(name),
            Self::This | Self::Parent => Err(special),
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
