//! Examples in the manual and in the README are valid: each `toml` block parses, or is marked as part of a file and
//! only lacks what the rest of the file would contain.

#![allow(
    clippy::disallowed_methods,
    reason = "a test reads the manual; the crate itself does no I/O"
)]

use std::fs;
use std::path::{Path, PathBuf};

use weir_config::{Diagnostic, Host, Severity, parse};

/// First line of a block that is not a complete file.
const PART: &str = "# part of a file";

/// Errors that the rest of the file would fix: a missing pool, check or key of a continued table.
const ELSEWHERE: &[&str] = &["E008", "E015", "E040"];

const HOST: Host = Host {
    local_ports: None,
    forwards: None,
};

/// Start line and text of each block.
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

/// Errors of a block.
fn wrong(text: &str) -> Vec<String> {
    let mut found = errors(text);
    if text.starts_with(PART) {
        assert!(!found.is_empty(), "a whole file is marked as part of one");
        found.retain(|one| !ELSEWHERE.contains(&one.code.as_str()));
    }
    let rendered = |one: &Diagnostic| format!("{}: {}: {}", one.at.line, one.code, one.message);
    found.iter().map(rendered).collect()
}

#[test]
fn manual_examples_are_valid_configurations() {
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
fn partial_examples_allow_only_missing_parts() {
    let whole = "[service.web]\nlisten = [\"192.0.2.10:80\"]\nforward = \"nat\"\npool = \"web\"\n";
    assert_eq!(wrong(whole).len(), 1);
    assert!(wrong(&format!("{PART}\n{whole}")).is_empty());
    let typo = whole.replace("listen", "listens");
    assert!(!wrong(&format!("{PART}\n{typo}")).is_empty());
}
