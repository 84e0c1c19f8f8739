//! Reports received packets with a wrong checksum.
//!
//! A director or bridge has forwarded these packets with a partial checksum, which the sender's device should have
//! completed. The counters are read twice. The total since boot shows the problem on a new server. On a server that has
//! run for months, the total would hide it; the difference between the readings shows the current rate.

use std::time::{Duration, Instant};

use crate::Diagnosis;

/// A bad cable can cause one wrong checksum in this many packets.
const PACKETS_PER_TOLERATED_ERROR: u64 = 100_000;

/// Minimum number of wrong checksums between two readings that are reported. Individual ones come from clients, which
/// are not under the operator's control.
const MIN_RECENT_ERRORS: u64 = 3;

/// Minimum time between two readings. A stalled connection retransmits several times a second at first.
const INTERVAL: Duration = Duration::from_secs(1);

/// The period that a first reading covers.
const SINCE_BOOT: &str = "since boot";

/// Packets of a protocol since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counters {
    /// Packets with a wrong checksum.
    errors: u64,
    /// All received packets.
    packets: u64,
}

impl Counters {
    fn since(self, earlier: Self) -> Self {
        Self {
            errors: self.errors.saturating_sub(earlier.errors),
            packets: self.packets.saturating_sub(earlier.packets),
        }
    }

    /// Returns whether there are more errors than a bad cable would cause.
    const fn has_excessive_errors(self) -> bool {
        self.errors > 0 && self.errors >= self.packets / PACKETS_PER_TOLERATED_ERROR
    }
}

