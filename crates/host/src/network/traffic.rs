//! Traffic of a sandbox. The kernel counts it for every interface, and shows it to all users.

use std::fs;

use crate::process::Process;
use crate::resources::limits::NetworkBytes;

/// Interface that connects a sandbox with itself.
const LOOPBACK: &str = "lo";
/// Position of the sent bytes among the numbers of an interface; received bytes are the first.
const SENT_INDEX: usize = 8;

/// Returns the traffic in the network namespace of a process. `None` if the process has exited, is hidden from
/// this user, or has no interface except loopback.
pub fn traffic(process: &Process) -> Option<NetworkBytes> {
    let text = fs::read_to_string(format!("/proc/{}/net/dev", process.pid())).ok()?;
    // If the process is still running, its PID had not been reused when the file was read.
    if process.is_running() { parse(&text) } else { None }
}

/// Parses `/proc/PID/net/dev`: two lines of headings, then a line for each interface.
fn parse(text: &str) -> Option<NetworkBytes> {
    let interfaces = text.lines().skip(2).filter_map(|line| line.split_once(':'));
    let external = interfaces.filter(|(name, _)| name.trim() != LOOPBACK);
    let bytes = external.filter_map(|(_, numbers)| {
        let mut numbers = numbers.split_ascii_whitespace().map(str::parse::<u64>);
        let received = numbers.next()?.ok()?;
        Some(NetworkBytes { received, sent: numbers.nth(SENT_INDEX - 1)?.ok()? })
    });
    bytes.reduce(|sum, one| NetworkBytes {
        received: sum.received.saturating_add(one.received),
        sent: sum.sent.saturating_add(one.sent),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADINGS: &str = "Inter-| Receive | Transmit\n face |bytes packets errs|bytes packets errs\n";

    #[test]
    fn traffic_of_all_interfaces_except_loopback_is_added() {
        let text = format!(
            "{HEADINGS}    lo:     500       5    0    0    0     0          0         0      500       5    0\n\
             \x20 eth0:    1000       7    1    2    3     4          5         6     2000       8    0\n\
             \x20 eth1:20 1 0 0 0 0 0 0 30 1 0 0 0 0 0 0\n"
        );
        assert_eq!(parse(&text), Some(NetworkBytes { received: 1_020, sent: 2_030 }));
    }

    #[test]
    fn a_sandbox_without_a_network_has_no_traffic() {
        let loopback = format!("{HEADINGS}    lo: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n");
        for text in ["", HEADINGS, &loopback, "a\nb\neth0: 1 2 3\n", "a\nb\neth0: x 1 1 1 1 1 1 1 1\n"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn traffic_of_a_running_process_can_be_read() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        let process = Process::of(pid).unwrap();
        let own = parse(&fs::read_to_string("/proc/self/net/dev").unwrap());
        assert_eq!(traffic(&process).is_some(), own.is_some());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(traffic(&process), None);
    }
}
