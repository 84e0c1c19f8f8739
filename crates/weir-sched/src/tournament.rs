//! Builds and updates trees that select servers without a search of a long list.
//!
//! The data plane stores the same nodes in addition to a list.
//!
//! Leaves are the positions in the list. Node 1 is the root, and node `n` has the children `2n` and `2n + 1`. In a tree
//! of winners, a node contains the position of the better of its children's winners, or the left one if they are equal.
//! In a tree of sums, a node contains the sum of its children. A change to one server affects the nodes above its leaf.

use crate::Member;
use crate::load::{Counts, Rule, better_position};

/// Content of a node in a tree of winners if no server in its subtree accepts flows.
pub const NONE: u32 = u32::MAX;

/// Maximum length of lists that are searched without a tree: updating a tree whenever a counter changes would cost as
/// much as it saves for new flows.
pub const MAX_SEARCHED_LEN: usize = 16;

/// The contents of a tree's nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tree {
    /// The best server according to a rule.
    Winners(Rule),
    /// The sum of the weights of servers below their thresholds, at most `u32::MAX`: for [`crate::load::twos`], and for
    /// [`crate::p2c`] after too many failed draws.
    Weights,
    /// The sum of the active flows of all servers, at most `u32::MAX`: for [`crate::bound`].
    Active,
}

/// Returns the number of leaves for a list: the smallest sufficient power of two, but at least four, so that the nodes
/// fill map elements.
#[must_use]
pub fn width(servers: usize) -> u32 {
    u32::try_from(servers.next_power_of_two().max(4)).unwrap_or(1 << 31)
}

/// Returns all nodes. Node 0 is unused.
pub fn build(tree: Tree, members: &[Member], counts: &dyn Fn(u32) -> Counts) -> Vec<u32> {
    let empty = match tree {
        Tree::Winners(_) => NONE,
        Tree::Weights | Tree::Active => 0,
    };
    let mut nodes = vec![empty; width(members.len()) as usize];
    for node in (1..nodes.len()).rev() {
        nodes[node] = node_value(tree, members, counts, &nodes, node);
    }
    nodes
}

/// Updates the nodes above a changed position, up to the first node that the change does not affect. Returns the number
/// of nodes that were visited.
pub fn climb(
    tree: Tree,
    members: &[Member],
    counts: &dyn Fn(u32) -> Counts,
    nodes: &mut [u32],
    position: u32,
) -> usize {
    let mut node = nodes.len() + position as usize;
    let mut visited = 0;
    while node > 1 {
        node /= 2;
        visited += 1;
        let new_value = node_value(tree, members, counts, nodes, node);
        let is_same = new_value == nodes[node];
        nodes[node] = new_value;
        if is_same && (new_value != position || !matches!(tree, Tree::Winners(_))) {
            break;
        }
    }
    visited
}

/// Computes the content of a node from its children.
pub fn node_value(
    tree: Tree,
    members: &[Member],
    counts: &dyn Fn(u32) -> Counts,
    nodes: &[u32],
    node: usize,
) -> u32 {
    let winner = |node: usize| match node.checked_sub(nodes.len()) {
        Some(position) => position,
        None => nodes[node] as usize,
    };
    let sum = |node: usize| match node.checked_sub(nodes.len()) {
        Some(position) => members
            .get(position)
            .map_or(0, |member| leaf_value(tree, member, counts)),
        None => nodes[node],
    };
    match tree {
        Tree::Winners(rule) => {
            let positions = [winner(2 * node), winner(2 * node + 1)];
            better_position(rule, members, counts, positions)
                .map_or(NONE, |position| position as u32)
        }
        Tree::Weights | Tree::Active => sum(2 * node).saturating_add(sum(2 * node + 1)),
    }
}

