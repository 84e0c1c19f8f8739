//! Findings as `weir check --json` prints them.

use serde::Serialize;
use weir_config::{Diagnostic, FileError, Severity};
use weir_model::Source;
use weir_proxy::Doubt;

use super::AbsentVip;

/// A place in a configuration file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The file, as it was named.
    pub file: String,
    /// From 1; absent where the finding is about the whole file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// From 1, in characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
    /// What is there; empty where the message says it.
    pub label: String,
}

impl Place {
    fn at(file: &str, at: Source, label: &str) -> Self {
        Self {
            file: file.to_owned(),
            line: Some(at.line),
            column: Some(at.column),
            label: label.to_owned(),
        }
    }
}

/// One finding: what, how bad, where, why, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Number, such as `E003`; absent for what is about this machine rather than the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<&'static str>,
    /// `error`, `warning` or `note`.
    pub severity: &'static str,
    /// What is wrong, in one line.
    pub message: String,
    /// Where.
    #[serde(flatten)]
    pub place: Place,
    /// Other places of the same finding.
    pub related: Vec<Place>,
    /// Why it is so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// What to write instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Finding {
    pub(super) fn all(diagnostics: &[Diagnostic], file: &str) -> Vec<Self> {
        diagnostics
            .iter()
            .map(|diagnostic| Self::of(diagnostic, file))
            .collect()
    }

    fn of(diagnostic: &Diagnostic, file: &str) -> Self {
        let related = diagnostic.related.iter();
        Self {
            code: Some(diagnostic.code.as_str()),
            severity: diagnostic.severity().as_str(),
            message: diagnostic.message.clone(),
            place: Place::at(file, diagnostic.at, &diagnostic.label),
            related: related
                .map(|other| Place::at(file, other.at, &other.label))
                .collect(),
            cause: diagnostic.cause.clone(),
            fix: diagnostic.fix.clone(),
        }
    }

    /// A file that could not be taken as text at all.
    pub(super) fn of_file(error: &FileError, file: &str) -> Self {
        Self {
            code: Some(error.code().as_str()),
            severity: Severity::Error.as_str(),
            message: error.to_string(),
            place: Place {
                file: file.to_owned(),
                line: None,
                column: None,
                label: String::new(),
            },
            related: Vec::new(),
            cause: None,
            fix: Some(error.fix().to_string()),
        }
    }

    /// A certificate that clients or the daemon would refuse.
    pub fn of_doubt(doubt: &Doubt, file: &str) -> Self {
        let severity = if doubt.fatal {
            Severity::Error
        } else {
            Severity::Warning
        };
        Self {
            code: None,
            severity: severity.as_str(),
            message: doubt.message.clone(),
            place: Place::at(file, doubt.source, ""),
            related: Vec::new(),
            cause: Some(doubt.cause.clone()),
            fix: Some(doubt.fix.clone()),
        }
    }

    /// A VIP that is on no interface.
    pub fn of_absent_vip(vip: &AbsentVip, file: &str) -> Self {
        Self {
            code: None,
            severity: Severity::Warning.as_str(),
            message: format!(
                "{} of service {} is on no interface of this machine",
                vip.address, vip.service
            ),
            place: Place::at(file, vip.source, ""),
            related: Vec::new(),
            cause: Some("packets that are routed here are taken all the same".to_owned()),
            fix: Some(
                "add it, or let keepalived, Pacemaker or `[node] vip_interface` do that".to_owned(),
            ),
        }
    }
}
