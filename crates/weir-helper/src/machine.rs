//! Reads environment variables and secrets for privileged processes that parse a configuration.

use std::path::{Path, PathBuf};

use weir_config::{Machine, SecretValue, Severity};
use weir_model::{Desired, Family, Secret, SecretSource};
use weir_sys::untrusted_file::{self, Owner};

/// Resolves environment variables in addresses, and reads no secrets. The keeper passes its environment to the
/// processes that it starts, so root's processes have the same environment as the daemon; the helper service has its
/// own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Environment;

impl Machine for Environment {
    fn local_ports(&self) -> Option<(u16, u16)> {
        None
    }

    fn forwards(&self, _: Family) -> Option<bool> {
        None
    }

    fn variable(&self, name: &str) -> Option<Result<SecretValue, String>> {
        Some(variable(name).map(value))
    }
}

/// Parses a configuration. The text is JSON if it starts with `{`, otherwise TOML.
///
/// # Errors
/// Returns a message with the first error.
pub fn parse(text: &str, machine: &dyn Machine) -> Result<Desired, String> {
    let parsed = if text.trim_start().starts_with('{') {
        weir_config::parse_json(text, machine)
    } else {
        weir_config::parse(text, machine)
    };
    parsed.map(|parsed| parsed.desired).map_err(|found| {
        let mut errors = found.iter().filter(|it| it.severity() == Severity::Error);
        let first = errors.next().map_or("", |it| it.message.as_str());
        format!("invalid configuration: {first}")
    })
}

fn variable(name: &str) -> Result<Vec<u8>, String> {
    let value = std::env::var(name).map_err(|error| error.to_string())?;
    Ok(value.into_bytes())
}

const fn value(bytes: Vec<u8>) -> SecretValue {
    SecretValue {
        bytes,
        exposed: None,
    }
}

/// Reads the secrets of a configuration with this process's privileges. Must be used only for configurations written by
/// root.
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
            SecretSource::Env(name) => variable(name),
            SecretSource::Credential(name) => match std::env::var_os("CREDENTIALS_DIRECTORY") {
                Some(directory) => file(&PathBuf::from(directory).join(name)),
                None => Err("the service manager passed no credentials".to_owned()),
            },
        };
        Some(bytes.map(value))
    }
}
