//! Reading archives that are compressed with zstd.

use std::io::{self, Read};

/// Maximum window of an archive, as a power of two. A decoder holds the window in memory, and an archive may
/// ask for gigabytes. RFC 8878 recommends that decoders support 8 MiB, and no level of `zstd` except those of
/// `--ultra` needs more.
const WINDOW_LOG_MAX: u32 = 23;
/// Error of zstd for an archive with a larger window. The crate `zstd` makes errors of the text of the library alone.
const TOO_MUCH_MEMORY: &str = "Frame requires too much memory for decoding";

/// Decompresses zstd in a few megabytes of memory. An archive that needs more is an error.
pub fn zstd_reader<'a>(from: impl Read + 'a) -> io::Result<impl Read + 'a> {
    let mut decoder = zstd::Decoder::new(from)?;
    decoder.window_log_max(WINDOW_LOG_MAX)?;
    Ok(HintReader(decoder))
}

/// Reader whose error for a too large window says how to compress the archive.
struct HintReader<R>(R);

impl<R: Read> Read for HintReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer).map_err(|error| {
            if error.to_string().contains(TOO_MUCH_MEMORY) { too_much_memory() } else { error }
        })
    }
}

fn too_much_memory() -> io::Error {
    let window = (1 << WINDOW_LOG_MAX) >> 20;
    io::Error::other(format!(
        "decompressing it needs a window of more than {window} MiB; compress it without `--long` and `--ultra`"
    ))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn compressed(window_log: u32) -> Vec<u8> {
        let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
        encoder.window_log(window_log).unwrap();
        // Without a known length, the window is as large as requested.
        encoder.write_all(b"the content").unwrap();
        encoder.flush().unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn an_archive_that_needs_much_memory_is_refused() {
        let mut content = String::new();
        zstd_reader(&compressed(WINDOW_LOG_MAX)[..]).unwrap().read_to_string(&mut content).unwrap();
        assert_eq!(content, "the content");
        let larger = compressed(WINDOW_LOG_MAX + 1);
        assert!(zstd::Decoder::new(&larger[..]).unwrap().read_to_end(&mut Vec::new()).is_ok());
        let error = zstd_reader(&larger[..]).unwrap().read_to_end(&mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("more than 8 MiB; compress it without"), "{error}");
    }
}
