//! Tests the commands for FRR, and their execution by threads that handle the sockets as FRR's daemons do.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex};

use weir_model::{Announce, Speaker};

use super::*;
use crate::speaker::tests::{routes, settings, vip, with_change};
use crate::speaker::{Driver, Routes};

fn position_of(lines: &[String], line: &str) -> usize {
    let position = lines.iter().position(|it| it == line);
    position.unwrap_or_else(|| panic!("no line {line:?} in {lines:#?}"))
}

#[test]
fn announcements_are_ordered_by_dependency() {
    let lines = with_change(|change| announcements(65001, change));
    let order = [
        "set community 65001:100",
        "set community 65001:100 65535:0",
        "ip route 192.0.2.11/32 blackhole",
        "ipv6 route 2001:db8::1/128 blackhole",
        "router bgp 65001",
        "network 192.0.2.10/32 route-map WEIR-DRAIN",
        "network 192.0.2.11/32 route-map WEIR",
        "network 2001:db8::1/128 route-map WEIR",
    ];
    let positions = order.map(|line| position_of(&lines, line));
    assert!(positions.is_sorted(), "{lines:#?}");
    assert!(!lines.iter().any(|it| it.starts_with("no ")), "{lines:#?}");
}

#[test]
fn announcements_remove_communities_of_earlier_settings() {
    let settings = Announce {
        communities: Vec::new(),
        ..settings()
    };
    let lines = with_change(|change| {
        let change = Change {
            settings: &settings,
            routes: change.routes,
            removed: Vec::new(),
            added: change.added.clone(),
        };
        announcements(65001, &change)
    });
    assert_eq!(
        lines[..8],
        [
            "route-map WEIR permit 10",
            "set origin igp",
            "no set community",
            "exit",
            "route-map WEIR-DRAIN permit 10",
            "set origin igp",
            "set community 65535:0",
            "exit",
        ]
    );
}

#[test]
fn networks_are_removed_in_their_address_family() {
    let vips = [vip("192.0.2.9"), vip("2001:db8::1")];
    assert_eq!(
        remove_networks(65001, &vips),
        [
            "router bgp 65001",
            "address-family ipv4 unicast",
            "no network 192.0.2.9/32",
            "exit-address-family",
            "address-family ipv6 unicast",
            "no network 2001:db8::1/128",
            "exit-address-family",
            "exit",
        ]
    );
}

#[test]
fn socket_directory_is_derived_from_options_of_local_vtysh() {
    let directory = |command: &str| {
        let command: Vec<String> = command.split(' ').map(str::to_owned).collect();
        socket_directory(&command)
    };
    let path = |text: &str| Some(PathBuf::from(text));
    assert_eq!(directory("vtysh"), path("/var/run/frr"));
    assert_eq!(directory("/usr/bin/vtysh -N a"), path("/var/run/frr/a"));
    assert_eq!(directory("vtysh --vty_socket /run/a"), path("/run/a"));
    assert_eq!(
        directory("vtysh --pathspace b --vty_socket /run/a"),
        path("/run/a/b")
    );
    assert_eq!(
        directory("vtysh --vty_socket=/run/a --pathspace=b"),
        path("/run/a/b")
    );
    for command in ["docker exec frr vtysh", "vtysh -d bgpd", "vtysh -N"] {
        assert_eq!(directory(command), None, "{command}");
    }
}

/// How a daemon replies to commands: text and status. Other commands succeed without text.
type Rules = BTreeMap<&'static str, (String, u8)>;

/// Sockets of FRR's daemons in a directory, and a program `vtysh` that writes its arguments to a file.
struct Daemons {
    directory: PathBuf,
    log: Arc<Mutex<Vec<String>>>,
}

impl Drop for Daemons {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Daemons {
    fn new(test: &str) -> Self {
        let name = format!("weir-frr-{test}-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir(&directory).unwrap();
        let vtysh = "#!/bin/sh\nshift 2\necho \"$*\" >> \"${0}.log\"\n";
        let program = directory.join("vtysh");
        std::fs::write(&program, vtysh).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&program, mode).unwrap();
        Self {
            directory,
            log: Arc::default(),
        }
    }

    /// Starts a daemon.
    fn start(&self, socket: &'static str, rules: Rules) {
        let listener = UnixListener::bind(self.directory.join(socket)).unwrap();
        let log = Arc::clone(&self.log);
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                serve(stream, socket, &rules, &log);
            }
        });
    }

    /// Returns the commands since the last call, except those that enter the configuration mode.
    fn take_log(&self) -> Vec<String> {
        let prelude = [" enable", " configure terminal"];
        let lines = std::mem::take(&mut *self.log.lock().unwrap()).into_iter();
        lines
            .filter(|line| !prelude.iter().any(|it| line.ends_with(it)))
            .collect()
    }

    fn vtysh_log(&self) -> String {
        std::fs::read_to_string(self.directory.join("vtysh.log")).unwrap_or_default()
    }

    fn settings(&self, prefix_list: Option<&str>) -> Announce {
        let path = |name: &str| self.directory.join(name).display().to_string();
        Announce {
            speaker: Speaker::Frr {
                command: vec![path("vtysh"), "--vty_socket".to_owned(), path("")],
                asn: 65001,
                prefix_list: prefix_list.map(str::to_owned),
            },
            ..settings()
        }
    }
}

