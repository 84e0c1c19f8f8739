//! Tests every message of ipvsadm with its exit code, and some valid command lines.
//!
//! The expected values were compared with ipvsadm 1.31 and popt 1.19.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weir_ipvsadm::{
    Command, Edit, EditError, Errno, Exit, Names, NumericNames, Protocol, Table, parse, words,
};

fn exit(line: &str) -> Exit {
    match parse("ipvsadm", &words(line), &NumericNames) {
        Err(exit) => exit,
        Ok(command) => panic!("{line} is accepted: {command:?}"),
    }
}

fn edit(line: &str) -> Edit {
    match parse("ipvsadm", &words(line), &NumericNames) {
        Ok(Command::Edit(edit)) => edit,
        other => panic!("{line}: {other:?}"),
    }
}

/// Invalid command lines and their messages. The exit code is 2.
const USAGE_ERRORS: &[(&str, &str)] = &[
    // Required, illegal and conflicting options. Errors are reported in the order of the option table, not of the
    // command line.
    (
        "-A",
        "You need to supply the 'service-address' option for the 'add-service' command",
    ),
    (
        "-E -s rr",
        "You need to supply the 'service-address' option for the 'edit-service' command",
    ),
    (
        "-D",
        "You need to supply the 'service-address' option for the 'delete-service' command",
    ),
    (
        "-a -t 10.0.0.1:80",
        "You need to supply the 'real-server' option for the 'add-server' command",
    ),
    (
        "-e -r 10.0.0.1",
        "You need to supply the 'service-address' option for the 'edit-server' command",
    ),
    (
        "-d -t 10.0.0.1:80",
        "You need to supply the 'real-server' option for the 'delete-server' command",
    ),
    (
        "-A -t 10.0.0.1:80 -r 10.0.0.2",
        "Illegal 'real-server' option with the 'add-service' command",
    ),
    (
        "-A -t 10.0.0.1:80 -w 1",
        "Illegal 'weight' option with the 'add-service' command",
    ),
    ("-C -n", "Illegal 'numeric' option with the 'flush' command"),
    (
        "-D -t 10.0.0.1:80 -s rr",
        "Illegal 'scheduler' option with the 'delete-service' command",
    ),
    (
        "-L -s rr",
        "Illegal 'scheduler' option with the 'list' command",
    ),
    (
        "-R -n",
        "Illegal 'numeric' option with the 'restore' command",
    ),
    (
        "-S -t 10.0.0.1:80",
        "Illegal 'service-address' option with the 'save' command",
    ),
    ("-Z -n", "Illegal 'numeric' option with the 'zero' command"),
    (
        "--set 1 2 3 -n",
        "Illegal 'numeric' option with the 'set' command",
    ),
    (
        "--start-daemon master -n",
        "Illegal 'numeric' option with the 'start-daemon' command",
    ),
    (
        "--stop-daemon backup --mcast-ttl 1",
        "Illegal 'mcast-ttl' option with the 'stop-daemon' command",
    ),
    (
        "-d -t 10.0.0.1:80 -r 10.0.0.2 -m",
        "Illegal 'forwarding-method' option with the 'delete-server' command",
    ),
    (
        "-L -c -t 10.0.0.1:80",
        "The option 'service-address' conflicts with the 'connection' option in the 'list' command",
    ),
    (
        "-L --daemon --timeout",
        "The option 'daemon' conflicts with the 'timeout' option in the 'list' command",
    ),
    ("-L -c --stats", "options conflicts in the list command"),
    (
        "-L --timeout --rate",
        "options conflicts in the list command",
    ),
    (
        "-L --daemon --persistent-conn",
        "options conflicts in the list command",
    ),
    ("-L -n -n", "multiple 'numeric' options specified"),
    (
        "-A -t 10.0.0.1:80 -f 1",
        "multiple 'service-address' options specified",
    ),
    (
        "-a -t 10.0.0.1:80 -r 10.0.0.2 -g -m",
        "multiple 'forwarding-method' options specified",
    ),
    // Commands for services.
    (
        "-A -t 10.0.0.1",
        "Zero port specified for non-persistent service",
    ),
    (
        "-E -u 10.0.0.1:0",
        "Zero port specified for non-persistent service",
    ),
    (
        "-A -t 10.0.0.1:80 -o",
        "One-Packet Scheduling is only for UDP virtual services",
    ),
    (
        "-A -t 1234",
        "illegal virtual server address[:port] specified",
    ),
    (
        "-A -t 10.0.0.1:no-such-port",
        "illegal virtual server address[:port] specified",
    ),
    (
        "-A -t 10.0.0.1:65536",
        "illegal virtual server address[:port] specified",
    ),
    (
        "-A -t [2001:db8::1]",
        "illegal virtual server address[:port] specified",
    ),
    (
        "-A -u no.such.host:80",
        "illegal virtual server address[:port] specified",
    ),
    ("-A -f 0", "invalid fwmark value `0' specified"),
    (
        "-A -f 4294967296",
        "invalid fwmark value `4294967296' specified",
    ),
    ("-A -f x", "invalid fwmark value `x' specified"),
    ("-A -6 -f 1", "-6 used before -f\n"),
    (
        "-A -t 10.0.0.1:80 -p 0",
        "invalid timeout value `0' specified",
    ),
    (
        "-A -t 10.0.0.1:80 -p 2678401",
        "invalid timeout value `2678401' specified",
    ),
    (
        "-A -t 10.0.0.1:80 -p -M x",
        "illegal virtual server persistent mask specified",
    ),
    (
        "-A -t [2001:db8::1]:80 -p -M 129",
        "illegal ipv6 netmask specified",
    ),
    (
        "-A -f 1 -6 -p -M 255.255.255.0",
        "illegal ipv6 netmask specified",
    ),
    (
        "-A -t 10.0.0.1:80 -b bogus",
        "invalid scheduler flag `bogus'",
    ),
    ("-A -t 10.0.0.1:80 -b ,", "invalid scheduler flag `,'"),
    (
        "-A -t 10.0.0.1:80 -b sh-port",
        "incompatible scheduler flag `sh-port'",
    ),
    (
        "-A -t 10.0.0.1:80 -s sh -b sh-port,mh-fallback",
        "incompatible scheduler flag `mh-fallback'",
    ),
    // Commands for servers.
    (
        "-a -t 10.0.0.1:80 -r 5",
        "illegal real server address[:port] specified",
    ),
    (
        "-a -t 10.0.0.1:80 -r 10.0.0.2:x",
        "illegal real server address[:port] specified",
    ),
    (
        "-a -t 10.0.0.1:80 -r 10.0.0.2 -w 2147483648",
        "illegal weight specified",
    ),
    (
        "-e -t 10.0.0.1:80 -r 10.0.0.2 -w -1",
        "illegal weight specified",
    ),
    (
        "-a -t 10.0.0.1:80 -r 10.0.0.2 -x 2147483648",
        "illegal u_threshold specified",
    ),
    (
        "-a -t 10.0.0.1:80 -r 10.0.0.2 -y z",
        "illegal l_threshold specified",
    ),
    (
        "-a -t 10.0.0.1:80 -r 2001:db8::2",
        "Different address family is allowed only for tunneling servers",
    ),
    (
        "-a -r 2001:db8::2 -t [2001:db8::1]:80 --tun-port 1",
        "Tunnel options conflict with forward method",
    ),
    (
        "-a -t 10.0.0.1:80 -r 10.0.0.2 -i --tun-type vxlan",
        "illegal tunnel type specified",
    ),
    (
        "-a -t 10.0.0.1:80 -r 10.0.0.2 -i --tun-port 0",
        "illegal tunnel port specified",
    ),
    (
        "-a -t 10.0.0.1:80 -r 10.0.0.2 -i --tun-type gue",
        "You need to supply the 'tun-port' option for the 'gue' tunnel type",
    ),
    (
        "-a -t 10.0.0.1:80 -r 10.0.0.2 -i --tun-csum",
        "Illegal 'tun-csum' option with the 'ipip' tunnel type",
    ),
    (
        "-a -t 10.0.0.1:80 -r 10.0.0.2 -i --tun-type gre --tun-nocsum --tun-csum",
        "The option 'tun-csum' conflicts with the 'tun-nocsum' option in the 'gre' tunnel type",
    ),
    // Other commands.
    ("--set 1 2", "--set option requires 3 timeout values"),
    ("--set 1 2 x", "invalid timeout value `x' specified"),
    ("--set 1 2 3 4", "unexpected argument 4"),
    ("-L foo", "unexpected argument foo"),
    ("-C # all", "unexpected argument #"),
    ("-L -D", "invalid option `-D'"),
    ("-A -t 10.0.0.1:80 --help", "invalid option `--help'"),
    ("-L --start-daemon master", "invalid option `master'"),
    (
        "--start-daemon no",
        "illegal start-daemon parameter specified",
    ),
    ("--stop-daemon no", "illegal start_daemon specified"),
    (
        "--start-daemon master --syncid 256",
        "illegal syncid specified",
    ),
    (
        "--start-daemon master --mcast-group 10.0.0.1",
        "invalid IPv4 mcast-group `10.0.0.1'",
    ),
    (
        "--start-daemon master --mcast-group fe80::1",
        "invalid IPv6 mcast-group `fe80::1'",
    ),
    (
        "--start-daemon master --mcast-port 0",
        "illegal mcast-port specified",
    ),
    (
        "--start-daemon master --mcast-ttl 256",
        "illegal mcast-ttl specified",
    ),
    (
        "--start-daemon master --sync-maxlen 65508",
        "illegal sync-maxlen specified",
    ),
];

