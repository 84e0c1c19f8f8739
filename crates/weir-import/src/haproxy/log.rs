//! Converts `log` and `log-format` to the access log of a service.

use super::Context;
use super::line::Line;
use super::rule::condition;
use super::section::Proxy;
use crate::document::{Entry, Table};
use crate::layer7::has_variable;
use crate::note::Notes;

/// Adds `access_log` for the section's first log target that Weir supports.
pub(super) fn push_access_log(
    context: &mut Context<'_>,
    table: &mut Table,
    proxy: &Proxy,
    notes: &mut Notes,
) {
    let mut path = None;
    for line in effective_lines(context, proxy) {
        let target = target(&line, context.chroot.as_deref());
        context.mark_used(&line);
        match target {
            Ok(target) if path.is_none() => {
                note_differences(&line, notes);
                path = Some((target, line.position));
            }
            Ok(_) => notes.remark(
                line.position,
                "not imported: a service has only one `access_log`",
            ),
            Err(reason) => notes.remark(line.position, format!("not imported: {reason}")),
        }
    }
    let Some((path, position)) = path else {
        return;
    };
    let format_line = proxy.last(&["log-format"]);
    if let Some(line) = format_line {
        context.mark_used(line);
    }
    let format = format_line.and_then(|line| match convert_format(line) {
        Ok(format) => Some(Entry::new("format", format, line.position)),
        Err(reason) => {
            notes.remark(line.position, format!("not imported: {reason}"));
            None
        }
    });
    let entry = match format {
        Some(format) => {
            let keys = vec![Entry::new("path", path, position).essential(), format];
            Entry::new("access_log", keys, position)
        }
        None => Entry::new("access_log", path, position),
    };
    table.push(entry);
}

/// Adds notes about the `log` lines of `global` that no section uses.
pub(super) fn note_unused_global(context: &Context<'_>, notes: &mut Notes) {
    for line in &context.logs {
        if context.used.contains(&line.position) {
            continue;
        }
        let reason = target(line, None)
            .err()
            .unwrap_or_else(|| "no frontend has `log global`".to_owned());
        notes.remark(line.position, format!("not imported: {reason}"));
    }
}

/// Returns the `log` lines that apply to the section, with those of `global` in place of `log global`.
fn effective_lines(context: &mut Context<'_>, proxy: &Proxy) -> Vec<Line> {
    let mut lines = Vec::new();
    for line in proxy.defaults.iter().chain(&proxy.lines) {
        match (line.keyword(), line.word(1)) {
            ("no", Some("log")) => {
                context.mark_used(line);
                lines.clear();
            }
            ("log", Some("global")) => {
                context.mark_used(line);
                lines.extend(context.logs.iter().cloned());
            }
            ("log", Some(_)) => lines.push(line.clone()),
            _ => {}
        }
    }
    lines
}

/// Returns `path` of `access_log` for a `log` line.
///
/// # Errors
/// Returns why the line has no equivalent.
fn target(line: &Line, chroot: Option<&str>) -> Result<String, String> {
    const LEVELS_ABOVE_INFO: [&str; 6] = ["emerg", "alert", "crit", "err", "warning", "notice"];
    let (_, level) = facility_and_level(line);
    if LEVELS_ABOVE_INFO.contains(&level.unwrap_or("info")) {
        return Err(
            "at this level haproxy logs no requests; Weir's own log reports server states"
                .to_owned(),
        );
    }
    let address = line.word(1).unwrap_or_default();
    let address = address.strip_prefix("unix@").unwrap_or(address);
    match address {
        "/dev/log" | "/run/systemd/journal/dev-log" => Ok("syslog".to_owned()),
        "stdout" | "fd@1" => Ok("-".to_owned()),
        path if path.starts_with('/') => {
            let chroot = chroot.unwrap_or_default().trim_end_matches('/');
            Ok(format!("syslog:{chroot}{path}"))
        }
        other => Err(format!(
            "`access_log` of a service writes to a file or to a local socket, not to {other}: use \
             `access_log = \"syslog\"`, and configure the syslog daemon to forward the messages"
        )),
    }
}

