//! What is defined and nothing refers to.

use std::collections::HashSet;

use super::Globals;
use super::tree::Node;
use crate::note::{Notes, Place};

/// Groups, tracked things and globals that nothing refers to: their lines are not carried over.
pub(super) fn unused(globals: &Globals, nodes: &[Node], notes: &mut Notes) {
    groups(globals, nodes, notes);
    tracked(globals, nodes, notes);
    let of = |keyword: &'static str| nodes.iter().filter(move |node| node.keyword() == keyword);
    let instances: HashSet<&str> = of("vrrp_instance")
        .filter_map(|node| node.word(1))
        .collect();
    if instances.is_empty()
        && let Some((_, place)) = globals.vrrp_version
    {
        notes.remark(place, "not carried over: there is no vrrp_instance");
    }
    for (name, (group, place)) in &globals.sync {
        if !instances.contains(name.as_str()) {
            let why = format!("not carried over: group {group} has no vrrp_instance {name}");
            notes.remark(*place, why);
        }
    }
    let scripts = of("virtual_server").any(|server| {
        let reals = server.inner().iter();
        reals
            .flat_map(Node::inner)
            .any(|checker| checker.keyword() == "MISC_CHECK")
    });
    if let Some((_, place)) = globals.script_user.as_ref().filter(|_| !scripts) {
        notes.remark(*place, "not carried over: there is no MISC_CHECK");
    }
}

fn groups(globals: &Globals, nodes: &[Node], notes: &mut Notes) {
    let used: HashSet<&str> = nodes
        .iter()
        .filter(|node| node.keyword() == "virtual_server" && node.word(1) == Some("group"))
        .filter_map(|node| node.word(2))
        .collect();
    for (name, group) in &globals.groups {
        if used.contains(name.as_str()) {
            continue;
        }
        let addresses = group.addresses.iter().map(|block| block.place);
        let marks = group.marks.iter().map(|(.., place)| *place);
        for place in [group.place].into_iter().chain(addresses).chain(marks) {
            notes.remark(
                place,
                format!("not carried over: no virtual server names group {name}"),
            );
        }
    }
}

fn tracked(globals: &Globals, nodes: &[Node], notes: &mut Notes) {
    let used: HashSet<&str> = nodes
        .iter()
        .filter(|node| node.keyword() == "vrrp_instance")
        .flat_map(Node::inner)
        .filter(|node| node.keyword().starts_with("track_"))
        .flat_map(Node::inner)
        .map(Node::keyword)
        .collect();
    for (name, tracked) in &globals.tracked {
        if used.contains(name.as_str()) {
            continue;
        }
        let places = tracked.entries.iter().filter_map(|entry| entry.item.from);
        let weight = tracked.weight.map(|(_, place)| place);
        let places: Vec<Place> = places.chain(weight).chain([tracked.place]).collect();
        for place in places {
            notes.remark(
                place,
                format!("not carried over: no vrrp_instance tracks {name}"),
            );
        }
    }
}
