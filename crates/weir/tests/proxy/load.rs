//! Sends requests continuously while configurations change and servers fail; no request may fail.

use super::*;

/// Clients that send requests until they are stopped, and count the responses with status 200.
struct Load {
    stop: Arc<AtomicBool>,
    responses: Arc<AtomicU64>,
    threads: Vec<std::thread::JoinHandle<Vec<String>>>,
}

impl Load {
    fn start(address: SocketAddr, clients: usize) -> Self {
        let (stop, responses) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let threads = (0..clients)
            .map(|number| {
                let (stop, responses) = (Arc::clone(&stop), Arc::clone(&responses));
                std::thread::spawn(move || client_loop(address, number % 2 == 0, &stop, &responses))
            })
            .collect();
        Self {
            stop,
            responses,
            threads,
        }
    }

    /// Waits for this number of additional responses with status 200.
    fn wait_for_responses(&self, count: u64) {
        let target = self.responses.load(Ordering::Relaxed) + count;
        let deadline = Instant::now() + Duration::from_secs(30);
        while self.responses.load(Ordering::Relaxed) < target {
            assert!(Instant::now() < deadline, "the load has stalled");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Stops the clients. Returns their errors.
    fn stop(self) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        self.threads
            .into_iter()
            .flat_map(|thread| thread.join().expect("client thread panicked"))
            .collect()
    }
}

/// Sends requests until `stop` is set. Returns the errors.
fn client_loop(
    address: SocketAddr,
    keeps_alive: bool,
    stop: &AtomicBool,
    responses: &AtomicU64,
) -> Vec<String> {
    let mut errors = Vec::new();
    let mut client = Client::connect(address);
    while !stop.load(Ordering::Relaxed) {
        let request = if keeps_alive {
            GET
        } else {
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        };
        client.send(request);
        match client.read_response() {
            Ok(Some((head, _))) if head.starts_with("HTTP/1.1 200") => {
                responses.fetch_add(1, Ordering::Relaxed);
                if !keeps_alive || head.contains("Connection: close") {
                    client = Client::connect(address);
                }
            }
            other => {
                errors.push(format!("{other:?}"));
                client = Client::connect(address);
            }
        }
    }
    errors
}

#[test]
fn no_request_fails_during_reloads() {
    let (one, two) = (Origin::start("one"), Origin::start("two"));
    let proxy = Proxy::start("http", &[one.address(), two.address()], "");
    let load = Load::start(proxy.listen, 6);
    for round in 0..10 {
        load.wait_for_responses(40);
        let servers = if round % 2 == 0 {
            vec![two.address()]
        } else {
            vec![two.address(), one.address()]
        };
        let extra = format!("limits = {{ retries = {} }}", 1 + round % 3);
        proxy.reload(&configuration(proxy.listen, "http", &servers, &extra));
    }
    load.wait_for_responses(40);
    assert_eq!(load.stop(), Vec::<String>::new());
}

#[test]
fn no_retryable_request_fails_if_a_server_dies() {
    let (live, mut stopped) = (Origin::start("stays"), Origin::start("dies"));
    let proxy = Proxy::start("http", &[live.address(), stopped.address()], "");
    let load = Load::start(proxy.listen, 4);
    load.wait_for_responses(100);
    stopped.stop();
    load.wait_for_responses(200);
    assert_eq!(load.stop(), Vec::<String>::new());
    assert!(proxy.status()["services"][0]["retries"].as_u64() > Some(0));
}