#[test]
fn boundary_values_of_daemon_options_are_accepted() {
    for option in [
        "--syncid 0",
        "--syncid 255",
        "--sync-maxlen 1",
        // The maximum size of a UDP payload without IPv4 options.
        "--sync-maxlen 65507",
        "--mcast-port 65535",
        "--mcast-ttl 255",
    ] {
        let edit = edit(&format!("--start-daemon master {option}"));
        assert!(matches!(edit, Edit::StartDaemon(_)), "{option}");
    }
}

#[test]
fn usage_errors_exit_with_2() {
    for (line, message) in USAGE_ERRORS {
        let exit = exit(line);
        assert_eq!(exit.stderr, format!("{message}\n"), "{line}");
        assert_eq!(
            (exit.code, exit.continues, exit.stdout.as_str()),
            (2, false, ""),
            "{line}"
        );
    }
}

#[test]
fn popt_errors_exit_with_255_and_restore_continues() {
    for (line, message) in [
        ("-L -q", "-q: unknown option"),
        ("-Lq", "-Lq: unknown option"),
        ("-L --num", "--num: unknown option"),
        ("-L -t", "-t: missing argument"),
        (
            "-L --numeric=1",
            "--numeric=1: option does not take an argument",
        ),
        ("-L -n=", "-n=: option does not take an argument"),
        ("--set -1 2 3", "-1: unknown option"),
    ] {
        let exit = exit(line);
        assert_eq!(exit.stderr, format!("{message}\n"), "{line}");
        assert_eq!((exit.code, exit.continues), (255, true), "{line}");
    }
}

