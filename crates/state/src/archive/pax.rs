//! Pax records: metadata that does not fit into a header, as lines `LENGTH KEY=VALUE` in a member before it.

use std::collections::BTreeMap;

use crate::node::Xattrs;
use crate::snapshot::Timestamp;

/// Prefix of the keys of extended attributes, followed by the name of the attribute.
const XATTR_PREFIX: &[u8] = b"SCHILY.xattr.";
/// Nanoseconds per second.
const NANOS: i64 = 1_000_000_000;

/// Pax records of one member, or of the whole archive: values by key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Records(BTreeMap<Vec<u8>, Vec<u8>>);

impl Records {
    pub(super) fn set(&mut self, key: &[u8], value: &[u8]) {
        self.0.insert(key.to_vec(), value.to_vec());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.0.get(key).map(Vec::as_slice)
    }

    /// Adds later records, which replace records with the same key. An empty value deletes the record; exception: the
    /// value of an extended attribute may be empty.
    pub(super) fn override_with(&mut self, later: Self) {
        for (key, value) in later.0 {
            if value.is_empty() && !key.starts_with(XATTR_PREFIX) {
                self.0.remove(&key);
            } else {
                self.0.insert(key, value);
            }
        }
    }

    pub(super) fn set_modified(&mut self, time: Timestamp) {
        self.set(b"mtime", format_time(time).as_bytes());
    }

    /// Returns the extended attributes of the namespace `user`. Attributes of other namespaces are specific to a
    /// machine.
    pub(super) fn xattrs(&self) -> Xattrs {
        let named = self.0.iter().filter_map(|(key, value)| Some((key.strip_prefix(XATTR_PREFIX)?, value)));
        let decoded = named.map(|(name, value)| (decode_name(name), value.clone()));
        decoded.filter(|(name, _)| name.starts_with(b"user.")).collect()
    }

    pub(super) fn set_xattrs(&mut self, xattrs: &Xattrs) {
        for (name, value) in xattrs {
            self.0.insert([XATTR_PREFIX, &encode_name(name)].concat(), value.clone());
        }
    }

    pub(super) fn has_xattrs(&self) -> bool {
        self.0.keys().any(|key| key.starts_with(XATTR_PREFIX))
    }

    /// Returns the total length of all keys and values in bytes.
    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|(key, value)| key.len() + value.len()).sum()
    }

    /// Encodes all records as lines, in the order of their keys.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (key, value) in &self.0 {
            // The length of a record includes its own digits, and a space, `=` and a newline.
            let rest = key.len() + value.len() + 3;
            let mut len = rest + 1;
            while len != rest + len.to_string().len() {
                len = rest + len.to_string().len();
            }
            out.extend_from_slice(format!("{len} ").as_bytes());
            out.extend_from_slice(key);
            out.push(b'=');
            out.extend_from_slice(value);
            out.push(b'\n');
        }
        out
    }

    /// Decodes lines of records. Fails if a key occurs twice.
    pub(super) fn decode(mut bytes: &[u8]) -> Result<Self, &'static str> {
        const MALFORMED: &str = "a malformed pax record";
        let mut records = Self::default();
        while !bytes.is_empty() {
            let space = bytes.iter().position(|byte| *byte == b' ').ok_or(MALFORMED)?;
            let len = usize::try_from(parse_number(&bytes[..space])?).map_err(|_| MALFORMED)?;
            let record = bytes.get(space + 1..len).ok_or(MALFORMED)?;
            let record = record.strip_suffix(b"\n").ok_or(MALFORMED)?;
            let equals = record.iter().position(|byte| *byte == b'=').ok_or(MALFORMED)?;
            // GNU sparse format 0.0 repeats keys. A reader that used only one of the values would produce wrong
            // content.
            let repeated = records.0.insert(record[..equals].to_vec(), record[equals + 1..].to_vec());
            if repeated.is_some() {
                return Err("a repeated pax record");
            }
            bytes = &bytes[len..];
        }
        Ok(records)
    }
}

/// Records that apply to a member: the records of the member take precedence over the records of the whole archive.
pub(super) struct EffectiveRecords<'a> {
    pub(super) member: Records,
    pub(super) global: &'a Records,
}

impl EffectiveRecords<'_> {
    /// Returns the value of a record; `None` if it is empty. An empty value of the member hides the value of the whole
    /// archive.
    pub(super) fn get(&self, key: &[u8]) -> Option<&[u8]> {
        let value = self.member.get(key).or_else(|| self.global.get(key));
        value.filter(|value| !value.is_empty())
    }

    /// Returns the value of a record as a number. Fails if it is not a number.
    pub(super) fn number(&self, key: &[u8]) -> Result<Option<u64>, &'static str> {
        self.get(key).map(parse_number).transpose()
    }

    /// Returns the modification time; `None` if there is no record of it.
    pub(super) fn modified(&self) -> Result<Option<Timestamp>, &'static str> {
        self.get(b"mtime").map(|text| parse_time(text).ok_or("an invalid time")).transpose()
    }
}

