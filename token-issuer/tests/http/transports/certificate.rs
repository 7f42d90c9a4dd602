//! Certificates of these tests, in files as an operator has them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};

/// A certificate for `localhost` that is its own root, and its private key.
pub(super) struct TestCertificate {
    pub(super) pem: String,
    pub(super) key_pem: String,
    der: CertificateDer<'static>,
}

impl TestCertificate {
    pub(super) fn new() -> Self {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        Self { pem: made.cert.pem(), key_pem: made.signing_key.serialize_pem(), der: made.cert.der().clone() }
    }

    /// Returns the configuration of a client that trusts this certificate alone.
    pub(super) fn client(&self, versions: &[&'static SupportedProtocolVersion]) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.der.clone()).unwrap();
        let builder = ClientConfig::builder_with_provider(default_provider().into());
        let builder = builder.with_protocol_versions(versions).unwrap();
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.into()
    }
}

/// A folder with the two files, removed at the end.
pub(super) struct CertificateFolder(PathBuf);

impl CertificateFolder {
    pub(super) fn new(certificate: &TestCertificate) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = Self(std::env::temp_dir().join(format!("slipgate-tls-{}-{number}", std::process::id())));
        fs::create_dir_all(&folder.0).unwrap();
        folder.write(&certificate.pem, &certificate.key_pem, 0o600);
        folder
    }

    pub(super) fn write(&self, certificates: &str, key: &str, mode: u32) {
        fs::write(self.certificates(), certificates).unwrap();
        fs::write(self.key(), key).unwrap();
        fs::set_permissions(self.key(), fs::Permissions::from_mode(mode)).unwrap();
    }

    pub(super) fn certificates(&self) -> PathBuf {
        self.0.join("certificates.pem")
    }

    pub(super) fn key(&self) -> PathBuf {
        self.0.join("key.pem")
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.0.join("socket")
    }
}

impl Drop for CertificateFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
