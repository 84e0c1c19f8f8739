//! Reports received segments with a wrong checksum: a director or bridge has forwarded packets with a partial checksum,
//! which the sender's device should have completed.

use crate::Diagnosis;

/// A bad cable can cause one wrong checksum in this many segments.
const SEGMENTS_PER_TOLERATED_ERROR: u64 = 100_000;

/// Reports wrong checksums if there are more than a bad cable would cause.
pub fn bad_checksums() -> Option<Diagnosis> {
    evaluate(&std::fs::read_to_string("/proc/thread-self/net/snmp").ok()?)
}

fn evaluate(text: &str) -> Option<Diagnosis> {
    let (errors, segments) = (
        counter(text, "Tcp:", "InCsumErrors")?,
        counter(text, "Tcp:", "InSegs")?,
    );
    if errors == 0 || errors < segments / SEGMENTS_PER_TOLERATED_ERROR {
        return None;
    }
    Some(Diagnosis::new(
        format!(
            "{errors} of {segments} TCP segments were received with a wrong checksum (InCsumErrors)"
        ),
        "a virtual device (veth, bridge, tun, virtio) sent packets with a partial checksum, and a program on the \
        path forwarded them as if the checksum were complete: transfers stall. Weir 0.1 and other XDP programs do \
        this; `weir status` on the director shows its mode. The counter covers the time since boot",
    ))
}

fn counter(text: &str, protocol: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter(|line| line.starts_with(protocol));
    let (names, values) = (lines.next()?, lines.next()?);
    let index = names.split(' ').position(|known| known == name)?;
    values.split(' ').nth(index)?.parse().ok()
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
        assert_eq!(evaluate(&snmp(1_000, 0)), None);
        assert_eq!(evaluate(&snmp(1_000_000, 9)), None);
        let text = evaluate(&snmp(1_000, 40)).expect("reported").to_string();
        assert!(text.contains("40 of 1000 TCP segments"), "{text}");
        assert_eq!(evaluate("Tcp: InSegs\nTcp: 5\n"), None);
    }
}
