//! Connections to programs in sandboxes, kept for the next request with the same token.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::{Mutex, MutexGuard};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use super::client_body::ClientBody;
use super::target::Target;

/// Size of hyper's buffers in bytes. It limits the headers of a response, and how far its body is read ahead.
const BUFFER_MAX: usize = 64 << 10;
/// Maximum number of idle connections of one token, and of all.
const IDLE_PER_TOKEN_MAX: usize = 8;
const IDLE_MAX: usize = 512;
/// Time after which an idle connection is closed. Common programs close theirs after 5 s.
const IDLE_TIMEOUT: Duration = Duration::from_secs(3);
/// Interval at which idle connections are closed.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// Timeout for a pooled connection to become ready again.
const READY_TIMEOUT: Duration = Duration::from_secs(1);

/// HTTP connection to a program in a sandbox. It is closed on drop.
#[derive(Debug)]
pub(crate) struct ProgramConnection {
    pub(crate) sender: SendRequest<ClientBody>,
    task: AbortHandle,
}

impl ProgramConnection {
    /// Starts HTTP/1.1 on a connection.
    pub(crate) async fn start<S>(stream: S) -> Result<Self, hyper::Error>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (sender, connection) =
            Builder::new().max_buf_size(BUFFER_MAX).handshake(TokioIo::new(stream)).await?;
        let task = tokio::spawn(async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%error, "connection to a port failed");
            }
        });
        Ok(Self { sender, task: task.abort_handle() })
    }
}

impl Drop for ProgramConnection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Key of pooled connections: clients with other tokens never share them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct PoolKey {
    pub(crate) target: Target,
    pub(crate) token_hash: [u8; blake3::OUT_LEN],
}

/// Idle connections.
#[derive(Debug, Default)]
pub(crate) struct Pool(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    idle: HashMap<PoolKey, Vec<Idle>>,
    total: usize,
    /// True while the task that closes old connections runs.
    is_sweeping: bool,
}

#[derive(Debug)]
struct Idle {
    connection: ProgramConnection,
    since: Instant,
}

impl Pool {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock()
    }

    /// Takes a connection that can be used at once; `None` if there is none.
    pub(crate) async fn take(&self, key: &PoolKey) -> Option<ProgramConnection> {
        loop {
            let mut connection = self.inner().pop(key)?;
            // The end of the previous response may not have been processed yet.
            if let Ok(Ok(())) = timeout(READY_TIMEOUT, connection.sender.ready()).await {
                return Some(connection);
            }
        }
    }

    /// Keeps a connection whose last response was read to its end. Closes it if there are too many.
    pub(crate) fn put(self: &Arc<Self>, key: PoolKey, connection: ProgramConnection) {
        let mut inner = self.inner();
        if connection.sender.is_closed() || inner.total >= IDLE_MAX {
            return;
        }
        let idle = inner.idle.entry(key).or_default();
        if idle.len() >= IDLE_PER_TOKEN_MAX {
            return;
        }
        idle.push(Idle { connection, since: Instant::now() });
        inner.total += 1;
        if !inner.is_sweeping {
            inner.is_sweeping = true;
            tokio::spawn(sweep(Arc::downgrade(self)));
        }
    }
}

impl Inner {
    /// Removes the connection that was used last, since it is most likely still open.
    fn pop(&mut self, key: &PoolKey) -> Option<ProgramConnection> {
        let idle = self.idle.get_mut(key)?;
        let last = idle.pop();
        if idle.is_empty() {
            self.idle.remove(key);
        }
        self.total -= usize::from(last.is_some());
        last.map(|idle| idle.connection)
    }

    /// Closes connections that have been idle for too long. Returns false if none is left.
    fn close_old(&mut self) -> bool {
        for idle in self.idle.values_mut() {
            idle.retain(|idle| idle.since.elapsed() < IDLE_TIMEOUT && !idle.connection.sender.is_closed());
        }
        self.idle.retain(|_, idle| !idle.is_empty());
        self.total = self.idle.values().map(Vec::len).sum();
        self.is_sweeping = self.total > 0;
        self.is_sweeping
    }
}

/// Closes old connections until none is left.
async fn sweep(pool: Weak<Pool>) {
    loop {
        sleep(SWEEP_INTERVAL).await;
        let Some(pool) = pool.upgrade() else { return };
        if !pool.inner().close_old() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, DuplexStream, duplex};

    fn key(token: u8) -> PoolKey {
        PoolKey { target: Target { sandbox: "sbx-1".to_owned(), port: 80 }, token_hash: [token; 32] }
    }

    async fn connection() -> (ProgramConnection, DuplexStream) {
        let (near, far) = duplex(1 << 10);
        (ProgramConnection::start(near).await.unwrap(), far)
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_reused_by_the_same_token_only_and_closed_when_idle() {
        let pool = Arc::new(Pool::default());
        let (first, mut far) = connection().await;
        pool.put(key(1), first);
        assert!(pool.take(&key(2)).await.is_none());
        let first = pool.take(&key(1)).await.unwrap();
        assert!(pool.take(&key(1)).await.is_none(), "it is in use");
        pool.put(key(1), first);
        let began = Instant::now();
        assert_eq!(far.read(&mut [0; 1]).await.unwrap(), 0, "it was closed");
        assert!((IDLE_TIMEOUT..=IDLE_TIMEOUT + SWEEP_INTERVAL).contains(&began.elapsed()));
        let inner = pool.inner();
        assert!(inner.idle.is_empty() && inner.total == 0);
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_idle_connections_is_limited() {
        let pool = Arc::new(Pool::default());
        let mut ends = Vec::new();
        for number in 0..IDLE_MAX + 20 {
            let (connection, far) = connection().await;
            pool.put(key(u8::try_from(number % 200).unwrap()), connection);
            ends.push(far);
        }
        assert_eq!(pool.inner().total, IDLE_MAX);
        for _ in 0..20 {
            let (connection, far) = connection().await;
            pool.put(key(255), connection);
            ends.push(far);
        }
        assert!(pool.take(&key(255)).await.is_none());
        assert!(pool.inner().idle.values().all(|idle| idle.len() <= IDLE_PER_TOKEN_MAX));
    }

    #[tokio::test]
    async fn a_connection_that_the_program_closed_is_not_reused() {
        let pool = Arc::new(Pool::default());
        let (connection, far) = connection().await;
        pool.put(key(1), connection);
        drop(far);
        assert!(pool.take(&key(1)).await.is_none());
    }
}
