//! Checks the dependencies between crates, and which crates may contain `unsafe`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Each crate and the workspace crates that it may directly depend on.
const ALLOWED_DEPENDENCIES: &[(&str, &[&str])] = &[
    ("weir-abi", &[]),
    ("weir-model", &[]),
    ("weir-wire", &[]),
    ("weir-sched", &["weir-model"]),
    ("weir-flow", &["weir-model", "weir-wire", "weir-abi"]),
    (
        "weir-planner",
        &[
            "weir-model",
            "weir-wire",
            "weir-abi",
            "weir-sched",
            "weir-flow",
        ],
    ),
    ("weir-latency", &["weir-abi", "weir-model", "weir-sched"]),
    ("weir-health", &["weir-model"]),
    ("weir-state", &["weir-model", "weir-health"]),
    ("weir-vrrp", &["weir-model", "weir-wire"]),
    ("weir-sync", &[]),
    ("weir-cluster", &[]),
    ("weir-etcd", &["weir-cluster", "weir-model"]),
    ("weir-http", &["weir-model"]),
    ("weir-select", &["weir-http", "weir-sched", "weir-model"]),
    ("weir-config", &["weir-http", "weir-model"]),
    ("weir-ipvsadm", &["weir-model"]),
    ("weir-import", &["weir-http", "weir-model", "weir-config"]),
    ("weir-sys", &["weir-model"]),
    ("weir-runtime-dir", &["weir-model", "weir-sys"]),
    ("weir-netlink", &["weir-model", "weir-sys"]),
    ("weir-defense", &["weir-wire", "weir-sys", "weir-netlink"]),
    (
        "weir-helper",
        &[
            "weir-http",
            "weir-model",
            "weir-config",
            "weir-sys",
            "weir-runtime-dir",
            "weir-netlink",
        ],
    ),
    (
        "weir-announce",
        &[
            "weir-http",
            "weir-model",
            "weir-config",
            "weir-sys",
            "weir-runtime-dir",
            "weir-netlink",
            "weir-helper",
        ],
    ),
    (
        "weir-vrrp-agent",
        &[
            "weir-http",
            "weir-model",
            "weir-config",
            "weir-wire",
            "weir-vrrp",
            "weir-sys",
            "weir-runtime-dir",
            "weir-netlink",
            "weir-defense",
            "weir-helper",
        ],
    ),
    ("weir-dataplane", &["weir-abi", "weir-model", "weir-sys"]),
    (
        "weir-proxy",
        &[
            "weir-select",
            "weir-http",
            "weir-sched",
            "weir-health",
            "weir-sys",
            "weir-model",
        ],
    ),
    (
        "weir-protect",
        &[
            "weir-abi",
            "weir-model",
            "weir-wire",
            "weir-sys",
            "weir-runtime-dir",
            "weir-netlink",
            "weir-dataplane",
        ],
    ),
    (
        "weir-doctor",
        &[
            "weir-http",
            "weir-model",
            "weir-config",
            "weir-wire",
            "weir-sys",
            "weir-netlink",
        ],
    ),
    (
        "weir-real-server",
        &[
            "weir-abi",
            "weir-http",
            "weir-model",
            "weir-config",
            "weir-wire",
            "weir-sys",
            "weir-runtime-dir",
            "weir-netlink",
            "weir-dataplane",
            "weir-doctor",
        ],
    ),
    (
        "weir-discovery",
        &["weir-http", "weir-model", "weir-config", "weir-sys"],
    ),
    (
        "weir-probing",
        &[
            "weir-abi",
            "weir-http",
            "weir-model",
            "weir-config",
            "weir-wire",
            "weir-sched",
            "weir-flow",
            "weir-health",
            "weir-state",
            "weir-sys",
            "weir-dataplane",
            "weir-proxy",
        ],
    ),
    (
        "weir-engine",
        &[
            "weir-abi",
            "weir-model",
            "weir-wire",
            "weir-sched",
            "weir-flow",
            "weir-planner",
            "weir-health",
            "weir-latency",
            "weir-state",
            "weir-sync",
            "weir-ipvsadm",
            "weir-sys",
            "weir-netlink",
            "weir-defense",
            "weir-dataplane",
        ],
    ),
    (
        "weir-engine-host",
        &[
            "weir-abi",
            "weir-http",
            "weir-model",
            "weir-config",
            "weir-wire",
            "weir-sched",
            "weir-flow",
            "weir-health",
            "weir-state",
            "weir-sync",
            "weir-ipvsadm",
            "weir-sys",
            "weir-runtime-dir",
            "weir-netlink",
            "weir-defense",
            "weir-dataplane",
            "weir-helper",
            "weir-proxy",
            "weir-probing",
            "weir-engine",
        ],
    ),
    (
        "weir-control",
        &[
            "weir-engine-host",
            "weir-abi",
            "weir-model",
            "weir-wire",
            "weir-sched",
            "weir-flow",
            "weir-planner",
            "weir-latency",
            "weir-health",
            "weir-state",
            "weir-sync",
            "weir-vrrp",
            "weir-http",
            "weir-select",
            "weir-config",
            "weir-ipvsadm",
            "weir-import",
            "weir-sys",
            "weir-runtime-dir",
            "weir-netlink",
            "weir-defense",
            "weir-dataplane",
            "weir-helper",
            "weir-vrrp-agent",
            "weir-announce",
            "weir-cluster",
            "weir-etcd",
            "weir-proxy",
            "weir-doctor",
            "weir-real-server",
            "weir-discovery",
            "weir-probing",
            "weir-engine",
        ],
    ),
    // Used only by the tests of other crates.
    ("weir-testing", &[]),
    // A simulation; `weir` does not use it.
    ("weir-scaling", &["weir-sched", "weir-model"]),
    // Uses Weir only as a program, except for the simulation.
    ("weir-lab", &["weir-scaling", "weir-sched", "weir-model"]),
    // Fuzzes the parsers of the other crates.
    (
        "weir-fuzz",
        &[
            "weir-abi",
            "weir-config",
            "weir-control",
            "weir-discovery",
            "weir-engine",
            "weir-flow",
            "weir-health",
            "weir-http",
            "weir-import",
            "weir-ipvsadm",
            "weir-model",
            "weir-proxy",
            "weir-sync",
            "weir-vrrp",
            "weir-wire",
        ],
    ),
];

