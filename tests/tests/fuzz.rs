//! Fuzz targets with a few thousand deterministic inputs, to find simple bugs before `make fuzz` runs for
//! long.

#[allow(unreachable_pub, reason = "the crate of the fuzz targets exports them")]
#[path = "../../fuzz/src/targets.rs"]
mod targets;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};

use workspace_tests::metadata::repository;

/// Inputs per target; overridden by `WORKSPACE_FUZZ_INPUTS`.
const INPUTS: u64 = 3_000;

/// Pseudo-random numbers, the same on each run.
struct Rng(u64);

impl Rng {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((word ^ (word >> 31)) % end as u64).unwrap_or_default()
    }
}

/// Returns the seeds of a target, from the directory of the targets and from the tests of crates.
fn seeds(target: &str) -> Vec<Vec<u8>> {
    let directories = [format!("fuzz/seeds/{target}"), format!("crates/merge/tests/corpus/{target}")];
    let mut paths = Vec::new();
    for directory in directories {
        if let Ok(entries) = fs::read_dir(repository().join(directory)) {
            paths.extend(entries.map(|entry| entry.unwrap().path()));
        }
    }
    paths.sort();
    assert!(!paths.is_empty(), "{target} has no seeds");
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

fn mutate(bytes: &mut Vec<u8>, others: &[Vec<u8>], rng: &mut Rng) {
    for _ in 0..1 + rng.below(4) {
        let at = rng.below(bytes.len() + 1);
        let end = (at + rng.below(9)).min(bytes.len());
        match rng.below(7) {
            0 if at < bytes.len() => bytes[at] ^= 1 << rng.below(8),
            1 if at < bytes.len() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff, b'\n', b'"', b'='][rng.below(8)],
            2 => drop(bytes.drain(at..end)),
            3 => {
                let copy = bytes[at..end].repeat(1 + rng.below(3));
                bytes.splice(at..at, copy);
            }
            // Largest values of common integer encodings.
            4 => drop(bytes.splice(at..end, [0xff; 9].into_iter().take(1 + rng.below(9)))),
            5 => {
                let other = &others[rng.below(others.len())];
                let from = rng.below(other.len() + 1);
                let to = (from + rng.below(64)).min(other.len());
                bytes.splice(at..end, other[from..to].to_vec());
            }
            _ => bytes.truncate(at),
        }
    }
}

fn run(name: &str, target: fn(&[u8])) {
    let inputs =
        std::env::var("WORKSPACE_FUZZ_INPUTS").ok().and_then(|text| text.parse().ok()).unwrap_or(INPUTS);
    let seeds = seeds(name);
    for number in 0..inputs {
        let mut rng = Rng(number);
        let mut input = seeds[rng.below(seeds.len())].clone();
        // The first inputs are the seeds themselves.
        match usize::try_from(number).ok().and_then(|number| seeds.get(number)) {
            Some(seed) => input.clone_from(seed),
            None => mutate(&mut input, &seeds, &mut rng),
        }
        let ran = catch_unwind(AssertUnwindSafe(|| target(&input)));
        assert!(ran.is_ok(), "{name} fails with input {number}: {:?}", String::from_utf8_lossy(&input));
    }
}

#[test]
fn guest_protocol_target_accepts_any_input() {
    run("guest_protocol", targets::guest_protocol);
}

#[test]
fn event_stream_target_accepts_any_input() {
    run("event_stream", targets::event_stream);
}

#[test]
fn terminal_socket_target_accepts_any_input() {
    run("terminal_socket", targets::terminal_socket);
}

#[cfg(target_os = "linux")]
#[test]
fn nfs_requests_target_accepts_any_input() {
    run("nfs_requests", targets::nfs_requests);
}

#[test]
fn settings_target_accepts_any_input() {
    run("settings", targets::settings);
}

#[test]
fn merge_notebook_target_accepts_any_input() {
    run("merge_notebook", targets::merge_notebook);
}
