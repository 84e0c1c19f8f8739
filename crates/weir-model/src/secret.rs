//! A secret and where it comes from. What it is never shows: neither in logs, nor in plans, nor in Debug output.

use std::fmt;

/// Where a secret is kept.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SecretSource {
    /// In the configuration itself.
    Text,
    /// In a file, by its absolute path.
    File(String),
    /// In a variable of the daemon's environment.
    Env(String),
    /// In a credential of the service manager (systemd.exec(5), `LoadCredential=`).
    Credential(String),
}

/// `file /etc/weir/key`.
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

/// See the module. Two secrets are the same when both their values and their sources are.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Secret {
    source: SecretSource,
    value: Vec<u8>,
}

impl Secret {
    /// The most that a secret may hold, in bytes.
    pub const MAX_BYTES: usize = 64 << 10;

    /// With the value that its source holds. A line feed at the end, with or without a carriage return, is not part of it:
    /// editors and `echo` add one.
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

    /// Where it is kept.
    pub const fn source(&self) -> &SecretSource {
        &self.source
    }

    /// The secret itself.
    pub fn expose(&self) -> &[u8] {
        &self.value
    }
}

/// Shows the source alone.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({})", self.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_never_shown_and_ends_before_its_line_feed() {
        let of = |text: &str| Secret::new(SecretSource::Env("KEY".into()), text.into());
        assert_eq!(
            format!("{:?}", of("hidden")),
            "Secret(environment variable KEY)"
        );
        for text in ["hidden", "hidden\n", "hidden\r\n"] {
            assert_eq!(of(text).expose(), b"hidden");
        }
        assert_eq!(of("hidden\n\n").expose(), b"hidden\n");
        assert_ne!(of("hidden"), of("other"));
        assert_ne!(
            of("hidden"),
            Secret::new(SecretSource::Text, "hidden".into())
        );
    }
}
