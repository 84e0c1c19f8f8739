//! Tests generic XDP with `attach = "xdp"`: the director's address is on a bridge, whose driver has no XDP support.
//! Packets that the kernel has merged would be too large to send, so Weir disables GRO on the bridge and on its ports,
//! and `clean` enables it again.

mod world;

use world::{Family, World, bracketed, privileged};

const MIB: usize = 1 << 20;

/// Returns whether the kernel merges the packets that the director receives on `device` (GRO).
fn has_gro(world: &World, device: &str) -> bool {
    let output = world.output("director", &format!("ethtool -k {device}"));
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("generic-receive-offload: "));
    line.expect("ethtool reports generic-receive-offload")
        .starts_with("on")
}

fn assert_large_download(family: Family, forward: &str, extra: &str) {
    if !privileged() {
        return;
    }
    let mut world = World::new(2);
    world.start_nginx(50 * MIB);
    world.move_director_to_bridge();
    world.output("director", "ethtool -K eth0 gro on");
    if forward != "nat" {
        world.prepare_servers(&["--forward", forward, "--vip", &family.vip().to_string()]);
    }
    let before = (has_gro(&world, "br0"), has_gro(&world, "eth0"));
    assert!(before.1, "GRO must be enabled before the test");
    let vip = bracketed(family.vip());
    let pid = world.start_daemon(&format!(
        "[node]\ninterfaces = [\"br0\"]\nattach = \"xdp\"\n[pool.web]\nscheduler = \"rr\"\nservers = [\"{}\", \"{}\"]\n\
         [service.web]\nlisten = [\"{vip}:80\"]\nforward = \"{forward}\"\n{extra}pool = \"web\"\n",
        family.server(0),
        family.server(1)
    ));
    assert_eq!(world.status()["xdp"][0]["mode"], "generic");
    assert!(!has_gro(&world, "br0") && !has_gro(&world, "eth0"));

    let expected = std::fs::read(world.path("big")).expect("read the original");
    for _ in 0..2 {
        let body = world
            .get(&format!("http://{vip}/big"))
            .expect("download the large file");
        assert!(
            body == expected,
            "the received file ({} bytes) differs from the original",
            body.len()
        );
    }
    let status = world.status();
    assert_eq!(status["services"][0]["connections"], 2, "{status:#}");

    world.kill_keeper(pid);
    world.run_weir(&["clean"]);
    assert_eq!((has_gro(&world, "br0"), has_gro(&world, "eth0")), before);
}

#[test]
fn large_download_passes_with_nat_v4() {
    assert_large_download(Family::V4, "nat", "snat = true\n");
}

#[test]
fn large_download_passes_with_nat_v6() {
    assert_large_download(Family::V6, "nat", "snat = true\n");
}

#[test]
fn large_download_passes_with_direct_v4() {
    assert_large_download(Family::V4, "direct", "");
}

#[test]
fn large_download_passes_with_tunnel_v6() {
    assert_large_download(Family::V6, "tunnel", "");
}
