//! Reloads on probation.

use std::net::SocketAddr;

use super::{Client, GET, Origin, Seat, configuration, free_address};

fn checked(seat: &Seat, servers: &[SocketAddr]) -> String {
    let check = "[pool.p.check]\ninterval = \"100ms\"\ntimeout = \"100ms\"\nfall = 1\nrise = 1\n";
    configuration(seat.listen, "http", servers, "") + check
}

#[test]
fn a_reload_whose_servers_fail_is_taken_back() {
    let origin = Origin::start("o");
    let seat = Seat::start("http", &[origin.address()], "");
    let file = seat.directory.join("weir.toml");
    let reload = |text: &str, guard: &str| {
        std::fs::write(&file, text).expect("written");
        seat.weir(&["reload", "--guard", guard])
    };
    let (done, said) = reload(&checked(&seat, &[origin.address()]), "1s");
    assert!(done && said.contains("revision 2 is in force"), "{said}");

    let nobody = free_address();
    let (done, said) = reload(&checked(&seat, &[origin.address(), nobody]), "60s");
    assert!(
        !done && said.contains(&format!("taken back: p/{nobody} is down")),
        "{said}"
    );
    let status = seat.status();
    let servers = status["services"][0]["servers"]
        .as_array()
        .expect("servers");
    assert_eq!(servers.len(), 1, "{status:#}");
    let mut client = Client::connect(seat.listen);
    assert!(client.ask(GET).0.starts_with("HTTP/1.1 200"));

    // Without checks requests tell.
    let text = configuration(seat.listen, "http", &[nobody], "");
    std::fs::write(&file, text).expect("written");
    std::thread::scope(|scope| {
        let guarded = scope.spawn(|| seat.weir(&["reload", "--guard", "60s"]));
        while !guarded.is_finished() {
            let mut client = Client::connect(seat.listen);
            client.ask(GET);
        }
        let (done, said) = guarded.join().expect("the command");
        assert!(
            !done && said.contains("requests of service s failed"),
            "{said}"
        );
    });
    let mut client = Client::connect(seat.listen);
    assert!(client.ask(GET).0.starts_with("HTTP/1.1 200"));
}
