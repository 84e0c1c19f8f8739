//! Rejects packets: sends an ICMP error that quotes the packet, or a TCP reset, to the sender.
//!
//! The source of the response is the packet's destination address. Packets that must not trigger a response (RFC 1122
//! section 3.2.2, RFC 4443 section 2.4; resets) and packets beyond the budget are dropped. They are counted with the
//! same reason as rejected packets; only services without servers and removed servers have separate reasons for
//! rejected and dropped packets.

use core::net::{Ipv4Addr, Ipv6Addr};

use weir_abi::{Addr, DEVICE_REDIRECT, DEVICE_SEND, Reason};
use weir_wire::{IpBuilder, IpProtocol, Packet, TcpFlags};

use super::{Model, PacketContext, PacketMeta, Scheduler, Verdict};
use crate::edit;
use crate::family::Family;
use crate::parse::Layout;

/// Maximum length of the quote in an ICMPv4 error, in bytes: the error is at most 576 bytes long (RFC 1812 section
/// 4.3.2.3).
const QUOTE_MAX_V4: usize = 576 - 20 - 8;
/// Maximum length of the quote in an ICMPv6 error, in bytes: the error must fit in the minimum MTU (RFC 4443 section
/// 2.4).
const QUOTE_MAX_V6: usize = IPV6_MIN_MTU - 40 - 8;
const IPV6_MIN_MTU: usize = 1280;
/// TOS of ICMP errors: internetwork control (RFC 1812 section 4.3.2.5).
const TOS: u8 = 0xc0;

impl<S: Scheduler> Model<S> {
    /// Rejects a packet, and responds to its sender if a response is allowed. `mtu` is used only for
    /// [`Reason::DropTooBig`].
    pub(super) fn reject(
        &mut self,
        ctx: &mut PacketContext,
        reason: Reason,
        mtu: usize,
    ) -> Verdict {
        let limit = self.config.settings.reject_budget;
        let is_reset = reason == Reason::RejectRemoved && ctx.layout.protocol == IpProtocol::TCP;
        let may_respond = has_unicast_source(&ctx.layout)
            && ctx.frame.first().is_some_and(|first| first & 1 == 0)
            && !(is_reset && ctx.layout.tcp_flags.contains(TcpFlags::RST));
        if !may_respond || !self.reject_budget.take(ctx.now, limit) {
            return self.drop(match reason {
                Reason::RejectNoServer => Reason::DropNoServer,
                Reason::RejectRemoved => Reason::DropRemoved,
                other => other,
            });
        }
        self.count_reason(reason);
        let packet = if is_reset {
            build_reset(ctx)
        } else {
            build_icmp_error(ctx, reason, mtu)
        };
        ctx.frame.truncate(ctx.layout.l3);
        ctx.frame.extend(packet);
        let ingress = self.config.ingress;
        let device = self
            .config
            .devices
            .get(&ingress)
            .map_or(0, |device| device.flags);
        if device & DEVICE_SEND == 0 || self.is_mark_ingress() {
            self.count_reason(Reason::PassToTc);
            return Verdict::ToTc(PacketMeta {
                ifindex: self.origin(ctx),
                next_hop: None,
            });
        }
        let mac = |offset: usize| {
            core::array::from_fn(|index| ctx.frame.get(offset + index).copied().unwrap_or(0))
        };
        let (dst, src) = (mac(0), mac(6));
        edit::set_macs(&mut ctx.frame, src, dst);
        if device & DEVICE_REDIRECT != 0 {
            return Verdict::Redirect(ingress);
        }
        Verdict::Tx
    }
}

/// Returns whether the source is a single host: not unspecified or multicast; for IPv4, also not broadcast, "this
/// network", reserved or loopback.
fn has_unicast_source(layout: &Layout) -> bool {
    let octets = layout.src.octets();
    match layout.family {
        Family::V4 => !matches!(octets[12], 0 | 127 | 224..),
        Family::V6 => octets[0] != 0xff && !layout.src.is_zero(),
    }
}

fn build_icmp_error(ctx: &PacketContext, reason: Reason, mtu: usize) -> Vec<u8> {
    let Layout {
        family, l3, ip_len, ..
    } = ctx.layout;
    let (src, dst) = (ctx.layout.dst, ctx.layout.src);
    let (ip, quote_max, mtu) = match family {
        Family::V4 => {
            let ip = Packet::ipv4(v4(src), v4(dst)).dont_fragment();
            (IpBuilder::V4(ip), QUOTE_MAX_V4, mtu)
        }
        Family::V6 => {
            let ip = Packet::ipv6(Ipv6Addr::from(src.octets()), Ipv6Addr::from(dst.octets()));
            (IpBuilder::V6(ip), QUOTE_MAX_V6, mtu.max(IPV6_MIN_MTU))
        }
    };
    // A multiple of four bytes, so that the checksum needs no padding.
    let quoted = ip_len.min(quote_max) & !3;
    let quote = ctx.frame.get(l3..l3 + quoted).unwrap_or_default();
    let ip = ip.ttl(64).tos(TOS);
    match reason {
        Reason::DropTooBig => ip.too_big(u16::try_from(mtu).unwrap_or(u16::MAX), quote),
        Reason::DropTtl => ip.time_exceeded(quote),
        _ => ip.port_unreachable(quote),
    }
    .build()
}

/// Builds a reset that is acceptable to the sender of the segment (RFC 9293 section 3.10.7.1).
fn build_reset(ctx: &PacketContext) -> Vec<u8> {
    let layout = &ctx.layout;
    let (src, dst) = (layout.dst, layout.src);
    let ip = match layout.family {
        Family::V4 => IpBuilder::V4(Packet::ipv4(v4(src), v4(dst)).dont_fragment()),
        Family::V6 => IpBuilder::V6(Packet::ipv6(
            Ipv6Addr::from(src.octets()),
            Ipv6Addr::from(dst.octets()),
        )),
    };
    let read_u32 = |offset: usize| {
        u32::from_be_bytes(core::array::from_fn(|index| {
            ctx.frame
                .get(layout.l4 + offset + index)
                .copied()
                .unwrap_or(0)
        }))
    };
    let tcp = ip.ttl(64).tcp(layout.dport, layout.sport).window(0);
    if layout.tcp_flags.contains(TcpFlags::ACK) {
        return tcp.seq(read_u32(8)).flags(TcpFlags::RST).build();
    }
    let header_len = (read_u32(12) >> 28) as usize * 4;
    let data_len = layout.ip_len - (layout.l4 - layout.l3) - header_len;
    let control_len = u32::from(layout.tcp_flags.contains(TcpFlags::SYN))
        + u32::from(layout.tcp_flags.contains(TcpFlags::FIN));
    let next = read_u32(4)
        .wrapping_add(data_len as u32)
        .wrapping_add(control_len);
    tcp.ack_no(next)
        .flags(TcpFlags::RST | TcpFlags::ACK)
        .build()
}

fn v4(addr: Addr) -> Ipv4Addr {
    let [.., a, b, c, d] = addr.octets();
    Ipv4Addr::new(a, b, c, d)
}
