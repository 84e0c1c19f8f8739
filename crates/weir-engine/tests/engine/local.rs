//! Tests a nat server on the director itself: its replies do not pass through XDP.

use crate::director::Director;
use weir_model::{Forward, SchedulerKind};

use super::topology::{Topology, is_root};
use super::{PORT, VIP, desired};

const DIRECTOR: &str = "10.8.0.2";
const SERVER_PORT: u16 = 9_090;

#[test]
fn local_server_replies_from_the_vip() {
    if !is_root() {
        return;
    }
    let topology = Topology::new("local");
    topology.director_serves_bulk(DIRECTOR, SERVER_PORT);
    topology.run(async |paths| {
        let mut configuration = desired(Forward::Nat, SchedulerKind::Rr, &[DIRECTOR]);
        configuration.pools[0].servers[0].port = Some(SERVER_PORT);
        let mut engine = Director::open(paths, &configuration).await.unwrap();
        topology.download(VIP, PORT);
        let totals = engine.snapshot().unwrap().services[0].totals;
        assert!(totals.bytes_out > 50 << 20, "{totals:?}");
        // Without the service, the server's port is an ordinary port again.
        let connection = topology.connect(VIP, PORT);
        configuration.services.clear();
        engine.apply(&configuration).await.unwrap();
        connection.drain();
        topology.download(DIRECTOR, SERVER_PORT);
    });
}
