//! Implements persistence: a flow table entry stores the server of a client, like an IPVS connection template.
//!
//! Each new flow of the client restarts the entry's timeout. If the entry expires while flows of the client are live,
//! the timeout is extended by a minute (net/netfilter/ipvs/ip_vs_core.c, `ip_vs_sched_persist`; ip_vs_conn.c,
//! `ip_vs_conn_expire`).

use core::net::{Ipv4Addr, Ipv6Addr};

use weir_abi::{
    Addr, POLICY_PERSISTENT, PROTO_TEMPLATE, Reason, State, TEMPLATE_PORT, TEMPLATE_SERVICE,
};

use super::config::Persistence;
use super::flows::{Flow, Kind};
use super::{Model, PacketContext, Scheduler};
use crate::family::Family;
use crate::key::Tuple;

/// Extension of an expired template with live flows: one minute, in ticks.
const EXTRA_TICKS: u32 = 56;

/// Returns the network of an address: the first `bits` of its 128-bit form.
fn network(addr: Addr, bits: u32) -> Addr {
    let address_bits = u128::from_be_bytes(addr.octets());
    let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
    Addr::from_octets((address_bits & mask).to_be_bytes())
}

/// Returns the tuple of the template for a packet's client.
pub(super) fn key(ctx: &PacketContext, service: u32, rule: &Persistence) -> Tuple {
    let layout = &ctx.layout;
    let (bits, service_address) = match layout.family {
        Family::V4 => {
            let address = Ipv4Addr::from_bits(service);
            (96 + u32::from(rule.prefix4), address.into())
        }
        Family::V6 => {
            let address = Ipv6Addr::from_bits(service.into());
            (u32::from(rule.prefix6), address.into())
        }
    };
    let src = network(layout.src, bits);
    let is_for_service = rule.scope == TEMPLATE_SERVICE;
    Tuple {
        src,
        dst: if is_for_service {
            service_address
        } else {
            layout.dst
        },
        sport: 0,
        dport: if rule.scope == TEMPLATE_PORT {
            layout.dport
        } else {
            0
        },
        protocol: PROTO_TEMPLATE | if is_for_service { 0 } else { layout.protocol.0 },
        family: layout.family,
    }
}

impl<S: Scheduler> Model<S> {
    /// Returns the server of the client's template. Removes the template if it has expired without live flows, or if
    /// its server may no longer be used.
    pub(super) fn template_dest(&mut self, key: &Tuple, now: u32) -> Option<u32> {
        let template = self.flows.get(key).copied()?;
        let dest = self.config.dests.get(&template.dest);
        let is_allowed = dest.is_some_and(|dest| dest.policy & POLICY_PERSISTENT != 0);
        if !is_allowed || (self.is_expired(&template, now) && template.flow_count == 0) {
            self.release(key);
            return None;
        }
        Some(template.dest)
    }

    /// Adds a template. Returns false if no slot is free.
    pub(super) fn add_template(&mut self, key: Tuple, dest: u32, now: u32, ticks: u32) -> bool {
        let Some(index) = self.flows.allocate(self.key.hash(&key)) else {
            self.count_reason(Reason::CountTableFull);
            return false;
        };
        let template = Flow {
            kind: Kind::Template,
            dest,
            index,
            state: State::None,
            active: false,
            one_sided: false,
            seen: now,
            peer: None,
            ingress: 0,
            template: None,
            by_template: false,
            flow_count: 0,
            ticks,
        };
        self.live.entry(dest).or_default().persistent += 1;
        self.flows.insert(key, template);
        true
    }

    /// Records another flow that uses the template. If `counted`, the template is extended while the flow is live.
    pub(super) fn use_template(&mut self, key: &Tuple, now: u32, counted: bool) {
        if let Some(template) = self.flows.get_mut(key) {
            template.seen = now;
            template.flow_count += u32::from(counted);
        }
    }

    /// Reverts `use_template` for a flow that gets no entry.
    pub(super) fn release_template(&mut self, key: &Tuple) {
        if let Some(template) = self.flows.get_mut(key) {
            template.flow_count = template.flow_count.saturating_sub(1);
        }
    }

    /// Extends an expired template that has live flows, otherwise removes it.
    pub(super) fn expire_template(&mut self, key: &Tuple, now: u32) {
        match self.flows.get_mut(key) {
            Some(template) if template.flow_count > 0 => {
                template.seen = now;
                template.ticks = EXTRA_TICKS;
            }
            _ => self.release(key),
        }
    }
}

#[cfg(test)]
mod tests {
    use core::net::IpAddr;

    use super::*;

    #[test]
    fn network_keeps_only_the_prefix() {
        let addr = |text: &str| Addr::from(text.parse::<IpAddr>().unwrap());
        let cases = [
            ("198.51.100.77", 96 + 32, "198.51.100.77"),
            ("198.51.100.77", 96 + 24, "198.51.100.0"),
            ("198.51.100.77", 96 + 26, "198.51.100.64"),
            ("198.51.100.77", 96 + 1, "128.0.0.0"),
            ("2001:db8:1:2:3:4:5:6", 128, "2001:db8:1:2:3:4:5:6"),
            ("2001:db8:1:2:3:4:5:6", 64, "2001:db8:1:2::"),
            ("2001:db8:1:2:3:4:5:6", 65, "2001:db8:1:2::"),
            ("2001:db8:1:2:8000:4:5:6", 65, "2001:db8:1:2:8000::"),
            ("2001:db8:1:2:3:4:5:6", 33, "2001:db8::"),
        ];
        for (address, bits, expected) in cases {
            assert_eq!(
                network(addr(address), bits),
                addr(expected),
                "{address}/{bits}"
            );
        }
    }
}