/// Returns the contribution of a server to the sums above it.
fn leaf_value(tree: Tree, member: &Member, counts: &dyn Fn(u32) -> Counts) -> u32 {
    match tree {
        Tree::Weights if member.is_available() => member.weight,
        Tree::Active => counts(member.slot).active,
        Tree::Weights | Tree::Winners(_) => 0,
    }
}

/// Returns the first position, starting at `first`, whose server has at least `weight`, in a tree for [`Rule::Fo`];
/// used by `rr` and `wrr`.
#[must_use]
pub fn seek(nodes: &[u32], members: &[Member], first: usize, weight: u32) -> Option<usize> {
    if first >= members.len() {
        return None;
    }
    let mut node = nodes.len() + first;
    loop {
        let winner = match node.checked_sub(nodes.len()) {
            Some(position) => position,
            None => nodes[node] as usize,
        };
        let is_sufficient = |member: &Member| member.is_available() && member.weight >= weight;
        if members.get(winner).is_some_and(is_sufficient) {
            if node >= nodes.len() {
                return Some(winner);
            }
            node *= 2;
            continue;
        }
        // Continue with the largest possible subtree to the right.
        node += 1;
        if node.is_power_of_two() {
            return None;
        }
        node >>= node.trailing_zeros();
    }
}