/// Returns the facility and the least important level of a `log` line.
fn facility_and_level(line: &Line) -> (Option<&str>, Option<&str>) {
    let mut words = line.words.iter().skip(2).map(String::as_str);
    let facility = loop {
        match words.next() {
            Some("len" | "format" | "sample" | "profile") => {
                words.next();
            }
            word => break word,
        }
    };
    (facility, words.next())
}

/// Adds remarks about the messages that differ from haproxy's.
fn note_differences(line: &Line, notes: &mut Notes) {
    let is_syslog = line.word(1).is_some_and(|word| word.contains('/'));
    let (facility, _) = facility_and_level(line);
    if is_syslog && facility.is_some_and(|it| it != "local0") {
        notes.remark(
            line.position,
            "`access_log` writes to syslog with the facility local0",
        );
    }
    if line.words.iter().any(|word| word == "sample") {
        notes.remark(
            line.position,
            "sample is not imported: see `sample` of `access_log`",
        );
    }
}

/// Converts `log-format` to a template.
///
/// # Errors
/// Returns why the format has no equivalent.
fn convert_format(line: &Line) -> Result<String, String> {
    let (words, _) = condition(line.arguments());
    let [text] = words else {
        return Err("haproxy requires one argument".to_owned());
    };
    if has_variable(&text.replace("%{", "")) {
        return Err("a name in braces is a variable in `format` of `access_log`".to_owned());
    }
    let mut format = String::new();
    let mut parts = text.split('%');
    format.push_str(parts.next().unwrap_or_default());
    while let Some(part) = parts.next() {
        if part.is_empty() {
            // `%%` is a percent sign.
            format.push('%');
            format.push_str(parts.next().unwrap_or_default());
            continue;
        }
        let (is_quoted, part) = match part.strip_prefix("{+Q}") {
            Some(part) => (true, part),
            None => (false, part),
        };
        let (name, tail) = split_name(part);
        let value = variable(name).ok_or_else(|| {
            format!("`format` of `access_log` has no equivalent for %{name}; the default format is used instead")
        })?;
        let quote = if is_quoted { "\"" } else { "" };
        format.push_str(&format!("{quote}{value}{quote}{tail}"));
    }
    Ok(format)
}

/// Splits the name of a variable, `[…]` or letters, from the text after it.
fn split_name(text: &str) -> (&str, &str) {
    let end = match text.starts_with('[') {
        true => text.find(']').map(|index| index + 1),
        false => text.find(|c: char| !c.is_ascii_alphabetic()),
    };
    text.split_at(end.unwrap_or(text.len()))
}

/// Returns Weir's equivalent of a log format variable.
fn variable(name: &str) -> Option<String> {
    let field = name
        .strip_prefix("[req.hdr(")
        .or(name.strip_prefix("[hdr("))
        .and_then(|it| it.strip_suffix(")]"));
    if let Some(field) = field {
        return Some(format!("{{header.{field}}}"));
    }
    Some(
        match name {
            "ci" | "[src]" => "{client}",
            "cp" | "[src_port]" => "{port}",
            "t" | "tr" | "T" => "{date}",
            "f" | "ft" => "{service}",
            "b" => "{pool}",
            "s" => "{server}",
            "ST" => "{status}",
            "B" => "{bytes_out}",
            "U" => "{bytes_in}",
            "r" => "{method} {target} {version}",
            "HM" => "{method}",
            "HU" => "{target}",
            "HV" => "{version}",
            "TR" | "Tq" => "{request_ms}",
            "Tw" => "{queue_ms}",
            "Tc" => "{connect_ms}",
            "Tr" => "{response_ms}",
            "Ta" | "Tt" => "{total_ms}",
            "tsc" | "ts" => "{end}",
            "rc" => "{retries}",
            _ => return None,
        }
        .to_owned(),
    )
}

#[cfg(test)]
mod tests;