/// A protocol, as in the finding, and its counters. IPv6 has no TCP counters of its own.
type Protocols = Vec<(&'static str, Counters)>;

/// A first reading of the checksum counters.
#[derive(Debug)]
pub struct Reading {
    protocols: Protocols,
    time: Instant,
}

impl Reading {
    /// Reads the counters of the calling thread's network namespace.
    pub fn new() -> Self {
        Self {
            protocols: read_protocols(),
            time: Instant::now(),
        }
    }

    /// Reads the counters again, at least one second after the first reading, and reports protocols with more wrong
    /// checksums than a bad cable would cause, since boot or since the first reading.
    pub async fn bad_checksums(self) -> Vec<Diagnosis> {
        tokio::time::sleep_until((self.time + INTERVAL).into()).await;
        evaluate(&self.protocols, &read_protocols())
    }
}

impl Default for Reading {
    fn default() -> Self {
        Self::new()
    }
}

fn read_protocols() -> Protocols {
    let read = |name| std::fs::read_to_string(name).unwrap_or_default();
    parse(
        &read("/proc/thread-self/net/snmp"),
        &read("/proc/thread-self/net/snmp6"),
    )
}

/// Parses the counters of both IP versions (proc(5)).
fn parse(snmp: &str, snmp6: &str) -> Protocols {
    let tcp = || {
        Some(Counters {
            errors: table_counter(snmp, "Tcp:", "InCsumErrors")?,
            packets: table_counter(snmp, "Tcp:", "InSegs")?,
        })
    };
    // `InDatagrams` counts only datagrams without an error.
    let udp = |errors: Option<u64>, received: Option<u64>| {
        Some(Counters {
            errors: errors?,
            packets: received? + errors?,
        })
    };
    let udp4 = |name| table_counter(snmp, "Udp:", name);
    let udp6 = |name| line_counter(snmp6, name);
    [
        ("TCP segments", tcp()),
        (
            "UDP datagrams over IPv4",
            udp(udp4("InCsumErrors"), udp4("InDatagrams")),
        ),
        (
            "UDP datagrams over IPv6",
            udp(udp6("Udp6InCsumErrors"), udp6("Udp6InDatagrams")),
        ),
    ]
    .into_iter()
    .filter_map(|(name, counters)| Some((name, counters?)))
    .collect()
}

fn evaluate(earlier: &Protocols, now: &Protocols) -> Vec<Diagnosis> {
    let mut findings = Vec::new();
    for (name, total) in now {
        let first = earlier.iter().find(|(other, _)| other == name);
        let recent = first.map(|(_, first)| total.since(*first));
        let recent = recent
            .filter(|recent| recent.has_excessive_errors() && recent.errors >= MIN_RECENT_ERRORS);
        let (Counters { errors, packets }, period) = match recent {
            _ if total.has_excessive_errors() => (*total, SINCE_BOOT),
            Some(recent) => (recent, "in the last few seconds"),
            None => continue,
        };
        let finding = Diagnosis::new(
            format!(
                "{errors} of {packets} {name} were received with a wrong checksum (InCsumErrors) {period}"
            ),
            "a virtual device (veth, bridge, tun, virtio) sent packets with a partial checksum, and a program on the \
             path forwarded them as if the checksum were complete: transfers stall. Weir 0.1 and other XDP programs \
             do this; `weir status` on the director shows its mode",
        );
        // The number since boot does not shrink when the cause is removed.
        let end = match period {
            SINCE_BOOT => {
                "; the cause has been removed if the number no longer grows, and the finding ends with the next boot"
            }
            _ => "",
        };
        findings.push(finding.fix(format!(
            "on the director, use Weir 0.2 or later; if another program forwards the packets, on the machine that \
             sends them: ethtool -K INTERFACE tx off{end}"
        )));
    }
    findings
}

/// Returns a counter of a protocol that has a line of names and a line of values.
fn table_counter(text: &str, protocol: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter(|line| line.starts_with(protocol));
    let (names, values) = (lines.next()?, lines.next()?);
    let index = names.split(' ').position(|column| column == name)?;
    values.split(' ').nth(index)?.parse().ok()
}

/// Returns a counter that has its own line.
fn line_counter(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().map(str::split_ascii_whitespace);
    let mut words = lines.find(|words| words.clone().next() == Some(name))?;
    words.nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The counters of TCP: errors and segments.
    fn tcp(errors: u64, segments: u64) -> Protocols {
        let snmp = format!(
            "Ip: Forwarding\nIp: 1\nTcp: ActiveOpens InSegs InCsumErrors\nTcp: 7 {segments} {errors}\nUdp: \
             InDatagrams InCsumErrors\nUdp: 0 0\n"
        );
        parse(&snmp, "")
    }

    fn found(earlier: &Protocols, now: &Protocols) -> Vec<String> {
        let findings = evaluate(earlier, now);
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn more_wrong_checksums_than_a_link_causes_are_reported() {
        let since_boot = |errors, segments| {
            let counters = tcp(errors, segments);
            found(&counters, &counters)
        };
        assert_eq!(since_boot(0, 1_000), [""; 0]);
        assert_eq!(since_boot(9, 1_000_000), [""; 0]);
        let text = since_boot(40, 1_000).join("\n");
        assert!(
            text.contains("40 of 1000 TCP segments") && text.contains("since boot"),
            "{text}"
        );
        assert!(text.contains("ends with the next boot"), "{text}");
    }

    #[test]
    fn wrong_checksums_on_a_long_running_server_are_reported() {
        let earlier = tcp(900, 1_000_000_000);
        let text = found(&earlier, &tcp(920, 1_000_050_000)).join("\n");
        assert!(
            text.contains("20 of 50000 TCP segments") && text.contains("in the last few seconds"),
            "{text}"
        );
        assert!(text.ends_with("ethtool -K INTERFACE tx off\n"), "{text}");
        for (errors, segments, case) in [
            (900, 1_000_050_000, "no new errors"),
            (902, 1_000_000_100, "single errors"),
            (905, 1_001_000_000, "few errors in a million"),
        ] {
            assert_eq!(found(&earlier, &tcp(errors, segments)), [""; 0], "{case}");
        }
    }

    #[test]
    fn wrong_checksums_of_datagrams_are_reported() {
        let counters = parse(
            "Udp: InDatagrams NoPorts InCsumErrors\nUdp: 100 0 7\nUdpLite: InDatagrams InCsumErrors\nUdpLite: 0 0\n",
            "Udp6InDatagrams                 \t50\nUdp6InCsumErrors                \t5\nUdpLite6InCsumErrors 9\n",
        );
        let text = found(&counters, &counters).join("\n");
        for part in [
            "7 of 107 UDP datagrams over IPv4",
            "5 of 55 UDP datagrams over IPv6",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(parse("Tcp: InSegs\nTcp: 5\n", ""), []);
    }
}
