//! Tests the Debian packages: contents, first request, upgrade under traffic, removal and purge.
//!
//! apt installs them from a signed repository in a copy-on-write view of this machine, with the commands from the
//! manual's page for new users. The packages and the container image must be reproducible, and the image's program must
//! run in its root file system. `tools/release-check.sh --only packages` does the same on fresh systems.

mod world;

use std::path::{Path, PathBuf};
use std::process::Command;

use weir_testing::successful_output;
use world::{World, privileged};

const CRATE: &str = env!("CARGO_MANIFEST_DIR");

/// Builds the packages with this version number.
fn build(packages: &Path, version: &str) {
    let tool = Path::new(CRATE).join("../../tools/build-deb.sh");
    successful_output(
        Command::new(tool)
            .arg(env!("CARGO_BIN_EXE_weir"))
            .arg(packages)
            .env("WEIR_PACKAGE_VERSION", version)
            .env("DPKG_DEB_COMPRESSOR_TYPE", "none"),
    );
}

/// Returns the sorted files of a directory whose names end with `suffix`.
fn files_with_suffix(directory: &Path, suffix: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("read the directory");
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("read a directory entry").path())
        .collect();
    files.retain(|path| path.to_string_lossy().ends_with(suffix));
    files.sort_unstable();
    files
}

#[test]
fn packages_install_upgrade_and_purge_cleanly() {
    if !privileged() {
        return;
    }
    // The world provides a directory and a namespace, which are removed at the end with all processes in the namespace.
    let world = World::new(0);
    let (packages, repository) = (world.path("packages"), world.path("repository"));
    let crate_directory = Path::new(CRATE);
    for version in ["0.1.0", "0.2.0"] {
        build(&packages, version);
    }
    assert_lintian_passes(&packages);
    assert_files_are_well_formed(&files_with_suffix(&packages, ".deb"));
    successful_output(
        Command::new(crate_directory.join("../../tools/build-repository.sh"))
            .arg(&repository)
            .args(
                files_with_suffix(&packages, ".deb")
                    .iter()
                    .filter(|path| !path.to_string_lossy().contains("dbgsym")),
            ),
    );
    let view = world.path("view");
    std::fs::create_dir(&view).expect("create a directory");
    let message = successful_output(
        world
            .command("director", "unshare")
            .args(["--mount", "--propagation", "private", "sh"])
            .arg(crate_directory.join("tests/package.sh"))
            .arg(&repository)
            .arg(&view)
            .arg("/")
            .arg(crate_directory.join("../../docs/manual/first-request.md")),
    );
    println!("{message}");
    let lines: Vec<&str> = message.lines().collect();
    assert!(
        matches!(
            lines[..],
            [
                steps, "servers: both", "sample: 644 600", "documented", "without documents", "configured again",
        "rotated", ipvsadm, upgrade, "responses: some, others: 0", "version: 0.2.0", "kept: 2", "removed",
                "cleaned", "purged"
            ]
                if has_few_steps(steps)
                    && ipvsadm.starts_with("named: ipvsadm v1.31")
                    && upgrade.ends_with("has taken over")
        ),
        "{message}"
    );
    for line in lines_required_by_release_check() {
        assert!(lines.contains(&&*line), "{line}: {message}");
    }
}

/// Returns the lines that the release check requires from the script that the test above also runs.
fn lines_required_by_release_check() -> Vec<String> {
    let path = Path::new(CRATE).join("../../tools/release-check/packages.sh");
    let check = std::fs::read_to_string(path).expect("read the script");
    let (_, rest) = check.split_once("for line in ").expect("find the list");
    let (list, _) = rest.split_once("; do").expect("find the end of the list");
    let mut lines = Vec::new();
    // Every other part was quoted.
    for (index, part) in list.split('\'').enumerate() {
        if index % 2 == 1 {
            lines.push(part.to_owned());
        } else {
            let words = part.split_whitespace().filter(|word| *word != "\\");
            lines.extend(words.map(str::to_owned));
        }
    }
    assert!(lines.len() >= 12, "{lines:?}");
    lines
}

/// Unlike the comparison with the script's output, this test does not need root.
#[test]
fn release_check_requires_lines_that_the_script_prints() {
    let path = Path::new(CRATE).join("tests/package.sh");
    let script = std::fs::read_to_string(path).expect("read the script");
    for line in lines_required_by_release_check() {
        let label = line.split_once(": ").map_or(&*line, |(label, _)| label);
        let is_printed = [": ", "\""]
            .iter()
            .any(|end| script.contains(&format!("echo \"{label}{end}")));
        assert!(is_printed, "package.sh does not print {line:?}");
    }
}

/// Returns whether a line `steps: N, …` reports that a new user needs at most twelve steps.
fn has_few_steps(line: &str) -> bool {
    let count = line
        .strip_prefix("steps: ")
        .and_then(|rest| rest.split_once(','))
        .and_then(|(count, _)| count.parse::<u32>().ok());
    count.is_some_and(|count| (1..=12).contains(&count))
}

