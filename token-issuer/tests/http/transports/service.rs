//! The service behind TLS or a Unix socket, and a client of each.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;

use slipgate_token_issuer::http::{HttpLimits, IssuerListener, TlsIdentity, TokenService, serve};
use tokio::net::{TcpListener, UnixListener};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio_rustls::rustls::{ALL_VERSIONS, ClientConfig, ClientConnection, StreamOwned};

use super::certificate::{CertificateFolder, TestCertificate};
use crate::common::{MAX_WAIT, SERVERS, Service};

/// What carries the bytes of HTTP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TestTransport {
    Tls,
    Unix,
}

/// The client's end of a connection.
pub(super) trait TestStream: Read + Write {
    /// Ends the client's direction.
    fn finish(&mut self);
}

impl TestStream for UnixStream {
    fn finish(&mut self) {
        self.shutdown(Shutdown::Write).unwrap();
    }
}

impl TestStream for StreamOwned<ClientConnection, TcpStream> {
    fn finish(&mut self) {
        self.conn.send_close_notify();
        self.flush().unwrap();
    }
}

/// A running service, its key, and how to reach it.
pub(super) struct CarriedService {
    /// A service on TCP with the same keys, for its requests.
    pub(super) plain: Service,
    pub(super) address: Option<SocketAddr>,
    pub(super) folder: CertificateFolder,
    pub(super) certificate: TestCertificate,
    pub(super) identity: Arc<TlsIdentity>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl CarriedService {
    pub(super) fn start(transport: TestTransport, limits: HttpLimits) -> Self {
        let certificate = TestCertificate::new();
        let folder = CertificateFolder::new(&certificate);
        let identity = Arc::new(TlsIdentity::read(folder.certificates(), folder.key()).unwrap());
        let plain = Service::start_with(limits, &SERVERS);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (listener, address) = {
            let _inside = runtime.enter();
            listen(&runtime, transport, &folder, &identity)
        };
        let (stop, stopped) = oneshot::channel();
        let service: TokenService = plain.handle.clone();
        let thread = std::thread::spawn(move || {
            runtime.block_on(serve(listener, service, async {
                let _ = stopped.await;
            }));
        });
        Self { plain, address, folder, certificate, identity, stop: Some(stop), thread: Some(thread) }
    }

    /// Opens a connection. With TLS the handshake follows with the first byte.
    pub(super) fn connect(&self) -> Box<dyn TestStream> {
        match self.address {
            Some(_) => Box::new(self.connect_tls(self.certificate.client(ALL_VERSIONS))),
            None => {
                let stream = UnixStream::connect(self.folder.socket()).unwrap();
                stream.set_read_timeout(Some(MAX_WAIT)).unwrap();
                Box::new(stream)
            }
        }
    }

    pub(super) fn connect_tls(&self, config: Arc<ClientConfig>) -> StreamOwned<ClientConnection, TcpStream> {
        let connection = ClientConnection::new(config, "localhost".try_into().unwrap()).unwrap();
        StreamOwned::new(connection, self.connect_tcp())
    }

    /// Opens the TCP connection under TLS.
    pub(super) fn connect_tcp(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address.unwrap()).unwrap();
        stream.set_read_timeout(Some(MAX_WAIT)).unwrap();
        stream
    }
}

fn listen(
    runtime: &Runtime,
    transport: TestTransport,
    folder: &CertificateFolder,
    identity: &Arc<TlsIdentity>,
) -> (IssuerListener, Option<SocketAddr>) {
    match transport {
        TestTransport::Tls => {
            let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
            let address = listener.local_addr().unwrap();
            (IssuerListener::tls(listener, Arc::clone(identity)), Some(address))
        }
        TestTransport::Unix => (UnixListener::bind(folder.socket()).unwrap().into(), None),
    }
}

impl Drop for CarriedService {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Reads one response, with the length that its head gives.
pub(super) fn read_response(stream: &mut dyn TestStream) -> String {
    let (mut response, mut byte) = (Vec::new(), [0]);
    while !response.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        response.push(byte[0]);
    }
    let head = String::from_utf8(response).unwrap();
    let (_, length) = head.split_once("content-length: ").unwrap();
    let mut body = vec![0; length.split_once("\r\n").unwrap().0.parse().unwrap()];
    stream.read_exact(&mut body).unwrap();
    head + &String::from_utf8(body).unwrap()
}

/// Reads until the service closes the connection. A reset counts as a close, a timeout does not.
pub(super) fn read_to_close(stream: &mut dyn Read) -> String {
    let mut response = Vec::new();
    if let Err(error) = stream.read_to_end(&mut response) {
        let kind = error.kind();
        assert!(!matches!(kind, std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut), "still open: {error}");
    }
    String::from_utf8_lossy(&response).into_owned()
}
