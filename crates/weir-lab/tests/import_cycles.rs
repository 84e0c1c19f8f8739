//! Checks that there are no import cycles between the modules of a crate.
//!
//! Two modules that import from each other cannot be understood, tested or moved separately. A name that a module only
//! re-exports (`pub use`) counts as imported from the module that defines it. A parent that only declares its children
//! does not import from them; a parent whose code uses them does.

#[path = "import_cycles/module.rs"]
mod module;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use module::{ModulePath, Modules};

/// Remaining cycles: crate, modules and reason. The list may only become shorter.
const ALLOWED: &[(&str, &[&str], &str)] = &[
    (
        "weir-config",
        &["catalog", "lower", "verify", "view"],
        "the catalog of keys names the functions that lower them",
    ),
    (
        "weir-control",
        &[
            "daemon::director::(itself)",
            "daemon::director::guarded_reload",
        ],
        "the director stores the guarded reload, which its methods end",
    ),
    (
        "weir-control",
        &["status::(itself)", "status::conversion", "status::proxy"],
        "the document is defined next to the code that reads it",
    ),
    (
        "weir-control",
        &[
            "traffic::(itself)",
            "traffic::request_outcome",
            "traffic::server_state",
        ],
        "the parent module stores both planes and applies their weights",
    ),
    (
        "weir-dataplane",
        &[
            "attach",
            "dataplane",
            "layout",
            "pins",
            "plan",
            "socket",
            "spec",
        ],
        "the plan for opening the data plane reads and returns it, and the layout record is a pin",
    ),
    (
        "weir-engine",
        &[
            "engine::(itself)",
            "engine::latency",
            "engine::local_client",
        ],
        "the engine stores the state of these parts next to its methods",
    ),
    (
        "weir-ipvsadm",
        &["format", "listing"],
        "listings are printed by their own methods",
    ),
    (
        "weir-ipvsadm",
        &["import", "lower"],
        "lowering and reading convert the same table in both directions",
    ),
    (
        "weir-lab",
        &["experiment", "report"],
        "reports print experiments, which collect reports",
    ),
    (
        "weir-lab",
        &["namespace", "process"],
        "processes run in namespaces, and processes create and remove namespaces",
    ),
    (
        "weir-model",
        &[
            "admin",
            "check",
            "desired",
            "diff",
            "message",
            "proxy",
            "route",
            "tls",
            "tls_suite",
        ],
        "the desired state contains all of its parts, which share its types",
    ),
    (
        "weir-planner",
        &["allocation", "extent", "index", "mark", "policy", "rows"],
        "rows, allocation and extents share their types",
    ),
    (
        "weir-proxy",
        &[
            "context",
            "descriptor",
            "error",
            "h2",
            "handover",
            "idle_pool",
            "log",
            "page",
            "pipe",
            "plan",
            "status",
            "tls",
            "transport",
            "verdict",
        ],
        "workers, sessions and the plan share the context of a worker",
    ),
];

/// Crates that have no cycles at any level. Other crates have no cycles between their top-level modules.
const ALL_LEVELS: &[&str] = &["weir-engine", "weir-control"];

/// The name of a module's own file in a cycle with its children.
const PARENT: &str = "(itself)";

/// Modules that import from each other: children of one module, or that module itself.
type Cycle = Vec<String>;

/// Returns the root files of a crate.
fn roots(directory: &Path) -> Vec<PathBuf> {
    let files = ["src/lib.rs", "src/main.rs"].map(|file| directory.join(file));
    files.into_iter().filter(|file| file.exists()).collect()
}

fn crates() -> Vec<(String, PathBuf)> {
    let crates_directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let entries = std::fs::read_dir(&crates_directory).expect("readable directory");
    let directories = entries.map(|entry| entry.expect("read the directory entry").path());
    let mut crates: Vec<(String, PathBuf)> = directories
        .filter(|directory| directory.join("Cargo.toml").exists())
        .map(|directory| {
            let name = directory.file_name().expect("has a name").to_string_lossy();
            (name.into_owned(), directory)
        })
        .collect();
    crates.sort();
    crates
}

