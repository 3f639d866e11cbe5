//! Encoding and decoding of XDR (RFC 4506), limited to the types that NFSv3 and MOUNT v3 need.

/// Failure to decode: the data is too short, a length is above its limit, or a value is not allowed by the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the data is not what the protocol allows")]
pub(crate) struct XdrError;

/// Decoder of a record, at a position in it. Returned bytes are borrowed from the record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Decoder<'a>(&'a [u8]);

impl<'a> Decoder<'a> {
    pub(crate) fn new(data: &'a [u8]) -> Self {
        Self(data)
    }

    /// Returns the data that was not decoded yet.
    #[cfg(test)]
    fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// Reads opaque data of a fixed length, and skips its padding.
    pub(crate) fn fixed(&mut self, length: usize) -> Result<&'a [u8], XdrError> {
        let padded = length.checked_next_multiple_of(4).ok_or(XdrError)?;
        let (data, rest) = self.0.split_at_checked(padded).ok_or(XdrError)?;
        self.0 = rest;
        Ok(&data[..length])
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], XdrError> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(XdrError)?;
        self.0 = rest;
        Ok(*head)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, XdrError> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, XdrError> {
        self.array().map(u64::from_be_bytes)
    }

    pub(crate) fn bool(&mut self) -> Result<bool, XdrError> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(XdrError),
        }
    }

    /// Reads opaque data of variable length. Fails if it has more than `max` bytes.
    pub(crate) fn opaque(&mut self, max: usize) -> Result<&'a [u8], XdrError> {
        let length = usize::try_from(self.u32()?).map_err(|_| XdrError)?;
        if length > max { Err(XdrError) } else { self.fixed(length) }
    }

    /// Reads an optional value.
    pub(crate) fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, XdrError>,
    ) -> Result<Option<T>, XdrError> {
        if self.bool()? { read(self).map(Some) } else { Ok(None) }
    }
}

/// Encoder, which appends to a buffer.
pub(crate) trait Encode {
    fn put_u32(&mut self, value: u32);
    fn put_u64(&mut self, value: u64);
    fn put_bool(&mut self, value: bool);
    /// Appends opaque data of a fixed length, with padding.
    fn put_fixed(&mut self, data: &[u8]);
    /// Appends opaque data of variable length: its length, the data and padding.
    fn put_opaque(&mut self, data: &[u8]);
}

impl Encode for Vec<u8> {
    fn put_u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn put_u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn put_bool(&mut self, value: bool) {
        self.put_u32(value.into());
    }

    fn put_fixed(&mut self, data: &[u8]) {
        self.extend_from_slice(data);
        self.extend_from_slice(&[0; 3][..data.len().next_multiple_of(4) - data.len()]);
    }

    fn put_opaque(&mut self, data: &[u8]) {
        self.put_u32(u32::try_from(data.len()).expect("replies are shorter than 4 GiB"));
        self.put_fixed(data);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_data_is_decoded() {
        let mut out = Vec::new();
        out.put_u32(7);
        out.put_u64(1 << 40);
        out.put_bool(true);
        out.put_opaque(b"abcde");
        out.put_fixed(b"xy");
        assert_eq!(out.len(), 4 + 8 + 4 + (4 + 8) + 4);
        let mut input = Decoder::new(&out);
        assert_eq!(input.u32(), Ok(7));
        assert_eq!(input.u64(), Ok(1 << 40));
        assert_eq!(input.option(|it| it.opaque(5)), Ok(Some(b"abcde".as_slice())));
        assert_eq!(input.fixed(2), Ok(b"xy".as_slice()));
        assert!(input.rest().is_empty());
    }

    #[test]
    fn lengths_are_checked_before_anything_is_read() {
        let mut huge = Vec::new();
        huge.put_u32(u32::MAX);
        assert_eq!(Decoder::new(&huge).opaque(usize::MAX), Err(XdrError));
        let mut long = Vec::new();
        long.put_opaque(b"abcde");
        assert_eq!(Decoder::new(&long).opaque(4), Err(XdrError));
        // The padding belongs to the data.
        assert_eq!(Decoder::new(&long[..9]).opaque(8), Err(XdrError));
        assert_eq!(Decoder::new(&[0, 0, 0, 2]).bool(), Err(XdrError));
        assert_eq!(Decoder::new(&[]).u32(), Err(XdrError));
        assert_eq!(Decoder::new(&[]).fixed(usize::MAX), Err(XdrError));
    }
}
