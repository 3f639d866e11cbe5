//! Resource usage of all processes in the agent's PID namespace, which are those of the sandbox.

use std::fs;
use std::io;

use workspace_agent_protocol::v1::ResourceUsage;

/// Reads the usage. The idle supervisors are not counted as processes.
pub(crate) fn read(idle_supervisors: usize) -> io::Result<ResourceUsage> {
    let page = rustix::param::page_size() as u64;
    let tick = 1_000_000 / rustix::param::clock_ticks_per_second().max(1);
    let mut usage = ResourceUsage::default();
    for entry in fs::read_dir("/proc")?.flatten() {
        if !entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit) {
            continue;
        }
        // The process may have exited.
        let Some(stat) = fs::read_to_string(entry.path().join("stat")).ok().and_then(|text| parse(&text))
        else {
            continue;
        };
        // The limit on processes counts threads.
        usage.processes += stat.threads;
        usage.memory_bytes += stat.pages * page;
        usage.cpu_micros += stat.ticks * tick;
    }
    usage.processes = usage.processes.saturating_sub(u32::try_from(idle_supervisors).unwrap_or(u32::MAX));
    Ok(usage)
}

/// Fields of `/proc/PID/stat`.
struct ProcessStat {
    threads: u32,
    /// Resident pages.
    pages: u64,
    /// CPU time in clock ticks, including that of reaped children.
    ticks: u64,
}

fn parse(stat: &str) -> Option<ProcessStat> {
    // The name may contain anything, including parentheses.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let field = |index: usize| fields.get(index)?.parse::<u64>().ok();
    // Indices count from the state, field 3 in proc(5): `utime`, `stime`, `cutime` and `cstime`, then `num_threads` and
    // `rss`.
    let ticks = (11..15).map(field).sum::<Option<u64>>()?;
    Some(ProcessStat { threads: u32::try_from(field(17)?).ok()?, pages: field(21)?, ticks })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_names_with_parentheses_are_parsed() {
        let stat =
            "7 (a) b) (c) S 1 7 7 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 3 0 500 1000 42 18446744073709551615";
        let parsed = parse(stat).unwrap();
        assert_eq!((parsed.threads, parsed.pages, parsed.ticks), (3, 42, 100));
        assert!(parse("7 (a) S 1").is_none());
    }

    #[test]
    fn own_process_is_counted() {
        let usage = read(0).unwrap();
        assert!(usage.processes > 0 && usage.memory_bytes > 0);
    }
}
