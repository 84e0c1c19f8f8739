//! Converts a saved table into weir.toml.

use std::fmt::Write as _;

use weir_model::{Forward, Pool, Server, Service, Tunnel, TunnelChecksum, TunnelKind};

use crate::table::NO_SCHEDULER;
use crate::{
    Command, Edit, EditError, Names, Protocol, ServiceKey, Table, Timeouts, lower, parse, words,
};

/// An imported configuration, and notes about lines that were not imported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportResult {
    /// Content of weir.toml.
    pub toml: String,
    /// Notes about lines that were not imported completely, and about changed weights.
    pub notes: Vec<String>,
    /// The notes about lines that affect clients or servers, a subset of `notes`.
    pub losses: Vec<String>,
}

impl ImportResult {
    fn add_loss(&mut self, note: String) {
        self.losses.push(note.clone());
        self.notes.push(note);
    }
}

/// Imports the output of `ipvsadm -S`. Lines that begin with `#` are skipped.
pub fn import(text: &str, names: &dyn Names) -> ImportResult {
    let mut result = ImportResult::default();
    let mut table = Table::default();
    let mut timeouts = Timeouts::default();
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with('#') {
            continue;
        }
        let arguments = words(line);
        if arguments.is_empty() {
            continue;
        }
        let note = |reason: &str| format!("line {}: {}: {reason}", index + 1, line.trim());
        match parse("ipvsadm", &arguments, names) {
            Ok(Command::Edit(Edit::Zero(_))) => {
                result.notes.push(note("weir.toml contains no counters"));
            }
            Ok(Command::Edit(edit)) => {
                if let Err(reason) = apply_edit(&mut table, &mut timeouts, &edit) {
                    result.add_loss(note(&reason));
                }
            }
            Ok(_) => result.notes.push(note("no effect on weir.toml")),
            Err(exit) => result.add_loss(note(exit.stderr.trim_end())),
        }
    }
    write_timeouts(&mut result.toml, timeouts);
    // The oldest service comes first, because the file lists services in the order in which they were added.
    for entry in table.services().iter().rev() {
        let Some((service, mut pool)) = lower(entry) else {
            continue;
        };
        let name = config_name(&service.name);
        if let Some(divisor) = scale_weights(&mut pool) {
            let max = weir_model::MAX_WEIGHT;
            let note =
                format!("weights were divided by {divisor}: the maximum in weir.toml is {max}");
            result.notes.push(format!("{name}: {note}"));
        }
        if entry.service.scheduler == NO_SCHEDULER {
            let note = "no scheduler: its servers are quiesced (weight = 0)";
            result.notes.push(format!("{name}: {note}"));
        }
        if !result.toml.is_empty() {
            result.toml.push('\n');
        }
        write_pool(&mut result.toml, &name, &service, &pool);
        write_service(&mut result.toml, &name, &service);
    }
    result
}

/// Scales the weights proportionally to fit the range of weir.toml. Returns the divisor if scaling was necessary.
fn scale_weights(pool: &mut Pool) -> Option<u32> {
    let max_weight = pool.servers.iter().map(|server| server.weight).max()?;
    let divisor = max_weight.div_ceil(weir_model::MAX_WEIGHT);
    if divisor <= 1 {
        return None;
    }
    for server in &mut pool.servers {
        // Round up, because weight 0 would quiesce the server.
        server.weight = server.weight.div_ceil(divisor);
    }
    Some(divisor)
}

/// Applies an edit to the table and the timeouts.
///
/// # Errors
/// Returns a message if the kernel would reject the edit or Weir does not support it.
fn apply_edit(table: &mut Table, timeouts: &mut Timeouts, edit: &Edit) -> Result<(), String> {
    if let Edit::Timeouts(new) = edit {
        timeouts.update(new);
        return Ok(());
    }
    if let Some(ServiceKey::Address {
        protocol: Protocol::Sctp,
        ..
    }) = edit.key()
    {
        return Err("Weir does not balance SCTP".to_owned());
    }
    let result = table.apply(edit);
    result.map_err(|errno| EditError::from(errno).message(edit).to_owned())
}

/// Converts a service's name into a name that is valid in weir.toml, such as `tcp-192.0.2.10-80`.
fn config_name(name: &str) -> String {
    let name = name.strip_prefix("ipvsadm:").unwrap_or(name);
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '.';
    let mut config_name = String::new();
    for c in name.replace('*', "any").chars() {
        match c {
            c if is_allowed(c) => config_name.push(c),
            '[' | ']' => {}
            _ => config_name.push('-'),
        }
    }
    config_name
}

fn write_timeouts(text: &mut String, timeouts: Timeouts) {
    let Timeouts {
        tcp_s,
        tcp_fin_s,
        udp_s,
    } = timeouts;
    let keys = [("tcp", tcp_s), ("tcp_fin", tcp_fin_s), ("udp", udp_s)];
    for (index, (key, seconds)) in keys.iter().filter(|(_, seconds)| *seconds != 0).enumerate() {
        if index == 0 {
            text.push_str("[timeouts]\n");
        }
        let _ = writeln!(text, "{key} = \"{seconds}s\"");
    }
}

