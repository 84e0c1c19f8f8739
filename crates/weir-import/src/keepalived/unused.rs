//! Reports objects that are defined but never used.

use std::collections::HashSet;

use super::Globals;
use super::tree::Node;
use crate::note::{Notes, Position};

/// Adds remarks about unused groups, tracked objects and global settings.
pub(super) fn note_unused(globals: &Globals, nodes: &[Node], notes: &mut Notes) {
    note_unused_groups(globals, nodes, notes);
    note_unused_tracked(globals, nodes, notes);
    let nodes_of =
        |keyword: &'static str| nodes.iter().filter(move |node| node.keyword() == keyword);
    let instances: HashSet<&str> = nodes_of("vrrp_instance")
        .filter_map(|node| node.word(1))
        .collect();
    if instances.is_empty()
        && let Some((_, position)) = globals.vrrp_version
    {
        notes.remark(position, "not imported: there is no vrrp_instance");
    }
    for entry in globals.vrrp.iter().filter(|_| instances.is_empty()) {
        if let Some(position) = entry.item.position {
            notes.remark(position, "not imported: there is no vrrp_instance");
        }
    }
    for (name, (group, position)) in &globals.group_of_instance {
        if !instances.contains(name.as_str()) {
            let reason =
                format!("not imported: there is no vrrp_instance {name} for group {group}");
            notes.remark(*position, reason);
        }
    }
    let has_virtual_routers = !instances.is_empty();
    let has_scripts = has_virtual_routers
        || nodes_of("virtual_server").any(|server| {
            let blocks = server.inner().iter();
            blocks
                .flat_map(Node::inner)
                .any(|checker| checker.keyword() == "MISC_CHECK")
        });
    if let Some((_, position)) = globals.script_user.as_ref().filter(|_| !has_scripts) {
        notes.remark(*position, "not imported: no script runs as this user");
    }
}

fn note_unused_groups(globals: &Globals, nodes: &[Node], notes: &mut Notes) {
    let used: HashSet<&str> = nodes
        .iter()
        .filter(|node| node.keyword() == "virtual_server" && node.word(1) == Some("group"))
        .filter_map(|node| node.word(2))
        .collect();
    for (name, group) in &globals.groups {
        if used.contains(name.as_str()) {
            continue;
        }
        let addresses = group.addresses.iter().map(|block| block.position);
        let marks = group.marks.iter().map(|(.., position)| *position);
        for position in [group.position].into_iter().chain(addresses).chain(marks) {
            notes.remark(
                position,
                format!("not imported: no virtual server uses group {name}"),
            );
        }
    }
}

fn note_unused_tracked(globals: &Globals, nodes: &[Node], notes: &mut Notes) {
    let used: HashSet<&str> = nodes
        .iter()
        .filter(|node| matches!(node.keyword(), "vrrp_instance" | "vrrp_sync_group"))
        .flat_map(Node::inner)
        .filter(|node| node.keyword().starts_with("track_"))
        .flat_map(Node::inner)
        .map(Node::keyword)
        .collect();
    for (name, tracked) in &globals.tracked {
        if used.contains(name.as_str()) {
            continue;
        }
        let positions = tracked
            .entries
            .iter()
            .filter_map(|entry| entry.item.position);
        let weight = tracked.weight.map(|(_, position)| position);
        let positions: Vec<Position> = positions.chain(weight).chain([tracked.position]).collect();
        for position in positions {
            notes.remark(
                position,
                format!("not imported: no vrrp_instance tracks {name}"),
            );
        }
    }
}
