//! `virtual_server` with its real servers.

use std::net::IpAddr;

use weir_model::Forward;

use super::Globals;
use super::checker::{CHECKERS, checks};
use super::field::{self, Of};
use super::group::Group;
use super::method::method;
use super::setting::{Level, Settings};
use super::tree::Node;
use crate::layer4::{Method, Persistent, Real, Said, Virtual, Writer};
use crate::note::{Notes, Place};

const SCHEDULERS: &[&str] = &[
    "rr", "wrr", "lc", "wlc", "lblc", "lblcr", "sh", "mh", "dh", "fo", "ovf", "sed", "nq", "twos",
];

/// What persistence lasts where no time is written.
const PERSISTENT_S: u64 = 360;

/// Who the service is.
enum Header<'a> {
    Address(IpAddr, u16),
    Mark(u64),
    Group(&'a str, &'a Group),
}

/// Directives of a virtual server while they are read.
#[derive(Default)]
struct Directives {
    settings: Settings,
    scheduler: Of<String>,
    flags: Vec<(String, Place)>,
    method: Of<Method>,
    persistent: Of<u64>,
    granularity: Option<(String, Place)>,
    protocol: Of<&'static str>,
    ops: Option<Place>,
    quorum: Of<u64>,
    hysteresis: Of<u64>,
    weight: Of<u64>,
    family: Of<bool>,
    ha_suspend: Option<Place>,
    sorry: Option<Sorry>,
}

struct Sorry {
    place: Place,
    address: IpAddr,
    port: u16,
    method: Of<Method>,
}

pub(super) fn write(writer: &mut Writer, globals: &Globals, node: &Node, notes: &mut Notes) {
    let Some(header) = header(globals, node, notes) else {
        return;
    };
    let mut directives = Directives::default();
    let mut reals = Vec::new();
    for inner in node.inner() {
        if inner.keyword() == "real_server" {
            reals.push(inner);
        } else {
            directive(&mut directives, inner, notes);
        }
    }
    let ipv6 = is_ipv6(&header, &directives, &reals);
    let Some((listen, port)) = listen(&header, &mut directives, ipv6, node, notes) else {
        return;
    };
    let mut found: Vec<Real> = Vec::new();
    for real in reals {
        found.extend(real_server(globals, &directives, real, ipv6, notes));
    }
    if let Header::Address(..) = header {
        same_port(&mut found, &directives, port, notes);
    }
    if found.is_empty() {
        node.refuse(
            notes,
            "keepalived ignores a virtual server without real servers",
        );
        return;
    }
    if found.iter().all(|real| real.probes.is_empty()) {
        directives.settings.unused(notes);
    }
    if directives.method.is_none() && found.iter().any(|real| real.method.is_none()) {
        notes.say(node.place, "no lvs_method: NAT, as keepalived has it");
    }
    if directives.scheduler.is_none() {
        notes.say(node.place, "no lvs_sched: wlc, as keepalived has it");
    }
    let name = match &header {
        Header::Group(name, _) => (*name).to_owned(),
        _ => listen
            .first()
            .map_or(String::new(), |(listen, _)| name_of(listen)),
    };
    judge_quorum(&mut directives, &found, notes);
    let persistent = persistence(&directives, ipv6, node, notes);
    if persistent.is_some() && listen.len() > 1 {
        let why = "clients stay with their server over all addresses of the group; with keepalived each had its own";
        notes.say(node.place, why);
    }
    let method = match directives.method {
        Some((method, place)) => Said::at(method, place),
        None => Said::implied(Method::plain(Forward::Nat)),
    };
    let scheduler = match directives.scheduler {
        Some((name, place)) => Said::at(name, place),
        None => Said::implied("wlc".to_owned()),
    };
    let sorry = sorry_server(directives.sorry, &method.value, ipv6, notes);
    let of = Virtual {
        from: node.place,
        name,
        listen,
        port,
        method,
        scheduler,
        flags: directives.flags,
        persistent,
        one_packet: directives.ops,
        reals: found,
        sorry,
        quorum: directives.quorum,
        hysteresis: directives.hysteresis,
        lines: node.lines(),
    };
    writer.write(of, notes);
}

