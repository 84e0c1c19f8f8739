//! Corrections that keepalived makes after it has read an instance: lines that exclude each other, defaults for the
//! initial state, weights that it ignores (`vrrp_complete_instance` in vrrp.c).

use super::super::tree::Node;
use crate::document::{Entry, Item, Table, Value};
use crate::note::{Notes, Position};

/// The priority of the address owner.
const OWNER: u64 = 255;

/// Applies these corrections to an instance and its own tracked objects.
pub(super) fn complete(
    table: &mut Table,
    track: &mut Vec<Item>,
    (node, is_in_group): (&Node, bool),
    notes: &mut Notes,
) {
    let master = node
        .inner()
        .iter()
        .find(|it| it.keyword() == "state" && it.word(1) == Some("MASTER"));
    let has_state = node.inner().iter().any(|it| it.keyword() == "state");
    if let Some(master) = master
        && !table.entries.iter().any(|entry| entry.key == "priority")
    {
        table.push(Entry::new("priority", OWNER, master.position));
    }
    let is_owner = table
        .entries
        .iter()
        .any(|entry| entry.key == "priority" && entry.item.value == Value::Integer(OWNER));
    let is_master = master.is_some() || is_owner && !has_state;
    preemption(table, is_owner, is_master, notes);
    if is_owner || is_in_group {
        weights(track, is_owner, notes);
    }
}

/// Removes `nopreempt` and `preempt_delay` from an instance that starts as master, and the latter if both are set.
fn preemption(table: &mut Table, is_owner: bool, is_master: bool, notes: &mut Notes) {
    if is_owner || is_master {
        let why = "not imported: keepalived ignores it with `state MASTER` and with priority 255";
        let preempt = table
            .entries
            .iter()
            .position(|entry| entry.key == "preempt" && entry.item.value == Value::Flag(false));
        if let Some(at) = preempt {
            remark(notes, table.entries.remove(at).item.from, why);
        }
        if is_master {
            remove(table, "preempt_delay", why, notes);
        }
    }
    let waits = table
        .entries
        .iter()
        .any(|entry| entry.key == "preempt" && entry.item.value == Value::Flag(false));
    if waits {
        let why = "not imported: keepalived ignores it with `nopreempt`";
        remove(table, "preempt_delay", why, notes);
    }
}

fn remove(table: &mut Table, key: &str, why: &str, notes: &mut Notes) {
    if let Some(at) = table.entries.iter().position(|entry| entry.key == key) {
        remark(notes, table.entries.remove(at).item.from, why);
    }
}

fn remark(notes: &mut Notes, position: Option<Position>, why: &str) {
    if let Some(position) = position {
        notes.remark(position, why);
    }
}

/// Removes weights from members of a group and from the address owner, whose priority is fixed: keepalived drops
/// weighted scripts and files. It keeps interfaces without their weight, except for those of the owner.
fn weights(track: &mut Vec<Item>, is_owner: bool, notes: &mut Notes) {
    let why = match is_owner {
        true => "not imported: keepalived ignores weights of the address owner",
        false => "not imported: keepalived ignores weights of an instance in a vrrp_sync_group",
    };
    let is_weight = |entry: &Entry| matches!(entry.key, "penalty" | "bonus");
    track.retain_mut(|item| {
        let Value::Table(entries) = &mut item.value else {
            return true;
        };
        let has = |key: &str| entries.iter().any(|entry| entry.key == key);
        let (is_interface, is_process) = (has("interface"), has("process"));
        let Some(weight) = entries.iter().find(|entry| is_weight(entry)) else {
            return true;
        };
        if is_process && !is_owner {
            return true;
        }
        remark(notes, weight.item.from.or(item.from), why);
        if is_interface && !is_owner {
            entries.retain(|entry| !is_weight(entry));
            return true;
        }
        false
    });
}
