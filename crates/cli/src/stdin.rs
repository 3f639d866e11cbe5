//! Stdin of this program.

use std::io::Read as _;

use tokio::sync::mpsc;

/// Buffer size for reading.
pub(crate) const READ: usize = 64 << 10;
const WAITING: usize = 16;

/// Reads stdin in a thread that ends with the program.
pub(crate) fn stdin() -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel(WAITING);
    std::thread::spawn(move || {
        let mut buffer = vec![0; READ];
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
