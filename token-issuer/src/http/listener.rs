//! Where the service accepts connections: TCP, TCP with TLS, or a Unix socket.

use std::io;
#[cfg(feature = "tls")]
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};
#[cfg(unix)]
use tokio::net::{UnixListener, UnixStream};
#[cfg(feature = "tls")]
use tokio_rustls::rustls::ServerConfig;

use super::peer::HttpPeer;
#[cfg(feature = "tls")]
use super::tls::TlsIdentity;

/// A listener of the service. A tokio listener of TCP or of a Unix socket becomes one by `into`.
#[derive(Debug)]
pub struct IssuerListener(ListenerKind);

#[derive(Debug)]
enum ListenerKind {
    Tcp(TcpListener),
    #[cfg(feature = "tls")]
    Tls(TcpListener, Arc<TlsIdentity>),
    #[cfg(unix)]
    Unix(UnixListener),
}

/// An accepted connection, before any byte was read.
pub(super) enum AcceptedStream {
    Tcp(TcpStream),
    #[cfg(feature = "tls")]
    Tls(TcpStream, Arc<ServerConfig>),
    #[cfg(unix)]
    Unix(UnixStream),
}

impl IssuerListener {
    /// Returns a listener that encrypts its connections by TLS.
    #[cfg(feature = "tls")]
    #[must_use]
    pub const fn tls(listener: TcpListener, identity: Arc<TlsIdentity>) -> Self {
        Self(ListenerKind::Tls(listener, identity))
    }

    /// Waits for a connection.
    pub(super) async fn accept(&self) -> io::Result<(AcceptedStream, HttpPeer)> {
        match &self.0 {
            ListenerKind::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                Ok((AcceptedStream::Tcp(stream), HttpPeer::Address(address)))
            }
            #[cfg(feature = "tls")]
            ListenerKind::Tls(listener, identity) => {
                let (stream, address) = listener.accept().await?;
                Ok((AcceptedStream::Tls(stream, identity.config()), HttpPeer::Address(address)))
            }
            #[cfg(unix)]
            ListenerKind::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let credentials = stream.peer_cred()?;
                let peer = HttpPeer::Process { user: credentials.uid(), process: credentials.pid() };
                Ok((AcceptedStream::Unix(stream), peer))
            }
        }
    }
}

impl From<TcpListener> for IssuerListener {
    fn from(listener: TcpListener) -> Self {
        Self(ListenerKind::Tcp(listener))
    }
}

#[cfg(unix)]
impl From<UnixListener> for IssuerListener {
    fn from(listener: UnixListener) -> Self {
        Self(ListenerKind::Unix(listener))
    }
}
