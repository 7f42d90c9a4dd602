//! The socket of a connection: a timeout for writing, a count of reads, and a close that loses no response.
//!
//! DECISION: crates such as `tokio-io-timeout` limit the time between two bytes. A client that reads one byte at a time
//! would hold a connection for hours, so here the time counts from the first byte that waits.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use std::io::{self, ErrorKind, IoSlice};
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

use super::connection_state::ConnectionState;
use super::{DRAIN_BYTES, HttpLimits};

/// A socket, its time limits, and the state that it reports to.
pub(super) struct ConnectionIo {
    stream: TcpStream,
    state: Arc<ConnectionState>,
    limits: HttpLimits,
    /// Runs while bytes wait for the client to read.
    write_deadline: Option<Pin<Box<Sleep>>>,
    /// Runs from the end of the last response to the client's close.
    linger_deadline: Option<Pin<Box<Sleep>>>,
    /// The number of bytes that were discarded after the last response.
    discarded: usize,
}

impl ConnectionIo {
    pub(super) fn new(stream: TcpStream, state: Arc<ConnectionState>, limits: HttpLimits) -> Self {
        Self { stream, state, limits, write_deadline: None, linger_deadline: None, discarded: 0 }
    }

    /// Passes the result of a write on, or an error if bytes have waited for too long.
    fn limit_write<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            return written;
        }
        self.state.set_write_stalled(true);
        let deadline = self.write_deadline.get_or_insert_with(|| Box::pin(sleep(self.limits.write_timeout)));
        ready!(deadline.as_mut().poll(cx));
        Poll::Ready(Err(ErrorKind::TimedOut.into()))
    }

    /// Discards what the client still sends, until it closes, for a limited time and a limited number of bytes.
    ///
    /// Without this, the system would answer a late byte with a reset, and a reset discards a response that the client
    /// has not read yet (RFC 9112, section 9.6).
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let deadline = self.linger_deadline.get_or_insert_with(|| Box::pin(sleep(self.limits.linger_timeout)));
        if self.state.is_stopping() || deadline.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let mut buf = [0; 4096];
        while self.discarded < DRAIN_BYTES {
            let mut read = ReadBuf::new(&mut buf);
            match ready!(Pin::new(&mut self.stream).poll_read(cx, &mut read)) {
                Ok(()) if !read.filled().is_empty() => self.discarded += read.filled().len(),
                _ => return Poll::Ready(()),
            }
        }
        // The client sends without end: let its data wait until the time is over.
        Poll::Pending
    }
}

impl AsyncRead for ConnectionIo {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.state.on_read();
        }
        if read.is_pending() {
            self.state.on_wait();
        }
        read
    }
}

impl AsyncWrite for ConnectionIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.limit_write(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.limit_write(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// Does nothing: hyper flushes when it has written all its bytes.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.write_deadline = None;
        self.state.set_write_stalled(false);
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.linger_deadline.is_none() {
            ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
        }
        self.poll_linger(cx).map(Ok)
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::time::Instant;

    use super::*;

    #[tokio::test]
    async fn response_that_is_not_read_ends_the_connection() {
        let limits = HttpLimits { write_timeout: Duration::from_millis(300), ..HttpLimits::default() };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let state = Arc::new(ConnectionState::new(Instant::now(), Arc::default()));
        let mut io = ConnectionIo::new(listener.accept().await.unwrap().0, Arc::clone(&state), limits);
        io.write_all(b"response").await.unwrap();
        io.flush().await.unwrap();
        let mut response = [0; 8];
        client.read_exact(&mut response).await.unwrap();

        // The client reads now and then, but not all of it in time.
        let reader = tokio::spawn(async move {
            loop {
                let _ = client.read(&mut [0; 4096]).await;
                sleep(Duration::from_millis(20)).await;
            }
        });
        let start = Instant::now();
        let endless = vec![0; 1 << 20];
        let error = loop {
            if let Err(error) = io.write_all(&endless).await {
                break error;
            }
        };
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
        reader.abort();
    }
}
