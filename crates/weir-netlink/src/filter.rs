//! Filters packets to this machine's addresses with an nf_tables table.
//!
//! The table has one chain at the input hook (linux/netfilter/nf_tables.h). It is created and replaced in one batch,
//! which the kernel applies atomically. Sets, limits and other hooks are not supported. Other tables are not read or
//! changed; another table can still drop a packet that this table accepts.

use std::net::IpAddr;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

use crate::exchange::messages;
use crate::{Change, Error, Netlink, Result};

/// The packets that are allowed to reach the filtered addresses; all other packets to these addresses are dropped.
/// Packets from the machine itself, neighbor discovery and ICMP errors always pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputFilter {
    /// Table name, at most 255 bytes.
    pub table: String,
    /// The filtered addresses.
    pub addresses: Vec<IpAddr>,
    /// Ports whose packets pass.
    pub allowed_ports: Vec<AllowedPorts>,
}

/// A port range on an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllowedPorts {
    /// The address.
    pub address: IpAddr,
    /// IANA protocol number.
    pub protocol: u8,
    /// First port.
    pub first: u16,
    /// Last port, inclusive.
    pub last: u16,
}

// linux/netfilter/nfnetlink.h and nf_tables.h
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const SUBSYSTEM: u16 = 10;
const NEW_TABLE: u16 = SUBSYSTEM << 8;
const DEL_TABLE: u16 = SUBSYSTEM << 8 | 2;
const NEW_CHAIN: u16 = SUBSYSTEM << 8 | 3;
const NEW_RULE: u16 = SUBSYSTEM << 8 | 6;
const REQUEST: u16 = 0x1;
const ACK: u16 = 0x4;
const CREATE: u16 = 0x400;
const APPEND: u16 = 0x800;
const NLMSG_ERROR: u16 = 2;
const NESTED: u16 = 0x8000;
const HEADER_BYTES: usize = 16;

/// Table family: both IPv4 and IPv6 (`NFPROTO_INET`).
const INET: u8 = 1;
const IPV4: u8 = 2;
const IPV6: u8 = 10;
const HOOK_LOCAL_IN: u32 = 1;
/// Runs before the tables of a firewall (`NF_IP_PRI_FILTER`, 0), so that a firewall does not log or reject packets that
/// are dropped here.
const PRIORITY: i32 = -1;
const CHAIN: &str = "input";

const META_INTERFACE: u32 = 4;
const META_FAMILY: u32 = 15;
const META_PROTOCOL: u32 = 16;
const BASE_NETWORK: u32 = 1;
const BASE_TRANSPORT: u32 = 2;
const EQUAL: u32 = 0;
const AT_MOST: u32 = 3;
const AT_LEAST: u32 = 5;
const REGISTER: u32 = 1;
const VERDICT_REGISTER: u32 = 0;
const DROP: u32 = 0;
const ACCEPT: u32 = 1;

/// The loopback interface of every namespace.
const LOOPBACK: u32 = 1;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
/// First and last ICMP type of each range that passes (IANA): destination unreachable; time exceeded and parameter
/// problem.
const ICMP_TYPES: [(u8, u8); 2] = [(3, 3), (11, 12)];
/// First and last ICMPv6 type of each range that passes: errors; neighbor solicitation and advertisement.
const ICMPV6_TYPES: [(u8, u8); 2] = [(1, 4), (135, 136)];

impl Netlink {
    /// Adds a filter. Replaces a table with the same name.
    ///
    /// # Errors
    /// Fails if the kernel has no nf_tables, or `CAP_NET_ADMIN` is missing.
    pub fn set_input_filter(&self, filter: &InputFilter) -> Result<()> {
        let request = format!("add the table {}", filter.table);
        self.run_in_namespace(|| send_batch(&request, build_batch(filter)))?
    }

