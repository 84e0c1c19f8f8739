//! Forwards a packet to its server by the server's forwarding method, or, with NAT, back to its client.
//!
//! All checks that can reject a packet precede any change to it.

use weir_abi::{
    Addr, CLIENT_SLOTS, DEST_LOCAL, DEST_SNAT, Dest, Forward, HOP_READY, HOP_REDIRECT, HOP_SEND,
    HOP_VLAN_KEEP, HOPS_PER_DEST, HopParts, Reason, State,
};
use weir_model::GOLDEN_64;
use weir_wire::IpProtocol;

use super::flows::{Flow, Kind};
use super::{Model, PacketContext, PacketMeta, Scheduler, Verdict};
use crate::edit::{self, Translation};
use crate::encap;
use crate::key::Tuple;
use crate::state::{self, View};

/// Returns the row of `weir_clients` for an address.
pub(super) const fn client_slot(addr: Addr) -> u32 {
    ((addr.lo ^ addr.hi).wrapping_mul(GOLDEN_64) >> 52) as u32 & (CLIENT_SLOTS - 1)
}

impl<S: Scheduler> Model<S> {
    /// Forwards a packet to the server of its flow. `entry` is the flow's tuple if the flow has an entry.
    pub(super) fn send_to_server(
        &mut self,
        ctx: &mut PacketContext,
        dest_id: u32,
        entry: Option<Tuple>,
    ) -> Verdict {
        let Some(dest) = self.config.dests.get(&dest_id).copied() else {
            return self.drop(Reason::DropInternal);
        };
        let forward = Forward::from_number(dest.forward);
        if dest.flags & DEST_LOCAL != 0 {
            self.count_in(dest_id, ctx);
            if forward == Some(Forward::Nat) && dest.addr != ctx.layout.dst {
                let translation = self.translation(ctx, &dest, entry);
                edit::translate(&mut ctx.frame, &ctx.layout, &translation);
            }
            return self.pass(Reason::PassLocalServer);
        }
        if edit::ttl(&ctx.frame, &ctx.layout) <= 1 {
            return self.reject(ctx, Reason::DropTtl, 0);
        }
        let slot = (ctx.hash >> 20) as u32 % HOPS_PER_DEST;
        let Some(hop) = self.config.hops.get(&(dest_id, slot)).copied() else {
            return self.drop(Reason::DropNoRoute);
        };
        let overhead = if forward == Some(Forward::Tunnel) {
            encap::overhead(&dest)
        } else {
            0
        };
        if let Some(rejection) = self.reject_if_too_big(ctx, &hop, overhead) {
            return rejection;
        }
        self.count_in(dest_id, ctx);
        edit::decrement_ttl(&mut ctx.frame, &ctx.layout);
        match forward {
            Some(Forward::Direct) => return self.transmit(ctx, &hop, Some(dest.addr)),
            Some(Forward::Tunnel) => {
                encap::push_headers(&mut ctx.frame, &ctx.layout, &dest, ctx.hash)
            }
            Some(Forward::Nat) => {
                let translation = self.translation(ctx, &dest, entry);
                edit::translate(&mut ctx.frame, &ctx.layout, &translation);
            }
            Some(Forward::L3dsr | Forward::Socket | Forward::None) | None => {
                if dest.dscp != 0 {
                    edit::set_dscp(&mut ctx.frame, &ctx.layout, dest.dscp);
                }
                let layout = &ctx.layout;
                let translation = Translation {
                    src: layout.src,
                    dst: dest.addr,
                    sport: layout.sport,
                    dport: layout.dport,
                };
                edit::translate(&mut ctx.frame, layout, &translation);
            }
        }
        self.transmit(ctx, &hop, None)
    }

