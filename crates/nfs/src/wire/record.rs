//! Record marking (RFC 5531, section 11): splits a TCP stream into requests. A record is a request. It consists of
//! fragments. Before each fragment there is a mark of four bytes: the length of the fragment, and a bit that is set for
//! the last fragment of the record.

use std::io;

/// Maximum length of a record in bytes: a WRITE of 1 MiB with its headers.
pub(crate) const RECORD_MAX: usize = (1 << 20) + 4096;

/// Maximum number of fragments of a record. Clients send one.
const FRAGMENTS_MAX: usize = 64;

/// Length of the buffer of a reader, in bytes. Bytes of a record that arrive in this buffer are copied to the record;
/// the rest of the record is read without this copy.
const BUFFER_LEN: usize = 16 * 1024;

/// Stream of bytes, such as a socket.
pub(crate) trait Source {
    /// Called before each record. `has_begun` is true if bytes of the record were received already.
    fn begin_record(&mut self, has_begun: bool) {
        let _ = has_begun;
    }

    /// Appends at least one and at most `max` bytes. Returns their number, which is zero only at the end of the stream.
    fn read_some(&mut self, out: &mut Vec<u8>, max: usize) -> io::Result<usize>;

    /// Reserves the buffer of a record for `length` bytes in total. May wait until there is memory.
    fn reserve(&mut self, out: &mut Vec<u8>, length: usize) -> io::Result<()> {
        out.reserve(length - out.len());
        Ok(())
    }
}

/// Failure to read a record, after which the stream cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordError {
    /// The stream failed.
    #[error("cannot receive")]
    Io(#[from] io::Error),
    /// The stream ended within a record.
    #[error("the connection ended within a record")]
    Incomplete,
    /// The record is longer than any request.
    #[error("a record has more than {RECORD_MAX} bytes, or more than {FRAGMENTS_MAX} fragments")]
    TooLong,
}

/// Reader of the records in a stream.
#[derive(Debug)]
pub(crate) struct RecordReader<S> {
    source: S,
    /// Received bytes.
    buffer: Vec<u8>,
    /// Number of bytes at the start of the buffer that belong to records which were read.
    taken: usize,
}

impl<S: Source> RecordReader<S> {
    pub(crate) fn new(source: S) -> Self {
        Self { source, buffer: Vec::with_capacity(BUFFER_LEN), taken: 0 }
    }

    pub(crate) fn source_mut(&mut self) -> &mut S {
        &mut self.source
    }

    /// Returns true if bytes of the next record were received already.
    pub(crate) fn has_buffered(&self) -> bool {
        self.taken < self.buffer.len()
    }

    /// Replaces the content of `record` with the next record, without marks. Returns false at the end of the stream.
    pub(crate) fn read(&mut self, record: &mut Vec<u8>) -> Result<bool, RecordError> {
        record.clear();
        self.source.begin_record(self.has_buffered());
        for fragment in 0..FRAGMENTS_MAX {
            let Some(mark) = self.read_mark(fragment > 0)? else { return Ok(false) };
            let length = usize::try_from(mark & !LAST_FRAGMENT).map_err(|_| RecordError::TooLong)?;
            if length > RECORD_MAX - record.len() {
                return Err(RecordError::TooLong);
            }
            self.read_fragment(record, length)?;
            if mark & LAST_FRAGMENT != 0 {
                return Ok(true);
            }
        }
        Err(RecordError::TooLong)
    }

    /// Reads the mark of a fragment. `is_within` is true if the record has fragments before this one. `None` if the
    /// stream ended between two records.
    fn read_mark(&mut self, is_within: bool) -> Result<Option<u32>, RecordError> {
        while self.buffer.len() - self.taken < 4 {
            self.buffer.drain(..self.taken);
            self.taken = 0;
            let missing = BUFFER_LEN - self.buffer.len();
            if self.source.read_some(&mut self.buffer, missing)? == 0 {
                let is_clean = self.buffer.is_empty() && !is_within;
                return if is_clean { Ok(None) } else { Err(RecordError::Incomplete) };
            }
        }
        let mark: [u8; 4] =
            self.buffer[self.taken..self.taken + 4].try_into().expect("the range has 4 bytes");
        self.taken += 4;
        Ok(Some(u32::from_be_bytes(mark)))
    }

    /// Appends the content of a fragment to a record.
    fn read_fragment(&mut self, record: &mut Vec<u8>, length: usize) -> Result<(), RecordError> {
        self.source.reserve(record, record.len() + length)?;
        let buffered = (self.buffer.len() - self.taken).min(length);
        record.extend_from_slice(&self.buffer[self.taken..self.taken + buffered]);
        self.taken += buffered;
        let mut missing = length - buffered;
        while missing > 0 {
            match self.source.read_some(record, missing)? {
                0 => return Err(RecordError::Incomplete),
                count => missing -= count,
            }
        }
        Ok(())
    }
}

