//! Defines secrets and their sources. Logs, plans and Debug output never show the value.

use std::fmt;

/// A secret's source.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SecretSource {
    /// In the configuration itself.
    Text,
    /// In the file with this absolute path.
    File(String),
    /// In an environment variable of the daemon.
    Env(String),
    /// In a credential from the service manager (systemd.exec(5), `LoadCredential=`).
    Credential(String),
}

/// Formats the source as `file /etc/weir/key`.
impl fmt::Display for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text => f.write_str("text"),
            Self::File(path) => write!(f, "file {path}"),
            Self::Env(name) => write!(f, "environment variable {name}"),
            Self::Credential(name) => write!(f, "credential {name}"),
        }
    }
}

/// A secret. Two secrets are equal if their values and their sources are equal.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Secret {
    source: SecretSource,
    value: Vec<u8>,
}

impl Secret {
    /// Maximum size of a secret, in bytes.
    pub const MAX_BYTES: usize = 64 << 10;

    /// Creates a secret from the content of its source. Removes a trailing line feed, with or without a carriage
    /// return, because editors and `echo` add one.
    pub fn new(source: SecretSource, value: Vec<u8>) -> Self {
        let mut value = value;
        if value.last() == Some(&b'\n') {
            value.pop();
            if value.last() == Some(&b'\r') {
                value.pop();
            }
        }
        Self { source, value }
    }

    /// Returns the secret's source.
    pub const fn source(&self) -> &SecretSource {
        &self.source
    }

    /// Returns the secret's value.
    pub fn expose(&self) -> &[u8] {
        &self.value
    }
}

/// Prints only the source.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({})", self.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_hides_the_value_and_a_trailing_line_feed_is_removed() {
        let secret = |text: &str| Secret::new(SecretSource::Env("KEY".into()), text.into());
        assert_eq!(
            format!("{:?}", secret("hidden")),
            "Secret(environment variable KEY)"
        );
        for text in ["hidden", "hidden\n", "hidden\r\n"] {
            assert_eq!(secret(text).expose(), b"hidden");
        }
        assert_eq!(secret("hidden\n\n").expose(), b"hidden\n");
        assert_ne!(secret("hidden"), secret("other"));
        assert_ne!(
            secret("hidden"),
            Secret::new(SecretSource::Text, "hidden".into())
        );
    }
}