/// Returns the position at which the cumulative weight, from the head of the list, reaches `target`, in
/// [`Tree::Weights`]; used by `twos`.
#[must_use]
pub fn position_by_weight(nodes: &[u32], members: &[Member], target: u32) -> Option<usize> {
    // A server without weight is never selected, even if `target` is 0.
    let mut target = target.max(1);
    if nodes[1] < target {
        return None;
    }
    let mut node = 1;
    while node < nodes.len() {
        node *= 2;
        let left_sum = match node.checked_sub(nodes.len()) {
            Some(position) => members.get(position).map_or(0, |member| {
                leaf_value(Tree::Weights, member, &|_| Counts::default())
            }),
            None => nodes[node],
        };
        if left_sum < target {
            target -= left_sum;
            node += 1;
        }
    }
    Some(node - nodes.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::load;

    const RULES: [Rule; 6] = [
        Rule::Lc,
        Rule::Wlc,
        Rule::Sed,
        Rule::Nq,
        Rule::Fo,
        Rule::Ovf,
    ];

    fn list(servers: &[(u32, bool)]) -> Vec<Member> {
        (0..servers.len() as u32)
            .map(|slot| Member {
                seq: 10_000 - slot,
                dest: slot + 1,
                weight: servers[slot as usize].0,
                slot,
                usable: servers[slot as usize].1,
            })
            .collect()
    }

    proptest! {
        #[test]
        fn root_equals_list_search(
            servers in prop::collection::vec((0_u32..5, prop::bool::weighted(0.9)), 1..70),
            changes in prop::collection::vec((any::<prop::sample::Index>(), 0_u32..4, 0_u32..600), 0..60),
        ) {
            let members = list(&servers);
            for rule in RULES {
                let mut loads = vec![Counts::default(); members.len()];
                let mut nodes = build(Tree::Winners(rule), &members, &|slot| loads[slot as usize]);
                for (change, active, inactive) in &changes {
                    let position = change.index(members.len());
                    loads[position] = Counts { active: *active, inactive: *inactive };
                    let counts = |slot: u32| loads[slot as usize];
                    climb(Tree::Winners(rule), &members, &counts, &mut nodes, position as u32);
                    let root = (nodes[1] != NONE).then_some(nodes[1] as usize);
                    prop_assert_eq!(root, load::pick(rule, &members, &counts), "{:?}", rule);
                    prop_assert_eq!(&nodes, &build(Tree::Winners(rule), &members, &counts));
                }
            }
        }

        #[test]
        fn seek_equals_list_search(
            servers in prop::collection::vec((0_u32..9, prop::bool::weighted(0.9)), 1..70),
            first in 0_usize..80,
            weight in 1_u32..10,
        ) {
            let members = list(&servers);
            let nodes = build(Tree::Winners(Rule::Fo), &members, &|_| Counts::default());
            let expected = (first..members.len())
                .find(|&index| members[index].is_available() && members[index].weight >= weight);
            prop_assert_eq!(seek(&nodes, &members, first, weight), expected);
        }

        #[test]
        fn position_by_weight_equals_list_search(
            servers in prop::collection::vec(
                (prop_oneof![0_u32..9, Just(i32::MAX as u32)], prop::bool::weighted(0.8)),
                1..70,
            ),
            targets in prop::collection::vec(any::<u32>(), 1..20),
        ) {
            let members = list(&servers);
            let nodes = build(Tree::Weights, &members, &|_| Counts::default());
            let available = members.iter().filter(|member| member.is_available());
            let total: u64 = available.map(|member| u64::from(member.weight)).sum();
            prop_assert_eq!(u64::from(nodes[1]), total.min(u32::MAX.into()));
            for target in targets {
                let target = (u64::from(target) % (total.min(u64::from(u32::MAX) - 1) + 1)) as u32;
                let expected = load::position_by_weight(&members, target.into());
                prop_assert_eq!(position_by_weight(&nodes, &members, target), expected);
            }
        }

        #[test]
        fn root_is_the_sum_of_leaves(
            servers in prop::collection::vec((1_u32..5, any::<bool>()), 1..70),
            changes in prop::collection::vec((any::<prop::sample::Index>(), 0_u32..4), 0..60),
        ) {
            let members = list(&servers);
            let mut loads = vec![Counts::default(); members.len()];
            let mut nodes = build(Tree::Active, &members, &|slot| loads[slot as usize]);
            for (change, active) in &changes {
                let position = change.index(members.len());
                loads[position].active = *active;
                let counts = |slot: u32| loads[slot as usize];
                climb(Tree::Active, &members, &counts, &mut nodes, position as u32);
                prop_assert_eq!(nodes[1], loads.iter().map(|counts| counts.active).sum::<u32>());
                prop_assert_eq!(&nodes, &build(Tree::Active, &members, &counts));
            }
        }
    }

    #[test]
    fn width_is_a_power_of_two_from_4_to_2_pow_31() {
        for (servers, expected) in [
            (0, 4),
            (4, 4),
            (5, 8),
            (1 << 31, 1 << 31),
            ((1 << 31) + 1, 1 << 31),
        ] {
            assert_eq!(width(servers), expected, "{servers} servers");
        }
    }

    #[test]
    fn position_by_weight_is_none_above_the_total_weight() {
        let members = list(&[(2, true), (3, true), (4, false)]);
        let nodes = build(Tree::Weights, &members, &|_| Counts::default());
        for (target, expected) in [
            (0, Some(0)),
            (2, Some(0)),
            (3, Some(1)),
            (5, Some(1)),
            (6, None),
        ] {
            let actual = position_by_weight(&nodes, &members, target);
            assert_eq!(actual, expected, "{target}");
        }
    }

    #[test]
    fn climb_stops_at_unchanged_nodes() {
        let members = list(&[(1, true); 1024]);
        let mut loads = vec![
            Counts {
                active: 1,
                inactive: 0
            };
            1024
        ];
        loads[0].active = 0;
        let mut nodes = build(Tree::Winners(Rule::Wlc), &members, &|slot| {
            loads[slot as usize]
        });
        loads[1001].active = 5;
        let visited = climb(
            Tree::Winners(Rule::Wlc),
            &members,
            &|slot| loads[slot as usize],
            &mut nodes,
            1001,
        );
        assert_eq!(visited, 1);
        loads[0].active = 9;
        let visited = climb(
            Tree::Winners(Rule::Wlc),
            &members,
            &|slot| loads[slot as usize],
            &mut nodes,
            0,
        );
        assert_eq!((visited, nodes[1]), (10, 1));
    }
}
