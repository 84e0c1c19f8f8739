//! Parses the directives of a virtual server.

use std::net::IpAddr;

use crate::keepalived::field::{self, Located};
use crate::keepalived::method::parse_method;
use crate::keepalived::setting::{Level, Settings};
use crate::keepalived::tree::Node;
use crate::layer4::{Method, is_scheduler};
use crate::note::{Notes, Position};

/// keepalived's default persistence timeout, in seconds.
pub(super) const PERSISTENCE_TIMEOUT_S: u64 = 360;

/// Directives of a virtual server that is being parsed.
#[derive(Default)]
pub(super) struct Directives {
    pub(super) settings: Settings,
    pub(super) scheduler: Located<String>,
    pub(super) flags: Vec<(String, Position)>,
    pub(super) method: Located<Method>,
    /// Persistence timeout, in seconds.
    pub(super) persistent: Located<u64>,
    pub(super) granularity: Option<(String, Position)>,
    pub(super) protocol: Located<&'static str>,
    /// One-packet scheduling.
    pub(super) ops: Option<Position>,
    pub(super) quorum: Located<u64>,
    pub(super) hysteresis: Located<u64>,
    pub(super) weight: Located<u64>,
    /// Address family; `true` for IPv6.
    pub(super) family: Located<bool>,
    pub(super) ha_suspend: Option<Position>,
    pub(super) omega: Option<Position>,
    pub(super) sorry: Option<SorryServer>,
    /// Whether alert emails about the virtual server are sent.
    pub(super) alerts: Located<bool>,
}

/// A sorry server that is being parsed.
pub(super) struct SorryServer {
    pub(super) position: Position,
    pub(super) address: IpAddr,
    pub(super) port: u16,
    pub(super) method: Located<Method>,
}

/// Parses one directive.
pub(super) fn read_directive(directives: &mut Directives, node: &Node, notes: &mut Notes) {
    const FLAGS: &[&str] = &["sh-port", "sh-fallback", "mh-port", "mh-fallback"];
    if directives
        .settings
        .read_line(node, Level::VirtualServer, notes)
    {
        return;
    }
    match node.keyword() {
        "lvs_sched" | "lb_algo" => match node.word(1) {
            Some(name) if is_scheduler(name) => {
                field::note_extra_arguments(notes, node, 1);
                directives.scheduler = Some((name.to_owned(), node.position));
            }
            _ => field::reject(notes, node, "an IPVS scheduler"),
        },
        "flag-1" | "flag-2" | "flag-3" => read_numbered_flag(directives, node, notes),
        flag if FLAGS.contains(&flag) => {
            field::note_extra_arguments(notes, node, 0);
            directives.flags.push((flag.to_owned(), node.position));
        }
        "hashed" => notes.remark(node.position, "`hashed` has no effect in keepalived"),
        "ops" => {
            field::note_extra_arguments(notes, node, 0);
            directives.ops = Some(node.position);
        }
        "lvs_method" | "lb_kind" => {
            directives.method = parse_method(notes, node).or(directives.method)
        }
        "persistence_timeout" => {
            directives.persistent = match node.word(1) {
                None => Some((PERSISTENCE_TIMEOUT_S, node.position)),
                Some(_) => {
                    field::parse_number(notes, node, 1, 31 * 86_400).or(directives.persistent)
                }
            }
        }
        "persistence_granularity" => {
            directives.granularity = field::parse_word(notes, node, "a mask");
        }
        "persistence_engine" => {
            node.reject(notes, "Weir's persistence uses only the client's address")
        }
        "protocol" => match node.word(1).map(str::to_ascii_uppercase).as_deref() {
            Some("TCP") => directives.protocol = Some(("tcp", node.position)),
            Some("UDP") => directives.protocol = Some(("udp", node.position)),
            Some("SCTP") => directives.protocol = Some(("sctp", node.position)),
            _ => field::reject(notes, node, "TCP, UDP or SCTP"),
        },
        "ip_family" => match node.word(1) {
            Some("inet") => directives.family = Some((false, node.position)),
            Some("inet6") => directives.family = Some((true, node.position)),
            _ => field::reject(notes, node, "inet or inet6"),
        },
        "quorum" => directives.quorum = field::parse_number(notes, node, 1, u32::MAX.into()),
        "hysteresis" => {
            directives.hysteresis = field::parse_number(notes, node, 0, u32::MAX.into())
        }
        "weight" => directives.weight = field::parse_number(notes, node, 1, i32::MAX as u64),
        _ => read_other_directive(directives, node, notes),
    }
}

