//! Manages the key that signs the sticky cookies of pools without `sticky.secret` (`RUNTIME_DIR/cookie.key`).
//!
//! The signature prevents clients from computing a server's cookie.
//!
//! The key is generated for the first configuration that needs it. Later daemons read it, so cookies remain valid after
//! restarts, crashes and upgrades. The key is never shown. Directors that share a VIP would have different keys, so
//! they need `sticky.secret`.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use aws_lc_rs::rand;
use weir_model::{Desired, Secret, SecretSource};
use weir_sys::replace_file;

use super::Error;
use crate::hex;

const FILE: &str = "cookie.key";
const KEY_BYTES: usize = 32;

/// The file with the key for sticky cookies.
#[derive(Debug)]
pub(super) struct CookieKey {
    path: PathBuf,
    is_loaded: bool,
}

impl CookieKey {
    /// Returns the key file in a runtime directory, without reading it.
    pub(super) fn new(runtime_dir: &Path) -> Self {
        Self {
            path: runtime_dir.join(FILE),
            is_loaded: false,
        }
    }

    /// Returns the key if `desired` is the first configuration in this process that needs one.
    ///
    /// # Errors
    /// Fails if the file cannot be read or written, or if the system's random number generator fails.
    pub(super) fn load_if_needed(&mut self, desired: &Desired) -> Result<Option<Secret>, Error> {
        let mut sticky = desired.pools.iter().filter_map(|pool| pool.sticky.as_ref());
        if self.is_loaded || sticky.all(|sticky| sticky.secret.is_some()) {
            return Ok(None);
        }
        let value = match self.read()? {
            Some(value) => value,
            None => self.generate()?,
        };
        self.is_loaded = true;
        let source = SecretSource::File(self.path.display().to_string());
        Ok(Some(Secret::new(source, value)))
    }

    /// Reads the key of an earlier process; `None` = the file is missing or invalid.
    fn read(&self) -> Result<Option<Vec<u8>>, Error> {
        let value = match fs::read(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            value => value.map_err(|source| self.file_error(source))?,
        };
        if value.len() == 2 * KEY_BYTES && value.iter().all(u8::is_ascii_hexdigit) {
            return Ok(Some(value));
        }
        tracing::warn!(
            path = %self.path.display(),
            "the file contains no valid key for sticky cookies; replacing it: sticky clients may change servers"
        );
        Ok(None)
    }

    fn generate(&self) -> Result<Vec<u8>, Error> {
        let mut key = [0; KEY_BYTES];
        rand::fill(&mut key).map_err(|_| Error::Random)?;
        let text = hex::encode(&key);
        replace_file(&self.path, text.as_bytes()).map_err(|source| self.file_error(source))?;
        Ok(text.into_bytes())
    }

    fn file_error(&self, source: std::io::Error) -> Error {
        Error::File {
            path: self.path.clone(),
            source,
        }
    }
}
