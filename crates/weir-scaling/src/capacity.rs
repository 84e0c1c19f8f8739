//! Calculates, from measured costs, the resources that one director of a group needs.

use serde::Serialize;

/// The traffic of the whole group.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Load {
    /// Number of directors, at least 1.
    pub directors: u32,
    /// Rate of each director's link, in bits per second. Client packets fill it.
    pub link: f64,
    /// Mean length of client packets in bytes, including the Ethernet header.
    pub packet: f64,
    /// Concurrent flows.
    pub flows: f64,
    /// New flows per second.
    pub new_flows: f64,
}

/// Costs in CPU time and bytes. The defaults are from docs/performance.md.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Costs {
    /// Nanoseconds for a packet of an established flow, if the flow table does not fit into the CPU's cache.
    pub packet: f64,
    /// Nanoseconds for the first packet of a flow.
    pub new_flow: f64,
    /// Nanoseconds to send a flow to another director.
    pub sync_send: f64,
    /// Nanoseconds to insert a flow that another director sent.
    pub sync_receive: f64,
    /// Bytes that a flow occupies in a `[sync]` datagram.
    pub sync_bytes: f64,
    /// Size of a flow table slot, in bytes.
    pub slot: f64,
}

impl Default for Costs {
    fn default() -> Self {
        Self {
            packet: 254.0,
            new_flow: 500.0,
            sync_send: 1_500.0,
            sync_receive: 1_500.0,
            sync_bytes: 48.0,
            slot: 82.0,
        }
    }
}

/// The resources that one director needs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Requirements {
    /// Packets per second.
    pub packets: f64,
    /// CPUs for packets of established flows.
    pub cpus_packets: f64,
    /// CPUs for first packets.
    pub cpus_new_flows: f64,
    /// CPUs for `[sync]` with all other directors.
    pub cpus_sync: f64,
    /// Size of a flow table for the director's own flows, in bytes; half of its slots stay free.
    pub memory: f64,
    /// Size of a flow table for the flows of all directors, in bytes, as `[sync]` requires.
    pub memory_sync: f64,
    /// Bits per second that `[sync]` sends; it receives the same number.
    pub sync_bits: f64,
}

/// Calculates the resources that one director needs.
#[must_use]
pub fn requirements(load: &Load, costs: &Costs) -> Requirements {
    let directors = f64::from(load.directors.max(1));
    let packets = load.link / 8.0 / load.packet;
    let own_flows = load.new_flows / directors;
    // A director sends each of its flows to all other directors, so it sends as many flows as it receives.
    let other_flows = load.new_flows - own_flows;
    let table = |flows: f64| flows * 2.0 * costs.slot;
    let seconds = |nanoseconds: f64| nanoseconds / 1e9;
    Requirements {
        packets,
        cpus_packets: packets * seconds(costs.packet),
        cpus_new_flows: own_flows * seconds(costs.new_flow),
        cpus_sync: other_flows * seconds(costs.sync_send + costs.sync_receive),
        memory: table(load.flows / directors),
        memory_sync: table(load.flows),
        sync_bits: other_flows * costs.sync_bytes * 8.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirements_are_calculated_for_one_director_in_a_group_of_64() {
        let load = Load {
            directors: 64,
            link: 100e9,
            packet: 500.0,
            flows: 64e6,
            new_flows: 640e3,
        };
        let need = requirements(&load, &Costs::default());
        assert!((need.packets - 25e6).abs() < 1.0);
        assert!((need.cpus_packets - 6.35).abs() < 1e-9);
        assert!((need.cpus_new_flows - 0.005).abs() < 1e-9);
        // Per second, it sends 10,000 flows to each of 63 directors, and receives 630,000 flows from them.
        assert!((need.cpus_sync - 1.89).abs() < 1e-9);
        assert!((need.memory - 164e6).abs() < 1.0);
        assert!((need.memory_sync - 64.0 * 164e6).abs() < 1.0);
        assert!((need.sync_bits - 630e3 * 48.0 * 8.0).abs() < 1.0);
    }

    #[test]
    fn single_director_sends_no_flows() {
        let load = Load {
            directors: 0,
            link: 1e9,
            packet: 100.0,
            flows: 1e3,
            new_flows: 1e3,
        };
        assert_eq!(requirements(&load, &Costs::default()).sync_bits, 0.0);
    }
}
