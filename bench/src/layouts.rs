//! Cost of one small commit in different on-disk layouts of a store.
//!
//! A commit here is one chunk of 4 KiB and eight nodes of 3 KiB, the path from a changed leaf to the root of
//! a large tree. The layouts are prototypes, independent of the engine, to choose its layout. They take turns
//! in every round, so that noise affects all of them alike.

use std::fs::{self, File, OpenOptions};
use std::io::IoSlice;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions};
use rustix::io::ReadWriteFlags;
use serde::Serialize;

use crate::failure::Failure;
use crate::rng::Rng;
use crate::stats::Latency;

const CHUNK: usize = 4 << 10;
const NODE: usize = 3 << 10;
const NODES: usize = 8;
const COMMIT: usize = CHUNK + NODES * NODE;
const AHEAD: u64 = 1 << 20;
/// Entries in an index before the first measured commit, so that its tree has a realistic depth.
const PREFILL: usize = 200_000;
/// Number of entries before the first measured commit for the layout that stores nodes in the KV.
const PREFILL_NODES: usize = 30_000;

/// Measured cost of one layout.
#[derive(Serialize)]
struct Row {
    layout: &'static str,
    latency_us: Latency,
    commits_per_second: f64,
    times_raw_append: f64,
}

type Named = (&'static str, Box<dyn Layout>);

trait Layout {
    fn commit(&mut self, content: &Content) -> Result<(), Failure>;
}

/// Generator of the bytes of a commit, with new keys each time.
struct Content {
    bytes: Vec<u8>,
    keys: Vec<[u8; 32]>,
}

impl Content {
    fn new(rng: &mut Rng) -> Self {
        let mut bytes = vec![0; COMMIT];
        rng.fill(&mut bytes);
        let keys = (0..NODES + 2).map(|_| random_key(rng)).collect();
        Self { bytes, keys }
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes[..CHUNK]
    }

    fn nodes(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes[CHUNK..].chunks(NODE)
    }
}

fn random_key(rng: &mut Rng) -> [u8; 32] {
    let mut key = [0; 32];
    rng.fill(&mut key);
    key
}

/// Preallocation of a log file.
#[derive(Clone, Copy, PartialEq)]
enum Ahead {
    /// No preallocation: every append extends the file, so its sync also commits metadata.
    Nothing,
    /// Reserved by `fallocate`: the size is final, but each write still converts unwritten extents.
    Reserved,
    /// Zeros written and synced: an append overwrites existing blocks, and its sync writes only data.
    Zeros,
}

#[derive(Clone, Copy, PartialEq)]
enum Sync {
    No,
    Data,
    /// `pwritev2(RWF_DSYNC)`: write and sync in one call.
    WithWrite,
}

struct Log {
    file: File,
    end: u64,
    ready: u64,
    ahead: Ahead,
    sync: Sync,
}

impl Log {
    fn create(path: &Path, ahead: Ahead, sync: Sync) -> Result<Self, Failure> {
        let file = OpenOptions::new().write(true).create_new(true).open(path)?;
        Ok(Self { file, end: 0, ready: 0, ahead, sync })
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.prepare(bytes.len() as u64)?;
        match self.sync {
            Sync::No => self.file.write_all_at(bytes, self.end)?,
            Sync::Data => {
                self.file.write_all_at(bytes, self.end)?;
                self.file.sync_data()?;
            }
            Sync::WithWrite => {
                let slices = [IoSlice::new(bytes)];
                let written = rustix::io::pwritev2(&self.file, &slices, self.end, ReadWriteFlags::DSYNC)?;
                assert_eq!(written, bytes.len(), "a regular file takes the whole write");
            }
        }
        self.end += bytes.len() as u64;
        Ok(())
    }

    fn prepare(&mut self, length: u64) -> Result<(), Failure> {
        if self.ahead == Ahead::Nothing || self.end + length <= self.ready {
            return Ok(());
        }
        if self.ahead == Ahead::Reserved {
            rustix::fs::fallocate(&self.file, rustix::fs::FallocateFlags::empty(), self.ready, AHEAD)?;
        } else {
            self.file.write_all_at(&vec![0; AHEAD as usize], self.ready)?;
        }
        if self.sync != Sync::No {
            self.file.sync_data()?;
        }
        self.ready += AHEAD;
        Ok(())
    }
}

struct Kv {
    env: Env,
    entries: Database<Bytes, Bytes>,
}

impl Kv {
    fn create(path: &Path, flags: EnvFlags, prefill: usize, value_size: usize) -> Result<Self, Failure> {
        fs::create_dir(path)?;
        let mut options = EnvOpenOptions::new();
        options.map_size(4 << 30).max_dbs(4);
        // SAFETY: no other process opens this directory, and a torn environment after a crash is thrown away.
        let env = unsafe { options.flags(flags).open(path)? };
        let mut txn = env.write_txn()?;
        let entries = env.create_database(&mut txn, Some("entries"))?;
        txn.commit()?;
        let kv = Self { env, entries };
        kv.prefill(prefill, value_size)?;
        Ok(kv)
    }

    fn prefill(&self, count: usize, value_size: usize) -> Result<(), Failure> {
        let mut rng = Rng::new(7);
        let mut keys: Vec<_> = (0..count).map(|_| random_key(&mut rng)).collect();
        keys.sort_unstable();
        let value = vec![1; value_size];
        let mut txn = self.env.write_txn()?;
        for key in &keys {
            self.entries.put(&mut txn, key, &value)?;
        }
        txn.commit()?;
        self.env.force_sync()?;
        Ok(())
    }

    fn put<'a>(&self, entries: impl Iterator<Item = (&'a [u8; 32], &'a [u8])>) -> Result<(), Failure> {
        let mut txn = self.env.write_txn()?;
        for (key, value) in entries {
            self.entries.put(&mut txn, key, value)?;
        }
        txn.commit()?;
        Ok(())
    }
}

