//! Handles packets without a flow: selects the service and the server, and creates entries.

use weir_abi::{
    Addr, DEST_LOCAL, DEST_SNAT, DEST_STRICT, DEVICE_REDIRECT, DEVICE_SEND, Dest, Forward,
    HOP_READY, HOP_REDIRECT, HOP_SEND, HOP_VLAN_KEEP, HopParts, Reason, SERVICE_DROP_NO_SERVER,
    SERVICE_ONE_PACKET, SETTINGS_LEARN_CLIENTS, SETTINGS_SLOPPY_TCP, State,
};
use weir_model::GOLDEN_64;
use weir_wire::{IpProtocol, TcpFlags};

use super::config::ServiceRow;
use super::flows::{Flow, Kind};
use super::{Arrival, Load, Model, PacketContext, Scheduler, Verdict, template};
use crate::key::{Tuple, scale, steer_hash};
use crate::state;

/// Maximum number of servers to try for a NAT flow if their reverse tuples are in use.
const NAT_SERVER_TRIES: u64 = 4;
/// Maximum number of spread table entries to try in each search for another NAT server.
const NAT_SERVER_PICKS: u64 = 4;
/// Maximum number of SNAT source ports to try.
const SNAT_PORT_TRIES: u32 = 16;

/// The index of a server, and the tuple of the flow's entry if there is one.
type Binding = (u32, Option<Tuple>);

/// Why no entry is created for a NAT flow.
enum NatFailure {
    Conflict,
    Rejected(Reason),
}

impl<S: Scheduler> Model<S> {
    /// Binds the packet to a server and forwards it, or drops or passes it.
    pub(super) fn bind_and_send(
        &mut self,
        ctx: &mut PacketContext,
        untracked: bool,
        rebind: bool,
    ) -> Verdict {
        match self.service_for(ctx) {
            None => self.pass(Reason::PassNotOurs),
            Some(0) if self.config.is_only_snat_source(ctx.layout.dst) => {
                self.pass(Reason::PassNotOurs)
            }
            Some(0) => self.pass(Reason::PassNoService),
            Some(service) => match self.bind(ctx, service, untracked, rebind) {
                Ok((dest, entry)) => {
                    self.store_client_hop(ctx, dest);
                    self.send_to_server(ctx, dest, entry)
                }
                Err(reason) => self.handle_unbound(ctx, service, reason),
            },
        }
    }

    fn handle_unbound(&mut self, ctx: &mut PacketContext, service: u32, reason: Reason) -> Verdict {
        let drops_packets = self
            .config
            .services
            .get(&service)
            .map_or(0, |row| row.flags)
            & SERVICE_DROP_NO_SERVER
            != 0;
        match reason {
            Reason::PassNoFlow => self.pass(reason),
            Reason::DropNoServer if !drops_packets => self.reject(ctx, Reason::RejectNoServer, 0),
            _ => self.drop(reason),
        }
    }

    fn bind(
        &mut self,
        ctx: &PacketContext,
        service: u32,
        untracked: bool,
        rebind: bool,
    ) -> Result<Binding, Reason> {
        let row = self
            .config
            .services
            .get(&service)
            .cloned()
            .unwrap_or_default();
        let tcp = ctx.layout.protocol == IpProtocol::TCP;
        let may_start_flow = !tcp || rebind || self.may_start_flow(ctx.layout.tcp_flags);
        if !row.has_extent {
            // A packet that cannot start a flow is passed with the same reason whether or not there are servers.
            return Err(if may_start_flow {
                Reason::DropNoServer
            } else {
                Reason::PassNoFlow
            });
        }
        let key = row
            .persistence
            .as_ref()
            .map(|rule| template::key(ctx, service, rule));
        if !may_start_flow {
            if !untracked && !row.depends_only_on_packet() {
                return Err(Reason::PassNoFlow);
            }
            return self.bind_untracked(ctx, &row, key, Reason::PassNoFlow, false);
        }
        let one_packet = row.flags & SERVICE_ONE_PACKET != 0 && !tcp;
        let hash = key.map_or_else(|| row.spread_hash(ctx), |key| self.key.hash(&key));
        if !one_packet && self.exceeds_entry_budget(ctx, &row, hash) {
            self.count_reason(Reason::CountSynBudget);
            return self.bind_untracked(ctx, &row, key, Reason::DropSynBudget, true);
        }
        let chosen = match (key, row.persistence) {
            (Some(key), Some(rule)) => match self.template_dest(&key, ctx.now) {
                Some(chosen) => chosen,
                None => {
                    let chosen = self.choose(ctx, service, &row, hash);
                    if self.config.dests.contains_key(&chosen)
                        && !self.add_template(key, chosen, ctx.now, rule.ticks)
                    {
                        // Without a template, the client's hash selects the same server for all its flows.
                        spread_server(&row, hash)
                    } else {
                        chosen
                    }
                }
            },
            _ => self.choose(ctx, service, &row, hash),
        };
        let dest = *self.config.dests.get(&chosen).ok_or(Reason::DropNoServer)?;
        if let Some(key) = key {
            self.use_template(&key, ctx.now, !one_packet);
        }
        if one_packet {
            return self.bind_one_packet(chosen, &dest);
        }
        let bound = self.bind_entry(ctx, &row, chosen, key);
        if let (Some(key), Err(_) | Ok((_, None))) = (key, &bound) {
            self.release_template(&key);
        }
        bound
    }

