//! A service that one reload removes and another one adds again, while a client of the first is connected.

use std::net::{TcpListener, TcpStream};

use super::keeper::until;
use super::upgrade::echo;
use super::{Client, GET, Origin, Proxy, configuration, free_address};

#[test]
fn readded_service_accepts_clients() {
    let origin = Origin::start_tcp();
    let proxy = Proxy::start("tcp", &[origin.address()], "");
    let servers = [origin.address()];
    let mut stays = Client::connect(proxy.listen);
    echo(&mut stays, 0).expect("its bytes");
    let other = configuration(free_address(), "tcp", &servers, "");
    proxy.reload(&other.replace("[service.s]", "[service.other]"));
    echo(&mut stays, 1).expect("its bytes");
    proxy.reload(&configuration(proxy.listen, "tcp", &servers, ""));
    echo(&mut stays, 2).expect("its bytes");
    drop(stays);
    until("its end", || {
        let status = proxy.status();
        status["services"][0]["servers"][0]["active_connections"] == 0
    });
    for round in 0..8 {
        echo(&mut Client::connect(proxy.listen), round).expect("its bytes");
    }
}

#[test]
fn removed_service_stops_listening_while_a_client_stays() {
    let origin = Origin::start_tcp();
    let proxy = Proxy::start("tcp", &[origin.address()], "");
    let mut stays = Client::connect(proxy.listen);
    echo(&mut stays, 0).expect("its bytes");
    let other = configuration(free_address(), "tcp", &[origin.address()], "");
    proxy.reload(&other.replace("[service.s]", "[service.other]"));
    echo(&mut stays, 1).expect("its bytes");
    // A client of a listener from which nothing is accepted would connect, and wait forever.
    until("a refusal", || TcpStream::connect(proxy.listen).is_err());
    TcpListener::bind(proxy.listen).expect("the address is free for another program");
    echo(&mut stays, 2).expect("its bytes");
}

#[test]
fn waiting_clients_survive_rename_or_removal_of_their_service() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    let servers = [origin.address()];
    let text = configuration(proxy.listen, "http", &servers, "");
    for name in ["renamed", "s"] {
        let mut waits = Client::connect(proxy.listen);
        assert!(waits.fetch(GET).0.starts_with("HTTP/1.1 200"));
        proxy.reload(&text.replace("[service.s]", &format!("[service.{name}]")));
        // Its next request, which may be in progress, is the last one.
        let (head, _) = waits.fetch(GET);
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert!(
            head.contains("connection: close") || head.contains("Connection: close"),
            "{head}"
        );
        assert!(waits.response().expect("an end").is_none());
    }
    let mut waits = Client::connect(proxy.listen);
    assert!(waits.fetch(GET).0.starts_with("HTTP/1.1 200"));
    let elsewhere = configuration(free_address(), "http", &servers, "");
    proxy.reload(&elsewhere.replace("[service.s]", "[service.other]"));
    assert!(waits.fetch(GET).0.starts_with("HTTP/1.1 200"));
    assert!(waits.response().expect("an end").is_none());
}
