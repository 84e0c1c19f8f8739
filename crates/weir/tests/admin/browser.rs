//! The dashboard in Debian's chromium, driven over WebDriver: it shows what the status document says, acts, and logs no
//! error. Only in the long form of the tests: the browser has 300 MB.

use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weir_testing::free_address;

use super::daemon::AdminDaemon;

/// How long the browser may take for anything.
const PATIENCE: Duration = Duration::from_secs(60);

fn is_soak() -> bool {
    std::env::var_os("WEIR_SOAK").is_some()
}

/// A browser window.
struct Browser {
    driver: Child,
    url: String,
}

impl Browser {
    fn start() -> Self {
        let address = free_address();
        let driver = Command::new("chromedriver")
            .arg(format!("--port={}", address.port()))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver runs; `apt-get install chromium-driver` installs it");
        let begun = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(begun.elapsed() < PATIENCE, "chromedriver does not listen");
            std::thread::sleep(Duration::from_millis(50));
        }
        let mut browser = Self {
            driver,
            url: format!("http://{address}/session"),
        };
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--window-size=1280,900",
        ];
        let made = browser.post(
            "",
            &json!({"capabilities": {"alwaysMatch": {
                "browserName": "chrome",
                "goog:chromeOptions": {"args": arguments},
                "goog:loggingPrefs": {"browser": "ALL"},
            }}}),
        );
        let id = made["sessionId"]
            .as_str()
            .unwrap_or_else(|| panic!("no session: {made}"));
        browser.url = format!("{}/{id}", browser.url);
        browser
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        self.curl(
            path,
            &[
                "-H",
                "Content-Type: application/json",
                "-d",
                &body.to_string(),
            ],
        )
    }

    fn curl(&self, path: &str, arguments: &[&str]) -> Value {
        let output = Command::new("curl")
            .args(["-sS", &format!("{}{path}", self.url)])
            .args(arguments)
            .output()
            .expect("curl runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let answer: Value =
            serde_json::from_str(&text).unwrap_or_else(|_| panic!("{path}: {text}"));
        let value = answer["value"].clone();
        assert!(value["error"].is_null(), "{path}: {value}");
        value
    }

    fn open(&self, page: &str) {
        self.post("/url", &json!({"url": page}));
    }

    /// The result of a script's body.
    fn run(&self, script: &str) -> Value {
        self.post("/execute/sync", &json!({"script": script, "args": []}))
    }

    fn until(&self, what: &str, script: &str) -> Value {
        let begun = Instant::now();
        loop {
            let value = self.run(script);
            if !matches!(value, Value::Null | Value::Bool(false)) {
                return value;
            }
            let page = || self.run("return document.body.innerText.slice(0, 2000)");
            assert!(begun.elapsed() < PATIENCE, "waited for {what}: {}", page());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Errors and warnings in the console; a page without an icon is none.
    fn complaints(&self) -> Vec<Value> {
        let lines = self.post("/se/log", &json!({"type": "browser"}));
        let lines = lines.as_array().cloned().unwrap_or_default();
        let is_complaint = |line: &Value| {
            let text = line["message"].as_str().unwrap_or_default();
            matches!(line["level"].as_str(), Some("SEVERE" | "WARNING"))
                && !text.contains("favicon.ico")
        };
        lines.into_iter().filter(is_complaint).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = Command::new("curl")
            .args(["-sS", "-X", "DELETE", &self.url])
            .output();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

const ROWS: &str = "return [...document.querySelectorAll('#list tbody tr[data-id]')].map(row => \
                    [...row.cells].map(cell => cell.textContent))";

#[test]
#[expect(clippy::too_many_lines, reason = "one visit of the page")]
fn page_shows_the_status_and_drains_a_server_at_length() {
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
    browser.until(
        "the rows",
        "return document.querySelectorAll('#list tbody tr[data-id]').length === 3",
    );
    let rows = browser.run(ROWS);
    let status: Value = serde_json::from_str(&daemon.weir(&["status", "--json"]).1).expect("JSON");
    let servers = status["services"][0]["servers"]
        .as_array()
        .expect("servers");
    for server in servers {
        let row = rows.as_array().expect("rows").iter();
        let row: Vec<&str> = row
            .map(|row| row.as_array().expect("cells"))
            .find(|row| row[1] == server["address"])
            .expect("a row of each server")
            .iter()
            .map(|cell| cell.as_str().unwrap_or_default())
            .collect();
        let weight = server["effective_weight"].to_string();
        assert_eq!(
            [row[0], row[2], row[3], row[4], row[13]],
            [
                server["state"].as_str().expect("a state"),
                server["pool"].as_str().expect("a pool"),
                "s",
                &weight,
                server["reason"].as_str().expect("a reason")
            ]
        );
    }
    let summary = browser.run("return document.getElementById('summary').textContent");
    assert_eq!(summary, "revision 1, 1 service, 3 servers: 3 unchecked");

    // Without a token there are no actions.
    browser.run("document.querySelector('#list tbody tr[data-id]').click()");
    let actions = browser.until(
        "the panel",
        "return document.getElementById('panel-actions').textContent",
    );
    assert!(
        actions.as_str().expect("a text").starts_with("read-only"),
        "{actions}"
    );
    // With one, a server is drained after a question.
    let own = daemon.own_token();
    browser.run(&format!(
        "sessionStorage.setItem('weir-token', {}); location.hash = ''; location.reload()",
        json!(own.trim())
    ));
    browser.until(
        "the role",
        "return document.getElementById('role').textContent.includes('write') && \
         !!document.querySelector('#list tbody tr[data-id*=\"127.0.0.1:2\"]')",
    );
    browser.run("document.querySelector('#list tbody tr[data-id*=\"127.0.0.1:2\"]').click()");
    browser.until(
        "the button",
        "return !!document.querySelector('#panel-actions button')",
    );
    browser.run(
        "[...document.querySelectorAll('#panel-actions button')].find(it => it.textContent === 'drain').click()",
    );
    browser.until(
        "the question",
        "return document.getElementById('confirm').open",
    );
    browser.run("document.querySelector('#confirm button[value=yes]').click()");
    let shown = "return [...document.querySelectorAll('#list tbody tr[data-id*=\"127.0.0.1:2\"] td')].some(it => \
                 it.textContent === 'drain')";
    browser.until("the state on the page", shown);
    let (_, status) = daemon.weir(&["status", "--json"]);
    let status: Value = serde_json::from_str(&status).expect("JSON");
    assert_eq!(status["services"][0]["servers"][1]["state"], "drain");
    assert_eq!(browser.complaints(), Vec::<Value>::new());
}

/// What a browser measures with 10 000 servers is printed; no time is asserted. The table contains only visible rows.
#[test]
fn page_of_10000_servers_contains_the_visible_rows_at_length() {
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
    let config = std::fs::read_to_string(daemon.config()).expect("a file");
    daemon.write(
        "weir.toml",
        &config.replace("\"127.0.0.1:1\"", &servers.join(",\n")),
    );
    let (is_done, said) = daemon.weir(&["reload"]);
    assert!(is_done, "{said}");
    let browser = Browser::start();
    browser.open(&format!("http://{}/", daemon.admin));
    browser.until(
        "the summary",
        "return document.getElementById('summary').textContent.includes('10000 servers')",
    );
    let rows = browser.run("return document.querySelectorAll('#list tbody tr[data-id]').length");
    assert!(
        (1..200).contains(&rows.as_u64().expect("a number")),
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
    browser.run(
        "const search = document.getElementById('search'); search.value = '127.1.3.7:'; \
         search.dispatchEvent(new Event('input'))",
    );
    browser.until(
        "the search",
        "return document.getElementById('count').textContent === '1 of 10000'",
    );
    assert_eq!(browser.complaints(), Vec::<Value>::new());
}
