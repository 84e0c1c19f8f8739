//! Settings that user space changes at run time, budgets, the sweep's counters and the address filter; versions and limits.

use crate::Addr;
use crate::mirror::{constants, structs};

constants! {
    /// Changes with the meaning of any shared struct.
    ABI_VERSION: u32 = 1;
    /// Changes with the meaning of the flow table: flows then migrate, they are not adopted.
    ABI_FLOW_LAYOUT: u32 = 3;
    /// The oldest layout of a flow table whose flows are still taken over.
    ABI_FLOW_LAYOUT_OLDEST: u32 = 2;
    /// A tick is 2^this nanoseconds.
    TICK_SHIFT: u32 = 30;
    /// [`Settings::flags`]: some nat server is the director itself.
    SETTINGS_LOCAL_NAT: u32 = 1;
    /// [`Settings::flags`]: routes towards clients are not asked for: replies go to the MAC that the client's packets had.
    SETTINGS_LEARN_CLIENTS: u32 = 2;
    /// [`Settings::flags`]: programs that know only the old flow table may still run; flows begin there.
    SETTINGS_BEGIN_IN_OLD: u32 = 4;
    /// [`Settings::flags`]: `sloppy_tcp`: any TCP packet without RST begins a flow.
    SETTINGS_SLOPPY_TCP: u32 = 8;
    /// [`Settings::flags`]: `conn_reuse_mode` is not 0: a SYN on a flow that is over begins another.
    SETTINGS_REUSE: u32 = 16;
    /// [`Settings::flags`]: bit 1 of `conn_reuse_mode`: on one in FIN_WAIT whose replies are not seen too.
    SETTINGS_REUSE_FIN_WAIT: u32 = 32;
    /// [`Settings::flags`]: `expire_nodest_conn`: on one whose server takes no new flows too.
    SETTINGS_EXPIRE_NODEST: u32 = 64;
    /// [`Settings::flags`]: the director's own probes may go through a service's forward.
    SETTINGS_PROBES: u32 = 128;
    /// [`Settings::flags`]: XDP runs where packets with unfinished checksums come, and leaves them to tc.
    SETTINGS_UNFINISHED: u32 = 2_048;
    /// [`Settings::flags`]: `drop_entry`: the sweep defends the table.
    SETTINGS_DROP_ENTRY: u32 = 256;
    /// [`Settings::flags`]: `cache_bypass`: marked packets that no server gets go on to where they were sent.
    SETTINGS_CACHE_BYPASS: u32 = 512;
    /// [`Settings::flags`]: `schedule_icmp`: an ICMP error of no flow makes one.
    SETTINGS_SCHEDULE_ICMP: u32 = 1024;
    /// Ethernet address of [`Settings::mark_entry`] and [`Settings::mark_exit`], in memory order.
    MARK_MAC: u64 = 0x72_6965_5702;
    /// Words of 64 bits in each of the two filters.
    FILTER_WORDS: u32 = 8192;
    /// Entries of `weir_reasons`.
    REASON_COUNT: u32 = 64;
}

structs! {
    /// `weir_settings`: one row.
    Settings = "weir_settings", 128 {
        /// Ticks, by `State`.
        timeouts: [u32; 16],
        /// New entries a CPU and second, TCP and UDP together.
        syn_budget: u32,
        /// ICMP errors of Weir's own making a CPU and second.
        reject_budget: u32,
        /// `SETTINGS_*`.
        flags: u32,
        /// How long a mark holds after an untracked SYN, ticks; after a datagram it is the timeout of UDP.
        untracked_ticks: u32,
        /// Device that marked packets are routed to, 0 = none.
        mark_entry: u32,
        /// Its peer, where XDP balances them.
        mark_exit: u32,
        /// Zero.
        pad: [u32; 7],
        /// Ticks after which `lblc` forgets an address that nobody used.
        lblc_expiration: u32,
        /// The same for `lblcr`, which then also takes a server out of a set that did not change.
        lblcr_expiration: u32,
        /// 0 = `twos` and `p2c` draw from the kernel's generator; otherwise draw number n of a service is a function of both.
        draw_seed: u32,
    }

    /// `weir_budgets`, per CPU.
    Budget = "weir_budget", 16 {
        /// Tick of the current window.
        syn_window: u32,
        /// Entries made in it.
        syn_used: u32,
        /// Tick of the current window.
        reject_window: u32,
        /// ICMP errors sent in it.
        reject_used: u32,
    }

    /// The readable head of `weir_sweeps`; a timer follows it.
    SweepPublic = "weir_sweep_public", 24 {
        /// Full passes over the table.
        passes: u64,
        /// Entries expired.
        expired: u64,
        /// Next bucket.
        position: u32,
        /// Nonzero while the timer is armed.
        running: u32,
    }

    /// `weir_filters`: bits over addresses, without false negatives.
    Filter = "weir_filter", 131072 {
        /// VIPs and snat addresses: tested with the destination.
        to: [u64; FILTER_WORDS as usize],
        /// nat servers: tested with the source.
        from: [u64; FILTER_WORDS as usize],
    }
}

impl Filter {
    /// The word of an address, and its two bits there, which may be one; the data plane computes the same (bpf/lib/hash.h).
    /// Unkeyed: a false positive costs a packet one lookup.
    pub const fn bits(addr: Addr) -> (usize, u64) {
        let mixed =
            (addr.lo ^ addr.lo >> 32 ^ addr.hi.rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let bits = 1 << (mixed >> 45 & 63) | 1 << (mixed >> 39 & 63);
        ((mixed >> 51) as usize, bits)
    }

    /// Marks a VIP or an address of snat.
    pub fn add_to(&mut self, addr: Addr) {
        Self::set(&mut self.to, addr);
    }

    /// Marks a server that answers through the director.
    pub fn add_from(&mut self, addr: Addr) {
        Self::set(&mut self.from, addr);
    }

    /// Whether packets to `addr` may concern Weir.
    pub fn may_be_to(&self, addr: Addr) -> bool {
        Self::get(&self.to, addr)
    }

    /// Whether packets from `addr` may concern Weir.
    pub fn may_be_from(&self, addr: Addr) -> bool {
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
    fn the_filter_never_forgets_an_address() {
        let mut filter = Filter::ZERO;
        let addresses: Vec<Addr> = (0..=255u8)
            .map(|last| IpAddr::from([10, 0, 7, last]).into())
            .collect();
        addresses.iter().for_each(|addr| filter.add_to(*addr));
        assert!(addresses.iter().all(|addr| filter.may_be_to(*addr)));
        assert!(!addresses.iter().any(|addr| filter.may_be_from(*addr)));
    }

    #[test]
    fn most_other_addresses_are_told_apart() {
        let mut filter = Box::new(Filter::ZERO);
        let address = |net: u32, host: u32| Addr::from(core::net::Ipv4Addr::from(net + host));
        (0..10_000).for_each(|host| filter.add_from(address(0xc612_0000, host)));
        let hits = (0..65_536)
            .filter(|host| filter.may_be_from(address(0xcb00_0000, *host)))
            .count();
        assert!(hits < 300, "{hits} false positives of 65536");
    }
}
