//! Tests choice sequences of `wrr`.

use super::Op::*;
use super::*;

fn wrr(weights: &[u32], steps: &[(Option<Op>, &[u32])]) {
    script(Walk::Wrr, weights, steps);
}

/// Tests the order that a running kernel uses: the lowest pass comes first, because it was the highest pass when the
/// first server was added.
#[test]
fn walk_begins_with_the_lowest_pass_if_servers_are_added_one_by_one() {
    wrr(
        &[1, 2, 3, 0, 4],
        &[(None, &[5, 3, 2, 1, 5, 5, 3, 5, 3, 2, 5, 3, 2, 1, 5])],
    );
}

#[test]
fn walk_of_a_new_service_begins_with_the_highest_pass() {
    let members = [member(3, 1), member(2, 3), member(1, 2)];
    let start = crate::table::wrr::start(&members);
    let mut cursor = Cursor::default();
    let picks = [(); 7].map(|()| {
        crate::table::wrr::pick(&members, &start, &mut cursor).map(|index| members[index].seq)
    });
    assert_eq!(picks, [2, 2, 1, 3, 2, 1, 2].map(Some));
}

#[test]
fn pass_is_aligned_to_a_smaller_step() {
    // Before the change, the passes are 7, 4 and 1, and the second one is complete. After it, they are 9, 7, 5, 3 and
    // 1; the current one is 4 / 2 * 2 + 1 = 5.
    let steps: &[(_, &[u32])] = &[
        (None, &[2, 1, 1, 2, 1]),
        (Some(Edit(1, 10)), &[2, 1, 2, 1, 2, 1, 1, 1, 2, 1]),
    ];
    wrr(&[9, 6], steps);
}

#[test]
fn equal_weights_produce_plain_round_robin() {
    wrr(&[3, 3, 3], &[(None, &[3, 2, 1, 3, 2, 1])]);
}

#[test]
fn one_server_gets_all_flows() {
    wrr(&[5], &[(None, &[1, 1, 1, 1, 1, 1, 1])]);
}

#[test]
fn flows_are_rejected_without_servers() {
    wrr(&[], &[(None, &[0, 0])]);
}

#[test]
fn flows_are_rejected_until_a_server_has_weight() {
    wrr(
        &[0, 0],
        &[
            (None, &[0, 0]),
            (Some(Edit(1, 2)), &[1, 1]),
            (Some(Edit(2, 2)), &[2, 1]),
        ],
    );
}

#[test]
fn passes_differ_by_the_common_divisor() {
    wrr(&[4, 2], &[(None, &[2, 1, 1, 2, 1, 1, 2])]);
}

#[test]
fn edit_restarts_the_search_at_the_head() {
    wrr(
        &[1, 2, 3],
        &[
            (None, &[3]),
            (Some(Edit(1, 1)), &[3, 2, 1, 3, 3, 2, 3, 2, 1]),
        ],
    );
}

#[test]
fn pass_above_new_maximum_becomes_the_maximum() {
    wrr(
        &[1, 5],
        &[(None, &[2, 1, 2]), (Some(Edit(2, 2)), &[2, 2, 1, 2])],
    );
}

#[test]
fn pass_below_new_maximum_continues() {
    wrr(
        &[1, 3],
        &[(None, &[2, 1, 2, 2]), (Some(Edit(2, 9)), &[2, 2, 1, 2])],
    );
}

#[test]
fn pass_is_aligned_to_a_larger_step() {
    // In the pass of weight 4, the step becomes 3: the passes are now 7, 4 and 1, and the pass of weight 4 continues.
    wrr(
        &[1, 5],
        &[
            (None, &[2, 1, 2, 2]),
            (Some(Edit(1, 3)), &[]),
            (Some(Edit(2, 9)), &[2, 2, 1, 2, 2, 2, 1]),
        ],
    );
}

#[test]
fn removing_last_chosen_server_restarts_pass() {
    wrr(
        &[1, 2, 3],
        &[(None, &[3, 2]), (Some(Remove(2)), &[3, 1, 3, 3, 3, 1])],
    );
}

#[test]
fn added_server_is_next() {
    wrr(&[1, 1], &[(None, &[2]), (Some(Add(1)), &[3, 2, 1, 3])]);
}

#[test]
fn light_server_gets_all_flows_while_the_heavy_one_is_overloaded() {
    wrr(
        &[1, 65_535],
        &[
            (None, &[2, 1]),
            (Some(Overload(2)), &[1, 1]),
            (Some(Free(2)), &[2, 2, 2]),
        ],
    );
}

#[test]
fn failed_lowest_pass_keeps_its_position() {
    let steps: &[(_, &[u32])] = &[
        (None, &[2]),
        (Some(Overload(1)), &[]),
        (Some(Overload(2)), &[0, 0]),
        (Some(Free(1)), &[]),
        (Some(Free(2)), &[1, 2, 1]),
    ];
    wrr(&[1, 1], steps);
}

#[test]
fn failed_higher_pass_restarts_from_the_top() {
    let steps: &[(_, &[u32])] = &[
        (None, &[2, 1, 2]),
        (Some(Overload(1)), &[]),
        (Some(Overload(2)), &[0]),
        (Some(Free(1)), &[]),
        (Some(Free(2)), &[2, 2, 2, 1]),
    ];
    wrr(&[1, 3], steps);
}

#[test]
fn failed_lowest_pass_from_the_head_restarts_from_the_top() {
    let steps: &[(_, &[u32])] = &[
        (Some(Overload(1)), &[]),
        (Some(Overload(2)), &[0]),
        (Some(Free(1)), &[]),
        (Some(Free(2)), &[2, 2, 2, 1]),
    ];
    wrr(&[1, 3], steps);
}
