//! What the program says and how it ends, for commands that need neither rights nor a daemon.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// A directory of a test with a configuration in it.
struct Seat {
    directory: PathBuf,
}

impl Seat {
    fn new(name: &str, configuration: &str) -> Self {
        let process = std::process::id();
        let directory = std::env::temp_dir().join(format!("weir-cli-{name}-{process}"));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("weir.toml"), configuration).unwrap();
        Self { directory }
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command
            .args(line.split_whitespace())
            .current_dir(&self.directory)
            .env_remove("WEIR_CONFIG")
            .env("WEIR_RUNTIME_DIR", "run")
            .env("WEIR_PIN_DIR", "pins")
            .stdin(Stdio::null());
        command
    }

    fn output(&self, line: &str) -> Output {
        self.command(line).output().unwrap()
    }

    /// Exit code, stdout and stderr in one text.
    fn run(&self, line: &str) -> String {
        let output = self.output(line);
        let text = format!(
            "$ weir {line}\n{}{}exit {}\n",
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
            output.status.code().unwrap()
        );
        text.replace(self.directory.to_str().unwrap(), "DIRECTORY")
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

const GOOD: &str = r#"[pool.images]
scheduler = "leastconn"
servers = ["10.0.0.5", "10.0.0.6:8080"]

[service.images]
listen = ["192.0.2.10:80"]
forward = "nat"
pool = "images"
"#;

const BAD: &str = r#"[pool.images]
servers = ["10.0.0.5"]
weigth = 3

[service.images]
listen = ["192.0.2.10:80"]
forward = "dirct"
pool = "imges"
"#;

#[test]
fn check_as_json() {
    let seat = Seat::new("json", BAD);
    let output = seat.output("check -c weir.toml --json");
    assert_eq!(output.status.code(), Some(1));
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let found = found.as_array().unwrap();
    let typo = found
        .iter()
        .find(|one| one["message"].as_str().unwrap().contains("weigth"))
        .unwrap();
    assert_eq!(
        (
            &typo["severity"],
            &typo["file"],
            &typo["line"],
            &typo["column"]
        ),
        (&"error".into(), &"weir.toml".into(), &3.into(), &1.into())
    );
    assert!(typo["code"].as_str().unwrap().starts_with('E'), "{typo}");
    assert!(found.len() >= 3, "{found:?}");

    let good = Seat::new("json-good", GOOD);
    let output = good.output("check -c weir.toml --json");
    assert_eq!(output.status.code(), Some(0));
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(found.is_array(), "{found}");

    let output = good.output("check -c missing.toml --json");
    assert_eq!(output.status.code(), Some(1));
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found[0]["file"], "missing.toml");
    assert!(found[0]["fix"].is_string(), "{found}");
}

#[test]
fn check_of_a_good_file() {
    let seat = Seat::new("good", GOOD);
    insta::assert_snapshot!(seat.run("check -c weir.toml"));
    insta::assert_snapshot!("strict", seat.run("check -c weir.toml --strict"));
}

#[test]
fn check_of_a_bad_file_shows_every_mistake() {
    insta::assert_snapshot!(Seat::new("bad", BAD).run("-c weir.toml check"));
}

#[test]
fn check_of_no_file() {
    insta::assert_snapshot!(Seat::new("none", "").run("check -c nothing.toml"));
}

#[test]
fn an_empty_file_is_a_configuration() {
    insta::assert_snapshot!(Seat::new("empty", "").run("check -c weir.toml"));
}

#[test]
fn json_is_the_same_language() {
    let seat = Seat::new("json", "");
    let text = r#"{"pool": {"a": {"servers": ["10.0.0.5"]}}}"#;
    fs::write(seat.directory.join("weir.json"), text).unwrap();
    insta::assert_snapshot!(seat.run("check -c weir.json"));
}

#[test]
fn plan_without_a_daemon() {
    insta::assert_snapshot!(Seat::new("plan", GOOD).run("plan -c weir.toml"));
}

#[test]
fn run_refuses_a_bad_file_before_anything_else() {
    let seat = Seat::new("run", "nod = 1\n");
    insta::assert_snapshot!(seat.run("run -c weir.toml"));
    assert!(!seat.directory.join("run").exists());
}

#[test]
fn without_a_daemon_the_code_is_3() {
    let seat = Seat::new("absent", GOOD);
    let lines = [
        "status",
        "status --watch",
        "reload",
        "server images/10.0.0.5 drain",
    ];
    insta::assert_snapshot!(lines.map(|line| seat.run(line)).join("\n"));
}

#[test]
fn what_is_not_built_says_so() {
    let seat = Seat::new("later", GOOD);
    insta::assert_snapshot!(seat.run("top"));
}

#[test]
fn usage_errors() {
    let seat = Seat::new("usage", GOOD);
    let lines = [
        "",
        "frobnicate",
        "status --jsn",
        "explain",
        "server images drain",
        "server images/10.0.0.5 weight 65536",
        "real-server up --forward nat --vip 192.0.2.1",
        "real-server up --forward direct --vip 192.0.2.1:x",
    ];
    insta::assert_snapshot!(lines.map(|line| seat.run(line)).join("\n"));
    let packet = seat
        .command("explain --packet")
        .arg("tcp nowhere 192.0.2.10:80")
        .output()
        .unwrap();
    assert_eq!(packet.status.code(), Some(2));
    insta::assert_snapshot!("packet", String::from_utf8(packet.stderr).unwrap());
}

#[test]
fn schema_is_json_and_a_closed_pipe_is_no_panic() {
    let seat = Seat::new("schema", "");
    let schema = seat.output("schema");
    let schema: serde_json::Value = serde_json::from_slice(&schema.stdout).unwrap();
    assert_eq!(schema["title"], "weir.toml");

    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = seat.command("schema").stdout(writer).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}

#[test]
fn a_colour_needs_a_terminal() {
    let output = Seat::new("colour", BAD).output("check -c weir.toml");
    assert!(!output.stderr.contains(&0x1b));
}
