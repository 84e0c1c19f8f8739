//! What an importer must ask of the machine.

use std::net::IpAddr;

/// Files and names, looked up by whoever can.
pub trait World {
    /// The text of a file.
    ///
    /// # Errors
    /// Why there is none, in words.
    fn read(&self, path: &str) -> Result<String, String>;
    /// The files that a shell pattern names, in order; none if nothing fits.
    fn glob(&self, pattern: &str) -> Vec<String>;
    /// An address of a host name, of that family.
    fn address(&self, host: &str, ipv6: bool) -> Option<IpAddr>;
    /// The port of a service's name, `protocol` being `tcp` or `udp`.
    fn port(&self, service: &str, protocol: &str) -> Option<u16>;
    /// The machine's own name.
    fn host_name(&self) -> String;
    /// A variable of the environment.
    fn variable(&self, name: &str) -> Option<String>;
}

/// A world with nothing in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Alone;

impl World for Alone {
    fn read(&self, _: &str) -> Result<String, String> {
        Err("there are no files here".to_owned())
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
