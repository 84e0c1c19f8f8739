//! Tests commands and replies with a thread that handles the pipes as ExaBGP does.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use weir_model::{Announce, RequiredServices, Speaker};

use super::*;
use crate::speaker::{Driver, Routes, step_size};

/// ExaBGP's pipes, with a thread that handles them as ExaBGP does: it opens the reply pipe for each reply, and
/// keeps a reply until a process reads it.
struct ExaBgp {
    pipe: PathBuf,
    commands: Arc<Mutex<Vec<String>>>,
    is_stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for ExaBgp {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
        let _ = std::fs::remove_dir_all(self.pipe.parent().unwrap());
    }
}

impl ExaBgp {
    /// Creates the pipes.
    fn new(test: &str) -> Self {
        let name = format!("weir-exabgp-{test}-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir(&directory).unwrap();
        let pipe = directory.join("exabgp.in");
        let status = std::process::Command::new("mkfifo")
            .args([&pipe, &pipe.with_extension("out")])
            .status();
        assert!(status.unwrap().success());
        Self {
            pipe,
            commands: Arc::default(),
            is_stopped: Arc::default(),
            thread: None,
        }
    }

    /// Starts the thread, which sends the result of `reply` for each command, or nothing if the result is empty.
    /// `earlier_replies` are unread replies to earlier commands.
    fn start(
        &mut self,
        earlier_replies: &[&str],
        reply: impl Fn(&str) -> &'static str + Send + 'static,
    ) {
        let mut input = options().read(true).write(true).open(&self.pipe).unwrap();
        let output = self.pipe.with_extension("out");
        let commands = Arc::clone(&self.commands);
        let is_stopped = Arc::clone(&self.is_stopped);
        let mut replies: VecDeque<String> =
            earlier_replies.iter().map(|it| format!("{it}\n")).collect();
        self.thread = Some(std::thread::spawn(move || {
            let mut text = Vec::new();
            while !is_stopped.load(Ordering::Relaxed) {
                let mut buffer = [0; 1024];
                match input.read(&mut buffer) {
                    Ok(length) => text.extend_from_slice(&buffer[..length]),
                    Err(_) => std::thread::sleep(Duration::from_millis(1)),
                }
                while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = text.drain(..=end).collect();
                    let line = String::from_utf8(line).unwrap();
                    let reply = reply(line.trim_end());
                    replies.extend((!reply.is_empty()).then(|| format!("{reply}\n")));
                    commands.lock().unwrap().push(line.trim_end().to_owned());
                }
                while let Some(reply) = replies.front()
                    && let Ok(mut output) = options().write(true).open(&output)
                    && output.write_all(reply.as_bytes()).is_ok()
                {
                    replies.pop_front();
                }
            }
        }));
    }

    fn commands(&self) -> Vec<String> {
        self.commands.lock().unwrap().clone()
    }

    fn settings(&self) -> Announce {
        Announce {
            speaker: Speaker::Exabgp {
                pipe: self.pipe.clone(),
            },
            withdraw_after: Duration::from_secs(10),
            drain_delay: Duration::from_secs(5),
            services: None,
            require: RequiredServices::Any,
            communities: Vec::new(),
            drain_communities: Vec::new(),
        }
    }
}

/// Returns the routes to the first addresses of a network.
fn routes(count: u32) -> Routes {
    let addresses = (1..=count).map(|n| IpAddr::from(Ipv4Addr::from_bits(0x0a00_0000 + n)));
    addresses.map(|vip| (vip, Quality::Normal)).collect()
}

#[tokio::test]
async fn more_routes_than_the_pipe_can_hold_are_announced_and_withdrawn() {
    let mut exabgp = ExaBgp::new("many");
    exabgp.start(&[], |_| "done");
    let (settings, current) = (exabgp.settings(), routes(2500));
    let mut driver = Driver::new([]);
    for routes in [&current, &Routes::new()] {
        for step in 0..current.len().div_ceil(step_size(&settings.speaker)) {
            assert!(driver.needs_step(routes), "finished at step {step}");
            driver.apply(&settings, routes).await.unwrap();
        }
        assert!(!driver.needs_step(routes));
    }
    let commands = exabgp.commands();
    let count = |action: &str| {
        let commands = commands.iter().filter(|it| it.starts_with(action));
        let mut commands: Vec<&String> = commands.collect();
        commands.sort();
        commands.dedup();
        commands.len()
    };
    assert_eq!(commands.len(), 2 * current.len());
    assert_eq!(count("announce route"), current.len());
    assert_eq!(count("withdraw route"), current.len());
}

