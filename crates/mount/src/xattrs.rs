//! The names under which attributes of a snapshot are served.

use std::borrow::Cow;

/// How the names begin in which an overlay keeps its notes, where it has user attributes for that.
const OVERLAY: &[u8] = b"user.overlay.";
/// What an overlay puts after that into the names of attributes that are data.
const ESCAPE: &[u8] = b"overlay.";

/// Whether names that an overlay could take for its own are served as it escapes them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct XattrNames {
    pub(crate) escaped: bool,
}

impl XattrNames {
    /// How a name of a snapshot is served.
    pub(crate) fn served(self, stored: &[u8]) -> Cow<'_, [u8]> {
        match stored.strip_prefix(OVERLAY).filter(|_| self.escaped) {
            Some(rest) => Cow::Owned([OVERLAY, ESCAPE, rest].concat()),
            None => Cow::Borrowed(stored),
        }
    }

    /// The name of a snapshot that is served as this; none if nothing is.
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
    fn names_come_back_as_they_were_stored() {
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
    fn a_note_of_an_overlay_is_never_served() {
        let escaped = XattrNames { escaped: true };
        for note in ["opaque", "whiteout", "redirect", "metacopy", "origin", "overlay", ""] {
            assert_eq!(escaped.stored(format!("user.overlay.{note}").as_bytes()), None);
        }
    }
}