/// Where the client's port stays, a real server has no other.
fn same_port(reals: &mut [Real], of: &Directives, port: u16, notes: &mut Notes) {
    for real in reals {
        let method = real.method.or(of.method);
        let nat = method.is_none_or(|(method, _)| method.forward == Forward::Nat);
        if nat && real.port == 0 {
            real.port = port;
        } else if !nat && real.port != port {
            if real.port != 0 {
                let why = format!(
                    "port {} became {port}, the service's, as keepalived has it",
                    real.port
                );
                notes.say(real.from, why);
            }
            real.port = port;
        }
    }
}

/// `tcp/192.0.2.1:80` as a name.
fn name_of(listen: &str) -> String {
    listen.replace(":*", "-any")
}

fn header<'a>(globals: &'a Globals, node: &'a Node, notes: &mut Notes) -> Option<Header<'a>> {
    let refuse = |notes: &mut Notes, why: &str| {
        node.refuse(notes, why);
        None
    };
    match node.word(1) {
        None => refuse(notes, "it names no address"),
        Some("group") => {
            field_no_more(node, 2, notes);
            let Some(name) = node.word(2) else {
                return refuse(notes, "it names no group");
            };
            match globals.groups.get(name) {
                Some(group) => Some(Header::Group(name, group)),
                None => refuse(notes, &format!("there is no virtual_server_group {name}")),
            }
        }
        Some("fwmark") => {
            field_no_more(node, 2, notes);
            let mark = node
                .word(2)
                .and_then(|word| field::within(word, 1, u32::MAX.into()));
            match mark {
                Some(mark) => Some(Header::Mark(mark)),
                None => refuse(notes, "it names no firewall mark"),
            }
        }
        Some(word) => {
            field_no_more(node, 2, notes);
            let address: Option<IpAddr> = word.parse().ok();
            let port = node
                .word(2)
                .map_or(Some(0), |word| field::within(word, 0, 65_535));
            match (address, port.and_then(|port| u16::try_from(port).ok())) {
                (Some(address), Some(port)) => Some(Header::Address(address, port)),
                (None, _) => refuse(notes, &format!("{word} is no address")),
                (_, None) => refuse(notes, "its port is none"),
            }
        }
    }
}

/// A header has a block, which [`field::no_more`] would refuse.
fn field_no_more(node: &Node, most: usize, notes: &mut Notes) {
    if let Some(word) = node.word(most + 1) {
        let why = format!("not carried over from \"{word}\" on: keepalived does not read so far");
        notes.say(node.place, why);
    }
}

fn directive(of: &mut Directives, node: &Node, notes: &mut Notes) {
    const FLAGS: &[&str] = &["sh-port", "sh-fallback", "mh-port", "mh-fallback"];
    if of.settings.take(node, Level::Virtual, notes) {
        return;
    }
    match node.keyword() {
        "lvs_sched" | "lb_algo" => match node.word(1) {
            Some(name) if SCHEDULERS.contains(&name) => {
                field::no_more(notes, node, 1);
                of.scheduler = Some((name.to_owned(), node.place));
            }
            _ => field::refuse(notes, node, "a scheduler of IPVS"),
        },
        "flag-1" | "flag-2" | "flag-3" => flag_number(of, node, notes),
        flag if FLAGS.contains(&flag) => {
            field::no_more(notes, node, 0);
            of.flags.push((flag.to_owned(), node.place));
        }
        "hashed" => node.refuse(notes, "it has had no effect in keepalived for long"),
        "ops" => {
            field::no_more(notes, node, 0);
            of.ops = Some(node.place);
        }
        "lvs_method" | "lb_kind" => of.method = method(notes, node).or(of.method),
        "persistence_timeout" => {
            of.persistent = match node.word(1) {
                None => Some((PERSISTENT_S, node.place)),
                Some(_) => field::number(notes, node, 1, 31 * 86_400).or(of.persistent),
            }
        }
        "persistence_granularity" => {
            of.granularity = field::word(notes, node, "a mask");
        }
        "persistence_engine" => node.refuse(notes, "Weir persists by the client's address alone"),
        "protocol" => match node.word(1).map(str::to_ascii_uppercase).as_deref() {
            Some("TCP") => of.protocol = Some(("tcp", node.place)),
            Some("UDP") => of.protocol = Some(("udp", node.place)),
            Some("SCTP") => of.protocol = Some(("sctp", node.place)),
            _ => field::refuse(notes, node, "TCP, UDP or SCTP"),
        },
        "ip_family" => match node.word(1) {
            Some("inet") => of.family = Some((false, node.place)),
            Some("inet6") => of.family = Some((true, node.place)),
            _ => field::refuse(notes, node, "inet or inet6"),
        },
        "quorum" => of.quorum = field::number(notes, node, 1, u32::MAX.into()),
        "hysteresis" => of.hysteresis = field::number(notes, node, 0, u32::MAX.into()),
        "weight" => of.weight = field::number(notes, node, 1, i32::MAX as u64),
        _ => unplaced(of, node, notes),
    }
}

