//! TLS for the benchmark: a certificate that both servers use, the listener of the bare one, and the backend's end.

use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, StreamOwned};
use tokio_rustls::server::TlsStream;

use crate::program::TestFolder;

/// The files with a certificate for `localhost` and its key.
pub(crate) struct TlsFiles(PathBuf);

impl TlsFiles {
    /// Writes a new certificate and its key.
    pub(crate) fn create(folder: &TestFolder) -> Self {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        folder.write("certificate.pem", &made.cert.pem(), 0o644);
        folder.write("key.pem", &made.signing_key.serialize_pem(), 0o600);
        Self(folder.path.clone())
    }

    pub(crate) fn in_folder(folder: &Path) -> Self {
        Self(folder.to_owned())
    }

    pub(crate) fn folder(&self) -> &OsStr {
        self.0.as_os_str()
    }

    /// Returns the flags of the issuer.
    pub(crate) fn flags(&self) -> [String; 4] {
        let path = |name: &str| self.0.join(name).to_str().unwrap().to_owned();
        ["--tls-certificate-file".to_owned(), path("certificate.pem"), "--tls-key-file".to_owned(), path("key.pem")]
    }

    fn certificate(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(&fs::read(self.0.join("certificate.pem")).unwrap()).unwrap()
    }

    /// Performs the handshake of a backend.
    pub(crate) fn connect<S: Read + Write>(&self, mut stream: S) -> StreamOwned<ClientConnection, S> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate()).unwrap();
        let config = ClientConfig::builder_with_provider(default_provider().into());
        let config = config.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
        let config = Arc::new(config.with_no_client_auth());
        let mut connection = ClientConnection::new(config, "localhost".try_into().unwrap()).unwrap();
        while connection.is_handshaking() {
            connection.complete_io(&mut stream).unwrap();
        }
        StreamOwned::new(connection, stream)
    }
}

/// The listener of the bare handler.
pub(crate) struct TlsListener {
    listener: tokio::net::TcpListener,
    acceptor: TlsAcceptor,
}

impl TlsListener {
    pub(crate) fn new(listener: tokio::net::TcpListener, files: &TlsFiles) -> Self {
        let key = PrivateKeyDer::from_pem_slice(&fs::read(files.0.join("key.pem")).unwrap()).unwrap();
        let config = ServerConfig::builder_with_provider(default_provider().into());
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let config = Arc::new(config.with_single_cert(vec![files.certificate()], key).unwrap());
        Self { listener, acceptor: config.into() }
    }
}

impl axum::serve::Listener for TlsListener {
    type Io = TlsStream<tokio::net::TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let (stream, address) = self.listener.accept().await.unwrap();
        (self.acceptor.accept(stream).await.unwrap(), address)
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}
