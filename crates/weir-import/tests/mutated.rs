//! Imports mutated files: lines are dropped, duplicated, swapped and truncated, and words are inserted and replaced.
//! The importers must not panic, and the parser must accept their output.

mod files;

use proptest::prelude::*;

use files::{Case, assert_accepted, corpus};
use weir_import::Imported;

/// Words that have a meaning in at least one of the formats.
const WORDS: &[&str] = &[
    "{",
    "}",
    "\"",
    "#",
    "!",
    "@a ",
    "$A",
    "~SEQ(n, 3) ",
    "include x",
    "0",
    "-1",
    "99999999999999999999",
    "1.5",
    "::",
    "10.0.0.1",
    "10.0.0.0/8",
    "2001:db8::1",
    "virtual_server",
    "real_server",
    "group",
    "fwmark",
    "weight",
    "TCP_CHECK",
    "HTTP_GET",
    "url",
    "path",
    "=",
    "virtual=",
    "real=",
    "    ",
    "\t",
    "gate",
    "masq",
    "->",
    "checktype=",
    "[",
    "]",
    ";",
    "server",
    "backend",
    "frontend",
    "bind",
    "acl",
    "use_backend",
    "location",
    "upstream",
    "\\",
    "é",
    "\u{7f}",
];

#[derive(Clone, Debug)]
enum Change {
    Drop(usize),
    Duplicate(usize),
    Swap(usize, usize),
    Insert(usize, &'static str),
    Replace(usize, &'static str),
    Cut(usize),
}

fn any_change() -> impl Strategy<Value = Change> {
    let index = || 0..10_000_usize;
    let any_word = || prop::sample::select(WORDS);
    prop_oneof![
        index().prop_map(Change::Drop),
        index().prop_map(Change::Duplicate),
        (index(), index()).prop_map(|(a, b)| Change::Swap(a, b)),
        (index(), any_word()).prop_map(|(index, word)| Change::Insert(index, word)),
        (index(), any_word()).prop_map(|(index, word)| Change::Replace(index, word)),
        index().prop_map(Change::Cut),
    ]
}

/// Returns the text after the changes. Indices of lines, words and characters wrap around.
fn apply_changes(text: &str, changes: &[Change]) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for change in changes {
        if lines.is_empty() {
            break;
        }
        let count = lines.len();
        match change {
            Change::Drop(index) => drop(lines.remove(index % count)),
            Change::Duplicate(index) => lines.insert(index % count, lines[index % count].clone()),
            Change::Swap(a, b) => lines.swap(a % count, b % count),
            Change::Insert(index, word) => {
                let line = &mut lines[index % count];
                let positions: Vec<usize> =
                    line.char_indices().map(|(position, _)| position).collect();
                let position = positions
                    .get(index / count % positions.len().max(1))
                    .copied();
                line.insert_str(position.unwrap_or(0), word);
            }
            Change::Replace(index, word) => {
                let line = &mut lines[index % count];
                let words: Vec<&str> = line.split_whitespace().collect();
                if let Some(old_word) = words.get(index / count % words.len().max(1)) {
                    *line = line.replacen(old_word, word, 1);
                }
            }
            Change::Cut(index) => {
                let line = &mut lines[index % count];
                let middle = line.char_indices().nth(line.chars().count() / 2);
                line.truncate(middle.map_or(0, |(position, _)| position));
            }
        }
    }
    lines.join("\n")
}

type Importer = fn(&str, &str, &dyn weir_import::Environment) -> Imported;

const PROGRAMS: &[(&str, Importer)] = &[
    ("keepalived", weir_import::keepalived),
    ("ldirectord", weir_import::ldirectord),
    ("haproxy", weir_import::haproxy),
    ("nginx", weir_import::nginx),
];

fn assert_output_is_valid(case: &Case, import: Importer, text: &str) -> Imported {
    let imported = import(&case.name, text, &case.environment());
    assert_accepted(&imported, text);
    imported
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6 * ProptestConfig::default().cases))]

    #[test]
    fn output_for_mutated_files_is_valid(
        program in 0..PROGRAMS.len(),
        file in 0..1000_usize,
        changes in prop::collection::vec(any_change(), 1..12),
    ) {
        let (name, import) = PROGRAMS[program];
        let cases = corpus(name);
        let case = &cases[file % cases.len()];
        assert_output_is_valid(case, import, &apply_changes(&case.text, &changes));
    }

    #[test]
    fn output_for_random_text_is_valid(program in 0..PROGRAMS.len(), text in "(?s).{0,300}") {
        let (name, import) = PROGRAMS[program];
        let cases = corpus(name);
        assert_output_is_valid(&cases[0], import, &text);
    }
}
