//! Defines run-time settings, budgets, sweep counters, the address filter, versions and limits.

use crate::Addr;
use crate::mirror::{constants, structs};

constants! {
    /// Incremented when the meaning of a shared struct changes.
    ABI_VERSION: u32 = 1;
    /// Incremented when the meaning of the flow table changes; flows are then migrated.
    ABI_FLOW_LAYOUT: u32 = 3;
    /// The oldest flow table layout that can be migrated.
    ABI_FLOW_LAYOUT_OLDEST: u32 = 2;
    /// Binary logarithm of a tick in nanoseconds.
    TICK_SHIFT: u32 = 30;
    /// [`Settings::flags`]: a nat server runs on the director itself.
    SETTINGS_LOCAL_NAT: u32 = 1;
    /// [`Settings::flags`]: routes toward clients are not looked up: replies use the reverse path of the client's
    /// packets.
    SETTINGS_LEARN_CLIENTS: u32 = 2;
    /// [`Settings::flags`]: new flows are inserted into the old flow table, because programs that use only this table
    /// may still be running.
    SETTINGS_BEGIN_IN_OLD: u32 = 4;
    /// [`Settings::flags`]: `sloppy_tcp`: any TCP packet without RST starts a flow.
    SETTINGS_SLOPPY_TCP: u32 = 8;
    /// [`Settings::flags`]: `conn_reuse_mode` is not 0: a SYN on a closed flow starts a new flow.
    SETTINGS_REUSE: u32 = 16;
    /// [`Settings::flags`]: bit 1 of `conn_reuse_mode`: a SYN on a one-sided flow in FIN_WAIT also starts a new flow.
    SETTINGS_REUSE_FIN_WAIT: u32 = 32;
    /// [`Settings::flags`]: `expire_nodest_conn`: a SYN on a flow whose server accepts no new flows also starts a new
    /// flow.
    SETTINGS_EXPIRE_NODEST: u32 = 64;
    /// [`Settings::flags`]: flows that change their state are recorded in `weir_sync_rings`.
    SETTINGS_SYNC: u32 = 4096;
    /// [`Settings::flags`]: health probes may use a service's forwarding method.
    SETTINGS_PROBES: u32 = 128;
    /// [`Settings::flags`]: XDP can receive packets with partial checksums and passes them to tc.
    SETTINGS_UNFINISHED: u32 = 2_048;
    /// [`Settings::flags`]: `drop_entry`: the sweep removes idle entries at random.
    SETTINGS_DROP_ENTRY: u32 = 256;
    /// [`Settings::flags`]: `cache_bypass`: marked packets without a server are routed to their destination.
    SETTINGS_CACHE_BYPASS: u32 = 512;
    /// [`Settings::flags`]: `schedule_icmp`: an ICMP error without a flow creates one.
    SETTINGS_SCHEDULE_ICMP: u32 = 1024;
    /// Ethernet address of [`Settings::mark_entry`] and [`Settings::mark_exit`], in memory order.
    MARK_MAC: u64 = 0x72_6965_5702;
    /// Number of 64-bit words in each of the two filters.
    FILTER_WORDS: u32 = 8192;
    /// Number of entries in `weir_reasons`.
    REASON_COUNT: u32 = 64;
}

structs! {
    /// `weir_settings`: one row.
    Settings = "weir_settings", 128 {
        /// Timeouts in ticks, by `State`.
        timeouts: [u32; 16],
        /// Maximum number of new entries per CPU per second, for TCP and UDP together.
        syn_budget: u32,
        /// Maximum number of ICMP errors and resets that are sent per CPU per second.
        reject_budget: u32,
        /// `SETTINGS_*`.
        flags: u32,
        /// Lifetime of an untracked mark after a SYN, in ticks; the lifetime after a datagram is the UDP timeout.
        untracked_ticks: u32,
        /// Index of the device that marked packets are routed to, 0 = none.
        mark_entry: u32,
        /// Index of the peer of the `mark_entry` device; XDP receives the packets on the peer.
        mark_exit: u32,
        /// Number of flows out of 65536 whose latency is estimated; 0 = off.
        latency_sample: u32,
        /// Zero.
        pad: u32,
        /// 0 = the kernel's clock; otherwise the latency estimator's time in ns, for tests.
        latency_clock: u64,
        /// Zero.
        pad2: [u32; 3],
        /// Ticks after which `lblc` removes an unused address.
        lblc_expiration: u32,
        /// Ticks after which `lblcr` removes an unused address, and also a server from an unchanged set.
        lblcr_expiration: u32,
        /// 0 = `twos` and `p2c` use the kernel's generator; otherwise, a service's draw n is derived from this seed and
        /// n.
        draw_seed: u32,
    }

    /// `weir_budgets`, per CPU.
    Budget = "weir_budget", 16 {
        /// Tick of the current window.
        syn_window: u32,
        /// Number of entries created in this window.
        syn_used: u32,
        /// Tick of the current window.
        reject_window: u32,
        /// Number of ICMP errors and resets sent in this window.
        reject_used: u32,
    }

    /// The first fields of `weir_sweeps`, which user space can read; a timer follows them.
    SweepPublic = "weir_sweep_public", 24 {
        /// Number of completed passes over the table.
        passes: u64,
        /// Number of entries that have expired.
        expired: u64,
        /// Index of the next bucket.
        position: u32,
        /// Nonzero while the timer is armed.
        running: u32,
    }

    /// `weir_filters`: a Bloom filter over addresses.
    Filter = "weir_filter", 131072 {
        /// VIPs and snat addresses: compared with the destination of a packet.
        to: [u64; FILTER_WORDS as usize],
        /// nat servers: compared with the source of a packet.
        from: [u64; FILTER_WORDS as usize],
    }
}

