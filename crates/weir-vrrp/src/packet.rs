//! Encodes and decodes VRRPv2 (RFC 3768 section 5) and VRRPv3 (RFC 9568 section 5) packets, without the IP header.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use weir_wire::{IpProtocol, checksum};

/// IP protocol number of VRRP.
pub const PROTOCOL: u8 = 112;
/// IPv4 multicast group of VRRP.
pub const GROUP_V4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 18);
/// IPv6 multicast group of VRRP.
pub const GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x12);
/// TTL or hop limit of sent packets.
pub const HOP_LIMIT: u8 = 255;

/// Length of keepalived's authentication trailer, in bytes.
pub(crate) const TRAILER_BYTES: usize = 28;
/// Maximum length of a packet including its Ethernet header, in bytes, as in keepalived.
const FRAME_MAX_BYTES: usize = 1500;
const HEADER_BYTES: usize = 8;
/// Length of the authentication data in bytes; in version 2, it is always present.
const AUTHENTICATION_BYTES: usize = 8;
const TYPE_ADVERTISEMENT: u8 = 1;
/// Authentication type of a simple text password (RFC 2338 section 5.3.6.2).
const SIMPLE_TEXT: u8 = 1;
/// Maximum interval in version 3: 12 bits.
const MAX_CENTISECONDS: u128 = 0x0fff;

/// Protocol version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// RFC 3768; IPv4 only.
    V2,
    /// RFC 9568.
    V3,
}

impl Version {
    /// Returns the number that packets contain.
    pub const fn number(self) -> u8 {
        match self {
            Self::V2 => 2,
            Self::V3 => 3,
        }
    }
}

/// The bytes that the checksum covers in version 3 over IPv4. RFC 9568 excludes the pseudo header; RFC 5798 is
/// ambiguous, and implementations differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChecksumForm {
    /// Only the VRRP message.
    #[default]
    Plain,
    /// The message and a pseudo header; the default of keepalived and FRR.
    PseudoHeader,
    /// In unicast packets: the message and a pseudo header with the multicast group as destination, as sent by
    /// keepalived up to 1.3.6 (`old_unicast_checksum`).
    GroupPseudoHeader,
}

impl ChecksumForm {
    /// Returns the form's name in status documents.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::PseudoHeader => "pseudo-header",
            Self::GroupPseudoHeader => "group-pseudo-header",
        }
    }
}

/// The content of an advertisement packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advertisement {
    /// Protocol version.
    pub version: Version,
    /// Virtual router ID, 1 to 255.
    pub vrid: u8,
    /// Priority: 0 if the sender stops being active, 255 if it owns the addresses.
    pub priority: u8,
    /// Interval between advertisements: whole seconds in version 2, 10 ms to 40.95 s in version 3.
    pub interval: Duration,
    /// Virtual addresses, at most 255.
    pub addresses: Vec<IpAddr>,
    /// Simple text password (version 2 only).
    pub password: Option<[u8; 8]>,
}

/// A received packet before decoding.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedPacket<'a> {
    /// The payload of the IP packet.
    pub bytes: &'a [u8],
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// TTL or hop limit.
    pub hop_limit: u8,
}

/// A decoded packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedPacket {
    /// The advertisement in the packet.
    pub advertisement: Advertisement,
    /// Checksum form of the packet; meaningful only for version 3 over IPv4.
    pub checksum: ChecksumForm,
    /// Length of the message in bytes; any remaining bytes are keepalived's authentication trailer.
    pub length: usize,
}

/// Why a packet was ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IgnoreReason {
    /// The TTL or hop limit is not 255, or is below the configured minimum in a unicast packet.
    HopLimit,
    /// The version is unknown or differs from the configured one, or the packet is IPv6 and has version 2.
    Version,
    /// The packet is not an advertisement.
    Type,
    /// The length does not match the content, or the packet has an authentication trailer that is not configured.
    Length,
    /// The checksum is wrong.
    Checksum,
    /// No virtual router has this ID and address family.
    RouterId,
    /// The interval is zero, or differs from the configured interval in version 2.
    Interval,
    /// The authentication type, password or HMAC is wrong or missing.
    Authentication,
    /// This director sent the packet.
    Own,
    /// The sender is not a configured peer, or the packet is multicast although unicast is configured, or vice versa.
    Peer,
    /// The packet lists no addresses, although this router has addresses.
    Addresses,
    /// The authentication trailer is replayed, or its time is outside the window.
    Replay,
}

impl IgnoreReason {
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

