//! Fragments IP packets, like a router (RFC 791) or an IPv6 source (RFC 8200 section 4.5).

use crate::bytes::{put, tail, u8_at};
use crate::error::{Layer, ParseError};
use crate::ipv4::{Ipv4Fragment, Ipv4Header, Ipv4View};
use crate::ipv6::extension::{Extension, FragmentHeader, Ipv6Chain};
use crate::ipv6::{Ipv6Header, Ipv6View};
use crate::options::HeaderOptions;
use crate::protocol::{EtherType, IpProtocol};

/// Fragments `packet` into IP packets of at most `mtu` bytes, in order. If the packet fits, returns only the packet
/// itself.
///
/// The fragments have the identification `id`; IPv4 uses its lower half. An IPv4 fragment can be fragmented again.
///
/// # Errors
/// Returns the errors of the views, and [`ParseError::NotFragmentable`] if DF is set, if fewer than eight bytes of
/// data fit into the MTU, or if an IPv6 packet is already a fragment.
pub fn fragment(packet: &[u8], mtu: usize, id: u32) -> Result<Vec<Vec<u8>>, ParseError> {
    match EtherType::for_ip_packet(packet) {
        Some(EtherType::IPV6) => fragment_v6(Ipv6View::new(packet)?, packet, mtu, id),
        _ => fragment_v4(Ipv4View::new(packet)?, packet, mtu, id),
    }
}

/// Returns the number of data bytes in each fragment except the last.
fn max_data_len(layer: Layer, mtu: usize, header_len: usize) -> Result<usize, ParseError> {
    match mtu.saturating_sub(header_len) & !7 {
        0 => Err(ParseError::NotFragmentable { layer, mtu }),
        max_data_len => Ok(max_data_len),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "IPv4 uses the lower half of the identification"
)]
fn fragment_v4(
    view: Ipv4View<'_>,
    packet: &[u8],
    mtu: usize,
    id: u32,
) -> Result<Vec<Vec<u8>>, ParseError> {
    if view.total_len() <= mtu {
        return Ok(vec![packet.to_vec()]);
    }
    let original = view.header();
    if original.dont_fragment {
        return Err(ParseError::NotFragmentable {
            layer: Layer::Ipv4,
            mtu,
        });
    }
    let max_data_len = max_data_len(Layer::Ipv4, mtu, view.header_len())?;
    let mut parts = Vec::new();
    for (index, data) in view.payload().chunks(max_data_len).enumerate() {
        let offset = index * max_data_len;
        let is_last = offset + data.len() == view.payload().len();
        let options = if index == 0 {
            original.options
        } else {
            copied_options(&original.options)
        };
        let header = Ipv4Header {
            id: id as u16,
            fragment: Ipv4Fragment::new(
                original.fragment.offset_bytes() + offset,
                !is_last || original.fragment.more(),
            ),
            options,
            ..original.clone()
        };
        let mut fragment = Vec::new();
        header.emit(data.len(), &mut fragment);
        fragment.extend(data);
        parts.push(fragment);
    }
    Ok(parts)
}

/// Returns the options that are copied to every fragment (RFC 791): those with the highest bit set.
fn copied_options(options: &HeaderOptions) -> HeaderOptions {
    let mut copied = Vec::new();
    let mut remaining = options.as_bytes();
    while let Some(&kind) = remaining.first() {
        let len = match kind {
            0 => break,
            1 => 1,
            _ => usize::from(u8_at(remaining, 1)).max(2),
        };
        if kind & 0x80 != 0 {
            copied.extend(remaining.get(..len).unwrap_or(remaining));
        }
        remaining = tail(remaining, len);
    }
    HeaderOptions::truncated(&copied)
}

fn fragment_v6(
    view: Ipv6View<'_>,
    packet: &[u8],
    mtu: usize,
    id: u32,
) -> Result<Vec<Vec<u8>>, ParseError> {
    if Ipv6View::HEADER_LEN + view.payload_len() <= mtu {
        return Ok(vec![packet.to_vec()]);
    }
    if Ipv6Chain::parse(view.next_header(), view.payload())?
        .fragment
        .is_some()
    {
        return Err(ParseError::NotFragmentable {
            layer: Layer::Ipv6,
            mtu,
        });
    }
    let (per_fragment, fragmentable) = split_per_fragment_headers(&view);
    let max_data_len = max_data_len(
        Layer::Ipv6,
        mtu,
        Ipv6View::HEADER_LEN + per_fragment.bytes.len() + FragmentHeader::LEN,
    )?;
    let mut parts = Vec::new();
    for (index, data) in fragmentable.chunks(max_data_len).enumerate() {
        let offset = index * max_data_len;
        let more = offset + data.len() < fragmentable.len();
        let offset_bytes = u16::try_from(offset).map_err(|_| ParseError::NotFragmentable {
            layer: Layer::Ipv6,
            mtu,
        })?;
        let mut fragment = Vec::new();
        let payload_len = per_fragment.bytes.len() + FragmentHeader::LEN + data.len();
        Ipv6Header {
            next_header: per_fragment.first,
            ..view.header()
        }
        .emit(payload_len, &mut fragment);
        fragment.extend(&per_fragment.bytes);
        Extension::Fragment(FragmentHeader {
            id,
            offset_bytes,
            more,
        })
        .emit(per_fragment.next, &mut fragment);
        fragment.extend(data);
        parts.push(fragment);
    }
    Ok(parts)
}

/// The headers that are copied to every fragment. The fragment header follows them.
struct PerFragmentHeaders {
    /// The next header field of the fixed header.
    first: IpProtocol,
    bytes: Vec<u8>,
    /// The next header field of the fragment header.
    next: IpProtocol,
}

/// Splits the payload into the headers that every fragment contains (hop-by-hop and routing headers, and destination
/// options before a routing header) and the rest, which is fragmented.
fn split_per_fragment_headers<'a>(view: &Ipv6View<'a>) -> (PerFragmentHeaders, &'a [u8]) {
    let payload = view.payload();
    let (mut next, mut offset) = (view.next_header(), 0);
    let (mut copied_next, mut copied_len, mut last_copied_offset) = (next, 0, None);
    while matches!(
        next,
        IpProtocol::HOP_BY_HOP | IpProtocol::ROUTING | IpProtocol::DEST_OPTS
    ) {
        let (kind, header_offset) = (next, offset);
        next = IpProtocol(u8_at(payload, offset));
        offset += (usize::from(u8_at(payload, offset + 1)) + 1) * 8;
        if kind != IpProtocol::DEST_OPTS {
            (copied_next, copied_len, last_copied_offset) = (next, offset, Some(header_offset));
        }
    }
    let mut bytes = payload.get(..copied_len).unwrap_or_default().to_vec();
    let first = match last_copied_offset {
        Some(header_offset) => {
            put(&mut bytes, header_offset, &[IpProtocol::FRAGMENT.0]);
            view.next_header()
        }
        None => IpProtocol::FRAGMENT,
    };
    (
        PerFragmentHeaders {
            first,
            bytes,
            next: copied_next,
        },
        tail(payload, copied_len),
    )
}
