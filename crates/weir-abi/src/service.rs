//! Defines services: the addresses and ports that clients use, and scheduler data.

use crate::mirror::{constants, numbered, structs};
use crate::{Addr, Be16};

constants! {
    /// [`Vip::flags`]: reply to ICMP echo requests; set on every address of an L4 service.
    VIP_ECHO: u32 = 1;
    /// [`Vip::flags`]: `ranges_at` and `ranges_len` describe port ranges.
    VIP_RANGES: u32 = 2;
    /// [`Vip::flags`]: the address is a source address of snat and receives replies.
    VIP_SNAT: u32 = 4;
    /// [`Vip::flags`]: the network stack handles ICMP echo, and the director does not accept packets for the address
    /// (`accept` of `[vrrp]`).
    VIP_SILENT: u32 = 8;
    /// [`Service::flags`]: `no_server = "drop"`; otherwise, an ICMP port unreachable is sent.
    SERVICE_DROP_NO_SERVER: u32 = 1;
    /// [`Service::flags`]: nat with source translation.
    SERVICE_SNAT: u32 = 2;
    /// [`Service::flags`]: `strict_ipvs`: dh, sh and mh do not skip unavailable servers; UDP flows are counted as
    /// inactive.
    SERVICE_STRICT: u32 = 4;
    /// [`Service::flags`]: every UDP packet is scheduled and creates no entry.
    SERVICE_ONE_PACKET: u32 = 8;
    /// [`Service::template_scope`]: templates are per protocol, VIP and port.
    TEMPLATE_PORT: u8 = 0;
    /// [`Service::template_scope`]: templates are per protocol and VIP, any port.
    TEMPLATE_VIP: u8 = 1;
    /// [`Service::template_scope`]: templates are per service, all listeners.
    TEMPLATE_SERVICE: u8 = 2;
    /// [`Extent::flags`]: `sh-port`, `mh-port`: also hash the source port.
    EXTENT_PORT: u32 = 1;
    /// [`Extent::flags`]: `sh-fallback`, `mh-fallback`: skip an overloaded server that a hash selects.
    EXTENT_FALLBACK: u32 = 2;
    /// [`Extent::flags`]: skip a quiesced or failed server that a hash selects.
    EXTENT_REPAIR: u32 = 4;
    /// [`Extent::flags`]: `ip_hash`: hash the first three bytes of an IPv4 source.
    EXTENT_NETWORK: u32 = 8;
    /// Node 0 of a tree whose scheduler compares servers as `wlc` does.
    RULE_WLC: u32 = 768;
    /// Node 0 of a tree whose scheduler compares servers as `lc` does.
    RULE_LC: u32 = 2816;
    /// Node 0 of a tree whose scheduler compares servers as `sed` does.
    RULE_SED: u32 = 1025;
    /// Node 0 of a tree whose scheduler compares servers as `nq` does.
    RULE_NQ: u32 = 5121;
    /// Node 0 of a tree whose scheduler compares servers as `fo` does; `wrr` uses it too.
    RULE_FO: u32 = 1024;
    /// Node 0 of a tree whose scheduler compares servers as `ovf` does.
    RULE_OVF: u32 = 9216;
    /// Node 0 of a tree that sums the weights of servers below their thresholds, for `twos` and `p2c`.
    RULE_SUM_WEIGHT: u32 = 16384;
    /// Node 0 of a tree that sums active flows, for `max_load`.
    RULE_SUM_ACTIVE: u32 = 16385;
    /// Maximum number of servers that `lblcr` stores for an address.
    LOCALITY_SERVERS: u32 = 16;
}

numbered! {
    /// `enum weir_scheduler`. The numbers are part of the ABI.
    Scheduler: u32 {
        /// No scheduler: the service has no server.
        None = 0,
        /// Round robin.
        Rr = 1,
        /// Weighted round robin.
        Wrr = 2,
        /// Least connections.
        Lc = 3,
        /// Weighted least connections.
        Wlc = 4,
        /// Shortest expected delay.
        Sed = 5,
        /// Never queue.
        Nq = 6,
        /// Weighted failover.
        Fo = 7,
        /// Weighted overflow.
        Ovf = 8,
        /// The better of two servers chosen at random by weight.
        Twos = 9,
        /// Destination hash.
        Dh = 10,
        /// Source hash.
        Sh = 11,
        /// Maglev hash, as in IPVS.
        Mh = 12,
        /// Locality-based least connections.
        Lblc = 13,
        /// Locality-based least connections with replication.
        Lblcr = 14,
        /// Maglev hash of the 5-tuple.
        Maglev = 15,
        /// The better of two different servers chosen at random by weight.
        P2c = 16,
        /// Least time.
        LeastTime = 17,
    }
}