#[test]
fn command_line_without_leading_command_refers_to_help() {
    let help = "Try `ipvsadm -h' or 'ipvsadm --help' for more information.\n";
    for line in [
        "foo",
        "-n",
        "-t 10.0.0.1:80",
        "# a comment",
        "--li",
        "-",
        "--",
        "-t",
        "--list=1",
    ] {
        let exit = exit(line);
        assert_eq!((exit.code, exit.continues), (255, false), "{line}");
        assert_eq!(exit.stderr, help, "{line}");
    }
}

#[test]
fn help_and_version_go_to_standard_output() {
    let help = exit("-h");
    assert_eq!((help.code, help.stderr.as_str()), (0, ""));
    assert!(help.stdout.contains("--persistent-conn"), "{}", help.stdout);
    let version = "ipvsadm v1.31 2019/12/24 (compiled with popt and IPVS v1.2.1)\n";
    assert_eq!(exit("-v").stdout, version);
}

/// Command lines that a table with one service and one server rejects, and ipvsadm's messages; the exit code is 255.
const TABLE_ERRORS: &[(&str, &str)] = &[
    ("-A -t 10.0.0.1:80", "Service already exists"),
    (
        "-E -t 10.0.0.1:80 -s nope",
        "Scheduler or persistence engine not found",
    ),
    (
        "-A -t 10.0.0.2:80 -s nope",
        "Scheduler or persistence engine not found",
    ),
    (
        "-A -t 10.0.0.2:80 -p --pe sip",
        "Scheduler or persistence engine not found",
    ),
    ("-E -t 10.0.0.2:80", "No such service"),
    ("-D -u 10.0.0.1:80", "No such service"),
    ("-Z -f 1", "No such service"),
    ("-a -t 10.0.0.2:80 -r 10.1.0.1", "Service not defined"),
    ("-e -t 10.0.0.2:80 -r 10.1.0.1", "Service not defined"),
    ("-d -t 10.0.0.2:80 -r 10.1.0.1", "Service not defined"),
    (
        "-a -t 10.0.0.1:80 -r 10.1.0.1",
        "Destination already exists",
    ),
    ("-e -t 10.0.0.1:80 -r 10.1.0.2", "No such destination"),
    ("-d -t 10.0.0.1:80 -r 10.1.0.2:80", "No such destination"),
    (
        "-a -t 10.0.0.1:80 -r 10.1.0.2 -y 5",
        "Numerical result out of range",
    ),
    (
        "-e -t 10.0.0.1:80 -r 10.1.0.1 -x 4 -y 5",
        "Numerical result out of range",
    ),
    (
        "-a -t 10.0.0.1:80 -r 224.0.0.1",
        "Invalid operation.  Possibly wrong module version, address not unicast, ...",
    ),
    (
        "-A -t 10.0.0.2:80 -p -M 255.0.255.0",
        "Invalid operation.  Possibly wrong module version, address not unicast, ...",
    ),
    ("--start-daemon master", "Operation not supported"),
    ("--stop-daemon master", "No daemon is running"),
];

