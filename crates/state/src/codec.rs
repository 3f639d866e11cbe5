//! Primitives of all stored formats: little-endian integers, varints (LEB128), and byte strings with their length.
//!
//! Decoding is strict: a value has exactly one encoding, so two different byte strings never decode to the
//! same object, and equal objects have equal hashes. For example, a varint must be in its shortest form.

/// Error of decoding stored bytes, caused by corruption or an unknown format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("malformed data: {0}")]
pub struct DecodeError(pub &'static str);

pub(crate) type Decoded<T> = Result<T, DecodeError>;

/// Reader of a byte slice, from the front. Reading fails if too few bytes are left.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, offset: 0 }
    }

    pub(crate) fn position(&self) -> usize {
        self.offset
    }

    pub(crate) fn remaining(&self) -> usize {
        self.bytes.len() - self.offset
    }

    pub(crate) fn take(&mut self, len: usize) -> Decoded<&'a [u8]> {
        if len > self.remaining() {
            return Err(DecodeError("shorter than it says"));
        }
        let part = &self.bytes[self.offset..self.offset + len];
        self.offset += len;
        Ok(part)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Decoded<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }

    pub(crate) fn u8(&mut self) -> Decoded<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u16(&mut self) -> Decoded<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Decoded<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Decoded<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn varint(&mut self) -> Decoded<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(DecodeError("number out of range"));
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                if byte == 0 && shift > 0 {
                    return Err(DecodeError("number not in its shortest form"));
                }
                return Ok(value);
            }
        }
        Err(DecodeError("number out of range"))
    }

    /// Reads a signed number in zigzag encoding: a varint whose lowest bit is the sign.
    pub(crate) fn zigzag(&mut self) -> Decoded<i64> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// Reads the number of items that follow, each of at least `min_item_len` bytes. Fails if the remaining data is too
    /// short for them, so that a hostile count cannot cause a huge allocation.
    pub(crate) fn item_count(&mut self, min_item_len: usize) -> Decoded<usize> {
        let count = self.varint()?;
        if count > (self.remaining() / min_item_len.max(1)) as u64 {
            return Err(DecodeError("count larger than the data"));
        }
        Ok(count as usize)
    }

    /// Reads a byte string: its length as a varint, then its bytes.
    pub(crate) fn blob(&mut self) -> Decoded<&'a [u8]> {
        let len = self.item_count(1)?;
        self.take(len)
    }

    /// Reads a byte string that must be UTF-8.
    pub(crate) fn text(&mut self) -> Decoded<String> {
        String::from_utf8(self.blob()?.to_vec()).map_err(|_| DecodeError("text is not UTF-8"))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.remaining() == 0
    }

    /// Fails if bytes remain.
    pub(crate) fn expect_end(&self) -> Decoded<()> {
        if self.remaining() == 0 { Ok(()) } else { Err(DecodeError("trailing bytes")) }
    }
}

/// Methods of a byte vector that append values in the encodings that [`Reader`] reads.
pub(crate) trait Write {
    fn varint(&mut self, value: u64);
    fn zigzag(&mut self, value: i64);
    fn blob(&mut self, bytes: &[u8]);
}

impl Write for Vec<u8> {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.push(value as u8);
    }

    fn zigzag(&mut self, value: i64) {
        self.varint(((value << 1) ^ (value >> 63)) as u64);
    }

    fn blob(&mut self, bytes: &[u8]) {
        self.varint(bytes.len() as u64);
        self.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut bytes = Vec::new();
            bytes.varint(value);
            let mut reader = Reader::new(&bytes);
            assert_eq!(reader.varint().unwrap(), value);
            reader.expect_end().unwrap();
        }
        for value in [0, -1, 1, i64::MIN, i64::MAX] {
            let mut bytes = Vec::new();
            bytes.zigzag(value);
            assert_eq!(Reader::new(&bytes).zigzag().unwrap(), value);
        }
    }

    #[test]
    fn a_number_has_one_encoding() {
        assert!(Reader::new(&[0x80, 0x00]).varint().is_err());
        assert!(Reader::new(&[0xff; 10]).varint().is_err());
        assert!(Reader::new(&[0x80; 11]).varint().is_err());
    }

    #[test]
    fn a_count_never_exceeds_the_data() {
        let mut bytes = Vec::new();
        bytes.varint(1 << 40);
        assert!(Reader::new(&bytes).item_count(1).is_err());
    }
}
