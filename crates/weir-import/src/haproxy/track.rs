//! Converts `server … track BACKEND/SERVER`.
//!
//! The tracking server gets the check of the tracked server, and this check probes the tracked server.

use super::Context;
use super::line::Line;
use super::server::{Options, ServerScope, is_host_name, resolve_address};
use crate::document::Entry;
use crate::note::{Notes, Position};
use crate::probe::Probe;

/// Maximum length of a chain of tracking servers.
const MAX_CHAIN: usize = 16;

impl ServerScope<'_> {
    /// Returns the checks of one server. A server that tracks another server has the checks of the tracked server.
    pub(super) fn probes(
        &self,
        context: &mut Context<'_>,
        options: &Options,
        line: &Line,
        notes: &mut Notes,
    ) -> Vec<Probe> {
        let Some((_, position)) = &options.track else {
            return self
                .checks
                .for_server(context, options, self.proxy, line, notes);
        };
        match tracked_probes(context, self, (options, line), notes) {
            Ok(probes) => {
                let reason = "imported as the checks of the tracked server; `weir server` changes the state of one \
                              server only";
                notes.remark(*position, reason);
                probes
            }
            Err(reason) => {
                notes.add(*position, format!("track is not imported: {reason}"));
                Vec::new()
            }
        }
    }
}

/// Returns the checks of the tracked server, with its address and port. `scope` is the scope of the tracking server.
///
/// # Errors
/// Returns why the checks cannot be imported.
fn tracked_probes(
    context: &mut Context<'_>,
    scope: &ServerScope<'_>,
    (options, line): (&Options, &Line),
    notes: &mut Notes,
) -> Result<Vec<Probe>, String> {
    let mut sections = vec![scope.proxy.name.as_str()];
    let mut name = options.track.clone();
    for _ in 0..MAX_CHAIN {
        let Some((target, position)) = name.take() else {
            break;
        };
        let section = sections.last().copied().unwrap_or_default();
        let (section, server) = target.split_once('/').unwrap_or((section, &target));
        let mut proxies = scope.sections.iter().filter(|proxy| proxy.is_backend);
        let proxy = proxies
            .find(|proxy| proxy.name == section)
            .ok_or_else(|| format!("the backend `{section}` is not defined"))?;
        let mut lines = proxy.lines.iter();
        let is_server = |it: &&Line| it.keyword() == "server" && it.word(1) == Some(server);
        let tracked = lines
            .find(is_server)
            .ok_or_else(|| format!("the server `{target}` is not defined"))?;
        sections.push(&proxy.name);
        let tracked_scope = ServerScope::read(context, proxy, scope.sections, notes);
        let mut tracked_options = tracked_scope.default_options.clone();
        let words = tracked.words.get(3..).unwrap_or_default();
        tracked_options.read(words, tracked, notes);
        if tracked_options.track.is_some() {
            name = tracked_options.track.clone();
            continue;
        }
        if tracked_options.check.is_none() && tracked_options.agent.is_none() {
            return Err(format!(
                "{target} has no check, and haproxy rejects the line"
            ));
        }
        let mut probes =
            tracked_scope
                .checks
                .for_server(context, &tracked_options, proxy, tracked, notes);
        let (own, other) = (line.word(2), tracked.word(2));
        for probe in &mut probes {
            set_target(context, probe, (own, other), position)?;
        }
        return Ok(probes);
    }
    Err("the servers track each other, and haproxy rejects the line".to_owned())
}

/// Adds the address and the port of the tracked server, `other`, to a check of the server `own`. `position` is the
/// line with `track`.
fn set_target(
    context: &Context<'_>,
    probe: &mut Probe,
    (own, other): (Option<&str>, Option<&str>),
    position: Position,
) -> Result<(), String> {
    let (own, other) = (own.unwrap_or_default(), other.unwrap_or_default());
    let (own_host, _) = split_port(own);
    let (other_host, other_port) = split_port(other);
    if probe.kind() == "script" && own != other {
        return Err("a program checks only its own server".to_owned());
    }
    let is_same_host = own_host == other_host;
    if !is_same_host && !probe.has("address") {
        if is_host_name(other) {
            return Err(format!(
                "{other_host} is a name, but a check's `address` accepts only an address"
            ));
        }
        let address = resolve_address(context, other_host)?;
        let is_ip = address.parse::<std::net::IpAddr>().is_ok();
        if !is_ip {
            return Err(format!("a check's `address` cannot be {other_host}"));
        }
        probe.push(Entry::new("address", address, position));
    }
    if !probe.has("port") && own != other {
        let port = other_port
            .parse::<u64>()
            .map_err(|_| "the port of the tracked server is unknown".to_owned())?;
        probe.push(Entry::new("port", port, position));
    }
    Ok(())
}

/// Splits the address of a `server` into the host and the port.
fn split_port(text: &str) -> (&str, &str) {
    match text.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, port),
        _ => (text, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_follows_the_last_colon_of_an_address() {
        for (text, expected) in [
            ("10.0.0.5:80", ("10.0.0.5", "80")),
            ("a.example", ("a.example", "")),
            ("[fd00::1]:80", ("[fd00::1]", "80")),
            ("fd00::1", ("fd00::1", "")),
        ] {
            assert_eq!(split_port(text), expected);
        }
    }
}