#[test]
fn kernel_errors_have_ipvsadm_messages() {
    let mut table = Table::default();
    for line in ["-A -t 10.0.0.1:80", "-a -t 10.0.0.1:80 -r 10.1.0.1"] {
        table.apply(&edit(line)).unwrap();
    }
    let before = table.clone();
    for (line, message) in TABLE_ERRORS {
        let edit = edit(line);
        let errno = table.apply(&edit).expect_err(line);
        assert_eq!(EditError::from(errno).message(&edit), *message, "{line}");
        assert_eq!(table, before, "{line}");
    }
    let error = EditError::from(Errno::Permission);
    assert_eq!(error.message(&Edit::Clear), PERMISSION);
}

const PERMISSION: &str = "Permission denied (you must be root)";

/// All messages of ipvsadm with their exit codes; `%s` is a placeholder for a variable part.
const REFERENCE: &[(i32, &str)] = &[
    (2, "You need to supply the '%s' option for the '%s' command"),
    (2, "Illegal '%s' option with the '%s' command"),
    (
        2,
        "The option '%s' conflicts with the '%s' option in the '%s' command",
    ),
    (
        2,
        "You need to supply the '%s' option for the '%s' tunnel type",
    ),
    (2, "Illegal '%s' option with the '%s' tunnel type"),
    (
        2,
        "The option '%s' conflicts with the '%s' option in the '%s' tunnel type",
    ),
    (2, "multiple '%s' options specified"),
    (2, "options conflicts in the list command"),
    (2, "Zero port specified for non-persistent service"),
    (2, "One-Packet Scheduling is only for UDP virtual services"),
    (
        2,
        "Different address family is allowed only for tunneling servers",
    ),
    (2, "Tunnel options conflict with forward method"),
    (2, "illegal virtual server address[:port] specified"),
    (2, "illegal real server address[:port] specified"),
    (2, "illegal weight specified"),
    (2, "illegal u_threshold specified"),
    (2, "illegal l_threshold specified"),
    (2, "invalid timeout value `%s' specified"),
    (2, "invalid scheduler flag `%s'"),
    (2, "incompatible scheduler flag `%s'"),
    (2, "illegal tunnel type specified"),
    (2, "--set option requires 3 timeout values"),
    (2, "unexpected argument %s"),
    (2, "-6 used before -f"),
    (255, "Service already exists"),
    (255, "Scheduler or persistence engine not found"),
    (255, "No such service"),
    (255, "Service not defined"),
    (255, "Destination already exists"),
    (255, "No such destination"),
    (255, "No daemon is running"),
    (255, "Permission denied (you must be root)"),
    (
        255,
        "Invalid operation.  Possibly wrong module version, address not unicast, ...",
    ),
    (255, "Numerical result out of range"),
];

