//! Tests the change to or from a different build: incompatible maps, counts that are copied later, and tc programs.

mod support;

use std::os::fd::AsFd;

use support::{SYN, Sandbox, fill, privileged, small_sizes, tcp, veth};
use weir_dataplane::{
    Dataplane, Error, Mode, OpenOptions, OpenOutcome, Sizes, TestInput, XdpChoice, attach_xdp,
    open_readonly, pinned_sizes,
};

fn send(dataplane: &Dataplane, port: u16) {
    let packet = tcp(1, port, SYN);
    let input = TestInput::xdp(&packet);
    dataplane.test_run("weir_xdp", &input).unwrap();
}

/// Opens a data plane, activates it, and attaches it to a device.
fn open_running(sandbox: &Sandbox) -> Dataplane {
    let (mut first, _) = Dataplane::open(&sandbox.options()).unwrap();
    fill(&first);
    first.activate().unwrap();
    let ifindex = veth("va", "vb");
    first.attach(ifindex, XdpChoice::Best).unwrap();
    first
}

/// Returns options with sizes that require new maps.
fn larger_options(sandbox: &Sandbox) -> OpenOptions {
    OpenOptions {
        sizes: Sizes {
            dests: 128,
            elements: 8192,
            ..small_sizes()
        },
        ..sandbox.options()
    }
}

/// Replaces the pinned address filter with a map of a different size, such as another build might create.
fn replace_filter_with_other_size(sandbox: &Sandbox) {
    let pin = sandbox.pin_dir().join("state-1/weir_filters");
    std::fs::remove_file(&pin).unwrap();
    let output = std::process::Command::new("bpftool")
        .args(["map", "create"])
        .arg(&pin)
        .args(["type", "array", "key", "4", "value", "16384"])
        .args(["entries", "1", "name", "weir_filters", "flags", "1024"])
        .output()
        .expect("run bpftool");
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn counts_are_kept_if_another_map_is_incompatible() {
    if !privileged() {
        return;
    }
    let sandbox = Sandbox::new();
    let first = open_running(&sandbox);
    send(&first, 1000);
    replace_filter_with_other_size(&sandbox);
    assert!(matches!(
        open_readonly(first.pins()),
        Err(Error::MapMismatch { .. })
    ));
    assert_eq!(pinned_sizes(first.pins()).unwrap(), Some(small_sizes()));

    let (mut second, opened) = Dataplane::open(&larger_options(&sandbox)).unwrap();
    assert_eq!(opened, OpenOutcome::Replaced);
    send(&first, 1001);
    second.activate().unwrap();
    let live = second.maps().live(1).unwrap();
    assert_eq!((live.active + live.inactive, live.total), (2, 2));
    assert_eq!(second.maps().traffic(1).unwrap().packets_in, 2);
    assert_eq!(second.maps().services.get(1).unwrap().generation, 1);
}

/// Tests a build that cannot use the pinned maps and therefore starts with all counts at zero. Removing the pins
/// simulates this.
#[test]
fn counts_are_transferred_to_a_build_that_could_not_copy_them() {
    if !privileged() {
        return;
    }
    let sandbox = Sandbox::new();
    let first = open_running(&sandbox);
    (1000..1010).for_each(|port| send(&first, port));
    assert!(
        !first.transfer_counts().unwrap(),
        "this data plane is the current one"
    );
    for map in ["weir_live", "weir_traffic"] {
        std::fs::remove_file(sandbox.pin_dir().join("state-1").join(map)).unwrap();
    }
    let (mut second, opened) = Dataplane::open(&larger_options(&sandbox)).unwrap();
    assert_eq!(opened, OpenOutcome::Replaced);
    assert!(first.is_current().unwrap());
    second.activate().unwrap();
    assert!(!first.is_current().unwrap());
    send(&second, 1010);
    let counts = |plane: &Dataplane| {
        let live = plane.maps().live(1).unwrap();
        let packets = plane.maps().traffic(1).unwrap().packets_in;
        (live.active + live.inactive, live.total, live.syns, packets)
    };
    assert_eq!(counts(&second), (1, 1, 1, 1));
    assert!(first.transfer_counts().unwrap());
    assert_eq!(counts(&second), (11, 11, 11, 11));
    assert!(
        !first.transfer_counts().unwrap(),
        "counts must be transferred only once"
    );
    assert_eq!(counts(&second), (11, 11, 11, 11));
}

/// Tests a build without the packet path at tc: it attaches XDP, and leaves the tc program attached.
#[test]
fn tc_path_is_detached_if_another_build_took_over_with_xdp() {
    if !privileged() {
        return;
    }
    let sandbox = Sandbox::new();
    let (mut first, _) = Dataplane::open(&sandbox.options()).unwrap();
    first.activate().unwrap();
    let ifindex = veth("va", "vb");
    assert_eq!(first.attach_at_tc(ifindex).unwrap(), Mode::Tc);
    assert_eq!(
        first.detach_tc().unwrap(),
        0,
        "the packet path is attached only once"
    );
    let pin = sandbox.pin_dir().join("prog-1/weir_xdp");
    let program = aya::programs::ProgramInfo::from_pin(pin).unwrap();
    let program = program.fd().unwrap();
    attach_xdp(first.pins(), program.as_fd(), ifindex, XdpChoice::Native).unwrap();
    assert_eq!(first.detach_tc().unwrap(), 1);
    let modes: Vec<_> = first.attachments().unwrap();
    assert_eq!(modes.len(), 1, "{modes:?}");
    assert_eq!(Mode::from_hook(modes[0].hook), Some(Mode::Native));
}
