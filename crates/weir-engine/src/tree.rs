//! Computes a service's tournament tree from the counters in the maps, and writes it.
//!
//! Packets update nodes concurrently. Like the packet path, this code writes a node and then recomputes it from the
//! current counters: of two concurrent writers, the last one reads the counts of the first.

use std::sync::atomic::{Ordering, fence};

use weir_abi::{Extent, Member as Row, Scheduler};
use weir_dataplane::Maps;
use weir_planner::scheduler;
use weir_sched::load::{Counts, Rule};
use weir_sched::tournament::{self, Tree};
use weir_sched::{Member, load};

use crate::error::Result;

/// Maximum number of attempts for a node that packets change concurrently; the next tick retries.
const MAX_ATTEMPTS: usize = 4;

/// Computes every node of an extent's tree, if it has one, and writes those that differ.
///
/// # Errors
/// Fails if the extent refers to elements or rows outside the maps.
pub(crate) fn fill(maps: &Maps, header: &Extent) -> Result<()> {
    let number = Scheduler::from_number(header.scheduler).filter(|_| header.tree_width > 0);
    let Some((tree, word)) = number.and_then(|it| scheduler::tree(it, header.max_load > 0)) else {
        return Ok(());
    };
    set_node(maps, header, 0, word)?;
    let list: Vec<Row> = maps.elements_as(header.list_at, header.list_len)?;
    for node in (1..header.tree_width).rev() {
        for _ in 0..MAX_ATTEMPTS {
            let value = match tree {
                Tree::Winners(rule) => winner_of(maps, header, rule, &list, node)?,
                Tree::Weights | Tree::Active => {
                    let left_sum = sum_of(maps, header, tree, &list, 2 * node)?;
                    left_sum.saturating_add(sum_of(maps, header, tree, &list, 2 * node + 1)?)
                }
            };
            if value == self::node(maps, header, node)? {
                break;
            }
            set_node(maps, header, node, value)?;
            // The next reads must include everything that another CPU counted before it wrote the node.
            fence(Ordering::SeqCst);
        }
    }
    Ok(())
}

/// Returns the list position of the better server of a node's two children, or [`tournament::NONE`].
fn winner_of(maps: &Maps, header: &Extent, rule: Rule, list: &[Row], parent: u32) -> Result<u32> {
    let (mut members, mut counts) = (Vec::with_capacity(2), Vec::with_capacity(2));
    let mut positions = Vec::with_capacity(2);
    for child in [2 * parent, 2 * parent + 1] {
        let position = match child.checked_sub(header.tree_width) {
            Some(position) => position,
            None => node(maps, header, child)?,
        };
        let Some(row) = list.get(position as usize) else {
            continue;
        };
        let live = maps.live(row.live)?;
        members.push(Member {
            seq: row.seq,
            dest: row.dest,
            weight: row.weight,
            slot: members.len() as u32,
            usable: live.overloaded == 0,
        });
        counts.push(Counts {
            active: saturate(live.active),
            inactive: saturate(live.inactive),
        });
        positions.push(position);
    }
    let picked = load::pick(rule, &members, &|slot| counts[slot as usize]);
    Ok(picked.map_or(tournament::NONE, |index| positions[index]))
}

/// Returns the sum of a child, which is a node or a single list position.
fn sum_of(maps: &Maps, header: &Extent, tree: Tree, list: &[Row], child: u32) -> Result<u32> {
    let Some(position) = child.checked_sub(header.tree_width) else {
        return node(maps, header, child);
    };
    let Some(row) = list.get(position as usize) else {
        return Ok(0);
    };
    let live = maps.live(row.live)?;
    Ok(match tree {
        Tree::Active => saturate(live.active),
        _ if live.overloaded == 0 => row.weight,
        _ => 0,
    })
}

fn saturate(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn node(maps: &Maps, header: &Extent, node: u32) -> Result<u32> {
    let element = maps.elements.get(header.tree_at + node / 4)?;
    Ok(element.word[node as usize % 4])
}

fn set_node(maps: &Maps, header: &Extent, node: u32, value: u32) -> Result<()> {
    let offset = node as usize % 4 * size_of::<u32>();
    maps.elements
        .store_u32(header.tree_at + node / 4, offset, value)?;
    Ok(())
}
