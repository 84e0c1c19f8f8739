//! Tests the dashboard of a director with traffic, services of both planes, checks and a route.
//!
//! Compares every part of the page with the status document, tests the keyboard, links and accessibility, and takes the
//! manual's screenshots.

use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::browser::Browser;
use super::page::is_soak;
use super::world::{Family, World, privileged, wait_for};

/// Environment variable that contains the directory for the manual's screenshots; `make screenshots` sets it.
const SCREENSHOTS_VARIABLE: &str = "WEIR_SCREENSHOTS";

const CONFIG: &str = r#"
[node]
[check.page]
kind = "http"
path = "/name"
interval = "1s"
[pool.web]
scheduler = "wrr"
servers = ["S0:80", { address = "S1:80", weight = 3 }, "S1:81"]
check = "page"
[pool.images]
servers = ["S0:80", "S1:80"]
check = { kind = "tcp", interval = "1s" }
[service.shop]
listen = ["VIP:80"]
forward = "nat"
pool = "web"
[service.www]
listen = ["DIRECTOR:8080"]
forward = "proxy"
protocol = "http"
pool = "web"
[[route]]
service = "www"
path = "/big"
pool = "images"
"#;

fn config() -> String {
    let family = Family::V4;
    CONFIG
        .replace("S0", &family.server(0).to_string())
        .replace("S1", &family.server(1).to_string())
        .replace("VIP", &family.vip().to_string())
        .replace("DIRECTOR", &family.director().to_string())
}

/// Forwards TCP connections to the control socket, like `ssh -L`, until the test program ends.
fn forward_to_socket(socket: PathBuf) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind a listener");
    let address = listener.local_addr().expect("read the local address");
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = UnixStream::connect(&socket) else {
                continue;
            };
            std::thread::spawn(move || splice(&client, &server));
        }
    });
    address
}

fn splice(client: &TcpStream, server: &UnixStream) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ = io::copy(&mut &*client, &mut &*server);
            let _ = server.shutdown(Shutdown::Write);
        });
        let _ = io::copy(&mut &*server, &mut &*client);
        let _ = client.shutdown(Shutdown::Both);
    });
}

/// A network with traffic, and its director's dashboard in a browser.
struct Fixture {
    world: World,
    browser: Browser,
    page: String,
    load: Option<std::process::Child>,
}

impl Fixture {
    fn new() -> Self {
        let mut world = World::new(2);
        world.start_nginx(64 << 10);
        world.route_replies_through_director();
        world.start_daemon(&config());
        world.reload(&config().replace("interval = \"1s\"", "interval = \"500ms\""));
        let family = Family::V4;
        // The load varies, and some requests have nonexistent paths.
        let script = format!(
            "n=0; while :; do n=$((n + 1)); curl -s -o /dev/null -m 2 http://{vip}/name; curl -s -o /dev/null -m 2 \
             http://{director}:8080/name http://{director}:8080/big http://{director}:8080/none$((n % 5)) \
             http://{director}:8080/name; sleep 0.$((1 + n / 40 % 4))5; done",
            vip = family.vip(),
            director = family.director(),
        );
        let load = world
            .command("client", "sh")
            .args(["-c", &script])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("start the clients");
        wait_for("the check and the traffic", Duration::from_secs(30), || {
            let status = world.status();
            status["services"][0]["servers"][2]["state"] == "down"
                && status["services"][1]["requests"].as_u64() > Some(20)
        });
        let address = forward_to_socket(world.path("run-director").join("weir.sock"));
        let browser = Browser::start();
        let page = format!("http://{address}/");
        browser.open(&page);
        browser.wait_for(
            "the rows",
            "return document.querySelectorAll('#list tbody tr[data-id]').length === 8",
        );
        Self {
            world,
            browser,
            page,
            load: Some(load),
        }
    }

    /// Stops the traffic, so the page can be compared with the status document.
    fn stop_load(&mut self) {
        if let Some(mut load) = self.load.take() {
            let _ = load.kill();
            let _ = load.wait();
        }
    }

    /// Returns the rows of a table: cells by column title.
    fn table(&self, id: &str) -> Vec<BTreeMap<String, String>> {
        let script = format!(
            "const table = document.getElementById('{id}'); const clean = (cell) => cell.textContent.replace(/ [↑↓]$/, \
             ''); const titles = [...table.tHead.rows[0].cells].map(clean); return \
             [...table.tBodies[0].rows].filter((row) => !row.ariaHidden).map((row) => \
             Object.fromEntries([...row.cells].map((cell, index) => [titles[index], cell.textContent])))"
        );
        serde_json::from_value(self.browser.run(&script)).expect("parse the rows")
    }

