//! Parses a configuration: builds the tree and the model, verifies the model, and sorts the diagnostics.

use std::collections::HashSet;
use std::ops::Range;

use toml::de::DeTable;
use weir_model::{Desired, Proxy};

use crate::bundle_file;
use crate::code::{Code, Severity};
use crate::defaults;
use crate::diagnostic::{Diagnostic, Lines};
use crate::environment;
use crate::include;
use crate::json;
use crate::lower::{LoweredConfig, LoweredProxy, LoweredRoute, lower};
use crate::published;
use crate::tree::{Table, Value};
use crate::verify::{Machine, verify};
use crate::view::Sink;

/// A valid configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedConfig {
    /// The desired state.
    pub desired: Desired,
    /// Warnings and notes, in text order.
    pub findings: Vec<Diagnostic>,
}

/// Parses `weir.toml`.
///
/// # Errors
/// Returns all diagnostics in text order, including warnings and notes, if at least one of them is an error.
pub fn parse(text: &str, host: &dyn Machine) -> Result<ParsedConfig, Vec<Diagnostic>> {
    if bundle_file::is_bundle(text) {
        return parse_bundle(text, false, host);
    }
    let (document, errors) = DeTable::parse_recoverable(text);
    if !errors.iter().any(stops_parser) {
        let root = Table::from_toml(document.into_inner());
        return lower_and_verify(text, &root, syntax_errors(text, &root, &errors), host);
    }
    let (blanked_text, mut errors) = blank_unparsable_lines(text, errors);
    let (document, other_errors) = DeTable::parse_recoverable(&blanked_text);
    let root = Table::from_toml(document.into_inner());
    errors.extend(other_errors);
    lower_and_verify(text, &root, syntax_errors(text, &root, &errors), host)
}

/// Parses a bundle: a text that contains its included files.
fn parse_bundle(
    text: &str,
    main_is_json: bool,
    host: &dyn Machine,
) -> Result<ParsedConfig, Vec<Diagnostic>> {
    let (mut root, mut syntax) = (Table::default(), Syntax::new(Vec::new()));
    let lines = Lines::new(text);
    for (index, part) in bundle_file::split_bundle(text).into_iter().enumerate() {
        let is_json = if index == 0 {
            main_is_json
        } else {
            part.is_json()
        };
        let (mut table, mut part_syntax) = match is_json {
            true => read_json(part.text),
            false => read_toml(part.text),
        };
        table.shift(part.start);
        part_syntax
            .found
            .iter_mut()
            .for_each(|it| it.shift(part.start));
        let first = lines.index(part.start);
        syntax
            .broken_lines
            .extend(part_syntax.broken_lines.iter().map(|line| line + first));
        syntax.found.append(&mut part_syntax.found);
        include::merge(&mut root, table, &mut syntax.found);
    }
    lower_and_verify(text, &root, syntax, host)
}

fn read_toml(text: &str) -> (Table<'static>, Syntax) {
    let (document, mut errors) = DeTable::parse_recoverable(text);
    if !errors.iter().any(stops_parser) {
        let root = Table::from_toml(document.into_inner());
        let syntax = syntax_errors(text, &root, &errors);
        return (root.into_owned(), syntax);
    }
    let (blanked_text, blanked_errors) = blank_unparsable_lines(text, errors);
    let (document, other_errors) = DeTable::parse_recoverable(&blanked_text);
    let root = Table::from_toml(document.into_inner());
    errors = blanked_errors;
    errors.extend(other_errors);
    let syntax = syntax_errors(text, &root, &errors);
    (root.into_owned(), syntax)
}

fn read_json(text: &str) -> (Table<'static>, Syntax) {
    match json::read(text) {
        Ok((item, duplicates)) => match item.value {
            Value::Table(root) => (root.into_owned(), Syntax::new(duplicates)),
            other => {
                let message = format!("expected an object, found {}", other.describe());
                let diagnostic = Diagnostic::new(Code::WrongType, &item.span, message);
                (Table::default(), Syntax::new(vec![diagnostic]))
            }
        },
        Err(diagnostic) => (Table::default(), Syntax::new(vec![*diagnostic])),
    }
}

/// Returns whether the TOML parser cannot continue after this error.
fn stops_parser(error: &toml::de::Error) -> bool {
    error.message().starts_with("key with no value")
}

