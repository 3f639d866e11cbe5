//! Connection to a port of a sandbox, as a byte stream for hyper.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use workspace_sandbox::{PortConnection, PortReader, PortWriter};

/// Maximum number of bytes that are sent at once.
const PIECE_MAX: usize = 16 << 10;

/// Bytes from a port: [`PortReader`], or a channel in tests.
pub(crate) trait PortSource: Send + Unpin + 'static {
    /// Returns the next bytes; `None` at the end of the stream.
    fn next(&mut self) -> impl Future<Output = io::Result<Option<Bytes>>> + Send;
}

/// Bytes to a port: [`PortWriter`], or a channel in tests.
pub(crate) trait PortDestination: Send + Unpin + 'static {
    /// Sends bytes, as fast as the program accepts them.
    fn send(&mut self, bytes: Bytes) -> impl Future<Output = io::Result<()>> + Send;

    /// Ends the stream.
    fn end(&mut self) -> impl Future<Output = io::Result<()>> + Send;
}

impl PortSource for PortReader {
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        Self::next(self).await.map_err(io::Error::other)
    }
}

impl PortDestination for PortWriter {
    async fn send(&mut self, bytes: Bytes) -> io::Result<()> {
        Self::send(self, bytes).await.map_err(io::Error::other)
    }

    async fn end(&mut self) -> io::Result<()> {
        Self::end(self).await.map_err(io::Error::other)
    }
}

/// Read or write in progress, which returns the reader or writer with its result.
type Reading<R> = Pin<Box<dyn Future<Output = (R, io::Result<Option<Bytes>>)> + Send>>;
type Writing<W> = Pin<Box<dyn Future<Output = (W, io::Result<()>)> + Send>>;

enum ReadState<R> {
    Idle(R),
    Reading(Reading<R>),
    Ended,
}

enum WriteState<W> {
    Idle(W),
    Writing(Writing<W>),
    /// The stream was ended or has failed.
    Closed,
}

/// Byte stream to a port. It holds at most one received frame, and one piece that is being sent.
pub(crate) struct PortStream<R = PortReader, W = PortWriter> {
    read: ReadState<R>,
    /// Received bytes that were not read yet.
    unread: Bytes,
    write: WriteState<W>,
    /// True once the stream is being shut down: nothing can be written any more.
    is_ending: bool,
}

impl PortStream {
    /// Creates the stream of a connection. Dropping it closes the connection.
    pub(crate) fn of_connection(connection: PortConnection) -> Self {
        Self::new(connection.reader, connection.writer)
    }
}

impl<R: PortSource, W: PortDestination> PortStream<R, W> {
    fn new(reader: R, writer: W) -> Self {
        Self {
            read: ReadState::Idle(reader),
            unread: Bytes::new(),
            write: WriteState::Idle(writer),
            is_ending: false,
        }
    }

    /// Receives the next bytes; `None` at the end of the stream.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        loop {
            match std::mem::replace(&mut self.read, ReadState::Ended) {
                ReadState::Idle(mut reader) => {
                    self.read = ReadState::Reading(Box::pin(async move {
                        let next = reader.next().await;
                        (reader, next)
                    }));
                }
                ReadState::Reading(mut reading) => match reading.as_mut().poll(context) {
                    Poll::Pending => {
                        self.read = ReadState::Reading(reading);
                        return Poll::Pending;
                    }
                    Poll::Ready((reader, Ok(Some(bytes)))) => {
                        self.read = ReadState::Idle(reader);
                        if !bytes.is_empty() {
                            return Poll::Ready(Ok(Some(bytes)));
                        }
                    }
                    Poll::Ready((_, Ok(None))) => return Poll::Ready(Ok(None)),
                    Poll::Ready((_, Err(error))) => return Poll::Ready(Err(error)),
                },
                ReadState::Ended => return Poll::Ready(Ok(None)),
            }
        }
    }

    /// Waits until the piece that is being sent was accepted.
    fn poll_sent(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match std::mem::replace(&mut self.write, WriteState::Closed) {
            WriteState::Writing(mut writing) => match writing.as_mut().poll(context) {
                Poll::Pending => {
                    self.write = WriteState::Writing(writing);
                    Poll::Pending
                }
                Poll::Ready((writer, sent)) => {
                    if sent.is_ok() {
                        self.write = WriteState::Idle(writer);
                    }
                    Poll::Ready(sent)
                }
            },
            other => {
                self.write = other;
                Poll::Ready(Ok(()))
            }
        }
    }
}