    fn press(&self, text: &str) {
        self.browser.press_keys(text);
    }

    /// Returns a service's server from the status document.
    fn server(&self, service: usize, server: usize) -> Value {
        self.world.status()["services"][service]["servers"][server].clone()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.stop_load();
    }
}

fn text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

#[test]
fn every_part_of_page_matches_status_soak() {
    if !is_soak() || !privileged() {
        return;
    }
    let mut fixture = Fixture::new();
    // The history includes points that the director recorded before the page was opened.
    fixture.browser.wait_for(
        "the history",
        "const points = series.get('all') || []; return points.length > 1 && points[0].time < performance.timeOrigin",
    );
    let charts = "return [...document.querySelectorAll('#charts canvas')].filter((it) => it.ariaLabel || \
                  it.getAttribute('aria-label')).length";
    assert_eq!(fixture.browser.run(charts), 6);
    fixture.browser.wait_for(
        "rates in the chart",
        "return rate('all', 'requests').some((it) => it[1] > 1) && latency('all', 0.5).length > 0",
    );
    fixture.browser.wait_for(
        "rates of the servers",
        "return rows.some((it) => it.rate > 0)",
    );
    fixture.stop_load();
    // The counters stop after the last request.
    let revision = fixture.world.status()["revision"].clone();
    let counters = || {
        let mut status = fixture.world.status();
        for service in status["services"]
            .as_array_mut()
            .expect("services is not an array")
        {
            for server in service["servers"]
                .as_array_mut()
                .expect("servers is not an array")
            {
                server["checks"] = Value::Null;
                server["since"] = Value::Null;
                server["reason"] = Value::Null;
                server["latency"] = Value::Null;
                server["unused_ms"] = Value::Null;
            }
        }
        // Probes also count as packets and flows, so compare two consecutive readings.
        status["services"].clone()
    };
    let mut before = counters();
    wait_for("all flows to end", Duration::from_secs(60), || {
        let current = counters();
        std::mem::replace(&mut before, current.clone()) == current
    });
    fixture.browser.run("return refresh()");
    let status = fixture.world.status();
    let page_revision = fixture
        .browser
        .run("return document.documentElement.dataset.revision");
    assert_eq!(
        (page_revision.as_str(), &status["revision"]),
        (Some("2"), &revision)
    );
    assert_services_match(&fixture, &status);
    assert_servers_match(&fixture, &status);
    assert_other_parts_match(&fixture, &status);
    assert_eq!(fixture.browser.console_errors(), Vec::<Value>::new());
}

fn assert_services_match(fixture: &Fixture, status: &Value) {
    let rows = fixture.table("services");
    for service in status["services"]
        .as_array()
        .expect("services is not an array")
    {
        let name = text(&service["name"]);
        let row = rows.iter().find(|row| row["Service"] == name);
        let row = row.unwrap_or_else(|| panic!("{name}: {rows:#?}"));
        assert_eq!(row["Listen"], text(&service["listen"][0]));
        assert_eq!(row["Forward"], text(&service["forward"]));
        assert_eq!(row["VIP"], text(&service["vip"]));
        assert_eq!(row["Pool"], text(&service["pool"]));
        assert_eq!(row["Connections"], service["connections"].to_string());
        let servers = service["servers"]
            .as_array()
            .expect("servers is not an array");
        let up = servers.iter().filter(|it| it["state"] == "up").count();
        assert_eq!(row["Servers"], format!("{up}/{}", servers.len()));
        if service["protocol"] == "http" {
            let classes = service["responses"]
                .as_array()
                .expect("classes is not an array")
                .iter();
            let classes: Vec<String> = classes.map(ToString::to_string).collect();
            assert_eq!(row["1xx–5xx"], classes.join(" "));
            assert!(row["p50"].ends_with("ms"), "{row:?}");
        }
    }
    // The rows of the proxy service's pools and routes follow its own row.
    for name in ["↳ web", "↳ images"] {
        assert!(rows.iter().any(|row| row["Service"] == name), "{rows:#?}");
    }
    let route = rows.iter().find(|row| row["Service"].contains("/big"));
    let ended = &status["services"][1]["routes"][0]["exchanges"]["ended"];
    assert_eq!(
        route.expect("route not found")["Connections"],
        ended.to_string()
    );
}

