//! Applies the corrections that keepalived makes after it has read an instance (`vrrp_complete_instance` in vrrp.c).
//!
//! The corrections concern mutually exclusive lines, the priority of an initial master, and ignored weights.

use super::super::tree::Node;
use crate::document::{Entry, Item, Table, Value};
use crate::note::{Notes, Position};

/// The priority of the address owner.
const OWNER: u64 = 255;

/// Applies the corrections to an instance and its own tracked objects.
pub(super) fn complete(
    table: &mut Table,
    track: &mut Vec<Item>,
    (node, ignores_weights): (&Node, bool),
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
    correct_preemption(table, is_owner, is_master, notes);
    if is_owner || ignores_weights {
        remove_weights(track, is_owner, notes);
    }
}

/// Removes `nopreempt` from the address owner and from an instance that starts as master, and `preempt_delay` from an
/// instance that starts as master or has `nopreempt`.
fn correct_preemption(table: &mut Table, is_owner: bool, is_master: bool, notes: &mut Notes) {
    if is_owner || is_master {
        let reason = "not imported: keepalived ignores it with `state MASTER` or priority 255";
        let preempt = table
            .entries
            .iter()
            .position(|entry| entry.key == "preempt" && entry.item.value == Value::Flag(false));
        if let Some(index) = preempt {
            remark_at(notes, table.entries.remove(index).item.position, reason);
        }
        if is_master {
            remove_key(table, "preempt_delay", reason, notes);
        }
    }
    let has_nopreempt = table
        .entries
        .iter()
        .any(|entry| entry.key == "preempt" && entry.item.value == Value::Flag(false));
    if has_nopreempt {
        let reason = "not imported: keepalived ignores it with `nopreempt`";
        remove_key(table, "preempt_delay", reason, notes);
    }
}

fn remove_key(table: &mut Table, key: &str, reason: &str, notes: &mut Notes) {
    if let Some(index) = table.entries.iter().position(|entry| entry.key == key) {
        remark_at(notes, table.entries.remove(index).item.position, reason);
    }
}

fn remark_at(notes: &mut Notes, position: Option<Position>, reason: &str) {
    if let Some(position) = position {
        notes.remark(position, reason);
    }
}

/// Removes weights that keepalived ignores. In a group, keepalived drops weighted scripts and files, keeps interfaces
/// without their weights, and keeps processes unchanged. For the address owner, whose priority is fixed, keepalived
/// drops all weighted objects.
fn remove_weights(track: &mut Vec<Item>, is_owner: bool, notes: &mut Notes) {
    let reason = match is_owner {
        true => "not imported: keepalived ignores weights in the instance of the address owner",
        false => {
            "not imported: keepalived ignores weights in an instance that is in a vrrp_sync_group"
        }
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
        remark_at(notes, weight.item.position.or(item.position), reason);
        if is_interface && !is_owner {
            entries.retain(|entry| !is_weight(entry));
            return true;
        }
        false
    });
}
