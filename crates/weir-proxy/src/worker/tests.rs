//! Tests a worker without its thread.
//!
//! The cases are a panic in one connection, many simultaneous disconnects, and tunnels that another process hands over.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering::Relaxed;

use rustix::event::{EventfdFlags, eventfd};
use weir_model::{Desired, Pool, Proxy, ProxyProtocol, Route, RouteAction};

use std::rc::Rc;
use std::sync::Arc;

use super::*;
use crate::context::{LocalService, local_service};
use crate::handover::Tunnel;
use crate::plan::{Listeners, Plan, Service, SharedState};
use crate::transport::Transport;

/// Returns a service that generates every response itself, and its listeners.
fn responding_service() -> (Arc<Service>, Arc<Listeners>) {
    let mut service = Proxy::new("s", ProxyProtocol::Http, "p");
    service
        .listen
        .push("127.0.0.1:0".parse().expect("parse address"));
    service.routes.push(Route::new(RouteAction::Respond {
        status: 200,
        body: weir_model::Template::literal("generated"),
    }));
    let desired = Desired {
        pools: vec![Pool::new("p")],
        proxies: vec![service],
        ..Desired::default()
    };
    let prepared = crate::Proxy::new()
        .prepare(&desired)
        .expect("prepare the configuration");
    let (listeners, service) = &prepared.listen[0];
    (Arc::clone(service), Arc::clone(listeners))
}

fn worker() -> Worker {
    let wake = eventfd(0, EventfdFlags::CLOEXEC).expect("create eventfd");
    let config = WorkerConfig::new(0, Arc::<SharedState>::default(), Arc::new(wake), false);
    config.expect("create epoll set").build()
}

/// Adds a client to a worker. Returns the client's socket and the session.
fn connect(worker: &mut Worker, local: &Rc<LocalService>) -> (UnixStream, Key) {
    let (client, accepted) = UnixStream::pair().expect("create socket pair");
    accepted.set_nonblocking(true).expect("set nonblocking");
    local.service.clients.fetch_add(1, Relaxed);
    let peer = "192.0.2.1:4711".parse().expect("parse address");
    let transport = Transport::plain(accepted.into());
    let session = Session::new(transport, peer, 80, Rc::clone(local));
    (client, worker.sessions.insert(session))
}

#[test]
fn many_simultaneous_disconnects_do_not_delay_another_client() {
    let (service, _listeners) = responding_service();
    let local = local_service(Arc::clone(&service), Vec::new());
    let mut worker = worker();
    let closing_clients: Vec<_> = (0..3 * MAX_ENDED)
        .map(|_| connect(&mut worker, &local))
        .collect();
    let (mut client, session) = connect(&mut worker, &local);
    for key in closing_clients.iter().map(|(_, key)| *key).chain([session]) {
        worker.run_session(key, Session::begin);
    }
    drop(closing_clients);
    client
        .write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        .expect("write");
    let mut client_counts = Vec::new();
    let mut events = Vec::with_capacity(MAX_EVENTS);
    for wakeup in 0..3 {
        worker.sleep(&mut events);
        worker.handle_wakeup(&mut events);
        if wakeup == 0 {
            client.set_nonblocking(true).expect("set nonblocking");
            let mut response = [0u8; 1024];
            let bytes = client.read(&mut response).expect("read response");
            assert!(response[..bytes].ends_with(b"generated"));
        }
        client_counts.push(service.clients.load(Relaxed) as usize);
    }
    assert_eq!(client_counts, [2 * MAX_ENDED + 1, MAX_ENDED + 1, 1]);
}

