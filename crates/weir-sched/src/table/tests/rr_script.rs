//! Sequences of `rr`.

use super::Op::*;
use super::*;

fn rr(weights: &[u32], steps: &[(Option<Op>, &[u32])]) {
    script(Walk::Rr, weights, steps);
}

#[test]
fn goes_round_from_the_newest() {
    rr(&[1, 1, 1], &[(None, &[3, 2, 1, 3, 2, 1, 3])]);
}

#[test]
fn one_server_gets_all() {
    rr(&[1], &[(None, &[1, 1, 1])]);
}

#[test]
fn no_server_refuses() {
    rr(&[], &[(None, &[0, 0])]);
}

#[test]
fn weights_do_not_count() {
    rr(&[100, 1], &[(None, &[2, 1, 2, 1])]);
}

#[test]
fn weight_zero_is_skipped() {
    rr(&[1, 0, 1], &[(None, &[3, 1, 3, 1])]);
}

#[test]
fn all_zero_refuses() {
    rr(&[0, 0], &[(None, &[0, 0])]);
}

#[test]
fn overload_skips_and_comes_back() {
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
fn removing_the_last_chosen_continues_after_it() {
    rr(
        &[1, 1, 1],
        &[(None, &[3, 2]), (Some(Remove(2)), &[1, 3, 1])],
    );
}

#[test]
fn removing_the_last_chosen_first_continues_after_it() {
    rr(&[1, 1, 1], &[(None, &[3]), (Some(Remove(3)), &[2, 1, 2])]);
}

#[test]
fn removing_the_remembered_first_and_adding_begins_with_the_added() {
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
fn removing_the_last_chosen_in_the_middle_and_adding_continues() {
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
fn removing_the_remembered_and_all_before_it_restarts_the_walk() {
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
fn removing_those_before_the_remembered_changes_nothing() {
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
fn the_remembered_follows_itself_when_alone() {
    rr(
        &[1, 1, 1],
        &[
            (None, &[3, 2]),
            (Some(Overload(1)), &[]),
            (Some(Overload(3)), &[2, 2]),
        ],
    );
}