/// Bare append of 4 KiB or of a commit's bytes: the lower bound.
struct Append {
    log: Log,
    length: usize,
}

impl Layout for Append {
    fn commit(&mut self, content: &Content) -> Result<(), Failure> {
        self.log.append(&content.bytes[..self.length])
    }
}

/// Content in a log, locations in an index.
struct LogAndIndex {
    log: Log,
    index: Kv,
}

impl Layout for LogAndIndex {
    fn commit(&mut self, content: &Content) -> Result<(), Failure> {
        self.log.append(&content.bytes)?;
        let location = [7; 24];
        self.index.put(content.keys.iter().map(|key| (key, &location[..])))
    }
}

/// Everything in the KV.
struct KvOnly {
    kv: Kv,
}

impl Layout for KvOnly {
    fn commit(&mut self, content: &Content) -> Result<(), Failure> {
        let values = content.nodes().chain([content.chunk(), &[7; 120]]);
        self.kv.put(content.keys.iter().zip(values))
    }
}

fn layouts(dir: &Path) -> Result<Vec<Named>, Failure> {
    let log = |name: &str, ahead, sync| Log::create(&dir.join(name), ahead, sync);
    let index = |name: &str, flags| Kv::create(&dir.join(name), flags, PREFILL, 24);
    let whole = |name: &str, flags| Kv::create(&dir.join(name), flags, PREFILL_NODES, NODE);
    let no_sync = EnvFlags::NO_SYNC;
    let mapped = EnvFlags::NO_SYNC | EnvFlags::WRITE_MAP;
    let raw = |name: &str, length, ahead, sync| -> Result<Box<dyn Layout>, Failure> {
        Ok(Box::new(Append { log: log(name, ahead, sync)?, length }))
    };
    let both = |name: &str, ahead, sync, flags| -> Result<Box<dyn Layout>, Failure> {
        Ok(Box::new(LogAndIndex {
            log: log(&format!("{name}.log"), ahead, sync)?,
            index: index(name, flags)?,
        }))
    };
    let kv = |name: &str, flags| -> Result<Box<dyn Layout>, Failure> {
        Ok(Box::new(KvOnly { kv: whole(name, flags)? }))
    };
    Ok(vec![
        ("a  raw append of 4 KiB, fdatasync", raw("a", CHUNK, Ahead::Nothing, Sync::Data)?),
        ("b  raw append of the commit, fdatasync", raw("b", COMMIT, Ahead::Nothing, Sync::Data)?),
        ("c  the same, log zeroed ahead", raw("c", COMMIT, Ahead::Zeros, Sync::Data)?),
        ("c2 the same, log reserved by fallocate", raw("c2", COMMIT, Ahead::Reserved, Sync::Data)?),
        ("c3 log zeroed ahead, pwritev2 RWF_DSYNC", raw("c3", COMMIT, Ahead::Zeros, Sync::WithWrite)?),
        ("d  log zeroed ahead, fdatasync; LMDB index NO_SYNC", both("d", Ahead::Zeros, Sync::Data, no_sync)?),
        ("d2 the same; LMDB index NO_SYNC WRITE_MAP", both("d2", Ahead::Zeros, Sync::Data, mapped)?),
        (
            "d3 log not prepared, fdatasync; LMDB index NO_SYNC",
            both("d3", Ahead::Nothing, Sync::Data, no_sync)?,
        ),
        ("e  pack, fdatasync; LMDB index synced", both("e", Ahead::Nothing, Sync::Data, EnvFlags::empty())?),
        ("f  LMDB holds everything, synced", kv("f", EnvFlags::empty())?),
        ("g1 d without sync (log zeroed ahead)", both("g1", Ahead::Zeros, Sync::No, no_sync)?),
        ("g2 d without sync (log not prepared)", both("g2", Ahead::Nothing, Sync::No, no_sync)?),
        ("g3 d without sync, WRITE_MAP", both("g3", Ahead::Nothing, Sync::No, mapped)?),
        ("g4 f without sync", kv("g4", no_sync)?),
    ])
}

