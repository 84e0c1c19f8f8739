//! The packet of VRRPv2 (RFC 3768 section 5) and VRRPv3 (RFC 9568 section 5), without its IP header.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use weir_wire::{IpProtocol, checksum};

/// IP protocol number.
pub const PROTOCOL: u8 = 112;
/// Multicast group of IPv4.
pub const GROUP_V4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 18);
/// Multicast group of IPv6.
pub const GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x12);
/// TTL or hop limit of every packet.
pub const HOP_LIMIT: u8 = 255;

/// Length of keepalived's authentication trailer.
pub(crate) const TRAILER: usize = 28;
/// The largest packet with its Ethernet header. keepalived counts that header, too.
const FRAME_MAX: usize = 1500;
const HEADER: usize = 8;
/// Authentication data of version 2, always present.
const AUTHENTICATION: usize = 8;
const TYPE_ADVERTISEMENT: u8 = 1;
/// Simple text password (RFC 2338 section 5.3.6.2).
const SIMPLE_TEXT: u8 = 1;
/// The interval of version 3 has 12 bits.
const CENTISECONDS_MAX: u128 = 0x0fff;

/// Protocol version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// RFC 3768; IPv4 only.
    V2,
    /// RFC 9568.
    V3,
}

impl Version {
    /// Its number in the packet.
    pub const fn number(self) -> u8 {
        match self {
            Self::V2 => 2,
            Self::V3 => 3,
        }
    }
}

/// What the checksum of version 3 over IPv4 covers. RFC 9568 excludes the pseudo header; RFC 5798 was read both ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChecksumForm {
    /// The VRRP message alone.
    #[default]
    Plain,
    /// The message and a pseudo header, as keepalived and FRR send by default.
    PseudoHeader,
    /// In unicast: a pseudo header with the multicast group as its destination, as keepalived until 1.3.6
    /// (`old_unicast_checksum`).
    GroupPseudoHeader,
}

impl ChecksumForm {
    /// Its name in status documents.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::PseudoHeader => "pseudo-header",
            Self::GroupPseudoHeader => "group-pseudo-header",
        }
    }
}

/// The content of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advertisement {
    /// Protocol version.
    pub version: Version,
    /// Virtual router ID, 1 to 255.
    pub vrid: u8,
    /// 0: the sender stops being active; 255: it owns the addresses.
    pub priority: u8,
    /// Interval of advertisements: whole seconds in version 2, 10 ms to 40.95 s in version 3.
    pub interval: Duration,
    /// Virtual addresses, at most 255.
    pub addresses: Vec<IpAddr>,
    /// Simple text password of version 2.
    pub password: Option<[u8; 8]>,
}

/// A packet as it arrived.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// The payload of the IP packet.
    pub bytes: &'a [u8],
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// TTL or hop limit.
    pub hop_limit: u8,
}

/// A valid packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Its content.
    pub advertisement: Advertisement,
    /// Which checksum it has; only meaningful for version 3 over IPv4.
    pub checksum: ChecksumForm,
    /// Length of the message; what follows is keepalived's authentication trailer.
    pub length: usize,
}

/// Why a packet was ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ignored {
    /// TTL or hop limit is not 255, or lower than accepted in unicast.
    HopLimit,
    /// Other version than configured.
    Version,
    /// Not an advertisement.
    Type,
    /// Shorter or longer than its content.
    Length,
    /// Wrong checksum.
    Checksum,
    /// No virtual router with this ID and family.
    RouterId,
    /// Version 2: other interval than configured.
    Interval,
    /// Wrong authentication type or password.
    Authentication,
    /// Sent by this director.
    Own,
    /// Not sent by a configured peer, or by multicast where unicast is configured.
    Peer,
    /// No address, although this router has addresses.
    Addresses,
    /// The authentication trailer is a repeated or old one.
    Replay,
}

impl Ignored {
    /// All reasons, in order.
    pub const ALL: [Self; 12] = [
        Self::HopLimit,
        Self::Version,
        Self::Type,
        Self::Length,
        Self::Checksum,
        Self::RouterId,
        Self::Interval,
        Self::Authentication,
        Self::Own,
        Self::Peer,
        Self::Addresses,
        Self::Replay,
    ];

    /// Its name in status documents and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::HopLimit => "hop-limit",
            Self::Version => "version",
            Self::Type => "type",
            Self::Length => "length",
            Self::Checksum => "checksum",
            Self::RouterId => "router-id",
            Self::Interval => "interval",
            Self::Authentication => "authentication",
            Self::Own => "own",
            Self::Peer => "peer",
            Self::Addresses => "addresses",
            Self::Replay => "replay",
        }
    }
}