    fn bind_entry(
        &mut self,
        ctx: &PacketContext,
        row: &ServiceRow,
        chosen: u32,
        template: Option<Tuple>,
    ) -> Result<Binding, Reason> {
        let dest = *self.config.dests.get(&chosen).ok_or(Reason::DropNoServer)?;
        if is_translated(&dest, ctx) {
            return self.bind_nat(ctx, row, chosen, template);
        }
        let Some(index) = self.flows.allocate(ctx.hash) else {
            self.count_reason(Reason::CountTableFull);
            return self.bind_untracked(ctx, row, template, Reason::DropNoPlace, true);
        };
        let tuple = ctx.layout.tuple();
        let flow = Flow {
            template,
            by_template: template.is_some(),
            ..self.new_flow(ctx, chosen, &dest, index)
        };
        self.add_flow(tuple, flow);
        Ok((chosen, Some(tuple)))
    }

    /// Binds without an entry, which is not possible with source translation (SNAT).
    fn bind_one_packet(&mut self, chosen: u32, dest: &Dest) -> Result<Binding, Reason> {
        if dest.flags & DEST_SNAT != 0 {
            return Err(Reason::DropNoPlace);
        }
        self.live.entry(chosen).or_default().total += 1;
        Ok((chosen, None))
    }

    /// Returns the scheduler's server. If the flow's datagrams may have been forwarded without an entry, which NAT does
    /// not allow, returns the spread table's server, so that the flow keeps its server when it gets an entry.
    fn choose(&mut self, ctx: &PacketContext, service: u32, row: &ServiceRow, hash: u64) -> u32 {
        let keeps_flows =
            ctx.layout.protocol == IpProtocol::UDP && row.flags & SERVICE_ONE_PACKET == 0;
        if keeps_flows && self.is_untracked(ctx) && !self.is_spread_translated(hash, row) {
            return spread_server(row, hash);
        }
        let live = &self.live;
        let load = |index: u32| {
            let live = live.get(&index).copied().unwrap_or_default();
            Load {
                active: live.active,
                inactive: live.inactive,
                overloaded: live.overloaded != 0,
            }
        };
        let arrival = Arrival {
            tuple: &ctx.layout.tuple(),
            hash: row.spread_hash(ctx),
            now: ctx.now,
        };
        self.scheduler.choose(service, &arrival, &load).unwrap_or(0)
    }

    /// Returns whether a TCP packet may start a flow: SYN without RST, or with `sloppy_tcp` any packet without RST.
    fn may_start_flow(&self, flags: TcpFlags) -> bool {
        let sloppy = self.config.settings.flags & SETTINGS_SLOPPY_TCP != 0;
        (sloppy || flags.contains(TcpFlags::SYN)) && !flags.contains(TcpFlags::RST)
    }

    /// Binds without an entry, with the spread table: each packet of the flow selects the same server. This is not
    /// possible with NAT, because replies need an entry.
    fn bind_untracked(
        &mut self,
        ctx: &PacketContext,
        row: &ServiceRow,
        template: Option<Tuple>,
        nat_reason: Reason,
        may_start_flow: bool,
    ) -> Result<Binding, Reason> {
        let chosen = match template {
            None => spread_server(row, row.spread_hash(ctx)),
            Some(key) => match self.template_dest(&key, ctx.now) {
                Some(chosen) => chosen,
                None => spread_server(row, self.key.hash(&key)),
            },
        };
        let dest = *self.config.dests.get(&chosen).ok_or(Reason::DropNoServer)?;
        if dest.forward == Forward::Nat as u8 {
            return Err(nat_reason);
        }
        if may_start_flow {
            self.mark_untracked(ctx);
            self.live.entry(chosen).or_default().stateless += 1;
        }
        self.count_reason(Reason::CountUntracked);
        Ok((chosen, None))
    }

