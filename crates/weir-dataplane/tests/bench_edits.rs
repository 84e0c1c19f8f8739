//! Tests that the edits of `cargo bench --bench packet -- --stages` match the BPF sources.
//!
//! The benchmark itself is rarely run.

#[path = "../benches/packet/edit.rs"]
mod edit;

use std::collections::BTreeMap;
use std::path::Path;

use edit::{CUTS, Edit, KnownResults, removals};

/// Applies edits to the sources, one after another. Returns the edits that do not match.
fn mismatches(edits: impl IntoIterator<Item = Edit>) -> Vec<String> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bpf");
    let mut files: BTreeMap<&str, String> = BTreeMap::new();
    let mut mismatches = Vec::new();
    for edit in edits {
        let read = || std::fs::read_to_string(sources.join(edit.file)).unwrap_or_default();
        let text = files.entry(edit.file).or_insert_with(read);
        match edit.apply(text) {
            Ok(edited) => *text = edited,
            Err(mismatch) => mismatches.push(mismatch.to_string()),
        }
    }
    mismatches
}

#[test]
fn edits_of_the_stage_benchmark_match_the_sources() {
    let known_results = KnownResults {
        hash: 1,
        dest: 1,
        tick: 1,
        hop: [1; 3],
    };
    let none: [&str; 0] = [];
    for removal in removals(&known_results) {
        assert_eq!(mismatches(removal.edits), none, "{}", removal.stage);
    }
    // The build without any stage has all these edits.
    let all = removals(&known_results)
        .into_iter()
        .flat_map(|removal| removal.edits);
    assert_eq!(mismatches(all), none);
    for cut in &CUTS {
        assert_eq!(mismatches([cut.edit()]), none, "{}", cut.step);
    }
}