/// Overwrites the lines at which the parser stops with spaces, so that later errors are found too and spans stay valid.
/// Returns the text and the errors in these lines.
fn blank_unparsable_lines(
    text: &str,
    mut errors: Vec<toml::de::Error>,
) -> (String, Vec<toml::de::Error>) {
    // For each such line, the whole text is parsed again.
    const MAX_LINES: usize = 16;
    const MAX_TEXT_BYTES: usize = 1 << 20;
    let lines = Lines::new(text);
    let mut blanked_text = text.to_owned();
    let mut blanked_errors = Vec::new();
    while blanked_errors.len() < MAX_LINES && text.len() <= MAX_TEXT_BYTES {
        let Some(error) = errors.into_iter().find(stops_parser) else {
            break;
        };
        let range = lines.range(lines.index(error.span().map_or(0, |span| span.start)));
        let blank = " ".repeat(range.len());
        if blanked_text.get(range.clone()) == Some(blank.as_str()) {
            break;
        }
        blanked_text.replace_range(range, &blank);
        blanked_errors.push(error);
        errors = DeTable::parse_recoverable(&blanked_text).1;
    }
    (blanked_text, blanked_errors)
}

/// Parses the same schema as JSON.
///
/// # Errors
/// Returns the same errors as [`parse`]; a text with a syntax error is not checked further.
pub fn parse_json(text: &str, host: &dyn Machine) -> Result<ParsedConfig, Vec<Diagnostic>> {
    if bundle_file::is_bundle(text) {
        return parse_bundle(text, true, host);
    }
    let (root, syntax) = read_json(text);
    lower_and_verify(text, &root, syntax, host)
}

/// The syntax errors of a text.
struct Syntax {
    found: Vec<Diagnostic>,
    /// Lines, from 0, that could not be parsed.
    broken_lines: HashSet<usize>,
}

impl Syntax {
    /// Creates a `Syntax` without broken lines.
    fn new(found: Vec<Diagnostic>) -> Self {
        Self {
            found,
            broken_lines: HashSet::new(),
        }
    }
}

fn lower_and_verify(
    text: &str,
    root: &Table<'_>,
    syntax: Syntax,
    host: &dyn Machine,
) -> Result<ParsedConfig, Vec<Diagnostic>> {
    let mut sink = Sink::new(text);
    sink.machine = Some(host);
    let Syntax {
        found,
        broken_lines,
    } = syntax;
    found
        .into_iter()
        .for_each(|diagnostic| sink.push(diagnostic));
    let reliable_count = sink.found.len();
    if !bundle_file::is_bundle(text) {
        reject_include(&mut sink, root);
    }
    let with_variables = environment::expand_variables(&mut sink, text, root, host);
    let root = with_variables.as_ref().unwrap_or(root);
    let with_defaults = defaults::apply(&mut sink, root);
    let root = with_defaults.as_ref().unwrap_or(root);
    let lowered = lower(&mut sink, root);
    verify(&mut sink, &lowered, host);
    published::verify(&mut sink, &lowered, text);

    let Sink {
        mut found,
        lines,
        check_authorities,
        ..
    } = sink;
    if !broken_lines.is_empty() {
        // Diagnostics for broken lines are unreliable, and settings that seem to be missing may be in these lines.
        let mut count = 0;
        found.retain(|diagnostic| {
            count += 1;
            let is_unreliable = diagnostic.code.is_absence()
                || broken_lines.contains(&lines.index(diagnostic.span.start));
            count <= reliable_count || !is_unreliable
        });
    }
    found.sort_by_key(|diagnostic| (diagnostic.span.start, diagnostic.severity()));
    for diagnostic in &mut found {
        diagnostic.at = lines.source(diagnostic.span.start);
        for related in &mut diagnostic.related {
            related.at = lines.source(related.span.start);
        }
        diagnostic.further.sort_by_key(|further| further.span.start);
        for further in &mut diagnostic.further {
            further.at = lines.source(further.span.start);
        }
    }
    if found
        .iter()
        .any(|diagnostic| diagnostic.severity() == Severity::Error)
    {
        return Err(found);
    }
    Ok(ParsedConfig {
        desired: Desired {
            check_authorities,
            ..desired(text, lowered)
        },
        findings: found,
    })
}

/// Returns the model of a configuration without errors.
fn desired(text: &str, lowered: LoweredConfig) -> Desired {
    Desired {
        files: match bundle_file::is_bundle(text) {
            true => include::files(text),
            false => Vec::new(),
        },
        node: lowered.node,
        timeouts: lowered.timeouts,
        ipvs: lowered.ipvs,
        checks: lowered
            .checks
            .into_iter()
            .filter_map(|shared| Some((shared.name, shared.check?)))
            .collect(),
        check_authorities: Vec::new(),
        pools: lowered.pools.into_iter().map(|pool| pool.pool).collect(),
        services: lowered
            .services
            .into_iter()
            .map(|service| service.service)
            .collect(),
        proxies: proxies_with_routes(lowered.proxies, lowered.routes),
        vrrp: lowered.vrrp,
        announce: lowered.announce,
        sync: lowered.sync,
        cluster: lowered.cluster,
        notifiers: lowered.notifiers,
        tracing: lowered.tracing,
    }
}