/// Handles the commands of a connection. Each reply is written in two parts.
fn serve(mut stream: UnixStream, socket: &str, rules: &Rules, log: &Mutex<Vec<String>>) {
    let mut command = Vec::new();
    let mut byte = [0];
    while stream.read(&mut byte).is_ok_and(|length| length == 1) {
        if byte[0] != 0 {
            command.push(byte[0]);
            continue;
        }
        let line = String::from_utf8(std::mem::take(&mut command)).unwrap();
        log.lock().unwrap().push(format!("{socket} {line}"));
        let (text, status) = rules.get(line.as_str()).cloned().unwrap_or_default();
        let (start, end) = text.split_at(text.len() / 2);
        for part in [start.as_bytes(), end.as_bytes(), &[0, 0], &[0, status]] {
            if stream.write_all(part).is_err() {
                return;
            }
        }
    }
}

fn one_vip() -> Routes {
    routes(&[("192.0.2.9", Quality::Normal)])
}

/// Withdraws a VIP. Returns the commands and the result.
async fn withdraw(daemons: &Daemons, settings: &Announce) -> (Vec<String>, Result<()>) {
    let mut driver = Driver::new([vip("192.0.2.9")]);
    let result = driver.apply(settings, &Routes::new()).await;
    let remaining = driver.announced_vips().count();
    assert_eq!(remaining, 0, "{result:?}");
    (daemons.take_log(), result)
}

const QUERY: &str = "do show ip prefix-list OUT";
const QUERY_V6: &str = "do show ipv6 prefix-list OUT";
const ENTRIES: &str = "BGP: ip prefix-list OUT: 1 entries\n   seq 5 permit any\n";

fn success(text: &str) -> (String, u8) {
    (text.to_owned(), 0)
}

/// Returns the replies of a bgpd that has a usable prefix list for both address families.
fn usable_lists() -> Rules {
    Rules::from([(QUERY, success(ENTRIES)), (QUERY_V6, success(ENTRIES))])
}

#[tokio::test]
async fn prefix_list_is_changed_between_removals_of_network_and_route() {
    let daemons = Daemons::new("update");
    daemons.start(BGPD_SOCKET, usable_lists());
    daemons.start(STATICD_SOCKET, Rules::new());
    let (log, result) = withdraw(&daemons, &daemons.settings(Some("OUT"))).await;
    result.unwrap();
    assert_eq!(
        log,
        [
            "bgpd.vty router bgp 65001",
            "bgpd.vty address-family ipv4 unicast",
            "bgpd.vty no network 192.0.2.9/32",
            "bgpd.vty exit-address-family",
            "bgpd.vty exit",
            "bgpd.vty do show ip prefix-list OUT",
            "bgpd.vty ip prefix-list OUT seq 1 deny 255.255.255.255/32",
            "bgpd.vty no ip prefix-list OUT seq 1",
            "staticd.vty no ip route 192.0.2.9/32 blackhole",
        ]
    );
    assert_eq!(daemons.vtysh_log(), "");
}

/// The lists are changed once for each address family, even if FRR has lost some of the statements.
#[tokio::test]
async fn prefix_lists_change_once_for_many_vips() {
    let daemons = Daemons::new("many");
    let missing = (format!("{}\n", MISSING_REPLIES[0]), 13);
    let mut rules = usable_lists();
    rules.insert("no network 192.0.2.9/32", missing);
    daemons.start(BGPD_SOCKET, rules);
    daemons.start(STATICD_SOCKET, Rules::new());
    let vips = ["192.0.2.9", "192.0.2.10", "2001:db8::1", "2001:db8::2"];
    let mut driver = Driver::new(vips.map(vip));
    let settings = daemons.settings(Some("OUT"));
    driver.apply(&settings, &Routes::new()).await.unwrap();
    assert_eq!(driver.announced_vips().count(), 0);
    let log = daemons.take_log();
    let lists: Vec<&String> = log.iter().filter(|it| it.contains("prefix-list")).collect();
    let unused_prefix = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128";
    assert_eq!(
        lists,
        [
            "bgpd.vty do show ip prefix-list OUT",
            "bgpd.vty ip prefix-list OUT seq 1 deny 255.255.255.255/32",
            "bgpd.vty no ip prefix-list OUT seq 1",
            "bgpd.vty do show ipv6 prefix-list OUT",
            &format!("bgpd.vty ipv6 prefix-list OUT seq 1 deny {unused_prefix}"),
            "bgpd.vty no ipv6 prefix-list OUT seq 1",
        ]
    );
    let first_list = position_of(&log, lists[0]);
    for network in ["192.0.2.10/32", "2001:db8::1/128", "2001:db8::2/128"] {
        assert!(position_of(&log, &format!("bgpd.vty no network {network}")) < first_list);
    }
}

