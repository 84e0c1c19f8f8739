//! What a doctor says: what was seen, why it breaks, and the command that mends it.

use std::fmt;

use serde::Serialize;

/// One thing that would break balancing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ailment {
    /// What was seen.
    pub seen: String,
    /// Why that breaks something.
    pub why: String,
    /// The command that mends it; absent = an operator must decide.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mend: Option<String>,
    /// Whether `--fix` mended it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub mended: bool,
}

impl Ailment {
    pub(crate) fn new(seen: impl Into<String>, why: impl Into<String>) -> Self {
        Self {
            seen: seen.into(),
            why: why.into(),
            mend: None,
            mended: false,
        }
    }

    #[must_use]
    pub(crate) fn mend(self, command: impl Into<String>) -> Self {
        Self {
            mend: Some(command.into()),
            ..self
        }
    }
}

impl fmt::Display for Ailment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}{}",
            self.seen,
            if self.mended { " (mended)" } else { "" }
        )?;
        writeln!(f, "  why:  {}", self.why)?;
        match &self.mend {
            Some(command) => writeln!(f, "  mend: {command}"),
            None => Ok(()),
        }
    }
}