structs! {
    /// `weir_vips`: an address of services, or a source address of snat.
    Vip = "weir_vip", 24 {
        /// `VIP_*`.
        flags: u32,
        /// Index of the service for all other TCP ports, 0 = none.
        any_tcp: u32,
        /// Index of the service for all other UDP ports, 0 = none.
        any_udp: u32,
        /// First element of `weir_tables` with [`Range`]s, sorted by (proto, first).
        ranges_at: u32,
        /// Number of ranges.
        ranges_len: u32,
        /// Zero.
        pad: u32,
    }

    /// A port range of a VIP; one element of `weir_tables`.
    Range = "weir_range", 16 {
        /// First port, in host byte order, inclusive.
        first: u16,
        /// Last port, in host byte order, inclusive.
        last: u16,
        /// IP protocol number.
        proto: u8,
        /// Zero.
        pad: [u8; 3],
        /// Index into `weir_services`.
        service: u32,
        /// Zero.
        pad2: u32,
    }

    /// Key of `weir_listeners`: an exact listener, or a firewall mark, whose key has protocol 0, the mark in the last
    /// four bytes of the address, and the family (4 or 6) as the port. The value is an index into `weir_services`.
    Listener = "weir_listener", 24 {
        /// The VIP, or the mark.
        addr: Addr,
        /// The port, or the family.
        port: Be16,
        /// IP protocol number; 0 = a mark.
        proto: u8,
        /// Zero.
        pad: [u8; 5],
    }

    /// `weir_services`: one row per service, index 0 unused.
    Service = "weir_service", 32 {
        /// `SERVICE_*`.
        flags: u32,
        /// First element of `weir_tables` with an [`Extent`]; 0 = no servers.
        extent: u32,
        /// First element of `weir_tables` with source addresses of snat, one address per element.
        snat_at: u32,
        /// Number of source addresses of snat.
        snat_len: u16,
        /// First source port of snat, in host byte order, inclusive.
        snat_port_first: u16,
        /// Last source port of snat, in host byte order, inclusive.
        snat_port_last: u16,
        /// DSCP of l3dsr, 1…63; 0 = the DSCP is not changed.
        dscp: u8,
        /// Zero.
        pad: u8,
        /// Changes when the row is reused for another service.
        generation: u32,
        /// Persistence: timeout of templates in ticks; 0 = no persistence.
        template_ticks: u32,
        /// Prefix length of an IPv4 client's network, 1…32.
        template_prefix4: u8,
        /// Prefix length of an IPv6 client's network, 1…128.
        template_prefix6: u8,
        /// `TEMPLATE_*`.
        template_scope: u8,
        /// Zero.
        pad2: u8,
    }

    /// Header of a service's extent in `weir_tables`: five elements, which do not change once a service row refers to
    /// them.
    Extent = "weir_extent", 80 {
        /// [`Scheduler`].
        scheduler: u32,
        /// `EXTENT_*`.
        flags: u32,
        /// A cursor of a different generation restarts at `start_seq` and `start_weight`.
        generation: u32,
        /// First element of the list of [`Member`]s, which contains only usable servers, newest first; for HAProxy's
        /// `first`, oldest first.
        list_at: u32,
        /// Number of members.
        list_len: u32,
        /// First element of the scheduler's hash table: ids of usable and unusable dests, four per element.
        hash_at: u32,
        /// Number of dest ids in the hash table.
        hash_len: u32,
        /// First element of the spread table, the maglev table for `maglev` and for flows without an entry; four dest
        /// ids per element.
        spread_at: u32,
        /// Number of dest ids in the spread table; 0 = no usable server.
        spread_len: u32,
        /// Maximum weight in the list.
        max_weight: u32,
        /// Greatest common divisor of the list's weights.
        gcd: u32,
        /// Initial `seq` of a cursor of a different generation.
        start_seq: u32,
        /// Initial `current_weight` of a cursor of a different generation.
        start_weight: u32,
        /// Limit on a server's active flows for hash schedulers, in percent of its fair share; 0 = no limit.
        max_load: u32,
        /// First element of the tree, whose nodes contain list positions or sums, four nodes per element; packets
        /// update them.
        tree_at: u32,
        /// Number of nodes of the tree, which is also its number of leaves, a power of two; 0 = the scheduler searches
        /// the list.
        tree_width: u32,
        /// Sum of the weights in the list.
        weight: u64,
        /// First element of the previous maglev table, which the second hop uses.
        former_at: u32,
        /// Number of dest ids in the previous maglev table; 0 = there is no second hop.
        former_len: u32,
    }

    /// A usable server in a service's list; one element of `weir_tables`.
    Member = "weir_member", 16 {
        /// Ascending number in the order of addition; 0 is not used.
        seq: u32,
        /// Index into `weir_dests`.
        dest: u32,
        /// Effective weight, above 0.
        weight: u32,
        /// Index into `weir_live` of the counts that schedulers compare.
        live: u32,
    }

    /// `weir_cursors`: scheduler state that packets change, one cache line per service.
    Cursor = "weir_cursor", 64 {
        /// Lock, held by a packet for a few instructions.
        lock: u32,
        /// Generation of the extent that `seq` and `current_weight` belong to.
        generation: u32,
        /// `seq` of the last chosen member, 0 = before the first member.
        seq: u32,
        /// Position of the last chosen member in the list.
        hint: u32,
        /// Current weight of wrr.
        current_weight: i32,
        /// Number of random numbers drawn, counted only with `Settings::draw_seed`.
        draws: u32,
        /// Zero.
        pad: [u32; 10],
    }

    /// Key of `weir_localities`: an address of a service.
    LocalityKey = "weir_locality_key", 32 {
        /// The destination address.
        addr: Addr,
        /// Index into `weir_services`.
        service: u32,
        /// Generation of the service's row.
        generation: u32,
        /// [`Scheduler`].
        scheduler: u32,
        /// Zero.
        pad: u32,
    }

    /// Value of `weir_localities`: the servers of an address for `lblc` and `lblcr`.
    Locality = "weir_locality", 80 {
        /// Lock, held while the set changes.
        lock: u32,
        /// Number of servers in the set.
        len: u32,
        /// Tick of the last use.
        last_use: u32,
        /// Tick of the last change.
        last_change: u32,
        /// Ids of the dests in the order of addition; `lblc` uses only one.
        dests: [u32; LOCALITY_SERVERS as usize],
    }

    /// The unit of `weir_tables`.
    Element = "weir_element", 16 {
        /// Four words in host byte order, or another struct of the same size.
        word: [u32; 4],
    }
}
