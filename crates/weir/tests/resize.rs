//! Tests that a new size or layout of the flow table loses no packets while connections begin, continue and end.

mod world;

use std::net::SocketAddr;

use weir_dataplane::{Dataplane, OpenOptions, OpenOutcome, PinDir, open_readonly};
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

fn assert_resize_loses_nothing(family: Family, forward: &str) {
    let mut world = World::new(2);
    world.start_nginx(1024);
    if forward == "nat" {
        world.route_replies_through_director();
    } else {
        world.prepare_servers(&["--forward", forward, "--vip", &family.vip().to_string()]);
    }
    let sizes = [300_000, 700_000, 200_000, 500_000];
    world.start_daemon(&config(family, forward, sizes[0]));
    let load = Load::start(&world, SocketAddr::new(family.vip(), 80));
    load.wait_for_more(100);
    let soak = std::env::var_os("WEIR_SOAK").is_some();
    for round in 1..=if soak { 100 } else { 8 } {
        world.reload(&config(family, forward, sizes[round % sizes.len()]));
        load.wait_for_more(100);
    }
    assert_nothing_lost(&world, load.stop());
}

#[test]
fn resized_table_loses_no_packet_with_direct_soak() {
    if privileged() {
        assert_resize_loses_nothing(Family::V4, "direct");
    }
}

#[test]
fn resized_table_loses_no_packet_with_nat_soak() {
    if privileged() {
        assert_resize_loses_nothing(Family::V4, "nat");
    }
}

/// Converts the pinned table to the previous release's layout, as that release would have left it.
fn convert_to_previous_layout(world: &World) {
    let pins = world.pin_dir("director");
    let outcome = world.spawn_on("director", move || {
        let sizes = open_readonly(&PinDir::new(&pins))?.sizes;
        let (mut data_plane, outcome) = Dataplane::open(&OpenOptions {
            sizes,
            flow_layout: current_layout() - 1,
            ..OpenOptions::new(&pins)
        })?;
        data_plane.activate()?;
        data_plane.migrate_flows()?;
        Ok::<_, weir_dataplane::Error>(outcome)
    });
    let outcome = outcome
        .join()
        .expect("thread panicked")
        .expect("open the data plane");
    assert_eq!(outcome, OpenOutcome::FlowsMigrating);
}

fn current_layout() -> u32 {
    OpenOptions::new("").flow_layout
}

/// Returns the prefix of directory names for tables with this layout.
fn directory_prefix(layout: u32) -> String {
    format!("flows-{layout}-")
}

fn flow_directories(world: &World) -> Vec<String> {
    let entries = std::fs::read_dir(world.pin_dir("director")).expect("read the pin directory");
    let names = entries.map(|entry| entry.expect("read a directory entry").file_name());
    let names = names.map(|name| name.to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("flows-")).collect()
}

fn assert_previous_layout_adopted(forward: &str) {
    let family = Family::V4;
    let mut world = World::new(2);
    world.start_nginx(1024);
    if forward == "nat" {
        world.route_replies_through_director();
    } else {
        world.prepare_servers(&["--forward", forward, "--vip", &family.vip().to_string()]);
    }
    let config = config(family, forward, 300_000);
    let pid = world.start_daemon(&config);
    let load = Load::start(&world, SocketAddr::new(family.vip(), 80));
    load.wait_for_more(100);
    world.kill_keeper(pid);
    convert_to_previous_layout(&world);
    let before = flow_directories(&world);
    assert!(
        before.len() == 1 && before[0].starts_with(&directory_prefix(current_layout() - 1)),
        "{before:?}"
    );
    load.wait_for_more(100);
    world.start_daemon(&config);
    let after = flow_directories(&world);
    assert!(
        after.len() == 1 && after[0].starts_with(&directory_prefix(current_layout())),
        "{after:?}"
    );
    assert!(
        world.log().contains("migrated the flows"),
        "{}",
        world.log()
    );
    load.wait_for_more(100);
    assert_nothing_lost(&world, load.stop());
}

#[test]
fn previous_layout_is_adopted_with_direct() {
    if privileged() {
        assert_previous_layout_adopted("direct");
    }
}

#[test]
fn previous_layout_is_adopted_with_nat() {
    if privileged() {
        assert_previous_layout_adopted("nat");
    }
}
