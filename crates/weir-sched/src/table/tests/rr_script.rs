//! Tests in which order `rr` selects servers.

use super::Op::*;
use super::*;

fn rr(weights: &[u32], steps: &[(Option<Op>, &[u32])]) {
    script(Walk::Rr, weights, steps);
}

#[test]
fn walk_begins_with_the_newest_server() {
    rr(&[1, 1, 1], &[(None, &[3, 2, 1, 3, 2, 1, 3])]);
}

#[test]
fn one_server_gets_all_flows() {
    rr(&[1], &[(None, &[1, 1, 1])]);
}

#[test]
fn flows_are_rejected_without_servers() {
    rr(&[], &[(None, &[0, 0])]);
}

#[test]
fn weights_are_ignored() {
    rr(&[100, 1], &[(None, &[2, 1, 2, 1])]);
}

#[test]
fn server_with_weight_zero_is_skipped() {
    rr(&[1, 0, 1], &[(None, &[3, 1, 3, 1])]);
}

#[test]
fn flows_are_rejected_if_all_weights_are_zero() {
    rr(&[0, 0], &[(None, &[0, 0])]);
}

#[test]
fn overloaded_server_is_skipped_until_it_recovers() {
    rr(
        &[1, 1, 1],
        &[
            (None, &[3]),
            (Some(Overload(2)), &[1, 3, 1]),
            (Some(Free(2)), &[3, 2, 1]),
        ],
    );
}

#[test]
fn added_server_waits_for_the_next_round() {
    rr(
        &[1, 1, 1],
        &[(None, &[3, 2]), (Some(Add(1)), &[1, 4, 3, 2])],
    );
}

#[test]
fn walk_continues_after_removal_of_last_chosen_server() {
    rr(
        &[1, 1, 1],
        &[(None, &[3, 2]), (Some(Remove(2)), &[1, 3, 1])],
    );
}

#[test]
fn walk_continues_after_removal_of_last_chosen_head() {
    rr(&[1, 1, 1], &[(None, &[3]), (Some(Remove(3)), &[2, 1, 2])]);
}

#[test]
fn server_added_after_removal_of_last_chosen_head_is_next() {
    rr(
        &[1, 1, 1],
        &[
            (None, &[3]),
            (Some(Remove(3)), &[]),
            (Some(Add(1)), &[4, 2, 1, 4]),
        ],
    );
}

#[test]
fn walk_continues_if_last_chosen_middle_server_is_removed_and_one_is_added() {
    rr(
        &[1, 1, 1],
        &[
            (None, &[3, 2]),
            (Some(Remove(2)), &[]),
            (Some(Add(1)), &[1, 4, 3, 1]),
        ],
    );
}

#[test]
fn removing_last_chosen_server_and_all_before_it_restarts_walk() {
    let steps: &[(_, &[u32])] = &[
        (None, &[3, 2]),
        (Some(Remove(2)), &[]),
        (Some(Remove(3)), &[]),
        (Some(Add(1)), &[]),
        (Some(Add(1)), &[5, 4, 1, 5]),
    ];
    rr(&[1, 1, 1], steps);
}

#[test]
fn removing_servers_before_last_chosen_one_keeps_position() {
    rr(
        &[1, 1, 1],
        &[
            (None, &[3, 2]),
            (Some(Remove(3)), &[]),
            (Some(Add(1)), &[1, 4, 2]),
        ],
    );
}

#[test]
fn emptied_service_restarts_the_walk() {
    rr(
        &[1],
        &[
            (None, &[1]),
            (Some(Remove(1)), &[0]),
            (Some(Add(1)), &[2]),
            (Some(Add(1)), &[3, 2]),
        ],
    );
}

#[test]
fn failed_pick_keeps_the_position() {
    let steps: &[(_, &[u32])] = &[
        (None, &[3]),
        (Some(Overload(1)), &[]),
        (Some(Overload(2)), &[]),
        (Some(Overload(3)), &[0, 0]),
        (Some(Free(3)), &[]),
        (Some(Free(2)), &[2, 3, 2]),
    ];
    rr(&[1, 1, 1], steps);
}

#[test]
fn only_server_is_chosen_repeatedly() {
    rr(
        &[1, 1, 1],
        &[
            (None, &[3, 2]),
            (Some(Overload(1)), &[]),
            (Some(Overload(3)), &[2, 2]),
        ],
    );
}
