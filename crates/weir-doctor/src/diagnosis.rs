//! Defines a problem that `weir doctor` reports: observation, consequence for load balancing, and fix.
//!
//! The fix is a command or an instruction. A note has the same form, but describes no problem.

use std::fmt;

use serde::Serialize;

/// A problem that breaks load balancing, or a note.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// The observation.
    #[serde(rename = "seen")]
    pub observation: String,
    /// The consequence.
    #[serde(rename = "why")]
    pub consequence: String,
    /// The command or instruction that fixes the problem, or `None` if the operator has to decide.
    #[serde(rename = "mend", skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
    /// Whether `--fix` has fixed the problem.
    #[serde(rename = "mended", skip_serializing_if = "std::ops::Not::not")]
    pub fixed: bool,
    /// Whether this is a note: it describes a property of this machine that does not break load balancing and needs no
    /// action.
    #[serde(rename = "note", skip_serializing_if = "std::ops::Not::not")]
    pub is_note: bool,
}

impl Diagnosis {
    /// Creates a diagnosis without a fix.
    pub fn new(observation: impl Into<String>, consequence: impl Into<String>) -> Self {
        Self {
            observation: observation.into(),
            consequence: consequence.into(),
            fix: None,
            fixed: false,
            is_note: false,
        }
    }

    /// Creates a note without a fix.
    pub fn note(observation: impl Into<String>, consequence: impl Into<String>) -> Self {
        Self {
            is_note: true,
            ..Self::new(observation, consequence)
        }
    }

    /// Adds the command or instruction that fixes the problem.
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
            "{}{}{}",
            if self.is_note { "note: " } else { "" },
            self.observation,
            if self.fixed { " (fixed)" } else { "" }
        )?;
        writeln!(f, "  why:  {}", self.consequence)?;
        match &self.fix {
            Some(command) => writeln!(f, "  fix:  {command}"),
            None => Ok(()),
        }
    }
}
