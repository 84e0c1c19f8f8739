//! Reads secrets from their sources, and saves those of the active configuration for the next daemon after a crash.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use weir_config::{MAX_LIST_BYTES, SecretValue};
use weir_model::{Desired, Secret, SecretSource};
use weir_sys::{privileged, sealed_file};

/// The environment variable that contains a unit's credentials directory (see systemd.exec(5)).
const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";

/// Reads a secret; `None` = the secret is in the configuration itself.
pub(super) fn read(source: &SecretSource) -> Option<Result<SecretValue, String>> {
    let describe = |error: io::Error| error.to_string();
    let result = match source {
        SecretSource::Text => return None,
        SecretSource::File(path) => read_secret_file(Path::new(path)).map_err(describe),
        SecretSource::Env(name) => match std::env::var_os(name) {
            Some(value) => Ok(SecretValue {
                bytes: value.into_vec(),
                exposed: None,
            }),
            None => Err("it is not set".to_owned()),
        },
        SecretSource::Credential(name) => match std::env::var_os(CREDENTIALS) {
            Some(directory) => {
                read_secret_file(&Path::new(&directory).join(name)).map_err(describe)
            }
            None => Err(format!("{CREDENTIALS} is not set")),
        },
    };
    Some(result.and_then(|value| {
        let bytes = value.bytes.len();
        let max = Secret::MAX_BYTES;
        if Secret::new(SecretSource::Text, value.bytes.clone())
            .expose()
            .is_empty()
        {
            Err("it is empty".to_owned())
        } else if bytes > max {
            Err(format!("it has more than {max} bytes"))
        } else {
            Ok(value)
        }
    }))
}

/// Opens a regular file for reading.
fn open(path: &Path) -> io::Result<File> {
    // Without O_NONBLOCK, opening a pipe would block until there is a writer.
    let file = privileged::open_nonblocking(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    Ok(file)
}

/// Reads a file with one entry per line, or returns why it cannot be read.
pub(super) fn list_file(path: &Path) -> Result<String, String> {
    let read_text = || {
        let mut text = String::new();
        let max = MAX_LIST_BYTES as u64;
        open(path)?.take(max + 1).read_to_string(&mut text)?;
        match text.len() > MAX_LIST_BYTES {
            true => Err(io::Error::other(format!("it has more than {max} bytes"))),
            false => Ok(text),
        }
    };
    read_text().map_err(|error: io::Error| error.to_string())
}

fn read_secret_file(path: &Path) -> io::Result<SecretValue> {
    let file = open(path)?;
    let metadata = file.metadata()?;
    let mut bytes = Vec::new();
    file.take(Secret::MAX_BYTES as u64 + 1)
        .read_to_end(&mut bytes)?;
    let mode = metadata.permissions().mode() & 0o7777;
    Ok(SecretValue {
        bytes,
        exposed: (mode & 0o004 != 0).then_some(mode),
    })
}

/// Secrets by source, for the next daemon. Secrets in the configuration text are omitted.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RememberedSecrets(BTreeMap<String, Vec<u8>>);

/// Prints only the number of secrets.
impl std::fmt::Debug for RememberedSecrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RememberedSecrets({})", self.0.len())
    }
}

impl RememberedSecrets {
    /// Collects the secrets that a configuration references.
    pub fn of(desired: &Desired) -> Self {
        let external = desired
            .secrets()
            .filter(|secret| *secret.source() != SecretSource::Text);
        Self(
            external
                .map(|secret| (secret.source().to_string(), secret.expose().to_vec()))
                .collect(),
        )
    }

    /// Returns whether there are no secrets.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Writes the secrets to a sealed memfd and returns it.
    ///
    /// # Errors
    /// Fails if there is not enough memory, or if too many files are open.
    pub fn write(&self) -> io::Result<OwnedFd> {
        sealed_file("weir-secrets", &serde_json::to_vec(&self.0)?)
    }

    /// Reads the secrets that [`Self::write`] wrote. Returns no secrets if the file has an unknown format because
    /// another version wrote it.
    pub fn read(file: OwnedFd) -> Self {
        use std::io::Seek;
        let mut file = File::from(file);
        let mut text = Vec::new();
        let result = file.rewind().and_then(|()| file.read_to_end(&mut text));
        let secrets = result.and_then(|_| Ok(serde_json::from_slice(&text)?));
        secrets.map(Self).unwrap_or_default()
    }

    pub(super) fn get(&self, source: &SecretSource) -> Option<SecretValue> {
        let bytes = self.0.get(&source.to_string())?.clone();
        Some(SecretValue {
            bytes,
            exposed: None,
        })
    }
}
