//! Reads the kernel's TCP counters of every host, which show where a connection was lost.

use super::World;

/// Substrings of the names of counters that increase if a connection or a packet is lost.
const NAMES: [&str; 12] = [
    "Abort",
    "Backlog",
    "Challenge",
    "Cookie",
    "Drop",
    "Err",
    "Fail",
    "Overflow",
    "Reset",
    "Retrans",
    "Rsts",
    "Timeouts",
];

impl World {
    /// Returns the counters of lost connections and packets, one host per line. A host with `OutRsts` has reset
    /// connections; `EstabResets` counts resets on both sides.
    pub fn tcp_failures(&self) -> String {
        let servers = (0..self.servers).map(|n| format!("server{n}"));
        let hosts = ["client", "director"].map(str::to_owned);
        let lines = hosts.into_iter().chain(servers).map(|host| {
            let output = self.output(&host, "cat /proc/net/snmp /proc/net/netstat");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            format!("{host}: {}\n", failures(&text).join(", "))
        });
        lines.collect()
    }
}

/// Returns the nonzero counters of lost connections. The text consists of pairs of lines with names and values.
fn failures(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("Tcp"))
        .collect();
    let counters = lines.chunks_exact(2).flat_map(|pair| {
        let (names, values) = (pair[0].split_whitespace(), pair[1].split_whitespace());
        names.zip(values).skip(1)
    });
    counters
        .filter(|(name, value)| *value != "0" && NAMES.iter().any(|part| name.contains(part)))
        .map(|(name, value)| format!("{name} {value}"))
        .collect()
}
