//! Defines a route's `files` setting: a directory of files that Weir itself serves.

use std::fmt;

/// A directory, and the mapping of paths to its files.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StaticFiles {
    /// Absolute directory path. Files outside the directory are not sent.
    pub root: String,
    /// Prefix to remove from a path; empty = no prefix.
    pub strip: String,
    /// Names of index files. The first existing one is sent for a directory.
    pub index: Vec<String>,
    /// Paths below `root` to try, in order. [`PATH`](Self::PATH) is the placeholder for the request's path. A path that
    /// ends with `/` is a directory.
    pub attempts: Vec<String>,
    /// Response status if no file is found; 400 to 599.
    pub missing_status: u16,
    /// The pool that receives requests if no file is found, instead of a response with `missing_status`; `None` = no
    /// pool.
    pub pool: Option<String>,
}

impl StaticFiles {
    /// Placeholder for the request path in [`attempts`](Self::attempts).
    pub const PATH: &'static str = "{path}";

    /// Creates the settings for a directory, with defaults.
    pub fn new(root: impl Into<String>) -> Self {
        Self {
            root: root.into(),
            strip: String::new(),
            index: vec!["index.html".to_owned()],
            attempts: vec![Self::PATH.to_owned(), format!("{}/", Self::PATH)],
            missing_status: 404,
            pool: None,
        }
    }
}

/// Formats the settings as in `weir plan`.
impl fmt::Display for StaticFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let default = Self::new(self.root.as_str());
        write!(f, "files {}", self.root)?;
        if self.strip != default.strip {
            write!(f, " strip {}", self.strip)?;
        }
        if self.index != default.index {
            write!(f, " index {}", self.index.join(" "))?;
        }
        if self.attempts != default.attempts {
            write!(f, " try {}", self.attempts.join(" "))?;
        }
        if self.missing_status != default.missing_status {
            write!(f, " else {}", self.missing_status)?;
        }
        if let Some(pool) = &self.pool {
            write!(f, " else pool {pool}")?;
        }
        Ok(())
    }
}
