//! Converts `access_log` to the access log of a service, and to routes that disable it.

use super::Context;
use super::listen::ListenGroup;
use super::location::{BlockRoute, first_name, rejection};
use super::log_format::{COMBINED, HttpService, convert_format};
use super::tree::{Node, inherited};
use crate::document::Entry;
use crate::layer7::Action;
use crate::note::{Notes, Position};

const KEYWORD: &str = "access_log";

/// The access log of a service.
#[derive(Clone, Debug)]
pub(super) struct ServiceLog {
    pub(super) entry: Entry,
    /// The directive that configures the log.
    line: Node,
}

/// Returns the access log of the service for a group of server blocks: the first one that Weir supports, beginning with
/// the default server block.
pub(super) fn group_log(
    context: &mut Context<'_>,
    group: &ListenGroup,
    servers: &[&Node],
    outer: &[Node],
    notes: &mut Notes,
) -> Option<ServiceLog> {
    let others = group.servers.iter().copied();
    let others = others.filter(|index| *index != group.default);
    let indices = std::iter::once(group.default).chain(others);
    let blocks: Vec<&Node> = indices
        .filter_map(|index| servers.get(index).copied())
        .collect();
    let name = match blocks.as_slice() {
        [only] => first_name(only),
        _ => String::new(),
    };
    let service = HttpService {
        has_tls: group.listen[0].tls,
        name: &name,
    };
    service_log(context, &blocks, outer, Some(service), notes)
}

/// Returns the access log of a stream's service; `outer` are the directives in `stream`.
pub(super) fn stream_log(
    context: &mut Context<'_>,
    server: &Node,
    outer: &[Node],
    notes: &mut Notes,
) -> Option<Entry> {
    let log = service_log(context, &[server], outer, None, notes)?;
    Some(log.entry)
}

/// Returns the first access log of these server blocks that Weir supports; `service` is `None` for streams.
fn service_log(
    context: &mut Context<'_>,
    servers: &[&Node],
    outer: &[Node],
    service: Option<HttpService<'_>>,
    notes: &mut Notes,
) -> Option<ServiceLog> {
    let mut selected: Option<ServiceLog> = None;
    for server in servers {
        let lines = inherited(&[server.inner(), outer], KEYWORD);
        if is_off(&lines) {
            note_off(context, &lines, outer, notes);
            continue;
        }
        for line in lines {
            let Some(first) = &selected else {
                selected = convert(context, line, outer, service, notes);
                continue;
            };
            if first.line.words == line.words {
                context.used.insert(line.position);
                continue;
            }
            let number = first.line.position.line();
            notes.remark(
                line.position,
                format!(
                    "a service has only one `access_log`; requests are logged to the one on line {number}"
                ),
            );
        }
    }
    selected
}

/// Returns whether the `access_log` directives of a level disable the log, or there are none.
fn is_off(lines: &[&Node]) -> bool {
    let mut words = lines.iter().map(|line| line.word(1));
    words.clone().all(|word| word == Some("/dev/null")) || words.any(|word| word == Some("off"))
}

/// Handles the `access_log` directives of a level whose log is off. They are needed only if the outer level has a log.
fn note_off(context: &mut Context<'_>, lines: &[&Node], outer: &[Node], notes: &mut Notes) {
    let is_outer_off = is_off(&inherited(&[outer], KEYWORD));
    for line in lines {
        if is_outer_off || outer.iter().any(|it| it.position == line.position) {
            notes.remark(
                line.position,
                "not imported: the log is off, as it is in Weir by default",
            );
        } else {
            context.used.insert(line.position);
        }
    }
}

/// Converts a directive. Adds a remark and returns `None` if Weir does not support the destination.
fn convert(
    context: &mut Context<'_>,
    line: &Node,
    outer: &[Node],
    service: Option<HttpService<'_>>,
    notes: &mut Notes,
) -> Option<ServiceLog> {
    let path = match target(line.word(1).unwrap_or_default()) {
        Ok(path) => path,
        Err(reason) => {
            notes.remark(line.position, format!("not imported: {reason}"));
            return None;
        }
    };
    context.used.insert(line.position);
    note_differences(line, notes);
    let entry = match format_entry(context, line, outer, service, notes) {
        Some(format) => {
            let path = Entry::new("path", path, line.position).essential();
            Entry::new("access_log", vec![path, format], line.position)
        }
        None => Entry::new("access_log", path, line.position),
    };
    Some(ServiceLog {
        entry,
        line: line.clone(),
    })
}

/// Returns `path` of `access_log` for the destination of a directive.
///
/// # Errors
/// Returns why the destination has no equivalent.
fn target(text: &str) -> Result<String, String> {
    if let Some(parameters) = text.strip_prefix("syslog:") {
        return syslog_target(parameters);
    }
    match text {
        "" => Err("the path is missing".to_owned()),
        "/dev/stdout" | "/dev/fd/1" | "/proc/self/fd/1" => Ok("-".to_owned()),
        "/dev/stderr" | "/dev/fd/2" | "/proc/self/fd/2" => {
            Err("`access_log` can write to standard output (`-`), not to standard error".to_owned())
        }
        "/dev/null" => Err("nginx discards these lines".to_owned()),
        path if path.contains('$') => Err("the name of the file depends on the request".to_owned()),
        path if path.starts_with('/') => Ok(path.to_owned()),
        _ => Err(
            "the path is relative to nginx's prefix, which `nginx -V` shows; use an absolute path"
                .to_owned(),
        ),
    }
}

