//! Tests services that a reload removes, renames or adds again while clients are connected.

use std::net::{TcpListener, TcpStream};

use super::keeper::wait_until;
use super::upgrade::echo;
use super::{Client, GET, Origin, Proxy, configuration, free_address};

#[test]
fn readded_service_accepts_clients() {
    let origin = Origin::start_tcp();
    let proxy = Proxy::start("tcp", &[origin.address()], "");
    let servers = [origin.address()];
    let mut existing_client = Client::connect(proxy.listen);
    echo(&mut existing_client, 0).expect("echo");
    let other = configuration(free_address(), "tcp", &servers, "");
    proxy.reload(&other.replace("[service.s]", "[service.other]"));
    echo(&mut existing_client, 1).expect("echo");
    proxy.reload(&configuration(proxy.listen, "tcp", &servers, ""));
    echo(&mut existing_client, 2).expect("echo");
    drop(existing_client);
    wait_until("the connection of the existing client has ended", || {
        let status = proxy.status();
        status["services"][0]["servers"][0]["active_connections"] == 0
    });
    for round in 0..8 {
        echo(&mut Client::connect(proxy.listen), round).expect("echo");
    }
}

#[test]
fn removed_service_stops_listening_while_a_client_is_connected() {
    let origin = Origin::start_tcp();
    let proxy = Proxy::start("tcp", &[origin.address()], "");
    let mut existing_client = Client::connect(proxy.listen);
    echo(&mut existing_client, 0).expect("echo");
    let other = configuration(free_address(), "tcp", &[origin.address()], "");
    proxy.reload(&other.replace("[service.s]", "[service.other]"));
    echo(&mut existing_client, 1).expect("echo");
    // If the listener stayed open without accepting connections, a client would connect and wait forever.
    wait_until("new connections are refused", || {
        TcpStream::connect(proxy.listen).is_err()
    });
    TcpListener::bind(proxy.listen).expect("bind the released address");
    echo(&mut existing_client, 2).expect("echo");
}

#[test]
fn idle_clients_get_one_more_response_after_their_service_is_renamed_or_removed() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    let servers = [origin.address()];
    let text = configuration(proxy.listen, "http", &servers, "");
    for name in ["renamed", "s"] {
        let mut client = Client::connect(proxy.listen);
        assert!(client.fetch(GET).0.starts_with("HTTP/1.1 200"));
        proxy.reload(&text.replace("[service.s]", &format!("[service.{name}]")));
        // The client's next request, which may already be on its way, is the last on the connection.
        let (head, _) = client.fetch(GET);
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert!(
            head.contains("connection: close") || head.contains("Connection: close"),
            "{head}"
        );
        assert!(client.read_response().expect("read response").is_none());
    }
    let mut client = Client::connect(proxy.listen);
    assert!(client.fetch(GET).0.starts_with("HTTP/1.1 200"));
    let other_address = configuration(free_address(), "http", &servers, "");
    proxy.reload(&other_address.replace("[service.s]", "[service.other]"));
    assert!(client.fetch(GET).0.starts_with("HTTP/1.1 200"));
    assert!(client.read_response().expect("read response").is_none());
}