/// Sorry servers, and what has no place.
fn unplaced(of: &mut Directives, node: &Node, notes: &mut Notes) {
    match node.keyword() {
        "sorry_server" => sorry(of, node, notes),
        "sorry_server_lvs_method" => match &mut of.sorry {
            Some(sorry) => sorry.method = method(notes, node),
            None => node.refuse(notes, "keepalived wants it behind sorry_server"),
        },
        "sorry_server_inhibit" => node.refuse(
            notes,
            "the sorry server of Weir is used or not, and never quiesced",
        ),
        "quorum_up" | "quorum_down" => {
            node.refuse(
                notes,
                "`notify` of the pool calls a program on every change of a server",
            );
        }
        "ha_suspend" => {
            field::no_more(notes, node, 0);
            of.ha_suspend = Some(node.place);
            notes.say(
                node.place,
                "not carried over: Weir checks whether or not the VIP is here",
            );
        }
        "omega" => node.refuse(
            notes,
            "when the daemon ends, flows and servers stay as they are",
        ),
        "smtp_alert" => node.refuse(
            notes,
            "Weir sends no mail; `notify` of the pool calls a program",
        ),
        "snmp_name" => node.refuse(notes, "Weir speaks no SNMP"),
        "nat_mask" | "net_mask" => {
            node.refuse(notes, "keepalived has dropped this keyword long ago")
        }
        keyword => {
            let why = other_keepalived(keyword);
            node.refuse(
                notes,
                why.unwrap_or("keepalived knows no such keyword in virtual_server"),
            );
        }
    }
}

/// Keywords of dpvs and its like.
fn other_keepalived(keyword: &str) -> Option<&'static str> {
    const OTHERS: &[&str] = &[
        "laddr_group_name",
        "daddr_group_name",
        "waddr_group_name",
        "vip_bind_dev",
        "establish_timeout",
        "conn_timeout",
        "proxy_protocol",
        "bps",
        "limit_proportion",
        "src-range",
        "dst-range",
        "iif",
        "oif",
        "hash_target",
        "syn_proxy",
        "expire_quiescent_conn",
        "quic",
        "announce_group",
        "annonunce_group",
    ];
    OTHERS
        .contains(&keyword)
        .then_some("this is a keyword of another program's keepalived (dpvs and its like)")
}

/// Flags by their number are those of the scheduler in force.
fn flag_number(of: &mut Directives, node: &Node, notes: &mut Notes) {
    let scheduler = of.scheduler.as_ref().map(|(name, _)| name.as_str());
    let flag = match (scheduler, node.keyword()) {
        (Some(name @ ("sh" | "mh")), "flag-1") => format!("{name}-fallback"),
        (Some(name @ ("sh" | "mh")), "flag-2") => format!("{name}-port"),
        _ => return node.refuse(notes, "the scheduler has no such flag"),
    };
    of.flags.push((flag, node.place));
}

/// The family of the service.
fn is_ipv6(header: &Header<'_>, of: &Directives, reals: &[&Node]) -> bool {
    if let Some((ipv6, _)) = of.family {
        return ipv6;
    }
    let first = match header {
        Header::Address(address, _) => return address.is_ipv6(),
        Header::Group(_, group) => group
            .addresses
            .first()
            .and_then(|block| block.addresses.first()),
        Header::Mark(_) => None,
    };
    if let Some(address) = first {
        return address.is_ipv6();
    }
    let word = reals.iter().find_map(|real| real.word(1));
    word.is_some_and(|word| word.contains(':'))
}

