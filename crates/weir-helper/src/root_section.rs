//! Lets an unprivileged daemon activate a section of root's configuration file in a root process, but not change it.
//!
//! The daemon requests the content to activate. The request is accepted if the content is the same as
//! - that of the current configuration file, if only root can write to it and to the files it includes,
//! - the active content, or the previous content, which a guarded reload may restore, or
//! - the last active content, as recorded in the runtime directory: a process that is restarted uses it even if the
//!   file has changed.
//!
//! The process then uses root's content. From the daemon's text, it uses only the part that the group has published, if
//! root's file permits everything in this part.

use std::fmt::Debug;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use weir_sys::{read_owned_file, replace_file};

use crate::Error;
use crate::daemon::read_trusted;
use crate::published::with_published_part;

/// A section of root's configuration file, with its recorded, active and previous content.
#[derive(Debug)]
pub struct RootSection<T> {
    /// Name in messages, such as `[announce]`.
    name: &'static str,
    configuration: PathBuf,
    record: PathBuf,
    /// Parses the section in the text of a configuration; the error is a message.
    parse: fn(&str) -> Result<T, String>,
    active: Option<T>,
    previous: Option<T>,
}

impl<T: Clone + Debug + PartialEq + Serialize + DeserializeOwned> RootSection<T> {
    /// Creates the section with this name; `record` is the file that records the active content.
    pub fn new(
        name: &'static str,
        configuration: &Path,
        record: PathBuf,
        parse: fn(&str) -> Result<T, String>,
    ) -> Self {
        Self {
            name,
            configuration: configuration.to_owned(),
            record,
            parse,
            active: None,
            previous: None,
        }
    }

    /// Activates and returns the version of root's content for which `is_wanted` returns true. Reads the configuration
    /// file, and adds the part that a group has published, from the daemon's text `daemon_text`.
    ///
    /// # Errors
    /// [`Error::NotPermitted`]: root has no such content.
    pub fn accept(
        &mut self,
        daemon_text: &str,
        is_wanted: impl Fn(&T) -> bool,
    ) -> Result<T, Error> {
        let file = read_trusted(&self.configuration);
        let file = file.and_then(|root_text| {
            let combined = with_published_part(&root_text, daemon_text);
            let parsed = combined.and_then(|text| (self.parse)(&text));
            parsed.map_err(|reason| Error::Configuration {
                path: self.configuration.clone(),
                reason,
            })
        });
        let candidates = [&self.active, &self.previous];
        let candidates = file
            .as_ref()
            .into_iter()
            .chain(candidates.into_iter().flatten());
        let accepted = candidates
            .cloned()
            .chain(self.recorded())
            .find(|content| is_wanted(content));
        let Some(accepted) = accepted else {
            let reason = match file {
                Ok(_) => "change the file, and reload it".to_owned(),
                Err(error) => format!("the file cannot be used: {error}"),
            };
            return Err(Error::NotPermitted {
                path: self.configuration.clone(),
                name: self.name,
                reason,
            });
        };
        self.set_active(accepted.clone());
        Ok(accepted)
    }

    /// Returns the accepted content.
    pub const fn active(&self) -> Option<&T> {
        self.active.as_ref()
    }

    fn set_active(&mut self, content: T) {
        if self.active.as_ref() == Some(&content) {
            return;
        }
        let text = serde_json::to_vec(&content).map_err(std::io::Error::from);
        if let Err(error) = text.and_then(|text| replace_file(&self.record, &text)) {
            let path = self.record.display();
            tracing::warn!(%error, %path, "failed to record the active configuration");
        }
        self.previous = self.active.replace(content);
    }

    fn recorded(&self) -> Option<T> {
        serde_json::from_slice(&read_owned_file(&self.record).ok()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn parse(text: &str) -> Result<Vec<String>, String> {
        let words = text.lines().map(|line| line.trim_start_matches("# "));
        Ok(words.map(str::to_owned).collect())
    }

    #[test]
    fn only_content_that_root_wrote_is_accepted() {
        if !weir_testing::require_root() {
            return;
        }
        let directory = std::env::temp_dir().join(format!("weir-section-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir(&directory).unwrap();
        let (file, record) = (directory.join("weir.toml"), directory.join("record"));
        let write = |text: &str| {
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        };
        let new_section = || RootSection::new("[x]", &file, record.clone(), parse);
        let accepts = |section: &mut RootSection<_>, text: &str| {
            let requested = parse(text);
            section.accept("", |content| requested.as_ref() == Ok(content))
        };
        write("# one");
        let mut section = new_section();
        let message = accepts(&mut section, "# two").unwrap_err().to_string();
        assert!(message.contains("does not permit"), "{message}");
        assert!(accepts(&mut section, "# one").is_ok());
        write("# two");
        assert!(accepts(&mut section, "# one").is_ok(), "active");
        assert!(accepts(&mut section, "# two").is_ok(), "in the file");
        write("# three");
        assert!(accepts(&mut section, "# one").is_ok(), "previous");
        assert!(accepts(&mut new_section(), "# one").is_ok(), "recorded");
        assert!(accepts(&mut new_section(), "# two").is_err());
        std::os::unix::fs::chown(&record, Some(1), None).unwrap();
        assert!(
            accepts(&mut new_section(), "# one").is_err(),
            "the record is owned by another account"
        );
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
        let message = accepts(&mut new_section(), "# three")
            .unwrap_err()
            .to_string();
        assert!(message.contains("must be owned by root"), "{message}");
        fs::remove_dir_all(&directory).unwrap();
    }
}