/// Workspace crates that do not use I/O, clocks, randomness or async.
const PURE: &[&str] = &[
    "weir-abi",
    "weir-model",
    "weir-wire",
    "weir-sched",
    "weir-scaling",
    "weir-latency",
    "weir-flow",
    "weir-planner",
    "weir-health",
    "weir-state",
    "weir-sync",
    "weir-cluster",
    "weir-vrrp",
    "weir-http",
    "weir-select",
    "weir-config",
    "weir-ipvsadm",
    "weir-import",
];
/// External crates for I/O, time, randomness or async. No pure crate may depend on them, except for tests.
const IMPURE_DEPENDENCIES: &[&str] = &[
    "tokio",
    "rustix",
    "libc",
    "nix",
    "socket2",
    "rand",
    "getrandom",
    "hyper",
    "axum",
    "rtnetlink",
    "aya",
    "mio",
];

const UNSAFE_ALLOWED: &[&str] = &["weir-sys", "weir-dataplane"];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A workspace crate.
struct Member {
    name: String,
    /// The directory of its manifest.
    directory: PathBuf,
    /// Names of its dependencies, and whether each is a dev-dependency.
    dependencies: Vec<(String, bool)>,
}

fn members() -> Vec<Member> {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--no-deps",
            "--offline",
            "--format-version",
            "1",
        ])
        .current_dir(workspace())
        .output()
        .expect("run cargo");
    assert!(
        output.status.success(),
        "cargo metadata: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("parse metadata");
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let dependency = |value: &serde_json::Value| (text(&value["name"]), value["kind"] == "dev");
    metadata["packages"]
        .as_array()
        .expect("`packages` is an array")
        .iter()
        .map(|package| Member {
            name: text(&package["name"]),
            directory: Path::new(&text(&package["manifest_path"]))
                .parent()
                .expect("manifest has a parent directory")
                .to_owned(),
            dependencies: package["dependencies"]
                .as_array()
                .expect("`dependencies` is an array")
                .iter()
                .map(dependency)
                .collect(),
        })
        .collect()
}

