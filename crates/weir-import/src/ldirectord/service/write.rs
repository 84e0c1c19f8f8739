//! Writes a parsed virtual service.

use std::collections::HashSet;
use std::net::IpAddr;

use weir_model::Forward;

use super::{Section, Target};
use crate::Environment;
use crate::document::{Entry, visit_positions};
use crate::layer4::{
    Method, Persistence, Positioned, RealServer, VirtualService, Writer, listener, mark_listener,
    mask_length, service_name,
};
use crate::ldirectord::check::{CheckKind, check, maintenance_check};
use crate::ldirectord::global::Globals;
use crate::ldirectord::note_fatal;
use crate::ldirectord::real::{
    Fallback, RealLine, parse_address, parse_fallback, parse_port, parse_real,
};
use crate::note::{Notes, Position};

impl Section {
    /// Returns the servers of a `pingpong_master` service, and their ports.
    pub(in crate::ldirectord) fn masters(
        &self,
        environment: &dyn Environment,
    ) -> Vec<(IpAddr, u16)> {
        let service = self.service.as_ref();
        if service.is_none_or(|(service, _)| service != "pingpong_master") {
            return Vec::new();
        }
        let lines = self.real_servers.iter();
        let lines = lines.filter_map(|(value, _)| parse_real(value, self.ipv6, environment).ok());
        lines
            .filter(|line| line.port != 0)
            .flat_map(|line| line.addresses.into_iter().map(move |it| (it, line.port)))
            .collect()
    }

    /// Writes the service, its pool and its checks.
    pub(in crate::ldirectord) fn write(
        self,
        writer: &mut Writer,
        globals: &Globals,
        seen: &mut HashSet<String>,
        environment: &dyn Environment,
        notes: &mut Notes,
    ) {
        let Some((listen, address, port)) = self.listener_and_address(environment, notes) else {
            return self.reject_all(notes);
        };
        if !seen.insert(listen.clone()) {
            note_fatal(notes, self.position, "duplicate virtual service");
            return self.reject_all(notes);
        }
        let mut real_servers = Vec::new();
        for (value, position) in &self.real_servers {
            match parse_real(value, self.ipv6, environment) {
                Ok(line) => real_servers
                    .extend(self.real_servers_of(&line, *position, globals, address, port, notes)),
                Err(reason) => note_fatal(notes, *position, &reason),
            }
        }
        self.note_unknown_service(notes);
        self.note_unused(&real_servers, globals, notes);
        let command = self.fallback_command(globals, &listen);
        let method = service_method(&real_servers);
        for real in &mut real_servers {
            real.method = real.method.filter(|(own, _)| *own != method);
        }
        let sorry = self.sorry_server(globals, method, port, environment, notes);
        let name = service_name(&listen);
        let (scheduler, scheduler_position) = match &self.scheduler {
            Some((name, position)) => (name.clone(), Some(*position)),
            None => ("wrr".to_owned(), None),
        };
        let one_packet = self.ops.filter(|position| {
            let is_udp = self.protocol_name() == "udp";
            if !is_udp {
                notes.remark(
                    *position,
                    "not imported: one-packet scheduling is possible only for UDP",
                );
            }
            is_udp
        });
        let listen_position = self
            .protocol
            .map_or(self.position, |(_, position)| position);
        let spec = VirtualService {
            position: self.position,
            name,
            listen: vec![(listen, listen_position)],
            port,
            method: Positioned::implied(method),
            scheduler: Positioned {
                value: scheduler,
                position: scheduler_position,
            },
            persistent: self.persistence(notes),
            one_packet,
            flags: self.flags.clone(),
            real_servers,
            sorry,
            quorum: None,
            hysteresis: None,
            lines: self.lines.clone(),
        };
        let pool = writer.write(spec, notes);
        if let Some(entry) = command {
            let mut tables = writer.document.tables.iter_mut();
            if let Some(table) = tables.find(|it| it.path == ["pool", pool.as_str()]) {
                table.push(entry);
            }
        }
        let mail = globals.mail.for_service(&self.mail, pool);
        writer.mails.extend(mail);
    }

