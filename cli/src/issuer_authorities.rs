//! The authorities of a token issuer's certificate, for the programs that call one.

use std::path::{Path, PathBuf};

use clap::Args;
use slipgate_client::ConnectToken;
use slipgate_client::fetch::{CertificateAuthorities, FetchError, FetchRequest, fetch, fetch_with_authorities};
use slipgate_os::authorities::remedy_of_issuer_certificate;

use crate::Failure;

/// The flag of the tools that call one issuer.
#[derive(Args, Clone, Debug, Default)]
pub struct IssuerCaFile {
    /// File with authorities of the issuer's certificate in PEM, instead of the public ones [default: none]
    #[arg(long, value_name = "FILE", requires = "issuer")]
    issuer_ca_file: Option<PathBuf>,
}

impl IssuerCaFile {
    /// Reads the authorities, if a file is given.
    ///
    /// # Errors
    /// A usage failure if the file is wrong, or this URL of the issuer is not `https`.
    pub fn read(&self, issuer: &str) -> Result<Option<CertificateAuthorities>, Failure> {
        self.issuer_ca_file.as_deref().map(|path| read(path, &[issuer])).transpose()
    }
}

/// Reads the authorities of issuers at these URLs.
///
/// # Errors
/// A usage failure if the file is wrong, or no URL is `https`.
pub fn read(path: &Path, issuers: &[impl AsRef<str>]) -> Result<CertificateAuthorities, Failure> {
    let is_https = |url: &str| url.split("://").next().is_some_and(|scheme| scheme.eq_ignore_ascii_case("https"));
    if !issuers.iter().any(|url| is_https(url.as_ref())) {
        return Err(Failure::usage("--issuer-ca-file needs an --issuer that starts with https://"));
    }
    let refused = |error| Failure::usage(format!("--issuer-ca-file {}: {error}", path.display()));
    CertificateAuthorities::read(path).map_err(refused)
}

/// Requests a token as [`fetch`] does, from an issuer with a certificate of these authorities, or of the public ones.
///
/// # Errors
/// As [`fetch`].
pub fn fetch_token(
    url: &str,
    bearer_key: &str,
    request: &FetchRequest,
    authorities: Option<&CertificateAuthorities>,
) -> Result<ConnectToken, FetchError> {
    match authorities {
        Some(authorities) => fetch_with_authorities(url, bearer_key, request, authorities),
        None => fetch(url, bearer_key, request),
    }
}

/// Returns the text of a failed request for a token, with a remedy if it is about the issuer's certificate.
#[must_use]
pub fn explain(error: &FetchError) -> String {
    let text = error.to_string();
    match remedy_of_issuer_certificate(&text) {
        Some(remedy) if matches!(error, FetchError::Transport { .. }) => format!("{text}. {remedy}"),
        _ => text,
    }
}