/// A process that was killed between two commands leaves its entry.
#[tokio::test]
async fn left_over_entry_is_removed_when_routes_are_sent() {
    let daemons = Daemons::new("entry");
    let entries = "BGP: ip prefix-list OUT: 2 entries\n   seq 1 deny 255.255.255.255/32\n   seq 5 permit any\n";
    daemons.start(BGPD_SOCKET, Rules::from([(QUERY, success(entries))]));
    daemons.start(STATICD_SOCKET, Rules::new());
    let mut driver = Driver::new([]);
    let settings = daemons.settings(Some("OUT"));
    driver.apply(&settings, &one_vip()).await.unwrap();
    let log = daemons.take_log();
    let removal = "bgpd.vty no ip prefix-list OUT seq 1";
    assert_eq!(log.last().map(String::as_str), Some(removal), "{log:#?}");
}

/// A list that Weir cannot use is not changed. The routes are announced and withdrawn.
#[tokio::test]
async fn unusable_prefix_list_is_reported_and_not_changed() {
    for (case, reply, status, text) in [
        (
            "missing",
            "% Can't find specified prefix-list\n",
            1,
            "does not have the `ip prefix-list OUT`",
        ),
        (
            "used",
            "BGP: ip prefix-list OUT: 1 entries\n   seq 1 permit any\n",
            0,
            "sequence number 1",
        ),
        (
            "empty",
            "BGP: ip prefix-list OUT: 0 entries\n   Description: for routers\n",
            0,
            "has no entries",
        ),
    ] {
        let daemons = Daemons::new(&format!("unusable-{case}"));
        daemons.start(
            BGPD_SOCKET,
            Rules::from([(QUERY, (reply.to_owned(), status))]),
        );
        daemons.start(STATICD_SOCKET, Rules::new());
        let settings = daemons.settings(Some("OUT"));
        let mut driver = Driver::new([]);
        for routes in [one_vip(), Routes::new()] {
            driver.apply(&settings, &routes).await.unwrap();
            assert!(!driver.needs_step(&routes));
            let warning = driver.warning().unwrap();
            assert!(warning.contains(text), "{warning}");
        }
        let log = daemons.take_log();
        position_of(&log, "bgpd.vty no network 192.0.2.9/32");
        assert!(!log.iter().any(|it| it.contains(" seq 1 deny")), "{log:#?}");
    }
}

/// A change to a different address family does not clear a warning.
#[tokio::test]
async fn warning_remains_until_its_address_family_is_checked() {
    let daemons = Daemons::new("families");
    let mut rules = usable_lists();
    let missing = "% Can't find specified prefix-list\n";
    rules.insert(QUERY, (missing.to_owned(), 1));
    daemons.start(BGPD_SOCKET, rules);
    daemons.start(STATICD_SOCKET, Rules::new());
    let settings = daemons.settings(Some("OUT"));
    let mut driver = Driver::new([]);
    let both = routes(&[
        ("192.0.2.9", Quality::Normal),
        ("2001:db8::1", Quality::Normal),
    ]);
    for routes in [&both, &Routes::new()] {
        driver.apply(&settings, routes).await.unwrap();
        let warning = driver.warning().unwrap();
        assert!(warning.contains("`ip prefix-list OUT`"), "{warning}");
    }
    let v6 = routes(&[("2001:db8::1", Quality::Normal)]);
    for routes in [&v6, &Routes::new()] {
        driver.apply(&settings, routes).await.unwrap();
        assert!(driver.warning().is_some());
    }
}

/// The routes are withdrawn even if bgpd rejects the change to the list.
#[tokio::test]
async fn rejected_prefix_list_change_causes_a_warning() {
    let add = "ip prefix-list OUT seq 1 deny 255.255.255.255/32";
    for line in [add, "no ip prefix-list OUT seq 1"] {
        let daemons = Daemons::new(&format!("locked-{}", line.len()));
        let mut rules = usable_lists();
        rules.insert(line, ("% Configuration failed.\n".to_owned(), 13));
        daemons.start(BGPD_SOCKET, rules);
        daemons.start(STATICD_SOCKET, Rules::new());
        let settings = daemons.settings(Some("OUT"));
        let mut driver = Driver::new([vip("192.0.2.9")]);
        driver.apply(&settings, &Routes::new()).await.unwrap();
        assert_eq!(driver.announced_vips().count(), 0);
        let warning = driver.warning().unwrap();
        assert!(warning.contains("Configuration failed"), "{warning}");
        position_of(
            &daemons.take_log(),
            "staticd.vty no ip route 192.0.2.9/32 blackhole",
        );
    }
}

