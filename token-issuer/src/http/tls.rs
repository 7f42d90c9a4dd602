//! The certificate of the service and its key, which can be replaced while it runs.

use core::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use slipgate_os::key_file::{KeyFileError, read_secret_file};
use tokio_rustls::rustls;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::{Ticketer, default_provider};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The maximum size of a file with certificates, in bytes.
const MAX_CERTIFICATE_BYTES: u64 = 64 * 1024;

/// The certificates and the private key by which the service identifies itself, from two files in PEM.
pub struct TlsIdentity {
    certificates: PathBuf,
    key: PathBuf,
    config: RwLock<Arc<ServerConfig>>,
}

impl TlsIdentity {
    /// Reads the chain of certificates, the service's own first, and its private key (mode 0600).
    ///
    /// # Errors
    /// The errors of [`TlsError`].
    pub fn read(certificates: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Result<Self, TlsError> {
        let (certificates, key) = (certificates.into(), key.into());
        let config = RwLock::new(read(&certificates, &key)?);
        Ok(Self { certificates, key, config })
    }

    /// Reads both files again, for connections from now on. If they are wrong, the present certificates stay.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn reload(&self) -> Result<(), TlsError> {
        let config = read(&self.certificates, &self.key)?;
        // Poisoning is harmless: the critical sections only swap and clone a pointer.
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    /// Returns the present configuration. A connection keeps its own.
    pub(super) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for TlsIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsIdentity").field("certificates", &self.certificates).finish_non_exhaustive()
    }
}

fn read(certificates: &Path, key: &Path) -> Result<Arc<ServerConfig>, TlsError> {
    let unreadable = |error| TlsError::Unreadable(certificates.into(), error);
    let pem = read_certificates(certificates).map_err(unreadable)?;
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<_, _>>()
        .map_err(|_| TlsError::NoCertificate(certificates.into()))?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate(certificates.into()));
    }
    let pem = read_secret_file(key).map_err(TlsError::KeyFile)?;
    let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| TlsError::NoKey(key.into()))?;
    let mut config = ServerConfig::builder_with_provider(default_provider().into())
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(TlsError::Refused)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.ticketer = Ticketer::new().map_err(TlsError::Refused)?;
    Ok(Arc::new(config))
}

fn read_certificates(path: &Path) -> io::Result<Vec<u8>> {
    let mut pem = Vec::new();
    File::open(path)?.take(MAX_CERTIFICATE_BYTES + 1).read_to_end(&mut pem)?;
    if pem.len() as u64 > MAX_CERTIFICATE_BYTES {
        let message = format!("it is longer than {MAX_CERTIFICATE_BYTES} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(pem)
}

/// Why certificates and key are refused. It never shows a key.
#[derive(Debug)]
#[non_exhaustive]
pub enum TlsError {
    /// The file with the certificates cannot be read.
    Unreadable(PathBuf, io::Error),
    /// The file has no certificate in PEM.
    NoCertificate(PathBuf),
    /// The file with the private key cannot be read, or others can read it.
    KeyFile(KeyFileError),
    /// The file has no private key in PEM.
    NoKey(PathBuf),
    /// The key is not that of the certificate, or one of them is of a kind that TLS does not use.
    Refused(rustls::Error),
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(path, error) => write!(f, "the certificates {} cannot be read: {error}", path.display()),
            Self::NoCertificate(path) => write!(f, "{} has no certificate in PEM", path.display()),
            Self::KeyFile(error) => error.fmt(f),
            Self::NoKey(path) => write!(f, "{} has no private key in PEM", path.display()),
            Self::Refused(error) => write!(f, "TLS refuses the certificates with this key: {error}"),
        }
    }
}

impl core::error::Error for TlsError {}
