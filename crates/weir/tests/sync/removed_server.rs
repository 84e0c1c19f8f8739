//! Tests connections to a removed server if the directors removed the server at different times.

use std::fs;
use std::time::{Duration, Instant};

use super::world::{privileged, wait_for};
use super::{ADDRESSES, DIRECT, HELD_CONNECTIONS, Pair, Setup, TIMEOUT};

const SETUP: Setup = Setup {
    scheduler: "maglev",
    ..DIRECT
};
const REMOVED: &str = "10.0.0.5:80";

impl Pair {
    /// Removes a server from a director's file and reloads the director.
    fn remove_server(&self, host: &str) {
        let config = self
            .config(host, &SETUP)
            .replace(&format!("\"{REMOVED}\", "), "");
        assert!(!config.contains(REMOVED), "{config}");
        let path = self.world.path(&format!("{host}.toml"));
        fs::write(&path, config).expect("write the file");
        let path = path.to_str().expect("path is valid UTF-8");
        let output = self.world.weir(host).args(["reload", "-c", path]).output();
        let output = output.expect("run weir");
        assert!(output.status.success(), "{output:?}");
    }

    /// Returns whether a director still has the row of the removed server.
    fn has_removed_server(&self, host: &str) -> bool {
        let status = self.status(host);
        let servers = status["services"][0]["servers"].as_array().cloned();
        let mut servers = servers.unwrap_or_default().into_iter();
        servers.any(|it| it["removed"] == true)
    }
}

/// The standby has no flows of `maglev`, because it computes the servers. If the standby removes a server first, it
/// must still be able to insert the flows that the active director sends once that director has also removed the
/// server.
#[test]
fn connections_continue_if_standby_has_removed_their_server_first() {
    if !privileged() {
        return;
    }
    let mut pair = Pair::new("direct");
    for (host, _) in ADDRESSES {
        pair.start(host, &SETUP);
    }
    let mut connections = pair.open_connections(HELD_CONNECTIONS);
    wait_for("an established peer", TIMEOUT, || {
        pair.peer("director")["state"] == "established"
    });
    let flow_count = pair.counts("director")[0].0;
    assert!(flow_count > 0, "the server must have connections");
    pair.remove_server("second");
    // Rows of ended flows are freed once per second.
    let end = Instant::now() + Duration::from_secs(3);
    while Instant::now() < end {
        assert!(pair.has_removed_server("second"), "the row was freed");
        std::thread::sleep(Duration::from_millis(200));
    }
    pair.remove_server("director");
    wait_for("the flows of the removed server", TIMEOUT, || {
        pair.total("second") >= flow_count
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
