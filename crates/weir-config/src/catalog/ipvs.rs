//! The section of IPVS's own switches.

use super::*;

/// `[ipvs]`.
pub(crate) static IPVS: Section = Section {
    path: "ipvs",
    page: "ipvs",
    purpose: "The keys of `/proc/sys/net/ipv4/vs` that change how flows are treated, by their names and with their defaults.",
    example: "[ipvs]\nexpire_nodest_conn = 1\nexpire_quiescent_template = 1\n",
    keys: &[
        Key::new(
            "expire_nodest_conn",
            SWITCH,
            Default("0"),
            "1: a flow whose server was removed ends with its next packet, and one that may begin a flow chooses anew, \
             unless the pool's `on_remove` says otherwise; and a SYN on a flow of a server that takes no new ones begins \
             another.",
            "expire_nodest_conn = 1",
        ),
        Key::new(
            "expire_quiescent_template",
            SWITCH,
            Default("0"),
            "1: persistent clients of a server of weight 0 are given another; 0: they still come.",
            "expire_quiescent_template = 1",
        ),
        Key::new(
            "conn_reuse_mode",
            integer((0, Ipvs::MAX_CONN_REUSE_MODE as u32)),
            Default("1"),
            "When a SYN with a flow's own addresses and ports begins another flow: 0 = never, 1 = when the flow is over, \
             2 and 3 = also in FIN_WAIT where replies do not pass. Never for a persistent client's.",
            "conn_reuse_mode = 0",
        ),
        Key::new(
            "sloppy_tcp",
            SWITCH,
            Default("0"),
            "1: any TCP packet without RST may begin a flow, not a SYN alone.",
            "sloppy_tcp = 1",
        ),
        Key::new(
            "lblc_expiration",
            integer((1, 31 * 86_400)),
            Default("86400"),
            "Seconds for which `lblc` remembers the server of a destination that nobody asks for.",
            "lblc_expiration = 3600",
        ),
        Key::new(
            "lblcr_expiration",
            integer((1, 31 * 86_400)),
            Default("86400"),
            "Seconds for which `lblcr` leaves a destination's set of servers as it is before it takes the busiest out.",
            "lblcr_expiration = 3600",
        ),
        Key::new(
            "drop_entry",
            integer((0, Ipvs::MAX_DROP_ENTRY as u32)),
            Default("0"),
            "Whether the table is defended: 0 = never, 1 and 2 = while memory is short, 3 = always. Each second the 32nd part \
             of it, at random, loses its half-open flows, choices of persistent clients that never had an established one, \
             and flows that were silent for a minute after packets within a single second (the kernel counts up to eight \
             packets and takes some of those).",
            "drop_entry = 1",
        ),
        Key::new(
            "amemthresh",
            integer((0, i32::MAX as u32)),
            Default("1024"),
            "Pages of free memory and buffers below which memory is short for `drop_entry`. The daemon looks each second.",
            "amemthresh = 4096",
        ),
        Key::new(
            "schedule_icmp",
            SWITCH,
            Default("0"),
            "1: an ICMP error that quotes a packet of a VIP, but of no flow here, gets a server as its client's packets would.",
            "schedule_icmp = 1",
        ),
        Key::new(
            "cache_bypass",
            SWITCH,
            Default("0"),
            "1: packets of a service by firewall mark go on to where they were sent, if that is another machine, when no server \
             is usable.",
            "cache_bypass = 1",
        ),
        Key::later("am_droprate", "Rate of `drop_packet` in its mode 3."),
        Key::later(
            "backup_only",
            "A backup of synchronisation does not balance.",
        ),
        Key::later("conntrack", "Flows are netfilter's too."),
        Key::later("drop_packet", "Packets are dropped to defend the table."),
        Key::later(
            "ignore_tunneled",
            "Packets that came by a tunnel are not balanced.",
        ),
        Key::later(
            "nat_icmp_send",
            "Servers are told when their reply belongs to no flow.",
        ),
        Key::later("pmtu_disc", "Whether too big packets are answered."),
        Key::later("run_estimation", "Whether rates are estimated."),
        Key::later("secure_tcp", "Another table of TCP states, under attack."),
        Key::later("sloppy_sctp", "Any SCTP packet may begin a flow."),
        Key::later("snat_reroute", "Replies under `nat` are routed once more."),
        Key::later(
            "sync_persist_mode",
            "What synchronisation sends of persistence.",
        ),
        Key::later("sync_ports", "Ports of synchronisation."),
        Key::later("sync_qlen_max", "Queue of synchronisation."),
        Key::later(
            "sync_refresh_period",
            "When synchronisation sends a flow again.",
        ),
        Key::later("sync_retries", "How often synchronisation sends a flow."),
        Key::later("sync_sock_size", "Buffers of synchronisation."),
        Key::later(
            "sync_threshold",
            "After how many packets synchronisation sends a flow.",
        ),
        Key::later("sync_version", "Format of synchronisation."),
    ],
};