/// Asserts that lintian reports nothing, except that the test's packages are not compressed.
fn assert_lintian_passes(packages: &Path) {
    let message = successful_output(
        Command::new("lintian")
            .args([
                "--allow-root",
                "--fail-on",
                "error,warning",
                "--suppress-tags",
            ])
            .arg("uses-no-compression-for-control-tarball,uses-no-compression-for-data-tarball")
            .args(
                files_with_suffix(packages, ".deb")
                    .iter()
                    .filter(|path| path.to_string_lossy().contains("_0.1.0_")),
            ),
    );
    assert_eq!(
        message
            .lines()
            .filter(|line| !line.starts_with('N'))
            .count(),
        0,
        "{message}"
    );
}

/// Path prefixes of programs.
const PROGRAMS: [&str; 3] = ["./usr/bin/weir", "./usr/sbin/ipvsadm-", "./usr/lib/ocf/"];

/// Asserts that the files are owned by root and writable only by root, that only programs are executable, and that the
/// packages contain the licenses.
fn assert_files_are_well_formed(packages: &[PathBuf]) {
    let mut contents = String::new();
    for package in packages {
        contents += &successful_output(Command::new("dpkg-deb").arg("--contents").arg(package));
    }
    for line in contents.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (mode, owner, path) = (fields[0], fields[1], fields[5]);
        let expected = match mode.as_bytes()[0] {
            b'd' => "drwxr-xr-x",
            b'l' => "lrwxrwxrwx",
            _ if PROGRAMS.iter().any(|start| path.starts_with(start)) => "-rwxr-xr-x",
            _ => "-rw-r--r--",
        };
        assert_eq!((mode, owner), (expected, "root/root"), "{line}");
    }
    let has_document = |name: &str| contents.contains(&format!(" ./usr/share/doc/weir/{name}\n"));
    assert!(
        has_document("THIRD-PARTY.gz")
            && has_document("CHANGELOG.md.gz")
            && has_document("copyright")
    );
}

/// The license file lists all crates in the bill of materials and contains the license texts of all but at most three.
#[test]
fn licenses_cover_bill_of_materials() {
    let tools = Path::new(CRATE).join("../../tools");
    let licenses = successful_output(&mut Command::new(tools.join("build-licenses.py")));
    let sbom = successful_output(&mut Command::new(tools.join("build-sbom.py")));
    let sbom: serde_json::Value = serde_json::from_str(&sbom).expect("parse output");
    let components = sbom["components"]
        .as_array()
        .expect("components is not an array");
    let crates: Vec<String> = components
        .iter()
        .filter(|it| it["hashes"].is_array())
        .map(|it| {
            format!(
                "{} {}",
                it["name"].as_str().unwrap(),
                it["version"].as_str().unwrap()
            )
        })
        .collect();
    assert!(
        crates.iter().any(|it| it.starts_with("rustls ")),
        "{crates:?}"
    );
    let (list, texts) = licenses
        .split_once(&"-".repeat(100))
        .expect("no end of the list");
    for crate_ in &crates {
        assert!(list.contains(&format!("\n{crate_}: ")), "{crate_}");
    }
    let missing = crates
        .iter()
        .filter(|it| !texts.contains(it.as_str()))
        .count();
    assert!(
        missing <= 3,
        "{missing} of {} crates have no text",
        crates.len()
    );
    // C code that the build compiles into the program.
    assert!(texts.contains("Meta Platforms") && texts.contains("Google"));
}

#[test]
fn packages_and_image_are_reproducible() {
    let root = std::env::temp_dir().join(format!("weir-packages-{}", std::process::id()));
    let tool = Path::new(CRATE).join("../../tools/build-image.sh");
    let rpm = Path::new(CRATE).join("../../tools/build-rpm.sh");
    for run in ["one", "two"] {
        let directory = root.join(run);
        build(&directory, "0.1.0");
        for tool in [&tool, &rpm] {
            successful_output(
                Command::new(tool)
                    .arg(env!("CARGO_BIN_EXE_weir"))
                    .arg(&directory),
            );
        }
    }
    for suffix in [".deb", ".tar", ".rpm"] {
        let (first, second) = (
            files_with_suffix(&root.join("one"), suffix),
            files_with_suffix(&root.join("two"), suffix),
        );
        assert_eq!(first.len(), second.len());
        assert!(!first.is_empty(), "{suffix}");
        for (first, second) in first.iter().zip(&second) {
            successful_output(Command::new("cmp").arg(first).arg(second));
        }
    }
    let image = &files_with_suffix(&root.join("one"), ".tar")[0];
    if privileged() {
        run_image(image);
    }
    std::fs::remove_dir_all(&root).expect("remove the directory");
}

/// Runs the compose file's proxy and a director in the image's root file system with a container's capabilities.
fn run_image(image: &Path) {
    let tool = Path::new(CRATE).join("../../tools/release-check/program.py");
    let message = successful_output(Command::new(tool).arg("image").arg(image));
    println!("{message}");
    let passed: Vec<&str> = message
        .lines()
        .filter_map(|line| line.strip_prefix("ok image"))
        .collect();
    assert_eq!(passed.len(), message.lines().count(), "{message}");
    for check in [", proxy: 1000 requests", ", direct: 1000 requests"] {
        assert!(
            passed.iter().any(|line| line.starts_with(check)),
            "{message}"
        );
    }
}