impl Advertisement {
    /// The packet's bytes. Addresses of another family than `source` are omitted.
    pub fn encode(&self, source: IpAddr, destination: IpAddr, form: ChecksumForm) -> Vec<u8> {
        let listed = self
            .addresses
            .iter()
            .filter(|it| it.is_ipv4() == source.is_ipv4());
        let listed: Vec<IpAddr> = listed.take(255).copied().collect();
        let count = u8::try_from(listed.len()).unwrap_or(u8::MAX);
        let version = self.version.number() << 4;
        let mut bytes = vec![
            version | TYPE_ADVERTISEMENT,
            self.vrid,
            self.priority,
            count,
        ];
        match self.version {
            Version::V2 => {
                let seconds = u8::try_from(self.interval.as_secs()).unwrap_or(u8::MAX);
                let kind = if self.password.is_some() {
                    SIMPLE_TEXT
                } else {
                    0
                };
                bytes.extend([kind, seconds.max(1)]);
            }
            Version::V3 => {
                let centiseconds = (self.interval.as_millis() / 10).clamp(1, CENTISECONDS_MAX);
                let centiseconds = u16::try_from(centiseconds).unwrap_or(1);
                bytes.extend(centiseconds.to_be_bytes());
            }
        }
        bytes.extend([0, 0]);
        for address in listed {
            match address {
                IpAddr::V4(address) => bytes.extend(address.octets()),
                IpAddr::V6(address) => bytes.extend(address.octets()),
            }
        }
        if self.version == Version::V2 {
            bytes.extend(self.password.unwrap_or_default());
        }
        // The sum covers the whole message, the password included (RFC 2338 section 5.3.8).
        let form = match (self.version, source.is_ipv6()) {
            (Version::V2, _) => ChecksumForm::Plain,
            (Version::V3, true) => ChecksumForm::PseudoHeader,
            (Version::V3, false) => form,
        };
        let sum = sum(&bytes, source, destination, form).checksum();
        bytes[6..HEADER].copy_from_slice(&sum.to_be_bytes());
        bytes
    }
}

fn sum(bytes: &[u8], source: IpAddr, destination: IpAddr, form: ChecksumForm) -> checksum::Sum {
    let destination = match form {
        ChecksumForm::Plain => return checksum::Sum::new().bytes(bytes),
        ChecksumForm::PseudoHeader => destination,
        ChecksumForm::GroupPseudoHeader => GROUP_V4.into(),
    };
    if source.is_ipv4() != destination.is_ipv4() {
        return checksum::Sum::new().bytes(bytes);
    }
    checksum::pseudo_header(source, destination, IpProtocol(PROTOCOL), bytes.len()).bytes(bytes)
}

/// How many addresses a packet lists: what fits into an Ethernet frame, at most 255. keepalived lists as many.
pub const fn listed_max(is_ipv4: bool, has_trailer: bool) -> usize {
    let (headers, size) = if is_ipv4 {
        (14 + 20 + HEADER + AUTHENTICATION, 4)
    } else {
        (14 + 40 + HEADER, 16)
    };
    let trailer = if has_trailer { TRAILER } else { 0 };
    let count = (FRAME_MAX - headers - trailer) / size;
    if count > 255 { 255 } else { count }
}

/// Reads a packet and verifies what needs no configuration. The caller verifies the TTL or hop limit of unicast
/// packets.
///
/// # Errors
/// Why it is ignored.
pub fn decode(arrival: &Arrival<'_>) -> Result<Received, Ignored> {
    let bytes = arrival.bytes;
    let [first, vrid, priority, count, fifth, sixth, ..] = *bytes else {
        return Err(Ignored::Length);
    };
    let v4 = arrival.source.is_ipv4();
    if arrival.hop_limit != HOP_LIMIT && arrival.destination.is_multicast() {
        return Err(Ignored::HopLimit);
    }
    let version = match (first >> 4, v4) {
        (2, true) => Version::V2,
        (3, _) => Version::V3,
        _ => return Err(Ignored::Version),
    };
    if first & 0x0f != TYPE_ADVERTISEMENT {
        return Err(Ignored::Type);
    }
    let size = if v4 { 4 } else { 16 };
    let trailer = if version == Version::V2 {
        AUTHENTICATION
    } else {
        0
    };
    let addresses_end = HEADER + size * usize::from(count);
    let length = addresses_end + trailer;
    if bytes.len() != length && bytes.len() != length + TRAILER {
        return Err(Ignored::Length);
    }
    let checksum = checksum_form(arrival, length, version).ok_or(Ignored::Checksum)?;
    if vrid == 0 {
        return Err(Ignored::RouterId);
    }
    let interval = match version {
        Version::V2 => Duration::from_secs(u64::from(sixth)),
        Version::V3 => {
            let centiseconds = u16::from_be_bytes([fifth & 0x0f, sixth]);
            Duration::from_millis(10 * u64::from(centiseconds))
        }
    };
    if interval.is_zero() {
        return Err(Ignored::Interval);
    }
    let password = match (version, fifth) {
        (Version::V3, _) | (Version::V2, 0) => None,
        (Version::V2, SIMPLE_TEXT) => bytes[..length].last_chunk::<AUTHENTICATION>().copied(),
        (Version::V2, _) => return Err(Ignored::Authentication),
    };
    let listed = bytes[HEADER..addresses_end].chunks_exact(size);
    let advertisement = Advertisement {
        version,
        vrid,
        priority,
        interval,
        addresses: listed.filter_map(address).collect(),
        password,
    };
    Ok(Received {
        advertisement,
        checksum,
        length,
    })
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(address) = <[u8; 4]>::try_from(bytes) {
        return Some(Ipv4Addr::from(address).into());
    }
    let address = <[u8; 16]>::try_from(bytes).ok()?;
    Some(Ipv6Addr::from(address).into())
}

