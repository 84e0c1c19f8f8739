//! Encodes and decodes a flow or a persistence template.
//!
//! ```text
//!  0 kind, protocol, client's address family (4 or 6), TCP state, flags, reserved
//!  6 client port, VIP port
//! 10 milliseconds since the last packet, seconds since the flow started
//! 18 client, VIP: 4 or 16 bytes each
//!    server's address family, address, port (0 = the VIP port)
//!    options: number, length, value
//! ```
//!
//! Services and servers are identified by addresses, ports and marks, never by numbers that only one director uses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Kind {
    /// A flow.
    #[default]
    Flow,
    /// The server of a persistent client.
    Template,
}

/// Identifies a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServiceId {
    /// By one of its listeners: protocol number, address, port.
    Listener(u8, IpAddr, u16),
    /// By a firewall mark and the address family of the marked packets.
    Mark(u32, u8),
}

/// A flow or a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Whether this is a flow or a template.
    pub kind: Kind,
    /// IP protocol number; in a template, 0 = all protocols.
    pub proto: u8,
    /// IPVS number of the TCP state; 11 = UDP.
    pub state: u8,
    /// Whether the flow counts as an active connection.
    pub active: bool,
    /// The client's address and port; in a template, the client's network.
    pub client: (IpAddr, u16),
    /// The destination address and port of the client's packets.
    pub vip: (IpAddr, u16),
    /// The server's address and port; port 0 = the VIP port.
    pub server: (IpAddr, u16),
    /// Milliseconds since the last packet.
    pub idle_ms: u32,
    /// Seconds since the flow started.
    pub age_s: u32,
    /// The service, if the VIP and its port do not identify it.
    pub service: Option<ServiceId>,
    /// Source address and port of packets to the server, with `snat`.
    pub snat: Option<(IpAddr, u16)>,
    /// A template's timeout in milliseconds.
    pub timeout_ms: Option<u32>,
    /// Whether a template applies to all listeners of its service, regardless of the VIP.
    pub whole_service: bool,
}

const KIND_FLOW: u8 = 1;
const KIND_TEMPLATE: u8 = 2;
const FLAG_ACTIVE: u8 = 1;
const FLAG_WHOLE_SERVICE: u8 = 2;
const OPTION_MARK: u8 = 1;
const OPTION_SNAT: u8 = 2;
const OPTION_TIMEOUT: u8 = 3;
const OPTION_SERVICE: u8 = 4;

/// Reads big-endian values.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, remaining) = self.0.split_at_checked(length)?;
        self.0 = remaining;
        Some(bytes)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, remaining) = self.0.split_first_chunk::<N>()?;
        self.0 = remaining;
        Some(*bytes)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    pub(crate) fn address(&mut self, family: u8) -> Option<IpAddr> {
        match family {
            4 => self.array::<4>().map(|bytes| Ipv4Addr::from(bytes).into()),
            6 => self.array::<16>().map(|bytes| Ipv6Addr::from(bytes).into()),
            _ => None,
        }
    }
}

pub(crate) fn family(address: IpAddr) -> u8 {
    if address.is_ipv4() { 4 } else { 6 }
}

pub(crate) fn put_address(bytes: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => bytes.extend_from_slice(&address.octets()),
        IpAddr::V6(address) => bytes.extend_from_slice(&address.octets()),
    }
}

impl Record {
    /// Appends the encoded record.
    pub(crate) fn encode(&self, bytes: &mut Vec<u8>) {
        let flags = if self.active { FLAG_ACTIVE } else { 0 }
            | if self.whole_service {
                FLAG_WHOLE_SERVICE
            } else {
                0
            };
        let kind = match self.kind {
            Kind::Flow => KIND_FLOW,
            Kind::Template => KIND_TEMPLATE,
        };
        let (client, vip) = (self.client, self.vip);
        bytes.extend_from_slice(&[kind, self.proto, family(client.0), self.state, flags, 0]);
        bytes.extend_from_slice(&client.1.to_be_bytes());
        bytes.extend_from_slice(&vip.1.to_be_bytes());
        bytes.extend_from_slice(&self.idle_ms.to_be_bytes());
        bytes.extend_from_slice(&self.age_s.to_be_bytes());
        put_address(bytes, client.0);
        put_address(bytes, vip.0);
        bytes.push(family(self.server.0));
        put_address(bytes, self.server.0);
        bytes.extend_from_slice(&self.server.1.to_be_bytes());
        self.encode_options(bytes);
    }

