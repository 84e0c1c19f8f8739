//! Reports objects that are defined but never used.

use std::collections::HashSet;

use super::Globals;
use super::tree::Node;
use crate::document::{Document, visit_positions};
use crate::note::{Notes, Position};

/// Adds notes about unused groups, tracked objects and global settings.
pub(super) fn note_unused(
    globals: &Globals,
    nodes: &[Node],
    document: &Document,
    notes: &mut Notes,
) {
    note_unused_groups(globals, nodes, notes);
    note_unused_tracked(globals, nodes, notes);
    let instances = &globals.instances;
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
        if !instances.contains(name) {
            let reason =
                format!("not imported: there is no vrrp_instance {name} for group {group}");
            notes.remark(*position, reason);
        }
    }
    if let Some((_, position)) = globals.script_user {
        let mut is_used = false;
        for table in &document.tables {
            visit_positions(&table.entries, &mut |used| is_used |= used == position);
        }
        if !is_used {
            notes.remark(position, "not imported: no script runs as this user");
        }
    }
}

fn note_unused_groups(globals: &Globals, nodes: &[Node], notes: &mut Notes) {
    let used_names: HashSet<&str> = nodes
        .iter()
        .filter(|node| node.keyword() == "virtual_server" && node.word(1) == Some("group"))
        .filter_map(|node| node.word(2))
        .collect();
    for (name, group) in &globals.groups {
        if used_names.contains(name.as_str()) {
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
    let used_names: HashSet<&str> = nodes
        .iter()
        .filter(|node| matches!(node.keyword(), "vrrp_instance" | "vrrp_sync_group"))
        .flat_map(Node::inner)
        .filter(|node| node.keyword().starts_with("track_"))
        .flat_map(Node::inner)
        .map(Node::keyword)
        .collect();
    for (name, tracked) in &globals.tracked {
        if used_names.contains(name.as_str()) {
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
