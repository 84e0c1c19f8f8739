//! Defines findings in the form that `weir check --json` prints, and their text form.

use serde::Serialize;
use weir_config::{Code, Diagnostic, FileError, Occurrence, Severity};
use weir_model::Source;
use weir_proxy::Problem;

use super::{AbsentVip, FailoverFinding, GreChecksum, RoutedServer};

/// A position in a configuration file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Location {
    /// Path of the file, as given by the caller.
    pub file: String,
    /// Line number, from 1; absent if the finding is about the whole file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Column in characters, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
    /// A description of the text at this position; empty if the message already describes it.
    pub label: String,
}

impl Location {
    fn new(file: &str, source: Source, label: &str) -> Self {
        Self {
            file: file.to_owned(),
            line: Some(source.line),
            column: Some(source.column),
            label: label.to_owned(),
        }
    }
}

/// A finding: message, severity, position, cause and fix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// A code such as `E003`; absent if the finding is about this machine rather than the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<&'static str>,
    /// `error`, `warning` or `note`.
    pub severity: &'static str,
    /// The problem in one line.
    pub message: String,
    /// The position.
    #[serde(flatten)]
    pub location: Location,
    /// Related positions.
    pub related: Vec<Location>,
    /// The cause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// How to correct the problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
    /// Number of positions with this problem.
    pub count: usize,
    /// The positions after the first position, in file order; incomplete if `count` exceeds 100,000.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub further: Vec<FurtherPosition>,
}

/// A position in the finding's file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FurtherPosition {
    /// Line number, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// The message for this position; absent if it is the same as the finding's message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Returns the positions of findings, without any text from the file, because values, keys and lines can be secret.
pub(crate) fn locations(found: &[Finding]) -> String {
    let mut text = String::new();
    for finding in found {
        let location = &finding.location;
        text += &location.file;
        for number in [location.line, location.column].into_iter().flatten() {
            text += &format!(":{number}");
        }
        let code = finding
            .code
            .map_or_else(String::new, |code| format!("[{code}]"));
        text += &format!(": {}{code}\n", finding.severity);
    }
    if !text.is_empty() {
        text +=
            "messages are shown only to root and the daemon's user, because they quote the file\n";
    }
    text
}

impl FurtherPosition {
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
    /// Maximum number of further positions that the text form lists.
    const MAX_FURTHER_SHOWN: usize = 10;

    /// Merges findings with the same code, severity, cause and fix. The positions of the merged findings are added to
    /// the first finding.
    pub fn merge_similar(found: impl IntoIterator<Item = Self>) -> Vec<Self> {
        let mut groups: Vec<Self> = Vec::new();
        for finding in found {
            let is_same_kind = |group: &&mut Self| {
                let kind = |finding: &Self| {
                    (
                        finding.code,
                        finding.severity,
                        finding.cause.clone(),
                        finding.fix.clone(),
                    )
                };
                kind(group) == kind(&finding)
            };
            match groups.iter_mut().find(is_same_kind) {
                Some(group) => {
                    group.count += 1;
                    group.further.push(FurtherPosition {
                        line: finding.location.line.unwrap_or_default(),
                        column: finding.location.column.unwrap_or_default(),
                        message: Some(finding.message),
                    });
                }
                None => groups.push(finding),
            }
        }
        groups
    }

    /// Returns the finding as text, without lines from the file.
    pub fn render(&self) -> String {
        let Location {
            file, line, column, ..
        } = &self.location;
        let number = |number: &Option<u32>| number.unwrap_or_default();
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
        for (kind, text_of_kind) in [("note", &self.cause), ("help", &self.fix)] {
            if let Some(line) = text_of_kind {
                text += &format!("  = {kind}: {line}\n");
            }
        }
        if !self.further.is_empty() {
            text += &format!("  = note: {} more:\n", self.further.len());
        }
        for position in self.further.iter().take(Self::MAX_FURTHER_SHOWN) {
            let message = position.message.as_deref().unwrap_or_default();
            text += &format!("    line {}: {message}\n", position.line);
        }
        let hidden = self.further.len().saturating_sub(Self::MAX_FURTHER_SHOWN);
        if hidden > 0 {
            text += &format!("    and {hidden} more\n");
        }
        text + "\n"
    }

