//! Imports keepalived.conf: virtual servers and VRRP instances, with the blocks that they use.
//!
//! Like keepalived, the importer continues after an invalid line: it adds a note and skips the line.

mod authentication;
mod checker;
mod define;
mod field;
mod global;
mod group;
mod line;
mod method;
mod routing;
mod sequence;
mod setting;
#[cfg(test)]
mod tests;
mod track;
mod tree;
mod unused;
mod virtual_server;
mod vrrp;

use std::collections::{HashMap, HashSet};

use crate::document::{Entry, Table};
use crate::inert;
use crate::layer4::Writer;
use crate::mail::{self, Mail};
use crate::note::{Notes, Position};
use crate::validate::validate;
use crate::{Environment, Imported};

use field::Located;
use group::Group;
use track::TrackedObject;
use tree::Node;

/// Keywords of blocks that only forks such as DPVS support.
const FORK_KEYWORDS: &[&str] = &[
    "local_address_group",
    "deny_address_group",
    "allow_address_group",
    "blklst_address_group",
    "whtlst_address_group",
    "tunnel_group",
    "bgp_instance",
];

/// Why a file without virtual servers needs no `[sync]`.
const NOTHING_TO_SYNCHRONIZE: &str =
    "not imported: without virtual servers there are no connections to synchronize";

/// Settings outside of virtual servers.
#[derive(Debug, Default)]
struct Globals {
    /// The user that scripts run as.
    script_user: Located<String>,
    vrrp_version: Located<u64>,
    groups: HashMap<String, Group>,
    tracked: HashMap<String, TrackedObject>,
    /// The sync group of each VRRP instance.
    group_of_instance: HashMap<String, (String, Position)>,
    sync_groups: HashMap<String, vrrp::SyncGroup>,
    /// The names of the VRRP instances.
    instances: HashSet<String>,
    /// Whether `vrrp_strict` is set.
    strict: bool,
    /// Whether there are virtual servers; only their connections are synchronized.
    has_virtual_servers: bool,
    /// Defaults of VRRP instances.
    vrrp: Vec<Entry>,
    /// Keys of `[timeouts]`.
    timeouts: Vec<Entry>,
    /// Email alerts to send.
    mail: Mail,
    /// Whether virtual servers enable email alerts by default.
    alerts: Located<bool>,
}

/// Imports keepalived.conf; `name` is its path. Relative includes are resolved against the path's directory.
pub fn keepalived(name: &str, text: &str, environment: &dyn Environment) -> Imported {
    let mut notes = Notes::default();
    let lines = line::read_lines(environment, &mut notes, name, text);
    let nodes = tree::parse_blocks(&mut notes, &lines);
    record_effect(&nodes, &mut notes, false);
    let instances = nodes.iter().filter(|it| it.keyword() == "vrrp_instance");
    let instances = instances.filter_map(|it| it.word(1));
    let mut globals = Globals {
        instances: instances.map(str::to_owned).collect(),
        has_virtual_servers: nodes.iter().any(|it| it.keyword() == "virtual_server"),
        ..Globals::default()
    };
    // Other blocks may be defined after they are referenced, so all of them are read before virtual servers and
    // instances. `global_defs` is read first: it sets the default user of scripts.
    let (global_blocks, other_blocks): (Vec<&Node>, Vec<&Node>) = nodes
        .iter()
        .partition(|node| node.keyword() == "global_defs");
    for node in global_blocks.into_iter().chain(other_blocks) {
        read_block(&mut globals, node, &mut notes);
    }
    let mut writer = Writer::default();
    if let Some(first) = globals
        .timeouts
        .first()
        .and_then(|entry| entry.item.position)
    {
        let mut table = Table::new(&["timeouts"], first);
        table.entries = std::mem::take(&mut globals.timeouts);
        writer.document.push(table);
    }
    for node in &nodes {
        match node.keyword() {
            "virtual_server" => virtual_server::write(&mut writer, &globals, node, &mut notes),
            "vrrp_instance" => vrrp::write(&mut writer, &globals, node, &mut notes),
            _ => {}
        }
    }
    let groups = globals.sync_groups.values();
    for group in groups.filter(|group| group.program_member.is_empty()) {
        let programs = group.programs.iter();
        for position in programs.filter_map(|program| program.item.position) {
            notes.remark(position, "not imported: the group has no vrrp_instance");
        }
    }
    unused::note_unused(&globals, &nodes, &writer.document, &mut notes);
    note_unused_email_settings(&globals, &writer, &mut notes);
    mail::write(std::mem::take(&mut writer.mails), &mut writer.document);
    validate(writer.document, notes)
}

/// Adds a remark to each email setting without effect: recipients without `smtp_alert`, or vice versa.
fn note_unused_email_settings(globals: &Globals, writer: &Writer, notes: &mut Notes) {
    if !writer.mails.is_empty() {
        return;
    }
    let mail = &globals.mail;
    for (_, position) in mail.to.iter().chain(&mail.from).chain(&mail.server) {
        notes.remark(*position, "not imported: no virtual server has smtp_alert");
    }
    match globals.alerts {
        Some((_, position)) if mail.to.is_empty() => {
            notes.remark(position, "not imported: there is no notification_email");
        }
        Some((true, position)) => {
            notes.remark(
                position,
                "not imported: no virtual server uses this default",
            );
        }
        _ => {}
    }
}

fn read_block(globals: &mut Globals, node: &Node, notes: &mut Notes) {
    let reason = match node.keyword() {
        "virtual_server" | "vrrp_instance" => return,
        "global_defs" => return global::read(globals, node, notes),
        "virtual_server_group" => return group::read(globals, node, notes),
        "vrrp_script" | "vrrp_track_process" | "track_file" | "vrrp_track_file" => {
            return track::read(globals, node, notes);
        }
        "vrrp_sync_group" => return vrrp::read_sync_group(globals, node, notes),
        "bfd_instance" => "Weir does not support BFD",
        "SSL" => "Weir's health checks do not support client certificates",
        "net_namespace" | "net_namespace_ipvs" | "namespace_with_ipsets" => {
            "start Weir in the namespace with `ip netns exec`"
        }
        "instance" | "use_pid_dir" | "child_wait_time" => {
            "set Weir's directories with --runtime-dir and --pin-dir"
        }
        "linkbeat_use_polling" | "linkbeat_interfaces" => {
            "the kernel notifies Weir of link changes"
        }
        "interface_up_down_delays" => "Weir reacts to link changes immediately",
        "track_group" => {
            return node.ignore(notes, "only static addresses and routes refer to it");
        }
        "static_ipaddress" | "static_routes" | "static_rules" => {
            "static addresses and routes belong in the network configuration"
        }
        "garp_group" => "Weir does not limit the rate of announcements",
        keyword if FORK_KEYWORDS.contains(&keyword) => {
            "only forks of keepalived, such as DPVS's, support this keyword"
        }
        _ => {
            return node.ignore(
                notes,
                "keepalived has no such keyword, and ignores the line",
            );
        }
    };
    node.reject(notes, reason);
}

/// Records whether each directive affects clients or servers. Directives in an inert block never do.
fn record_effect(nodes: &[Node], notes: &mut Notes, in_inert_block: bool) {
    for node in nodes {
        let is_inert =
            in_inert_block || inert::is_inert_keepalived_line(&node.words, global::UNSUPPORTED);
        notes.record_effect(node.position, is_inert);
        record_effect(node.inner(), notes, is_inert);
    }
}