    fn new_flow(&self, ctx: &PacketContext, chosen: u32, dest: &Dest, index: u32) -> Flow {
        let state = match ctx.layout.protocol {
            IpProtocol::TCP => state::initial(ctx.layout.tcp_flags),
            _ => State::Udp,
        };
        Flow {
            kind: Kind::Forward,
            dest: chosen,
            index,
            state,
            active: match state {
                State::Udp => dest.flags & DEST_STRICT == 0,
                _ => state::is_active(state),
            },
            one_sided: dest.forward != Forward::Nat as u8,
            seen: ctx.now,
            peer: None,
            ingress: self.origin(ctx),
            template: None,
            by_template: false,
            flow_count: 0,
            ticks: 0,
        }
    }

    fn add_flow(&mut self, tuple: Tuple, flow: Flow) {
        self.count_new_flow(flow.dest, flow.active);
        self.count_syn(flow.dest, flow.state);
        self.flows.insert(tuple, flow);
    }

    /// Binds to the scheduler's server, or to a different server of the spread table if the reverse tuple is in use.
    fn bind_nat(
        &mut self,
        ctx: &PacketContext,
        row: &ServiceRow,
        first: u32,
        template: Option<Tuple>,
    ) -> Result<Binding, Reason> {
        let mut chosen = first;
        for attempt in 1..=NAT_SERVER_TRIES {
            match self.bind_nat_to(ctx, row, chosen, template) {
                Ok(bound) => return Ok(bound),
                Err(NatFailure::Rejected(reason)) => return Err(reason),
                Err(NatFailure::Conflict) => {
                    let Some(other) = self.find_other_nat_server(ctx, row, attempt) else {
                        break;
                    };
                    chosen = other;
                }
            }
        }
        Err(Reason::DropNatConflict)
    }

    /// Selects another NAT server. The spread table can also contain servers with other forwarding methods.
    fn find_other_nat_server(
        &self,
        ctx: &PacketContext,
        row: &ServiceRow,
        attempt: u64,
    ) -> Option<u32> {
        (0..NAT_SERVER_PICKS)
            .map(|pick| {
                let step = (attempt * NAT_SERVER_PICKS + pick).wrapping_mul(GOLDEN_64);
                spread_server(row, ctx.hash.wrapping_add(step))
            })
            .find(|chosen| {
                let dest = self.config.dests.get(chosen);
                dest.is_some_and(|dest| is_translated(dest, ctx))
            })
    }

    fn bind_nat_to(
        &mut self,
        ctx: &PacketContext,
        row: &ServiceRow,
        chosen: u32,
        template: Option<Tuple>,
    ) -> Result<Binding, NatFailure> {
        let no_slot = || NatFailure::Rejected(Reason::DropNoPlace);
        let dest = *self.config.dests.get(&chosen).ok_or_else(no_slot)?;
        let tuple = ctx.layout.tuple();
        let to_client = Tuple {
            src: dest.addr,
            sport: match dest.port.get() {
                0 => tuple.dport,
                port => port,
            },
            dst: tuple.src,
            dport: tuple.sport,
            ..tuple
        };
        let reply = if dest.flags & DEST_SNAT == 0 {
            self.claim_reply(to_client, ctx.now, state::allows_reuse)
                .ok_or(NatFailure::Conflict)?
        } else {
            self.find_snat_reply(ctx, row, to_client)?
        };
        let reverse = self
            .flows
            .allocate(self.key.hash(&reply))
            .ok_or_else(no_slot)?;
        let Some(index) = self.flows.allocate(ctx.hash) else {
            self.flows.free(reverse);
            return Err(no_slot());
        };
        let flow = Flow {
            peer: Some(reply),
            template,
            by_template: template.is_some(),
            ..self.new_flow(ctx, chosen, &dest, index)
        };
        self.add_flow(tuple, flow);
        self.flows.insert(
            reply,
            Flow {
                kind: Kind::Reverse,
                index: reverse,
                peer: Some(tuple),
                ..flow
            },
        );
        Ok((chosen, Some(tuple)))
    }