/// Returns the imports between the children of `parent`, and between the children and `parent`.
fn edges_below(
    parent: &[String],
    imports: &BTreeSet<(ModulePath, ModulePath)>,
) -> BTreeMap<String, BTreeSet<String>> {
    let node = |path: &ModulePath| -> Option<String> {
        if path == parent {
            return Some(PARENT.to_owned());
        }
        path.starts_with(parent).then(|| path[parent.len()].clone())
    };
    let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (from, to) in imports {
        if let (Some(from), Some(to)) = (node(from), node(to))
            && from != to
        {
            edges.entry(from).or_default().insert(to);
        }
    }
    edges
}

fn reachable<'a>(
    edges: &'a BTreeMap<String, BTreeSet<String>>,
    from: &'a String,
) -> BTreeSet<&'a String> {
    let mut seen = BTreeSet::new();
    let mut pending = vec![from];
    while let Some(node) = pending.pop() {
        let next = edges.get(node).into_iter().flatten();
        pending.extend(next.filter(|next| seen.insert(*next)));
    }
    seen
}

/// Returns the groups of modules in which each module reaches all others.
fn cycles_of(edges: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<Cycle> {
    let reach: BTreeMap<&String, BTreeSet<&String>> = edges
        .keys()
        .map(|node| (node, reachable(edges, node)))
        .collect();
    let mut cycles = BTreeSet::new();
    for (node, reached) in &reach {
        if reached.contains(*node) {
            let reaches_node =
                |other: &&String| reach.get(*other).is_some_and(|it| it.contains(*node));
            cycles.insert(
                reached
                    .iter()
                    .copied()
                    .filter(reaches_node)
                    .cloned()
                    .collect(),
            );
        }
    }
    cycles
}

/// Returns all cycles of a crate, with the imports that cause them.
fn cycles_in(root: &Path, every_level: bool) -> BTreeMap<Cycle, String> {
    let imports = Modules::read(root).imports();
    let mut parents: BTreeSet<ModulePath> = BTreeSet::from([Vec::new()]);
    if every_level {
        let modules = imports.iter().flat_map(|(from, to)| [from, to]);
        parents.extend(modules.flat_map(|it| (1..=it.len()).map(|length| it[..length].to_vec())));
    }
    let mut found = BTreeMap::new();
    for parent in parents {
        let edges = edges_below(&parent, &imports);
        for cycle in cycles_of(&edges) {
            let mut text = String::new();
            for (from, to) in edges
                .iter()
                .flat_map(|(from, to)| to.iter().map(move |to| (from, to)))
            {
                if cycle.contains(from) && cycle.contains(to) {
                    writeln!(text, "    {from} imports from {to}").expect("text");
                }
            }
            let full = |name: &String| {
                let mut path = parent.clone();
                path.push(name.clone());
                path.join("::")
            };
            found.insert(cycle.iter().map(full).collect(), text);
        }
    }
    found
}

#[test]
fn modules_of_a_crate_have_no_import_cycles() {
    let mut problems = String::new();
    let owned = |(name, modules, _): &(&str, &[&str], _)| {
        let modules = modules.iter().map(|module| (*module).to_owned());
        ((*name).to_owned(), modules.collect::<Cycle>())
    };
    let mut allowed: BTreeSet<(String, Cycle)> = ALLOWED.iter().map(owned).collect();
    let mut crate_count = 0;
    for (name, directory) in crates() {
        let every_level = ALL_LEVELS.contains(&name.as_str());
        for root in roots(&directory) {
            crate_count += 1;
            for (cycle, imports) in cycles_in(&root, every_level) {
                if !allowed.remove(&(name.clone(), cycle.clone())) {
                    writeln!(problems, "{name}: {}\n{imports}", cycle.join(", ")).expect("text");
                }
            }
        }
    }
    assert!(crate_count > 20, "read only {crate_count} crates");
    for (name, modules) in allowed {
        writeln!(
            problems,
            "{name}: {} is not a cycle: remove it from ALLOWED",
            modules.join(", ")
        )
        .expect("text");
    }
    assert!(problems.is_empty(), "import cycles:\n{problems}");
}
