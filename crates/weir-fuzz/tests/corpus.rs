//! Every input that a fuzzer kept, and every seed, once more: what failed once fails here without a fuzzer.

use std::fs;
use std::path::Path;

use weir_fuzz::TARGETS;
use weir_fuzz::corpus::inputs_of;

#[test]
fn every_kept_input_returns() {
    let mut runs = 0;
    for target in TARGETS {
        let file =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("corpus/{}.txt", target.name));
        let text = fs::read_to_string(&file)
            .unwrap_or_else(|error| panic!("{}: {error}; run tools/fuzz.sh", file.display()));
        let kept = inputs_of(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let seeds = (target.seeds)();
        assert!(!seeds.is_empty(), "{} has no seed", target.name);
        for input in seeds.iter().chain(&kept) {
            (target.run)(input);
            runs += 1;
        }
    }
    assert!(runs > TARGETS.len() * 10, "{runs} inputs only");
}

#[test]
fn each_corpus_belongs_to_a_target() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for entry in fs::read_dir(directory).expect("the corpora") {
        let name = entry.expect("an entry").file_name();
        let name = name.to_string_lossy();
        let target = name.strip_suffix(".txt").expect("corpora end in .txt");
        assert!(weir_fuzz::find(target).is_some(), "no target {target}");
    }
}
