//! Findings in the form of `weir check --json`, and the text of those about this machine.

use serde::Serialize;
use weir_config::{Code, Diagnostic, FileError, Occurrence, Severity};
use weir_model::Source;
use weir_proxy::Problem;

use super::{AbsentVip, Failover};

/// A position in a configuration file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Location {
    /// The file, by the path given.
    pub file: String,
    /// From 1; absent if the finding is about the whole file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// From 1, in characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
    /// A description of the text there; empty if the message contains it.
    pub label: String,
}

impl Location {
    fn at(file: &str, at: Source, label: &str) -> Self {
        Self {
            file: file.to_owned(),
            line: Some(at.line),
            column: Some(at.column),
            label: label.to_owned(),
        }
    }
}

/// A finding: message, severity, position, cause and fix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// A code such as `E003`; absent if the finding is about this machine and not the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<&'static str>,
    /// `error`, `warning` or `note`.
    pub severity: &'static str,
    /// The problem in one line.
    pub message: String,
    /// The position.
    #[serde(flatten)]
    pub place: Location,
    /// Other positions that belong to the finding.
    pub related: Vec<Location>,
    /// The cause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// How to correct it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
    /// Number of positions with this problem.
    pub count: usize,
    /// The positions after the first one, in file order; incomplete if `count` is above 100 000.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub further: Vec<At>,
}

/// A position in the finding's file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct At {
    /// From 1.
    pub line: u32,
    /// From 1, in characters.
    pub column: u32,
    /// The message for this position if it differs from the finding's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The positions of findings, without any text of the file: values, keys and lines may be secrets.
pub(super) fn locations(found: &[Finding]) -> String {
    let mut text = String::new();
    for finding in found {
        let place = &finding.place;
        text += &place.file;
        for number in [place.line, place.column].into_iter().flatten() {
            text += &format!(":{number}");
        }
        let code = finding
            .code
            .map_or_else(String::new, |code| format!("[{code}]"));
        text += &format!(": {}{code}\n", finding.severity);
    }
    if !text.is_empty() {
        text += "only root and the user of the daemon see the messages, which quote the file\n";
    }
    text
}

impl At {
    const fn of(further: &Occurrence) -> Self {
        let Source { line, column, .. } = further.at;
        Self {
            line,
            column,
            message: None,
        }
    }
}

impl Finding {
    /// Number of further positions in the text form.
    const MOST_SHOWN: usize = 10;

    /// Merges findings of the same code, severity, cause and fix: the first one gets the others as further positions.
    pub fn grouped(found: impl IntoIterator<Item = Self>) -> Vec<Self> {
        let mut groups: Vec<Self> = Vec::new();
        for one in found {
            let same = |group: &&mut Self| {
                let kind = |it: &Self| (it.code, it.severity, it.cause.clone(), it.fix.clone());
                kind(group) == kind(&one)
            };
            match groups.iter_mut().find(same) {
                Some(group) => {
                    group.count += 1;
                    group.further.push(At {
                        line: one.place.line.unwrap_or_default(),
                        column: one.place.column.unwrap_or_default(),
                        message: Some(one.message),
                    });
                }
                None => groups.push(one),
            }
        }
        groups
    }

    /// The text form of findings about the file, without its lines.
    pub fn render(&self) -> String {
        let Location {
            file, line, column, ..
        } = &self.place;
        let number = |it: &Option<u32>| it.unwrap_or_default();
        let code = self
            .code
            .map_or_else(String::new, |code| format!("[{code}]"));
        let mut text = format!(
            "{}{code}: {}\n --> {file}:{}:{}\n",
            self.severity,
            self.message,
            number(line),
            number(column)
        );
        for (kind, what) in [("note", &self.cause), ("help", &self.fix)] {
            if let Some(what) = what {
                text += &format!("  = {kind}: {what}\n");
            }
        }
        if !self.further.is_empty() {
            text += &format!("  = note: {} more:\n", self.further.len());
        }
        for at in self.further.iter().take(Self::MOST_SHOWN) {
            let message = at.message.as_deref().unwrap_or_default();
            text += &format!("    line {}: {message}\n", at.line);
        }
        let rest = self.further.len().saturating_sub(Self::MOST_SHOWN);
        if rest > 0 {
            text += &format!("    and {rest} more\n");
        }
        text + "\n"
    }

    /// Of the configuration `text`, which was read from `file` and the files that it includes.
    pub(super) fn all(diagnostics: &[Diagnostic], text: &str, file: &str) -> Vec<Self> {
        let files = weir_config::files(text);
        let name = |source: Source| match files.get(source.file as usize) {
            Some(name) if !name.is_empty() => name.as_str(),
            _ => file,
        };
        diagnostics
            .iter()
            .map(|diagnostic| Self::of(diagnostic, &name))
            .collect()
    }

    fn of<'a>(diagnostic: &Diagnostic, name: &dyn Fn(Source) -> &'a str) -> Self {
        let related = diagnostic.related.iter();
        Self {
            code: Some(diagnostic.code.as_str()),
            severity: diagnostic.severity().as_str(),
            message: diagnostic.message.clone(),
            place: Location::at(name(diagnostic.at), diagnostic.at, &diagnostic.label),
            related: related
                .map(|other| Location::at(name(other.at), other.at, &other.label))
                .collect(),
            cause: diagnostic.cause.clone(),
            fix: diagnostic.fix.clone(),
            count: 1 + diagnostic.further_count,
            further: diagnostic.further.iter().map(At::of).collect(),
        }
    }

    /// A file that cannot be read as text.
    pub(super) fn of_file(error: &FileError, file: &str) -> Self {
        Self {
            code: Some(error.code().as_str()),
            severity: Severity::Error.as_str(),
            message: error.to_string(),
            place: Location {
                file: file.to_owned(),
                line: None,
                column: None,
                label: String::new(),
            },
            related: Vec::new(),
            cause: None,
            fix: Some(error.fix().to_string()),
            count: 1,
            further: Vec::new(),
        }
    }

    /// A certificate that clients or the daemon would reject.
    pub fn of_doubt(doubt: &Problem, file: &str) -> Self {
        let severity = if doubt.fatal {
            Severity::Error
        } else {
            Severity::Warning
        };
        Self {
            code: None,
            severity: severity.as_str(),
            message: doubt.message.clone(),
            place: Location::at(file, doubt.source, ""),
            related: Vec::new(),
            cause: Some(doubt.cause.clone()),
            fix: Some(doubt.fix.clone()),
            count: 1,
            further: Vec::new(),
        }
    }

    /// Connections that end when another director takes over a VIP.
    pub fn of_failover(failover: &Failover, file: &str) -> Self {
        Self {
            code: Some(Code::FailoverEndsFlows.as_str()),
            severity: Severity::Note.as_str(),
            message: failover.message(),
            place: Location::at(file, failover.source, ""),
            related: Vec::new(),
            cause: Some(failover.why.to_string()),
            fix: Some(Failover::fix().to_owned()),
            count: 1,
            further: Vec::new(),
        }
    }

    /// A VIP that is on no interface, or will be on none.
    pub fn of_absent_vip(vip: &AbsentVip, file: &str) -> Self {
        Self {
            code: None,
            severity: Severity::Warning.as_str(),
            message: vip.message(),
            place: Location::at(file, vip.source, ""),
            related: Vec::new(),
            cause: Some(vip.cause().to_owned()),
            fix: Some(vip.fix()),
            count: 1,
            further: Vec::new(),
        }
    }
}
