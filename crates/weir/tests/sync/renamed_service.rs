//! Tests the connections of a service that a reload renames.

use std::fs;

use super::world::{privileged, wait_for};
use super::{DIRECT, HELD_CONNECTIONS, Pair, TIMEOUT};

/// The flows keep the row of the former name. Peers find their own service by the VIP and the port.
#[test]
fn connections_of_renamed_service_are_synchronized() {
    if !privileged() {
        return;
    }
    let mut pair = Pair::new("direct");
    pair.start("director", &DIRECT);
    let mut connections = pair.open_connections(HELD_CONNECTIONS);
    let config = pair
        .config("director", &DIRECT)
        .replace("[service.web]", "[service.downloads]");
    let path = pair.world.path("director.toml");
    fs::write(&path, config).expect("write the file");
    let path = path.to_str().expect("path is valid UTF-8");
    pair.world.run_weir(&["reload", "-c", path]);
    pair.start("second", &DIRECT);
    wait_for("the flows on the second director", TIMEOUT, || {
        pair.total("second") >= HELD_CONNECTIONS as u64
    });
    pair.move_vip_to("second", Some("director"));
    for connection in &mut connections {
        let server = connection.server.clone();
        assert!(
            connection.reaches_same_server(),
            "a connection to {server} broke"
        );
    }
}
