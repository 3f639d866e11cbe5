//! BLAKE3 against SHA-256, alone and inside the whole path of a snapshot, on one core.

use std::fs::OpenOptions;
use std::hint::black_box;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use fastcdc::v2020::FastCDC;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use sha2::Digest;

use crate::failure::Failure;
use crate::rng::Rng;
use crate::stats::median;
use crate::text::{Language, Writer};

type Hash = fn(&[u8]) -> [u8; 32];

const HASHES: [(&str, Hash); 2] = [("blake3", blake3), ("sha256", sha256)];
const SIZES: [(&str, usize); 3] = [("4 KiB", 4 << 10), ("64 KiB", 64 << 10), ("1 MiB", 1 << 20)];
const LEVELS: [i32; 3] = [3, 1, -3];
const ROUNDS: usize = 7;
const DATA: usize = 64 << 20;

#[derive(Serialize)]
struct Row {
    work: String,
    hash: &'static str,
    /// Throughput by CPU time, so that other programs on the machine matter little.
    gb_per_cpu_second: f64,
    gb_per_second: f64,
}

fn blake3(bytes: &[u8]) -> [u8; 32] {
    *blake3::hash(bytes).as_bytes()
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    sha2::Sha256::digest(bytes).into()
}

/// Measures in `dir` and prints a table, or JSON.
pub(crate) fn run(dir: &Path, json: bool) -> Result<(), Failure> {
    let data = sample();
    let mut rows = Vec::new();
    for (label, size) in SIZES {
        rows.extend(compare(label, data.len(), |hash| {
            for piece in data.chunks(size) {
                black_box(hash(piece));
            }
            Ok(())
        })?);
    }
    rows.extend(compare("chunk + hash", data.len(), |hash| {
        for piece in chunks(&data) {
            black_box(hash(piece));
        }
        Ok(())
    })?);
    for level in LEVELS {
        let label = format!("chunk + hash + zstd {level} + append");
        rows.extend(compare(&label, data.len(), |hash| snapshot_path(dir, &data, hash, level))?);
    }
    if json {
        println!("{}", serde_json::to_string_pretty(&rows)?);
    } else {
        print(&rows);
    }
    Ok(())
}

/// Returns source text in files of 64 KiB, the typical input of a snapshot.
fn sample() -> Vec<u8> {
    let writer = Writer::new();
    let mut rng = Rng::new(3);
    let mut data = Vec::with_capacity(DATA);
    while data.len() < DATA {
        data.extend(writer.text(&mut rng, Language::Braces, 64 << 10));
    }
    data
}

fn chunks(data: &[u8]) -> impl Iterator<Item = &[u8]> {
    FastCDC::new(data, 16 << 10, 64 << 10, 256 << 10).map(|c| &data[c.offset..c.offset + c.length])
}

fn snapshot_path(dir: &Path, data: &[u8], hash: Hash, level: i32) -> Result<(), Failure> {
    let path = dir.join("hashes.pack");
    let mut pack = OpenOptions::new().write(true).create(true).truncate(true).open(&path)?;
    let mut compressor = zstd::bulk::Compressor::new(level)?;
    for piece in chunks(data) {
        let name = hash(piece);
        let body = compressor.compress(piece)?;
        pack.write_all(&name)?;
        pack.write_all(&body)?;
    }
    std::fs::remove_file(path)?;
    Ok(())
}

/// Runs `work` with each hash in turn, several times.
fn compare(
    label: &str,
    bytes: usize,
    mut work: impl FnMut(Hash) -> Result<(), Failure>,
) -> Result<Vec<Row>, Failure> {
    let mut cpu = [Vec::new(), Vec::new()];
    let mut wall = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (which, (_, hash)) in HASHES.iter().enumerate() {
            let start = Instant::now();
            let before = cpu_seconds();
            work(*hash)?;
            cpu[which].push(cpu_seconds() - before);
            wall[which].push(start.elapsed().as_secs_f64());
        }
    }
    let rate = |samples: &mut [f64]| bytes as f64 / 1e9 / median(samples);
    Ok(HASHES
        .iter()
        .enumerate()
        .map(|(which, (hash, _))| Row {
            work: label.to_owned(),
            hash,
            gb_per_cpu_second: rate(&mut cpu[which]),
            gb_per_second: rate(&mut wall[which]),
        })
        .collect())
}

fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn print(rows: &[Row]) {
    println!("one thread, {} MiB of generated source text, median of {ROUNDS}", DATA >> 20);
    println!("{:<34} {:<8} {:>10} {:>12}", "work", "hash", "GB/s CPU", "GB/s wall");
    for row in rows {
        println!(
            "{:<34} {:<8} {:>10.2} {:>12.2}",
            row.work, row.hash, row.gb_per_cpu_second, row.gb_per_second
        );
    }
}
