//! Checks the licenses, bans, duplicate versions and sources of all dependencies against `deny.toml`.
//!
//! `cargo deny` checks the same file and more, but takes minutes to install; this test requires only `cargo metadata`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value as Json;

/// A package in the dependency graph on Linux.
struct Package {
    name: String,
    version: String,
    license: String,
    /// Registry or repository; `None` = a workspace crate.
    source: Option<String>,
}

fn root() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn packages() -> Vec<Package> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--offline", "--locked", "--format-version", "1"])
        .args(["--filter-platform", &target])
        .current_dir(root())
        .output()
        .expect("run cargo");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo metadata: {errors}");
    let metadata: Json =
        serde_json::from_slice(&output.stdout).expect("parse the output of cargo metadata");
    let nodes = metadata["resolve"]["nodes"]
        .as_array()
        .expect("no dependency graph");
    let ids: BTreeSet<&str> = nodes
        .iter()
        .filter_map(|node| node["id"].as_str())
        .collect();
    let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
    let packages = metadata["packages"]
        .as_array()
        .expect("no list of packages");
    packages
        .iter()
        .filter(|package| ids.contains(package["id"].as_str().unwrap_or_default()))
        .map(|package| Package {
            name: text(&package["name"]),
            version: text(&package["version"]),
            license: text(&package["license"]),
            source: package["source"].as_str().map(str::to_owned),
        })
        .collect()
}

/// Returns the strings at a path in `deny.toml`: the elements of an array, or the value of `crate` in each element.
fn rules(section: &str, key: &str) -> Vec<String> {
    let text = std::fs::read_to_string(root().join("deny.toml")).expect("read deny.toml");
    let rules: toml::Table = text.parse().expect("parse deny.toml");
    let list = rules[section][key].as_array().expect("not a list");
    let name = |item: &toml::Value| {
        item.get("crate")
            .unwrap_or(item)
            .as_str()
            .map(str::to_owned)
    };
    list.iter()
        .map(|item| name(item).expect("not a string"))
        .collect()
}

/// Returns whether the allowed licenses satisfy an SPDX expression. `/` is an old notation for OR.
fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut position = 0;
    let is_satisfied = evaluate_or(&words, &mut position, allowed);
    is_satisfied && position == words.len()
}

fn evaluate_or(words: &[&str], position: &mut usize, allowed: &[String]) -> bool {
    let mut is_satisfied = evaluate_and(words, position, allowed);
    while words.get(*position) == Some(&"OR") {
        *position += 1;
        is_satisfied |= evaluate_and(words, position, allowed);
    }
    is_satisfied
}

fn evaluate_and(words: &[&str], position: &mut usize, allowed: &[String]) -> bool {
    let mut is_satisfied = evaluate_term(words, position, allowed);
    while words.get(*position) == Some(&"AND") {
        *position += 1;
        is_satisfied &= evaluate_term(words, position, allowed);
    }
    is_satisfied
}

fn evaluate_term(words: &[&str], position: &mut usize, allowed: &[String]) -> bool {
    let Some(word) = words.get(*position) else {
        return false;
    };
    *position += 1;
    if *word == "(" {
        let is_satisfied = evaluate_or(words, position, allowed);
        let is_closed = words.get(*position) == Some(&")");
        *position += 1;
        return is_satisfied && is_closed;
    }
    let mut license = (*word).to_owned();
    if words.get(*position) == Some(&"WITH") {
        license = format!("{word} WITH {}", words.get(*position + 1).unwrap_or(&""));
        *position += 2;
    }
    allowed.contains(&license)
}

#[test]
fn licenses_are_permissive() {
    let allowed = rules("licenses", "allow");
    let packages = packages();
    assert!(packages.len() > 100, "only {} packages", packages.len());
    let violations: Vec<String> = packages
        .iter()
        .filter(|package| !is_allowed(&package.license, &allowed))
        .map(|package| {
            format!(
                "{} {}: {:?}",
                package.name, package.version, package.license
            )
        })
        .collect();
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

#[test]
fn sources_are_known_and_no_crate_is_banned() {
    let registries = rules("sources", "allow-registry");
    let banned = rules("bans", "deny");
    let mut violations = Vec::new();
    for package in packages() {
        if banned.contains(&package.name) {
            violations.push(format!("{} is banned in deny.toml", package.name));
        }
        let Some(source) = &package.source else {
            continue;
        };
        let registry_url = source.strip_prefix("registry+");
        if !registry_url.is_some_and(|url| registries.iter().any(|registry| registry == url)) {
            violations.push(format!("{} comes from {source}", package.name));
        }
    }
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

#[test]
fn no_crate_has_two_versions() {
    let exceptions: BTreeSet<String> = rules("bans", "skip").into_iter().collect();
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in packages() {
        versions
            .entry(package.name)
            .or_default()
            .insert(package.version);
    }
    versions.retain(|_, versions| versions.len() > 1);
    let duplicates: BTreeSet<String> = versions.keys().cloned().collect();
    let unlisted: Vec<_> = versions
        .iter()
        .filter(|(name, _)| !exceptions.contains(*name))
        .collect();
    assert!(unlisted.is_empty(), "more than one version: {unlisted:?}");
    let unused: Vec<_> = exceptions.difference(&duplicates).collect();
    assert!(
        unused.is_empty(),
        "remove from `skip` of deny.toml: {unused:?}"
    );
}

#[test]
fn license_expressions_are_evaluated() {
    let allowed = ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned);
    for (expression, expected) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("MIT/GPL-3.0", true),
        ("GPL-3.0 OR MIT", true),
        ("GPL-3.0 AND MIT", false),
        ("MIT AND (GPL-3.0 OR ISC)", true),
        ("(MIT OR GPL-3.0) AND GPL-3.0", false),
        ("Apache-2.0 WITH LLVM-exception", true),
        ("Apache-2.0", false),
        ("MIT OR", true),
        ("MIT ISC", false),
        ("(MIT", false),
        ("", false),
    ] {
        assert_eq!(is_allowed(expression, &allowed), expected, "{expression:?}");
    }
}
