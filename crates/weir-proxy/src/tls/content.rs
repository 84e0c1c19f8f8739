//! Reads the files of a configuration's TLS settings unchanged, so that a group of directors can share them.

use std::fmt;
use std::io::{self, Read};
use std::path::Path;

use weir_sys::privileged;

use super::certificate::{self, CertificateError};

/// The content of one certificate's files, or of one file with certificates or revocation lists.
#[derive(Clone, PartialEq, Eq)]
pub struct TlsFile {
    /// Path of the file with the certificates or revocation lists.
    pub path: String,
    /// The key, if there is one, and the content of the file at `path`, both in PEM format. Bytes that are not UTF-8
    /// are replaced; they can occur only in comments.
    pub pem: String,
    /// The certificate's OCSP response in DER format, if there is one.
    pub ocsp: Option<Vec<u8>>,
}

/// The output omits the content, which may be a private key.
impl fmt::Debug for TlsFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TlsFile({})", self.path)
    }
}

/// Reads an entry of `certificates`: one certificate with its key and OCSP response, or all certificates in a
/// directory.
///
/// # Errors
/// Fails if a file cannot be read or has more than `bytes_max` bytes, or if the directory contains no certificates.
pub fn read_certificate_files(
    path: &str,
    bytes_max: u64,
) -> Result<Vec<TlsFile>, CertificateError> {
    let all_files = certificate::files(Path::new(path))?;
    let read_all = |files: &certificate::Files| {
        let mut pem = String::new();
        if files.key != files.chain {
            pem = read(&files.key, bytes_max).map(to_text)?;
            // The last line may have no line feed.
            pem.push('\n');
        }
        pem += &to_text(read(&files.chain, bytes_max)?);
        let ocsp = match files.ocsp.exists() {
            true => Some(read(&files.ocsp, bytes_max)?),
            false => None,
        };
        let path = files.chain.to_string_lossy().into_owned();
        Ok(TlsFile { path, pem, ocsp })
    };
    all_files.iter().map(read_all).collect()
}

/// Reads a single file with certificates or revocation lists, which may also contain a key.
///
/// # Errors
/// Fails if the file cannot be read or has more than `bytes_max` bytes.
pub fn read_tls_file(path: &str, bytes_max: u64) -> Result<TlsFile, CertificateError> {
    Ok(TlsFile {
        path: path.to_owned(),
        pem: to_text(read(Path::new(path), bytes_max)?),
        ocsp: None,
    })
}

fn to_text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

fn read(path: &Path, bytes_max: u64) -> Result<Vec<u8>, CertificateError> {
    let read = || {
        // Without O_NONBLOCK, opening a pipe would block until there is a writer.
        let file = privileged::open_nonblocking(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        let mut bytes = Vec::new();
        file.take(bytes_max.saturating_add(1))
            .read_to_end(&mut bytes)?;
        match bytes.len() as u64 > bytes_max {
            true => Err(io::Error::other(format!(
                "it has more than {bytes_max} bytes"
            ))),
            false => Ok(bytes),
        }
    };
    read().map_err(|source| CertificateError::Unreadable {
        path: path.to_owned(),
        source,
    })
}
