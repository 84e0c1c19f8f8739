//! Controls Debian's Chromium over WebDriver and runs axe, which finds accessibility problems in a page.

#![allow(unreachable_pub, reason = "a module of a test")]

use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weir_testing::{free_address, output_with_input};

/// Time limit for each browser action.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A browser window.
pub struct Browser {
    driver: Child,
    url: String,
}

impl Browser {
    /// Starts chromedriver and opens a window.
    pub fn start() -> Self {
        let address = free_address();
        let driver = Command::new("chromedriver")
            .arg(format!("--port={}", address.port()))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("start chromedriver (`apt-get install chromium-driver` installs it)");
        let launch_time = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(
                launch_time.elapsed() < TIMEOUT,
                "chromedriver is not listening"
            );
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
        let session = browser.post(
            "",
            &json!({"capabilities": {"alwaysMatch": {
                "browserName": "chrome",
                "goog:chromeOptions": {"args": arguments},
                "goog:loggingPrefs": {"browser": "ALL"},
            }}}),
        );
        let id = session["sessionId"]
            .as_str()
            .unwrap_or_else(|| panic!("no session: {session}"));
        browser.url = format!("{}/{id}", browser.url);
        browser
    }

    /// Sends a WebDriver command in the session. Returns the value from the response.
    pub fn post(&self, path: &str, body: &Value) -> Value {
        let arguments = [
            "-H",
            "Content-Type: application/json",
            "--data-binary",
            "@-",
        ];
        self.curl_with(path, &arguments, &body.to_string())
    }

    fn curl(&self, path: &str, arguments: &[&str]) -> Value {
        self.curl_with(path, arguments, "")
    }

    /// The body goes through a pipe, because axe exceeds the maximum length of an argument.
    fn curl_with(&self, path: &str, arguments: &[&str], body: &str) -> Value {
        let mut curl = Command::new("curl");
        curl.args(["-sS", &format!("{}{path}", self.url)])
            .args(arguments);
        let output = output_with_input(&mut curl, body.as_bytes());
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let response: Value =
            serde_json::from_str(&text).unwrap_or_else(|_| panic!("{path}: {text}"));
        let value = response["value"].clone();
        assert!(value["error"].is_null(), "{path}: {value}");
        value
    }

    /// Opens a page.
    pub fn open(&self, page: &str) {
        self.post("/url", &json!({"url": page}));
    }

    /// Runs a function body as a script and returns its result.
    pub fn run(&self, script: &str) -> Value {
        self.post("/execute/sync", &json!({"script": script, "args": []}))
    }

    /// Runs a script repeatedly until its result is neither null nor false. Returns that result.
    pub fn wait_for(&self, description: &str, script: &str) -> Value {
        let start = Instant::now();
        loop {
            let value = self.run(script);
            if !matches!(value, Value::Null | Value::Bool(false)) {
                return value;
            }
            let page = || self.run("return document.body.innerText.slice(0, 2000)");
            assert!(
                start.elapsed() < TIMEOUT,
                "timed out waiting for {description}: {}",
                page()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Types text and special keys, as a user would.
    pub fn press_keys(&self, text: &str) {
        let key_events: Vec<Value> = text
            .chars()
            .flat_map(|key| {
                let key = key.to_string();
                [
                    json!({"type": "keyDown", "value": key}),
                    json!({"type": "keyUp", "value": key}),
                ]
            })
            .collect();
        let keyboard = json!({"type": "key", "id": "keyboard", "actions": key_events});
        self.post("/actions", &json!({"actions": [keyboard]}));
    }

    /// Sets the size of the page in CSS pixels. A window cannot be made as narrow as a phone.
    pub fn resize(&self, width: u32, height: u32) {
        let parameters =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.post(
            "/goog/cdp/execute",
            &json!({"cmd": "Emulation.setDeviceMetricsOverride", "params": parameters}),
        );
    }

    /// Returns a screenshot of the page as a base64-encoded PNG.
    pub fn screenshot(&self) -> String {
        let picture = self.curl("/screenshot", &[]);
        picture.as_str().expect("screenshot is a string").to_owned()
    }

    /// Loads axe into the page.
    pub fn load_axe(&self) {
        let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/axe.sh");
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("axe");
        let status = Command::new(tool).arg(&directory).status();
        assert!(status.expect("run the command").success(), "fetch axe");
        let script = directory.join("node_modules/axe-core/axe.min.js");
        self.run(&std::fs::read_to_string(script).expect("read axe's script"));
    }

    /// Returns the violations of the accessibility rules, with their impact and elements.
    pub fn accessibility_violations(&self) -> Vec<Value> {
        let script = "const done = arguments[arguments.length - 1]; axe.run(document, { resultTypes: ['violations'] })\
                      .then((it) => done(it.violations.map(({ id, impact, help, nodes }) => ({ id, impact, help, \
                      nodes: nodes.map((node) => node.html.slice(0, 200) + ' ' + node.failureSummary) }))), \
                      (error) => done([{ id: String(error), impact: 'serious' }]))";
        let violations = self.post("/execute/async", &json!({"script": script, "args": []}));
        violations.as_array().cloned().expect("value is an array")
    }

    /// Returns the errors and warnings in the console, except the one about the page's missing icon.
    pub fn console_errors(&self) -> Vec<Value> {
        let lines = self.post("/se/log", &json!({"type": "browser"}));
        let lines = lines.as_array().cloned().unwrap_or_default();
        let is_problem = |line: &Value| {
            let text = line["message"].as_str().unwrap_or_default();
            matches!(line["level"].as_str(), Some("SEVERE" | "WARNING"))
                && !text.contains("favicon.ico")
        };
        lines.into_iter().filter(is_problem).collect()
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
