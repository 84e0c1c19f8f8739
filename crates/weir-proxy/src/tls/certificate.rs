//! Finds certificate files in a directory, reads them, and checks them before they are used.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, RootCertStore};
use weir_sys::privileged;

use super::error_text::{ErrorOrigin, describe_error};
use super::ocsp::{self, OcspFault};
use super::x509::{self, CertificateInfo};

/// Why a certificate file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// The file or directory cannot be read.
    #[error("{path}: {source}", path = path.display())]
    Unreadable {
        /// File path.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The directory contains no certificates.
    #[error("{path}: the directory contains no certificate", path = path.display())]
    Empty {
        /// Directory path.
        path: PathBuf,
    },
    /// The file contains no valid certificate.
    #[error("{path}: no certificate in PEM format", path = path.display())]
    NoCertificate {
        /// File path.
        path: PathBuf,
    },
    /// The file contains no revocation list.
    #[error("{path}: no certificate revocation list in PEM format", path = path.display())]
    NoRevocationList {
        /// File path.
        path: PathBuf,
    },
    /// The file contains no private key, or one of an unsupported type.
    #[error("{path}: no usable private key", path = path.display())]
    NoKey {
        /// File path.
        path: PathBuf,
    },
    /// The key does not match the certificate.
    #[error("{path}: the key does not match the certificate", path = path.display())]
    Mismatch {
        /// Key file path.
        path: PathBuf,
    },
    /// rustls rejected the content.
    #[error("{path}: {reason}", path = path.display(), reason = describe_error(source, ErrorOrigin::File))]
    Rejected {
        /// File path.
        path: PathBuf,
        /// The rustls error.
        source: rustls::Error,
    },
}

impl CertificateError {
    /// Returns advice for the operator.
    pub fn fix(&self) -> &'static str {
        match self {
            Self::Unreadable { source, .. } => match source.kind() {
                io::ErrorKind::NotFound => "create it, or specify a different file or directory",
                io::ErrorKind::FileTooLarge => "use smaller or fewer files",
                _ => {
                    "make it readable by the user that runs Weir, or specify a different file or directory"
                }
            },
            Self::Empty { .. } => {
                "add a certificate with its key, or specify a different directory"
            }
            Self::NoCertificate { .. } => {
                "replace it with the certificate chain in PEM format, or remove it from the configuration"
            }
            Self::NoRevocationList { .. } => {
                "replace it with the revocation lists of the CAs in PEM format, or remove it from the configuration"
            }
            Self::NoKey { .. } => "add the private key in PEM format, without a passphrase",
            Self::Mismatch { .. } => "replace it with the private key of the certificate",
            Self::Rejected { .. } => "replace it, or remove it from the configuration",
        }
    }
}

/// A certificate with its key and its parsed fields.
#[derive(Debug)]
pub(crate) struct Certificate {
    pub(crate) path: PathBuf,
    pub(crate) key: Arc<CertifiedKey>,
    pub(crate) info: CertificateInfo,
    /// Path of an OCSP response that is not stapled, and the reason.
    pub(crate) rejected_ocsp: Option<(PathBuf, OcspFault)>,
}

/// The files of one certificate.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Files {
    pub(super) chain: PathBuf,
    pub(super) key: PathBuf,
    pub(super) ocsp: PathBuf,
}

impl Files {
    fn in_one_file(path: &Path) -> Self {
        let mut ocsp = path.as_os_str().to_owned();
        ocsp.push(".ocsp");
        Self {
            chain: path.to_owned(),
            key: path.to_owned(),
            ocsp: ocsp.into(),
        }
    }
}

impl Files {
    /// Returns the files for a single configured file: `NAME.crt` with `NAME.key`, or `fullchain.pem` with
    /// `privkey.pem`, if the key file exists. Otherwise the chain and the key are in the same file.
    fn for_path(path: &Path) -> Self {
        let pair = |key: PathBuf, ocsp: PathBuf| {
            let chain = path.to_owned();
            privileged::exists(&key).then_some(Self { chain, key, ocsp })
        };
        let extension = path.extension().and_then(|extension| extension.to_str());
        let name = path.file_name().and_then(|name| name.to_str());
        let separate_files = match (extension, name) {
            (Some("crt"), _) => pair(path.with_extension("key"), path.with_extension("ocsp")),
            (_, Some("fullchain.pem")) => pair(
                path.with_file_name("privkey.pem"),
                path.with_file_name("ocsp.der"),
            ),
            _ => None,
        };
        separate_files.unwrap_or_else(|| Self::in_one_file(path))
    }
}

