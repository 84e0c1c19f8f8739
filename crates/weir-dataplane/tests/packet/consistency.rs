//! Compares the flow table, the counts and the traffic with each other and with the model.

use std::collections::{BTreeMap, HashMap};

use weir_abi::{
    BUCKET_SLOTS, Entry, FLOW_ACTIVE, FLOW_AWAY, FLOW_TEMPLATE, KIND_FORWARD, KIND_FREE,
    KIND_REVERSE, KIND_TEMPLATE, NO_INDEX, State,
};
use weir_dataplane::{Dataplane, Flow};
use weir_flow::model::Kind;
use weir_flow::{FlowHashKey, Geometry, Mark, Placement, Tuple};

use crate::bench::Bench;

/// Walks the table, and returns the numbers of active and inactive flows by row.
pub(crate) fn count_by_walk(plane: &Dataplane) -> BTreeMap<u32, (u64, u64)> {
    let mut rows = BTreeMap::new();
    for flow in plane
        .maps()
        .flows
        .walk()
        .filter(|flow| flow.meta().kind == KIND_FORWARD)
    {
        let dest = flow.dest();
        let shared = plane.maps().dests.get(dest).unwrap().live;
        let mut counted = vec![dest, shared];
        counted.dedup();
        for row in counted {
            let (active, inactive) = rows.entry(row).or_insert((0, 0));
            if flow.meta().flags & FLOW_ACTIVE != 0 {
                *active += 1
            } else {
                *inactive += 1
            }
        }
    }
    rows
}

/// Returns the counts by row.
pub(crate) fn recorded_counts(plane: &Dataplane) -> BTreeMap<u32, (u64, u64)> {
    let maps = plane.maps();
    (1..maps.live.entries())
        .map(|row| (row, maps.live(row).unwrap()))
        .filter(|(_, live)| (live.active, live.inactive) != (0, 0))
        .map(|(row, live)| (row, (live.active, live.inactive)))
        .collect()
}

/// Asserts the invariants of every table: no tuple occurs twice, every entry is in one of the buckets for its hash,
/// every home bucket counts its entries in other buckets, the two directions of a flow refer to each other, and the
/// recorded counts match the entries. Returns the flows by tuple.
#[track_caller]
pub(crate) fn assert_invariants(plane: &Dataplane) -> HashMap<Tuple, Flow> {
    let key = FlowHashKey::new(plane.secret());
    let buckets = plane.maps().flows.buckets();
    let mut flows = HashMap::new();
    let mut marks: HashMap<u32, (u64, u32)> = HashMap::new();
    for flow in plane.maps().flows.walk() {
        let tuple = Tuple::from_cold(&flow.cold);
        let placement = Placement::new(key.hash(&tuple), Geometry::new(buckets));
        let bucket = flow.index / BUCKET_SLOTS;
        let step = placement.buckets().find(|(index, _)| *index == bucket);
        let Some((_, mark)) = step else {
            panic!("{tuple:?} is in the wrong bucket: {bucket}");
        };
        let is_away = flow.meta().flags & FLOW_AWAY != 0;
        assert_eq!(is_away, mark != Mark::None, "{tuple:?}");
        assert_eq!(flow.entry.tag(), placement.tag, "{tuple:?}");
        let hint = plane.maps().flows.hint(placement.home).unwrap();
        assert_ne!(
            hint & Entry::hint_bit(placement.tag),
            0,
            "{tuple:?} is excluded by the hint"
        );
        let (spilled, stashed) = marks.entry(placement.home).or_default();
        match mark {
            Mark::None => {}
            Mark::Spilled(unit) => *spilled += unit,
            Mark::Stashed(unit) => *stashed += unit,
        }
        assert!(
            flows.insert(tuple, flow).is_none(),
            "{tuple:?} occurs twice"
        );
    }
    for index in 0..buckets {
        let bucket = plane.maps().flows.bucket(index).unwrap();
        assert_eq!(bucket.lock, 0, "bucket {index} is locked");
        let leaked = |slot: &Entry| slot.id != 0 && slot.parts().kind == KIND_FREE;
        assert!(
            !bucket.slots.iter().any(leaked),
            "bucket {index} has a slot that is neither free nor in use"
        );
        assert_eq!(
            (bucket.spilled, bucket.stashed),
            marks.get(&index).copied().unwrap_or_default(),
            "bucket {index}"
        );
    }
    for flow in flows.values().filter(|flow| flow.cold.peer != NO_INDEX) {
        let peer = plane
            .maps()
            .flows
            .at(flow.cold.peer)
            .expect("find the other direction");
        assert_eq!(peer.cold.peer, flow.index);
        assert_eq!(peer.meta().generation, flow.cold.peer_generation);
        assert_eq!(peer.dest(), flow.dest());
    }
    let unpaired = |flow: &&Flow| flow.meta().kind == KIND_REVERSE && flow.cold.peer == NO_INDEX;
    assert_eq!(
        flows.values().find(unpaired),
        None,
        "reverse entry without a forward entry"
    );
    assert_eq!(
        recorded_counts(plane),
        count_by_walk(plane),
        "the recorded counts do not match the table"
    );
    assert_template_counts(plane, &flows);
    flows
}

