//! Directives of a virtual server.

use std::net::IpAddr;

use crate::keepalived::field::{self, Of};
use crate::keepalived::method::method;
use crate::keepalived::setting::{Level, Settings};
use crate::keepalived::tree::Node;
use crate::layer4::{Method, is_scheduler};
use crate::note::{Notes, Place};

/// What persistence lasts where no time is written.
pub(super) const PERSISTENT_S: u64 = 360;

/// Directives of a virtual server while they are read.
#[derive(Default)]
pub(super) struct Directives {
    pub(super) settings: Settings,
    pub(super) scheduler: Of<String>,
    pub(super) flags: Vec<(String, Place)>,
    pub(super) method: Of<Method>,
    pub(super) persistent: Of<u64>,
    pub(super) granularity: Option<(String, Place)>,
    pub(super) protocol: Of<&'static str>,
    pub(super) ops: Option<Place>,
    pub(super) quorum: Of<u64>,
    pub(super) hysteresis: Of<u64>,
    pub(super) weight: Of<u64>,
    pub(super) family: Of<bool>,
    pub(super) ha_suspend: Option<Place>,
    pub(super) sorry: Option<Sorry>,
}

pub(super) struct Sorry {
    pub(super) place: Place,
    pub(super) address: IpAddr,
    pub(super) port: u16,
    pub(super) method: Of<Method>,
}

/// Takes one.
pub(super) fn directive(of: &mut Directives, node: &Node, notes: &mut Notes) {
    const FLAGS: &[&str] = &["sh-port", "sh-fallback", "mh-port", "mh-fallback"];
    if of.settings.take(node, Level::Virtual, notes) {
        return;
    }
    match node.keyword() {
        "lvs_sched" | "lb_algo" => match node.word(1) {
            Some(name) if is_scheduler(name) => {
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
pub(super) fn other_keepalived(keyword: &str) -> Option<&'static str> {
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

fn sorry(of: &mut Directives, node: &Node, notes: &mut Notes) {
    field::no_more(notes, node, 2);
    let address = node.word(1).and_then(|word| word.parse().ok());
    match (address, field::port(node)) {
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
