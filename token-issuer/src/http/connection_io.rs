//! The socket of a connection: a timeout for writing, a count of reads, and a close that loses no response.
//!
//! DECISION: crates such as `tokio-io-timeout` limit the time between two bytes. A client that reads one byte at a time
//! would hold a connection for hours, so here the time counts from the first byte that waits.

use core::future::{Future, poll_fn};
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use std::io::{self, ErrorKind, IoSlice};
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::connection_state::ConnectionState;
use super::{DRAIN_BYTES, HttpLimits};

/// The bytes of a request in which the key is looked for. Most backends send a head of less than 500 bytes.
const PEEK_BYTES: usize = 1024;

/// A socket, its time limits, and the state that it reports to. With TLS it carries the encrypted bytes.
pub(super) struct ConnectionIo<S> {
    stream: S,
    /// The first bytes, until they are read.
    peeked: Vec<u8>,
    state: Arc<ConnectionState>,
    limits: HttpLimits,
    /// Runs while bytes wait for the client to read.
    write_deadline: Option<Pin<Box<Sleep>>>,
    /// Runs from the end of the last response to the client's close.
    linger_deadline: Option<Pin<Box<Sleep>>>,
    /// The number of bytes that were discarded after the last response.
    discarded: usize,
}

impl<S> ConnectionIo<S> {
    pub(super) const fn new(stream: S, state: Arc<ConnectionState>, limits: HttpLimits) -> Self {
        let peeked = Vec::new();
        Self { stream, peeked, state, limits, write_deadline: None, linger_deadline: None, discarded: 0 }
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
}

impl<S: AsyncRead + Unpin> ConnectionIo<S> {
    /// Waits for the first bytes, and returns them. The next reads return them again. There are none at the end.
    pub(super) async fn peek(&mut self) -> io::Result<&[u8]> {
        self.peeked = poll_fn(|cx| {
            let mut bytes = [0; PEEK_BYTES];
            let mut buf = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut *self).poll_read(cx, &mut buf))?;
            Poll::Ready(Ok::<_, io::Error>(buf.filled().to_vec()))
        })
        .await?;
        Ok(&self.peeked)
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

impl<S: AsyncRead + Unpin> AsyncRead for ConnectionIo<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.peeked.is_empty() {
            let count = self.peeked.len().min(buf.remaining());
            buf.put_slice(self.peeked.drain(..count).as_slice());
            return Poll::Ready(Ok(()));
        }
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

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ConnectionIo<S> {
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
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::Instant;

    use super::*;

    /// The limits of these tests.
    fn limits() -> HttpLimits {
        HttpLimits { write_timeout: Duration::from_millis(300), ..HttpLimits::default() }
    }

    /// Writes a response, then without end to a client that reads now and then, but not all of it in time.
    async fn write_until_timeout(mut io: impl AsyncWrite + Unpin, mut client: impl AsyncRead + Send + Unpin + 'static) {
        io.write_all(b"response").await.unwrap();
        io.flush().await.unwrap();
        let mut response = [0; 8];
        client.read_exact(&mut response).await.unwrap();
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
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
        reader.abort();
    }

    fn connection<S>(stream: S) -> ConnectionIo<S> {
        ConnectionIo::new(stream, Arc::new(ConnectionState::new(Instant::now(), Arc::default())), limits())
    }

    async fn tcp_pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (listener.accept().await.unwrap().0, client)
    }

    #[tokio::test]
    async fn response_that_is_not_read_ends_the_connection() {
        let (server, client) = tcp_pair().await;
        write_until_timeout(connection(server), client).await;
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn unread_response_ends_a_connection_of_a_unix_socket() {
        let (server, client) = tokio::net::UnixStream::pair().unwrap();
        write_until_timeout(connection(server), client).await;
    }

    #[cfg(feature = "tls")]
    #[tokio::test]
    async fn unread_response_ends_a_connection_with_tls() {
        use tokio_rustls::rustls::pki_types::PrivateKeyDer;
        use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
        use tokio_rustls::{TlsAcceptor, TlsConnector};

        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (certificate, key) = (made.cert.der().clone(), PrivateKeyDer::from(made.signing_key));
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).unwrap();
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
        let server = server.unwrap().with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
        let client = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let client = client.unwrap().with_root_certificates(roots).with_no_client_auth();

        let (accepted, stream) = tcp_pair().await;
        let connector = TlsConnector::from(Arc::new(client));
        let (accepted, client) = tokio::join!(
            TlsAcceptor::from(Arc::new(server)).accept(connection(accepted)),
            connector.connect("localhost".try_into().unwrap(), stream),
        );
        write_until_timeout(accepted.unwrap(), client.unwrap()).await;
    }

    #[tokio::test]
    async fn bytes_that_were_peeked_are_read_again() {
        let (server, mut client) = tcp_pair().await;
        let mut io = connection(server);
        client.write_all(b"first").await.unwrap();
        assert_eq!(io.peek().await.unwrap(), b"first");
        client.write_all(b" second").await.unwrap();
        drop(client);
        let mut two = [0; 2];
        io.read_exact(&mut two).await.unwrap();
        let mut rest = String::new();
        io.read_to_string(&mut rest).await.unwrap();
        assert_eq!((&two, rest.as_str()), (b"fi", "rst second"));
    }
}
