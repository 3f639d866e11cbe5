//! Test of the threads of connections.

use std::io::{Read, Write};
use std::net::TcpListener;

use workspace_test_support::wait_until;

use super::*;
use crate::hooks::NoObserver;
use crate::settings::Settings;
use crate::state_dir::KEY_LEN;

/// Returns a call of the NULL procedure of NFS, with its record mark.
fn null_call() -> Vec<u8> {
    let words = [0x8000_0000 | 40, 1, 0, 2, 100_003, 3, 0, 0, 0, 0, 0_u32];
    words.into_iter().flat_map(u32::to_be_bytes).collect()
}

/// Length of the reply to a NULL call with its record mark, in bytes.
const NULL_REPLY_LEN: usize = 28;

fn context(extra_threads: usize) -> Arc<Context> {
    let mut settings = Settings::new("/nonexistent");
    settings.limits.extra_threads = extra_threads;
    Arc::new(Context::new(&settings, [7; KEY_LEN], Arc::new(NoObserver)))
}

/// Serves a connection without a server, and returns the client's side of it.
fn connect(context: &Arc<Context>) -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (stream, address) = listener.accept().unwrap();
    start(Arc::clone(context), address, OpenConnection::only(stream, address)).unwrap();
    client
}

#[test]
fn requests_are_answered_with_any_maximum_of_extra_threads() {
    const CALLS: usize = 100;
    for max in [0, 1, 100] {
        let context = context(max);
        let mut clients: Vec<TcpStream> = (0..3).map(|_| connect(&context)).collect();
        for client in &mut clients {
            client.write_all(&null_call().repeat(CALLS)).unwrap();
        }
        for client in &mut clients {
            client.read_exact(&mut [0; NULL_REPLY_LEN * CALLS]).unwrap();
        }
        assert!(context.extra_threads.count() <= max);
        drop(clients);
        wait_until("all extra threads have ended", || context.extra_threads.count() == 0);
    }
}