/// The trailer is outside the checksum, except over IPv6, where the sender's kernel includes it.
fn checksum_form(arrival: &Arrival<'_>, length: usize, version: Version) -> Option<ChecksumForm> {
    let (source, destination) = (arrival.source, arrival.destination);
    let message = &arrival.bytes[..length];
    let is_valid = |form| sum(message, source, destination, form).is_valid();
    let pseudo = ChecksumForm::PseudoHeader;
    match (version, source.is_ipv4()) {
        (Version::V2, _) => is_valid(ChecksumForm::Plain).then_some(ChecksumForm::Plain),
        (Version::V3, false) => {
            let whole = || sum(arrival.bytes, source, destination, pseudo).is_valid();
            (is_valid(pseudo) || whole()).then_some(pseudo)
        }
        (Version::V3, true) => [ChecksumForm::Plain, pseudo, ChecksumForm::GroupPseudoHeader]
            .into_iter()
            .find(|form| is_valid(*form)),
    }
}

/// Appends a trailer to an encoded packet. Over IPv6 receivers' kernels verify the checksum over all of it.
pub(crate) fn append(bytes: &mut Vec<u8>, trailer: &[u8], source: IpAddr, destination: IpAddr) {
    if trailer.is_empty() {
        return;
    }
    bytes.extend_from_slice(trailer);
    if source.is_ipv6() {
        bytes[6..HEADER].fill(0);
        let sum = sum(bytes, source, destination, ChecksumForm::PseudoHeader).checksum();
        bytes[6..HEADER].copy_from_slice(&sum.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SOURCE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1));
    const GROUP: IpAddr = IpAddr::V4(GROUP_V4);

    fn advertisement(version: Version) -> Advertisement {
        Advertisement {
            version,
            vrid: 51,
            priority: 200,
            interval: Duration::from_secs(1),
            addresses: vec!["10.77.0.100".parse().unwrap()],
            password: None,
        }
    }

    fn arrival(bytes: &[u8]) -> Arrival<'_> {
        Arrival {
            bytes,
            source: SOURCE,
            destination: GROUP,
            hop_limit: 255,
        }
    }

    /// Captured from keepalived 2.2.7.
    #[test]
    fn packets_of_keepalived_are_reproduced() {
        let v2 = [
            0x21, 0x33, 0xc8, 1, 0, 1, 0x0c, 0x19, 0x0a, 0x4d, 0, 0x64, 0, 0, 0, 0, 0, 0, 0, 0,
        ];
        let v3 = [
            0x31, 0x33, 0xc8, 1, 0, 0x64, 0x10, 0xd9, 0x0a, 0x4d, 0, 0x64,
        ];
        let mut plain = v3;
        plain[6..8].copy_from_slice(&[0xfb, 0xb5]);
        for (bytes, version, form) in [
            (&v2[..], Version::V2, ChecksumForm::Plain),
            (&v3[..], Version::V3, ChecksumForm::PseudoHeader),
            (&plain[..], Version::V3, ChecksumForm::Plain),
        ] {
            let received = decode(&arrival(bytes)).unwrap();
            assert_eq!(received.advertisement, advertisement(version));
            assert_eq!(received.checksum, form);
            assert_eq!(advertisement(version).encode(SOURCE, GROUP, form), bytes);
        }
    }

    #[test]
    fn password_of_version_2_round_trips() {
        let mut sent = advertisement(Version::V2);
        sent.password = Some(*b"secret\0\0");
        let bytes = sent.encode(SOURCE, GROUP, ChecksumForm::Plain);
        assert_eq!(decode(&arrival(&bytes)).unwrap().advertisement, sent);
    }

    #[test]
    fn hop_limit_is_verified_here_only_in_multicast() {
        let hosts: [IpAddr; 3] =
            ["fe80::1", "2001:db8::2", "ff02::12"].map(|it| it.parse().unwrap());
        let [source, unicast, multicast] = hosts;
        let with = |destination, hop_limit| {
            let sent = Advertisement {
                addresses: vec!["fe80::10".parse().unwrap()],
                ..advertisement(Version::V3)
            };
            let bytes = sent.encode(source, destination, ChecksumForm::Plain);
            decode(&Arrival {
                bytes: &bytes,
                source,
                destination,
                hop_limit,
            })
            .map(drop)
        };
        assert_eq!(with(unicast, 64), Ok(()));
        assert_eq!(with(multicast, HOP_LIMIT), Ok(()));
        assert_eq!(with(multicast, 64), Err(Ignored::HopLimit));
    }

    #[test]
    fn each_defect_has_its_reason() {
        let good = advertisement(Version::V3).encode(SOURCE, GROUP, ChecksumForm::Plain);
        let with = |at: usize, value: u8| {
            let mut bytes = good.clone();
            bytes[at] = value;
            decode(&arrival(&bytes)).unwrap_err()
        };
        assert_eq!(with(0, 0x41), Ignored::Version);
        assert_eq!(with(0, 0x32), Ignored::Type);
        assert_eq!(with(3, 2), Ignored::Length);
        assert_eq!(with(2, 7), Ignored::Checksum);
        assert_eq!(decode(&arrival(&good[..5])), Err(Ignored::Length));
        let far = Arrival {
            hop_limit: 254,
            ..arrival(&good)
        };
        assert_eq!(decode(&far), Err(Ignored::HopLimit));
        let mut never = advertisement(Version::V3).encode(SOURCE, GROUP, ChecksumForm::Plain);
        never[4..8].fill(0);
        let sum = checksum::checksum(&never);
        never[6..8].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(decode(&arrival(&never)), Err(Ignored::Interval));
        let mut header = advertisement(Version::V2);
        header.addresses.clear();
        let bytes = header.encode(SOURCE, GROUP, ChecksumForm::Plain);
        let received = decode(&arrival(&bytes)).expect("the router decides");
        assert_eq!(received.advertisement.addresses, [] as [IpAddr; 0]);
    }

    #[test]
    fn listed_addresses_fit_into_a_frame() {
        assert_eq!(
            (listed_max(true, false), listed_max(true, true)),
            (255, 255)
        );
        assert_eq!(
            (listed_max(false, false), listed_max(false, true)),
            (89, 88)
        );
    }

    /// keepalived until 1.3.6 in unicast; newer ones with `old_unicast_checksum`.
    #[test]
    fn old_checksum_of_unicast_is_accepted_and_repeated() {
        let peer = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 2));
        let sent = advertisement(Version::V3);
        let bytes = sent.encode(SOURCE, peer, ChecksumForm::GroupPseudoHeader);
        assert_eq!(
            bytes,
            sent.encode(SOURCE, GROUP, ChecksumForm::PseudoHeader)
        );
        let received = decode(&Arrival {
            destination: peer,
            ..arrival(&bytes)
        });
        assert_eq!(
            received.map(|it| it.checksum),
            Ok(ChecksumForm::GroupPseudoHeader)
        );
    }

    fn any_address(v4: bool) -> BoxedStrategy<IpAddr> {
        if v4 {
            any::<u32>()
                .prop_map(|bits| Ipv4Addr::from_bits(bits).into())
                .boxed()
        } else {
            any::<u128>()
                .prop_map(|bits| Ipv6Addr::from_bits(bits).into())
                .boxed()
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_without_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..64),
            (source, destination) in any::<bool>().prop_flat_map(|v4| (any_address(v4), any_address(v4))),
        ) {
            let _ = decode(&Arrival { bytes: &bytes, source, destination, hop_limit: 255 });
        }

        #[test]
        fn encoded_packets_are_decoded_unchanged(
            (source, destination, addresses) in any::<bool>().prop_flat_map(|v4| {
                (any_address(v4), any_address(v4), proptest::collection::vec(any_address(v4), 1..20))
            }),
            vrid in 1_u8..,
            priority: u8,
            centiseconds in 1_u64..4096,
            pseudo: bool,
        ) {
            let sent = Advertisement {
                version: Version::V3,
                vrid,
                priority,
                interval: Duration::from_millis(10 * centiseconds),
                addresses,
                password: None,
            };
            let form = if pseudo { ChecksumForm::PseudoHeader } else { ChecksumForm::Plain };
            let bytes = sent.encode(source, destination, form);
            let arrival = Arrival { bytes: &bytes, source, destination, hop_limit: 255 };
            prop_assert_eq!(decode(&arrival).unwrap().advertisement, sent);
        }
    }
}
