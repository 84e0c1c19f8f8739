//! A problem that `weir doctor` reports: the observation, why it breaks balancing, and the command that fixes it.

use std::fmt;

use serde::Serialize;

/// A problem that breaks, or would break, balancing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// The observation.
    pub seen: String,
    /// The consequence.
    pub why: String,
    /// The command that fixes it; `None` = the operator has to decide.
    #[serde(rename = "mend", skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
    /// Whether `--fix` has fixed it.
    #[serde(rename = "mended", skip_serializing_if = "std::ops::Not::not")]
    pub fixed: bool,
}

impl Diagnosis {
    /// Without a command.
    pub fn new(seen: impl Into<String>, why: impl Into<String>) -> Self {
        Self {
            seen: seen.into(),
            why: why.into(),
            fix: None,
            fixed: false,
        }
    }

    /// With the command that fixes it.
    #[must_use]
    pub fn fix(self, command: impl Into<String>) -> Self {
        Self {
            fix: Some(command.into()),
            ..self
        }
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}{}",
            self.seen,
            if self.fixed { " (fixed)" } else { "" }
        )?;
        writeln!(f, "  why:  {}", self.why)?;
        match &self.fix {
            Some(command) => writeln!(f, "  fix:  {command}"),
            None => Ok(()),
        }
    }
}