#[test]
fn crates_depend_only_on_permitted_crates() {
    let members = members();
    let names: BTreeSet<&str> = members.iter().map(|member| member.name.as_str()).collect();
    assert!(
        names.contains("weir-model") && names.contains("weir"),
        "found only {names:?}"
    );
    let mut violations = Vec::new();
    for member in members.iter().filter(|member| member.name != "weir") {
        let Some((_, allowed)) = ALLOWED_DEPENDENCIES
            .iter()
            .find(|(name, _)| *name == member.name)
        else {
            violations.push(format!(
                "{} is missing: add it to ALLOWED_DEPENDENCIES and to the layout in ARCHITECTURE.md",
                member.name
            ));
            continue;
        };
        for (dependency, is_dev) in &member.dependencies {
            let is_internal = names.contains(dependency.as_str());
            if is_internal && !is_dev && !allowed.contains(&dependency.as_str()) {
                violations.push(format!("{} must not depend on {dependency}", member.name));
            }
        }
    }
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

#[test]
fn pure_crates_do_not_depend_on_crates_that_do_io() {
    let mut violations = Vec::new();
    for member in members()
        .iter()
        .filter(|member| PURE.contains(&member.name.as_str()))
    {
        for (dependency, is_dev) in &member.dependencies {
            if !is_dev && IMPURE_DEPENDENCIES.contains(&dependency.as_str()) {
                violations.push(format!(
                    "{} is pure and must not depend on {dependency}",
                    member.name
                ));
            }
        }
    }
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

#[test]
fn pure_crates_have_the_same_clippy_rules() {
    let mut first: Option<(String, String)> = None;
    for member in members() {
        let path = member.directory.join("clippy.toml");
        if !PURE.contains(&member.name.as_str()) {
            assert!(
                !path.exists(),
                "{} is not pure and must not have its own clippy.toml",
                member.name
            );
            continue;
        }
        let rules = std::fs::read_to_string(&path);
        let rules = rules.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        match &first {
            Some((name, other)) => assert!(
                *other == rules,
                "clippy.toml of {} and {name} differ",
                member.name
            ),
            None => first = Some((member.name, rules)),
        }
    }
}

#[test]
fn only_two_crates_contain_unsafe() {
    let mut violations = Vec::new();
    let mut file_count = 0;
    for member in members()
        .iter()
        .filter(|member| !UNSAFE_ALLOWED.contains(&member.name.as_str()))
    {
        for file in rust_files(&member.directory) {
            // This file contains the forbidden text.
            if file.ends_with("tests/dependency_rules.rs") {
                continue;
            }
            file_count += 1;
            let text = std::fs::read_to_string(&file).expect("read source file");
            for (number, line) in text.lines().enumerate() {
                let code = line.split("//").next().unwrap_or_default();
                if [
                    "unsafe {",
                    "unsafe fn",
                    "unsafe impl",
                    "unsafe extern",
                    "allow(unsafe_code",
                ]
                .iter()
                .any(|form| code.contains(form))
                {
                    violations.push(format!(
                        "{}:{}: {}",
                        file.display(),
                        number + 1,
                        line.trim()
                    ));
                }
            }
        }
    }
    assert!(file_count > 10, "found only {file_count} files");
    assert!(
        violations.is_empty(),
        "unsafe outside {UNSAFE_ALLOWED:?}:\n{}",
        violations.join("\n")
    );
}

fn rust_files(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut pending = vec![directory.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in std::fs::read_dir(&directory)
            .expect("read directory")
            .flatten()
        {
            let path = entry.path();
            if path.is_dir() && !path.ends_with("target") {
                pending.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files
}