/// The listeners, and the one port that they have.
fn listen(
    header: &Header<'_>,
    of: &mut Directives,
    ipv6: bool,
    node: &Node,
    notes: &mut Notes,
) -> Option<(Vec<(String, Place)>, u16)> {
    let mark = |mark: u64, ipv6: bool| match ipv6 {
        true => format!("fwmark6/{mark}"),
        false => format!("fwmark/{mark}"),
    };
    let by_address = match header {
        Header::Mark(_) => false,
        Header::Address(..) => true,
        Header::Group(_, group) => !group.addresses.is_empty(),
    };
    if by_address && of.protocol.is_none() {
        notes.say(node.place, "no protocol: UDP, as keepalived has it");
    }
    if !by_address && let Some((_, place)) = of.protocol {
        notes.say(place, "not carried over: a firewall mark has no protocol");
    }
    let protocol = of.protocol.map_or("udp", |(protocol, _)| protocol);
    if by_address
        && protocol != "udp"
        && let Some(place) = of.ops.take()
    {
        notes.say(place, "not carried over: one packet scheduling is for UDP");
    }
    let place = of.protocol.map_or(node.place, |(_, place)| place);
    if by_address && protocol == "sctp" {
        notes.say(place, "not carried over: SCTP is not balanced");
        node.refuse(notes, "SCTP is not balanced");
        return None;
    }
    Some(match header {
        Header::Mark(number) => (vec![(mark(*number, ipv6), node.place)], 0),
        Header::Address(address, port) => {
            let listen = listener(protocol, *address, *port);
            (vec![(listen, node.place)], *port)
        }
        Header::Group(_, group) => {
            let mut listen = Vec::new();
            for block in &group.addresses {
                let addresses = block.addresses.iter();
                listen.extend(
                    addresses
                        .map(|address| (listener(protocol, *address, block.port), block.place)),
                );
            }
            listen.extend(
                group
                    .marks
                    .iter()
                    .map(|(number, ipv6, place)| (mark(*number, *ipv6), *place)),
            );
            let mut ports = group.addresses.iter().map(|block| block.port);
            let first = ports.next().unwrap_or(0);
            let one = group.marks.is_empty() && ports.all(|port| port == first);
            if listen.is_empty() {
                node.refuse(notes, "its group has no entries");
                return None;
            }
            (listen, if one { first } else { 0 })
        }
    })
}

fn listener(protocol: &str, address: IpAddr, port: u16) -> String {
    let protocol = if protocol == "tcp" { "" } else { "udp/" };
    let port = match port {
        0 => "*".to_owned(),
        port => port.to_string(),
    };
    match address {
        IpAddr::V4(v4) => format!("{protocol}{v4}:{port}"),
        IpAddr::V6(v6) => format!("{protocol}[{v6}]:{port}"),
    }
}

fn persistence(of: &Directives, ipv6: bool, node: &Node, notes: &mut Notes) -> Option<Persistent> {
    let mask = of.granularity.as_ref().and_then(|(word, place)| {
        let bits = match ipv6 {
            true => field::within(word, 1, 128).and_then(|bits| u8::try_from(bits).ok()),
            false => prefix(word),
        };
        if bits.is_none() {
            notes.say(
                *place,
                format!("not carried over: {word} is no mask of the service's family"),
            );
        }
        bits.map(|bits| (bits, *place))
    });
    let any_port = node.word(1) != Some("group") && node.word(1) != Some("fwmark") && {
        let port = node.word(2).unwrap_or("0");
        port.bytes().all(|byte| byte == b'0')
    };
    if any_port && of.persistent.is_none() && mask.is_none() {
        notes.say(
            node.place,
            "without a port it is persistent for 6 minutes, as keepalived has it",
        );
    }
    let implied = (mask.is_some() || any_port).then_some((PERSISTENT_S, node.place));
    let (seconds, from) = of.persistent.or(implied)?;
    Some(Persistent {
        from,
        seconds,
        mask,
        ipv6,
    })
}

/// `255.255.255.0`.
fn prefix(mask: &str) -> Option<u8> {
    let bits = mask.parse::<std::net::Ipv4Addr>().ok()?.to_bits();
    let length = bits.leading_ones();
    let solid = bits.checked_shl(length).unwrap_or(0) == 0;
    u8::try_from(length)
        .ok()
        .filter(|length| solid && *length > 0)
}

fn judge_quorum(of: &mut Directives, reals: &[Real], notes: &mut Notes) {
    let sum: u64 = reals.iter().map(|real| real.weight.value).sum();
    if let Some((quorum, place)) = &mut of.quorum
        && *quorum > sum
    {
        notes.say(
            *place,
            format!("the quorum became {sum}, the sum of all weights, as keepalived has it"),
        );
        *quorum = sum;
    }
    let quorum = of.quorum.map_or(1, |(quorum, _)| quorum);
    if let Some((hysteresis, place)) = &mut of.hysteresis
        && *hysteresis >= quorum
    {
        let most = quorum.saturating_sub(1);
        if *hysteresis > 0 {
            notes.say(
                *place,
                format!("the hysteresis became {most}, as keepalived has it"),
            );
        }
        *hysteresis = most;
    }
}