/// Bit in the mark of the last fragment of a record.
const LAST_FRAGMENT: u32 = 1 << 31;

#[cfg(test)]
mod tests {
    use super::*;

    /// Stream that returns at most `step` bytes in one read.
    struct Bytes {
        data: Vec<u8>,
        step: usize,
    }

    impl Source for Bytes {
        fn read_some(&mut self, out: &mut Vec<u8>, max: usize) -> io::Result<usize> {
            let count = self.data.len().min(max).min(self.step);
            out.extend(self.data.drain(..count));
            Ok(count)
        }
    }

    /// Source that keeps the arguments of its calls. It has no memory for records of more than 100 bytes.
    struct RecordingSource {
        bytes: Bytes,
        /// Arguments of `begin_record`.
        begun: Vec<bool>,
        /// Lengths in calls of `reserve`.
        reserved: Vec<usize>,
    }

    impl Source for RecordingSource {
        fn begin_record(&mut self, has_begun: bool) {
            self.begun.push(has_begun);
        }

        fn read_some(&mut self, out: &mut Vec<u8>, max: usize) -> io::Result<usize> {
            self.bytes.read_some(out, max)
        }

        fn reserve(&mut self, _out: &mut Vec<u8>, length: usize) -> io::Result<()> {
            self.reserved.push(length);
            if length > 100 { Err(io::ErrorKind::OutOfMemory.into()) } else { Ok(()) }
        }
    }

    fn fragment(data: &[u8], is_last: bool) -> Vec<u8> {
        let mark = u32::try_from(data.len()).unwrap() | if is_last { LAST_FRAGMENT } else { 0 };
        [mark.to_be_bytes().as_slice(), data].concat()
    }

    /// Reads all records, and returns them with the result at the end.
    fn records(data: &[u8], step: usize) -> (Vec<Vec<u8>>, Result<(), RecordError>) {
        let mut reader = RecordReader::new(Bytes { data: data.to_vec(), step });
        let (mut found, mut record) = (Vec::new(), Vec::new());
        loop {
            match reader.read(&mut record) {
                Ok(true) => found.push(record.clone()),
                Ok(false) => return (found, Ok(())),
                Err(error) => return (found, Err(error)),
            }
        }
    }

    #[test]
    fn records_are_read_from_pieces_of_any_length() {
        let long = vec![7; 100_000];
        let stream = [
            fragment(b"one", true),
            fragment(&long, true),
            fragment(b"", false),
            fragment(b"two", false),
            fragment(b" three", true),
        ]
        .concat();
        for step in [1, 3, 4096, usize::MAX] {
            let (found, end) = records(&stream, step);
            assert_eq!(found, [b"one".to_vec(), long.clone(), b"two three".to_vec()], "step {step}");
            end.unwrap();
        }
    }

    #[test]
    fn the_source_is_told_of_the_start_and_the_length_of_records_before_they_are_read() {
        let data = [fragment(b"one", true), fragment(b"two", false), fragment(&[0; 98], true)].concat();
        let bytes = Bytes { data, step: usize::MAX };
        let mut reader =
            RecordReader::new(RecordingSource { bytes, begun: Vec::new(), reserved: Vec::new() });
        let mut record = Vec::new();
        assert!(reader.read(&mut record).unwrap());
        assert!(matches!(reader.read(&mut record), Err(RecordError::Io(_))));
        assert_eq!(record, b"two", "nothing is read for which there is no memory");
        assert_eq!(reader.source_mut().begun, [false, true]);
        assert_eq!(reader.source_mut().reserved, [3, 3, 101]);
    }

    #[test]
    fn truncated_records_are_incomplete() {
        let whole = fragment(b"abcdefgh", true);
        for cut in 1..whole.len() {
            let (found, end) = records(&whole[..cut], usize::MAX);
            assert!(found.is_empty() && matches!(end, Err(RecordError::Incomplete)), "cut at {cut}");
        }
        let open = fragment(b"abc", false);
        assert!(matches!(records(&open, usize::MAX).1, Err(RecordError::Incomplete)));
    }

    #[test]
    fn long_records_and_endless_fragments_are_refused() {
        let long = u32::try_from(RECORD_MAX + 1).unwrap() | LAST_FRAGMENT;
        assert!(matches!(records(&long.to_be_bytes(), usize::MAX).1, Err(RecordError::TooLong)));
        let half = fragment(&vec![0; RECORD_MAX / 2 + 1], false);
        assert!(matches!(records(&[half.clone(), half].concat(), usize::MAX).1, Err(RecordError::TooLong)));
        let endless = fragment(b"", false).repeat(1000);
        assert!(matches!(records(&endless, usize::MAX).1, Err(RecordError::TooLong)));
    }
}
