//! Merge strategy for text files: line by line, also in UTF-16.

use std::borrow::Cow;

use crate::conflict::{Conflict, ConflictLocation};
use crate::file::{Input, MergedContent, Outcome, Side, Versions};
use crate::file_settings::FileSettings;
use crate::file_type;
use crate::strategy::Strategy;
use crate::text::{DiffLimits, Favor, TextMerge};

/// Strategy that merges line by line.
pub(crate) struct Text;

impl Strategy for Text {
    fn name(&self) -> &'static str {
        "text"
    }

    fn merge(&self, input: &Input<'_>, _: &FileSettings) -> Outcome {
        let merged = DecodedVersions::new(input).and_then(|decoded| {
            let text = decoded.compare()?;
            Ok(text.merged().map(|content| decoded.encoding.encode(content)).ok_or_else(|| text.conflicts()))
        });
        match merged {
            Err(reason) => Outcome::Conflict(Conflict::whole("text", reason)),
            Ok(Ok(content)) => Outcome::Merged(MergedContent::new(content)),
            Ok(Err(conflicts)) => Outcome::Conflict(Conflict {
                strategy: "text",
                reason: "both sides changed the same lines".to_owned(),
                locations: conflicts.into_iter().map(ConflictLocation::Lines).collect(),
            }),
        }
    }

    fn resolve(&self, input: &Input<'_>, _: &FileSettings, side: Side) -> Vec<u8> {
        let favor = match side {
            Side::Ours => Favor::Ours,
            Side::Theirs => Favor::Theirs,
        };
        let resolved = DecodedVersions::new(input)
            .and_then(|decoded| Ok(decoded.encoding.encode(decoded.compare()?.favor(favor))));
        resolved.unwrap_or_else(|_| input.versions.of(side).to_vec())
    }
}

/// Three versions, converted to an encoding in which LF is a single byte.
struct DecodedVersions<'a> {
    /// Encoding of the files, to which the merged text is converted back.
    encoding: Encoding,
    /// Base, ours and theirs.
    versions: [Cow<'a, [u8]>; 3],
}

impl<'a> DecodedVersions<'a> {
    /// Decodes the versions. If that is not possible, returns the reason, which is shown to users in the conflict.
    fn new(input: &Input<'a>) -> Result<Self, String> {
        let Versions { base, ours, theirs } = input.versions;
        // An empty version has no encoding of its own: it is treated like the other versions.
        let all = [ours, theirs, base.unwrap_or_default()];
        let encoding = all.into_iter().find(|text| !text.is_empty()).map_or(Encoding::Bytes, Encoding::of);
        let decode = |text: &'a [u8]| match encoding {
            _ if Encoding::of(text) != encoding && !text.is_empty() => {
                Err("the versions have different encodings".to_owned())
            }
            Encoding::Bytes => Ok(Cow::Borrowed(text)),
            _ => encoding.decode(text).map(Cow::Owned),
        };
        Ok(Self { encoding, versions: [decode(base.unwrap_or_default())?, decode(ours)?, decode(theirs)?] })
    }

    /// Compares the versions. If they have too many lines, returns the reason, which is shown to users in the conflict.
    fn compare(&self) -> Result<TextMerge<'_>, String> {
        let [base, ours, theirs] = &self.versions;
        TextMerge::new(base, ours, theirs, DiffLimits::default()).map_err(|error| error.to_string())
    }
}

/// Text encoding of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Encoding {
    /// Any encoding in which LF is a single byte, such as UTF-8 or Latin-1.
    Bytes,
    /// UTF-16, little endian.
    Utf16Little,
    /// UTF-16, big endian.
    Utf16Big,
}

impl Encoding {
    fn of(text: &[u8]) -> Self {
        match file_type::is_utf16(text) {
            false => Self::Bytes,
            true if text[0] == 0xff => Self::Utf16Little,
            true => Self::Utf16Big,
        }
    }

    fn decode(self, text: &[u8]) -> Result<Vec<u8>, String> {
        let unit = |pair: &[u8]| match self {
            Self::Utf16Big => u16::from_be_bytes([pair[0], pair[1]]),
            _ => u16::from_le_bytes([pair[0], pair[1]]),
        };
        let decoded: Result<String, _> = char::decode_utf16(text.chunks_exact(2).map(unit)).collect();
        decoded.map(String::into_bytes).map_err(|_| "a version is not valid UTF-16".to_owned())
    }

    fn encode(self, text: Vec<u8>) -> Vec<u8> {
        if self == Self::Bytes {
            return text;
        }
        let bytes = |unit: u16| if self == Self::Utf16Big { unit.to_be_bytes() } else { unit.to_le_bytes() };
        // The merged text consists of whole lines of decoded text. Therefore it is valid UTF-8.
        String::from_utf8_lossy(&text).encode_utf16().flat_map(bytes).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodes a text as UTF-16, little endian, with a byte order mark.
    fn utf16(text: &str) -> Vec<u8> {
        Encoding::Utf16Little.encode(format!("\u{feff}{text}").into_bytes())
    }

    #[test]
    fn utf16_is_merged_by_line() {
        // In UTF-16, one byte of U+0A41 and of U+010A is 0x0A, the byte of LF in ASCII.
        let base = utf16("a\u{a41}\nb\nc\u{10a}\nd\n");
        let ours = utf16("A\u{a41}\nb\nc\u{10a}\nd\n");
        let theirs = utf16("a\u{a41}\nb\nc\u{10a}\nd\u{a0a}\n");
        let versions = Versions { base: Some(&base), ours: &ours, theirs: &theirs };
        let input = Input::new("file.txt", versions);
        let Outcome::Merged(merged) = Text.merge(&input, &FileSettings::default()) else {
            panic!("a conflict")
        };
        assert_eq!(merged.content, utf16("A\u{a41}\nb\nc\u{10a}\nd\u{a0a}\n"));
    }

    #[test]
    fn a_side_that_emptied_an_utf16_file_has_no_other_encoding() {
        let (base, changed) = (utf16("a\nb\n"), utf16("a\nc\n"));
        for (ours, theirs) in [(&b""[..], &changed[..]), (&changed[..], &b""[..])] {
            let versions = Versions { base: Some(&base), ours, theirs };
            let outcome = Text.merge(&Input::new("file.txt", versions), &FileSettings::default());
            let Outcome::Conflict(conflict) = outcome else { panic!("merged") };
            assert_eq!(conflict.reason, "both sides changed the same lines");
        }
    }

    #[test]
    fn mixed_encodings_and_lone_surrogates_conflict() {
        let (text, mut with_lone_surrogate) = (utf16("a\nb\n"), utf16("a\nc\n"));
        // U+D800 is the first half of a surrogate pair.
        with_lone_surrogate.extend([0, 0xd8]);
        for (other, reason) in [(b"a\nb\nc\n".to_vec(), "encodings"), (with_lone_surrogate, "UTF-16")] {
            let versions = Versions { base: Some(&text), ours: &text, theirs: &other };
            let outcome = Text.merge(&Input::new("file.txt", versions), &FileSettings::default());
            let Outcome::Conflict(conflict) = outcome else { panic!("merged") };
            assert!(conflict.reason.contains(reason), "{conflict:?}");
        }
    }
}
