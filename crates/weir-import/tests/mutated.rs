//! Mutated files: lines are dropped, duplicated, swapped and cut, words inserted and replaced. The importers never
//! panic, and the parser accepts their output.

mod files;

use proptest::prelude::*;

use files::{Case, assert_accepted, corpus};
use weir_import::Imported;

/// Words with a meaning in some configuration.
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

fn change() -> impl Strategy<Value = Change> {
    let at = || 0..10_000_usize;
    let word = || prop::sample::select(WORDS);
    prop_oneof![
        at().prop_map(Change::Drop),
        at().prop_map(Change::Duplicate),
        (at(), at()).prop_map(|(a, b)| Change::Swap(a, b)),
        (at(), word()).prop_map(|(at, word)| Change::Insert(at, word)),
        (at(), word()).prop_map(|(at, word)| Change::Replace(at, word)),
        at().prop_map(Change::Cut),
    ]
}

/// Applies the changes. Indices of lines, words and characters wrap around.
fn changed(text: &str, changes: &[Change]) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for change in changes {
        if lines.is_empty() {
            break;
        }
        let count = lines.len();
        match change {
            Change::Drop(at) => drop(lines.remove(at % count)),
            Change::Duplicate(at) => lines.insert(at % count, lines[at % count].clone()),
            Change::Swap(a, b) => lines.swap(a % count, b % count),
            Change::Insert(at, word) => {
                let line = &mut lines[at % count];
                let positions: Vec<usize> =
                    line.char_indices().map(|(position, _)| position).collect();
                let position = positions.get(at / count % positions.len().max(1)).copied();
                line.insert_str(position.unwrap_or(0), word);
            }
            Change::Replace(at, word) => {
                let line = &mut lines[at % count];
                let words: Vec<&str> = line.split_whitespace().collect();
                if let Some(old) = words.get(at / count % words.len().max(1)) {
                    *line = line.replacen(old, word, 1);
                }
            }
            Change::Cut(at) => {
                let line = &mut lines[at % count];
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

fn check(case: &Case, import: Importer, text: &str) -> Imported {
    let imported = import(&case.name, text, &case.environment());
    assert_accepted(&imported, text);
    imported
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6 * ProptestConfig::default().cases))]

    #[test]
    fn mutated_files_give_valid_output(
        program in 0..PROGRAMS.len(),
        file in 0..1000_usize,
        changes in prop::collection::vec(change(), 1..12),
    ) {
        let (name, import) = PROGRAMS[program];
        let cases = corpus(name);
        let case = &cases[file % cases.len()];
        check(case, import, &changed(&case.text, &changes));
    }

    #[test]
    fn random_text_does_not_panic(program in 0..PROGRAMS.len(), text in "(?s).{0,300}") {
        let (name, import) = PROGRAMS[program];
        let cases = corpus(name);
        check(&cases[0], import, &text);
    }
}
