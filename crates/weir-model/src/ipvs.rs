//! `[ipvs]`: the keys of `/proc/sys/net/ipv4/vs` that matter, by their names and with their defaults.
//!
//! Values only; what each does to a packet is the data plane's matter (net/netfilter/ipvs/ip_vs_ctl.c, `vs_vars`).

use std::time::Duration;

/// How IPVS's rules are bent, for all services.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ipvs {
    /// A flow whose server is gone ends at its next packet, which chooses anew.
    pub expire_nodest_conn: bool,
    /// Persistent clients of a server of weight 0 choose anew.
    pub expire_quiescent_template: bool,
    /// When a SYN on an existing flow chooses anew: bit 0 when its state allows it, bit 1 in `FIN_WAIT` too.
    pub conn_reuse_mode: u8,
    /// Any TCP packet without RST begins a flow.
    pub sloppy_tcp: bool,
    /// Half-open flows are dropped at random to defend the table: 0 never, 1 and 2 while memory is short, 3 always.
    pub drop_entry: u8,
    /// Below this many pages of free memory it is short.
    pub amemthresh: u32,
    /// An ICMP error of no flow makes one.
    pub schedule_icmp: bool,
    /// Marked packets that no server gets go on to where they were sent.
    pub cache_bypass: bool,
    /// How long `lblc` remembers an unused destination; whole seconds.
    pub lblc_expiration: Duration,
    /// How long `lblcr` leaves a set of servers as it is; whole seconds.
    pub lblcr_expiration: Duration,
}

impl Ipvs {
    /// Largest `conn_reuse_mode`: both bits.
    pub const MAX_CONN_REUSE_MODE: u8 = 3;
    /// Largest `drop_entry`.
    pub const MAX_DROP_ENTRY: u8 = 3;
}

/// The kernel's defaults (Documentation/networking/ipvs-sysctl.rst).
impl Default for Ipvs {
    fn default() -> Self {
        Self {
            expire_nodest_conn: false,
            expire_quiescent_template: false,
            conn_reuse_mode: 1,
            sloppy_tcp: false,
            drop_entry: 0,
            amemthresh: 1024,
            schedule_icmp: false,
            cache_bypass: false,
            lblc_expiration: Duration::from_secs(86_400),
            lblcr_expiration: Duration::from_secs(86_400),
        }
    }
}
