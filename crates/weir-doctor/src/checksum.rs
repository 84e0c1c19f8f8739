//! Segments that came with a wrong checksum: what a director or a bridge makes of packets whose checksum the sender had
//! left to its device.

use crate::Diagnosis;

/// A line of noise in so many segments is a cable's business.
const TOLERATED_SHARE: u64 = 100_000;

/// More wrong checksums came than a link makes.
pub fn wrong() -> Option<Diagnosis> {
    found(&std::fs::read_to_string("/proc/thread-self/net/snmp").ok()?)
}

fn found(text: &str) -> Option<Diagnosis> {
    let (errors, segments) = (
        counter(text, "Tcp:", "InCsumErrors")?,
        counter(text, "Tcp:", "InSegs")?,
    );
    if errors == 0 || errors < segments / TOLERATED_SHARE {
        return None;
    }
    Some(Diagnosis::new(
        format!(
            "{errors} of {segments} TCP segments came here with a wrong checksum (InCsumErrors)"
        ),
        "the sender left the checksum to a device that is no hardware (veth, bridge, tun, virtio), and something on the way changed or \
         sent the packet on as if it were finished: transfers stall. A Weir of version 0.1 does so, and other XDP programs; `weir status` on \
         the director shows its mode. The counter is of the time since boot",
    ))
}

fn counter(text: &str, protocol: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter(|line| line.starts_with(protocol));
    let (names, values) = (lines.next()?, lines.next()?);
    let at = names.split(' ').position(|known| known == name)?;
    values.split(' ').nth(at)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snmp(segments: u64, errors: u64) -> String {
        format!(
            "Ip: Forwarding\nIp: 1\nTcp: ActiveOpens InSegs InCsumErrors\nTcp: 7 {segments} {errors}\nUdp: InCsumErrors\nUdp: 3\n"
        )
    }

    #[test]
    fn more_wrong_checksums_than_a_link_makes() {
        assert_eq!(found(&snmp(1_000, 0)), None);
        assert_eq!(found(&snmp(1_000_000, 9)), None);
        let said = found(&snmp(1_000, 40)).expect("these are many").to_string();
        assert!(said.contains("40 of 1000 TCP segments"), "{said}");
        assert_eq!(found("Tcp: InSegs\nTcp: 5\n"), None);
    }
}
