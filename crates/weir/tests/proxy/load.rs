//! Clients that send requests continuously while configurations change and servers fail: no request fails.

use super::*;

/// Clients that send requests until they are stopped. Every response is counted.
struct Load {
    stop: Arc<AtomicBool>,
    good: Arc<AtomicU64>,
    threads: Vec<std::thread::JoinHandle<Vec<String>>>,
}

impl Load {
    fn start(to: SocketAddr, clients: usize) -> Self {
        let (stop, good) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let threads = (0..clients)
            .map(|number| {
                let (stop, good) = (Arc::clone(&stop), Arc::clone(&good));
                std::thread::spawn(move || client_loop(to, number % 2 == 0, &stop, &good))
            })
            .collect();
        Self {
            stop,
            good,
            threads,
        }
    }

    /// Waits for this number of further responses.
    fn wait_for_responses(&self, answers: u64) {
        let wanted = self.good.load(Ordering::Relaxed) + answers;
        let deadline = Instant::now() + Duration::from_secs(30);
        while self.good.load(Ordering::Relaxed) < wanted {
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
fn client_loop(to: SocketAddr, keeps: bool, stop: &AtomicBool, good: &AtomicU64) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut client = Client::connect(to);
    while !stop.load(Ordering::Relaxed) {
        let request = if keeps {
            GET
        } else {
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        };
        client.send(request);
        match client.response() {
            Ok(Some((head, _))) if head.starts_with("HTTP/1.1 200") => {
                good.fetch_add(1, Ordering::Relaxed);
                if !keeps || head.contains("Connection: close") {
                    client = Client::connect(to);
                }
            }
            other => {
                wrong.push(format!("{other:?}"));
                client = Client::connect(to);
            }
        }
    }
    wrong
}

#[test]
fn reloads_under_load_fail_no_request() {
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
        let more = format!("limits = {{ retries = {} }}", 1 + round % 3);
        proxy.reload(&configuration(proxy.listen, "http", &servers, &more));
    }
    load.wait_for_responses(40);
    assert_eq!(load.stop(), Vec::<String>::new());
}

#[test]
fn dead_server_fails_no_retryable_request() {
    let (stays, mut dies) = (Origin::start("stays"), Origin::start("dies"));
    let proxy = Proxy::start("http", &[stays.address(), dies.address()], "");
    let load = Load::start(proxy.listen, 4);
    load.wait_for_responses(100);
    dies.stop();
    load.wait_for_responses(200);
    assert_eq!(load.stop(), Vec::<String>::new());
    assert!(proxy.status()["services"][0]["retries"].as_u64() > Some(0));
}
