//! Certificate authorities for connections to a hub.

use std::io::Read;
use std::path::Path;

use ureq::tls::{Certificate, PemItem, RootCerts, parse_pem};

use super::options::Certificates;
use crate::error::{Result, WeightsError};

/// Maximum size of a certificates file in bytes; the certificates of a whole system have some hundred kilobytes.
const FILE_LIMIT: u64 = 16 << 20;

/// Returns the authorities as `ureq`'s root certificates.
///
/// # Errors
/// [`WeightsError::BadHubOption`] if the file cannot be read or contains no certificates.
pub(super) fn roots(certificates: &Certificates) -> Result<RootCerts> {
    match certificates {
        Certificates::Public => Ok(RootCerts::WebPki),
        Certificates::System => Ok(RootCerts::PlatformVerifier),
        Certificates::File(path) => read(path).map(RootCerts::from).map_err(|reason| {
            let path = path.display();
            WeightsError::BadHubOption(format!(
                "the certificate authorities in {path} (SSL_CERT_FILE) cannot be used: {reason}"
            ))
        }),
    }
}

fn read(path: &Path) -> std::result::Result<Vec<Certificate<'static>>, String> {
    let mut text = Vec::new();
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    file.take(FILE_LIMIT + 1).read_to_end(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > FILE_LIMIT {
        return Err(format!("it is larger than {FILE_LIMIT} bytes"));
    }
    let mut certificates = Vec::new();
    for item in parse_pem(&text) {
        match item {
            Ok(PemItem::Certificate(certificate)) => certificates.push(certificate),
            Ok(_) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    if certificates.is_empty() {
        return Err("it has no certificate in PEM format".into());
    }
    Ok(certificates)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_files_without_certificates() {
        let directory = tempfile::tempdir().expect("a directory");
        let empty = directory.path().join("empty.pem");
        std::fs::write(&empty, "no certificate").expect("written");
        let broken = directory.path().join("broken.pem");
        std::fs::write(&broken, "-----BEGIN CERTIFICATE-----\n*\n-----END CERTIFICATE-----\n").expect("written");
        for path in [empty, broken, directory.path().join("absent.pem"), directory.path().into()] {
            let error = roots(&Certificates::File(path.clone())).expect_err("no certificates").to_string();
            assert!(error.contains("SSL_CERT_FILE") && error.contains(&path.display().to_string()), "{error}");
        }
    }
}
