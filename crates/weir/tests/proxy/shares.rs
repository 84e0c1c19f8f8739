//! The default scheduler of http services, over real connections: shares of four servers with 0, 1 and 2 of them
//! unavailable.
//!
//! A correct scheduler fails one case in a million: [`FALSE_ALARM`].

use weir_testing::p_value;

use super::origin::Origin;
use super::{Client, GET, Proxy, free_address, wait};

const FALSE_ALARM: f64 = 1e-6;
const REQUESTS: u64 = 800;
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

struct Scene {
    origins: [Origin; 4],
    proxy: Proxy,
}

impl Scene {
    /// A pool without a scheduler, with these keys of each server and of the pool.
    fn new(server: &dyn Fn(usize) -> String, pool: &str) -> Self {
        let origins = NAMES.map(Origin::start);
        let proxy = Proxy::start("http", &[free_address()], "");
        let servers: Vec<String> = (0..4)
            .map(|at| {
                let address = origins[at].address();
                format!("{{ address = \"{address}\"{} }}", server(at))
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

    fn server(&self, at: usize) -> String {
        format!("p/{}", self.origins[at].address())
    }

    fn of(&self, at: usize, key: &str) -> serde_json::Value {
        self.proxy.status()["services"][0]["servers"][at][key].clone()
    }

    /// One client's requests, one after the other, are distributed by these weights.
    fn shares(&self, name: &str, weights: [f64; 4]) {
        let mut client = Client::connect(self.proxy.listen);
        let mut count = [0_u64; 4];
        for _ in 0..REQUESTS {
            let (head, body) = client.fetch(GET);
            assert!(head.starts_with("HTTP/1.1 200 "), "{name}: {head}");
            let at = NAMES
                .iter()
                .position(|name| body.starts_with(name.as_bytes()));
            count[at.expect("a server's name")] += 1;
        }
        let p = p_value(&count, &weights);
        println!("{name}: {count:?}, p = {p:.3}");
        assert!(
            p > FALSE_ALARM,
            "{name}: {count:?} of {weights:?}, p = {p:e}"
        );
    }
}

fn without(out: usize) -> [f64; 4] {
    std::array::from_fn(|at| if at < out { 0.0 } else { 1.0 })
}

#[test]
fn drained_servers_load_is_shared_evenly() {
    let scene = Scene::new(&|_| String::new(), "");
    scene.shares("all", without(0));
    for out in 1..=2 {
        let (done, output) = scene
            .proxy
            .weir(&["server", &scene.server(out - 1), "drain"]);
        assert!(done, "{output}");
        scene.shares(&format!("{out} drained"), without(out));
    }
}

#[test]
fn down_servers_load_is_shared_evenly() {
    let check = "check = { kind = \"tcp\", interval = \"100ms\", timeout = \"1s\", fall = 1 }";
    let mut scene = Scene::new(&|_| String::new(), check);
    wait("all are up", || {
        (0..4).all(|at| scene.of(at, "state") == "up")
    });
    scene.shares("all", without(0));
    for out in 1..=2 {
        scene.origins[out - 1].stop();
        wait("it is down", || scene.of(out - 1, "state") == "down");
        scene.shares(&format!("{out} down"), without(out));
    }
}

/// There is no check: every fourth request, and then every second one, fails at first and is retried.
#[test]
fn failed_requests_are_retried_evenly() {
    let mut scene = Scene::new(&|_| String::new(), "");
    for out in 1..=2 {
        scene.origins[out - 1].stop();
        scene.shares(&format!("{out} failing"), without(out));
    }
}

#[test]
fn full_servers_load_is_shared_evenly() {
    let limit = |at: usize| if at < 2 { ", max_connections = 1" } else { "" }.to_owned();
    let scene = Scene::new(
        &limit,
        "sticky = { cookie = \"SRV\", secret = \"a secret of some length\" }",
    );
    scene.shares("none full", without(0));
    // Cookies select the two servers that must be full.
    let mut signs = [None, None];
    let mut client = Client::connect(scene.proxy.listen);
    wait("cookies of both", || {
        let (head, body) = client.fetch(GET);
        let sign = head
            .lines()
            .find_map(|line| line.strip_prefix("Set-Cookie: SRV="));
        let sign = sign
            .and_then(|cookie| cookie.split(';').next())
            .expect("a cookie");
        if let Some(at) = NAMES[..2]
            .iter()
            .position(|name| body.starts_with(name.as_bytes()))
        {
            signs[at] = Some(sign.to_owned());
        }
        signs.iter().all(Option::is_some)
    });
    let mut held = Vec::new();
    for (at, sign) in signs.into_iter().flatten().enumerate() {
        // The last request is counted until the proxy has finished its response, which is later than the client sees
        // its end.
        wait("no request is under way", || {
            scene.of(at, "active_connections") == 0
        });
        let mut client = Client::connect(scene.proxy.listen);
        client.send(&format!(
            "GET /silence HTTP/1.1\r\nHost: a\r\nCookie: SRV={sign}\r\n\r\n"
        ));
        wait("a request is under way", || {
            scene.of(at, "active_connections") == 1
        });
        held.push(client);
        scene.shares(&format!("{} full", at + 1), without(at + 1));
    }
}

#[test]
fn idle_servers_are_chosen_by_weight() {
    let weight = |at: usize| format!(", weight = {}", [10, 30, 40, 20][at]);
    let scene = Scene::new(&weight, "");
    scene.shares("by weight", [1.0, 3.0, 4.0, 2.0]);
    let (done, output) = scene.proxy.weir(&["server", &scene.server(2), "drain"]);
    assert!(done, "{output}");
    scene.shares("by weight without c", [1.0, 3.0, 0.0, 2.0]);
}