    fn encode_options(&self, bytes: &mut Vec<u8>) {
        let mut option = |number: u8, value: &dyn Fn(&mut Vec<u8>)| {
            bytes.extend_from_slice(&[number, 0]);
            let start = bytes.len();
            value(bytes);
            bytes[start - 1] = (bytes.len() - start) as u8;
        };
        match self.service {
            Some(ServiceId::Mark(mark, family)) => option(OPTION_MARK, &|bytes| {
                bytes.extend_from_slice(&mark.to_be_bytes());
                bytes.push(family);
            }),
            Some(ServiceId::Listener(proto, address, port)) => option(OPTION_SERVICE, &|bytes| {
                bytes.extend_from_slice(&[proto, family(address)]);
                put_address(bytes, address);
                bytes.extend_from_slice(&port.to_be_bytes());
            }),
            None => {}
        }
        if let Some((address, port)) = self.snat {
            option(OPTION_SNAT, &|bytes| {
                bytes.push(family(address));
                put_address(bytes, address);
                bytes.extend_from_slice(&port.to_be_bytes());
            });
        }
        if let Some(timeout) = self.timeout_ms {
            option(OPTION_TIMEOUT, &|bytes| {
                bytes.extend_from_slice(&timeout.to_be_bytes());
            });
        }
    }

    /// Decodes a record. Returns `None` if it is truncated, or if its kind or an address family is unknown.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let [kind, proto, family, state, flags, _] = reader.array()?;
        let kind = match kind {
            KIND_FLOW => Kind::Flow,
            KIND_TEMPLATE => Kind::Template,
            _ => return None,
        };
        let (client_port, vip_port) = (reader.u16()?, reader.u16()?);
        let (idle_ms, age_s) = (reader.u32()?, reader.u32()?);
        let (client, vip) = (reader.address(family)?, reader.address(family)?);
        let server_family = reader.u8()?;
        let server = (reader.address(server_family)?, reader.u16()?);
        let mut record = Self {
            kind,
            proto,
            state,
            active: flags & FLAG_ACTIVE != 0,
            client: (client, client_port),
            vip: (vip, vip_port),
            server,
            idle_ms,
            age_s,
            service: None,
            snat: None,
            timeout_ms: None,
            whole_service: flags & FLAG_WHOLE_SERVICE != 0,
        };
        while !reader.0.is_empty() {
            let (number, length) = (reader.u8()?, reader.u8()?);
            record.decode_option(number, Reader(reader.take(length.into())?))?;
        }
        Some(record)
    }

    fn decode_option(&mut self, number: u8, mut value: Reader<'_>) -> Option<()> {
        match number {
            OPTION_MARK => self.service = Some(ServiceId::Mark(value.u32()?, value.u8()?)),
            OPTION_SERVICE => {
                let (proto, family) = (value.u8()?, value.u8()?);
                let (address, port) = (value.address(family)?, value.u16()?);
                self.service = Some(ServiceId::Listener(proto, address, port));
            }
            OPTION_SNAT => {
                let family = value.u8()?;
                self.snat = Some((value.address(family)?, value.u16()?));
            }
            OPTION_TIMEOUT => self.timeout_ms = Some(value.u32()?),
            _ => {}
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn address(v6: bool) -> BoxedStrategy<IpAddr> {
        if v6 {
            any::<[u8; 16]>()
                .prop_map(|it| Ipv6Addr::from(it).into())
                .boxed()
        } else {
            any::<[u8; 4]>()
                .prop_map(|it| Ipv4Addr::from(it).into())
                .boxed()
        }
    }

    fn endpoint(v6: bool) -> impl Strategy<Value = (IpAddr, u16)> {
        (address(v6), any::<u16>())
    }

    fn record() -> impl Strategy<Value = Record> {
        (any::<bool>(), any::<bool>()).prop_flat_map(|(v6, server6)| {
            let service = prop_oneof![
                Just(None),
                (any::<u32>(), any::<u8>())
                    .prop_map(|(mark, family)| Some(ServiceId::Mark(mark, family))),
                (any::<u8>(), endpoint(v6))
                    .prop_map(|(proto, (ip, port))| Some(ServiceId::Listener(proto, ip, port))),
            ];
            (
                (
                    any::<bool>(),
                    any::<u8>(),
                    any::<u8>(),
                    any::<bool>(),
                    any::<bool>(),
                ),
                (endpoint(v6), endpoint(v6), endpoint(server6)),
                (any::<u32>(), any::<u32>()),
                service,
                prop::option::of(endpoint(v6)),
                prop::option::of(any::<u32>()),
            )
                .prop_map(|(fields, endpoints, times, service, snat, timeout_ms)| {
                    Record {
                        kind: if fields.0 { Kind::Flow } else { Kind::Template },
                        proto: fields.1,
                        state: fields.2,
                        active: fields.3,
                        whole_service: fields.4,
                        client: endpoints.0,
                        vip: endpoints.1,
                        server: endpoints.2,
                        idle_ms: times.0,
                        age_s: times.1,
                        service,
                        snat,
                        timeout_ms,
                    }
                })
        })
    }

    proptest! {
        #[test]
        fn record_round_trips(record in record(), extra in any::<[u8; 5]>()) {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            prop_assert_eq!(Record::decode(&bytes), Some(record));
            // An option from a newer version is ignored.
            bytes.extend_from_slice(&[200, 5]);
            bytes.extend_from_slice(&extra);
            prop_assert_eq!(Record::decode(&bytes), Some(record));
        }

        #[test]
        fn any_bytes_decode_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = Record::decode(&bytes);
        }
    }
}
