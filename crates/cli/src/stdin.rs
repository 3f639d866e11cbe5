//! Stdin of this program.

use std::io::Read as _;

use tokio::sync::mpsc;

/// Maximum number of bytes per read.
pub(crate) const READ_MAX: usize = 64 << 10;
/// Number of reads that wait to be processed.
const QUEUE_LENGTH: usize = 16;

/// Starts a thread that reads stdin and ends with the program. The channel closes at the end of stdin, or when it
/// cannot be read.
pub(crate) fn spawn_stdin_reader() -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel(QUEUE_LENGTH);
    std::thread::spawn(move || {
        let mut buffer = vec![0; READ_MAX];
        loop {
            match std::io::stdin().read(&mut buffer) {
                Ok(0) => return,
                Ok(count) if sender.blocking_send(buffer[..count].to_vec()).is_err() => return,
                Err(error) if error.kind() != std::io::ErrorKind::Interrupted => return,
                _ => {}
            }
        }
    });
    receiver
}