    /// Returns the reason's name in status documents and metrics.
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
    /// Encodes the packet. Omits addresses whose family differs from that of `source`, and those after the 255th.
    pub fn encode(&self, source: IpAddr, destination: IpAddr, form: ChecksumForm) -> Vec<u8> {
        let addresses = self
            .addresses
            .iter()
            .filter(|it| it.is_ipv4() == source.is_ipv4());
        let addresses: Vec<IpAddr> = addresses.take(255).copied().collect();
        let count = u8::try_from(addresses.len()).unwrap_or(u8::MAX);
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
                let centiseconds = (self.interval.as_millis() / 10).clamp(1, MAX_CENTISECONDS);
                let centiseconds = u16::try_from(centiseconds).unwrap_or(1);
                bytes.extend(centiseconds.to_be_bytes());
            }
        }
        bytes.extend([0, 0]);
        for address in addresses {
            match address {
                IpAddr::V4(address) => bytes.extend(address.octets()),
                IpAddr::V6(address) => bytes.extend(address.octets()),
            }
        }
        if self.version == Version::V2 {
            bytes.extend(self.password.unwrap_or_default());
        }
        // The checksum covers the whole message, including the password (RFC 2338 section 5.3.8).
        let form = match (self.version, source.is_ipv6()) {
            (Version::V2, _) => ChecksumForm::Plain,
            (Version::V3, true) => ChecksumForm::PseudoHeader,
            (Version::V3, false) => form,
        };
        let sum = sum(&bytes, source, destination, form).checksum();
        bytes[6..HEADER_BYTES].copy_from_slice(&sum.to_be_bytes());
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

/// Returns the maximum number of addresses in a packet: as many as fit into an Ethernet frame, at most 255. keepalived
/// has the same limit.
pub const fn max_listed_addresses(is_ipv4: bool, has_trailer: bool) -> usize {
    if is_ipv4 {
        const HEADERS: usize = 14 + 20 + HEADER_BYTES + AUTHENTICATION_BYTES;
        const { assert!((FRAME_MAX_BYTES - HEADERS - TRAILER_BYTES) / 4 >= 255) };
        return 255;
    }
    let headers = 14 + 40 + HEADER_BYTES;
    let trailer = if has_trailer { TRAILER_BYTES } else { 0 };
    (FRAME_MAX_BYTES - headers - trailer) / 16
}