/// Reads sorry servers and email settings, and adds notes about other directives.
fn read_other_directive(directives: &mut Directives, node: &Node, notes: &mut Notes) {
    match node.keyword() {
        "sorry_server" => read_sorry_server(directives, node, notes),
        "sorry_server_lvs_method" => match &mut directives.sorry {
            Some(sorry) => sorry.method = parse_method(notes, node),
            None => node.reject(notes, "keepalived requires it to follow sorry_server"),
        },
        "sorry_server_inhibit" => {
            field::note_extra_arguments(notes, node, 0);
            let reason = "in Weir, connections to a sorry server always continue after the servers have recovered";
            notes.remark(node.position, reason);
        }
        "ha_suspend" => {
            field::note_extra_arguments(notes, node, 0);
            directives.ha_suspend = Some(node.position);
            notes.add(
                node.position,
                "not imported: Weir runs its checks whether or not the VIP is present",
            );
        }
        "omega" => {
            field::note_extra_arguments(notes, node, 0);
            directives.omega = Some(node.position);
        }
        "smtp_alert" => directives.alerts = field::parse_flag(notes, node),
        "snmp_name" => node.reject(notes, "Weir does not support SNMP"),
        "nat_mask" | "net_mask" => node.ignore(
            notes,
            "keepalived has removed this keyword, and ignores the line",
        ),
        keyword => match fork_keyword_reason(keyword) {
            Some(reason) => node.reject(notes, reason),
            None => node.ignore(
                notes,
                "keepalived has no such keyword in virtual_server, and ignores the line",
            ),
        },
    }
}

/// Returns why a keyword of a fork such as DPVS is not supported, or `None` if the keyword is not from a fork.
pub(super) fn fork_keyword_reason(keyword: &str) -> Option<&'static str> {
    const KEYWORDS: &[&str] = &[
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
    KEYWORDS
        .contains(&keyword)
        .then_some("only forks of keepalived, such as DPVS's, support this keyword")
}

/// Reads a numbered flag, whose meaning depends on the scheduler that a preceding line sets.
fn read_numbered_flag(directives: &mut Directives, node: &Node, notes: &mut Notes) {
    let scheduler = directives.scheduler.as_ref().map(|(name, _)| name.as_str());
    let flag = match (scheduler, node.keyword()) {
        (Some(name @ ("sh" | "mh")), "flag-1") => format!("{name}-fallback"),
        (Some(name @ ("sh" | "mh")), "flag-2") => format!("{name}-port"),
        (Some(_), _) => return notes.remark(node.position, "the scheduler ignores this flag"),
        (None, _) => {
            return notes.remark(node.position, "Weir reads this flag only after lvs_sched");
        }
    };
    directives.flags.push((flag, node.position));
}

fn read_sorry_server(directives: &mut Directives, node: &Node, notes: &mut Notes) {
    field::note_extra_arguments(notes, node, 2);
    let address = node.word(1).and_then(|word| word.parse().ok());
    match (address, field::parse_port(node)) {
        (Some(address), Some(port)) => {
            directives.sorry = Some(SorryServer {
                position: node.position,
                address,
                port,
                method: None,
            });
        }
        _ => field::reject(notes, node, "an address and a port"),
    }
}