#[tokio::test]
async fn vtysh_is_used_without_sockets() {
    let daemons = Daemons::new("vtysh");
    let (log, result) = withdraw(&daemons, &daemons.settings(None)).await;
    result.unwrap();
    assert_eq!(log, [""; 0]);
    let expected = "-c configure terminal -c router bgp 65001 -c address-family ipv4 unicast -c no network \
                    192.0.2.9/32 -c exit-address-family -c exit\n\
                    -c configure terminal -c no ip route 192.0.2.9/32 blackhole\n";
    assert_eq!(daemons.vtysh_log(), expected);
    // The prefix list has no effect, which is reported.
    let settings = daemons.settings(Some("OUT"));
    let mut driver = Driver::new([vip("192.0.2.9")]);
    driver.apply(&settings, &Routes::new()).await.unwrap();
    let warning = driver.warning().unwrap();
    assert!(
        warning.contains("bgpd must be running: No such file"),
        "{warning}"
    );
    assert_eq!(daemons.vtysh_log(), expected.repeat(2));
}

#[tokio::test]
async fn vtysh_changes_static_routes_that_mgmtd_manages() {
    let daemons = Daemons::new("static");
    for socket in [BGPD_SOCKET, STATICD_SOCKET, MGMTD_SOCKET] {
        daemons.start(socket, Rules::new());
    }
    let (log, result) = withdraw(&daemons, &daemons.settings(None)).await;
    result.unwrap();
    assert!(
        log.iter().all(|line| line.starts_with(BGPD_SOCKET)),
        "{log:?}"
    );
    let expected = "-c configure terminal -c no ip route 192.0.2.9/32 blackhole\n";
    assert_eq!(daemons.vtysh_log(), expected);
}

/// FRR has lost the statements, for example because it was restarted.
#[tokio::test]
async fn missing_statements_count_as_withdrawn() {
    let daemons = Daemons::new("missing");
    let replies = MISSING_REPLIES.map(|it| (format!("{it}\n"), 13));
    let [network, route] = replies;
    daemons.start(
        BGPD_SOCKET,
        Rules::from([("no network 192.0.2.9/32", network)]),
    );
    daemons.start(
        STATICD_SOCKET,
        Rules::from([("no ip route 192.0.2.9/32 blackhole", route)]),
    );
    withdraw(&daemons, &daemons.settings(None)).await.1.unwrap();
}

#[tokio::test]
async fn rejected_command_is_quoted_and_ends_sequence() {
    let daemons = Daemons::new("rejected");
    let reply = ("BGP is already running; AS is 65002\n".to_owned(), 13);
    let rules = [
        ("router bgp 65001", reply),
        // This reply's status reports success.
        (
            "set origin igp",
            ("% Failed to edit configuration.\n\n".to_owned(), 0),
        ),
        ("exit", ("x".repeat(100_000), 0)),
    ];
    let lines = ["router bgp 65001", "set origin igp", "exit"];
    let texts = [
        "frr: BGP is already running; AS is 65002",
        "frr: % Failed to edit configuration.",
        "bgpd.vty: the reply is too long",
    ];
    daemons.start(BGPD_SOCKET, Rules::from(rules));
    for (line, text) in lines.into_iter().zip(texts) {
        let path = daemons.directory.join(BGPD_SOCKET);
        let mut connection = Connection::open(&path).await.unwrap();
        let lines = [line.to_owned(), "after".to_owned()];
        let error = connection.execute_all(&lines).await.unwrap_err();
        assert!(error.to_string().ends_with(text), "{error}");
    }
    let log = daemons.take_log();
    assert!(!log.iter().any(|it| it.ends_with("after")), "{log:?}");
}

/// The daemon closes the connection in the middle of a reply.
#[tokio::test]
async fn lost_connection_is_an_error() {
    let daemons = Daemons::new("lost");
    let path = daemons.directory.join(BGPD_SOCKET);
    let listener = UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 64]);
        stream.write_all(b"text\0\0").unwrap();
    });
    let error = Connection::open(&path).await.unwrap_err();
    assert!(error.to_string().contains("bgpd.vty"), "{error}");
}

#[tokio::test]
async fn silent_daemon_causes_a_timeout() {
    let daemons = Daemons::new("silent");
    let _listener = UnixListener::bind(daemons.directory.join(BGPD_SOCKET)).unwrap();
    let settings = daemons.settings(None);
    let result = Driver::new([]).apply(&settings, &one_vip()).await;
    assert!(matches!(result, Err(Error::Timeout { speaker: "frr" })));
}
