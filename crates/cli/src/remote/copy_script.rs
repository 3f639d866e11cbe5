//! Shell scripts that run in a sandbox while `copy` copies files: `tar` with flow control.
//!
//! The server keeps the last few MiB of a command's output, and the guest agent buffers its input in memory. Therefore
//! each side waits until the other one has acknowledged the data.

use super::quote;

/// Bytes of output per acknowledgement.
pub(super) const OUTPUT_ACK_BYTES: u64 = 64 * BLOCK;
/// Bytes of input per acknowledgement.
pub(super) const INPUT_ACK_BYTES: u64 = 16 * BLOCK;
const BLOCK: u64 = 64 << 10;

/// Start of the command lines of copies: a no-op by which `workspace logs` recognises them.
const COPY_MARKER: &str = ": workspace-cp; ";

/// Returns true for the command line of a copy.
pub(crate) fn is_copy(line: &str) -> bool {
    line.starts_with(COPY_MARKER)
}

/// Returns a script that prints an archive of `name` in `directory`. After every [`OUTPUT_ACK_BYTES`] bytes it waits
/// for a line on stdin. File descriptor 3 is stdin, 4 is stdout, and 5 takes the exit code of `tar`.
///
/// `dd` reports the number of full blocks on stderr; fewer than requested means the end of the archive.
pub(super) fn pack(directory: &str, name: &str) -> String {
    let tar = quote(["tar", "-cf", "-", "-C", directory, "--", name]);
    format!(
        "{COPY_MARKER}exec 3<&0 4>&1; code=$({{ {{ {tar} </dev/null; echo $? >&5; }} | \
         while said=$(LC_ALL=C dd bs={BLOCK} count=64 iflag=fullblock 2>&1 >&4); \
         case $said in 64+0*) :;; *) false;; esac; do read -r go <&3 || break; done; }} 5>&1); exit \"$code\""
    )
}

/// Returns a script that reads an archive from stdin and unpacks it in `directory`. For every [`INPUT_ACK_BYTES`] bytes
/// it prints a dot. File descriptor 3 is stdout, and 4 is the pipe to `tar`.
pub(super) fn unpack(directory: &str) -> String {
    let tar = quote(["tar", "-xof", "-", "-C", directory]);
    format!(
        "{COPY_MARKER}exec 3>&1; {{ while said=$(LC_ALL=C dd bs={BLOCK} count=16 iflag=fullblock 2>&1 >&4); \
         case $said in 16+0*) printf . >&3;; *) false;; esac; do :; done; }} 4>&1 | {tar}"
    )
}
