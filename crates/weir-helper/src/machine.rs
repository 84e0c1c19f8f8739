//! Reads the secrets of a configuration from their sources.

use std::path::{Path, PathBuf};

use weir_config::{Machine, SecretValue};
use weir_model::{Family, Secret, SecretSource};
use weir_sys::untrusted_file::{self, Owner};

/// Reads the secrets of a configuration with this process's privileges. Only for configurations written by root.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThisMachine;

impl Machine for ThisMachine {
    fn local_ports(&self) -> Option<(u16, u16)> {
        None
    }

    fn forwards(&self, _: Family) -> Option<bool> {
        None
    }

    fn secret(&self, source: &SecretSource) -> Option<Result<SecretValue, String>> {
        let file = |path: &Path| {
            untrusted_file::read(path, Owner::Any, Secret::MAX_BYTES as u64)
                .map(String::into_bytes)
                .map_err(|error| error.to_string())
        };
        let bytes = match source {
            SecretSource::Text => return None,
            SecretSource::File(path) => file(Path::new(path)),
            SecretSource::Env(name) => std::env::var(name)
                .map(String::into_bytes)
                .map_err(|error| error.to_string()),
            SecretSource::Credential(name) => match std::env::var_os("CREDENTIALS_DIRECTORY") {
                Some(directory) => file(&PathBuf::from(directory).join(name)),
                None => Err("the service manager passed no credentials".to_owned()),
            },
        };
        Some(bytes.map(|bytes| SecretValue {
            bytes,
            exposed: None,
        }))
    }
}