/// Asserts that every template counts its flows, and every server its templates.
#[track_caller]
fn assert_template_counts(plane: &Dataplane, flows: &HashMap<Tuple, Flow>) {
    let mut flows_by_template: HashMap<u32, u32> = HashMap::new();
    let by_template =
        |flow: &&Flow| flow.meta().kind == KIND_FORWARD && flow.meta().flags & FLOW_TEMPLATE != 0;
    for flow in flows.values().filter(by_template) {
        let template = plane.maps().flows.at(flow.cold.template);
        if template.is_some_and(|template| {
            template.meta().kind == KIND_TEMPLATE
                && template.meta().generation == flow.cold.template_generation
        }) {
            *flows_by_template.entry(flow.cold.template).or_default() += 1;
        }
    }
    let mut persistent: HashMap<u32, u32> = HashMap::new();
    let is_template = |flow: &&Flow| flow.meta().kind == KIND_TEMPLATE;
    for template in flows.values().filter(is_template) {
        let expected = flows_by_template.get(&template.index).copied().unwrap_or(0);
        assert_eq!(template.cold.created, expected, "{:?}", template.cold);
        *persistent.entry(template.dest()).or_default() += 1;
    }
    for row in 1..plane.maps().live.entries() {
        let expected = persistent.get(&row).copied().unwrap_or(0);
        assert_eq!(
            plane.maps().live(row).unwrap().persistent,
            expected,
            "row {row}"
        );
    }
}

/// Asserts that the table is consistent and contains the same entries as the model.
#[track_caller]
pub(crate) fn compare_with_model(bench: &Bench) {
    let flows = assert_invariants(&bench.plane);
    assert_eq!(
        flows.len(),
        bench.model.flows().count(),
        "the table and the model have different numbers of entries"
    );
    for (tuple, expected) in bench.model.flows() {
        let Some(flow) = flows.get(tuple) else {
            panic!("{tuple:?} {expected:?} is not in the table");
        };
        let meta = flow.meta();
        let kind = match expected.kind {
            Kind::Forward => KIND_FORWARD,
            Kind::Reverse => KIND_REVERSE,
            Kind::Template => KIND_TEMPLATE,
        };
        assert_eq!((meta.kind, flow.dest()), (kind, expected.dest), "{tuple:?}");
        if !bench.resized {
            assert_eq!(flow.index, expected.index, "{tuple:?}");
        }
        if expected.kind == Kind::Template {
            let state = State::from_number(meta.state).unwrap();
            assert_eq!(
                (state, flow.cold.created),
                (expected.state, expected.flow_count)
            );
        }
        if expected.kind == Kind::Forward {
            let state = State::from_number(meta.state).unwrap();
            assert_eq!(state, expected.state, "{tuple:?}");
            assert_eq!(
                meta.flags & FLOW_ACTIVE != 0,
                expected.active,
                "{tuple:?} {state:?}"
            );
        }
    }
    for row in 1..bench.plane.maps().live.entries() {
        assert_eq!(
            bench.plane.maps().live(row).unwrap(),
            bench.model.live(row),
            "row {row}"
        );
    }
    for dest in 1..bench.plane.sizes().dests {
        assert_eq!(
            bench.plane.maps().traffic(dest).unwrap(),
            bench.model.traffic(dest),
            "traffic of {dest}"
        );
    }
}
