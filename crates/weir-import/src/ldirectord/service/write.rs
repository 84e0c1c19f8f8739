//! From a virtual service that was read to the one that is written.

use std::collections::HashSet;
use std::net::IpAddr;

use weir_model::Forward;

use super::{Section, Target};
use crate::World;
use crate::layer4::{
    Method, Persistent, Real, Said, Virtual, Writer, listener, mark_listener, mask_length, name_of,
};
use crate::ldirectord::check::{CheckKind, check};
use crate::ldirectord::fatal;
use crate::ldirectord::global::Globals;
use crate::ldirectord::real::{Fallback, RealLine, address, fallback, port, real};
use crate::note::{Notes, Place};
use crate::settle::places;

impl Section {
    /// Writes the service with its pool.
    pub(in crate::ldirectord) fn write(
        self,
        writer: &mut Writer,
        globals: &Globals,
        seen: &mut HashSet<String>,
        world: &dyn World,
        notes: &mut Notes,
    ) {
        let Some((listen, address, port)) = self.listen(world, notes) else {
            return self.refuse_all(notes);
        };
        if !seen.insert(listen.clone()) {
            fatal(notes, self.place, "it has this virtual service already");
            return self.refuse_all(notes);
        }
        let mut reals = Vec::new();
        for (value, place) in &self.reals {
            match real(value, self.ipv6, world) {
                Ok(line) => {
                    reals.extend(self.reals_of(&line, *place, globals, address, port, notes))
                }
                Err(why) => fatal(notes, *place, &why),
            }
        }
        self.unused(&reals, globals, notes);
        let method = service_method(&reals);
        for real in &mut reals {
            real.method = real.method.filter(|(own, _)| *own != method);
        }
        let sorry = self.sorry(globals, method, port, world, notes);
        let name = name_of(&listen);
        let (scheduler, scheduler_from) = match &self.scheduler {
            Some((name, place)) => (name.clone(), Some(*place)),
            None => ("wrr".to_owned(), None),
        };
        let one_packet = self.ops.filter(|place| {
            let udp = self.protocol_name() != "tcp";
            if !udp {
                notes.say(*place, "not carried over: one packet scheduling is for UDP");
            }
            udp
        });
        let listen_from = self.protocol.map_or(self.place, |(_, place)| place);
        let of = Virtual {
            from: self.place,
            name,
            listen: vec![(listen, listen_from)],
            port,
            method: Said::implied(method),
            scheduler: Said {
                value: scheduler,
                from: scheduler_from,
            },
            persistent: self.persistence(notes),
            one_packet,
            flags: self.flags.clone(),
            reals,
            sorry,
            quorum: None,
            hysteresis: None,
            lines: self.lines.clone(),
        };
        writer.write(of, notes);
    }

    /// The listener, its address and its port.
    fn listen(
        &self,
        world: &dyn World,
        notes: &mut Notes,
    ) -> Option<(String, Option<IpAddr>, u16)> {
        let (host, written) = match &self.target {
            Target::Mark(mark) => {
                return Some((mark_listener(*mark, self.ipv6), None, 0));
            }
            Target::Address(host, port) => (host, port),
        };
        let protocol = self.protocol_name();
        let found = address(host, self.ipv6, world)
            .and_then(|address| Ok((address, port(written, protocol, world)?)));
        let (address, port) = match found {
            Ok(found) => found,
            Err(why) => {
                fatal(notes, self.place, &why);
                return None;
            }
        };
        let listen = listener(protocol, address, port);
        Some((listen, Some(address), port))
    }

