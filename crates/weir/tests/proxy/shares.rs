//! Tests the default scheduler of HTTP services over real connections.
//!
//! The tests measure the shares of four servers, 0, 1 or 2 of which are unavailable.
//!
//! With a correct scheduler, a case fails once in a million runs ([`SIGNIFICANCE`]).

use weir_testing::p_value;

use super::origin::Origin;
use super::{Client, GET, Proxy, free_address, wait_until};

const SIGNIFICANCE: f64 = 1e-6;
const REQUESTS: u64 = 800;
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

struct Fixture {
    origins: [Origin; 4],
    proxy: Proxy,
}

impl Fixture {
    /// Starts a daemon with four servers and the default scheduler. `server` returns additional keys for each server,
    /// and `pool` contains additional keys for the pool.
    fn new(server: &dyn Fn(usize) -> String, pool: &str) -> Self {
        let origins = NAMES.map(Origin::start);
        let proxy = Proxy::start("http", &[free_address()], "");
        let servers: Vec<String> = (0..4)
            .map(|index| {
                let address = origins[index].address();
                format!("{{ address = \"{address}\"{} }}", server(index))
            })
            .collect();
        proxy.reload(&format!(
            "[pool.p]\nservers = [{}]\n{pool}\n[service.s]\nlisten = [\"{}\"]\nforward = \"proxy\"\nprotocol = \
             \"http\"\npool = \"p\"\n",
            servers.join(", "),
            proxy.listen
        ));
        Self { origins, proxy }
    }

    /// Returns the name that commands use for a server.
    fn server_name(&self, index: usize) -> String {
        format!("p/{}", self.origins[index].address())
    }

    /// Returns a server's value from the status document.
    fn server_value(&self, index: usize, key: &str) -> serde_json::Value {
        self.proxy.status()["services"][0]["servers"][index][key].clone()
    }

    /// Sends one client's requests sequentially. Asserts that Weir distributes them according to these weights.
    fn assert_shares(&self, name: &str, weights: [f64; 4]) {
        let mut client = Client::connect(self.proxy.listen);
        let mut count = [0_u64; 4];
        for _ in 0..REQUESTS {
            let (head, body) = client.fetch(GET);
            assert!(head.starts_with("HTTP/1.1 200 "), "{name}: {head}");
            let index = NAMES
                .iter()
                .position(|name| body.starts_with(name.as_bytes()));
            count[index.expect("no server name in the body")] += 1;
        }
        let p = p_value(&count, &weights);
        println!("{name}: {count:?}, p = {p:.3}");
        assert!(
            p > SIGNIFICANCE,
            "{name}: {count:?} of {weights:?}, p = {p:e}"
        );
    }
}

/// Returns equal weights, with 0 for the first `unavailable` servers.
fn equal_shares_without(unavailable: usize) -> [f64; 4] {
    std::array::from_fn(|index| if index < unavailable { 0.0 } else { 1.0 })
}

#[test]
fn load_of_drained_servers_is_shared_evenly() {
    let fixture = Fixture::new(&|_| String::new(), "");
    fixture.assert_shares("all", equal_shares_without(0));
    for unavailable in 1..=2 {
        let (succeeded, output) =
            fixture
                .proxy
                .weir(&["server", &fixture.server_name(unavailable - 1), "drain"]);
        assert!(succeeded, "{output}");
        fixture.assert_shares(
            &format!("{unavailable} drained"),
            equal_shares_without(unavailable),
        );
    }
}

#[test]
fn load_of_down_servers_is_shared_evenly() {
    let check = "check = { kind = \"tcp\", interval = \"100ms\", timeout = \"1s\", fall = 1 }";
    let mut fixture = Fixture::new(&|_| String::new(), check);
    wait_until("all servers are up", || {
        (0..4).all(|index| fixture.server_value(index, "state") == "up")
    });
    fixture.assert_shares("all", equal_shares_without(0));
    for unavailable in 1..=2 {
        fixture.origins[unavailable - 1].stop();
        wait_until("the stopped server is down", || {
            fixture.server_value(unavailable - 1, "state") == "down"
        });
        fixture.assert_shares(
            &format!("{unavailable} down"),
            equal_shares_without(unavailable),
        );
    }
}

/// Without a check, a quarter of the requests, and then half of them, fail on the first attempt and are retried.
#[test]
fn failed_requests_are_retried_evenly() {
    let mut fixture = Fixture::new(&|_| String::new(), "");
    for unavailable in 1..=2 {
        fixture.origins[unavailable - 1].stop();
        fixture.assert_shares(
            &format!("{unavailable} failing"),
            equal_shares_without(unavailable),
        );
    }
}

#[test]
fn load_of_full_servers_is_shared_evenly() {
    let limit = |index: usize| {
        if index < 2 {
            ", max_connections = 1"
        } else {
            ""
        }
        .to_owned()
    };
    let fixture = Fixture::new(
        &limit,
        "sticky = { cookie = \"SRV\", secret = \"a secret of some length\" }",
    );
    fixture.assert_shares("none full", equal_shares_without(0));
    // Use cookies to select the two servers that must be full.
    let mut cookies = [None, None];
    let mut client = Client::connect(fixture.proxy.listen);
    wait_until("the cookies of both servers are known", || {
        let (head, body) = client.fetch(GET);
        let cookie_value = head
            .lines()
            .find_map(|line| line.strip_prefix("Set-Cookie: SRV="));
        let cookie_value = cookie_value
            .and_then(|cookie| cookie.split(';').next())
            .expect("no cookie");
        if let Some(index) = NAMES[..2]
            .iter()
            .position(|name| body.starts_with(name.as_bytes()))
        {
            cookies[index] = Some(cookie_value.to_owned());
        }
        cookies.iter().all(Option::is_some)
    });
    let mut clients = Vec::new();
    for (index, cookie_value) in cookies.into_iter().flatten().enumerate() {
        // Weir counts a request until it has processed the whole response, possibly after the client has received the
        // response.
        wait_until("no request is in progress", || {
            fixture.server_value(index, "active_connections") == 0
        });
        let mut client = Client::connect(fixture.proxy.listen);
        client.send(&format!(
            "GET /silence HTTP/1.1\r\nHost: a\r\nCookie: SRV={cookie_value}\r\n\r\n"
        ));
        wait_until("the request is in progress", || {
            fixture.server_value(index, "active_connections") == 1
        });
        clients.push(client);
        fixture.assert_shares(
            &format!("{} full", index + 1),
            equal_shares_without(index + 1),
        );
    }
}

#[test]
fn sequential_requests_are_distributed_by_weight() {
    let weight = |index: usize| format!(", weight = {}", [10, 30, 40, 20][index]);
    let fixture = Fixture::new(&weight, "");
    fixture.assert_shares("by weight", [1.0, 3.0, 4.0, 2.0]);
    let (succeeded, output) = fixture
        .proxy
        .weir(&["server", &fixture.server_name(2), "drain"]);
    assert!(succeeded, "{output}");
    fixture.assert_shares("by weight without c", [1.0, 3.0, 0.0, 2.0]);
}
