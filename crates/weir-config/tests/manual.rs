//! Tests that the examples in the manual and the README are valid, and that the links between pages have targets.
//!
//! Each `toml` block parses, or is marked as part of a file. A part can name the file that it extends; then both
//! together must parse. A part that names no file may have only errors that the rest of the file would fix. Also tests
//! that the site contains every page.

#![allow(
    clippy::disallowed_methods,
    reason = "a test reads the manual; the crate itself does no I/O"
)]

use std::fs;
use std::path::{Path, PathBuf};

use weir_config::{Diagnostic, Host, Severity, parse, parse_json};

/// First line of a block that is not a complete file; `: PATH` after it names the file that the block extends.
const PART: &str = "# part of a file";

/// Errors that the rest of the file would fix: a missing pool, check or key of a continued table.
const MISSING_PART_CODES: &[&str] = &["E008", "E015", "E040"];

const HOST: Host = Host {
    local_ports: None,
    forwards: None,
};

/// Returns the start line and the text of each TOML block.
fn blocks(page: &str) -> Vec<(usize, String)> {
    let mut blocks = Vec::new();
    let mut block: Option<(usize, String)> = None;
    for (index, line) in page.lines().enumerate() {
        match (&mut block, line.trim()) {
            (None, "```toml") => block = Some((index + 1, String::new())),
            (Some(_), "```") => blocks.extend(block.take()),
            (Some((_, text)), _) => {
                text.push_str(line);
                text.push('\n');
            }
            (None, _) => {}
        }
    }
    blocks
}

fn manual() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/manual")
}

/// Returns the name, for messages, and the text of the README and every page of the manual.
fn pages() -> Vec<(String, String)> {
    let mut paths = vec![manual().join("../../README.md")];
    for folder in [".", "configuration", "forward", "getting-started"] {
        let entries = fs::read_dir(manual().join(folder)).unwrap();
        let files = entries.map(|entry| entry.unwrap().path());
        paths.extend(files.filter(|path| path.extension().is_some_and(|it| it == "md")));
    }
    let pages = paths.into_iter().map(|path| {
        let text = fs::read_to_string(&path).unwrap();
        let name = path.strip_prefix(manual()).map_or(path.as_path(), |it| it);
        (
            name.components().collect::<PathBuf>().display().to_string(),
            text,
        )
    });
    pages.collect()
}

/// Merges the tables of `part` into `whole`: keys replace existing keys, and arrays of tables are joined.
fn extend(whole: &mut toml::Table, part: toml::Table) {
    for (key, value) in part {
        match (whole.get_mut(&key), value) {
            (Some(toml::Value::Table(old)), toml::Value::Table(new)) => extend(old, new),
            (Some(toml::Value::Array(old)), toml::Value::Array(new))
                if old.iter().all(toml::Value::is_table) =>
            {
                old.extend(new);
            }
            (_, value) => drop(whole.insert(key, value)),
        }
    }
}

fn errors(result: Result<weir_config::ParsedConfig, Vec<Diagnostic>>) -> Vec<Diagnostic> {
    let mut diagnostics = result.err().unwrap_or_default();
    diagnostics.retain(|it| it.severity() == Severity::Error);
    diagnostics
}

/// Returns the errors of a block. Its first line can name a file of the manual.
fn block_errors(text: &str) -> Vec<String> {
    let format_error = |it: &Diagnostic| format!("{}: {}: {}", it.at.line, it.code, it.message);
    let block_diagnostics = errors(parse(text, &HOST));
    let Some(suffix) = text.lines().next().and_then(|line| line.strip_prefix(PART)) else {
        return block_diagnostics.iter().map(format_error).collect();
    };
    let Some(extended_file) = suffix.strip_prefix(": ") else {
        assert!(
            !block_diagnostics.is_empty(),
            "a complete file is marked as part of a file"
        );
        let mut mistakes = block_diagnostics;
        mistakes.retain(|it| !MISSING_PART_CODES.contains(&it.code.as_str()));
        return mistakes.iter().map(format_error).collect();
    };
    let Ok(whole) = fs::read_to_string(manual().join(extended_file)) else {
        return vec![format!("1: the manual has no file {extended_file}")];
    };
    let mut whole: toml::Table = whole.parse().unwrap();
    match text.parse() {
        Ok(part) => extend(&mut whole, part),
        Err(error) => return vec![error.to_string()],
    }
    let json = serde_json::to_string(&whole).unwrap();
    let mistakes = errors(parse_json(&json, &HOST));
    let format_error =
        |it: &Diagnostic| format!("with {extended_file}: {}: {}", it.code, it.message);
    mistakes.iter().map(format_error).collect()
}

