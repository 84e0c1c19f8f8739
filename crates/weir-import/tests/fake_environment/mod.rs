//! Provides an environment with fixed files and variables.

use std::net::IpAddr;

use weir_import::Environment;

/// A fake environment; host and service names are unknown.
#[derive(Default)]
pub(crate) struct FakeEnvironment {
    /// Paths and contents.
    pub(crate) files: &'static [(&'static str, &'static str)],
    /// Names and values.
    pub(crate) variables: &'static [(&'static str, &'static str)],
}

fn find_value(entries: &[(&str, &str)], name: &str) -> Option<String> {
    let entry = entries.iter().find(|(key, _)| *key == name);
    entry.map(|(_, value)| (*value).to_owned())
}

impl Environment for FakeEnvironment {
    fn read(&self, path: &str) -> Result<String, String> {
        find_value(self.files, path).ok_or_else(|| "no such file".to_owned())
    }

    fn has_file(&self, path: &str) -> Option<bool> {
        Some(find_value(self.files, path).is_some())
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

    fn variable(&self, name: &str) -> Option<String> {
        find_value(self.variables, name)
    }
}
