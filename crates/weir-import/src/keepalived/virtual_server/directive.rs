//! Directives of a virtual server.

use std::net::IpAddr;

use crate::keepalived::field::{self, Located};
use crate::keepalived::method::method;
use crate::keepalived::setting::{Level, Settings};
use crate::keepalived::tree::Node;
use crate::layer4::{Method, is_scheduler};
use crate::note::{Notes, Position};

/// keepalived's default persistence time, in seconds.
pub(super) const PERSISTENT_S: u64 = 360;

/// Directives of a virtual server during parsing.
#[derive(Default)]
pub(super) struct Directives {
    pub(super) settings: Settings,
    pub(super) scheduler: Located<String>,
    pub(super) flags: Vec<(String, Position)>,
    pub(super) method: Located<Method>,
    pub(super) persistent: Located<u64>,
    pub(super) granularity: Option<(String, Position)>,
    pub(super) protocol: Located<&'static str>,
    pub(super) ops: Option<Position>,
    pub(super) quorum: Located<u64>,
    pub(super) hysteresis: Located<u64>,
    pub(super) weight: Located<u64>,
    pub(super) family: Located<bool>,
    pub(super) ha_suspend: Option<Position>,
    pub(super) omega: Option<Position>,
    pub(super) sorry: Option<Sorry>,
    /// Whether mails about the virtual server are sent.
    pub(super) alerts: Located<bool>,
}

/// A sorry server during parsing.
pub(super) struct Sorry {
    pub(super) position: Position,
    pub(super) address: IpAddr,
    pub(super) port: u16,
    pub(super) method: Located<Method>,
}

/// Parses one directive.
pub(super) fn directive(directives: &mut Directives, node: &Node, notes: &mut Notes) {
    const FLAGS: &[&str] = &["sh-port", "sh-fallback", "mh-port", "mh-fallback"];
    if directives.settings.take(node, Level::Virtual, notes) {
        return;
    }
    match node.keyword() {
        "lvs_sched" | "lb_algo" => match node.word(1) {
            Some(name) if is_scheduler(name) => {
                field::note_extra(notes, node, 1);
                directives.scheduler = Some((name.to_owned(), node.position));
            }
            _ => field::reject(notes, node, "an IPVS scheduler"),
        },
        "flag-1" | "flag-2" | "flag-3" => flag_number(directives, node, notes),
        flag if FLAGS.contains(&flag) => {
            field::note_extra(notes, node, 0);
            directives.flags.push((flag.to_owned(), node.position));
        }
        "hashed" => notes.remark(node.position, "it has no effect in keepalived"),
        "ops" => {
            field::note_extra(notes, node, 0);
            directives.ops = Some(node.position);
        }
        "lvs_method" | "lb_kind" => directives.method = method(notes, node).or(directives.method),
        "persistence_timeout" => {
            directives.persistent = match node.word(1) {
                None => Some((PERSISTENT_S, node.position)),
                Some(_) => field::number(notes, node, 1, 31 * 86_400).or(directives.persistent),
            }
        }
        "persistence_granularity" => {
            directives.granularity = field::word(notes, node, "a mask");
        }
        "persistence_engine" => {
            node.reject(notes, "persistence in Weir uses only the client's address")
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
        "quorum" => directives.quorum = field::number(notes, node, 1, u32::MAX.into()),
        "hysteresis" => directives.hysteresis = field::number(notes, node, 0, u32::MAX.into()),
        "weight" => directives.weight = field::number(notes, node, 1, i32::MAX as u64),
        _ => unsupported_directive(directives, node, notes),
    }
}

/// Imports sorry servers, and adds notes about unsupported directives.
fn unsupported_directive(directives: &mut Directives, node: &Node, notes: &mut Notes) {
    match node.keyword() {
        "sorry_server" => sorry(directives, node, notes),
        "sorry_server_lvs_method" => match &mut directives.sorry {
            Some(sorry) => sorry.method = method(notes, node),
            None => node.reject(notes, "keepalived requires it after sorry_server"),
        },
        "sorry_server_inhibit" => {
            field::note_extra(notes, node, 0);
            let why =
                "in Weir, connections to a sorry server always continue when the servers are back";
            notes.remark(node.position, why);
        }
        "ha_suspend" => {
            field::note_extra(notes, node, 0);
            directives.ha_suspend = Some(node.position);
            notes.add(
                node.position,
                "not imported: Weir runs its checks whether or not the VIP is present",
            );
        }
        "omega" => {
            field::note_extra(notes, node, 0);
            directives.omega = Some(node.position);
        }
        "smtp_alert" => directives.alerts = field::flag(notes, node),
        "snmp_name" => node.reject(notes, "Weir has no SNMP"),
        "nat_mask" | "net_mask" => node.ignore(
            notes,
            "keepalived has removed this keyword, and ignores the line",
        ),
        keyword => match why_fork_keyword(keyword) {
            Some(why) => node.reject(notes, why),
            None => node.ignore(
                notes,
                "keepalived has no such keyword in virtual_server, and ignores the line",
            ),
        },
    }
}

/// Returns why a keyword of a fork such as dpvs is not supported; `None` = it is not one.
pub(super) fn why_fork_keyword(keyword: &str) -> Option<&'static str> {
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
        .then_some("the keyword belongs to a fork of keepalived (dpvs and similar)")
}

/// Imports a numbered flag, whose meaning depends on the current scheduler.
fn flag_number(directives: &mut Directives, node: &Node, notes: &mut Notes) {
    let scheduler = directives.scheduler.as_ref().map(|(name, _)| name.as_str());
    let flag = match (scheduler, node.keyword()) {
        (Some(name @ ("sh" | "mh")), "flag-1") => format!("{name}-fallback"),
        (Some(name @ ("sh" | "mh")), "flag-2") => format!("{name}-port"),
        _ => return notes.remark(node.position, "the scheduler ignores this flag"),
    };
    directives.flags.push((flag, node.position));
}

fn sorry(directives: &mut Directives, node: &Node, notes: &mut Notes) {
    field::note_extra(notes, node, 2);
    let address = node.word(1).and_then(|word| word.parse().ok());
    match (address, field::port(node)) {
        (Some(address), Some(port)) => {
            directives.sorry = Some(Sorry {
                position: node.position,
                address,
                port,
                method: None,
            });
        }
        _ => field::reject(notes, node, "an address and a port"),
    }
}
