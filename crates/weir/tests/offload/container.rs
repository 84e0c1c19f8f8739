//! Tests clients in a container behind a host that routes their packets and optionally translates their addresses.
//!
//! The host forwards unsegmented packets with partial checksums.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::world::{Family, World, privileged, sh};
use super::{
    Offloads, ROUTED_NAT, assert_transfer, config, methods, prepare_servers, set_mtu, set_offloads,
    size_and_mtus, transfer_without_weir,
};

const CONTAINER: &str = "container";

fn container_address(family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::new(172, 30, 0, 2).into(),
        Family::V6 => Ipv6Addr::new(0xfd72, 0, 0, 0, 0, 0, 0, 2).into(),
    }
}

/// Adds a namespace behind the client's host. The host routes its packets and optionally translates their addresses.
fn add_container(world: &mut World, mtu: usize, masquerade: bool) {
    let (container, host) = (world.namespace(CONTAINER), world.namespace("client"));
    sh(&format!(
        "ip netns add {container}; ip -n {container} link set lo up
         ip -n {host} link add c0 mtu {mtu} type veth peer name eth0 mtu {mtu} netns {container}
         ip -n {host} link set c0 up; ip -n {container} link set eth0 up
         ip -n {host} addr add 172.30.0.1/24 dev c0; ip -n {container} addr add 172.30.0.2/24 dev eth0
         ip -n {host} addr add fd72::1/64 dev c0 nodad; ip -n {container} addr add fd72::2/64 dev eth0 nodad
         ip -n {container} route add default via 172.30.0.1; ip -n {container} -6 route add default via fd72::1
         ip netns exec {host} sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1"
    ));
    world.register_namespace(CONTAINER);
    if masquerade {
        sh(&format!(
            "ip netns exec {host} nft 'table inet container {{ chain out {{ type nat hook postrouting priority srcnat; \
             oifname eth0 masquerade; }}; }}'"
        ));
        return;
    }
    for neighbor in ["director", "server0"] {
        let neighbor = world.namespace(neighbor);
        let (v4, v6) = (Family::V4.client(), Family::V6.client());
        sh(&format!(
            "ip -n {neighbor} route add 172.30.0.0/24 via {v4}; ip -n {neighbor} -6 route add fd72::/64 via {v6}"
        ));
    }
}

fn transfer_from_container(masquerade: bool) {
    if !privileged() {
        return;
    }
    let (_, mtus) = size_and_mtus();
    // Replies to the container's own address do not return through the director.
    let methods = methods().iter();
    for method in methods.filter(|method| masquerade || **method != ROUTED_NAT) {
        for (family, mtu) in [Family::V4, Family::V6]
            .into_iter()
            .flat_map(|family| mtus.iter().map(move |mtu| (family, *mtu)))
        {
            let mut world = World::new(1);
            set_offloads(&world, 1, Offloads::Defaults);
            set_mtu(&world, 1, mtu);
            add_container(&mut world, mtu, masquerade);
            let client = if masquerade {
                family.client()
            } else {
                container_address(family)
            };
            let baseline = transfer_without_weir(&world, family, CONTAINER, client);
            prepare_servers(&world, family, method);
            world.start_daemon(&config(family, "", method));
            assert_transfer(&world, family, method, CONTAINER, baseline);
        }
    }
}

#[test]
fn bulk_transfer_works_from_container_behind_router_soak() {
    transfer_from_container(false);
}

#[test]
fn bulk_transfer_works_from_container_behind_nat_soak() {
    transfer_from_container(true);
}