#[test]
fn every_tool_message_is_tested() {
    let matches_pattern = |message: &str, pattern: &str| {
        let mut remaining = message;
        pattern.split("%s").all(|part| match remaining.find(part) {
            Some(index) => {
                remaining = &remaining[index + part.len()..];
                true
            }
            None => false,
        })
    };
    for (code, pattern) in REFERENCE {
        let is_tested = match code {
            2 => USAGE_ERRORS
                .iter()
                .any(|(_, message)| matches_pattern(message, pattern)),
            _ => {
                *pattern == PERMISSION || TABLE_ERRORS.iter().any(|(_, message)| message == pattern)
            }
        };
        assert!(is_tested, "{pattern} ({code})");
    }
}

/// All option names in messages, each with a command that accepts the option, and an example of the option.
const OPTIONS: &[(&str, &str, &str)] = &[
    ("numeric", "-L", "-n"),
    ("connection", "-L", "-c"),
    ("service-address", "-D", "-t 10.0.0.1:80"),
    ("scheduler", "-A -t 10.0.0.1:80", "-s rr"),
    ("persistent", "-A -t 10.0.0.1:80", "-p 5"),
    ("netmask", "-A -t 10.0.0.1:80 -p", "-M 255.255.255.0"),
    ("real-server", "-d -t 10.0.0.1:80", "-r 10.0.0.2"),
    ("forwarding-method", "-a -t 10.0.0.1:80 -r 10.0.0.2", "-g"),
    ("weight", "-a -t 10.0.0.1:80 -r 10.0.0.2", "-w 1"),
    ("u-threshold", "-a -t 10.0.0.1:80 -r 10.0.0.2", "-x 1"),
    ("l-threshold", "-a -t 10.0.0.1:80 -r 10.0.0.2", "-y 1"),
    (
        "mcast-interface",
        "--start-daemon master",
        "--mcast-interface eth0",
    ),
    ("timeout", "-L", "--timeout"),
    ("daemon", "-L", "--daemon"),
    ("stats", "-L", "--stats"),
    ("rate", "-L", "--rate"),
    ("thresholds", "-L", "--thresholds"),
    ("persistent-conn", "-L", "--persistent-conn"),
    ("nosort", "-L", "--nosort"),
    ("syncid", "--start-daemon master", "--syncid 1"),
    ("exact", "-L", "--exact"),
    ("ops", "-A -u 10.0.0.1:80", "-o"),
    ("pe", "-A -t 10.0.0.1:80", "--pe sip"),
    ("sched-flags", "-A -t 10.0.0.1:80 -s sh", "-b sh-port"),
    (
        "mcast-group",
        "--start-daemon master",
        "--mcast-group 224.0.0.81",
    ),
    ("mcast-port", "--start-daemon master", "--mcast-port 1"),
    ("mcast-ttl", "--start-daemon master", "--mcast-ttl 1"),
    ("sync-maxlen", "--start-daemon master", "--sync-maxlen 1"),
    ("tun-info", "-L", "--tun-info"),
    (
        "tun-type",
        "-a -t 10.0.0.1:80 -r 10.0.0.2 -i",
        "--tun-type gue",
    ),
    (
        "tun-port",
        "-a -t 10.0.0.1:80 -r 10.0.0.2 -i",
        "--tun-port 1",
    ),
    (
        "tun-nocsum",
        "-a -t 10.0.0.1:80 -r 10.0.0.2 -i",
        "--tun-nocsum",
    ),
    ("tun-csum", "-a -t 10.0.0.1:80 -r 10.0.0.2 -i", "--tun-csum"),
    (
        "tun-remcsum",
        "-a -t 10.0.0.1:80 -r 10.0.0.2 -i",
        "--tun-remcsum",
    ),
];