/// Returns `path` of `access_log` for the parameters of `syslog:`.
///
/// # Errors
/// Returns why the server has no equivalent.
fn syslog_target(parameters: &str) -> Result<String, String> {
    let mut parameters = parameters.split(',');
    let server = parameters
        .find_map(|it| it.strip_prefix("server="))
        .ok_or("`server` is missing")?;
    match server.strip_prefix("unix:") {
        Some("/dev/log" | "/run/systemd/journal/dev-log") => Ok("syslog".to_owned()),
        Some(path) if path.starts_with('/') => Ok(format!("syslog:{path}")),
        _ => Err(format!(
            "`access_log` of a service writes to a file or to a local socket, not to {server}: use \
             `access_log = \"syslog\"`, and configure the syslog daemon to forward the messages"
        )),
    }
}

/// Adds remarks about the properties of syslog messages, and about parameters without an equivalent.
fn note_differences(line: &Node, notes: &mut Notes) {
    if line.word(1).is_some_and(|it| it.starts_with("syslog:")) {
        notes.remark(
            line.position,
            "messages to syslog have the facility local0, the severity info and the tag weir",
        );
    }
    for word in line.words.iter().skip(3) {
        let unknown;
        let reason = match word.split('=').next().unwrap_or_default() {
            "buffer" | "flush" => {
                "`buffer` and `flush` are not imported: Weir buffers lines itself"
            }
            "gzip" => "`gzip` is not imported: Weir does not compress logs",
            "if" => "`if` is not imported: all requests are logged",
            name => {
                unknown = format!("nginx has no parameter `{name}`");
                unknown.as_str()
            }
        };
        notes.remark(line.position, reason);
    }
}

/// Returns `format` of `access_log`, or `None` for the default format.
fn format_entry(
    context: &mut Context<'_>,
    line: &Node,
    outer: &[Node],
    service: Option<HttpService<'_>>,
    notes: &mut Notes,
) -> Option<Entry> {
    let name = line.word(2).filter(|name| *name != "combined")?;
    let is_format = |node: &&Node| node.keyword() == "log_format" && node.word(1) == Some(name);
    let Some(format) = outer.iter().find(is_format) else {
        notes.remark(
            line.position,
            format!("the file has no `log_format {name}`; `combined` is used instead"),
        );
        return None;
    };
    context.used.insert(format.position);
    let converted = match service {
        Some(service) => convert_format(format, service),
        None => Err("`access_log` of a `tcp` service has its own format".to_owned()),
    };
    match converted {
        Ok((template, _)) if template == COMBINED => None,
        Ok((template, differences)) => {
            if !differences.is_empty() {
                notes.remark(format.position, differences.join("; "));
            }
            Some(Entry::new("format", template, format.position))
        }
        Err(reason) => {
            notes.remark(format.position, format!("not imported: {reason}"));
            None
        }
    }
}

/// Handles the `access_log` directives of a location. Returns the position of the one that disables the log.
pub(super) fn disabling_line(
    context: &mut Context<'_>,
    location: &Node,
    notes: &mut Notes,
) -> Option<Position> {
    let lines = inherited(&[location.inner()], KEYWORD);
    let is_off = is_off(&lines);
    for line in &lines {
        let log = context.access_log.as_ref();
        let has_same_log = log.is_some_and(|log| log.line.words == line.words);
        if has_same_log || is_off && log.is_some() {
            context.used.insert(line.position);
            continue;
        }
        let reason = match is_off {
            true => "not imported: the service has no access log",
            false => {
                "not imported: a service has only one `access_log`, and a route can only disable it"
            }
        };
        notes.remark(line.position, reason);
    }
    lines.first().filter(|_| is_off).map(|line| line.position)
}

/// Excludes the requests of routes from the access log of the service, if the service has one.
pub(super) fn disable<'r>(
    context: &Context<'_>,
    routes: impl Iterator<Item = &'r mut BlockRoute>,
    position: Position,
) {
    if context.access_log.is_none() {
        return;
    }
    for route in routes {
        let keys = &mut route.edits.keys;
        let is_restart = matches!(route.action, Action::Restart { .. });
        if !is_restart && keys.iter().all(|entry| entry.key != "access_log") {
            keys.push(Entry::new("access_log", false, position));
        }
    }
}

/// Excludes the requests of a server block from the access log of the service, if the block disables the log.
pub(super) fn disable_for_block(
    context: &Context<'_>,
    server: &Node,
    outer: &[Node],
    routes: &mut Vec<BlockRoute>,
) {
    let lines = inherited(&[server.inner(), outer], KEYWORD);
    let Some(line) = lines.first().filter(|_| is_off(&lines)) else {
        return;
    };
    if context.access_log.is_none() {
        return;
    }
    if routes.last().is_none_or(|route| !route.is_catch_all()) {
        routes.push(BlockRoute::catch_all(server.position, rejection(404)));
    }
    disable(context, routes.iter_mut(), line.position);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_become_access_log_paths() {
        for (text, expected) in [
            (
                "/var/log/nginx/access.log",
                Some("/var/log/nginx/access.log"),
            ),
            ("/dev/stdout", Some("-")),
            ("/dev/stderr", None),
            ("/var/log/nginx/$host.log", None),
            ("logs/access.log", None),
            ("syslog:server=unix:/dev/log", Some("syslog")),
            (
                "syslog:facility=local7,server=unix:/run/log,nohostname",
                Some("syslog:/run/log"),
            ),
            ("syslog:server=10.0.0.9:514,tag=web", None),
            ("syslog:tag=web", None),
            ("", None),
        ] {
            assert_eq!(target(text).ok().as_deref(), expected, "{text}");
        }
    }
}