#[test]
fn manual_examples_are_valid_configurations() {
    let (mut count, mut mistakes) = (0, Vec::new());
    for (name, page) in pages() {
        for (line, text) in blocks(&page) {
            count += 1;
            let errors = block_errors(&text);
            mistakes.extend(errors.iter().map(|it| format!("{name}:{line}: {it}")));
        }
    }
    assert!(count >= 60, "{count} blocks");
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
}

#[test]
fn files_that_examples_extend_are_valid() {
    for entry in fs::read_dir(manual().join("examples")).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let mut findings = parse(&text, &HOST).unwrap().findings;
        // Pools that are only used by the partial examples.
        findings.retain(|it| it.code.as_str() != "W001");
        assert_eq!(findings, vec![], "{}", path.display());
    }
}

/// Returns the targets of links and images on a page, except those on other sites.
fn targets(page: &str) -> Vec<String> {
    let link_ends = page.split("](").skip(1);
    let targets = link_ends
        .filter_map(|rest| rest.split_once(')'))
        .map(|(it, _)| it);
    let local = targets.filter(|it| !it.contains("://") && !it.contains(char::is_whitespace));
    local.map(str::to_owned).collect()
}

/// Returns the anchor of a heading, as generated by the site and by code hosting sites.
fn anchor(heading: &str) -> String {
    let heading = heading.trim().to_lowercase();
    let characters = heading
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    characters.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn links_between_pages_have_targets() {
    let mut broken = Vec::new();
    for (name, page) in pages() {
        if name.ends_with("../../README.md") {
            continue;
        }
        for target in targets(&page) {
            let (file, fragment) = target.split_once('#').unwrap_or((&target, ""));
            let folder = manual().join(&name).parent().unwrap().to_owned();
            let path = if file.is_empty() {
                manual().join(&name)
            } else {
                folder.join(file)
            };
            let text = fs::read_to_string(&path).unwrap_or_default();
            let headings = text.lines().filter(|line| line.starts_with('#'));
            let mut anchors = headings.map(|line| anchor(line.trim_start_matches('#')));
            let is_found =
                path.exists() && (fragment.is_empty() || anchors.any(|it| it == fragment));
            if !is_found {
                broken.push(format!("{name}: {target}"));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn site_contains_every_page() {
    let summary = fs::read_to_string(manual().join("SUMMARY.md")).unwrap();
    let mut linked_pages = targets(&summary);
    linked_pages.sort_unstable();
    let names = pages().into_iter().map(|(name, _)| name);
    let mut names: Vec<String> = names
        .filter(|name| name != "SUMMARY.md" && !name.contains(".."))
        .collect();
    names.sort_unstable();
    assert_eq!(linked_pages, names);
}

#[test]
fn partial_examples_allow_only_missing_parts() {
    let whole = "[service.web]\nlisten = [\"192.0.2.10:80\"]\nforward = \"nat\"\npool = \"web\"\n";
    assert_eq!(block_errors(whole).len(), 1);
    assert!(block_errors(&format!("{PART}\n{whole}")).is_empty());
    let typo = whole.replace("listen", "listens");
    assert!(!block_errors(&format!("{PART}\n{typo}")).is_empty());
    let first_line = format!("{PART}: examples/layer4.toml\n");
    assert_eq!(
        block_errors(&format!("{first_line}{whole}")),
        Vec::<String>::new()
    );
    assert!(!block_errors(&format!("{first_line}{typo}")).is_empty());
    assert!(!block_errors(&format!("{PART}: examples/none.toml\n{whole}")).is_empty());
}
