//! Fuzzes VRRP advertisements.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use weir_vrrp::{
    Advertisement, ChecksumForm, Config, GROUP_V4, Instance, ReceivedPacket, Version, decode,
};

const SOURCE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1));

/// Decodes the input as a packet received over IPv6 and over IPv4. A packet that is valid over IPv4 is encoded and
/// decoded again, which must not change its content, and is passed to a virtual router.
pub(super) fn packet(input: &[u8]) {
    let arrival = ReceivedPacket {
        bytes: input,
        source: SOURCE,
        destination: GROUP_V4.into(),
        hop_limit: 255,
    };
    let ipv6 = IpAddr::V6(Ipv4Addr::LOCALHOST.to_ipv6_mapped());
    let _ = decode(&ReceivedPacket {
        source: ipv6,
        destination: ipv6,
        ..arrival
    });
    let Ok(received) = decode(&arrival) else {
        return;
    };
    let advertisement = &received.advertisement;
    let encoded = advertisement.encode(SOURCE, GROUP_V4.into(), received.checksum);
    let arrival = ReceivedPacket {
        bytes: &encoded,
        ..arrival
    };
    assert_eq!(
        decode(&arrival)
            .map(|received| received.advertisement)
            .as_ref(),
        Ok(advertisement)
    );
    let now = Duration::ZERO;
    let mut instance = Instance::new(config(advertisement), now);
    instance.handle_source(Some(Ipv4Addr::LOCALHOST.into()), now);
    let _ = instance.handle_packet(&received, SOURCE, now);
    while let Some(deadline) = instance
        .next_deadline()
        .filter(|deadline| *deadline < Duration::from_secs(600))
    {
        instance.handle_timeout(deadline);
        while instance.poll_output().is_some() {}
        if instance.handle_packet(&received, SOURCE, deadline).is_err()
            || deadline > Duration::from_secs(5)
        {
            return;
        }
    }
}

fn config(advertisement: &Advertisement) -> Config {
    Config {
        name: "v".to_owned(),
        version: advertisement.version,
        vrid: advertisement.vrid,
        interval: advertisement.interval,
        addresses: advertisement.addresses.clone(),
        password: advertisement.password,
        ..Config::default()
    }
}

pub(super) fn packets() -> Vec<Vec<u8>> {
    let advertisement = |version, password| Advertisement {
        version,
        vrid: 51,
        priority: 200,
        interval: Duration::from_secs(1),
        addresses: vec![Ipv4Addr::new(10, 77, 0, 100).into()],
        password,
    };
    let encode =
        |advertisement: Advertisement, form| advertisement.encode(SOURCE, GROUP_V4.into(), form);
    vec![
        encode(advertisement(Version::V2, None), ChecksumForm::Plain),
        encode(
            advertisement(Version::V2, Some(*b"password")),
            ChecksumForm::Plain,
        ),
        encode(advertisement(Version::V3, None), ChecksumForm::Plain),
        encode(advertisement(Version::V3, None), ChecksumForm::PseudoHeader),
    ]
}
