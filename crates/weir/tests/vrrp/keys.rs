//! Tests the keys of `[vrrp.NAME]` other than addresses.
//!
//! The keys are for routes, rules, the virtual MAC address, authentication, tracked pools and the FIFO.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::config;
use super::pair::{Pair, VIP};
use super::world::{privileged, sh};

fn command_output(pair: &Pair, host: &str, command: &str) -> String {
    String::from_utf8_lossy(&pair.world.output(host, command).stdout).into_owned()
}

#[test]
fn routes_and_rules_exist_only_while_active() {
    if !privileged() {
        return;
    }
    let mut pair = Pair::new();
    pair.ip("director", "route add 10.9.0.0/16 via 10.0.0.2");
    let extra = "routes = [{ to = \"10.8.1.2/16\", via = \"10.0.0.2\", table = 100 }, { to = \"10.9.0.0/16\", via = \
                \"10.0.0.2\" }]\nrules = [{ from = \"10.0.0.10\", table = 100, priority = 1000 }]\n\
                start_delay = \"300ms\"\ngarp_refresh = \"1s\"";
    pair.start("director", &config(255, extra));
    let routes = |pair: &Pair| command_output(pair, "director", "ip route show table 100");
    let rules = |pair: &Pair| command_output(pair, "director", "ip rule");
    pair.wait_for("the route and the rule", || {
        routes(&pair).contains("10.8.0.0/16 via 10.0.0.2 dev eth0 proto keepalived")
            && rules(&pair).contains("1000:\tfrom 10.0.0.10 lookup 100")
    });
    // A restarted helper keeps the route and the rule.
    let helper = pair.process_id("director", "helper");
    pair.wait_for("the helper to be old enough", || {
        pair.process_age("director", "helper") > super::MIN_PROCESS_AGE
    });
    pair.kill(helper);
    pair.wait_for("the next helper", || {
        pair.find_process("director", "helper")
            .is_some_and(|it| it != helper)
    });
    pair.weir("director", &["vrrp", "outside", "release"]);
    pair.wait_for("the removal of the route and the rule", || {
        !routes(&pair).contains("10.8.0.0") && !rules(&pair).contains("10.0.0.10")
    });
    let main_routes = command_output(&pair, "director", "ip route");
    assert!(
        main_routes.contains("10.9.0.0/16 via 10.0.0.2"),
        "{main_routes}"
    );
}

/// Enables strict reverse-path filtering, as many distributions do. It must not drop the clients' packets.
fn set_strict_filter(pair: &Pair) {
    for host in ["director", "second"] {
        command_output(pair, host, "sysctl -qw net.ipv4.conf.all.rp_filter=1");
    }
}

#[test]
fn virtual_mac_address_is_used_and_settings_are_restored() {
    if !privileged() {
        return;
    }
    let mut pair = Pair::new();
    let extra = "virtual_mac = true";
    set_strict_filter(&pair);
    pair.start("director", &config(150, extra));
    let device = |pair: &Pair| command_output(pair, "director", "ip addr show dev vrrp.51");
    pair.wait_for("the device", || device(&pair).contains(" 10.0.0.10/24"));
    assert!(device(&pair).contains("00:00:5e:00:01:33"));
    let setting = |pair: &Pair| {
        command_output(
            pair,
            "director",
            "cat /proc/sys/net/ipv4/conf/eth0/arp_ignore",
        )
    };
    assert_eq!(setting(&pair), "1\n");
    pair.wait_for("a reply from the virtual MAC address", || {
        let ping = pair
            .world
            .output("client", &format!("ping -c 1 -W 1 {VIP}"));
        let neighbor = command_output(&pair, "client", &format!("ip neigh show {VIP}"));
        ping.status.success() && neighbor.contains("00:00:5e:00:01:33")
    });
    // The other director takes over the VIP with the same MAC address.
    pair.start("second", &config(100, extra));
    pair.wait_for("the peer", || {
        pair.router("second")["active_peer"] == "10.0.0.3"
    });
    pair.weir("director", &["vrrp", "outside", "release"]);
    pair.wait_for("the other device", || {
        command_output(&pair, "second", "ip addr show dev vrrp.51").contains(" 10.0.0.10/24")
    });
    pair.wait_for("the removal of the device", || device(&pair).is_empty());
    assert_eq!(setting(&pair), "0\n");
    pair.wait_for("a reply from the other director", || {
        let ping = pair
            .world
            .output("client", &format!("ping -c 1 -W 1 {VIP}"));
        ping.status.success()
    });

    // The active director hands over to a director with a higher priority, even though that director's packets have the
    // active director's own MAC address as their source.
    pair.weir("director", &["vrrp", "outside", "resume"]);
    pair.wait_for("the first device again", || {
        !device(&pair).is_empty()
            && command_output(&pair, "second", "ip addr show dev vrrp.51").is_empty()
    });
    pair.weir("director", &["vrrp", "outside", "release"]);
    pair.wait_for("the other device again", || {
        command_output(&pair, "second", "ip addr show dev vrrp.51").contains(" 10.0.0.10/24")
    });

    // `weir clean` removes the objects of a killed director and restores the settings.
    for name in ["vrrp-agent", "helper"] {
        pair.suspend(pair.process_id("second", name));
    }
    pair.kill_all("second");
    assert!(!command_output(&pair, "second", "ip addr show dev vrrp.51").is_empty());
    let cleaned = pair.weir("second", &["clean"]);
    for line in [
        "interface vrrp.51 removed from eth0\n",
        "sysctl net/ipv4/conf/eth0/arp_ignore restored to 0\n",
    ] {
        assert!(cleaned.contains(line), "{cleaned}");
    }
    assert!(command_output(&pair, "second", "ip addr show dev vrrp.51").is_empty());
    let restored = command_output(
        &pair,
        "second",
        "cat /proc/sys/net/ipv4/conf/eth0/arp_ignore",
    );
    assert_eq!(restored, "0\n");
}

