//! Tests the dashboard in a browser: it shows the status document, executes actions, is accessible, and logs no errors.
//! These tests run only in the long form, because the browser's package takes 300 MB.

use serde_json::{Value, json};

use super::browser::Browser;
use super::daemon::AdminDaemon;

pub(super) fn is_soak() -> bool {
    std::env::var_os("WEIR_SOAK").is_some()
}

const ROWS: &str = "return [...document.querySelectorAll('#list tbody tr[data-id]')].map(row => \
                    [...row.cells].map(cell => cell.textContent))";

#[test]
#[expect(clippy::too_many_lines, reason = "one visit of the page")]
fn page_shows_status_and_drains_server_soak() {
    if !is_soak() {
        return;
    }
    let daemon = AdminDaemon::start_with(
        "",
        "\"127.0.0.1:1\", { address = \"127.0.0.1:2\", weight = 3 }, \"127.0.0.1:3\"",
    );
    let browser = Browser::start();
    let page = format!("http://{}/", daemon.admin);
    browser.open(&page);
    browser.wait_for(
        "the rows",
        "return document.querySelectorAll('#list tbody tr[data-id]').length === 3",
    );
    let rows = browser.run(ROWS);
    let status: Value =
        serde_json::from_str(&daemon.weir(&["status", "--json"]).1).expect("parse output");
    let servers = status["services"][0]["servers"]
        .as_array()
        .expect("servers is not an array");
    for server in servers {
        let row = rows.as_array().expect("rows is not an array").iter();
        let row: Vec<&str> = row
            .map(|row| row.as_array().expect("cells is not an array"))
            .find(|row| row[1] == server["address"])
            .expect("no row for the server")
            .iter()
            .map(|cell| cell.as_str().unwrap_or_default())
            .collect();
        let weight = server["effective_weight"].to_string();
        assert_eq!(
            [row[0], row[2], row[3], row[4], row[14]],
            [
                server["state"].as_str().expect("state is not a string"),
                server["pool"].as_str().expect("pool is not a string"),
                "s",
                &weight,
                server["reason"].as_str().expect("reason is not a string")
            ]
        );
    }
    let summary = browser.run("return document.getElementById('summary').textContent");
    assert_eq!(summary, "revision 1, 1 service, 3 servers: 3 unchecked");

    // Without a token, the page offers no actions.
    browser.run("document.querySelector('#list tbody tr[data-id]').click()");
    let actions = browser.wait_for(
        "the panel",
        "return document.getElementById('panel-actions').textContent",
    );
    assert!(
        actions
            .as_str()
            .expect("value is not a string")
            .starts_with("read-only"),
        "{actions}"
    );
    // With a token, the page drains a server after the user confirms.
    let token = daemon.runtime_token();
    browser.run(&format!(
        "sessionStorage.setItem('weir-token', {}); location.hash = ''; location.reload()",
        json!(token.trim())
    ));
    browser.wait_for(
        "the role",
        "return document.getElementById('role').textContent.includes('write') && \
         !!document.querySelector('#list tbody tr[data-id*=\"127.0.0.1:2\"]')",
    );
    browser.run("document.querySelector('#list tbody tr[data-id*=\"127.0.0.1:2\"]').click()");
    browser.wait_for(
        "the button",
        "return !!document.querySelector('#panel-actions button')",
    );
    browser.run(
        "[...document.querySelectorAll('#panel-actions button')].find(it => it.textContent === 'drain').click()",
    );
    browser.wait_for(
        "the confirmation dialog",
        "return document.getElementById('confirm').open",
    );
    browser.run("document.querySelector('#confirm button[value=yes]').click()");
    let script = "return [...document.querySelectorAll('#list tbody tr[data-id*=\"127.0.0.1:2\"] td')].some(it => \
                 it.textContent === 'drain')";
    browser.wait_for("the state on the page", script);
    let (_, status) = daemon.weir(&["status", "--json"]);
    let status: Value = serde_json::from_str(&status).expect("parse output");
    assert_eq!(status["services"][0]["servers"][1]["state"], "drain");
    assert_eq!(browser.console_errors(), Vec::<Value>::new());
}

/// Prints how long the page takes to update and how long the daemon takes to serve the metrics, with up to 10,000
/// servers.
fn print_durations(browser: &Browser, daemon: &AdminDaemon) {
    for count in [1_000, 10_000] {
        let elapsed = browser.run(&format!(
            "const all = report; report = {{ ...all, services: all.services.map((it) => ({{ ...it, servers: \
             it.servers.slice(0, {count}) }})) }}; const start = performance.now(); gather(); services(); filter(); \
             charts(); const elapsed = performance.now() - start; report = all; return [rows.length, elapsed]"
        ));
        assert_eq!(elapsed[0], count);
        println!(
            "{count} servers: the page is updated within {} ms",
            elapsed[1]
        );
    }
    let elapsed = browser.run(
        "const view = document.getElementById('viewport'); const start = performance.now(); for (let i = 0; i < \
         100; i++) { view.scrollTop = i * 3000; draw(); view.getBoundingClientRect(); } return (performance.now() - \
         start) / 100",
    );
    println!("10000 servers: a scrolled list is drawn within {elapsed} ms");
    let started = std::time::Instant::now();
    let metrics = daemon.get("/metrics", None);
    println!(
        "10000 servers: /metrics, {} bytes, within {:?}",
        metrics.len(),
        started.elapsed()
    );
    assert!(metrics.matches("\nweir_server_weight{").count() == 10_000);
}

/// Prints the browser's measurements with 10,000 servers. Asserts no time, but asserts that the table contains only the
/// visible rows.
#[test]
fn page_of_10000_servers_contains_only_visible_rows_soak() {
    if !is_soak() {
        return;
    }
    let servers: Vec<String> = (0..10_000)
        .map(|n| {
            format!(
                "\"127.{}.{}.{}:1\"",
                1 + n / 62_500,
                n / 250 % 250,
                1 + n % 250
            )
        })
        .collect();
    let daemon = AdminDaemon::start("");
    let config = std::fs::read_to_string(daemon.config()).expect("read the file");
    daemon.write(
        "weir.toml",
        &config.replace("\"127.0.0.1:1\"", &servers.join(",\n")),
    );
    let (succeeded, output) = daemon.weir(&["reload"]);
    assert!(succeeded, "{output}");
    let browser = Browser::start();
    browser.open(&format!("http://{}/", daemon.admin));
    browser.wait_for(
        "the summary",
        "return document.getElementById('summary').textContent.includes('10000 servers')",
    );
    let rows = browser.run("return document.querySelectorAll('#list tbody tr[data-id]').length");
    assert!(
        (1..200).contains(&rows.as_u64().expect("value is not a number")),
        "{rows}"
    );
    let count = browser.run("return document.getElementById('count').textContent");
    assert_eq!(count, "10000 of 10000");
    let paint =
        browser.run("return performance.getEntriesByName('first-contentful-paint')[0].startTime");
    let loaded = browser.run(
        "const status = performance.getEntriesByType('resource').find(it => it.name.endsWith('v1/status')); return \
         status.responseEnd",
    );
    println!(
        "10000 servers: first contentful paint {paint} ms, status received {loaded} ms after the navigation"
    );
    print_durations(&browser, &daemon);
    browser.run(
        "const search = document.getElementById('search'); search.value = '127.1.3.7:'; \
         search.dispatchEvent(new Event('input'))",
    );
    browser.wait_for(
        "the search",
        "return document.getElementById('count').textContent === '1 of 10000'",
    );
    assert_eq!(browser.console_errors(), Vec::<Value>::new());
}
