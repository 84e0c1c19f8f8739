//! Tests servers from DNS, with a real dnsmasq, and servers that API clients add and remove under load.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::keeper::{ConnectionLoad, wait_until};
use super::servers_file::server_addresses;
use super::{Client, GET, Origin, Proxy, configuration, free_address};

const NAME: &str = "_http._tcp.web.test";

/// dnsmasq on a separate port. Dropping it stops dnsmasq.
struct Dns(Child);

impl Dns {
    fn start(address: SocketAddr, servers: &[SocketAddr]) -> Self {
        let mut command = Command::new("/usr/sbin/dnsmasq");
        command
            .args([
                "--no-daemon",
                "--no-resolv",
                "--no-hosts",
                "--conf-file=/dev/null",
            ])
            .args([
                "--bind-interfaces",
                "--listen-address=127.0.0.1",
                "--local-ttl=1",
                "--user=",
            ])
            .args(["--local=/test/", "--host-record=a.test,127.0.0.1,::1"])
            .arg(format!("--port={}", address.port()));
        for (index, server) in servers.iter().enumerate() {
            let port = server.port();
            command.arg(format!("--srv-host={NAME},a4.test,{port},0,{}", index + 1));
        }
        command.arg("--host-record=a4.test,127.0.0.1");
        // The domain is not `--local`, so dnsmasq, which has no upstream, rejects AAAA queries for it.
        command.arg("--host-record=b.example,127.0.0.1");
        let child = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("start dnsmasq");
        Self(child)
    }
}