    /// Forwards a packet from a NAT server to the client, with the VIP as source.
    pub(super) fn forward_reply(&mut self, ctx: &mut PacketContext, reverse: &Flow) -> Verdict {
        let forward = reverse
            .peer
            .and_then(|tuple| self.flows.get(&tuple).map(|flow| (tuple, *flow)));
        let Some((tuple, flow)) = forward.filter(|(_, flow)| flow.kind == Kind::Forward) else {
            return self.pass(Reason::PassNoFlow);
        };
        if self.is_expired(&flow, ctx.now) {
            self.release(&tuple);
            return self.pass(Reason::PassNoFlow);
        }
        let next_state = match ctx.layout.protocol {
            IpProtocol::TCP => state::next(flow.state, View::Output, ctx.layout.tcp_flags),
            _ => State::Udp,
        };
        self.advance(&tuple, next_state, ctx.now);
        if edit::ttl(&ctx.frame, &ctx.layout) <= 1 {
            return self.reject(ctx, Reason::DropTtl, 0);
        }
        let Some(hop) = self.find_client_hop(tuple.src, flow.ingress) else {
            return self.drop(Reason::DropNoRoute);
        };
        if let Some(rejection) = self.reject_if_too_big(ctx, &hop, 0) {
            return rejection;
        }
        let traffic = self.traffic.entry(reverse.dest).or_default();
        traffic.packets_out += 1;
        traffic.bytes_out += ctx.layout.ip_len as u64;
        edit::decrement_ttl(&mut ctx.frame, &ctx.layout);
        let translation = Translation {
            src: tuple.dst,
            dst: tuple.src,
            sport: tuple.dport,
            dport: tuple.sport,
        };
        edit::translate(&mut ctx.frame, &ctx.layout, &translation);
        self.transmit(ctx, &hop, None)
    }

    fn count_in(&mut self, dest: u32, ctx: &PacketContext) {
        let traffic = self.traffic.entry(dest).or_default();
        traffic.packets_in += 1;
        traffic.bytes_in += ctx.layout.ip_len as u64;
    }

    fn reject_if_too_big(
        &mut self,
        ctx: &mut PacketContext,
        hop: &HopParts,
        overhead: usize,
    ) -> Option<Verdict> {
        if hop.mtu == 0 {
            return None;
        }
        let mtu = usize::from(hop.mtu).saturating_sub(overhead);
        (ctx.layout.ip_len > mtu).then(|| self.reject(ctx, Reason::DropTooBig, mtu))
    }

    /// Returns the addresses and ports of the packet to the server, with NAT. With SNAT, the source is the destination
    /// of the server's replies.
    fn translation(&self, ctx: &PacketContext, dest: &Dest, entry: Option<Tuple>) -> Translation {
        let layout = &ctx.layout;
        let mut translation = Translation {
            src: layout.src,
            sport: layout.sport,
            dst: dest.addr,
            dport: match dest.port.get() {
                0 => layout.dport,
                port => port,
            },
        };
        let reply = entry
            .and_then(|tuple| self.flows.get(&tuple))
            .and_then(|flow| flow.peer);
        if let (true, Some(reply)) = (dest.flags & DEST_SNAT != 0, reply) {
            (translation.src, translation.sport) = (reply.dst, reply.dport);
        }
        translation
    }

    /// Returns the learned next hop of a client. Without one, returns only the device on which the first packet
    /// arrived, and the tc program resolves the next hop. Returns `None` if neither is known. If the row is for a
    /// different client, assigns it to this client.
    fn find_client_hop(&mut self, client: Addr, ingress: u32) -> Option<HopParts> {
        let row = self.clients.entry(client_slot(client)).or_default();
        if row.0 != client {
            *row = (client, HopParts::default());
        }
        if row.1 != HopParts::default() {
            return Some(row.1);
        }
        (ingress != 0).then_some(HopParts {
            ifindex: ingress,
            ..HopParts::default()
        })
    }

    fn transmit(
        &mut self,
        ctx: &mut PacketContext,
        hop: &HopParts,
        next_hop: Option<Addr>,
    ) -> Verdict {
        if hop.flags & (HOP_READY | HOP_SEND) != HOP_READY | HOP_SEND {
            self.count_reason(Reason::PassToTc);
            return Verdict::ToTc(PacketMeta {
                ifindex: hop.ifindex,
                next_hop,
            });
        }
        if hop.vlan != HOP_VLAN_KEEP && (hop.vlan != 0 || ctx.layout.is_tagged()) {
            edit::retag(&mut ctx.frame, hop.vlan);
        }
        edit::set_macs(&mut ctx.frame, hop.dmac, hop.smac);
        if hop.ifindex == self.config.ingress && hop.flags & HOP_REDIRECT == 0 {
            Verdict::Tx
        } else {
            Verdict::Redirect(hop.ifindex)
        }
    }
}
