//! Tests devices without native XDP, with `attach = "xdp"`.
//!
//! A generic XDP program runs after GRO, which is therefore disabled on the lower device, and restored afterwards.

use crate::director::Director;
use weir_engine::clean;
use weir_model::{Attach, Forward, SchedulerKind, Snat};

use super::topology::{Topology, is_root};
use super::{BOTH, PORT, VIP, desired};

/// Moves the director's address to a new device on top of d0. `commands` creates the device.
fn move_address_to_upper_device(topology: &Topology, commands: &str) {
    topology.director_feature("d0", "rx-gro", true);
    // Only the device with the address may reply to ARP requests for it.
    topology.director_sysctl("net/ipv4/conf/all/arp_ignore", "1");
    topology.director_ip(&format!(
        "addr del 10.8.0.2/24 dev d0
         {commands}
         link set top0 up
         addr add 10.8.0.2/24 dev top0"
    ));
}

fn check_bulk_transfer(name: &str, commands: &str) {
    let topology = Topology::new(name);
    topology.complete_checksums_on_wire();
    move_address_to_upper_device(&topology, commands);
    topology.serve_bulk("0.0.0.0", PORT);
    topology.run(async |paths| {
        let gro = ["d0", "top0"].map(|device| topology.director_has_gro(device));
        let mut configuration = desired(Forward::Nat, SchedulerKind::Rr, &BOTH);
        configuration.services[0].snat = Some(Snat::default());
        configuration.node.attach = Attach::Xdp;
        let mut engine = Director::open(paths, &configuration).await.unwrap();
        let interfaces = engine.snapshot().unwrap().interfaces;
        assert_eq!(interfaces.len(), 1);
        assert_eq!(interfaces[0].mode, "generic");
        assert!(
            !topology.director_has_gro("d0"),
            "GRO is still enabled on the lower device"
        );
        topology.download(VIP, PORT);
        topology.download(VIP, PORT);

        configuration.node.interfaces = Some(vec!["d0".to_owned()]);
        engine.apply(&configuration).await.unwrap();
        let gro_after = ["d0", "top0"].map(|device| topology.director_has_gro(device));
        assert_eq!(
            gro_after, gro,
            "GRO was not restored after the program was detached from the interface"
        );

        configuration.node.interfaces = None;
        engine.apply(&configuration).await.unwrap();
        assert!(!topology.director_has_gro("d0"));
        drop(engine);
        clean(paths).await.unwrap();
        let gro_after = ["d0", "top0"].map(|device| topology.director_has_gro(device));
        assert_eq!(gro_after, gro);
    });
}

#[test]
fn bulk_transfer_works_over_a_bridge() {
    if is_root() {
        check_bulk_transfer(
            "bridge",
            "link add top0 type bridge\nlink set d0 master top0",
        );
    }
}

#[test]
fn bulk_transfer_works_over_a_macvlan() {
    if is_root() {
        check_bulk_transfer("macvlan", "link add top0 link d0 type macvlan mode bridge");
    }
}
