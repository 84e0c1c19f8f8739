//! Formats diagnostics as text, in the style of rustc.
//!
//! Every position is shown as `file:line:column` with its source line, unless the line is very long.

use std::collections::BTreeMap;
use std::ops::Range;

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{Annotation, AnnotationKind, Group, Level, Origin, Renderer, Snippet};

use crate::code::Severity;
use crate::diagnostic::{Diagnostic, Lines};
use crate::file::FileError;
use crate::mask::mask_secrets;

/// Maximum length of a source line to show, in bytes.
const MAX_LINE_BYTES: usize = 2000;

/// Formats the diagnostics of `text`, the content of `file_name`, followed by a line with the number of diagnostics.
/// Secrets in source lines are masked. Returns an empty string if there are no diagnostics.
pub fn render(diagnostics: &[Diagnostic], text: &str, file_name: &str, color: bool) -> String {
    let Some(summary) = count_text(diagnostics) else {
        return String::new();
    };
    let renderer = renderer(color);
    let text = &*mask_secrets(text);
    let lines = Lines::new(text);
    let mut out = String::new();
    for diagnostic in diagnostics {
        let group = report_group(diagnostic, &lines, text, file_name);
        out.push_str(&renderer.render(&[group]));
        out.push_str("\n\n");
    }
    out.push_str(&format!("{file_name}: {summary}\n"));
    out
}

/// Formats a file error.
pub fn render_file_error(error: &FileError, file_name: &str, color: bool) -> String {
    let title = Level::ERROR
        .primary_title(error.to_string())
        .id(error.code().as_str());
    let group = title
        .element(Origin::path(file_name))
        .element(Level::HELP.message(error.fix()));
    renderer(color).render(&[group]) + "\n"
}

/// Returns a text such as "2 errors, 1 warning"; `None` if there are no diagnostics.
fn count_text(diagnostics: &[Diagnostic]) -> Option<String> {
    let parts: Vec<String> = [Severity::Error, Severity::Warning, Severity::Note]
        .into_iter()
        .filter_map(|severity| {
            let count = diagnostics
                .iter()
                .filter(|diagnostic| diagnostic.severity() == severity)
                .count();
            let plural = if count == 1 { "" } else { "s" };
            (count > 0).then(|| format!("{count} {}{plural}", severity.as_str()))
        })
        .collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

const fn renderer(color: bool) -> Renderer {
    let renderer = if color {
        Renderer::styled()
    } else {
        Renderer::plain()
    };
    renderer.decor_style(DecorStyle::Ascii)
}

fn report_group<'a>(
    diagnostic: &'a Diagnostic,
    lines: &Lines<'a>,
    text: &'a str,
    file_name: &'a str,
) -> Group<'a> {
    let level = match diagnostic.severity() {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
        Severity::Note => Level::NOTE,
    };
    let mut group = level
        .primary_title(diagnostic.message.as_str())
        .id(diagnostic.code.as_str())
        .elements(std::iter::empty::<Origin<'_>>());
    for (line, marks) in locations(diagnostic, lines) {
        let range = lines.range(line);
        let file_name = lines.file_name(line).unwrap_or(file_name);
        group = if range.len() > MAX_LINE_BYTES {
            let source = lines.source(marks[0].span.start);
            group.element(
                Origin::path(file_name)
                    .line(source.line as usize)
                    .char_column(source.column as usize),
            )
        } else {
            let snippet = Snippet::source(text.get(range.clone()).unwrap_or(""))
                .path(file_name)
                .line_start(lines.number(line));
            group.element(snippet.annotations(marks.iter().map(|mark| mark.annotation(&range))))
        };
    }
    if let Some(cause) = &diagnostic.cause {
        group = group.element(Level::NOTE.message(cause.as_str()));
    }
    if let Some(fix) = &diagnostic.fix {
        group = group.element(Level::HELP.message(fix.as_str()));
    }
    if let Some(further) = diagnostic.further_text() {
        group = group.element(Level::NOTE.message(further));
    }
    group
}

struct Mark<'a> {
    span: Range<usize>,
    label: &'a str,
    kind: AnnotationKind,
}

impl<'a> Mark<'a> {
    /// Returns an annotation relative to its line; a span over several lines is truncated at the end of the first line.
    fn annotation(&self, line: &Range<usize>) -> Annotation<'a> {
        let start = self.span.start.clamp(line.start, line.end) - line.start;
        let end = self.span.end.clamp(line.start, line.end) - line.start;
        self.kind
            .span(start..end.max(start))
            .label((!self.label.is_empty()).then_some(self.label))
    }
}

/// Returns the marks grouped by line, the line of the diagnostic first.
fn locations<'a>(diagnostic: &'a Diagnostic, lines: &Lines<'_>) -> Vec<(usize, Vec<Mark<'a>>)> {
    let primary_line = lines.index(diagnostic.span.start);
    let mut by_line: BTreeMap<(bool, usize), Vec<Mark<'a>>> = BTreeMap::new();
    let primary = Mark {
        span: diagnostic.span.clone(),
        label: &diagnostic.label,
        kind: AnnotationKind::Primary,
    };
    by_line
        .entry((false, primary_line))
        .or_default()
        .push(primary);
    for related in &diagnostic.related {
        let line = lines.index(related.span.start);
        let mark = Mark {
            span: related.span.clone(),
            label: &related.label,
            kind: AnnotationKind::Context,
        };
        by_line
            .entry((line != primary_line, line))
            .or_default()
            .push(mark);
    }
    by_line
        .into_iter()
        .map(|((_, line), marks)| (line, marks))
        .collect()
}