    /// Returns `reply` if no flow uses this tuple. First removes a flow that uses the tuple if the flow has expired or
    /// its state allows reuse.
    fn claim_reply(
        &mut self,
        reply: Tuple,
        now: u32,
        allows_reuse: impl Fn(State) -> bool,
    ) -> Option<Tuple> {
        let forward_tuple = self.flows.get(&reply).and_then(|flow| match flow.kind {
            Kind::Reverse => flow.peer,
            Kind::Forward | Kind::Template => None,
        });
        if let Some(forward) = forward_tuple
            && self
                .flows
                .get(&forward)
                .is_some_and(|flow| self.is_expired(flow, now) || allows_reuse(flow.state))
        {
            self.release(&forward);
        }
        (!self.flows.contains(&reply)).then_some(reply)
    }

    /// Searches for an unused source address and port, starting at a point that the hash selects.
    fn find_snat_reply(
        &mut self,
        ctx: &PacketContext,
        row: &ServiceRow,
        to_client: Tuple,
    ) -> Result<Tuple, NatFailure> {
        let (first, last) = row.snat_ports;
        if row.snat_addresses.is_empty() || last < first {
            return Err(NatFailure::Rejected(Reason::DropNoPlace));
        }
        let span = u32::from(last - first) + 1;
        for step in 0..SNAT_PORT_TRIES {
            let point = ((ctx.hash >> 8) as u32).wrapping_add(step.wrapping_mul(0x9e37_79b1));
            let address = (point >> 16) as usize % row.snat_addresses.len();
            let port = u64::from(point.wrapping_mul(0x85eb_ca6b)) << 32;
            let candidate = Tuple {
                dst: row
                    .snat_addresses
                    .get(address)
                    .copied()
                    .unwrap_or(Addr::ZERO),
                dport: first.wrapping_add(scale(port, span) as u16),
                ..to_client
            };
            if let Some(reply) = self.claim_reply(candidate, ctx.now, |_| false) {
                return Ok(reply);
            }
        }
        Err(NatFailure::Rejected(Reason::DropSnatExhausted))
    }

    /// Takes a NAT client's next hop from its packet and stores it, if client learning is enabled.
    fn store_client_hop(&mut self, ctx: &PacketContext, dest: u32) {
        let nat = self
            .config
            .dests
            .get(&dest)
            .is_some_and(|dest| dest.forward == Forward::Nat as u8);
        let learns = self.config.settings.flags & SETTINGS_LEARN_CLIENTS != 0;
        if !nat || !learns || self.is_mark_ingress() {
            return;
        }
        let mac = |offset: usize| {
            core::array::from_fn(|index| ctx.frame.get(offset + index).copied().unwrap_or(0))
        };
        let hop = HopParts {
            ifindex: self.config.ingress,
            flags: HOP_READY | self.hop_flags(self.config.ingress),
            dmac: mac(6),
            smac: mac(0),
            vlan: HOP_VLAN_KEEP,
            ..HopParts::default()
        };
        let client = ctx.layout.src;
        self.clients
            .insert(super::forward::client_slot(client), (client, hop));
    }

    /// Returns the flags that a next hop inherits from its device.
    fn hop_flags(&self, ifindex: u32) -> u8 {
        let flags = self
            .config
            .devices
            .get(&ifindex)
            .map_or(0, |device| device.flags);
        let flag = |device_flag: u32, hop_flag: u8| {
            if flags & device_flag != 0 {
                hop_flag
            } else {
                0
            }
        };
        flag(DEVICE_SEND, HOP_SEND) | flag(DEVICE_REDIRECT, HOP_REDIRECT)
    }
}

/// Returns whether flows to a server are translated. A local server with the VIP's address receives packets unchanged.
fn is_translated(dest: &Dest, ctx: &PacketContext) -> bool {
    let is_local_vip = dest.flags & DEST_LOCAL != 0 && dest.addr == ctx.layout.dst;
    dest.forward == Forward::Nat as u8 && !is_local_vip
}

impl ServiceRow {
    /// Returns whether the choice of a server depends only on the packet, so that all directors with the same servers
    /// make the same choice.
    fn depends_only_on_packet(&self) -> bool {
        self.hashed && self.persistence.is_none()
    }

    /// Returns the hash for the spread table, for a client without persistence.
    pub(super) fn spread_hash(&self, ctx: &PacketContext) -> u64 {
        if self.depends_only_on_packet() {
            steer_hash(&ctx.layout.tuple())
        } else {
            ctx.hash
        }
    }
}

/// Returns the spread table's server for a hash; 0 = none.
pub(super) fn spread_server(row: &ServiceRow, hash: u64) -> u32 {
    let length = u32::try_from(row.spread.len()).unwrap_or(u32::MAX);
    row.spread
        .get(scale(hash, length) as usize)
        .copied()
        .unwrap_or(0)
}