    /// Removes a filter's table.
    ///
    /// # Errors
    /// Fails if the kernel has no nf_tables, or `CAP_NET_ADMIN` is missing.
    pub fn remove_input_filter(&self, table: &str) -> Result<Change> {
        let request = format!("remove the table {table}");
        let mut batch = Batch::new();
        batch.add_message(DEL_TABLE, 0, |body| body.add_text(1, table));
        match self.run_in_namespace(|| send_batch(&request, batch))? {
            Ok(()) => Ok(Change::Made),
            Err(error) if error.has_errno(Errno::NOENT) => Ok(Change::None),
            Err(error) => Err(error),
        }
    }
}

/// Sends a batch, and returns its first error.
fn send_batch(request: &str, batch: Batch) -> Result<()> {
    let request_failed = |errno: Errno| Error::request_failed(request, errno.into());
    let socket: OwnedFd = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(netlink::NETFILTER),
    )
    .map_err(|errno| Error::Socket {
        source: errno.into(),
    })?;
    let (bytes, last) = batch.finish();
    send(&socket, &bytes, SendFlags::empty()).map_err(request_failed)?;
    let mut buffer = vec![0; 16 << 10];
    loop {
        // The kernel has handled the batch when send() returns, so its replies can be read.
        let (length, _) =
            recv(&socket, buffer.as_mut_slice(), RecvFlags::DONTWAIT).map_err(request_failed)?;
        for message in messages(buffer.get(..length).unwrap_or_default()) {
            match parse_acknowledgement(message) {
                Some((_, number)) if number != 0 => {
                    return Err(request_failed(Errno::from_raw_os_error(-number)));
                }
                Some((sequence, _)) if sequence == last => return Ok(()),
                Some(_) | None => {}
            }
        }
    }
}

/// Returns the sequence number and the error of an acknowledgement.
fn parse_acknowledgement(message: &[u8]) -> Option<(u32, i32)> {
    let field =
        |offset: usize| -> Option<[u8; 4]> { message.get(offset..offset + 4)?.try_into().ok() };
    let kind = field(4).map(|bytes| u16::from_ne_bytes([bytes[0], bytes[1]]))?;
    let sequence = u32::from_ne_bytes(field(8)?);
    let number = i32::from_ne_bytes(field(HEADER_BYTES)?);
    (kind == NLMSG_ERROR).then_some((sequence, number))
}

/// Returns the batch that replaces a table of this name with the new table.
fn build_batch(filter: &InputFilter) -> Batch {
    let table = filter.table.as_str();
    let mut batch = Batch::new();
    // Removing a table that does not exist is an error; creating a table that exists is not.
    batch.add_message(NEW_TABLE, CREATE, |body| body.add_text(1, table));
    batch.add_message(DEL_TABLE, 0, |body| body.add_text(1, table));
    batch.add_message(NEW_TABLE, CREATE, |body| body.add_text(1, table));
    batch.add_message(NEW_CHAIN, CREATE, |body| {
        body.add_text(1, table);
        body.add_text(3, CHAIN);
        body.add_nested(4, |hook| {
            hook.add_number(1, HOOK_LOCAL_IN);
            hook.add_number(2, PRIORITY.cast_unsigned());
        });
        body.add_text(7, "filter");
    });
    let mut add_rule = |build: &dyn Fn(&mut Attributes)| {
        batch.add_message(NEW_RULE, CREATE | APPEND, |body| {
            body.add_text(1, table);
            body.add_text(2, CHAIN);
            body.add_nested(4, build);
        });
    };
    add_rule(&|rule| {
        rule.add_meta(META_INTERFACE);
        rule.add_comparison(EQUAL, &LOOPBACK.to_ne_bytes());
        rule.add_verdict(ACCEPT);
    });
    for ports in &filter.allowed_ports {
        add_rule(&|rule| {
            rule.match_destination(ports.address);
            rule.match_protocol(ports.protocol);
            rule.add_payload(BASE_TRANSPORT, 2, 2);
            rule.add_comparison(AT_LEAST, &ports.first.to_be_bytes());
            rule.add_comparison(AT_MOST, &ports.last.to_be_bytes());
            rule.add_verdict(ACCEPT);
        });
    }
    let icmp = ICMP_TYPES.iter().map(|types| (IPV4, ICMP, types));
    let icmpv6 = ICMPV6_TYPES.iter().map(|types| (IPV6, ICMPV6, types));
    for (family, protocol, (first, last)) in icmp.chain(icmpv6) {
        add_rule(&|rule| {
            rule.match_family(family);
            rule.match_protocol(protocol);
            rule.add_payload(BASE_TRANSPORT, 0, 1);
            rule.add_comparison(AT_LEAST, &[*first]);
            rule.add_comparison(AT_MOST, &[*last]);
            rule.add_verdict(ACCEPT);
        });
    }
    for address in &filter.addresses {
        add_rule(&|rule| {
            rule.match_destination(*address);
            rule.add_expression("counter", |_| {});
            rule.add_verdict(DROP);
        });
    }
    batch
}