#[test]
fn unauthenticated_advertisements_are_ignored() {
    if !privileged() {
        return;
    }
    let mut pair = Pair::new();
    let key = pair.path("vrrp.key");
    fs::write(&key, format!("hex:{}\n", "5a".repeat(32))).expect("write the file");
    sh(&format!("chmod 600 {key}"));
    let hmac = format!("hmac = {{ keys = [{{ id = 1, secret = {{ file = \"{key}\" }} }}] }}");
    pair.start("director", &config(150, &hmac));
    pair.wait_for_state("director", "active");
    pair.start("second", &config(100, &hmac));
    pair.wait_for("the peer", || {
        pair.router("second")["active_peer"] == "10.0.0.3"
    });
    pair.wait_for_holder("director");
    // Weir ignores and counts the advertisements of a director without the key.
    pair.stop_and_wait("second");
    pair.start("second", &config(200, ""));
    pair.wait_for("ignored packets", || {
        pair.router("director")["ignored"]["authentication"].as_u64() > Some(3)
    });
    assert_eq!(pair.router("director")["state"], "active");
}

#[test]
fn tracked_pool_changes_state_and_priority() {
    if !privileged() {
        return;
    }
    let mut pair = Pair::new();
    // Only a route uses the pool `api`.
    let extra = format!(
        "track = [{{ pool = \"p\" }}, {{ service = \"s\", penalty = 10 }}, {{ data_plane = true, penalty = 5 }}, \
         {{ pool = \"api\", penalty = 20 }}]\n\
         [pool.api]\nservers = [\"127.0.0.1:10\"]\n[service.site]\nlisten = [\"{VIP}:8081\"]\n\
         forward = \"proxy\"\nprotocol = \"http\"\npool = \"p\"\n\
         [[route]]\nservice = \"site\"\npath = \"/api/*\"\npool = \"api\""
    );
    pair.start("director", &config(150, &extra));
    pair.wait_for_state("director", "active");
    assert_eq!(pair.router("director")["priority"], 150);
    pair.weir("director", &["server", "api/127.0.0.1:10", "drain"]);
    pair.wait_for("the penalty of the route's pool", || {
        pair.router("director")["priority"] == 130
    });
    pair.weir("director", &["server", "api/127.0.0.1:10", "ready"]);
    pair.weir("director", &["server", "p/127.0.0.1:9", "drain"]);
    pair.wait_for_state("director", "fault");
    assert_eq!(pair.router("director")["reason"], "pool p has failed");
    assert_eq!(pair.router("director")["priority"], 140);
    pair.weir("director", &["server", "p/127.0.0.1:9", "ready"]);
    pair.wait_for_state("director", "active");

    let bad_file = pair.path("bad.toml");
    fs::write(&bad_file, config(150, "track = [{ pool = \"none\" }]")).expect("write the file");
    let output = pair.try_weir("director", &["check", "-c", &bad_file]);
    let message = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("pool `none` does not exist"), "{message}");
}

/// Weir tracks the data plane by default: `data_plane` is not in the file.
#[test]
fn loss_of_data_plane_releases_addresses() {
    if !privileged() {
        return;
    }
    let mut pair = Pair::new();
    for line in [
        "link add eth1 type veth peer name eth2",
        "link set eth1 up",
        "link set eth2 up",
    ] {
        pair.ip("director", line);
    }
    let text = |extra: &str| {
        format!(
            "[node]\ninterfaces = [\"eth1\"]\n[pool.web]\nservers = [\"10.0.0.5\"]\n[service.web]\n\
             listen = [\"10.0.0.12:80\"]\nforward = \"direct\"\npool = \"web\"\n[vrrp.v]\n\
             interface = \"eth0\"\nvirtual_router_id = 51\nversion = 3\nadvert_interval = \"100ms\"\n\
             addresses = [\"10.0.0.12/32\"]\n{extra}\n"
        )
    };
    pair.start("director", &text(""));
    pair.wait_for_state("director", "active");
    pair.ip("director", "link set eth1 down");
    pair.wait_for_state("director", "fault");
    assert_eq!(pair.router("director")["reason"], "data plane has failed");
    pair.wait_for("no address", || !pair.holds("director", "10.0.0.12"));
    pair.ip("director", "link set eth1 up");
    pair.wait_for_state("director", "active");
    // The configuration may permit a failed data plane.
    pair.ip("director", "link set eth1 down");
    pair.wait_for_state("director", "fault");
    pair.reload("director", &text("track = [{ data_plane = false }]"));
    pair.wait_for_state("director", "active");
}

