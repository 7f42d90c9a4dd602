//! The authorities that HTTP clients trust instead of the public ones, and remedies for certificates that they refuse.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

/// The maximum size of a file with authorities, in bytes: all public authorities have about 220 KB.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// Authorities of a service's certificate, instead of the public ones. Clones are handles to the same authorities.
///
/// # Examples
/// ```no_run
/// use slipgate_os::authorities::CertificateAuthorities;
///
/// let authorities = CertificateAuthorities::read("ca.pem")?;
/// let config = ureq::Agent::config_builder().tls_config(authorities.tls_config()).build();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct CertificateAuthorities(Arc<RwLock<Arc<Vec<Certificate<'static>>>>>);

impl CertificateAuthorities {
    /// Reads the certificates of authorities from a file in PEM.
    ///
    /// # Errors
    /// Returns the system's error if the file cannot be read, and errors of its content: it is longer than 1 MiB, it is
    /// malformed, or it has no certificate.
    pub fn read(path: impl AsRef<Path>) -> io::Result<Self> {
        Ok(Self(Arc::new(RwLock::new(read(path.as_ref())?))))
    }

    /// Replaces the authorities by those of a file, for all clones. Connections that are open stay.
    ///
    /// # Errors
    /// As [`read`](Self::read); the present authorities stay.
    pub fn reload(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let certificates = read(path.as_ref())?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = certificates;
        Ok(())
    }

    /// Returns the configuration of a client that trusts these authorities alone. Its roots are the same object until
    /// the authorities are replaced.
    #[must_use]
    pub fn tls_config(&self) -> TlsConfig {
        // Poisoning is harmless: the critical sections only swap and clone pointers.
        let certificates = Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner));
        TlsConfig::builder().root_certs(RootCerts::Specific(certificates)).build()
    }
}

impl fmt::Debug for CertificateAuthorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CertificateAuthorities(..)")
    }
}

fn read(path: &Path) -> io::Result<Arc<Vec<Certificate<'static>>>> {
    let mut pem = Vec::new();
    File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut pem)?;
    if pem.len() as u64 > MAX_FILE_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it is longer than {MAX_FILE_BYTES} bytes")));
    }
    let items = parse_pem(&pem).collect::<Result<Vec<_>, _>>().map_err(io::Error::other)?;
    let certificate = |item| if let PemItem::Certificate(certificate) = item { Some(certificate) } else { None };
    let certificates: Vec<_> = items.into_iter().filter_map(certificate).collect();
    if certificates.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it has no certificate in PEM"));
    }
    Ok(Arc::new(certificates))
}

const GIVE_AUTHORITY: &str = "Give --issuer-ca-file with the authority that signed the issuer's certificate, in PEM.";

/// Parts of the texts of errors by rustls and ureq, and what an operator does about them. The first one that occurs
/// counts.
const REMEDIES: &[(&str, &str)] = &[
    ("peer certificate: UnknownIssuer", GIVE_AUTHORITY),
    // An authority of the same name, such as one that was created a second time.
    ("peer certificate: BadSignature", GIVE_AUTHORITY),
    (
        "peer certificate: certificate not valid for name",
        "Give --issuer with a name of the issuer's certificate, or a certificate with this name to the issuer.",
    ),
    ("peer certificate: certificate expired", "Renew the issuer's certificate, or correct the clock of this machine."),
    (
        "peer certificate: certificate not valid yet",
        "Correct the clock of this machine, or the times of the issuer's certificate.",
    ),
    (
        "CaUsedAsEndEntity",
        "Give the issuer a certificate that is not an authority itself (CA:FALSE), signed by that authority.",
    ),
    ("invalid peer certificate", "Replace the issuer's certificate: this program does not accept it."),
    (
        "InvalidContentType",
        "The port of --issuer does not use TLS: give http://, or --tls-certificate-file to the issuer.",
    ),
    // The alert of a port with TLS is no response of HTTP.
    ("http parse fail", "The port of --issuer uses TLS: give https://."),
];

/// Returns what to do about a call to a token issuer that failed with this error, if the error is about the issuer's
/// certificate or its TLS.
#[must_use]
pub fn remedy_of_issuer_certificate(error: &str) -> Option<&'static str> {
    REMEDIES.iter().find(|(part, _)| error.contains(part)).map(|(_, remedy)| *remedy)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed test panics")]

    use super::*;

    /// A file that is removed at the end.
    struct TempFile(std::path::PathBuf);

    impl TempFile {
        fn new(name: &str, content: &[u8]) -> Self {
            let path = std::env::temp_dir().join(format!("slipgate-authorities-{}-{name}", std::process::id()));
            std::fs::write(&path, content).unwrap();
            Self(path)
        }
    }

    impl Drop for TempFile {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    fn pem(base64: &str) -> String {
        format!("-----BEGIN CERTIFICATE-----\n{base64}\n-----END CERTIFICATE-----\n")
    }

    fn count(authorities: &CertificateAuthorities) -> usize {
        let tls_config = authorities.tls_config();
        let RootCerts::Specific(certificates) = tls_config.root_certs() else { panic!("the public authorities") };
        certificates.len()
    }

    #[test]
    fn all_certificates_of_a_file_are_read() {
        let key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        let file = TempFile::new("two", format!("# ours\n{}{key}{}", pem("AAAA"), pem("AAAB")).as_bytes());
        let authorities = CertificateAuthorities::read(&file.0).unwrap();
        assert_eq!((count(&authorities), format!("{authorities:?}").as_str()), (2, "CertificateAuthorities(..)"));
    }

    #[test]
    fn wrong_file_is_refused_and_keeps_the_authorities() {
        let file = TempFile::new("reload", pem("AAAA").as_bytes());
        let (authorities, missing) = (CertificateAuthorities::read(&file.0).unwrap(), Path::new("/no/such/file"));
        let clone = authorities.clone();
        assert_eq!(authorities.reload(missing).unwrap_err().kind(), io::ErrorKind::NotFound);
        let long = vec![b'\n'; MAX_FILE_BYTES as usize + 1];
        for (content, part) in [
            (&b""[..], "no certificate"),
            (b"no PEM", "no certificate"),
            (b"-----BEGIN CERTIFICATE-----\nAAAA", "PEM"),
            (long.as_slice(), "longer than"),
        ] {
            std::fs::write(&file.0, content).unwrap();
            let error = authorities.reload(&file.0).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
            assert_eq!(count(&clone), 1);
        }
        std::fs::write(&file.0, [pem("AAAA"), pem("AAAB")].concat()).unwrap();
        authorities.reload(&file.0).unwrap();
        assert_eq!(count(&clone), 2);
    }

    #[test]
    fn other_errors_have_no_remedy_of_certificates() {
        for error in ["io: Connection refused", "timeout: global", "HTTP 404"] {
            assert_eq!(remedy_of_issuer_certificate(error), None);
        }
        let alert = remedy_of_issuer_certificate("protocol: http parse fail: invalid HTTP version");
        assert!(alert.is_some_and(|remedy| remedy.ends_with("give https://.")));
        let other = remedy_of_issuer_certificate("io: invalid peer certificate: BadEncoding");
        assert!(other.is_some_and(|remedy| remedy.contains("Replace")));
    }
}