/// Parses a decimal number without a sign.
pub(super) fn parse_number(text: &[u8]) -> Result<u64, &'static str> {
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(text).ok().filter(|_| is_number);
    text.and_then(|text| text.parse().ok()).ok_or("an invalid number")
}

/// Escapes `%` and `=` in the name of an attribute, as GNU tar does, because `=` ends the key of a record.
fn encode_name(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    for byte in name {
        match byte {
            b'%' => out.extend_from_slice(b"%25"),
            b'=' => out.extend_from_slice(b"%3D"),
            other => out.push(*other),
        }
    }
    out
}

/// Reverses [`encode_name`].
fn decode_name(mut name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    while let Some((byte, rest)) = name.split_first() {
        let (byte, rest) = match (rest.strip_prefix(b"25"), rest.strip_prefix(b"3D")) {
            (Some(rest), _) if *byte == b'%' => (b'%', rest),
            (_, Some(rest)) if *byte == b'%' => (b'=', rest),
            _ => (*byte, rest),
        };
        out.push(byte);
        name = rest;
    }
    out
}

/// Formats a time in seconds since the Unix epoch, with nine decimal places if it is not a whole second.
fn format_time(time: Timestamp) -> String {
    let sign = if time.0 < 0 { "-" } else { "" };
    let (seconds, nanos) = (time.0.unsigned_abs() / NANOS as u64, time.0.unsigned_abs() % NANOS as u64);
    if nanos == 0 { format!("{sign}{seconds}") } else { format!("{sign}{seconds}.{nanos:09}") }
}

/// Parses a time in seconds. Cuts the fraction off after nine digits. Returns `None` if the text is not a valid time.
fn parse_time(text: &[u8]) -> Option<Timestamp> {
    let (negative, text) = match text.strip_prefix(b"-") {
        Some(text) => (true, text),
        None => (false, text),
    };
    let mut parts = text.splitn(2, |byte| *byte == b'.');
    let seconds = i64::try_from(parse_number(parts.next()?).ok()?).ok()?;
    let fraction = parts.next().unwrap_or_default();
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let mut nanos = 0;
    for index in 0..9 {
        nanos = nanos * 10 + i64::from(fraction.get(index).map_or(0, |digit| digit - b'0'));
    }
    let total = seconds.checked_mul(NANOS)?.checked_add(nanos)?;
    Some(Timestamp(if negative { -total } else { total }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_hold_any_bytes_and_round_trip() {
        let mut records = Records::default();
        records.set(b"path", b"line\nline=\xff");
        records.set_modified(Timestamp(-1_500_000_000));
        records.set_xattrs(&Xattrs::from([(b"user.a=b%c".to_vec(), b"\0\n\xff".to_vec())]));
        // Around these lengths, the length of a record grows from two digits to three.
        records.set(b"k", &[b'x'; 93]);
        records.set(b"l", &[b'x'; 94]);
        let read = Records::decode(&records.encode()).unwrap();
        assert_eq!(read, records);
        let global = Records::default();
        let effective = EffectiveRecords { member: read.clone(), global: &global };
        assert_eq!(effective.modified().unwrap(), Some(Timestamp(-1_500_000_000)));
        assert_eq!(read.xattrs(), Xattrs::from([(b"user.a=b%c".to_vec(), b"\0\n\xff".to_vec())]));
    }

    #[test]
    fn records_of_a_member_take_precedence_over_records_of_the_archive() {
        let (mut global, mut member) = (Records::default(), Records::default());
        for (key, value) in [(b"a", "of the archive"), (b"b", "of the archive"), (b"c", "of the archive")] {
            global.set(key, value.as_bytes());
        }
        member.set(b"b", b"own");
        member.set(b"c", b"");
        let effective = EffectiveRecords { member, global: &global };
        assert_eq!(effective.get(b"a"), Some(&b"of the archive"[..]));
        assert_eq!(effective.get(b"b"), Some(&b"own"[..]));
        assert_eq!((effective.get(b"c"), effective.get(b"d")), (None, None));
    }

    #[test]
    fn the_length_of_a_record_includes_its_own_digits() {
        let mut records = Records::default();
        records.set(b"path", b"abc");
        assert_eq!(records.encode(), b"12 path=abc\n");
    }

    #[test]
    fn malformed_records_are_refused() {
        let wrong: [&[u8]; 8] = [
            b"x",
            b"5 a=b\n",
            b"99 a=b\n",
            b"6 ab=\n\n",
            b"0 a=b\n",
            b"5 abc\n",
            b"18446744073709551616 a=b\n",
            b"6 a=b\n6 a=c\n",
        ];
        for bytes in wrong {
            assert!(Records::decode(bytes).is_err(), "{}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn times_have_a_sign_and_a_fraction() {
        for (text, nanos) in
            [("1", NANOS), ("1.5", 1_500_000_000), ("-0.000000001", -1), ("0.1234567891", 123_456_789)]
        {
            assert_eq!(parse_time(text.as_bytes()), Some(Timestamp(nanos)), "{text}");
        }
        for text in ["", "x", "1.x", "--1", "9223372036854775807"] {
            assert_eq!(parse_time(text.as_bytes()), None, "{text}");
        }
    }
}
