//! Tests a director whose address is on a device without native XDP, on top of a device with default offloads.
//!
//! The default mode there is tc.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::world::load::{Load, assert_nothing_lost};
use super::world::{Family, World, privileged};
use super::{
    Offloads, PORT, assert_transfer, config, methods, prepare_servers, set_mtu, set_offloads,
    size_and_mtus, transfer_without_weir,
};

fn config_on(device: &str, family: Family, node: &str, method: &str) -> String {
    config(family, node, method).replace("\"eth0\"", &format!("\"{device}\""))
}

/// Tests bulk transfers in the default mode, in both families, with some forwarding methods, or with all of them in
/// `make soak`.
fn transfer_on(device: &str, kind: &str, move_director: fn(&World)) {
    if !privileged() {
        return;
    }
    let (_, mtus) = size_and_mtus();
    for method in methods() {
        for (family, mtu) in [Family::V4, Family::V6]
            .into_iter()
            .flat_map(|family| mtus.iter().map(move |mtu| (family, *mtu)))
        {
            let mut world = World::new(1);
            set_offloads(&world, 1, Offloads::Defaults);
            set_mtu(&world, 1, mtu);
            move_director(&world);
            let baseline = transfer_without_weir(&world, family, "client", family.client());
            prepare_servers(&world, family, method);
            world.start_daemon(&config_on(device, family, "", method));
            assert_transfer(&world, family, method, "client", baseline);
            let status = world.status();
            assert_eq!(status["xdp"][0]["mode"], "tc", "{status:#}");
            let reason = format!("{kind}: packets may carry partial checksums");
            assert_eq!(status["xdp"][0]["reason"], reason, "{status:#}");
        }
    }
}

#[test]
fn bulk_transfer_works_with_director_on_bridge_soak() {
    transfer_on("br0", "bridge", World::move_director_to_bridge);
}

#[test]
fn bulk_transfer_works_with_director_on_macvlan_soak() {
    transfer_on("mv0", "macvlan", World::move_director_to_macvlan);
}

fn director_output(world: &World, line: &str) -> String {
    String::from_utf8_lossy(&world.output("director", line).stdout).into_owned()
}

/// Returns the pins of generic XDP attachments.
fn generic_xdp_pins(world: &World) -> Vec<PathBuf> {
    let mut pins = Vec::new();
    let mut directories = vec![world.pin_dir("director")];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.path().is_dir() {
                directories.push(entry.path());
            } else {
                pins.push(entry.path());
            }
        }
    }
    let is_generic = |path: &PathBuf| path.to_string_lossy().contains("xdpgeneric");
    pins.retain(is_generic);
    pins
}

fn has_gro(world: &World) -> bool {
    director_output(world, "ethtool -k eth0").contains("generic-receive-offload: on")
}

/// A restart under load replaces generic XDP on a bridge, which was the default of earlier versions, with tc and
/// removes everything that belonged to generic XDP.
#[test]
fn change_from_generic_xdp_to_tc_breaks_no_connection() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    world.start_nginx(1024);
    world.move_director_to_bridge();
    world.output("director", "ethtool -K eth0 gro on");
    let text = |attach: &str| {
        let node = format!("attach = \"{attach}\"\n");
        config_on("br0", Family::V4, &node, "nat").replace(&format!(":{PORT}\""), ":80\"")
    };
    let pid = world.start_daemon(&text("xdp"));
    assert_eq!(world.status()["xdp"][0]["mode"], "generic");
    assert!(!has_gro(&world) && director_output(&world, "ip link show br0").contains("xdpgeneric"));
    assert!(!generic_xdp_pins(&world).is_empty());
    let load = Load::start(&world, SocketAddr::new(Family::V4.vip(), 80));
    load.wait_for_more(150);

    let assert_at_tc = |world: &World| {
        let status = world.status();
        assert_eq!(status["xdp"][0]["mode"], "tc", "{status:#}");
        assert_eq!(status["xdp"].as_array().map(Vec::len), Some(1));
        assert!(!director_output(world, "ip link show br0").contains("xdp"));
        assert!(
            has_gro(world),
            "GRO must be enabled again when the generic program is removed"
        );
    };
    world.kill_keeper(pid);
    let pid = world.start_daemon(&text("auto"));
    assert_at_tc(&world);
    assert!(
        generic_xdp_pins(&world).is_empty(),
        "{:?}",
        generic_xdp_pins(&world)
    );
    load.wait_for_more(150);

    world.reload(&text("xdp"));
    assert_eq!(world.status()["xdp"][0]["mode"], "generic");
    load.wait_for_more(150);
    world.reload(&text("auto"));
    assert_at_tc(&world);
    load.wait_for_more(150);

    assert_nothing_lost(&world, load.stop());

    world.kill_keeper(pid);
    world.run_weir(&["clean"]);
    assert!(!world.pin_dir("director").exists());
    assert!(!director_output(&world, "ip link show br0").contains("xdp"));
}
