//! Reads the files of a configuration's TLS settings, so that a group of directors can share them.

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
/// Fails if a file cannot be read, if the files are larger than `bytes_max` bytes in total, or if the directory
/// contains no certificates.
pub fn read_certificate_files(
    path: &str,
    bytes_max: u64,
) -> Result<Vec<TlsFile>, CertificateError> {
    let all_files = certificate::files(Path::new(path))?;
    let mut bytes = 0;
    let read_all = |files: &certificate::Files| {
        let mut pem = String::new();
        if files.key != files.chain {
            pem = read(&files.key, bytes_max).map(to_text)?;
            // The last line may have no line feed.
            pem.push('\n');
        }
        pem += &to_text(read(&files.chain, bytes_max)?);
        let ocsp = match privileged::exists(&files.ocsp) {
            true => Some(read(&files.ocsp, bytes_max)?),
            false => None,
        };
        bytes += (pem.len() + ocsp.as_ref().map_or(0, Vec::len)) as u64;
        if bytes > bytes_max {
            return Err(CertificateError::Unreadable {
                path: path.into(),
                source: too_large("its files together are", bytes_max),
            });
        }
        let path = files.chain.to_string_lossy().into_owned();
        Ok(TlsFile { path, pem, ocsp })
    };
    all_files.iter().map(read_all).collect()
}

/// Reads a single file with certificates or revocation lists, which may also contain a key.
///
/// # Errors
/// Fails if the file cannot be read or is larger than `bytes_max` bytes.
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

fn too_large(subject: &str, bytes_max: u64) -> io::Error {
    let message = format!("{subject} larger than {bytes_max} bytes");
    io::Error::new(io::ErrorKind::FileTooLarge, message)
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
            true => Err(too_large("it is", bytes_max)),
            false => Ok(bytes),
        }
    };
    read().map_err(|source| CertificateError::Unreadable {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn size_limit_applies_to_all_certificates_of_a_directory_together() {
        let name = format!("weir-tls-content-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir_all(&directory).unwrap();
        for name in ["a.pem", "b.pem"] {
            fs::write(directory.join(name), "four").unwrap();
        }
        let path = directory.to_str().unwrap();
        let read = |bytes_max| read_certificate_files(path, bytes_max);
        let (read_all, rejected, too_large) = (read(8), read(7), read(3));
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(read_all.unwrap().len(), 2);
        let message = rejected.unwrap_err().to_string();
        assert!(
            message.contains(path) && message.contains("larger than 7 bytes"),
            "{message}"
        );
        let message = too_large.unwrap_err().to_string();
        assert!(message.contains("a.pem"), "{message}");
    }
}
