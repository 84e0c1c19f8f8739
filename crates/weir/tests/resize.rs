//! The flow table changes its size or layout while connections begin, continue and end: no packet is lost because of
//! it.

mod world;

use std::net::SocketAddr;

use weir_dataplane::{Dataplane, OpenOptions, Opened, PinDir, open_readonly};
use world::load::{Load, assert_nothing_lost};
use world::{Family, World, bracketed, privileged};

fn config(family: Family, forward: &str, max_flows: u32) -> String {
    format!(
        "[node]\ninterfaces = [\"eth0\"]\nmax_flows = {max_flows}\n\
         [pool.web]\nservers = [\"{}\", \"{}\"]\n\
         [service.web]\nlisten = [\"{}:80\"]\nforward = \"{forward}\"\npool = \"web\"\n",
        family.server(0),
        family.server(1),
        bracketed(family.vip()),
    )
}

fn resized_under_load(family: Family, forward: &str) {
    let mut world = World::new(2);
    world.start_nginx(1024);
    if forward == "nat" {
        world.route_replies_through_director();
    } else {
        world.prepare_servers(&["--forward", forward, "--vip", &family.vip().to_string()]);
    }
    let sizes = [300_000, 700_000, 200_000, 500_000];
    world.start_director(&config(family, forward, sizes[0]));
    let load = Load::start(&world, SocketAddr::new(family.vip(), 80));
    load.wait_for_more(100);
    let soak = std::env::var_os("WEIR_SOAK").is_some();
    for round in 1..=if soak { 100 } else { 8 } {
        world.reload(&config(family, forward, sizes[round % sizes.len()]));
        load.wait_for_more(100);
    }
    assert_nothing_lost(&world, load.end());
}

#[test]
fn resized_table_loses_no_packet_under_direct_at_length() {
    if privileged() {
        resized_under_load(Family::V4, "direct");
    }
}

#[test]
fn resized_table_loses_no_packet_under_nat_at_length() {
    if privileged() {
        resized_under_load(Family::V4, "nat");
    }
}

/// Converts the pinned table, whatever its layout, to the layout of the previous release, as that release would have
/// left it.
fn become_the_release_before(world: &World) {
    let pins = world.pin_dir("director");
    let opened = world.inside("director", move || {
        let sizes = open_readonly(&PinDir::new(&pins))?.sizes;
        let (mut plane, opened) = Dataplane::open(&OpenOptions {
            sizes,
            flow_layout: present_layout() - 1,
            ..OpenOptions::new(&pins)
        })?;
        plane.activate()?;
        plane.migrate_flows()?;
        Ok::<_, weir_dataplane::Error>(opened)
    });
    let opened = opened.join().expect("a thread").expect("a data plane");
    assert_eq!(opened, Opened::FlowsMigrating);
}

fn present_layout() -> u32 {
    OpenOptions::new("").flow_layout
}

/// The beginning of the directory names of tables of a layout.
fn flows_of(layout: u32) -> String {
    format!("flows-{layout}-")
}

fn layouts(world: &World) -> Vec<String> {
    let entries = std::fs::read_dir(world.pin_dir("director")).expect("a pin directory");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let names = names.map(|name| name.to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("flows-")).collect()
}

fn adopted_under_load(forward: &str) {
    let family = Family::V4;
    let mut world = World::new(2);
    world.start_nginx(1024);
    if forward == "nat" {
        world.route_replies_through_director();
    } else {
        world.prepare_servers(&["--forward", forward, "--vip", &family.vip().to_string()]);
    }
    let config = config(family, forward, 300_000);
    let pid = world.start_director(&config);
    let load = Load::start(&world, SocketAddr::new(family.vip(), 80));
    load.wait_for_more(100);
    world.kill_director(pid);
    become_the_release_before(&world);
    let before = layouts(&world);
    assert!(
        before.len() == 1 && before[0].starts_with(&flows_of(present_layout() - 1)),
        "{before:?}"
    );
    load.wait_for_more(100);
    world.start_director(&config);
    let after = layouts(&world);
    assert!(
        after.len() == 1 && after[0].starts_with(&flows_of(present_layout())),
        "{after:?}"
    );
    assert!(world.log().contains("flows moved"), "{}", world.log());
    load.wait_for_more(100);
    assert_nothing_lost(&world, load.end());
}

#[test]
fn previous_layout_is_adopted_under_direct() {
    if privileged() {
        adopted_under_load("direct");
    }
}

#[test]
fn previous_layout_is_adopted_under_nat() {
    if privileged() {
        adopted_under_load("nat");
    }
}