fn assert_servers_match(fixture: &Fixture, status: &Value) {
    let rows = fixture.table("list");
    assert_eq!(rows[0]["State"], "down", "the worst state must be first");
    let mut compared = 0;
    for service in status["services"]
        .as_array()
        .expect("services is not an array")
    {
        for server in service["servers"]
            .as_array()
            .expect("servers is not an array")
        {
            let pool = server["pool"].as_str().unwrap_or("web");
            let row = rows.iter().find(|row| {
                row["Server"] == server["address"].as_str().expect("address is not a string")
                    && row["Pool"] == pool
                    && row["Service"] == service["name"].as_str().expect("name is not a string")
            });
            let row = row.unwrap_or_else(|| panic!("{server}: {rows:#?}"));
            assert_eq!(row["State"], text(&server["state"]));
            let weight = match (&server["effective_weight"], &server["weight"]) {
                (effective, configured) if effective == configured => configured.to_string(),
                (effective, configured) => format!("{effective}/{configured}"),
            };
            assert_eq!(row["Weight"], weight);
            assert_eq!(row["Active"], server["active_connections"].to_string());
            assert_eq!(row["Connections"], server["connections"].to_string());
            if service["protocol"] == "http" {
                assert_eq!(row["Requests"], server["requests"].to_string());
                let errors = server["exchanges"]["errors"].as_object();
                let errors: u64 = errors
                    .into_iter()
                    .flat_map(|it| it.values())
                    .filter_map(Value::as_u64)
                    .sum();
                assert_eq!(row["Errors"], errors.to_string());
                assert_eq!(row["p99"].ends_with("ms"), server["latency"].is_object());
            }
            // A probe may have finished between the two documents, so all results on the page must be equal.
            let results = server["checks"][0]["results"]
                .as_str()
                .expect("results is not a string");
            let last = results.chars().last().expect("server has no probe result");
            let are_equal = row["Probes"].chars().all(|it| it == last);
            assert!(!row["Probes"].is_empty() && are_equal, "{row:?} {results}");
            let without_duration = |text: &str| text.split(" in ").next().map(str::to_owned);
            let reason = server["reason"].as_str().expect("reason is not a string");
            assert_eq!(without_duration(&row["Reason"]), without_duration(reason));
            compared += 1;
        }
    }
    assert_eq!(compared, 8);
}

fn assert_other_parts_match(fixture: &Fixture, status: &Value) {
    let interfaces = fixture.table("interfaces");
    assert_eq!(interfaces.len(), 1);
    for (column, field) in [
        ("Interface", "interface"),
        ("Mode", "mode"),
        ("Reason", "reason"),
    ] {
        assert_eq!(interfaces[0][column], text(&status["xdp"][0][field]));
    }
    let paths = fixture
        .browser
        .run("return document.getElementById('ways').textContent");
    assert!(text(&paths).starts_with("fast path: "), "{paths}");
    let packets = fixture.table("packets");
    let reasons = status["reasons"]
        .as_array()
        .expect("reasons is not an array");
    assert_eq!(packets.len(), reasons.len());
    for (row, reason) in packets.iter().zip(reasons) {
        assert_eq!(row["Outcome"], text(&reason["reason"]));
        assert_eq!(row["Meaning"], text(&reason["description"]));
    }
    let reloads = fixture
        .browser
        .run("return document.getElementById('reloads').textContent");
    let change = text(&status["reloads"][0]["changes"][0]);
    assert!(
        !change.is_empty() && text(&reloads).contains(&change),
        "{reloads}"
    );
    assert!(text(&reloads).contains("revision 2"), "{reloads}");
    let summary = fixture
        .browser
        .run("return document.getElementById('summary').textContent");
    assert_eq!(
        summary,
        "revision 2, 2 services, 5 servers, counted in each service: 6 up, 2 down"
    );
}

