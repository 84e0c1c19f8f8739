//! A service that a reload removes, and another one puts back, while a client of the first is still there.

use super::keeper::until;
use super::upgrade::echo;
use super::{Client, Origin, Seat, configuration, free_address};

#[test]
fn a_service_that_was_gone_takes_clients_as_before() {
    let origin = Origin::start_tcp();
    let seat = Seat::start("tcp", &[origin.address()], "");
    let servers = [origin.address()];
    let mut stays = Client::connect(seat.listen);
    echo(&mut stays, 0).expect("its octets");
    let other = configuration(free_address(), "tcp", &servers, "");
    seat.reload(&other.replace("[service.s]", "[service.other]"));
    echo(&mut stays, 1).expect("its octets");
    seat.reload(&configuration(seat.listen, "tcp", &servers, ""));
    echo(&mut stays, 2).expect("its octets");
    drop(stays);
    until("its end", || {
        let status = seat.status();
        status["services"][0]["servers"][0]["active_connections"] == 0
    });
    for round in 0..8 {
        echo(&mut Client::connect(seat.listen), round).expect("its octets");
    }
}