#[tokio::test]
async fn full_pipe_delays_commands() {
    let mut exabgp = ExaBgp::new("full");
    let mut filler = options().read(true).write(true).open(&exabgp.pipe).unwrap();
    let line = format!("# {}\n", "x".repeat(1021));
    while filler.write_all(line.as_bytes()).is_ok() {}
    let (settings, current) = (exabgp.settings(), routes(10));
    let mut driver = Driver::new([]);
    // The pipe is full when the first command is written, because the thread does not run yet.
    let apply = driver.apply(&settings, &current);
    let start = async { exabgp.start(&[], |line| if line.starts_with('#') { "" } else { "done" }) };
    let (result, ()) = tokio::join!(apply, start);
    result.unwrap();
    assert!(!driver.needs_step(&current));
    drop(filler);
}

#[tokio::test]
async fn rejected_route_is_reported_and_others_are_accepted() {
    let mut exabgp = ExaBgp::new("rejected");
    exabgp.start(&[], |line| match line.contains("10.0.0.2/32") {
        true => "error",
        false => "done",
    });
    let (settings, current) = (exabgp.settings(), routes(3));
    let mut driver = Driver::new([]);
    for _ in 0..2 {
        let error = driver.apply(&settings, &current).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "exabgp: rejected `announce route 10.0.0.2/32 next-hop self origin igp`: ExaBGP's log contains the reason"
        );
        let accepted_vips = current.keys().filter(|vip| driver.has_accepted(**vip));
        let accepted_vips: Vec<String> = accepted_vips.map(ToString::to_string).collect();
        assert_eq!(accepted_vips, ["10.0.0.1", "10.0.0.3"]);
    }
    assert_eq!(
        exabgp.commands().len(),
        4,
        "only the rejected route is sent again"
    );
}

#[tokio::test]
async fn replies_to_earlier_commands_are_skipped() {
    let mut exabgp = ExaBgp::new("earlier");
    exabgp.start(&["error", "Peer  AS  up/down", "error"], |_| "done");
    let (settings, current) = (exabgp.settings(), routes(2));
    let mut driver = Driver::new([]);
    driver.apply(&settings, &current).await.unwrap();
    assert!(!driver.needs_step(&current));
    driver.apply(&settings, &Routes::new()).await.unwrap();
    assert_eq!(driver.announced_vips().count(), 0);
}

#[tokio::test]
async fn missing_reply_is_a_timeout_if_exabgp_has_replied_before() {
    let mut exabgp = ExaBgp::new("missing");
    exabgp.start(&[], |line| match line.contains("10.0.0.3/32") {
        true => "",
        false => "done",
    });
    let settings = exabgp.settings();
    let mut driver = Driver::new([]);
    driver.apply(&settings, &routes(2)).await.unwrap();
    let error = driver.apply(&settings, &routes(3)).await.unwrap_err();
    assert_eq!(error.to_string(), "exabgp did not reply in time");
    assert!(!driver.has_accepted(*routes(3).last_key_value().unwrap().0));
}

#[tokio::test]
async fn written_commands_are_accepted_if_exabgp_does_not_reply() {
    let mut exabgp = ExaBgp::new("silent");
    exabgp.start(&[], |_| "");
    let command = ["announce route 10.0.0.1/32 next-hop self\n".to_owned()];
    let mut replies = Replies::default();
    for _ in 0..2 {
        let results = exchange(&exabgp.pipe, &command, &mut replies).await;
        assert_eq!(results.unwrap(), [Ok(())]);
        // The next step does not wait for replies.
        assert!(replies.is_settled && !replies.is_replying, "{replies:?}");
    }
    replies.expect_earlier();
    std::fs::remove_file(exabgp.pipe.with_extension("out")).unwrap();
    let results = exchange(&exabgp.pipe, &command, &mut replies).await;
    assert_eq!(results.unwrap(), [Ok(())]);
}

#[tokio::test]
async fn exabgp_that_has_replied_may_be_silent_after_a_restart() {
    let mut exabgp = ExaBgp::new("restarted");
    exabgp.start(&[], |_| "done");
    let command = ["announce route 10.0.0.1/32 next-hop self\n".to_owned()];
    let mut replies = Replies::default();
    exchange(&exabgp.pipe, &command, &mut replies)
        .await
        .unwrap();
    assert!(replies.is_replying && replies.is_settled, "{replies:?}");
    drop(exabgp);
    let mut exabgp = ExaBgp::new("restarted");
    exabgp.start(&[], |_| "");
    let results = exchange(&exabgp.pipe, &command, &mut replies).await;
    assert_eq!(results.unwrap(), [Ok(())]);
    assert!(!replies.is_replying, "{replies:?}");
}

#[test]
fn replies_are_parsed_as_text_and_json() {
    let json = r#"{ "answer": "error", "message": "unknown command" }"#;
    for (line, reply) in [
        ("done", Some(Ok(()))),
        ("error", Some(Err(String::new()))),
        (r#"{ "answer": "done" }"#, Some(Ok(()))),
        (json, Some(Err("unknown command".to_owned()))),
        ("shutdown", None),
        ("neighbor 192.0.2.1 ipv4 unicast 192.0.2.10/32", None),
        ("{", None),
        ("", None),
    ] {
        assert_eq!(parse_reply(line), reply, "{line}");
    }
}
