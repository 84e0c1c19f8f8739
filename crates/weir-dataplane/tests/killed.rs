//! Tests that the next daemon adopts the state of a daemon that was killed at an arbitrary moment.
//!
//! The test runs itself as a child that opens, activates, attaches and cleans up repeatedly. It kills the child and
//! opens the state that remains. The moments depend on the clock, so each run covers only some of them, but adoption
//! must succeed at every moment.

mod support;

use std::process::Command;
use std::time::Duration;

use support::{Sandbox, fill, privileged, small_sizes, veth};
use weir_dataplane::{Dataplane, OpenOptions, OpenOutcome, Sizes, XdpChoice, clean};

const CHILD: &str = "WEIR_TEST_KILLED_CHILD";
const DEVICE: &str = "WEIR_TEST_KILLED_DEVICE";

fn options(pin_dir: std::path::PathBuf, round: u32) -> OpenOptions {
    let sizes = Sizes {
        dests: 64 + round % 3,
        flows: 7 * (16 + round % 2),
        ..small_sizes()
    };
    OpenOptions {
        sizes,
        ..OpenOptions::new(pin_dir)
    }
}

/// Runs in the child process until it is killed.
#[test]
fn child() {
    let Some(pin_dir) = std::env::var_os(CHILD) else {
        return;
    };
    let device = std::env::var(DEVICE).unwrap().parse().unwrap();
    for round in 0.. {
        let (mut dataplane, _) = Dataplane::open(&options(pin_dir.clone().into(), round)).unwrap();
        activate_and_attach(&mut dataplane, device);
        if round % 4 == 3 {
            clean(dataplane.pins()).unwrap();
        }
    }
}

#[test]
fn state_of_killed_daemon_is_adopted() {
    if !privileged() || std::env::var_os(CHILD).is_some() {
        return;
    }
    let sandbox = Sandbox::new();
    let device = veth("va", "vb");
    // Mounts the bpffs, which the child shares.
    let (dataplane, _) = Dataplane::open(&options(sandbox.pin_dir(), 0)).unwrap();
    drop(dataplane);
    for round in 0..40u32 {
        // In a chroot, this program's path is wrong after the mount namespace has changed.
        let mut child = Command::new("/proc/self/exe")
            .args(["--exact", "child", "--nocapture"])
            .env(CHILD, sandbox.pin_dir())
            .env(DEVICE, device.to_string())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(20 + u64::from(round * 7 % 97)));
        assert_eq!(
            child.try_wait().unwrap(),
            None,
            "the child failed before it was killed in round {round}"
        );
        child.kill().unwrap();
        child.wait().unwrap();

        // If a migration delays a change of size, the size takes effect when the data plane is next opened.
        let mut openings = 0;
        let dataplane = loop {
            let (mut dataplane, opened) =
                Dataplane::open(&options(sandbox.pin_dir(), round)).unwrap();
            activate_and_attach(&mut dataplane, device);
            if opened == OpenOutcome::Adopted {
                break dataplane;
            }
            openings += 1;
            assert!(openings < 3, "round {round}: still {opened:?}");
        };
        let attachments = dataplane.attachments().unwrap();
        assert_eq!(attachments.len(), 1, "round {round}: {attachments:?}");
        let directories = dataplane.pins().list().unwrap();
        let directories = directories
            .iter()
            .filter(|pin| pin.kind == weir_dataplane::PinKind::Directory)
            .count();
        assert_eq!(
            directories, 3,
            "round {round}: state, flows and programs of one generation"
        );
    }
}

fn activate_and_attach(dataplane: &mut Dataplane, device: u32) {
    fill(dataplane);
    dataplane.activate().unwrap();
    dataplane.migrate_flows().unwrap();
    dataplane.attach(device, XdpChoice::Best).unwrap();
}
