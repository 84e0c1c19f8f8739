//! Tests that keys and conditions ignore fields about the client that untrusted clients send.

use std::collections::BTreeSet;

use super::origin::Origin;
use super::{Client, Proxy, free_address};

/// Starts a daemon with four servers, which a hash of `X-Forwarded-For` selects, and a route for one value of this
/// field. `service` contains additional keys for the service.
fn start_proxy(origins: &[Origin; 4], service: &str) -> Proxy {
    let proxy = Proxy::start("http", &[free_address()], "");
    let servers: Vec<String> = origins
        .iter()
        .map(|origin| format!("\"{}\"", origin.address()))
        .collect();
    proxy.reload(&format!(
        "[pool.p]\nservers = [{}]\nscheduler = {{ name = \"hash\", key = \"header:X-Forwarded-For\" }}\n\
         [service.s]\nlisten = [\"{}\"]\nforward = \"proxy\"\nprotocol = \"http\"\npool = \"p\"\n{service}\n\
         [[route]]\nservice = \"s\"\npath = \"/secret\"\nheader = [\"X-Forwarded-For: 192.0.2.1\"]\n\
         status = 200\nbody = \"secret\"\n",
        servers.join(", "),
        proxy.listen
    ));
    proxy
}

/// Returns whether a forged client address changes the client's server, and whether the route accepts the address.
fn effect_of_forged_fields(proxy: &Proxy) -> (bool, bool) {
    let mut client = Client::connect(proxy.listen);
    let mut fetch = |path: &str, address: &str| {
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: {address}\r\n\r\n");
        let (_, body) = client.fetch(&request);
        let text = String::from_utf8_lossy(&body).into_owned();
        text.lines().next().unwrap_or_default().to_owned()
    };
    let names: BTreeSet<String> = (0..40)
        .map(|number| fetch("/", &format!("192.0.2.{number}")))
        .collect();
    (names.len() > 1, fetch("/secret", "192.0.2.1") == "secret")
}

#[test]
fn keys_and_conditions_ignore_fields_that_the_client_may_not_set() {
    let origins = ["one", "two", "three", "four"].map(Origin::start);
    for (service, expected) in [
        ("", (false, false)),
        ("trusted = [\"192.0.2.0/24\"]", (false, false)),
        ("trusted = [\"127.0.0.0/8\"]", (true, true)),
        ("forwarded = false", (true, true)),
        ("x_forwarded = { for = \"append\" }", (true, true)),
        (
            "x_forwarded = { for = \"set\" }\ntrusted = [\"127.0.0.0/8\"]",
            (false, false),
        ),
    ] {
        let proxy = start_proxy(&origins, service);
        assert_eq!(effect_of_forged_fields(&proxy), expected, "{service}");
    }
}
