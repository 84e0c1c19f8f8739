//! keepalived.conf: its complete layer 4 part, and VRRP blocks as they are to be kept.
//!
//! keepalived goes on after a mistake, and so does the importer: the line is named and skipped.

mod checker;
mod define;
mod field;
mod global;
mod group;
mod line;
mod method;
mod sequence;
mod setting;
mod track;
mod tree;
mod unused;
mod virtual_server;
mod vrrp;

use std::collections::HashMap;

use crate::document::{Entry, Table};
use crate::inert;
use crate::layer4::Writer;
use crate::note::{Notes, Place};
use crate::settle::settle;
use crate::{Imported, World};

use field::Of;
use group::Group;
use track::Tracked;
use tree::Node;

/// What the file says outside of its virtual servers.
#[derive(Debug, Default)]
struct Globals {
    /// The account that scripts run as.
    script_user: Of<String>,
    vrrp_version: Of<u64>,
    groups: HashMap<String, Group>,
    tracked: HashMap<String, Tracked>,
    /// The sync group of each VRRP instance.
    sync: HashMap<String, (String, Place)>,
    /// `[timeouts]`.
    timeouts: Vec<Entry>,
}

/// Reads keepalived.conf; `name` is its path, which included files are relative to.
pub fn keepalived(name: &str, text: &str, world: &dyn World) -> Imported {
    let mut notes = Notes::default();
    let lines = line::lines(world, &mut notes, name, text);
    let nodes = tree::tree(&mut notes, &lines);
    weigh(&nodes, &mut notes, false);
    // What others refer to may stand behind them.
    let mut globals = Globals::default();
    for node in &nodes {
        read_global(&mut globals, node, &mut notes);
    }
    let mut writer = Writer::default();
    if let Some(first) = globals.timeouts.first().and_then(|entry| entry.item.from) {
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
    unused::unused(&globals, &nodes, &mut notes);
    settle(writer.document, notes)
}

fn read_global(globals: &mut Globals, node: &Node, notes: &mut Notes) {
    let why = match node.keyword() {
        "virtual_server" | "vrrp_instance" => return,
        "global_defs" => return global::read(globals, node, notes),
        "virtual_server_group" => return group::read(globals, node, notes),
        "vrrp_script" | "vrrp_track_process" | "track_file" | "vrrp_track_file" => {
            return track::read(globals, node, notes);
        }
        "vrrp_sync_group" => return vrrp::sync_group(globals, node, notes),
        "bfd_instance" => "Weir speaks no BFD",
        "SSL" => "checks of Weir name no certificate of their own",
        "net_namespace" | "net_namespace_ipvs" | "namespace_with_ipsets" => {
            "start Weir in the namespace, with `ip netns exec`"
        }
        "instance" | "use_pid_dir" | "child_wait_time" => {
            "directories of a running Weir are named with --runtime-dir and --pin-dir"
        }
        "linkbeat_use_polling" | "linkbeat_interfaces" | "interface_up_down_delays" => {
            "Weir hears of links from the kernel"
        }
        "static_ipaddress" | "static_routes" | "static_rules" | "track_group" => {
            "addresses and routes that stay are the network configuration's matter"
        }
        "garp_group" => "Weir sets no pace for announcements",
        _ => "keepalived knows no such keyword",
    };
    node.refuse(notes, why);
}

/// Of the block of such a line clients see nothing either.
fn weigh(nodes: &[Node], notes: &mut Notes, within: bool) {
    for node in nodes {
        let is_inert = within || inert::keepalived(&node.words);
        notes.weigh(node.place, is_inert);
        weigh(node.inner(), notes, is_inert);
    }
}
