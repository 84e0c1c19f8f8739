//! The Debian packages, installed by apt from a signed repository in a copy-on-write view of this machine, by the
//! commands of the manual's page for newcomers: what they bring, the first request, an upgrade under traffic, removal
//! and purge. Packages and the container image are the same each time, and the image's program runs in its root file
//! system. `tools/release-check.sh --only packages` does the same in fresh systems.

mod world;

use std::path::{Path, PathBuf};
use std::process::Command;

use weir_testing::successful_output;
use world::{World, privileged};

const ROOM: &str = env!("CARGO_MANIFEST_DIR");

/// Builds the packages of a version.
fn build(packages: &Path, version: &str) {
    let tool = Path::new(ROOM).join("../../tools/build-deb.sh");
    successful_output(
        Command::new(tool)
            .arg(env!("CARGO_BIN_EXE_weir"))
            .arg(packages)
            .env("WEIR_PACKAGE_VERSION", version)
            .env("DPKG_DEB_COMPRESSOR_TYPE", "none"),
    );
}

/// Files of a directory that end in `end`, in order.
fn files(directory: &Path, end: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("a directory");
    let mut all: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    all.retain(|path| path.to_string_lossy().ends_with(end));
    all.sort_unstable();
    all
}

#[test]
fn packages_install_upgrade_and_purge_cleanly() {
    if !privileged() {
        return;
    }
    // For the directory, and the namespace's end with everything in it.
    let world = World::new(0);
    let (packages, repository) = (world.path("packages"), world.path("repository"));
    let room = Path::new(ROOM);
    for version in ["0.1.0", "0.2.0"] {
        build(&packages, version);
    }
    lintian(&packages);
    check_files(&files(&packages, ".deb"));
    successful_output(
        Command::new(room.join("../../tools/build-repository.sh"))
            .arg(&repository)
            .args(
                files(&packages, ".deb")
                    .iter()
                    .filter(|path| !path.to_string_lossy().contains("dbgsym")),
            ),
    );
    let view = world.path("view");
    std::fs::create_dir(&view).expect("made");
    let message = successful_output(
        world
            .command("director", "unshare")
            .args(["--mount", "--propagation", "private", "sh"])
            .arg(room.join("tests/package.sh"))
            .arg(&repository)
            .arg(&view)
            .arg("/")
            .arg(room.join("../../docs/manual/first-request.md")),
    );
    println!("{message}");
    let lines: Vec<&str> = message.lines().collect();
    assert!(
        matches!(
            lines[..],
            [
                steps, "servers: both", "sample: 644 600", "documented", "without documents", "configured again",
                "rotated", named, charge, "answers: some, others: 0", "version: 0.2.0", "kept: 2", "removed",
                "cleaned", "purged"
            ]
                if few(steps)
                    && named.starts_with("named: ipvsadm v1.31")
                    && charge.ends_with("has taken over")
        ),
        "{message}"
    );
}

/// Whether a newcomer's path had at most twelve steps, as reported by its line `steps: N, …`.
fn few(line: &str) -> bool {
    let count = line
        .strip_prefix("steps: ")
        .and_then(|rest| rest.split_once(','))
        .and_then(|(count, _)| count.parse::<u32>().ok());
    count.is_some_and(|count| (1..=12).contains(&count))
}

/// No tag except that tests leave the packages uncompressed.
fn lintian(packages: &Path) {
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
                files(packages, ".deb")
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

/// Files belong to root, only root may write them, and only programs are executable. Licences are part of the package.
fn check_files(packages: &[PathBuf]) {
    let mut all = String::new();
    for package in packages {
        all += &successful_output(Command::new("dpkg-deb").arg("--contents").arg(package));
    }
    for line in all.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (mode, owner, path) = (fields[0], fields[1], fields[5]);
        let expected = match mode.as_bytes()[0] {
            b'd' => "drwxr-xr-x",
            b'l' => "lrwxrwxrwx",
            _ if path == "./usr/bin/weir" || path.starts_with("./usr/lib/ocf/") => "-rwxr-xr-x",
            _ => "-rw-r--r--",
        };
        assert_eq!((mode, owner), (expected, "root/root"), "{line}");
    }
    let document = |name: &str| all.contains(&format!(" ./usr/share/doc/weir/{name}\n"));
    assert!(document("THIRD-PARTY.gz") && document("CHANGELOG.md.gz") && document("copyright"));
}

/// The licences are those of all crates in the bill of materials, and have the text of each but a few.
#[test]
fn licences_and_bill_of_materials_are_complete() {
    let tools = Path::new(ROOM).join("../../tools");
    let licences = successful_output(&mut Command::new(tools.join("build-licenses.py")));
    let bill = successful_output(&mut Command::new(tools.join("build-sbom.py")));
    let bill: serde_json::Value = serde_json::from_str(&bill).expect("JSON");
    let components = bill["components"].as_array().expect("components");
    let bundled: Vec<String> = components
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
        bundled.iter().any(|it| it.starts_with("rustls ")),
        "{bundled:?}"
    );
    let (list, texts) = licences
        .split_once(&"-".repeat(100))
        .expect("the list's end");
    for crate_ in &bundled {
        assert!(list.contains(&format!("\n{crate_}: ")), "{crate_}");
    }
    let without = bundled
        .iter()
        .filter(|it| !texts.contains(it.as_str()))
        .count();
    assert!(
        without <= 3,
        "{without} of {} crates have no text",
        bundled.len()
    );
    // C code that is built into the program.
    assert!(texts.contains("Meta Platforms") && texts.contains("Google"));
}

#[test]
fn packages_and_image_are_reproducible() {
    let world = std::env::temp_dir().join(format!("weir-packages-{}", std::process::id()));
    let tool = Path::new(ROOM).join("../../tools/build-image.sh");
    let rpm = Path::new(ROOM).join("../../tools/build-rpm.sh");
    for run in ["one", "two"] {
        let directory = world.join(run);
        build(&directory, "0.1.0");
        for tool in [&tool, &rpm] {
            successful_output(
                Command::new(tool)
                    .arg(env!("CARGO_BIN_EXE_weir"))
                    .arg(&directory),
            );
        }
    }
    for end in [".deb", ".tar", ".rpm"] {
        let (one, two) = (
            files(&world.join("one"), end),
            files(&world.join("two"), end),
        );
        assert_eq!(one.len(), two.len());
        assert!(!one.is_empty(), "{end}");
        for (one, two) in one.iter().zip(&two) {
            successful_output(Command::new("cmp").arg(one).arg(two));
        }
    }
    let image = &files(&world.join("one"), ".tar")[0];
    if privileged() {
        run_image(image);
    }
    std::fs::remove_dir_all(&world).expect("removed");
}

/// The root file system of an image, by the capabilities of a container: the compose file's proxy, and a director.
fn run_image(image: &Path) {
    let tool = Path::new(ROOM).join("../../tools/release-check/program.py");
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
