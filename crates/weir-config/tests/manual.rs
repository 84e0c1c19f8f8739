//! The examples of the manual and of the README are configurations: each `toml` block passes the parser, or says that it is part of
//! a file, and then lacks only what the rest of that file has.

#![allow(
    clippy::disallowed_methods,
    reason = "a test reads the manual; the crate itself does no I/O"
)]

use std::fs;
use std::path::{Path, PathBuf};

use weir_config::{Diagnostic, Host, Severity, parse};

/// The first line of a block that does not stand alone, for readers and for this test.
const PART: &str = "# part of a file";

/// What the rest of the file would have: a pool, a check, a key of a table that is continued.
const ELSEWHERE: &[&str] = &["E008", "E015", "E040"];

const HOST: Host = Host {
    local_ports: None,
    forwards: None,
};

/// Where a block begins, and its text.
fn blocks(page: &str) -> Vec<(usize, String)> {
    let mut blocks = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (at, line) in page.lines().enumerate() {
        match (&mut open, line.trim()) {
            (None, "```toml") => open = Some((at + 1, String::new())),
            (Some(_), "```") => blocks.extend(open.take()),
            (Some((_, text)), _) => {
                text.push_str(line);
                text.push('\n');
            }
            (None, _) => {}
        }
    }
    blocks
}

fn errors(text: &str) -> Vec<Diagnostic> {
    let mut found = parse(text, &HOST).err().unwrap_or_default();
    found.retain(|one| one.severity() == Severity::Error);
    found
}

/// What is wrong with a block.
fn wrong(text: &str) -> Vec<String> {
    let mut found = errors(text);
    if text.starts_with(PART) {
        assert!(!found.is_empty(), "a whole file is marked as part of one");
        found.retain(|one| !ELSEWHERE.contains(&one.code.as_str()));
    }
    let told = |one: &Diagnostic| format!("{}: {}: {}", one.at.line, one.code, one.message);
    found.iter().map(told).collect()
}

#[test]
fn every_example_of_the_manual_is_a_configuration() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages: Vec<PathBuf> = vec![root.join("README.md")];
    for folder in ["docs/manual", "docs/manual/configuration"] {
        let entries = fs::read_dir(root.join(folder)).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        pages.extend(paths.filter(|path| path.extension().is_some_and(|it| it == "md")));
    }
    let (mut count, mut mistakes) = (0, Vec::new());
    for page in &pages {
        for (line, text) in blocks(&fs::read_to_string(page).unwrap()) {
            count += 1;
            let name = page.file_name().unwrap().display();
            let wrong = wrong(&text);
            mistakes.extend(wrong.iter().map(|one| format!("{name}:{line}: {one}")));
        }
    }
    assert!(count >= 40, "{count} blocks");
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
}

#[test]
fn a_block_is_judged_by_what_it_says() {
    let whole = "[service.web]\nlisten = [\"192.0.2.10:80\"]\nforward = \"nat\"\npool = \"web\"\n";
    assert_eq!(wrong(whole).len(), 1);
    assert!(wrong(&format!("{PART}\n{whole}")).is_empty());
    let typo = whole.replace("listen", "listens");
    assert!(!wrong(&format!("{PART}\n{typo}")).is_empty());
}
