//! `RUNTIME_DIR/proxy.json`: operators' words about servers of proxy services, and the count of configurations where no
//! engine counts them.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use weir_health::Suspended;
use weir_model::Desired;
use weir_sys::replace_file;

use super::Error;

const FILE: &str = "proxy.json";

/// An operator's word about one server, in force until it is taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Word {
    /// No new requests.
    Drain,
    /// No new requests and no checks.
    Maint,
    /// Another weight than the file's.
    Weight(u32),
}

impl Word {
    /// What the scheduler uses instead of the configured weight.
    pub(super) const fn weight(self) -> u32 {
        match self {
            Self::Drain | Self::Maint => 0,
            Self::Weight(weight) => weight,
        }
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Drain => f.write_str("drain"),
            Self::Maint => f.write_str("maint"),
            Self::Weight(weight) => write!(f, "weight {weight}"),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Content {
    revision: u64,
    fingerprint: u64,
    words: BTreeMap<String, BTreeMap<String, Word>>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Words {
    path: PathBuf,
    content: Content,
}

impl Words {
    /// Servers that no check may go to.
    pub(super) fn maintained(&self) -> Suspended {
        let all = self.content.words.iter().flat_map(|(pool, servers)| {
            let servers = servers.iter();
            servers.map(move |(server, word)| (pool, server, word))
        });
        all.filter(|(.., word)| **word == Word::Maint)
            .map(|(pool, server, _)| (pool.clone(), server.clone()))
            .collect()
    }

    /// Those of a runtime directory; none where the file is not there or says nothing.
    pub(super) fn read(runtime_dir: &Path) -> Self {
        let path = runtime_dir.join(FILE);
        let content = match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).unwrap_or_else(|error| {
                tracing::warn!(path = %path.display(), %error, "operators' words cannot be read and are forgotten");
                Content::default()
            }),
            Err(error) => {
                if error.kind() != ErrorKind::NotFound {
                    tracing::warn!(path = %path.display(), %error, "operators' words cannot be read and are forgotten");
                }
                Content::default()
            }
        };
        Self { path, content }
    }

    pub(super) fn get(&self, pool: &str, server: &str) -> Option<Word> {
        self.content.words.get(pool)?.get(server).copied()
    }

    /// Configurations that took effect.
    pub(super) const fn revision(&self) -> u64 {
        self.content.revision
    }

    /// Sets or takes back the one for a server.
    ///
    /// # Errors
    /// The file cannot be written; nothing changed.
    pub(super) fn set(
        &mut self,
        pool: &str,
        server: &str,
        word: Option<Word>,
    ) -> Result<(), Error> {
        let mut content = self.content.clone();
        let servers = content.words.entry(pool.to_owned()).or_default();
        match word {
            Some(word) => servers.insert(server.to_owned(), word),
            None => servers.remove(server),
        };
        self.write(content)
    }

    /// Another configuration is in force.
    pub(super) fn count_revision(&mut self, desired: &Desired) {
        let mut hasher = DefaultHasher::new();
        desired.hash(&mut hasher);
        let fingerprint = hasher.finish();
        if fingerprint != self.content.fingerprint {
            let revision = self.content.revision + 1;
            let content = Content {
                revision,
                fingerprint,
                ..self.content.clone()
            };
            if let Err(error) = self.write(content) {
                tracing::warn!(%error, "the number of this configuration is not remembered");
            }
        }
    }

    fn write(&mut self, content: Content) -> Result<(), Error> {
        let failed = |source| Error::File {
            path: self.path.clone(),
            source,
        };
        let text = serde_json::to_vec(&content).map_err(|error| failed(error.into()))?;
        replace_file(&self.path, &text).map_err(failed)?;
        self.content = content;
        Ok(())
    }
}