/// A batch of messages, which the kernel applies atomically.
struct Batch {
    bytes: Vec<u8>,
    sequence: u32,
    /// Offset of the last message's flags.
    flags_offset: usize,
}

impl Batch {
    fn new() -> Self {
        let mut batch = Self {
            bytes: Vec::new(),
            sequence: 0,
            flags_offset: 0,
        };
        batch.append(BATCH_BEGIN, REQUEST, 0, SUBSYSTEM, |_| {});
        batch
    }

    fn add_message(&mut self, kind: u16, flags: u16, build: impl FnOnce(&mut Attributes)) {
        self.append(kind, REQUEST | flags, INET, 0, build);
    }

    fn append(
        &mut self,
        kind: u16,
        flags: u16,
        family: u8,
        resource: u16,
        build: impl FnOnce(&mut Attributes),
    ) {
        let start = self.bytes.len();
        self.flags_offset = start + 6;
        let mut body = Attributes(std::mem::take(&mut self.bytes));
        body.0.extend([0; 4]);
        body.0.extend(kind.to_ne_bytes());
        body.0.extend(flags.to_ne_bytes());
        body.0.extend(self.sequence.to_ne_bytes());
        body.0.extend([0; 4]);
        // struct nfgenmsg
        body.0.extend([family, 0]);
        body.0.extend(resource.to_be_bytes());
        build(&mut body);
        self.bytes = body.0;
        let length = (self.bytes.len() - start) as u32;
        self.bytes[start..start + 4].copy_from_slice(&length.to_ne_bytes());
        self.sequence += 1;
    }

    /// Returns the bytes, and the sequence number of the last message, which the kernel acknowledges.
    fn finish(mut self) -> (Vec<u8>, u32) {
        let offset = self.flags_offset;
        let flags = u16::from_ne_bytes([self.bytes[offset], self.bytes[offset + 1]]) | ACK;
        self.bytes[offset..offset + 2].copy_from_slice(&flags.to_ne_bytes());
        let last = self.sequence - 1;
        self.append(BATCH_END, REQUEST, 0, SUBSYSTEM, |_| {});
        (self.bytes, last)
    }
}

/// The bytes of a message. Attributes are appended, each at a multiple of four.
struct Attributes(Vec<u8>);