/// Decodes a packet and performs the checks that need no configuration. The caller checks the TTL or hop limit of
/// unicast packets.
///
/// # Errors
/// Returns the reason why the packet must be ignored.
pub fn decode(packet: &ReceivedPacket<'_>) -> Result<DecodedPacket, IgnoreReason> {
    let bytes = packet.bytes;
    let [first, vrid, priority, count, fifth, sixth, ..] = *bytes else {
        return Err(IgnoreReason::Length);
    };
    let is_v4 = packet.source.is_ipv4();
    if packet.hop_limit != HOP_LIMIT && packet.destination.is_multicast() {
        return Err(IgnoreReason::HopLimit);
    }
    let version = match (first >> 4, is_v4) {
        (2, true) => Version::V2,
        (3, _) => Version::V3,
        _ => return Err(IgnoreReason::Version),
    };
    if first & 0x0f != TYPE_ADVERTISEMENT {
        return Err(IgnoreReason::Type);
    }
    let size = if is_v4 { 4 } else { 16 };
    let trailer = if version == Version::V2 {
        AUTHENTICATION_BYTES
    } else {
        0
    };
    let addresses_end = HEADER_BYTES + size * usize::from(count);
    let length = addresses_end + trailer;
    if bytes.len() != length && bytes.len() != length + TRAILER_BYTES {
        return Err(IgnoreReason::Length);
    }
    let checksum = checksum_form(packet, length, version).ok_or(IgnoreReason::Checksum)?;
    if vrid == 0 {
        return Err(IgnoreReason::RouterId);
    }
    let interval = match version {
        Version::V2 => Duration::from_secs(u64::from(sixth)),
        Version::V3 => {
            let centiseconds = u16::from_be_bytes([fifth & 0x0f, sixth]);
            Duration::from_millis(10 * u64::from(centiseconds))
        }
    };
    if interval.is_zero() {
        return Err(IgnoreReason::Interval);
    }
    let password = match (version, fifth) {
        (Version::V3, _) | (Version::V2, 0) => None,
        (Version::V2, SIMPLE_TEXT) => bytes[..length]
            .last_chunk::<AUTHENTICATION_BYTES>()
            .copied(),
        (Version::V2, _) => return Err(IgnoreReason::Authentication),
    };
    let address_fields = bytes[HEADER_BYTES..addresses_end].chunks_exact(size);
    let advertisement = Advertisement {
        version,
        vrid,
        priority,
        interval,
        addresses: address_fields.filter_map(address).collect(),
        password,
    };
    Ok(DecodedPacket {
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

/// Returns the checksum form if the checksum is valid. The checksum does not cover the trailer, except over IPv6, where
/// the sender's kernel includes the trailer.
fn checksum_form(
    packet: &ReceivedPacket<'_>,
    length: usize,
    version: Version,
) -> Option<ChecksumForm> {
    let (source, destination) = (packet.source, packet.destination);
    let message = &packet.bytes[..length];
    let is_valid = |form| sum(message, source, destination, form).is_valid();
    let pseudo_header = ChecksumForm::PseudoHeader;
    match (version, source.is_ipv4()) {
        (Version::V2, _) => is_valid(ChecksumForm::Plain).then_some(ChecksumForm::Plain),
        (Version::V3, false) => {
            let whole = || sum(packet.bytes, source, destination, pseudo_header).is_valid();
            (is_valid(pseudo_header) || whole()).then_some(pseudo_header)
        }
        (Version::V3, true) => [
            ChecksumForm::Plain,
            pseudo_header,
            ChecksumForm::GroupPseudoHeader,
        ]
        .into_iter()
        .find(|form| is_valid(*form)),
    }
}

/// Appends a trailer to an encoded packet. Over IPv6, updates the checksum, because receivers' kernels verify it over
/// the whole packet.
pub(crate) fn append_trailer(
    bytes: &mut Vec<u8>,
    trailer: &[u8],
    source: IpAddr,
    destination: IpAddr,
) {
    if trailer.is_empty() {
        return;
    }
    bytes.extend_from_slice(trailer);
    if source.is_ipv6() {
        bytes[6..HEADER_BYTES].fill(0);
        let sum = sum(bytes, source, destination, ChecksumForm::PseudoHeader).checksum();
        bytes[6..HEADER_BYTES].copy_from_slice(&sum.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::State;

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

    fn packet(bytes: &[u8]) -> ReceivedPacket<'_> {
        ReceivedPacket {
            bytes,
            source: SOURCE,
            destination: GROUP,
            hop_limit: 255,
        }
    }

    /// Two packets captured from keepalived 2.2.7, and one of them with the other checksum form.
    #[test]
    fn keepalived_packets_are_decoded_and_reproduced() {
        let v2 = [
            0x21, 0x33, 0xc8, 1, 0, 1, 0x0c, 0x19, 0x0a, 0x4d, 0, 0x64, 0, 0, 0, 0, 0, 0, 0, 0,
        ];
        let v3 = [
            0x31, 0x33, 0xc8, 1, 0, 0x64, 0x10, 0xd9, 0x0a, 0x4d, 0, 0x64,
        ];
        let mut plain_packet = v3;
        plain_packet[6..8].copy_from_slice(&[0xfb, 0xb5]);
        for (bytes, version, form) in [
            (&v2[..], Version::V2, ChecksumForm::Plain),
            (&v3[..], Version::V3, ChecksumForm::PseudoHeader),
            (&plain_packet[..], Version::V3, ChecksumForm::Plain),
        ] {
            let received = decode(&packet(bytes)).unwrap();
            assert_eq!(received.advertisement, advertisement(version));
            assert_eq!(received.checksum, form);
            assert_eq!(advertisement(version).encode(SOURCE, GROUP, form), bytes);
        }
    }

    #[test]
    fn names_in_status_documents_are_stable() {
        let reasons = IgnoreReason::ALL.map(IgnoreReason::as_str);
        let expected = [
            "hop-limit",
            "version",
            "type",
            "length",
            "checksum",
            "router-id",
            "interval",
            "authentication",
            "own",
            "peer",
            "addresses",
            "replay",
        ];
        assert_eq!(reasons, expected);
        let forms = [
            ChecksumForm::Plain,
            ChecksumForm::PseudoHeader,
            ChecksumForm::GroupPseudoHeader,
        ];
        let forms = forms.map(ChecksumForm::as_str);
        assert_eq!(forms, ["plain", "pseudo-header", "group-pseudo-header"]);
        let states = [State::Init, State::Backup, State::Active, State::Fault];
        let states = states.map(State::as_str);
        assert_eq!(states, ["init", "backup", "active", "fault"]);
    }

    #[test]
    fn version_2_password_round_trips() {
        let mut sent_advertisement = advertisement(Version::V2);
        sent_advertisement.password = Some(*b"secret\0\0");
        let bytes = sent_advertisement.encode(SOURCE, GROUP, ChecksumForm::Plain);
        assert_eq!(
            decode(&packet(&bytes)).unwrap().advertisement,
            sent_advertisement
        );
    }

    #[test]
    fn decode_checks_hop_limit_only_in_multicast() {
        let addresses: [IpAddr; 3] =
            ["fe80::1", "2001:db8::2", "ff02::12"].map(|it| it.parse().unwrap());
        let [source, unicast, multicast] = addresses;
        let decode_sent = |destination, hop_limit| {
            let sent_advertisement = Advertisement {
                addresses: vec!["fe80::10".parse().unwrap()],
                ..advertisement(Version::V3)
            };
            let bytes = sent_advertisement.encode(source, destination, ChecksumForm::Plain);
            decode(&ReceivedPacket {
                bytes: &bytes,
                source,
                destination,
                hop_limit,
            })
            .map(drop)
        };
        assert_eq!(decode_sent(unicast, 64), Ok(()));
        assert_eq!(decode_sent(multicast, HOP_LIMIT), Ok(()));
        assert_eq!(decode_sent(multicast, 64), Err(IgnoreReason::HopLimit));
    }

    #[test]
    fn invalid_packets_are_ignored_with_the_reason() {
        let good_bytes = advertisement(Version::V3).encode(SOURCE, GROUP, ChecksumForm::Plain);
        let error_with = |offset: usize, value: u8| {
            let mut bytes = good_bytes.clone();
            bytes[offset] = value;
            decode(&packet(&bytes)).unwrap_err()
        };
        assert_eq!(error_with(0, 0x41), IgnoreReason::Version);
        assert_eq!(error_with(0, 0x32), IgnoreReason::Type);
        assert_eq!(error_with(3, 2), IgnoreReason::Length);
        assert_eq!(error_with(2, 7), IgnoreReason::Checksum);
        assert_eq!(decode(&packet(&good_bytes[..5])), Err(IgnoreReason::Length));
        let forwarded = ReceivedPacket {
            hop_limit: 254,
            ..packet(&good_bytes)
        };
        assert_eq!(decode(&forwarded), Err(IgnoreReason::HopLimit));
        let mut zero_interval =
            advertisement(Version::V3).encode(SOURCE, GROUP, ChecksumForm::Plain);
        zero_interval[4..8].fill(0);
        let sum = checksum::checksum(&zero_interval);
        zero_interval[6..8].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(decode(&packet(&zero_interval)), Err(IgnoreReason::Interval));
        let mut empty_advertisement = advertisement(Version::V2);
        empty_advertisement.addresses.clear();
        let bytes = empty_advertisement.encode(SOURCE, GROUP, ChecksumForm::Plain);
        let received = decode(&packet(&bytes)).expect("decode accepts an empty list of addresses");
        assert_eq!(received.advertisement.addresses, [] as [IpAddr; 0]);
    }

    #[test]
    fn listed_addresses_fit_into_a_frame() {
        assert_eq!(
            (
                max_listed_addresses(true, false),
                max_listed_addresses(true, true)
            ),
            (255, 255)
        );
        assert_eq!(
            (
                max_listed_addresses(false, false),
                max_listed_addresses(false, true)
            ),
            (89, 88)
        );
    }

    /// A unicast packet as sent by keepalived up to 1.3.6, and by newer versions with `old_unicast_checksum`.
    #[test]
    fn old_unicast_checksum_is_accepted_and_recognized() {
        let peer = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 2));
        let sent_advertisement = advertisement(Version::V3);
        let bytes = sent_advertisement.encode(SOURCE, peer, ChecksumForm::GroupPseudoHeader);
        assert_eq!(
            bytes,
            sent_advertisement.encode(SOURCE, GROUP, ChecksumForm::PseudoHeader)
        );
        let received = decode(&ReceivedPacket {
            destination: peer,
            ..packet(&bytes)
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
            let _ = decode(&ReceivedPacket { bytes: &bytes, source, destination, hop_limit: 255 });
        }

        #[test]
        fn encoded_packets_are_decoded_unchanged(
            (source, destination, addresses) in any::<bool>().prop_flat_map(|v4| {
                (any_address(v4), any_address(v4), proptest::collection::vec(any_address(v4), 1..20))
            }),
            vrid in 1_u8..,
            priority: u8,
            centiseconds in 1_u64..4096,
            has_pseudo_header: bool,
        ) {
            let sent_advertisement = Advertisement {
                version: Version::V3,
                vrid,
                priority,
                interval: Duration::from_millis(10 * centiseconds),
                addresses,
                password: None,
            };
            let form = if has_pseudo_header { ChecksumForm::PseudoHeader } else { ChecksumForm::Plain };
            let bytes = sent_advertisement.encode(source, destination, form);
            let packet = ReceivedPacket { bytes: &bytes, source, destination, hop_limit: 255 };
            prop_assert_eq!(decode(&packet).unwrap().advertisement, sent_advertisement);
        }
    }
}
