//! Checks style rules that the compiler does not check: line width, file size, and banned words.
//!
//! Each crate has an allowance of findings per rule in `tidy/allowed.txt`. The test fails if there are more findings
//! than allowed. If there are fewer, it prints that the allowance can be lowered; `TIDY_UPDATE=1 cargo test -p weir-lab
//! --test tidy` lowers it, and never raises it. [`rule`] defines the rules; [`scan`] splits the source text.

#[path = "tidy/rule.rs"]
mod rule;
#[path = "tidy/scan.rs"]
mod scan;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rule::{COLUMNS, FILE_LINES, Rule};
use scan::Language;

/// Number of findings by crate and rule.
type Counts = BTreeMap<String, [usize; Rule::ALL.len()]>;

/// Findings by crate and rule, as `path:line: text`.
type Findings = BTreeMap<(String, usize), Vec<String>>;

#[test]
fn findings_stay_within_their_allowances() {
    let root = root();
    let path = root.join("crates/weir-lab/tests/tidy/allowed.txt");
    let allowed = parse_allowances(&fs::read_to_string(&path).expect("read the allowances"));
    let findings = findings(&root);
    let mut counts = Counts::new();
    for ((area, rule), found) in &findings {
        counts.entry(area.clone()).or_default()[*rule] = found.len();
    }
    let (mut lowered, mut errors) = (Counts::new(), String::new());
    let areas: Vec<&String> = counts.keys().chain(allowed.keys()).collect();
    for area in areas {
        let zero = [0; Rule::ALL.len()];
        let found = counts.get(area).unwrap_or(&zero);
        let allowance = allowed.get(area).unwrap_or(&zero);
        for (rule, (found, allowance)) in found.iter().zip(allowance).enumerate() {
            lowered.entry(area.clone()).or_default()[rule] = *found.min(allowance);
            if found < allowance {
                println!(
                    "{area}: {} can be lowered from {allowance} to {found}",
                    Rule::ALL[rule].name()
                );
            }
            if found > allowance && !errors.contains(&format!("{area}: {}", Rule::ALL[rule].name()))
            {
                let _ = writeln!(
                    errors,
                    "{area}: {}: {found} findings, {allowance} allowed:",
                    Rule::ALL[rule].name()
                );
                for finding in &findings[&(area.clone(), rule)] {
                    let _ = writeln!(errors, "  {finding}");
                }
            }
        }
    }
    if std::env::var_os("TIDY_UPDATE").is_some() {
        fs::write(&path, format_allowances(&lowered)).expect("write the allowances");
    }
    assert!(errors.is_empty(), "{errors}");
}

/// Returns all findings in the files that git tracks.
fn findings(root: &Path) -> Findings {
    let mut findings = Findings::new();
    for path in tracked_files(root) {
        let Some(language) = Language::from_path(&path) else {
            continue;
        };
        let Ok(text) = fs::read_to_string(root.join(&path)) else {
            // Skip a file that was removed from the work tree.
            continue;
        };
        let mut add = |rule: Rule, line: usize, finding: &str| {
            let key = (area(&path), rule as usize);
            findings
                .entry(key)
                .or_default()
                .push(format!("{path}:{line}: {finding}"));
        };
        let lines = text.lines().count();
        if language.is_source() && lines > FILE_LINES {
            add(Rule::FileSize, lines, "too many lines");
        }
        for (number, line) in text.lines().enumerate() {
            let columns = line.chars().count();
            // Rows of tables cannot be wrapped.
            if columns > COLUMNS && !(language == Language::Markdown && line.starts_with('|')) {
                add(Rule::Width, number + 1, &format!("{columns} columns"));
            }
        }
        for piece in scan::pieces(language, &text) {
            for word in rule::banned_words(&piece) {
                if !rule::is_accepted(&path, &word) {
                    add(Rule::for_region(piece.region), piece.line, &word);
                }
            }
        }
    }
    findings
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn tracked_files(root: &Path) -> Vec<String> {
    let output = Command::new("git")
        .args(["-c", "safe.directory=*", "ls-files"])
        .current_dir(root)
        .output()
        .expect("run git");
    assert!(output.status.success(), "git ls-files: {output:?}");
    let paths = String::from_utf8(output.stdout).expect("paths are UTF-8");
    paths
        .lines()
        .filter(|path| !rule::is_exempt(path))
        .map(str::to_owned)
        .collect()
}

/// Returns the area of a file: its crate, `weir/tests`, its top-level directory, or `.` for a file in the root.
fn area(path: &str) -> String {
    let mut parts = path.split('/');
    match (parts.next(), parts.next(), parts.next()) {
        (Some("crates"), Some("weir"), Some("tests")) => "weir/tests".to_owned(),
        (Some("crates"), Some(name), _) => name.to_owned(),
        (Some(top), Some(_), _) => top.to_owned(),
        _ => ".".to_owned(),
    }
}

fn parse_allowances(text: &str) -> Counts {
    let mut counts = Counts::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        let area = words.next().expect("has an area");
        let numbers: Vec<usize> = words
            .map(|word| word.parse().expect("is a number"))
            .collect();
        counts.insert(
            area.to_owned(),
            numbers.try_into().expect("has a number for each rule"),
        );
    }
    counts
}

fn format_allowances(counts: &Counts) -> String {
    let names: Vec<&str> = Rule::ALL.iter().map(|rule| rule.name()).collect();
    let mut text = format!("# area {}\n", names.join(" "));
    for (area, numbers) in counts
        .iter()
        .filter(|(_, numbers)| numbers.iter().any(|count| *count > 0))
    {
        let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
        let _ = writeln!(text, "{area} {}", numbers.join(" "));
    }
    text
}