impl Filter {
    /// Returns the index of an address's word and the two bits to set in it, which can coincide. The result must match
    /// the data plane (bpf/lib/hash.h). The hash is not keyed, because a false positive costs only one lookup.
    pub const fn bits(addr: Addr) -> (usize, u64) {
        let hash =
            (addr.lo ^ addr.lo >> 32 ^ addr.hi.rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let bits = 1 << (hash >> 45 & 63) | 1 << (hash >> 39 & 63);
        ((hash >> 51) as usize, bits)
    }

    /// Adds a VIP or an snat address.
    pub fn add_destination(&mut self, addr: Addr) {
        Self::set(&mut self.to, addr);
    }

    /// Adds a server whose replies pass through the director.
    pub fn add_source(&mut self, addr: Addr) {
        Self::set(&mut self.from, addr);
    }

    /// Returns whether `addr` may be a VIP or an snat address.
    pub fn may_be_destination(&self, addr: Addr) -> bool {
        Self::get(&self.to, addr)
    }

    /// Returns whether `addr` may be a nat server.
    pub fn may_be_source(&self, addr: Addr) -> bool {
        Self::get(&self.from, addr)
    }

    fn set(words: &mut [u64; FILTER_WORDS as usize], addr: Addr) {
        let (word, bits) = Self::bits(addr);
        words[word] |= bits;
    }

    fn get(words: &[u64; FILTER_WORDS as usize], addr: Addr) -> bool {
        let (word, bits) = Self::bits(addr);
        words[word] & bits == bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::IpAddr;

    #[test]
    fn filter_has_no_false_negatives() {
        let mut filter = Filter::ZERO;
        let addresses: Vec<Addr> = (0..=255u8)
            .map(|last| IpAddr::from([10, 0, 7, last]).into())
            .collect();
        addresses
            .iter()
            .for_each(|addr| filter.add_destination(*addr));
        assert!(
            addresses
                .iter()
                .all(|addr| filter.may_be_destination(*addr))
        );
        assert!(!addresses.iter().any(|addr| filter.may_be_source(*addr)));
        let mut filter = Filter::ZERO;
        addresses.iter().for_each(|addr| filter.add_source(*addr));
        assert!(addresses.iter().all(|addr| filter.may_be_source(*addr)));
        assert!(
            !addresses
                .iter()
                .any(|addr| filter.may_be_destination(*addr))
        );
    }

    /// The data plane computes the same bits. The values were computed with a different implementation.
    #[test]
    #[cfg(target_endian = "little")]
    fn filter_bits_are_the_same_as_in_the_data_plane() {
        for (address, word, first, second) in [
            ("10.0.0.1", 4356, 42, 24),
            ("192.0.2.10", 6104, 59, 32),
            ("2001:db8::1", 3827, 22, 58),
            ("2001:db8:1::1", 2001, 16, 41),
            // Both bits are the same.
            ("10.0.0.46", 5048, 41, 41),
        ] {
            let address: IpAddr = address.parse().unwrap();
            let bits = 1 << first | 1 << second;
            assert_eq!(Filter::bits(address.into()), (word, bits), "{address}");
        }
    }

    #[test]
    fn filter_has_few_false_positives() {
        let mut filter = Box::new(Filter::ZERO);
        let address = |net: u32, host: u32| Addr::from(core::net::Ipv4Addr::from(net + host));
        (0..10_000).for_each(|host| filter.add_source(address(0xc612_0000, host)));
        let hits = (0..65_536)
            .filter(|host| filter.may_be_source(address(0xcb00_0000, *host)))
            .count();
        assert!(hits < 300, "{hits} false positives of 65536");
    }
}