#[test]
fn keyboard_filters_and_actions_work_soak() {
    if !is_soak() || !privileged() {
        return;
    }
    let fixture = Fixture::new();
    let browser = &fixture.browser;
    assert_eq!(browser.run("return role"), "write");
    // Filter, search and sort.
    browser.run(
        "const state = document.getElementById('state'); state.value = 'down'; state.dispatchEvent(new \
         Event('change'))",
    );
    assert_eq!(fixture.table("list").len(), 2);
    browser.run(
        "const state = document.getElementById('state'); state.value = ''; state.dispatchEvent(new Event('change'))",
    );
    fixture.press("/images");
    browser.wait_for(
        "the search",
        "return shown.length === 2 && shown.every((it) => it.pool === 'images')",
    );
    // Escape leaves the search field, which keeps its text. Otherwise, the keys below would be added to the search.
    fixture.press("\u{e00c}");
    browser.run(
        "const search = document.getElementById('search'); search.value = 'shop'; search.dispatchEvent(new \
         Event('input')); [...document.querySelectorAll('#list thead button')].find((it) => \
         it.textContent.startsWith('Weight')).click()",
    );
    let order = "return shown.map((it) => it.effective)";
    assert_eq!(browser.run(order), json!([0, 1, 3]));
    browser.run(
        "[...document.querySelectorAll('#list thead button')].find((it) => \
         it.textContent.startsWith('Weight')).click()",
    );
    assert_eq!(browser.run(order), json!([3, 1, 0]));
    browser.run("document.activeElement.blur()");
    // The keyboard selects, opens, closes and drains the first row.
    fixture.press("j");
    browser.wait_for("the selection", "return selected === shown[0].id");
    fixture.press("\u{e007}");
    browser.wait_for("the server", "return document.getElementById('panel').open");
    let facts = browser.run("return document.getElementById('panel-facts').textContent");
    for part in ["configured 3", "Check http", "Bytes in, out"] {
        assert!(text(&facts).contains(part), "{part}: {facts}");
    }
    assert!(text(&browser.run("return location.hash")).contains("shop"));
    fixture.press("\u{e00c}");
    browser.wait_for("the list", "return !document.getElementById('panel').open");
    let confirm = "return document.getElementById('confirm').open";
    fixture.press("d");
    browser.wait_for("the question", confirm);
    browser.run("document.querySelector('#confirm button[value=no]').click()");
    assert_eq!(fixture.server(0, 1)["state"], "up");
    for (key, state) in [("d", "drain"), ("m", "maint"), ("r", "up")] {
        fixture.press(key);
        browser.wait_for("the question", confirm);
        browser.run("document.querySelector('#confirm button[value=yes]').click()");
        let row =
            format!("return rows.find((it) => it.id === selected).server.state === '{state}'");
        wait_for("the state", Duration::from_secs(20), || {
            fixture.server(0, 1)["state"] == state
        });
        browser.wait_for(state, &row);
    }
    open_server_by_link(&fixture);
    assert_eq!(browser.console_errors(), Vec::<Value>::new());
}

/// Opens a server's panel through a link and sets the server's weight there.
fn open_server_by_link(fixture: &Fixture) {
    let browser = &fixture.browser;
    browser.open("about:blank");
    let id = format!("shop web {}:80", Family::V4.server(0));
    browser.open(&format!("{}#{}", fixture.page, id.replace(' ', "%20")));
    browser.wait_for("the server", "return document.getElementById('panel').open");
    // Changing the address of the open page also opens the panel, and the browser's back button closes it.
    browser.open("about:blank");
    browser.open(&fixture.page);
    browser.wait_for("the rows", "return rows.length === 8");
    browser.run(&format!("location.hash = {}", json!(id)));
    browser.wait_for("the server", "return document.getElementById('panel').open");
    browser.wait_for(
        "the role",
        "return !!document.querySelector('#panel-actions input')",
    );
    browser.run(
        "document.querySelector('#panel-actions input').value = 7; \
         [...document.querySelectorAll('#panel-actions button')].find((it) => it.textContent === 'weight').click()",
    );
    browser.wait_for(
        "the question",
        "return document.getElementById('confirm').open",
    );
    browser.run("document.querySelector('#confirm button[value=yes]').click()");
    browser.wait_for(
        "the override of the weight",
        "return document.getElementById('panel-facts').textContent.includes('configured 1, override weight 7: 7')",
    );
    assert_eq!(fixture.server(0, 0)["effective_weight"], 7);
    browser.run("history.back()");
    browser.wait_for("the list", "return !document.getElementById('panel').open");
}

