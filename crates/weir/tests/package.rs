//! The Debian packages, installed for real in a copy-on-write view of this machine: what they bring, an installation
//! over a running daemon, removal.

mod world;

use std::path::Path;
use std::process::Command;

use world::{World, privileged};

const ROOM: &str = env!("CARGO_MANIFEST_DIR");

fn printed(command: &mut Command) -> String {
    let output = command.output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

#[test]
fn packages_install_upgrade_and_purge_cleanly() {
    if !privileged() {
        return;
    }
    // For the directory, and the namespace's end with everything in it.
    let world = World::new(0);
    let packages = world.path("packages");
    let room = Path::new(ROOM);
    printed(
        Command::new(room.join("../../tools/build-deb.sh"))
            .arg(env!("CARGO_BIN_EXE_weir"))
            .arg(&packages)
            .env("DPKG_DEB_COMPRESSOR_TYPE", "none"),
    );
    let view = world.path("view");
    std::fs::create_dir(&view).expect("made");
    let said = printed(
        world
            .command("director", "unshare")
            .args(["--mount", "--propagation", "private", "sh"])
            .arg(room.join("tests/package.sh"))
            .arg(&packages)
            .arg(&view),
    );
    let lines: Vec<&str> = said.lines().collect();
    assert!(
        matches!(
            lines[..],
            [named, "checked", charge, "kept: 2", "removed", "cleaned"]
                if named.starts_with("named: ipvsadm v1.31") && charge.ends_with("has taken over")
        ),
        "{said}"
    );
}