fn sorry(of: &mut Directives, node: &Node, notes: &mut Notes) {
    field::no_more(notes, node, 2);
    let address = node.word(1).and_then(|word| word.parse().ok());
    let port = node
        .word(2)
        .map_or(Some(0), |word| field::within(word, 0, 65_535));
    match (address, port.and_then(|port| u16::try_from(port).ok())) {
        (Some(address), Some(port)) => {
            of.sorry = Some(Sorry {
                place: node.place,
                address,
                port,
                method: None,
            });
        }
        _ => field::refuse(notes, node, "an address and a port"),
    }
}

fn sorry_server(
    sorry: Option<Sorry>,
    service: &Method,
    ipv6: bool,
    notes: &mut Notes,
) -> Option<Real> {
    let sorry = sorry?;
    let method = sorry.method.map_or(*service, |(method, _)| method);
    if method.forward != Forward::Tunnel && sorry.address.is_ipv6() != ipv6 {
        notes.say(
            sorry.place,
            "not carried over: it is not of the service's family",
        );
        return None;
    }
    Some(Real {
        from: sorry.place,
        address: sorry.address,
        port: sorry.port,
        weight: Said::implied(1),
        most: None,
        least: None,
        method: sorry.method,
        probes: Vec::new(),
    })
}

fn real_server(
    globals: &Globals,
    of: &Directives,
    node: &Node,
    ipv6: bool,
    notes: &mut Notes,
) -> Option<Real> {
    field_no_more(node, 2, notes);
    let address: Option<IpAddr> = node.word(1).and_then(|word| word.parse().ok());
    let port = node
        .word(2)
        .map_or(Some(0), |word| field::within(word, 0, 65_535));
    let (Some(address), Some(port)) = (address, port.and_then(|port| u16::try_from(port).ok()))
    else {
        node.refuse(notes, "it names no address, or no port");
        return None;
    };
    let mut real = Real {
        from: node.place,
        address,
        port,
        weight: match of.weight {
            Some((weight, place)) => Said::at(weight, place),
            None => Said::implied(1),
        },
        most: None,
        least: None,
        method: None,
        probes: Vec::new(),
    };
    let mut settings = Settings::default();
    let mut checkers = Vec::new();
    for inner in node.inner() {
        if CHECKERS.contains(&inner.keyword()) {
            checkers.push(inner);
        } else if !settings.take(inner, Level::Real, notes) {
            real_directive(&mut real, inner, notes);
        }
    }
    let forward = real
        .method
        .or(of.method)
        .map_or(Forward::Nat, |(method, _)| method.forward);
    if forward != Forward::Tunnel && address.is_ipv6() != ipv6 {
        node.refuse(
            notes,
            "it is not of the service's family, and keepalived skips it",
        );
        return None;
    }
    let own = settings.clone();
    let settings = settings.within(&of.settings);
    for checker in checkers {
        real.probes
            .extend(checks(globals, checker, &settings, notes));
    }
    if real.probes.is_empty() {
        own.unused(notes);
    }
    Some(real)
}

/// Directives of a real server beside its checkers and their settings.
fn real_directive(real: &mut Real, node: &Node, notes: &mut Notes) {
    match node.keyword() {
        "weight" => {
            if let Some((weight, place)) = field::number(notes, node, 0, i32::MAX as u64) {
                real.weight = Said::at(weight, place);
            }
        }
        "lvs_method" => real.method = method(notes, node),
        "uthreshold" => real.most = field::number(notes, node, 0, u32::MAX.into()),
        "lthreshold" => real.least = field::number(notes, node, 0, u32::MAX.into()),
        "notify_up" | "notify_down" => {
            node.refuse(
                notes,
                "`notify` of the pool calls a program on every change of a server",
            );
        }
        "smtp_alert" => node.refuse(
            notes,
            "Weir sends no mail; `notify` of the pool calls a program",
        ),
        "snmp_name" => node.refuse(notes, "Weir speaks no SNMP"),
        keyword => {
            let why = other_keepalived(keyword);
            node.refuse(
                notes,
                why.unwrap_or("keepalived knows no such keyword in real_server"),
            );
        }
    }
}
