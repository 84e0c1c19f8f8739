//! Starts a relay that delays and drops frames between a host's link and the bridge.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use super::{World, sh};

impl World {
    /// Inserts a relay in front of a host. The relay delays each frame by `delay_s` seconds and drops `dropped` of 1000
    /// frames. A network can have only one relay.
    pub fn insert_relay(&mut self, host: &str, delay_s: &str, dropped: u32) {
        let (wire, inside) = (self.namespace("wire"), self.namespace(host));
        for command in [
            "link add relay-a type veth peer name relay-b".to_owned(),
            "link set relay-a master br0 up".to_owned(),
            "link set relay-b up promisc on".to_owned(),
            format!("link set {host} nomaster promisc on"),
        ] {
            self.ip("wire", &command);
        }
        // Merged segments would form frames that are too long to send.
        for (namespace, device) in [
            (&wire, "relay-a"),
            (&wire, "relay-b"),
            (&wire, host),
            (&inside, "eth0"),
        ] {
            sh(&format!(
                "ip netns exec {namespace} ethtool -K {device} gro off gso off tso off tx off >/dev/null"
            ));
        }
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/world/relay.py");
        let mut command = self.command("wire", "python3");
        command
            .arg(script)
            .args([host, "relay-b", delay_s, &dropped.to_string()])
            .stdout(Stdio::piped());
        let mut child = command.spawn().expect("start python3");
        let mut line = String::new();
        let output = child.stdout.take().expect("stream is piped");
        BufReader::new(output)
            .read_line(&mut line)
            .expect("read the line `ready`");
        assert_eq!(line, "ready\n");
        self.kill_on_drop(child);
    }
}