/// Returns the files for an entry of `certificates`: the files of one certificate, or of all certificates in a
/// directory, in name order.
pub(super) fn files(path: &Path) -> Result<Vec<Files>, CertificateError> {
    let unreadable = |source| CertificateError::Unreadable {
        path: path.to_owned(),
        source,
    };
    let Some(entries) = privileged::list(path).map_err(unreadable)? else {
        return Ok(vec![Files::for_path(path)]);
    };
    let mut all_files = Vec::new();
    for path in entries {
        let extension = path.extension().and_then(|extension| extension.to_str());
        if extension == Some("pem") {
            all_files.push(Files::in_one_file(&path));
        } else if extension == Some("crt") {
            all_files.push(Files {
                key: path.with_extension("key"),
                ocsp: path.with_extension("ocsp"),
                chain: path,
            });
        } else if privileged::exists(&path.join("fullchain.pem")) {
            all_files.push(Files {
                chain: path.join("fullchain.pem"),
                key: path.join("privkey.pem"),
                ocsp: path.join("ocsp.der"),
            });
        }
    }
    if all_files.is_empty() {
        return Err(CertificateError::Empty {
            path: path.to_owned(),
        });
    }
    all_files.sort();
    Ok(all_files)
}

fn read(path: &Path) -> Result<Vec<u8>, CertificateError> {
    privileged::read(path).map_err(|source| CertificateError::Unreadable {
        path: path.to_owned(),
        source,
    })
}

/// Loads all certificates in `paths`. For an unusable certificate, the inner result is an error.
///
/// # Errors
/// Fails if an entry of `paths` cannot be read, or is a directory without certificates.
pub(crate) fn load_all(
    paths: &[String],
    provider: &CryptoProvider,
) -> Result<Vec<Result<Certificate, CertificateError>>, CertificateError> {
    let mut all_files = Vec::new();
    for path in paths {
        for files in files(Path::new(path))? {
            // A file may also be in a configured directory.
            if !all_files.contains(&files) {
                all_files.push(files);
            }
        }
    }
    Ok(all_files
        .iter()
        .map(|files| load(files, provider))
        .collect())
}

/// Loads a certificate from a single file that contains the chain and the key.
pub(crate) fn load_one(
    path: &Path,
    provider: &CryptoProvider,
) -> Result<Certificate, CertificateError> {
    load(&Files::in_one_file(path), provider)
}

fn load(files: &Files, provider: &CryptoProvider) -> Result<Certificate, CertificateError> {
    let no_certificate = || CertificateError::NoCertificate {
        path: files.chain.clone(),
    };
    let no_key = || CertificateError::NoKey {
        path: files.key.clone(),
    };
    let chain = read_chain(&files.chain)?;
    let end_entity = chain.first().ok_or_else(no_certificate)?;
    let info = x509::read(end_entity).ok_or_else(no_certificate)?;
    let key = PrivateKeyDer::from_pem_slice(&read(&files.key)?).map_err(|_| no_key())?;
    let signing_key = provider
        .key_provider
        .load_private_key(key)
        .map_err(|_| no_key())?;
    let mut key = CertifiedKey::new(chain, signing_key);
    match key.keys_match() {
        Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => {}
        Err(rustls::Error::InconsistentKeys(_)) => {
            return Err(CertificateError::Mismatch {
                path: files.key.clone(),
            });
        }
        Err(source) => {
            return Err(CertificateError::Rejected {
                path: files.chain.clone(),
                source,
            });
        }
    }
    let mut rejected_ocsp = None;
    if privileged::exists(&files.ocsp) {
        let response = read(&files.ocsp)?;
        match ocsp::check(&response, &info.serial, now_s()) {
            Ok(()) => key.ocsp = Some(response),
            Err(fault) => rejected_ocsp = Some((files.ocsp.clone(), fault)),
        }
    }
    Ok(Certificate {
        path: files.chain.clone(),
        key: Arc::new(key),
        info,
        rejected_ocsp,
    })
}

/// Returns the number of seconds since 1970.
fn now_s() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    i64::try_from(since.unwrap_or_default().as_secs()).unwrap_or(i64::MAX)
}

/// Reads the certificates in a file.
pub(super) fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let text = read(path)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    chain.map_err(|_| CertificateError::NoCertificate {
        path: path.to_owned(),
    })
}

/// Reads the certificate revocation lists in a file. Fails if it contains none.
pub(crate) fn read_revocation_lists(
    path: &Path,
) -> Result<Vec<CertificateRevocationListDer<'static>>, CertificateError> {
    let text = read(path)?;
    let lists: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(&text).collect();
    let lists = lists.unwrap_or_default();
    if lists.is_empty() {
        return Err(CertificateError::NoRevocationList {
            path: path.to_owned(),
        });
    }
    Ok(lists)
}

/// Reads the CA certificates in a file. Fails if none is usable.
pub(crate) fn read_authorities(path: &Path) -> Result<RootCertStore, CertificateError> {
    let mut store = RootCertStore::empty();
    let (count, _) = store.add_parsable_certificates(read_chain(path)?);
    if count == 0 {
        return Err(CertificateError::NoCertificate {
            path: path.to_owned(),
        });
    }
    Ok(store)
}