fn write_pool(text: &mut String, name: &str, service: &Service, pool: &Pool) {
    let _ = writeln!(text, "[pool.\"{name}\"]");
    if let Some(scheduler) = pool.scheduler {
        let kind = scheduler.kind;
        let flags = [
            (scheduler.flags.port, "port"),
            (scheduler.flags.fallback, "fallback"),
        ];
        let flags = flags.into_iter().filter(|(is_set, _)| *is_set);
        let flags: Vec<String> = flags
            .map(|(_, flag)| format!("\"{kind}-{flag}\""))
            .collect();
        let _ = if flags.is_empty() {
            writeln!(text, "scheduler = \"{kind}\"")
        } else {
            let flags = flags.join(", ");
            writeln!(
                text,
                "scheduler = {{ name = \"{kind}\", flags = [{flags}] }}"
            )
        };
    }
    text.push_str("servers = [\n");
    for server in &pool.servers {
        let _ = writeln!(text, "  {{ {} }},", server_keys(service, server));
    }
    text.push_str("]\n\n");
}

fn server_keys(service: &Service, server: &Server) -> String {
    let address = match (server.address, server.port) {
        (address, None) => address.to_string(),
        (std::net::IpAddr::V4(v4), Some(port)) => format!("{v4}:{port}"),
        (std::net::IpAddr::V6(v6), Some(port)) => format!("[{v6}]:{port}"),
    };
    let mut keys = format!("address = \"{address}\", weight = {}", server.weight);
    for (key, value) in [
        ("max_connections", server.max_connections),
        ("min_connections", server.min_connections),
    ] {
        if value != 0 {
            let _ = write!(keys, ", {key} = {value}");
        }
    }
    if let Some(forward) = server.forward.filter(|forward| *forward != service.forward) {
        let _ = write!(keys, ", forward = \"{forward}\"");
    }
    if let Some(tunnel) = server.tunnel.filter(|tunnel| *tunnel != Tunnel::default()) {
        let _ = write!(keys, ", tunnel = {}", tunnel_value(tunnel));
    }
    keys
}

fn tunnel_value(tunnel: Tunnel) -> String {
    let port = match tunnel.kind {
        TunnelKind::Gue => format!(", port = {}", tunnel.port),
        TunnelKind::Ipip | TunnelKind::Gre => String::new(),
    };
    let checksum = match tunnel.checksum {
        TunnelChecksum::None => String::new(),
        checksum => format!(", checksum = \"{}\"", checksum.as_str()),
    };
    format!("{{ type = \"{}\"{port}{checksum} }}", tunnel.kind)
}

fn write_service(text: &mut String, name: &str, service: &Service) {
    let listener_names = service.listener_names();
    let listen: Vec<String> = listener_names
        .iter()
        .map(|address| format!("\"{address}\""))
        .collect();
    let _ = writeln!(
        text,
        "[service.\"{name}\"]\nlisten = [{}]\nforward = \"{}\"\npool = \"{name}\"\nstrict_ipvs = true",
        listen.join(", "),
        service.forward,
    );
    if let Some(persistence) = service.persistence {
        let _ = writeln!(
            text,
            "persistence = {{ timeout = \"{}s\", netmask = {}, netmask6 = {} }}",
            persistence.timeout.as_secs(),
            persistence.netmask,
            persistence.netmask6,
        );
    }
    if service.one_packet {
        text.push_str("one_packet = true\n");
    }
}

/// Returns the most common forwarding method; of equally common ones, the first of direct, nat and tunnel. Without
/// servers, returns ipvsadm's default.
pub(crate) fn common_forward(pool: &Pool) -> Forward {
    let count = |forward: Forward| {
        let uses_forward = |server: &&Server| server.forward == Some(forward);
        pool.servers.iter().filter(uses_forward).count()
    };
    let order = [Forward::Direct, Forward::Nat, Forward::Tunnel];
    let max = order.into_iter().map(count).max().unwrap_or(0);
    let most_common = order.into_iter().find(|forward| count(*forward) == max);
    most_common.unwrap_or(Forward::Direct)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NumericNames;

    #[test]
    fn large_weights_are_scaled_proportionally() {
        let line = |last: u8, weight: u32| {
            format!("-a -t 192.0.2.10:80 -r 10.0.0.{last}:80 -g -w {weight}\n")
        };
        let text = String::from("-A -t 192.0.2.10:80 -s wrr\n")
            + &line(1, 131_070)
            + &line(2, 65_536)
            + &line(3, 1)
            + &line(4, 0);
        let result = import(&text, &NumericNames);
        assert_eq!(
            result.notes,
            ["tcp-192.0.2.10-80: weights were divided by 2: the maximum in weir.toml is 65535"]
        );
        for (last, weight) in [(1, 65_535), (2, 32_768), (3, 1), (4, 0)] {
            let server = format!("address = \"10.0.0.{last}\", weight = {weight} ");
            assert!(result.toml.contains(&server), "{}", result.toml);
        }
        let small_import = import(
            &text.replace("131070", "65535").replace("65536", "3"),
            &NumericNames,
        );
        assert!(small_import.notes.is_empty(), "{:?}", small_import.notes);
    }
}