/// Runs `rounds` rounds of `commits` commits of each layout in `dir` and prints a table, or JSON.
pub(crate) fn run(dir: &Path, rounds: usize, commits: usize, json: bool) -> Result<(), Failure> {
    let dir = dir.join("layouts");
    fs::create_dir_all(&dir)?;
    let rows = measure(&dir, rounds, commits);
    fs::remove_dir_all(&dir)?;
    let rows = rows?;
    if json {
        println!("{}", serde_json::to_string_pretty(&rows)?);
    } else {
        print(&rows);
    }
    Ok(())
}

fn measure(dir: &Path, rounds: usize, commits: usize) -> Result<Vec<Row>, Failure> {
    let mut layouts = layouts(dir)?;
    let mut samples = vec![Vec::with_capacity(rounds * commits); layouts.len()];
    let mut rng = Rng::new(1);
    for _ in 0..rounds {
        for ((_, layout), samples) in layouts.iter_mut().zip(&mut samples) {
            for _ in 0..commits {
                let content = Content::new(&mut rng);
                let start = Instant::now();
                layout.commit(&content)?;
                samples.push(start.elapsed().as_secs_f64() * 1e6);
            }
        }
    }
    let latencies: Vec<_> = samples.iter_mut().map(|samples| Latency::of(samples)).collect();
    let rows = layouts.iter().zip(&latencies).map(|((layout, _), latency)| Row {
        layout,
        latency_us: *latency,
        commits_per_second: 1e6 / latency.mean,
        times_raw_append: latency.p50 / latencies[0].p50,
    });
    Ok(rows.collect())
}

fn print(rows: &[Row]) {
    println!("one commit = 4 KiB chunk + 8 nodes of 3 KiB; microseconds");
    println!(
        "{:<52} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>10} {:>7}",
        "layout", "min", "p10", "p50", "p90", "p99", "mean", "commits/s", "x raw"
    );
    for row in rows {
        let l = row.latency_us;
        println!(
            "{:<52} {:>8.1} {:>8.1} {:>8.1} {:>8.1} {:>8.1} {:>8.1} {:>10.0} {:>7.2}",
            row.layout,
            l.min,
            l.p10,
            l.p50,
            l.p90,
            l.p99,
            l.mean,
            row.commits_per_second,
            row.times_raw_append
        );
    }
}
