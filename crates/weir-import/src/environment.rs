//! Defines how importers access the host's files, names and variables; the caller implements the access.

use std::net::IpAddr;

/// Source of files, host and service names, and environment variables.
pub trait Environment {
    /// Returns the text of a file.
    ///
    /// # Errors
    /// Returns the reason if the file cannot be read.
    fn read(&self, path: &str) -> Result<String, String>;
    /// Returns whether the file exists, or `None` if this is unknown.
    fn has_file(&self, _path: &str) -> Option<bool> {
        None
    }
    /// Returns the files that match a shell pattern, sorted.
    fn glob(&self, pattern: &str) -> Vec<String>;
    /// Returns an address of the given family for a host name, or `None` if the name cannot be resolved.
    fn address(&self, host: &str, ipv6: bool) -> Option<IpAddr>;
    /// Returns the port of a service name; `protocol` is `tcp` or `udp`.
    fn port(&self, service: &str, protocol: &str) -> Option<u16>;
    /// Returns the host's name.
    fn host_name(&self) -> String;
    /// Returns the value of an environment variable, or `None` if the variable is not set or cannot be read.
    fn variable(&self, name: &str) -> Option<String>;
}

/// An environment without files, names or variables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EmptyEnvironment;

impl Environment for EmptyEnvironment {
    fn read(&self, _: &str) -> Result<String, String> {
        Err("there are no files".to_owned())
    }

    fn glob(&self, _: &str) -> Vec<String> {
        Vec::new()
    }

    fn address(&self, _: &str, _: bool) -> Option<IpAddr> {
        None
    }

    fn port(&self, _: &str, _: &str) -> Option<u16> {
        None
    }

    fn host_name(&self) -> String {
        String::new()
    }

    fn variable(&self, _: &str) -> Option<String> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_environment_has_nothing() {
        let environment = EmptyEnvironment;
        assert_eq!(environment.read("/a"), Err("there are no files".to_owned()));
        assert_eq!(environment.has_file("/a"), None);
        assert!(environment.glob("*").is_empty());
        assert_eq!(environment.address("localhost", false), None);
        assert_eq!(environment.port("http", "tcp"), None);
        assert_eq!(environment.host_name(), "");
        assert_eq!(environment.variable("PATH"), None);
    }
}