    fn reals_of(
        &self,
        line: &RealLine,
        place: Place,
        globals: &Globals,
        vip: Option<IpAddr>,
        port: u16,
        notes: &mut Notes,
    ) -> Vec<Real> {
        let off = self.kind.0 == CheckKind::Off;
        let quiescent = self.quiescent.or(globals.quiescent);
        let at = |value: u64| (value != 0).then_some((value, place));
        let mut reals = Vec::new();
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
                place,
                notes,
            );
            reals.push(Real {
                from: place,
                address: *address,
                port: real_port,
                weight: Said::at(if off { 0 } else { line.weight }, place),
                most: at(line.most),
                least: at(line.least),
                method: Some((Method::plain(line.forward), place)),
                probes: probe.into_iter().collect(),
            });
        }
        if off {
            notes.say(place, "checktype off keeps it out: weight = 0");
        }
        reals
    }

    fn sorry(
        &self,
        globals: &Globals,
        method: Method,
        port: u16,
        world: &dyn World,
        notes: &mut Notes,
    ) -> Option<Real> {
        let own = self.fallback.as_ref().and_then(|(value, place)| {
            match fallback(value, self.ipv6, port, *place, world) {
                Ok(found) => Some(found),
                Err(why) => {
                    fatal(notes, *place, &why);
                    None
                }
            }
        });
        let global = if self.ipv6 {
            &globals.fallback6
        } else {
            &globals.fallback
        };
        let of: Fallback = own.or_else(|| global.clone())?;
        globals.used.borrow_mut().insert(of.place);
        let own_method = Method::plain(of.forward);
        Some(Real {
            from: of.place,
            address: of.address,
            port: if of.port == 0 { port } else { of.port },
            weight: Said::implied(1),
            most: None,
            least: None,
            method: (own_method != method).then_some((own_method, of.place)),
            probes: Vec::new(),
        })
    }

    fn persistence(&self, notes: &mut Notes) -> Option<Persistent> {
        let mask = self.netmask.as_ref().and_then(|(value, place)| {
            let bits = if self.ipv6 {
                value.parse().ok().filter(|bits| (1..=128).contains(bits))
            } else {
                mask_length(value)
            };
            if bits.is_none() {
                fatal(
                    notes,
                    *place,
                    "netmask wants a dotted quad, or a prefix length of IPv6",
                );
            } else if self.persistent.is_none() {
                notes.say(
                    *place,
                    "not carried over: without `persistent` it masks nothing",
                );
            }
            bits.map(|bits| (bits, *place))
        });
        let (seconds, from) = self.persistent?;
        if seconds == 0 {
            notes.say(
                from,
                "not carried over: ipvsadm takes no persistence of 0 seconds",
            );
            return None;
        }
        Some(Persistent {
            from,
            seconds: seconds.min(31 * 86_400),
            mask,
            ipv6: self.ipv6,
        })
    }

    /// Says of everything about checks that no check has it.
    fn unused(&self, reals: &[Real], globals: &Globals, notes: &mut Notes) {
        let mut used = HashSet::new();
        for probe in reals.iter().flat_map(|real| &real.probes) {
            places(&probe.entries, &mut |place| {
                used.insert(place);
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
        ];
        let numbers = numbers.into_iter().flatten().map(|(_, place)| place);
        let texts = texts.into_iter().flatten().map(|(_, place)| *place);
        let quiescent = self.quiescent.map(|(_, place)| place);
        for place in numbers.chain(texts).chain(quiescent) {
            if !used.contains(&place) && !notes.speaks_of(place) {
                notes.say(place, "not carried over: no check here has a place for it");
            }
        }
        globals.used.borrow_mut().extend(used);
    }

    fn refuse_all(&self, notes: &mut Notes) {
        for (_, place) in &self.reals {
            notes.say(*place, "not carried over, with its virtual service");
        }
    }
}

/// The method of most servers, the first of equals.
fn service_method(reals: &[Real]) -> Method {
    let count = |forward: Forward| {
        let same = |real: &&Real| {
            real.method
                .is_some_and(|(method, _)| method.forward == forward)
        };
        reals.iter().filter(same).count()
    };
    let order = [Forward::Direct, Forward::Nat, Forward::Tunnel];
    let most = order.into_iter().map(count).max().unwrap_or(0);
    let found = order.into_iter().find(|forward| count(*forward) == most);
    Method::plain(found.unwrap_or(Forward::Direct))
}
