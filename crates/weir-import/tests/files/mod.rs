//! Reads the corpus files, and provides an environment with the files of their directory.

#![allow(clippy::disallowed_methods, reason = "the test reads its own files")]

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use weir_import::{Environment, Imported};

/// An environment with the files of a directory and the service name `http`.
pub(crate) struct DirectoryEnvironment(pub(crate) PathBuf);

impl Environment for DirectoryEnvironment {
    fn read(&self, path: &str) -> Result<String, String> {
        fs::read_to_string(self.0.join(path)).map_err(|error| error.to_string())
    }

    fn glob(&self, pattern: &str) -> Vec<String> {
        let (directory, name) = pattern.rsplit_once('/').unwrap_or(("", pattern));
        let (prefix, suffix) = name.split_once('*').unwrap_or((name, ""));
        let is_match = |file_name: &str| match name.contains('*') {
            true => file_name.starts_with(prefix) && file_name.ends_with(suffix),
            false => file_name == name,
        };
        let Ok(entries) = fs::read_dir(self.0.join(directory)) else {
            return Vec::new();
        };
        let mut paths: Vec<String> = entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|file_name| is_match(file_name))
            .map(|file_name| match directory {
                "" => file_name,
                directory => format!("{directory}/{file_name}"),
            })
            .collect();
        paths.sort();
        paths
    }

    fn address(&self, _: &str, _: bool) -> Option<IpAddr> {
        None
    }

    fn port(&self, service: &str, _: &str) -> Option<u16> {
        (service == "http").then_some(80)
    }

    fn host_name(&self) -> String {
        "director".to_owned()
    }

    fn variable(&self, _: &str) -> Option<String> {
        None
    }
}

/// A file of the corpus.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) directory: PathBuf,
    pub(crate) text: String,
}

impl Case {
    pub(crate) fn environment(&self) -> DirectoryEnvironment {
        DirectoryEnvironment(self.directory.clone())
    }
}

/// Returns the files of one program, sorted by name.
pub(crate) fn corpus(program: &str) -> Vec<Case> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/corpus")
        .join(program);
    let mut cases: Vec<Case> = fs::read_dir(&directory)
        .expect("read the corpus directory")
        .flatten()
        .filter(|entry| entry.path().is_file())
        .map(|entry| Case {
            name: entry.file_name().into_string().expect("file name is UTF-8"),
            text: fs::read_to_string(entry.path()).expect("read a file of the corpus"),
            directory: directory.clone(),
        })
        .collect();
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    cases
}

#[allow(dead_code, reason = "not every test uses it")]
/// Asserts that the parser accepts the output.
pub(crate) fn assert_accepted(imported: &Imported, name: &str) {
    let parsed = weir_config::parse(&imported.toml, &weir_config::Host::default());
    if let Err(diagnostics) = parsed {
        panic!("{name}: {diagnostics:#?}\n{}", imported.toml);
    }
}

#[allow(dead_code, reason = "not every test uses it")]
/// Returns the line numbers of notes about the file itself, not about included files.
pub(crate) fn noted_lines(imported: &Imported) -> Vec<usize> {
    let number = |note: &String| {
        let rest = note.strip_prefix("line ")?;
        rest.split(':').next()?.parse().ok()
    };
    imported.notes.iter().filter_map(number).collect()
}