impl Drop for Dns {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns a configuration whose pool has this `dns` table.
fn with_dns(proxy: &Proxy, dns: &str) -> String {
    let text = configuration(proxy.listen, "http", &[], "");
    text.replace(
        "[pool.p]\n",
        &format!("[pool.p]\nservers_dns = {{ {dns} }}\n"),
    )
}

/// Returns the discovery error from the status document, or an empty string.
fn discovery_error(proxy: &Proxy) -> String {
    let status = proxy.status();
    let error = status["sources"][0]["problem"].as_str();
    error.unwrap_or_default().to_owned()
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario, step by step")]
fn servers_follow_dns_and_remain_when_records_disappear() {
    let origins: Vec<Origin> = (0..3).map(|_| Origin::start("o")).collect();
    let mut all: Vec<SocketAddr> = origins.iter().map(Origin::address).collect();
    all.sort_unstable();
    let to_strings = |servers: &[SocketAddr]| -> Vec<String> {
        servers.iter().map(SocketAddr::to_string).collect()
    };
    let dns_address = free_address();
    let mut proxy = Proxy::start("http", &[all[0]], "");
    let text = with_dns(
        &proxy,
        &format!("name = \"{NAME}\", record = \"SRV\", resolvers = [\"{dns_address}\"]"),
    );
    let mut dns = Some(Dns::start(dns_address, &all));
    wait_until("the pool has all servers from DNS", || {
        proxy.reload(&text);
        server_addresses(&proxy) == to_strings(&all)
    });
    let status = proxy.status();
    let weight = |index: usize| status["services"][0]["servers"][index]["weight"].as_u64();
    assert_eq!([0, 1, 2].map(weight), [Some(1), Some(2), Some(3)]);

    let load = ConnectionLoad::start(proxy.listen);
    // Restart the name server with fewer records. Their TTL is one second.
    drop(dns.take());
    dns = Some(Dns::start(dns_address, &all[..2]));
    wait_until("the pool has two servers", || {
        server_addresses(&proxy) == to_strings(&all[..2])
    });
    drop(dns.take());
    wait_until("the status has an error", || {
        !discovery_error(&proxy).is_empty()
    });
    assert_eq!(server_addresses(&proxy), to_strings(&all[..2]));
    let (_, output) = proxy.weir(&["status"]);
    assert!(
        output.contains(&format!(
            "pool p: 2 servers from {NAME} SRV; the previous servers remain in use: "
        )),
        "{output}"
    );
    dns = Some(Dns::start(dns_address, &[]));
    wait_until("the status reports NXDOMAIN", || {
        discovery_error(&proxy).contains("NXDOMAIN")
    });
    assert_eq!(server_addresses(&proxy), to_strings(&all[..2]));
    let [served, refused, failed] = load.stop();
    assert!(served > 0);
    assert_eq!((refused, failed), (0, 0));

    // The servers also survive a restart without a name server.
    drop(dns.take());
    assert!(proxy.terminate().success());
    proxy.start_again();
    assert_eq!(server_addresses(&proxy), to_strings(&all[..2]));
    let _dns = Dns::start(dns_address, &all);
    wait_until("the pool has three servers", || {
        server_addresses(&proxy) == to_strings(&all) && discovery_error(&proxy).is_empty()
    });
    // The name has addresses of both families. The configuration specifies the port.
    proxy.reload(&with_dns(
        &proxy,
        &format!("name = \"a.test.\", port = 8080, resolvers = [\"{dns_address}\"]"),
    ));
    assert_eq!(server_addresses(&proxy), ["127.0.0.1:8080", "[::1]:8080"]);
    let name = format!("name = \"b.example\", port = 8080, resolvers = [\"{dns_address}\"]");
    proxy.reload(&with_dns(&proxy, &name));
    wait_until("the status has an error", || {
        !discovery_error(&proxy).is_empty()
    });
    let error = discovery_error(&proxy);
    for part in ["query for AAAA: ", "REFUSED", "`record = \"A\"`"] {
        assert!(error.contains(part), "{error}");
    }
    proxy.reload(&with_dns(&proxy, &format!("{name}, record = \"A\"")));
    wait_until("the pool has the address of the A record", || {
        server_addresses(&proxy) == ["127.0.0.1:8080"]
    });
}

/// The new name has fewer than half as many servers as the previous one.
#[test]
fn servers_of_replaced_name_are_used_until_the_new_name_resolves() {
    let origins: Vec<Origin> = (0..3).map(|_| Origin::start("o")).collect();
    let mut all: Vec<SocketAddr> = origins.iter().map(Origin::address).collect();
    all.sort_unstable();
    let all_names: Vec<String> = all.iter().map(SocketAddr::to_string).collect();
    let (dns_address, other_address) = (free_address(), free_address());
    let proxy = Proxy::start("http", &[all[0]], "");
    let _dns = Dns::start(dns_address, &all);
    let text = with_dns(
        &proxy,
        &format!("name = \"{NAME}\", record = \"SRV\", resolvers = [\"{dns_address}\"]"),
    );
    wait_until("the pool has all servers from DNS", || {
        proxy.reload(&text);
        server_addresses(&proxy) == all_names
    });
    // The name server for the new name is not running yet.
    proxy.reload(&with_dns(
        &proxy,
        &format!(
            "name = \"a4.test\", record = \"A\", port = 8080, resolvers = [\"{other_address}\"]"
        ),
    ));
    assert_eq!(server_addresses(&proxy), all_names);
    let (_, output) = proxy.weir(&["status"]);
    assert!(
        output.contains("pool p: 3 servers from a4.test A; the previous servers remain in use: ")
            && output.contains(&format!(" (the servers are from {NAME} SRV)")),
        "{output}"
    );
    let _other_dns = Dns::start(other_address, &[]);
    wait_until("the pool has the server of the new name", || {
        server_addresses(&proxy) == ["127.0.0.1:8080"] && discovery_error(&proxy).is_empty()
    });
}

/// The server to which a name resolves gets clients only while the other server is in maintenance, and its cookie has
/// the configured value.
#[test]
fn dns_name_can_be_backup_with_cookie() {
    let (one, two) = (Origin::start("one"), Origin::start("two"));
    let dns_address = free_address();
    let _dns = Dns::start(dns_address, &[]);
    let proxy = Proxy::start("http", &[one.address()], "");
    let text = configuration(proxy.listen, "http", &[one.address()], "").replace(
        "[pool.p]\n",
        &format!(
            "[pool.p]\nsticky = {{ cookie = \"S\" }}\n\
             servers_dns = {{ name = \"b.example\", record = \"A\", port = {}, cookie = \"b1\", backup = true, \
             resolvers = [\"{dns_address}\"] }}\n",
            two.address().port()
        ),
    );
    wait_until("the pool has both servers", || {
        proxy.reload(&text);
        server_addresses(&proxy).len() == 2
    });
    let mut client = Client::connect(proxy.listen);
    for _ in 0..10 {
        let (head, body) = client.fetch(GET);
        assert!(body.starts_with(b"one"), "{head}");
    }
    let regular = format!("p/{}", one.address());
    assert!(proxy.weir(&["server", &regular, "maint"]).0);
    let mut client = Client::connect(proxy.listen);
    let (head, body) = client.fetch(GET);
    assert!(body.starts_with(b"two"), "{head}");
    assert!(head.contains("Set-Cookie: S=b1"), "{head}");
}

/// Sends a request over the control socket. Returns the response.
pub(super) fn call_api(proxy: &Proxy, method: &str, path: &str, body: &str) -> String {
    let mut stream = UnixStream::connect(proxy.directory.join("run/weir.sock"))
        .expect("connect to the control socket");
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: weir\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).expect("write");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("read response");
    response
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario, step by step")]
fn no_request_fails_during_ten_membership_changes_per_second_soak() {
    let (one, two) = (Origin::start("one"), Origin::start("two"));
    let mut proxy = Proxy::start("http", &[one.address()], "");
    let path = format!("/v1/servers/p/{}", two.address());
    let change = |method: &str, path: &str, body: &str| {
        let response = call_api(&proxy, method, path, body);
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    };
    // Measure first without load, because under load the request competes for CPU time.
    let mut unloaded = Vec::new();
    for _ in 0..5 {
        for (method, body) in [("PUT", r#"{"weight": 3}"#), ("DELETE", "")] {
            let started = Instant::now();
            change(method, &path, body);
            unloaded.push(started.elapsed());
        }
    }
    unloaded.sort_unstable();
    println!(
        "a change without load took {:?}",
        unloaded[unloaded.len() / 2]
    );
    let load = ConnectionLoad::start(proxy.listen);
    let rounds = if std::env::var_os("WEIR_SOAK").is_some() {
        300
    } else {
        20
    };
    let mut latencies = Vec::new();
    for round in 0..rounds {
        for (method, body, servers) in [("PUT", r#"{"weight": 3}"#, 2), ("DELETE", "", 1)] {
            let started = Instant::now();
            change(method, &path, body);
            latencies.push(started.elapsed());
            if round % 10 == 0 {
                assert_eq!(server_addresses(&proxy).len(), servers);
            }
            std::thread::sleep(Duration::from_millis(100).saturating_sub(started.elapsed()));
        }
    }
    latencies.sort_unstable();
    let [served, refused, failed] = load.stop();
    println!(
        "{} changes, {served} requests served, {refused} refused, {failed} failed; a change took {:?}, at most {:?}",
        latencies.len(),
        latencies[latencies.len() / 2],
        latencies[latencies.len() - 1]
    );
    assert_eq!((refused, failed), (0, 0));

    // An added server gets requests and survives a reload and a restart, and `weir status` shows where it comes from.
    change("PUT", &path, "");
    proxy.reload(&configuration(proxy.listen, "http", &[one.address()], ""));
    assert!(proxy.terminate().success());
    proxy.start_again();
    assert_eq!(
        server_addresses(&proxy),
        [one.address(), two.address()].map(|server| server.to_string())
    );
    let before = two.connections();
    let mut client = Client::connect(proxy.listen);
    wait_until("the added server gets a request", || {
        client.fetch(GET);
        two.connections() > before
    });
    for (method, path, body, reason) in [
        (
            "PUT",
            format!("/v1/servers/p/{}", one.address()),
            "",
            "is defined in the configuration",
        ),
        (
            "DELETE",
            format!("/v1/servers/p/{}", one.address()),
            "",
            "is defined in the configuration",
        ),
        (
            "PUT",
            "/v1/servers/p/10.0.0.300".to_owned(),
            "",
            "10.0.0.300",
        ),
        ("PUT", "/v1/servers/q/10.0.0.3".to_owned(), "", "no pool q"),
        ("PUT", path.clone(), r#"{"wieght": 3}"#, "wieght"),
        ("PUT", path, "[]", "invalid body"),
    ] {
        let response = call_api(&proxy, method, &path, body);
        assert!(
            response.starts_with("HTTP/1.1 4") && response.contains(reason),
            "{response}"
        );
    }
}