    /// Returns the warnings among `found` in one line each.
    pub fn warning_lines<'a>(
        found: impl IntoIterator<Item = &'a Self>,
    ) -> impl Iterator<Item = String> {
        let warnings = found
            .into_iter()
            .filter(|finding| finding.severity == "warning");
        warnings.map(Self::one_line)
    }

    /// Returns the message and the cause in one line, for the warnings of a plan and for the log.
    pub(crate) fn one_line(&self) -> String {
        let mut line = self.message.clone();
        if let Some(cause) = &self.cause {
            line += &format!(": {cause}");
        }
        if !self.further.is_empty() {
            line += &format!(" ({} more)", self.further.len());
        }
        line
    }

    /// Converts diagnostics for the configuration `text`, which was read from `file` and its included files.
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
            location: Location::new(name(diagnostic.at), diagnostic.at, &diagnostic.label),
            related: related
                .map(|other| Location::new(name(other.at), other.at, &other.label))
                .collect(),
            cause: diagnostic.cause.clone(),
            fix: diagnostic.fix.clone(),
            count: 1 + diagnostic.further_count,
            further: diagnostic.further.iter().map(FurtherPosition::of).collect(),
        }
    }

    /// Returns the finding for a file that cannot be read as text.
    pub(super) fn from_file_error(error: &FileError, file: &str) -> Self {
        Self {
            code: Some(error.code().as_str()),
            severity: Severity::Error.as_str(),
            message: error.to_string(),
            location: Location {
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

    /// Returns the finding for a file that clients or the daemon would reject, or for an address that cannot be used.
    pub fn from_problem(problem: &Problem, file: &str) -> Self {
        let severity = if problem.fatal {
            Severity::Error
        } else {
            Severity::Warning
        };
        Self {
            code: None,
            severity: severity.as_str(),
            message: problem.message.clone(),
            location: Location::new(file, problem.source, ""),
            related: Vec::new(),
            cause: Some(problem.cause.clone()),
            fix: Some(problem.fix.clone()),
            count: 1,
            further: Vec::new(),
        }
    }

    /// Returns the finding for connections that are lost when another director takes over a VIP.
    pub fn from_failover(failover: &FailoverFinding, file: &str) -> Self {
        Self {
            code: Some(Code::FailoverEndsFlows.as_str()),
            severity: Severity::Note.as_str(),
            message: failover.message(),
            location: Location::new(file, failover.source, ""),
            related: Vec::new(),
            cause: Some(failover.reason.to_string()),
            fix: Some(FailoverFinding::fix().to_owned()),
            count: 1,
            further: Vec::new(),
        }
    }

    /// Returns the finding for a server of `direct` that is behind a router.
    pub fn from_routed_server(routed: &RoutedServer, file: &str) -> Self {
        let code = Code::DirectThroughRouter;
        Self {
            code: Some(code.as_str()),
            severity: code.severity().as_str(),
            message: routed.message(),
            location: Location::new(file, routed.source, ""),
            related: Vec::new(),
            cause: Some(RoutedServer::cause().to_owned()),
            fix: Some(RoutedServer::fix().to_owned()),
            count: 1,
            further: Vec::new(),
        }
    }

    /// Returns the finding for a service whose GRE tunnels have checksums, on devices with packets of many segments.
    pub fn from_gre_checksum(found: &GreChecksum, file: &str) -> Self {
        let code = Code::GreChecksum;
        Self {
            code: Some(code.as_str()),
            severity: code.severity().as_str(),
            message: found.message(),
            location: Location::new(file, found.source, ""),
            related: Vec::new(),
            cause: Some(GreChecksum::cause().to_owned()),
            fix: Some(GreChecksum::fix().to_owned()),
            count: 1,
            further: Vec::new(),
        }
    }

    /// Returns the finding for a VIP that is on no interface, or that will be removed from its interface.
    pub fn from_absent_vip(vip: &AbsentVip, file: &str) -> Self {
        Self {
            code: None,
            severity: Severity::Warning.as_str(),
            message: vip.message(),
            location: Location::new(file, vip.source, ""),
            related: Vec::new(),
            cause: Some(vip.cause().to_owned()),
            fix: Some(vip.fix()),
            count: 1,
            further: Vec::new(),
        }
    }
}