    /// Returns the listener, its address and its port; the address of a firewall mark is `None`.
    fn listener_and_address(
        &self,
        environment: &dyn Environment,
        notes: &mut Notes,
    ) -> Option<(String, Option<IpAddr>, u16)> {
        let (host, port_text) = match &self.target {
            Target::Mark(mark) => {
                return Some((mark_listener(*mark, self.ipv6), None, 0));
            }
            Target::Address(host, port) => (host, port),
        };
        let protocol = self.protocol_name();
        let endpoint = parse_address(host, self.ipv6, environment)
            .and_then(|address| Ok((address, parse_port(port_text, protocol, environment)?)));
        let (address, port) = match endpoint {
            Ok(endpoint) => endpoint,
            Err(reason) => {
                note_fatal(notes, self.position, &reason);
                return None;
            }
        };
        let listener_text = listener(protocol, address, port);
        Some((listener_text, Some(address), port))
    }

    /// Returns the real servers of a line.
    fn real_servers_of(
        &self,
        line: &RealLine,
        position: Position,
        globals: &Globals,
        vip: Option<IpAddr>,
        port: u16,
        notes: &mut Notes,
    ) -> Vec<RealServer> {
        let is_off = self.kind.0 == CheckKind::Off;
        let quiescent = self.quiescent.or(globals.quiescent);
        let if_set = |value: u64| (value != 0).then_some((value, position));
        let mut real_servers = Vec::new();
        for address in &line.addresses {
            let real_port = if line.port == 0 { port } else { line.port };
            let target = match (&self.target, vip) {
                (Target::Mark(mark), _) => (mark.to_string(), "-".to_owned()),
                (_, Some(vip)) => (vip.to_string(), port.to_string()),
                (_, None) => (String::new(), String::new()),
            };
            let probe = check(
                self,
                line,
                globals,
                quiescent,
                &target,
                (*address, real_port),
                position,
                notes,
            );
            let maintenance_probe = probe
                .is_some()
                .then(|| maintenance_check(self, globals, quiescent, notes))
                .flatten();
            real_servers.push(RealServer {
                position,
                address: *address,
                port: real_port,
                weight: Positioned::at(if is_off { 0 } else { line.weight }, position),
                max_connections: if_set(line.max_connections),
                min_connections: if_set(line.min_connections),
                method: Some((Method::plain(line.forward), position)),
                probes: probe.into_iter().chain(maintenance_probe).collect(),
            });
        }
        if is_off {
            notes.remark(
                position,
                "imported with weight = 0: checktype off takes the server out of service",
            );
        }
        real_servers
    }

    fn sorry_server(
        &self,
        globals: &Globals,
        method: Method,
        port: u16,
        environment: &dyn Environment,
        notes: &mut Notes,
    ) -> Option<RealServer> {
        let own_fallback =
            self.fallback.as_ref().and_then(|(value, position)| {
                match parse_fallback(value, self.ipv6, port, *position, environment) {
                    Ok(found) => Some(found),
                    Err(reason) => {
                        note_fatal(notes, *position, &reason);
                        None
                    }
                }
            });
        let global_fallback = if self.ipv6 {
            &globals.fallback6
        } else {
            &globals.fallback
        };
        let fallback: Fallback = own_fallback.or_else(|| global_fallback.clone())?;
        globals.used_lines.borrow_mut().insert(fallback.position);
        let own_method = Method::plain(fallback.forward);
        Some(RealServer {
            position: fallback.position,
            address: fallback.address,
            port: if fallback.port == 0 {
                port
            } else {
                fallback.port
            },
            weight: Positioned::implied(1),
            max_connections: None,
            min_connections: None,
            method: (own_method != method).then_some((own_method, fallback.position)),
            probes: Vec::new(),
        })
    }

    fn persistence(&self, notes: &mut Notes) -> Option<Persistence> {
        let mask = self.netmask.as_ref().and_then(|(value, position)| {
            let length = if self.ipv6 {
                value
                    .parse()
                    .ok()
                    .filter(|length| (1..=128).contains(length))
            } else {
                mask_length(value)
            };
            if length.is_none() {
                note_fatal(
                    notes,
                    *position,
                    "netmask requires a dotted mask, or an IPv6 prefix length",
                );
            } else if self.persistent.is_none() {
                notes.remark(
                    *position,
                    "not imported: it has no effect without `persistent`",
                );
            }
            length.map(|length| (length, *position))
        });
        let (seconds, persistent_position) = self.persistent?;
        if seconds == 0 {
            notes.add(
                persistent_position,
                "not imported: ipvsadm rejects a persistence of 0 seconds",
            );
            return None;
        }
        Some(Persistence {
            position: persistent_position,
            seconds: seconds.min(31 * 86_400),
            mask,
            ipv6: self.ipv6,
        })
    }

