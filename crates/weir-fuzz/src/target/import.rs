//! Fuzzes the importers of other programs' configuration files.
//!
//! `weir check` must accept the files that the importers write; for ipvsadm, only panics are detected.

use weir_config::Host;
use weir_import::EmptyEnvironment;
use weir_ipvsadm::NumericNames;

use super::texts;

type Importer = fn(&str, &str, &dyn weir_import::Environment) -> weir_import::Imported;

fn import(importer: Importer, input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    assert_accepted(&importer("file", text, &EmptyEnvironment).toml);
}

fn assert_accepted(toml: &str) {
    if let Err(problems) = weir_config::parse(toml, &Host::default()) {
        let rendered = weir_config::render(&problems, toml, "weir.toml", false);
        panic!("an importer wrote an invalid configuration:\n{rendered}");
    }
}

pub(super) fn haproxy(input: &[u8]) {
    import(weir_import::haproxy, input);
}

pub(super) fn nginx(input: &[u8]) {
    import(weir_import::nginx, input);
}

pub(super) fn keepalived(input: &[u8]) {
    import(weir_import::keepalived, input);
}

pub(super) fn ldirectord(input: &[u8]) {
    import(weir_import::ldirectord, input);
}

/// Imports the input as a saved table, and parses each of its lines as a command line.
pub(super) fn ipvsadm(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    let _ = weir_ipvsadm::import(text, &NumericNames);
    for line in text.lines() {
        let _ = weir_ipvsadm::parse("ipvsadm", &weir_ipvsadm::words(line), &NumericNames);
    }
}

pub(super) fn haproxy_seeds() -> Vec<Vec<u8>> {
    texts(&[
        include_str!("../../../weir-import/tests/corpus/haproxy/01-simple.cfg"),
        include_str!("../../../weir-import/tests/corpus/haproxy/03-acls.cfg"),
        include_str!("../../../weir-import/tests/corpus/haproxy/04-checks.cfg"),
        include_str!("../../../weir-import/tests/corpus/haproxy/06-cookies.cfg"),
    ])
}

pub(super) fn nginx_seeds() -> Vec<Vec<u8>> {
    texts(&[
        "events {}\nhttp {\n upstream u { server 10.0.0.1:80 weight=2; server 10.0.0.2 backup; ip_hash; }\n server { listen 80; server_name a.example *.b; location /x/ { proxy_pass http://u/y/; } location ~ ^/z { return 403; } }\n}\n",
        "stream { upstream s { least_conn; server 10.0.0.1:5; } server { listen 5; proxy_pass s; proxy_timeout 3s; } }\n",
    ])
}

pub(super) fn keepalived_seeds() -> Vec<Vec<u8>> {
    texts(&[
        include_str!("../../../weir-import/tests/corpus/keepalived/02-http-checks.conf"),
        include_str!("../../../weir-import/tests/corpus/keepalived/12-definitions.conf"),
        include_str!("../../../weir-import/tests/corpus/keepalived/15-vrrp.conf"),
    ])
}

pub(super) fn ldirectord_seeds() -> Vec<Vec<u8>> {
    texts(&[
        include_str!("../../../weir-import/tests/corpus/ldirectord/01-gate.cf"),
        include_str!("../../../weir-import/tests/corpus/ldirectord/06-checktypes.cf"),
    ])
}

pub(super) fn ipvsadm_seeds() -> Vec<Vec<u8>> {
    texts(&[
        "-A -t 192.0.2.1:80 -s wlc -p 300\n-a -t 192.0.2.1:80 -r 10.0.0.1:80 -g -w 1\n-A -f 3 -6 -s rr -o\n",
        "-Ln --stats --rate --exact\n-E -u [2001:db8::1]:53 -s mh -b mh-port\n--set 1 2 3\n",
    ])
}
