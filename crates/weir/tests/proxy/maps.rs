//! Tests maps, hosts from files, and route limits.

use std::time::{Duration, Instant};

use super::origin::Origin;
use super::{Client, Proxy, free_address, fs};

/// Sends a request from a new client. Returns the head and the body of the response.
fn fetch(proxy: &Proxy, path: &str, host: &str) -> (String, String) {
    let mut client = Client::connect(proxy.listen);
    let (head, body) = client.fetch(&format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    (head, String::from_utf8_lossy(&body).into_owned())
}

fn status(proxy: &Proxy, path: &str, host: &str) -> String {
    fetch(proxy, path, host)
        .0
        .split(' ')
        .nth(1)
        .unwrap_or_default()
        .to_owned()
}

/// Returns the first line of the body, which is the server's name.
fn server_name(proxy: &Proxy, path: &str, host: &str) -> String {
    fetch(proxy, path, host)
        .1
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned()
}

/// Returns a configuration with the pools `one` and `two`, these other tables, and these routes.
fn configuration_with(proxy: &Proxy, origins: [&Origin; 2], tables: &str, routes: &str) -> String {
    let [one, two] = origins.map(Origin::address);
    let listen = proxy.listen;
    format!(
        "{tables}\n[pool.one]\nservers = [\"{one}\"]\n[pool.two]\nservers = [\"{two}\"]\n\n[service.s]\nlisten = \
         [\"{listen}\"]\nforward = \"proxy\"\nprotocol = \"http\"\npool = \"one\"\n\n{routes}\n"
    )
}

#[test]
fn map_selects_pool_and_is_reloaded_on_change() {
    let (one, two) = (Origin::start("one"), Origin::start("two"));
    let proxy = Proxy::start("http", &[free_address()], "");
    let file = proxy.directory.join("hosts.map");
    let entries: String = (0..100_000)
        .map(|index| format!("h{index}.example two\n"))
        .collect();
    fs::write(&file, format!("# hosts\n\na.example one\n{entries}")).expect("write file");
    let tables = format!(
        "[map.hosts]\nfile = {file:?}\n[map.area]\nkind = \"prefix\"\nkey = \"{{path}}\"\nentries = [\"/ public\", \
         \"/admin/ staff only\"]\n[map.net]\nkind = \"network\"\nkey = \"{{client}}\"\nentries = [\"127.0.0.0/8 \
         here\"]\ndefault = \"there\""
    );
    let routes = "[[route]]\nservice = \"s\"\npath = \"/text/*\"\nstatus = 200\nbody = \"{map.area} {map.net} \
                  {map.hosts}\"\n\n[[route]]\nservice = \"s\"\npool = { map = \"hosts\", default = \"one\" }\n\
                  set_header = [\"X-Area: {map.area}\"]";
    let text = configuration_with(&proxy, [&one, &two], &tables, routes);
    proxy.reload(&text);
    assert_eq!(server_name(&proxy, "/", "A.example:80"), "one");
    assert_eq!(server_name(&proxy, "/", "h99999.example"), "two");
    assert_eq!(server_name(&proxy, "/", "unknown.example"), "one");
    assert!(
        fetch(&proxy, "/admin/x", "h1.example")
            .1
            .contains("X-Area: staff only\r\n")
    );
    assert_eq!(fetch(&proxy, "/text/x", "h7.example").1, "public here two");
    let (succeeded, output) = proxy.weir(&[
        "explain",
        "--request",
        &format!("GET http://{}/", proxy.listen),
        "-H",
        "Host: h5.example",
    ]);
    assert!(
        succeeded && output.contains("map hosts has \"two\" for \"h5.example\""),
        "{output}"
    );
    // Weir rereads the file without a reload.
    fs::write(&file, "a.example two\n").expect("write file");
    let deadline = Instant::now() + Duration::from_secs(30);
    while server_name(&proxy, "/", "a.example") != "two" {
        assert!(Instant::now() < deadline, "{}", proxy.log());
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(server_name(&proxy, "/", "h7.example"), "one");
    // Weir rejects a value that is not the name of a pool, and the previous map stays active.
    fs::write(&file, "a.example three\n").expect("write file");
    let (succeeded, output) = proxy.weir(&["reload"]);
    assert!(!succeeded && output.contains("three"), "{output}");
    assert_eq!(server_name(&proxy, "/", "a.example"), "two");
    let (succeeded, output) = proxy.weir(&[
        "check",
        "-c",
        proxy
            .directory
            .join("absent.toml")
            .to_str()
            .expect("not UTF-8"),
    ]);
    assert!(!succeeded, "{output}");
    fs::write(
        proxy.directory.join("weir.toml"),
        text.replace("{map.area}", "{map.aera}"),
    )
    .expect("write file");
    let (succeeded, output) = proxy.weir(&["reload"]);
    assert!(
        !succeeded && output.contains("unknown variable `{map.aera}`"),
        "{output}"
    );
}

#[test]
fn hosts_file_selects_route() {
    let (one, two) = (Origin::start("one"), Origin::start("two"));
    let proxy = Proxy::start("http", &[free_address()], "");
    let file = proxy.directory.join("hosts.txt");
    fs::write(&file, "# ours\na.example\n*.b.example\n~^w[0-9]+$\n").expect("write file");
    let routes = format!(
        "[[route]]\nservice = \"s\"\nhost = [\"c.example\", {{ file = {file:?} }}]\npool = \"two\"\n\n[[route]]\n\
         service = \"s\"\nnot.host = {{ file = {file:?} }}\nstatus = 404\n"
    );
    proxy.reload(&configuration_with(&proxy, [&one, &two], "", &routes));
    for host in ["A.example", "x.B.example:81", "w17", "c.example"] {
        assert_eq!(server_name(&proxy, "/", host), "two", "{host}");
    }
    for host in ["b.example", "x.a.example", "w"] {
        assert_eq!(status(&proxy, "/", host), "404", "{host}");
    }
    fs::write(&file, "a.example\nnot a host\n").expect("write file");
    let (succeeded, output) = proxy.weir(&["reload"]);
    assert!(
        !succeeded && output.contains("hosts.txt:2: not a valid host"),
        "{output}"
    );
}

#[test]
fn route_limits_apply_only_to_the_route() {
    let (one, two) = (Origin::start("one"), Origin::start("two"));
    let proxy = Proxy::start("http", &[free_address()], "");
    let routes = "[[route]]\nservice = \"s\"\npath = \"/login\"\npool = \"one\"\n\
                  limits = { rate = \"1/m\", burst = 3 }\n\n\
                  [[route]]\nservice = \"s\"\npath = \"/key\"\nstatus = 204\n\
                  limits = { rate = \"1/m\", key = \"header:Host\" }\n\n\
                  [[route]]\nservice = \"s\"\npath = \"/slow\"\npool = \"two\"\nmax_connections = 1";
    proxy.reload(&configuration_with(&proxy, [&one, &two], "", routes));
    let statuses: Vec<String> = (0..5).map(|_| status(&proxy, "/login", "h")).collect();
    assert_eq!(statuses, ["200", "200", "200", "429", "429"]);
    assert_eq!(status(&proxy, "/other", "h"), "200");
    let keyed: Vec<String> = ["a", "a", "b"]
        .iter()
        .map(|host| status(&proxy, "/key", host))
        .collect();
    assert_eq!(keyed, ["204", "429", "204"]);
    // Keep a request in progress by sending an incomplete body.
    let mut client = Client::connect(proxy.listen);
    client.send("POST /slow HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n");
    let deadline = Instant::now() + Duration::from_secs(20);
    let active_requests = || {
        let report = proxy.status();
        let servers = report["services"][0]["servers"].as_array().cloned();
        let counts = servers.into_iter().flatten();
        counts
            .filter_map(|server| server["active_connections"].as_u64())
            .sum::<u64>()
    };
    while active_requests() != 1 {
        assert!(Instant::now() < deadline, "the request is not in progress");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(status(&proxy, "/slow", "h"), "503");
    client.send("0\r\n\r\n");
    assert!(
        client
            .read_response()
            .expect("read response")
            .expect("no response")
            .0
            .contains(" 200 ")
    );
    while status(&proxy, "/slow", "h") != "200" {
        assert!(Instant::now() < deadline, "the slot is not released");
        std::thread::sleep(Duration::from_millis(20));
    }
}