#[test]
fn duplicate_option_is_reported_by_name() {
    for (name, command, option) in OPTIONS {
        let exit = exit(&format!("{command} {option} {option}"));
        assert_eq!(
            (exit.code, exit.stderr),
            (2, format!("multiple '{name}' options specified\n"))
        );
    }
}

#[test]
fn option_order_matters() {
    // If no service precedes `-r`, the server has no port to inherit, and its port cannot be a name.
    let server_port = |line: &str| match edit(line) {
        Edit::AddServer(_, server) => server.key.port,
        other => panic!("{other:?}"),
    };
    assert_eq!(server_port("-a -t 10.0.0.1:80 -r 10.0.0.2 -m"), 80);
    assert_eq!(server_port("-a -r 10.0.0.2 -t 10.0.0.1:80 -m"), 0);
    assert_eq!(server_port("-a -r 10.0.0.2:8080 -t 10.0.0.1:80 -m"), 8080);
    // Only -m allows a port that differs from the service's.
    assert_eq!(server_port("-a -t 10.0.0.1:80 -r 10.0.0.2:8080 -g"), 80);
    assert_eq!(server_port("-a -f 1 -r 10.0.0.2:8080 -g"), 8080);
}

#[test]
fn weights_up_to_the_kernel_maximum_are_accepted() {
    for weight in [0, 65_535, 65_536, 70_000, i32::MAX as u32] {
        let line = format!("-a -t 10.0.0.1:80 -r 10.0.0.2 -w {weight}");
        match edit(&line) {
            Edit::AddServer(_, server) => assert_eq!(server.weight, weight),
            other => panic!("{other:?}"),
        }
    }
}

/// Resolves three host names and one port name.
struct FixedNames;

impl Names for FixedNames {
    fn address(&self, host: &str) -> Option<Ipv4Addr> {
        ["vip.example", "both.example"]
            .contains(&host)
            .then_some(Ipv4Addr::new(10, 0, 0, 1))
    }

    fn address6(&self, host: &str) -> Option<Ipv6Addr> {
        ["six.example", "both.example"]
            .contains(&host)
            .then_some(Ipv6Addr::LOCALHOST)
    }

    fn port(&self, service: &str, protocol: Protocol) -> Option<u16> {
        (service == "http" && protocol == Protocol::Tcp).then_some(80)
    }

    fn host(&self, _: IpAddr) -> Option<String> {
        None
    }

    fn service(&self, _: u16, _: Protocol) -> Option<String> {
        None
    }
}

#[test]
fn host_and_port_names_are_resolved() {
    let parsed = |line: &str| parse("ipvsadm", &words(line), &FixedNames);
    assert_eq!(
        parsed("-D -t vip.example:http").unwrap(),
        Command::Edit(edit("-D -t 10.0.0.1:80"))
    );
    assert!(parsed("-D -u vip.example:http").is_err());
    // Names of IPv6 hosts, as `-S` prints them.
    for host in ["six.example", "both.example"] {
        assert_eq!(
            parsed(&format!("-D -t [{host}]:http")).unwrap(),
            Command::Edit(edit("-D -t [::1]:80"))
        );
    }
    assert_eq!(
        parsed("-a -t [six.example]:http -r [both.example]:http -m").unwrap(),
        Command::Edit(edit("-a -t [::1]:80 -r [::1]:80 -m"))
    );
    assert_eq!(
        parsed("-D -t both.example:http").unwrap(),
        Command::Edit(edit("-D -t 10.0.0.1:80"))
    );
    assert!(parsed("-D -t six.example:http").is_err());
}
