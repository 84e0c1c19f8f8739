//! Tests notifications: the FIFO that Weir creates, and that a new agent does not repeat them.

use std::fs;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::pair::Pair;
use super::world::privileged;
use super::{MIN_PROCESS_AGE, config};

/// Replacing the agent does not change the state.
#[test]
fn crash_of_the_agent_causes_no_notification() {
    if !privileged() {
        return;
    }
    let mut pair = Pair::new();
    let (fifo, log, notify) = (
        pair.path("fifo"),
        pair.path("notified"),
        pair.path("notify"),
    );
    pair.write_script(&notify, &format!("echo \"$@\" >> {log}"));
    let extra = format!("notify_fifo = \"{fifo}\"\nnotify = [\"{notify}\"]\ngarp_delay = \"0s\"");
    // A longer interval gives slow machines three seconds to replace the agent.
    let config = config(150, &extra).replace("100ms", "1s");
    pair.start("director", &config);
    pair.wait_for_state("director", "active");
    let notified = || fs::read_to_string(&log).unwrap_or_default();
    pair.wait_for("the notifications", || {
        notified().contains("MASTER") && notified().contains("BACKUP")
    });
    pair.wait_for("the agent to be old enough", || {
        pair.process_age("director", "vrrp-agent") > MIN_PROCESS_AGE
    });
    let (before, since) = (notified(), pair.router("director")["since"].clone());
    let agent = pair.process_id("director", "vrrp-agent");
    pair.kill(agent);
    pair.wait_for("the next agent", || {
        pair.find_process("director", "vrrp-agent")
            .is_some_and(|next| next != agent)
    });
    pair.wait_for("an advertisement", || {
        pair.router("director")["sent"].as_u64() > Some(1)
    });
    let router = pair.router("director");
    assert_eq!(router["state"], "active");
    assert_eq!(
        (&router["since"], &router["takeovers"]),
        (&since, &1.into())
    );
    assert_eq!(notified(), before);
    // The lines are still in the FIFO, which Weir has created.
    let mut options = fs::OpenOptions::new();
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let reader = options.read(true).custom_flags(flags).open(&fifo);
    let mut bytes = [0; 4096];
    let length = reader.and_then(|mut it| it.read(&mut bytes));
    let length = length.expect("read the FIFO");
    assert_eq!(
        String::from_utf8_lossy(&bytes[..length]),
        "INSTANCE \"outside\" BACKUP 150\nINSTANCE \"outside\" MASTER 150\n"
    );
    pair.stop_and_wait("director");
    assert!(!Path::new(&fifo).exists());
}
