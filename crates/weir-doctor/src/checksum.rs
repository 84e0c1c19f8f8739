//! Received segments with a wrong checksum: a director or bridge sent packets on whose checksum the sender had left to
//! its device.

use crate::Diagnosis;

/// One wrong checksum in so many segments can be a bad cable.
const TOLERATED_SHARE: u64 = 100_000;

/// Reports more wrong checksums than a link causes.
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
            "{errors} of {segments} TCP segments were received with a wrong checksum (InCsumErrors)"
        ),
        "the sender left the checksum to a virtual device (veth, bridge, tun, virtio), and something on the path \
         changed or forwarded the packet as if the checksum were complete: transfers stall. Weir 0.1 and other XDP \
         programs do this; `weir status` on the director shows its mode. The counter covers the time since boot",
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
            "Ip: Forwarding\nIp: 1\nTcp: ActiveOpens InSegs InCsumErrors\nTcp: 7 {segments} {errors}\nUdp: \
             InCsumErrors\nUdp: 3\n"
        )
    }

    #[test]
    fn more_wrong_checksums_than_a_link_causes_are_reported() {
        assert_eq!(found(&snmp(1_000, 0)), None);
        assert_eq!(found(&snmp(1_000_000, 9)), None);
        let text = found(&snmp(1_000, 40)).expect("these are many").to_string();
        assert!(text.contains("40 of 1000 TCP segments"), "{text}");
        assert_eq!(found("Tcp: InSegs\nTcp: 5\n"), None);
    }
}