/// Tests `track_interface`.
#[test]
fn failed_interface_causes_fault_unless_tracking_is_disabled() {
    if !privileged() {
        return;
    }
    let mut pair = Pair::new();
    pair.start("director", &config(150, ""));
    pair.wait_for_state("director", "active");
    pair.ip("director", "link set eth0 down");
    pair.wait_for_state("director", "fault");
    pair.reload("director", &config(150, "track_interface = false"));
    pair.wait_for_state("director", "active");
    pair.reload("director", &config(150, "track_interface = true"));
    pair.wait_for_state("director", "fault");
}

#[test]
fn group_notifications_are_sent_to_fifo_and_program() {
    if !privileged() {
        return;
    }
    let mut pair = Pair::new();
    let (fifo, log, notify) = (
        pair.path("fifo"),
        pair.path("notified"),
        pair.path("notify"),
    );
    sh(&format!("mkfifo {fifo}"));
    pair.write_script(&notify, &format!("echo \"$@\" $(id -un) >> {log}"));
    sh(&format!(
        "touch {log} && chmod 666 {log} && chmod 755 $(dirname {log})"
    ));
    let reader = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&fifo)
        .expect("open the FIFO");
    let extra = format!(
        "group = \"pair\"\nnotify_fifo = \"{fifo}\"\nnotify_group = [\"{notify}\"]\nnotify_user = \"daemon\""
    );
    pair.start("director", &config(255, &extra));
    let mut lines = BufReader::new(reader).lines();
    let mut found = Vec::new();
    while !(found.contains(&"INSTANCE \"outside\" MASTER 255".to_owned())
        && found.contains(&"GROUP \"pair\" MASTER 0".to_owned()))
    {
        found.push(
            lines
                .next()
                .expect("unexpected end of the FIFO")
                .expect("read a line"),
        );
    }
    pair.wait_for("the program", || {
        fs::read_to_string(&log).is_ok_and(|text| text.contains("GROUP pair MASTER 0 daemon\n"))
    });
}

/// If a director fails, the other director resets its proxied connections when the clients send data.
#[test]
fn proxied_connection_is_reset_after_failover() {
    if !privileged() {
        return;
    }
    let mut pair = Pair::new();
    pair.start("director", &config(150, ""));
    pair.wait_for_holder("director");
    pair.start("second", &config(100, ""));
    pair.wait_for("the peer", || {
        pair.router("second")["active_peer"] == "10.0.0.3"
    });
    // Start the pool's server.
    let mut server = pair.world.command("director", "socat");
    let server = server
        .args(["TCP-LISTEN:9,fork,reuseaddr,bind=127.0.0.1", "EXEC:cat"])
        .spawn()
        .expect("start socat");
    pair.world.kill_on_drop(server);
    let client = pair.world.spawn_on("client", || {
        let mut attempts = 0;
        loop {
            let mut stream = TcpStream::connect((VIP, 8080)).expect("connect");
            stream
                .set_read_timeout(Some(Duration::from_secs(20)))
                .expect("set the read timeout");
            let mut echo = [0; 1];
            let is_echoed = stream.write_all(b"a").is_ok() && stream.read_exact(&mut echo).is_ok();
            if is_echoed {
                return stream;
            }
            attempts += 1;
            assert!(attempts < 100, "no echo after {attempts} attempts");
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    let mut stream = client.join().expect("thread panicked");
    pair.disconnect("director");
    pair.wait_for("the second director", || pair.holds("second", VIP));
    let error = loop {
        let result = stream.write_all(b"b");
        if let Err(error) = result.and_then(|()| stream.read_exact(&mut [0; 1])) {
            break error;
        }
    };
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
}

#[test]
fn agent_has_one_capability_seccomp_filter_and_real_time_priority() {
    if !privileged() {
        return;
    }
    let mut pair = Pair::new();
    pair.start("director", &config(255, ""));
    pair.wait_for_holder("director");
    let agent = pair.process_id("director", "vrrp-agent");
    let status = fs::read_to_string(format!("/proc/{agent}/status"))
        .expect("read the process's file in /proc");
    // CAP_NET_RAW is number 13.
    for line in [
        "CapEff:\t0000000000002000",
        "CapPrm:\t0000000000002000",
        "NoNewPrivs:\t1",
        "Seccomp:\t2",
    ] {
        assert!(status.contains(line), "{line}: {status}");
    }
    let stat = fs::read_to_string(format!("/proc/{agent}/stat"))
        .expect("read the process's file in /proc");
    // proc_pid_stat(5): fields 40 and 41, rt_priority and policy.
    let fields: Vec<&str> = stat
        .rsplit(") ")
        .next()
        .expect("line has fields after the name")
        .split(' ')
        .collect();
    assert_eq!(fields[37..39], ["10", "1"], "{stat}");
}
