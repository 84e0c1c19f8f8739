//! Defines the keys of `[ipvs]`.

use super::*;

/// Keys of `[ipvs]`.
pub(crate) static IPVS: Section = Section {
    path: "ipvs",
    page: "ipvs",
    purpose: "The settings of `/proc/sys/net/ipv4/vs` that affect flows, with the kernel's names and defaults.",
    example: "[ipvs]\nexpire_nodest_conn = 1\nexpire_quiescent_template = 1\n",
    keys: &[
        Key::new(
            "expire_nodest_conn",
            SWITCH,
            Default("0"),
            "1: a flow whose server was removed is deleted when its next packet arrives. A packet that may start a \
             flow is then scheduled again, unless the pool's `on_remove` specifies otherwise. A SYN on a flow whose \
             server does not accept new flows starts a new flow.",
            "expire_nodest_conn = 1",
        ),
        Key::new(
            "expire_quiescent_template",
            SWITCH,
            Default("0"),
            "1: persistent clients of a server with weight 0 are assigned to another server; 0: they keep their \
             server.",
            "expire_quiescent_template = 1",
        ),
        Key::new(
            "conn_reuse_mode",
            integer((0, Ipvs::MAX_CONN_REUSE_MODE as u32)),
            Default("1"),
            "When a SYN that matches an existing flow starts a new flow: 0 = never, 1 = if the old flow has ended, 2 \
             and 3 = also if it is in FIN_WAIT, for forwarding methods whose replies bypass the director. This does \
             not apply to flows of persistent clients.",
            "conn_reuse_mode = 0",
        ),
        Key::new(
            "sloppy_tcp",
            SWITCH,
            Default("0"),
            "1: any TCP packet without RST may start a flow, not only a SYN.",
            "sloppy_tcp = 1",
        ),
        Key::new(
            "lblc_expiration",
            integer((1, 31 * 86_400)),
            Default("86400"),
            "Seconds after which `lblc` removes the entry for an unused destination.",
            "lblc_expiration = 3600",
        ),
        Key::new(
            "lblcr_expiration",
            integer((1, 31 * 86_400)),
            Default("86400"),
            "Seconds that a destination's `lblcr` server set must remain unchanged before its most loaded server is \
             removed.",
            "lblcr_expiration = 3600",
        ),
        Key::new(
            "drop_entry",
            integer((0, Ipvs::MAX_DROP_ENTRY as u32)),
            Default("0"),
            "When the flow table is protected against floods: 0 = never, 1 and 2 = while memory is low, 3 = always. \
             Each second, in a random 1/32 of the table, these entries are dropped: half-open flows, persistence \
             entries without an established flow, and flows whose packets all arrived within one second, more than a \
             minute ago (the kernel instead counts packets, and drops some flows with up to eight).",
            "drop_entry = 1",
        ),
        Key::new(
            "amemthresh",
            integer((0, i32::MAX as u32)),
            Default("1024"),
            "Threshold for `drop_entry`, in pages of free memory and buffers. The daemon checks it every second.",
            "amemthresh = 4096",
        ),
        Key::new(
            "schedule_icmp",
            SWITCH,
            Default("0"),
            "1: an ICMP error that quotes a packet to a VIP but matches no flow is scheduled to a server.",
            "schedule_icmp = 1",
        ),
        Key::new(
            "cache_bypass",
            SWITCH,
            Default("0"),
            "1: when no server is available, packets of a firewall mark service are forwarded to their original \
             destination if it is another machine.",
            "cache_bypass = 1",
        ),
        Key::planned("am_droprate", "Rate of `drop_packet` in mode 3."),
        Key::planned(
            "backup_only",
            "A synchronization backup does not balance traffic.",
        ),
        Key::planned(
            "conntrack",
            "Flows are also tracked by netfilter conntrack.",
        ),
        Key::planned("drop_packet", "Packets are dropped to protect the table."),
        Key::planned("ignore_tunneled", "Tunneled packets are not balanced."),
        Key::planned(
            "nat_icmp_send",
            "An ICMP error is sent to a server whose reply matches no flow.",
        ),
        Key::planned(
            "pmtu_disc",
            "Whether ICMP errors are sent for packets that exceed the path MTU.",
        ),
        Key::planned("run_estimation", "Whether rates are estimated."),
        Key::planned("secure_tcp", "Stricter TCP state table while under attack."),
        Key::planned("sloppy_sctp", "Any SCTP packet may start a flow."),
        Key::planned("snat_reroute", "`nat` replies are routed again."),
        Key::planned(
            "sync_persist_mode",
            "Which persistence entries are synchronized.",
        ),
        Key::planned("sync_ports", "Number of synchronization ports."),
        Key::planned(
            "sync_qlen_max",
            "Maximum length of the synchronization queue.",
        ),
        Key::planned(
            "sync_refresh_period",
            "Interval after which a flow is synchronized again.",
        ),
        Key::planned("sync_retries", "Number of synchronization retries."),
        Key::planned("sync_sock_size", "Socket buffer size for synchronization."),
        Key::planned(
            "sync_threshold",
            "Number of packets after which a flow is synchronized.",
        ),
        Key::planned("sync_version", "Synchronization protocol version."),
    ],
};
