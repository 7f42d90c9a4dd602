//! Opens the issuer's socket: TCP, or a Unix socket with its file.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use slipgate_cli::Failure;
use slipgate_os::listen::ListenError;
use slipgate_token_issuer::http::{IssuerListener, TlsIdentity};
use tokio::net::{TcpListener, TcpSocket};

use crate::settings::RestartSettings;
use crate::values::BindAddress;

/// The connections that wait in the system to be accepted. Where they do not fit, clients try again after a second.
const BACKLOG: u32 = 4096;

/// The open socket, and its address for the log.
pub(crate) struct OpenSocket {
    pub(crate) listener: IssuerListener,
    pub(crate) address: BindAddress,
    /// Removes the file of a Unix socket when it is dropped.
    #[cfg(unix)]
    pub(crate) _file: Option<unix::SocketFile>,
}

/// Listens on the configured address, with TLS if there are certificates.
pub(crate) fn open(settings: &RestartSettings, tls: Option<Arc<TlsIdentity>>) -> Result<OpenSocket, Failure> {
    match &settings.bind {
        BindAddress::Tcp(address) => {
            let refused = |error| Failure::run_time(ListenError::new(*address, error).to_string());
            let listener = listen(*address).map_err(refused)?;
            let address = BindAddress::Tcp(listener.local_addr().map_err(refused)?);
            let listener = match tls {
                Some(identity) => IssuerListener::tls(listener, identity),
                None => listener.into(),
            };
            Ok(OpenSocket {
                listener,
                address,
                #[cfg(unix)]
                _file: None,
            })
        }
        #[cfg(unix)]
        BindAddress::Unix(path) => {
            let refused = |error| Failure::run_time(format!("cannot listen on {}: {error}", settings.bind));
            let (listener, file) = unix::listen(path, settings.socket_mode, BACKLOG).map_err(refused)?;
            Ok(OpenSocket { listener: listener.into(), address: settings.bind.clone(), _file: Some(file) })
        }
        #[cfg(not(unix))]
        BindAddress::Unix(_) => Err(Failure::usage("this system has no Unix sockets")),
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // On Windows the option would let another program take the address.
    #[cfg(not(windows))]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

#[cfg(unix)]
mod unix {
    //! A Unix socket: its mode, a file that a crash has left, and the removal at the end.

    use std::fs::{self, Metadata};
    use std::io::{self, ErrorKind};
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    use std::os::unix::net::UnixStream;
    use std::path::{Path, PathBuf};

    use rustix::fs::{Mode, RawMode};
    use rustix::process::umask;
    use tokio::net::{UnixListener, UnixSocket};

    use crate::values::SocketMode;

    /// The file of a listening socket, which is removed when this is dropped, unless another program has replaced it.
    pub(crate) struct SocketFile {
        path: PathBuf,
        number: (u64, u64),
    }

    impl Drop for SocketFile {
        fn drop(&mut self) {
            if fs::symlink_metadata(&self.path).is_ok_and(|found| number(&found) == self.number) {
                let _ = fs::remove_file(&self.path);
            }
        }
    }

    fn number(metadata: &Metadata) -> (u64, u64) {
        (metadata.dev(), metadata.ino())
    }

    /// Listens on a path. Only the users that `mode` allows can connect, from the beginning.
    pub(super) fn listen(path: &Path, mode: SocketMode, backlog: u32) -> io::Result<(UnixListener, SocketFile)> {
        remove_stale(path)?;
        let socket = UnixSocket::new_stream()?;
        // The mode of a socket that is changed after `bind` would be open for a moment. The mask concerns all threads:
        // no other one creates files during the start.
        // A mode has 16 bits on macOS.
        let before = umask(Mode::from_raw_mode((0o777 & !mode.0) as RawMode));
        let bound = socket.bind(path);
        umask(before);
        bound?;
        let listener = socket.listen(backlog)?;
        let file = SocketFile { path: path.into(), number: number(&fs::symlink_metadata(path)?) };
        Ok((listener, file))
    }

    /// Removes the socket of a program that has ended without doing so.
    fn remove_stale(path: &Path) -> io::Result<()> {
        let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
        if !found.file_type().is_socket() {
            return Err(io::Error::new(ErrorKind::AlreadyExists, "a file that is no socket has this name"));
        }
        match UnixStream::connect(path) {
            Ok(_) => Err(io::Error::new(ErrorKind::AddrInUse, "another program listens there already")),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path),
            Err(error) => Err(error),
        }
    }
}
