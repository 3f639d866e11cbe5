//! Generator of one large file: compressible about two to one, without equal ranges, and as fast as the disk.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use crate::rng::Rng;
use crate::text::{Language, Writer};

const POOL: usize = 4 << 20;
const BLOCK: usize = 64 << 10;
/// Distance of random bytes, eight of which make blocks from the same text different.
const STRIDE: usize = 48;

/// Writes `size` bytes to `path`, which must not exist.
pub(crate) fn write(path: &Path, size: u64, seed: u64) -> io::Result<()> {
    let mut rng = Rng::new(seed);
    let pool = Writer::new().text(&mut rng, Language::Data, POOL);
    let mut file = File::create_new(path)?;
    let mut block = vec![0; BLOCK];
    let mut left = size;
    while left > 0 {
        let start = rng.below(POOL - BLOCK);
        block.copy_from_slice(&pool[start..start + BLOCK]);
        for piece in block.chunks_exact_mut(STRIDE) {
            piece[..8].copy_from_slice(&rng.next().to_le_bytes());
        }
        let length = left.min(BLOCK as u64);
        file.write_all(&block[..length as usize])?;
        left -= length;
    }
    Ok(())
}