/// axe reports nothing serious or critical on any view, in light and dark mode, on wide and narrow screens.
#[test]
fn page_is_accessible_soak() {
    if !is_soak() || !privileged() {
        return;
    }
    let fixture = Fixture::new();
    let browser = &fixture.browser;
    browser.load_axe();
    browser.run("document.body.append(document.createElement('img'))");
    let control = browser.accessibility_violations();
    let is_reported = control.iter().any(|it| it["id"] == "image-alt");
    assert!(
        is_reported,
        "axe must report an image without text: {control:#?}"
    );
    browser.run("document.body.lastChild.remove()");
    let mut views = 0;
    let mut violations = Vec::new();
    for (width, height) in [(1280, 900), (360, 740)] {
        browser.resize(width, height);
        for theme in ["light", "dark"] {
            browser.run(&format!("theme('{theme}'); charts(); draw()"));
            for view in ["", "open(shown[0].id)", "keys", "token", "confirm"] {
                match view {
                    "" => Value::Null,
                    "keys" | "token" | "confirm" => {
                        browser.run(&format!("document.getElementById('{view}').showModal()"))
                    }
                    script => browser.run(script),
                };
                for violation in browser.accessibility_violations() {
                    if matches!(violation["impact"].as_str(), Some("serious" | "critical")) {
                        violations.push(format!("{width} {theme} {view:?}: {violation:#}"));
                    }
                }
                let overflow = browser.run(
                    "return document.documentElement.scrollWidth - document.documentElement.clientWidth",
                );
                assert_eq!(overflow, 0, "{width} {theme} {view:?} scrolls sideways");
                browser
                    .run("for (const it of document.querySelectorAll('dialog[open]')) it.close()");
                views += 1;
            }
        }
    }
    assert!(violations.is_empty(), "{}", violations.join("\n"));
    assert_eq!(views, 20);
    println!("axe: no serious violation in {views} views");
}

/// Writes the manual's screenshots if a directory is set, and prints their sizes.
#[test]
fn manual_screenshots_are_small_soak() {
    if !is_soak() || !privileged() {
        return;
    }
    let directory = std::env::var_os(SCREENSHOTS_VARIABLE).map(PathBuf::from);
    let fixture = Fixture::new();
    let browser = &fixture.browser;
    // Wait until the charts have points.
    let minutes = if directory.is_some() { 6 } else { 0 };
    wait_for(
        "the history",
        Duration::from_secs(60 * minutes + 30),
        || {
            let history = fixture.world.api("/v1/history");
            let history: Value = serde_json::from_str(&history).expect("parse the output");
            let first = history["points"][0]["at_ms"]
                .as_u64()
                .expect("point is not a number");
            let now = history["now_ms"].as_u64().expect("time is not a number");
            now - first >= 60_000 * minutes
        },
    );
    browser.run("series.clear(); recalled.clear(); return refresh()");
    for (name, size, theme, script) in [
        ("dashboard", (1280, 960), "light", ""),
        ("dashboard-dark", (1280, 960), "dark", ""),
        ("server", (1000, 760), "light", "open(shown[2].id)"),
        ("narrow", (390, 760), "dark", ""),
    ] {
        browser.resize(size.0, size.1);
        browser.run(&format!("theme('{theme}'); {script}; return refresh()"));
        if name == "server" {
            browser.wait_for(
                "the server's charts",
                "return (series.get('server ' + opened) || []).length > 4",
            );
        }
        let screenshot = browser.screenshot();
        browser.run("for (const it of document.querySelectorAll('dialog[open]')) it.close()");
        let bytes = screenshot.len() * 3 / 4;
        println!("{name}: {} KB", bytes / 1000);
        assert!((5_000..200_000).contains(&bytes), "{name}: {bytes}");
        if let Some(directory) = &directory {
            write_screenshot(directory, name, &screenshot);
        }
    }
}

fn write_screenshot(directory: &Path, name: &str, screenshot: &str) {
    std::fs::create_dir_all(directory).expect("create a directory");
    let file =
        std::fs::File::create(directory.join(format!("{name}.png"))).expect("create the file");
    let mut decoder = Command::new("base64")
        .arg("-d")
        .stdin(Stdio::piped())
        .stdout(file)
        .spawn()
        .expect("run base64");
    let mut pipe = decoder.stdin.take().expect("stream is not piped");
    io::Write::write_all(&mut pipe, screenshot.as_bytes()).expect("write");
    drop(pipe);
    assert!(decoder.wait().expect("wait for the process").success());
}
