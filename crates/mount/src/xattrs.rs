//! Mapping between the names of extended attributes in a snapshot and in the mount.

use std::borrow::Cow;

/// Prefix of the attributes that an overlay with `userxattr` uses itself.
const OVERLAY_PREFIX: &[u8] = b"user.overlay.";
/// Infix after [`OVERLAY_PREFIX`] that marks an attribute of the snapshot. The kernel's overlay above the mount
/// removes the infix, so that its users see the stored name.
const ESCAPE_INFIX: &[u8] = b"overlay.";

/// Mapping of the names of extended attributes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct XattrNames {
    /// True if names with the prefix of overlay attributes are escaped.
    pub(crate) escaped: bool,
}

impl XattrNames {
    /// Returns the name in the mount of an attribute of the snapshot.
    pub(crate) fn to_served_name(self, stored: &[u8]) -> Cow<'_, [u8]> {
        match stored.strip_prefix(OVERLAY_PREFIX).filter(|_| self.escaped) {
            Some(rest) => Cow::Owned([OVERLAY_PREFIX, ESCAPE_INFIX, rest].concat()),
            None => Cow::Borrowed(stored),
        }
    }

    /// Returns the name in the snapshot of an attribute of the mount; `None` for an attribute of the overlay
    /// itself.
    pub(crate) fn to_stored_name(self, served: &[u8]) -> Option<Cow<'_, [u8]>> {
        match served.strip_prefix(OVERLAY_PREFIX).filter(|_| self.escaped) {
            Some(rest) => {
                rest.strip_prefix(ESCAPE_INFIX).map(|rest| Cow::Owned([OVERLAY_PREFIX, rest].concat()))
            }
            None => Some(Cow::Borrowed(served)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_names_round_trip() {
        let names = [
            ("user.comment", "user.comment"),
            ("user.overlay", "user.overlay"),
            ("user.overlay.opaque", "user.overlay.overlay.opaque"),
            ("user.overlay.overlay", "user.overlay.overlay.overlay"),
            ("user.overlay.overlay.opaque", "user.overlay.overlay.overlay.opaque"),
        ];
        let escaped = XattrNames { escaped: true };
        let plain = XattrNames { escaped: false };
        for (stored, served) in names {
            assert_eq!(&*escaped.to_served_name(stored.as_bytes()), served.as_bytes());
            assert_eq!(escaped.to_stored_name(served.as_bytes()).as_deref(), Some(stored.as_bytes()));
            assert_eq!(&*plain.to_served_name(stored.as_bytes()), stored.as_bytes());
            assert_eq!(plain.to_stored_name(stored.as_bytes()).as_deref(), Some(stored.as_bytes()));
        }
    }

    #[test]
    fn overlay_attributes_are_never_served() {
        let escaped = XattrNames { escaped: true };
        for name in ["opaque", "whiteout", "redirect", "metacopy", "origin", "overlay", ""] {
            assert_eq!(escaped.to_stored_name(format!("user.overlay.{name}").as_bytes()), None);
        }
    }
}