impl Attributes {
    fn add_bytes(&mut self, kind: u16, value: &[u8]) {
        let length = (4 + value.len()) as u16;
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    fn add_text(&mut self, kind: u16, value: &str) {
        let mut value = value.as_bytes().to_vec();
        value.push(0);
        self.add_bytes(kind, &value);
    }

    fn add_number(&mut self, kind: u16, value: u32) {
        self.add_bytes(kind, &value.to_be_bytes());
    }

    fn add_nested(&mut self, kind: u16, build: impl FnOnce(&mut Self)) {
        let start = self.0.len();
        self.add_bytes(kind | NESTED, &[]);
        build(self);
        let length = (self.0.len() - start) as u16;
        self.0[start..start + 2].copy_from_slice(&length.to_ne_bytes());
    }

    /// Appends a rule expression.
    fn add_expression(&mut self, name: &str, build: impl FnOnce(&mut Self)) {
        self.add_nested(1, |element| {
            element.add_text(1, name);
            element.add_nested(2, build);
        });
    }

    fn add_meta(&mut self, key: u32) {
        self.add_expression("meta", |data| {
            data.add_number(1, REGISTER);
            data.add_number(2, key);
        });
    }

    fn add_payload(&mut self, base: u32, offset: u32, length: u32) {
        self.add_expression("payload", |data| {
            data.add_number(1, REGISTER);
            data.add_number(2, base);
            data.add_number(3, offset);
            data.add_number(4, length);
        });
    }

    /// Appends a comparison of the register with `value`. If the comparison is false, the rule does not match.
    fn add_comparison(&mut self, operation: u32, value: &[u8]) {
        self.add_expression("cmp", |data| {
            data.add_number(1, REGISTER);
            data.add_number(2, operation);
            data.add_nested(3, |nested| nested.add_bytes(1, value));
        });
    }

    fn match_family(&mut self, family: u8) {
        self.add_meta(META_FAMILY);
        self.add_comparison(EQUAL, &[family]);
    }

    fn match_protocol(&mut self, protocol: u8) {
        self.add_meta(META_PROTOCOL);
        self.add_comparison(EQUAL, &[protocol]);
    }

    fn match_destination(&mut self, address: IpAddr) {
        // Offsets in the IPv4 and the IPv6 header.
        match address {
            IpAddr::V4(v4) => {
                self.match_family(IPV4);
                self.add_payload(BASE_NETWORK, 16, 4);
                self.add_comparison(EQUAL, &v4.octets());
            }
            IpAddr::V6(v6) => {
                self.match_family(IPV6);
                self.add_payload(BASE_NETWORK, 24, 16);
                self.add_comparison(EQUAL, &v6.octets());
            }
        }
    }

    fn add_verdict(&mut self, code: u32) {
        self.add_expression("immediate", |data| {
            data.add_number(1, VERDICT_REGISTER);
            data.add_nested(2, |value| {
                value.add_nested(2, |verdict| verdict.add_number(1, code));
            });
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_consists_of_complete_messages_and_only_the_last_is_acknowledged() {
        let filter = InputFilter {
            table: "odd".to_owned(),
            addresses: vec![[192, 0, 2, 1].into(), "2001:db8::1".parse().unwrap()],
            allowed_ports: Vec::new(),
        };
        let (bytes, last) = build_batch(&filter).finish();
        let batch_messages: Vec<&[u8]> = messages(&bytes).collect();
        assert_eq!(
            batch_messages
                .iter()
                .map(|message| message.len())
                .sum::<usize>(),
            bytes.len()
        );
        let flags = |message: &[u8]| u16::from_ne_bytes([message[6], message[7]]);
        let acknowledged: Vec<usize> = (0..batch_messages.len())
            .filter(|index| flags(batch_messages[*index]) & ACK != 0)
            .collect();
        assert_eq!(acknowledged, [last as usize]);
        assert_eq!(last as usize, batch_messages.len() - 2);
    }

    #[test]
    fn acknowledgement_contains_sequence_number_and_error() {
        let mut message = vec![20, 0, 0, 0, 2, 0, 0, 0];
        message.extend(7_u32.to_ne_bytes());
        message.extend([0; 4]);
        message.extend((-2_i32).to_ne_bytes());
        assert_eq!(parse_acknowledgement(&message), Some((7, -2)));
        assert_eq!(parse_acknowledgement(&message[..19]), None);
    }
}