#[test]
fn panic_closes_only_the_connection_that_caused_it() {
    let (service, _listeners) = responding_service();
    let local = local_service(Arc::clone(&service), Vec::new());
    let mut worker = worker();
    let (mut panicking_client, panicking_key) = connect(&mut worker, &local);
    let (mut healthy_client, healthy_key) = connect(&mut worker, &local);
    worker.run_session(panicking_key, Session::begin);
    worker.run_session(healthy_key, Session::begin);
    // The session panics while it holds one of the worker's buffers.
    worker.run_session(panicking_key, |_, _, cx| {
        let _buffer = std::mem::take(&mut cx.scratch);
        cx.out.extend_from_slice(b"part of a response");
        panic!("deliberate panic")
    });
    assert!(worker.sessions.get(panicking_key).is_none());
    assert_eq!(
        panicking_client
            .read(&mut [0u8; 1])
            .expect("read end of stream"),
        0
    );
    assert_eq!(service.clients.load(Relaxed), 1);
    healthy_client
        .write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        .expect("write");
    let session = worker
        .sessions
        .get_mut(healthy_key)
        .expect("healthy session exists");
    session.ready.readable = true;
    worker.run_session(healthy_key, Session::drive);
    let mut response = [0u8; 1024];
    let bytes = healthy_client.read(&mut response).expect("read response");
    let response = String::from_utf8_lossy(&response[..bytes]).into_owned();
    assert!(
        response.starts_with("HTTP/1.1 200 OK\r\n") && response.ends_with("\r\n\r\ngenerated"),
        "{response}"
    );
}

/// Returns a client, a server, and the tunnel between them, as handed over by another process.
fn tunnel(service: &str) -> (UnixStream, UnixStream, HandedOverConnection) {
    let pair = || {
        let (peer, socket) = UnixStream::pair().expect("create socket pair");
        socket.set_nonblocking(true).expect("set nonblocking");
        (peer, socket)
    };
    let ((client, client_side), (server, server_side)) = (pair(), pair());
    let connection = HandedOverConnection {
        service: service.to_owned(),
        client: client_side.into(),
        peer: "192.0.2.1:4711".parse().expect("parse address"),
        port: 80,
        destination: None,
        served: false,
        input: Vec::new(),
        tunnel: Some(Tunnel {
            server: server_side.into(),
            pool: "removed".to_owned(),
            name: "10.0.0.9".to_owned(),
            port: 80,
            to_server: b"up".to_vec(),
            to_client: b"down".to_vec(),
            client_eof: false,
            eof_sent_to_server: false,
            server_eof: false,
            eof_sent_to_client: false,
        }),
    };
    (client, server, connection)
}

/// A process that started the handover before a reload, or runs a different version, may hand over tunnels to removed
/// servers.
#[test]
fn tunnel_to_a_removed_server_continues() {
    let (service, listeners) = responding_service();
    let mut worker = worker();
    worker.listening.insert(Listener {
        listeners,
        socket_index: 0,
        local: local_service(Arc::clone(&service), Vec::new()),
        paused: false,
    });
    let (mut client, mut server, connection) = tunnel("s");
    client.write_all(b" and more").expect("write");
    worker.shared.inbox.lock().push((0, connection));
    worker.shared.arrivals.fetch_add(1, Relaxed);
    worker.poll_handover();
    let mut received = [0u8; 11];
    server
        .read_exact(&mut received)
        .expect("read the client's bytes");
    assert_eq!(&received, b"up and more");
    client
        .read_exact(&mut received[..4])
        .expect("read the server's bytes");
    assert_eq!(&received[..4], b"down");
    assert_eq!(service.clients.load(Relaxed), 1);
    let key = worker.sessions.keys()[0];
    worker.close(key);
    assert_eq!(service.clients.load(Relaxed), 0);
    assert_eq!(server.read(&mut received).expect("read end of stream"), 0);
}

/// The new process may reload during the handover.
#[test]
fn tunnel_in_a_removed_service_continues() {
    let (service, _) = responding_service();
    let mut worker = worker();
    worker.shared.publish(Plan {
        removed: vec![Arc::clone(&service)],
        ..Plan::default()
    });
    let (mut client, mut server, connection) = tunnel("s");
    worker.shared.inbox.lock().push((0, connection));
    worker.shared.arrivals.fetch_add(1, Relaxed);
    worker.poll_handover();
    let mut received = [0u8; 4];
    server
        .read_exact(&mut received[..2])
        .expect("read the client's bytes");
    client
        .read_exact(&mut received)
        .expect("read the server's bytes");
    assert_eq!(&received, b"down");
    assert_eq!(service.clients.load(Relaxed), 1);
}
