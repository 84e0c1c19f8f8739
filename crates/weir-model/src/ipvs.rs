//! Defines the settings of `[ipvs]`, those of `/proc/sys/net/ipv4/vs`, with the kernel's names and defaults.
//!
//! The module contains only the values; the data plane implements them (net/netfilter/ipvs/ip_vs_ctl.c, `vs_vars`).

use std::time::Duration;

/// IPVS settings for all services.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ipvs {
    /// Whether a flow whose server was removed ends with its next packet, which is scheduled again.
    pub expire_nodest_conn: bool,
    /// Whether persistent clients of a server with weight 0 are scheduled again.
    pub expire_quiescent_template: bool,
    /// When a SYN on an existing flow starts a new flow: bit 0 = if the state of the flow allows it; bit 1 = also in
    /// `FIN_WAIT`.
    pub conn_reuse_mode: u8,
    /// Whether any TCP packet without RST starts a flow.
    pub sloppy_tcp: bool,
    /// When half-open flows are dropped at random to protect the table: 0 = never, 1 and 2 = while memory is low, 3 =
    /// always.
    pub drop_entry: u8,
    /// Low-memory threshold, in free pages.
    pub amemthresh: u32,
    /// Whether an ICMP error that matches no flow creates one.
    pub schedule_icmp: bool,
    /// Whether packets with a firewall mark are forwarded to their original destination if no server is available.
    pub cache_bypass: bool,
    /// How long `lblc` keeps an unused destination; whole seconds.
    pub lblc_expiration: Duration,
    /// How long `lblcr` keeps an unused destination, and a set of servers that does not change; whole seconds.
    pub lblcr_expiration: Duration,
}

impl Ipvs {
    /// Largest `conn_reuse_mode`: both bits.
    pub const MAX_CONN_REUSE_MODE: u8 = 3;
    /// Largest `drop_entry`.
    pub const MAX_DROP_ENTRY: u8 = 3;
}

/// Returns the kernel's defaults (Documentation/networking/ipvs-sysctl.rst).
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
