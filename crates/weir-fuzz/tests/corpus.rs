//! Runs all stored inputs and all seeds, so an input that once failed is also tested without a fuzzer.

use std::fs;
use std::path::Path;

use weir_fuzz::TARGETS;
use weir_fuzz::corpus::parse_corpus;

#[test]
fn stored_inputs_and_seeds_do_not_panic() {
    let mut runs = 0;
    for target in TARGETS {
        let file =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("corpus/{}.txt", target.name));
        let text = fs::read_to_string(&file)
            .unwrap_or_else(|error| panic!("{}: {error}; run tools/fuzz.sh", file.display()));
        let inputs =
            parse_corpus(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let seeds = (target.seeds)();
        assert!(!seeds.is_empty(), "{} has no seed", target.name);
        for input in seeds.iter().chain(&inputs) {
            (target.run)(input);
            runs += 1;
        }
    }
    assert!(runs > TARGETS.len() * 10, "only {runs} inputs");
}

#[test]
fn every_corpus_file_has_a_target() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for entry in fs::read_dir(directory).expect("read the corpus directory") {
        let name = entry.expect("read a directory entry").file_name();
        let name = name.to_string_lossy();
        let target = name.strip_suffix(".txt").expect("file name ends in .txt");
        assert!(weir_fuzz::find(target).is_some(), "no target {target}");
    }
}