/// Rejects `include` in a text that does not come from a file: there is no directory for relative paths.
fn reject_include(sink: &mut Sink<'_>, root: &Table<'_>) {
    let include = root.entries.iter().find(|entry| entry.key == "include");
    if let Some(entry) = include
        && let Value::List(items) = &entry.item.value
        && !items.is_empty()
    {
        let message = "`include` is only allowed in a file";
        sink.push(
            Diagnostic::new(Code::BadInclude, &entry.key_span, message)
                .cause("relative paths need a directory, and this text does not come from a file")
                .fix("insert the text of the included files here"),
        );
    }
}

/// Returns the proxy services with their routes. Verification has already checked that each route's service exists.
fn proxies_with_routes(proxies: Vec<LoweredProxy>, routes: Vec<LoweredRoute>) -> Vec<Proxy> {
    let mut proxies: Vec<Proxy> = proxies.into_iter().map(|proxy| proxy.proxy).collect();
    for lowered in routes {
        let is_service = |proxy: &&mut Proxy| proxy.name == lowered.service.0;
        if let Some(proxy) = proxies.iter_mut().find(is_service) {
            proxy.routes.push(lowered.route);
        }
    }
    proxies
}

/// Returns one diagnostic for each syntax error, and all lines that could not be parsed.
///
/// Omits errors in the rest of a line, or in the lines after an unclosed list, because the first error causes them.
fn syntax_errors(text: &str, root: &Table<'_>, errors: &[toml::de::Error]) -> Syntax {
    let lines = Lines::new(text);
    let mut found: Vec<Diagnostic> = errors
        .iter()
        .map(|error| syntax_error(text, root, error))
        .collect();
    found.sort_by_key(|diagnostic| diagnostic.span.start);
    let mut broken_lines = HashSet::new();
    let mut last_line: Option<usize> = None;
    let mut is_in_list = false;
    found.retain(|diagnostic| {
        if diagnostic.code == Code::DuplicateKey {
            return true;
        }
        let line = lines.index(diagnostic.span.start);
        broken_lines.insert(line);
        let max_distance = usize::from(is_in_list);
        let follows = last_line.is_some_and(|last| line <= last + max_distance);
        if !follows {
            is_in_list = diagnostic.message.contains("array");
        }
        last_line = Some(line);
        !follows
    });
    Syntax {
        found,
        broken_lines,
    }
}

fn syntax_error(text: &str, root: &Table<'_>, error: &toml::de::Error) -> Diagnostic {
    let span = error.span().unwrap_or(0..0);
    if error.message().starts_with("duplicate key") {
        let key = text.get(span.clone()).unwrap_or("");
        let diagnostic =
            Diagnostic::new(Code::DuplicateKey, &span, format!("duplicate key `{key}`"))
                .label("duplicate")
                .fix("remove or rename one of them");
        return match first_position(text, root, &span) {
            Some(first) => diagnostic.related(&first, "first here"),
            None => diagnostic,
        };
    }
    let message = error.message().replace(", expected literal string", "");
    let diagnostic = Diagnostic::new(Code::Syntax, &span, format!("invalid TOML: {message}"));
    let rest_of_line = text.get(span.start..).and_then(|it| it.lines().next());
    if stops_parser(error) {
        diagnostic.fix("write KEY = VALUE")
    } else if !message.starts_with("string values must be quoted") {
        diagnostic
    } else if rest_of_line.is_none_or(|it| it.trim().is_empty()) {
        diagnostic.fix("write a value after the `=`")
    } else {
        diagnostic.fix("put the value in double quotes")
    }
}

/// Returns the first position of the duplicate key at `second`: that of the same header, or of the nearest key above
/// with the same name.
fn first_position(text: &str, root: &Table<'_>, second: &Range<usize>) -> Option<Range<usize>> {
    let lines = Lines::new(text);
    let line = lines.index(second.start);
    let header = text.get(lines.range(line))?.trim();
    if header.starts_with('[') {
        let first = (0..line).map(|index| lines.range(index)).find(|range| {
            text.get(range.clone())
                .is_some_and(|earlier| earlier.trim() == header)
        })?;
        let column = second.start - lines.range(line).start;
        return Some(first.start + column..first.start + column + second.len());
    }
    let key = text.get(second.clone())?.trim_matches(['"', '\'']);
    let mut nearest = None;
    let mut pending = vec![root];
    while let Some(table) = pending.pop() {
        for entry in &table.entries {
            if entry.key == key && entry.key_span.end <= second.start {
                nearest = nearest.max(Some((entry.key_span.start, entry.key_span.end)));
            }
            match &entry.item.value {
                Value::Table(inner) => pending.push(inner),
                Value::List(items) => {
                    pending.extend(items.iter().filter_map(|item| match &item.value {
                        Value::Table(inner) => Some(inner),
                        _ => None,
                    }))
                }
                _ => {}
            }
        }
    }
    nearest.map(|(start, end)| start..end)
}