    /// Adds a note about a `service` that ldirectord does not support. This is a loss only for negotiate checks, which
    /// use the service.
    fn note_unknown_service(&self, notes: &mut Notes) {
        let Some(position) = self.unknown_service else {
            return;
        };
        match self.kind.0 {
            CheckKind::Negotiate | CheckKind::Combined => {
                note_fatal(notes, position, "unknown service");
            }
            CheckKind::Connect
            | CheckKind::Ping
            | CheckKind::External
            | CheckKind::ExternalPerl
            | CheckKind::Off
            | CheckKind::On => notes.remark(
                position,
                "not imported: ldirectord has no such service, and the checktype does not use it",
            ),
        }
    }

    /// Returns `notify` for the program that ldirectord runs when the last server fails (`start`) and when a server is
    /// up again (`stop`), with the virtual service and its protocol. A shell runs the program, as in ldirectord.
    fn fallback_command(&self, globals: &Globals, listen: &str) -> Option<Entry> {
        let own = self.fallback_command.as_ref();
        let (command, position) = own.or(globals.fallback_command.as_ref())?;
        globals.used_lines.borrow_mut().insert(*position);
        let service = match &self.target {
            Target::Mark(_) => ":0",
            Target::Address(..) => listen.strip_prefix("udp/").unwrap_or(listen),
        };
        let protocol = self.protocol_name();
        let script = format!(
            "[ -n \"$WEIR_SERVICE\" ] || case \"$WEIR_SERVER:$WEIR_FROM:$WEIR_TO\" in \
             ':up:down'|':up:below quorum') {command} start {service} {protocol} ;; \
             ':down:up'|':below quorum:up') {command} stop {service} {protocol} ;; esac"
        );
        let words = vec!["/bin/sh".to_owned(), "-c".to_owned(), script];
        Some(Entry::new("notify", words, *position))
    }

    /// Adds notes about settings that no check uses.
    fn note_unused(&self, real_servers: &[RealServer], globals: &Globals, notes: &mut Notes) {
        let mut used_positions = HashSet::new();
        for probe in real_servers.iter().flat_map(|real| &real.probes) {
            visit_positions(&probe.entries, &mut |position| {
                used_positions.insert(position);
            });
        }
        let numbers = [
            self.check_timeout,
            self.negotiate_timeout,
            self.check_interval,
            self.failure_count,
            self.port,
        ];
        let texts = [
            &self.service,
            &self.command,
            &self.request,
            &self.receive,
            &self.method,
            &self.host,
            &self.login,
            &self.passwd,
            &self.database,
            &self.secret,
        ];
        let numbers = numbers.into_iter().flatten().map(|(_, position)| position);
        let texts = texts.into_iter().flatten().map(|(_, position)| *position);
        let quiescent = self.quiescent.map(|(_, position)| position);
        for position in numbers.chain(texts).chain(quiescent) {
            if !used_positions.contains(&position) && !notes.has_note(position) {
                notes.remark(
                    position,
                    "not imported: no check of the service uses this setting",
                );
            }
        }
        globals.used_lines.borrow_mut().extend(used_positions);
    }

    /// Adds a note for each server of a service that is not imported.
    fn reject_all(&self, notes: &mut Notes) {
        for (_, position) in &self.real_servers {
            notes.add(
                *position,
                "not imported: its virtual service is not imported",
            );
        }
    }
}

/// Returns the most common forwarding method; of equally common ones, the first in the order direct, nat, tunnel.
fn service_method(real_servers: &[RealServer]) -> Method {
    let count = |forward: Forward| {
        let has_method = |real: &&RealServer| {
            real.method
                .is_some_and(|(method, _)| method.forward == forward)
        };
        real_servers.iter().filter(has_method).count()
    };
    let order = [Forward::Direct, Forward::Nat, Forward::Tunnel];
    let max = order.into_iter().map(count).max().unwrap_or(0);
    let most_common = order.into_iter().find(|forward| count(*forward) == max);
    Method::plain(most_common.unwrap_or(Forward::Direct))
}

#[cfg(test)]
mod tests;