impl<R: PortSource, W: PortDestination> AsyncRead for PortStream<R, W> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.unread.is_empty() {
            match ready!(self.poll_next(context))? {
                Some(bytes) => self.unread = bytes,
                None => return Poll::Ready(Ok(())),
            }
        }
        let length = self.unread.len().min(buffer.remaining());
        buffer.put_slice(&self.unread.split_to(length));
        Poll::Ready(Ok(()))
    }
}

impl<R: PortSource, W: PortDestination> AsyncWrite for PortStream<R, W> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_sent(context))?;
        if self.is_ending {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let WriteState::Idle(mut writer) = std::mem::replace(&mut self.write, WriteState::Closed) else {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        let piece = Bytes::copy_from_slice(&bytes[..bytes.len().min(PIECE_MAX)]);
        let length = piece.len();
        self.write = WriteState::Writing(Box::pin(async move {
            let sent = writer.send(piece).await;
            (writer, sent)
        }));
        // Sending begins now; the next write or flush waits for its end.
        match self.poll_sent(context) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(length)),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_sent(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_sent(context))?;
        if self.is_ending {
            return Poll::Ready(Ok(()));
        }
        self.is_ending = true;
        if let WriteState::Idle(mut writer) = std::mem::replace(&mut self.write, WriteState::Closed) {
            self.write = WriteState::Writing(Box::pin(async move {
                let ended = writer.end().await;
                (writer, ended)
            }));
        }
        self.poll_sent(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::sync::mpsc;

    struct Received(mpsc::Receiver<io::Result<Bytes>>);

    impl PortSource for Received {
        async fn next(&mut self) -> io::Result<Option<Bytes>> {
            self.0.recv().await.transpose()
        }
    }

    struct Sent(Option<mpsc::Sender<Bytes>>);

    impl PortDestination for Sent {
        async fn send(&mut self, bytes: Bytes) -> io::Result<()> {
            let Some(sender) = &self.0 else { return Err(io::ErrorKind::BrokenPipe.into()) };
            sender.send(bytes).await.map_err(|_| io::ErrorKind::ConnectionReset.into())
        }

        async fn end(&mut self) -> io::Result<()> {
            self.0 = None;
            Ok(())
        }
    }

    type TestStream = PortStream<Received, Sent>;

    fn stream() -> (TestStream, mpsc::Sender<io::Result<Bytes>>, mpsc::Receiver<Bytes>) {
        let ((from, received), (sent, to)) = (mpsc::channel(1), mpsc::channel(1));
        (PortStream::new(Received(received), Sent(Some(sent))), from, to)
    }

    #[tokio::test]
    async fn bytes_are_read_in_order_up_to_the_end() {
        let (mut stream, from, _to) = stream();
        tokio::spawn(async move {
            for piece in ["ab", "", "cde"] {
                from.send(Ok(Bytes::from_static(piece.as_bytes()))).await.unwrap();
            }
        });
        let mut one = [0; 1];
        stream.read_exact(&mut one).await.unwrap();
        let mut rest = String::new();
        stream.read_to_string(&mut rest).await.unwrap();
        assert_eq!((one, rest.as_str()), ([b'a'], "bcde"));
        assert_eq!(stream.read(&mut one).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn an_error_of_the_port_is_an_error_of_the_stream() {
        let (mut stream, from, to) = stream();
        from.send(Err(io::ErrorKind::ConnectionReset.into())).await.unwrap();
        let error = stream.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        drop(to);
        let failed = async {
            stream.write_all(b"x").await?;
            stream.flush().await
        };
        assert_eq!(failed.await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    }

    #[tokio::test]
    async fn writes_wait_for_the_port_and_are_sent_in_pieces() {
        let (mut stream, _from, mut to) = stream();
        let writer = tokio::spawn(async move {
            stream.write_all(&vec![7; 10 * PIECE_MAX + 1]).await.unwrap();
            stream.shutdown().await.unwrap();
            assert_eq!(stream.write(b"x").await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
            stream
        });
        let first = to.recv().await.unwrap();
        assert_eq!(first.len(), PIECE_MAX);
        assert!(!writer.is_finished(), "one piece is queued, and one is being sent");
        let mut total = first.len();
        while let Some(piece) = to.recv().await {
            assert!(piece.len() <= PIECE_MAX && piece.iter().all(|byte| *byte == 7));
            total += piece.len();
        }
        assert_eq!(total, 10 * PIECE_MAX + 1);
        let _open = writer.await.unwrap();
    }
}
