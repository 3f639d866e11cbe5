//! Names under which the attributes of a snapshot are served.

use std::borrow::Cow;

/// Prefix of the attributes of an overlay with `userxattr`.
const OVERLAY: &[u8] = b"user.overlay.";
/// Part that an overlay inserts after the prefix to escape attributes that are data.
const ESCAPE: &[u8] = b"overlay.";

/// Mapping of attribute names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct XattrNames {
    pub(crate) escaped: bool,
}

impl XattrNames {
    /// Returns the served name of a stored attribute.
    pub(crate) fn served(self, stored: &[u8]) -> Cow<'_, [u8]> {
        match stored.strip_prefix(OVERLAY).filter(|_| self.escaped) {
            Some(rest) => Cow::Owned([OVERLAY, ESCAPE, rest].concat()),
            None => Cow::Borrowed(stored),
        }
    }

    /// Returns the stored name of a served attribute; `None` if there is none.
    pub(crate) fn stored(self, served: &[u8]) -> Option<Cow<'_, [u8]>> {
        match served.strip_prefix(OVERLAY).filter(|_| self.escaped) {
            Some(rest) => rest.strip_prefix(ESCAPE).map(|rest| Cow::Owned([OVERLAY, rest].concat())),
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
            assert_eq!(&*escaped.served(stored.as_bytes()), served.as_bytes());
            assert_eq!(escaped.stored(served.as_bytes()).as_deref(), Some(stored.as_bytes()));
            assert_eq!(&*plain.served(stored.as_bytes()), stored.as_bytes());
            assert_eq!(plain.stored(stored.as_bytes()).as_deref(), Some(stored.as_bytes()));
        }
    }

    #[test]
    fn overlay_attributes_are_never_served() {
        let escaped = XattrNames { escaped: true };
        for note in ["opaque", "whiteout", "redirect", "metacopy", "origin", "overlay", ""] {
            assert_eq!(escaped.stored(format!("user.overlay.{note}").as_bytes()), None);
        }
    }
}
