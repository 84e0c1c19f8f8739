//! Tests which values a configuration accepts at the bounds of a key, and which keys apply to a table.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use weir_config::{Bundle, Code, Files, Host, Machine, bundle, canonical, is_publishable, parse};
use weir_model::{Desired, Digest, Family, Forward, Probe, RouterKey, SecretSource};

const HOST: Host = Host {
    local_ports: None,
    forwards: None,
};

/// Returns the code and message of each finding in a valid or invalid configuration, except for unused pools.
fn findings(text: &str) -> Vec<(Code, String)> {
    let diagnostics = match parse(text, &HOST) {
        Ok(parsed) => parsed.findings,
        Err(diagnostics) => diagnostics,
    };
    let diagnostics = diagnostics
        .into_iter()
        .filter(|it| it.code != Code::UnusedPool);
    diagnostics.map(|it| (it.code, it.message)).collect()
}

#[track_caller]
fn assert_valid(text: &str) -> Desired {
    assert_eq!(findings(text), [], "{text}");
    parse(text, &HOST).expect("no findings").desired
}

#[track_caller]
fn assert_only_finding(text: &str, code: Code, message: &str) {
    assert_eq!(findings(text), [(code, message.to_owned())], "{text}");
}

/// Returns a pool with these keys.
fn pool(keys: &str) -> String {
    format!("[pool.p]\nservers = [\"10.0.0.5:80\"]\n{keys}\n")
}

fn check(keys: &str) -> String {
    pool(&format!("check = {{ {keys} }}"))
}

fn probe(keys: &str) -> Probe {
    let desired = assert_valid(&check(keys));
    desired.pools[0].checks[0].probe.clone()
}

/// Returns an http service with these keys.
fn service(keys: &str) -> String {
    format!(
        "{}[service.s]\nlisten = [\"192.0.2.1:80\"]\nforward = \"proxy\"\nprotocol = \"http\"\npool = \"p\"\n{keys}\n",
        check("kind = \"tcp\"")
    )
}

fn route(keys: &str) -> String {
    service(&format!("[[route]]\nservice = \"s\"\n{keys}"))
}

#[test]
fn host_field_of_a_pool_has_at_most_253_bytes_and_a_port() {
    let max = weir_model::Pool::MAX_HOST_BYTES;
    let with_host =
        |length: usize| check("kind = \"tcp\"") + &format!("host = \"{}\"\n", "a".repeat(length));
    assert_valid(&with_host(max));
    let long_value = "a".repeat(max + 1);
    assert_only_finding(
        &with_host(max + 1),
        Code::BadName,
        &format!("invalid host `{long_value}`"),
    );
    assert_only_finding(&with_host(0), Code::BadName, "invalid host ``");
}

#[test]
fn dns_name_has_at_most_253_bytes_and_labels_at_most_63() {
    let label = |length: usize| "a".repeat(length);
    let name = |last: usize| [label(63), label(63), label(63), label(last)].join(".");
    for (query, is_valid) in [
        (name(61), true),
        (name(62), false),
        (label(63), true),
        (label(64), false),
        (format!("b.{}.c", label(64)), false),
    ] {
        let text = check(&format!("kind = \"dns\", query = \"{query}\""));
        if is_valid {
            assert_valid(&text);
        } else {
            let message = format!("`{query}` is not a valid DNS name");
            assert_only_finding(&text, Code::BadText, &message);
        }
    }
}

#[test]
fn path_and_method_of_a_check_are_validated() {
    for (keys, message) in [
        ("path = \"up\"", "`up` is not a valid path"),
        ("path = \"/a b\"", "`/a b` is not a valid path"),
        ("method = \"\"", "`` is not a valid method"),
        ("method = \"G ET\"", "`G ET` is not a valid method"),
    ] {
        let text = check(&format!("kind = \"http\", {keys}"));
        assert_only_finding(&text, Code::BadText, message);
    }
    assert_valid(&check(
        "kind = \"http\", path = \"/a%20b\", method = \"OPTIONS\"",
    ));
}

#[test]
fn digest_of_a_body_has_32_or_64_hexadecimal_digits() {
    let with_digest =
        |digest: &str| format!("kind = \"http\", expect = {{ digest = \"{digest}\" }}");
    let digest = |text: &str| match probe(&with_digest(text)) {
        Probe::Http(http) => http.digest,
        other => panic!("{other:?}"),
    };
    let md5: [u8; 16] = std::array::from_fn(|index| 0x10 + index as u8);
    let text = "101112131415161718191a1b1c1D1E1F";
    assert_eq!(digest(text), Some(Digest::Md5(md5)));
    let sha256: [u8; 32] = std::array::from_fn(|index| md5[index % 16]);
    assert_eq!(digest(&text.repeat(2)), Some(Digest::Sha256(sha256)));
    for invalid in [&text[1..], &text.replace(['f', 'F'], "g")] {
        let message = format!("`{invalid}` is not a valid digest");
        assert_only_finding(&check(&with_digest(invalid)), Code::BadText, &message);
    }
}

#[test]
fn overlapping_listener_is_compared_with_the_widest_earlier_one() {
    let text = format!(
        "{}[service.s]\nlisten = [\"192.0.2.1:80-90\", \"192.0.2.1:85-90\", \"192.0.2.1:88-89\", \"192.0.2.1:91-95\"]\n\
         forward = \"nat\"\npool = \"p\"\n",
        "[pool.p]\nservers = [\"10.0.0.5\"]\ncheck = { kind = \"tcp\", port = 80 }\n"
    );
    let diagnostics: Vec<String> = findings(&text)
        .into_iter()
        .map(|(_, message)| message)
        .collect();
    assert_eq!(
        diagnostics,
        [
            "tcp/192.0.2.1:85-90 overlaps tcp/192.0.2.1:80-90",
            "tcp/192.0.2.1:88-89 overlaps tcp/192.0.2.1:80-90",
        ]
    );
}

#[test]
fn hosts_of_the_api_are_names_or_addresses_with_a_port() {
    let admin = |host: &str| {
        format!("[node]\nadmin = {{ listen = \"127.0.0.1:9900\", hosts = [\"{host}\"] }}\n")
    };
    for host in [
        "lb1.example",
        "LB_1:9900",
        "[fd00::1]",
        "[fd00::1]:9900",
        "192.0.2.1:1",
    ] {
        assert_valid(&admin(host));
    }
    for host in [
        "",
        ":80",
        "a:0",
        "a:65536",
        "a:b",
        "*.example",
        "[a]",
        "[fd00::1]:",
        "fd00::1",
        "a/b",
    ] {
        let message = format!("`{host}` is not NAME or NAME:PORT");
        assert_only_finding(&admin(host), Code::BadName, &message);
    }
}

#[test]
fn virtual_router_key_is_text_or_hexadecimal() {
    let router = |secret: &str| {
        format!(
            "[vrrp.v]\ninterface = \"eth0\"\nvirtual_router_id = 1\naddresses = [\"192.0.2.9/24\"]\nhmac = {{ keys = \
             [{{ id = 1, secret = \"{secret}\" }}] }}\n"
        )
    };
    let key = |secret: &str| {
        let desired = assert_valid(&router(secret));
        desired.vrrp[0].hmac.clone().expect("the key is set").keys[0]
            .1
            .clone()
    };
    let bytes: Vec<u8> = (0x90..0xb0).collect();
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(key(&format!("hex:{digits}")), RouterKey(bytes));
    let text = "0123456789abcdef0123456789abcdef";
    assert_eq!(key(text), RouterKey(text.into()));
    assert_eq!(key(&text.repeat(2)), RouterKey(text.repeat(2).into()));
    let pairs = "the text after `hex:` is not a sequence of hexadecimal digit pairs";
    for (secret, message) in [
        (&text[1..], "the key has 31 bytes; it must have 32 to 64"),
        (
            &format!("{}x", text.repeat(2)),
            "the key has 65 bytes; it must have 32 to 64",
        ),
        ("hex:00", "the key has 1 bytes; it must have 32 to 64"),
        (&format!("hex:{digits}0"), pairs),
        (&format!("hex:{}g0", &digits[2..]), pairs),
    ] {
        assert_only_finding(&router(secret), Code::BadText, message);
    }
}

#[test]
fn burst_is_limited_by_the_rate() {
    // The rate allows 32,000 requests in the maximum of 32,000 seconds.
    for (limits, code) in [
        ("rate = 1, burst = 32000", None),
        ("rate = 1, burst = 32001", Some(Code::OutOfRange)),
        ("rate = \"60/m\", burst = 32001", Some(Code::OutOfRange)),
        ("rate = 2, burst = 32001", None),
        ("burst = 9", Some(Code::NoEffect)),
        ("", Some(Code::NoEffect)),
        ("concurrent = 1", None),
    ] {
        let diagnostics = findings(&route(&format!("pool = \"p\"\nlimits = {{ {limits} }}")));
        let codes: Vec<Code> = diagnostics.into_iter().map(|(code, _)| code).collect();
        assert_eq!(codes, Vec::from_iter(code), "{limits}");
    }
}

#[test]
fn certificates_are_listed_once() {
    let tls = |certificates: &str| service(&format!("tls = {{ certificates = {certificates} }}"));
    for (certificates, expected) in [
        ("\"/a\"", &["/a"][..]),
        ("[\"/a\", \"/b\", \"/a\"]", &["/a", "/b"]),
    ] {
        let desired = assert_valid(&tls(certificates));
        let tls = desired.proxies[0].tls.as_ref().expect("the key is set");
        assert_eq!(tls.certificates, expected);
    }
    assert_only_finding(&tls("[]"), Code::BadText, "`certificates` is an empty list");
}

#[test]
fn dns_names_of_servers_have_labels_with_underscores() {
    let servers = |name: &str| {
        format!(
            "[pool.p]\nservers_dns = {{ name = \"{name}\", port = 80 }}\ncheck = {{ kind = \"tcp\" }}\n"
        )
    };
    for name in ["_http._tcp.a-b.example", "a.example."] {
        assert_valid(&servers(name));
    }
    for name in ["a!b.example", "a..b", ".", &"a".repeat(64)] {
        let message = format!("`{name}` is not a valid DNS name");
        assert_only_finding(&servers(name), Code::BadName, &message);
    }
}

#[test]
fn defaults_apply_only_to_services_with_the_key() {
    let text = |protocol: &str| {
        format!(
            "[defaults.service]\npersistence = true\nsnat = {{ addresses = [\"10.0.0.1\"] }}\ntunnel = \"gre\"\ndscp = \
             9\nnormalize_path = true\ntimeouts = {{ client = \"7s\" }}\ntrusted = [\"10.0.0.0/8\"]\n\
             [pool.p]\nservers = [\"10.0.0.5\"]\ncheck = {{ kind = \"tcp\", port = 80 }}\n[service.proxy]\nlisten = \
             [\"192.0.2.1:80\"]\nforward = \"proxy\"\nprotocol = \"{protocol}\"\npool = \"p\"\n[service.nat]\nlisten = \
             [\"192.0.2.1:81\"]\nforward = \"nat\"\npool = \"p\"\n[service.tunnel]\nlisten = [\"192.0.2.1:82\"]\n\
             forward = \"tunnel\"\npool = \"p\"\n[service.l3dsr]\nlisten = [\"192.0.2.1:83\"]\nforward = \"l3dsr\"\n\
             pool = \"p\"\n"
        )
    };
    for protocol in ["http", "tcp"] {
        let desired = assert_valid(&text(protocol));
        assert_eq!(desired.proxies[0].trusted.len(), 1);
        for service in &desired.services {
            assert_eq!(
                service.snat.is_some(),
                service.forward == Forward::Nat,
                "{}",
                service.name
            );
            assert!(service.persistence.is_some(), "{}", service.name);
        }
        assert_eq!(desired.services[2].dscp, 9);
    }
}

#[test]
fn defaults_of_checks_apply_to_checks_of_servers() {
    let text = "[defaults.check]\ninterval = \"9s\"\n[defaults.pool]\nsticky = { cookie = \"d\", private = true }\n\
                [pool.p]\nsticky = { cookie = \"c\" }\nservers = [{ address = \"10.0.0.5:80\", check = { kind = \
                \"tcp\" } }, { address = \"10.0.0.6:80\", check = [{ kind = \"tcp\", interval = \"3s\" }] }]\n\
                [service.s]\nlisten = [\"192.0.2.1:80\"]\nforward = \"proxy\"\nprotocol = \"http\"\npool = \"p\"\n";
    let desired = assert_valid(text);
    let intervals = desired.pools[0].servers.iter().map(|server| {
        let checks = server.checks.as_ref().expect("the server has a check");
        checks[0].timing.interval.as_secs()
    });
    assert_eq!(intervals.collect::<Vec<_>>(), [9, 3]);
    // Only `timeouts` and `limits` are merged key by key.
    let sticky = desired.pools[0].sticky.as_ref().expect("the key is set");
    assert_eq!((sticky.cookie.as_str(), sticky.private), ("c", false));
}

#[test]
fn include_is_rejected_outside_files() {
    let text = "include = [\"other.toml\"]\n";
    let diagnostics = findings(text);
    assert_eq!(diagnostics.len(), 1, "{diagnostics:?}");
    let bundled = format!("{text}\n#\u{1}/etc/other.toml\n[node]\n");
    assert_valid(&bundled);
    assert!(is_publishable("[node]\n") && !is_publishable(&bundled));
}

#[test]
fn syntax_error_in_an_included_file_has_its_position() {
    let text = "include = [\"b.toml\"]\n# comment\n\n#\u{1}/etc/b.toml\n[node]\nmax_flows = = 3\n";
    let errors = parse(text, &HOST).expect_err("a syntax error");
    let positions: Vec<(Code, u32, u32)> = errors
        .iter()
        .map(|it| (it.code, it.at.file, it.at.line))
        .collect();
    assert!(positions.contains(&(Code::Syntax, 1, 2)), "{positions:?}");
}

struct MemoryFiles(Vec<(String, String)>);

impl Files for MemoryFiles {
    fn read(&self, path: &Path) -> Result<(PathBuf, String), String> {
        let found = self.0.iter().find(|(name, _)| Path::new(name) == path);
        let (_, text) = found.ok_or("no such file")?;
        Ok((path.to_owned(), text.clone()))
    }

    fn list(&self, _: &Path) -> Result<Vec<String>, String> {
        let names = self
            .0
            .iter()
            .filter_map(|(name, _)| name.strip_prefix("/etc/d/"));
        Ok(names.map(str::to_owned).collect())
    }
}

fn include_directory(files: Vec<(String, String)>) -> Bundle {
    bundle(
        "include = [\"d/*.toml\"]\n",
        Path::new("/etc/weir.toml"),
        &MemoryFiles(files),
    )
}

#[test]
fn include_pattern_skips_hidden_files_and_other_suffixes() {
    let names = ["a.toml", ".b.toml", "c.txt", ".d.txt"];
    let files = names.map(|name| (format!("/etc/d/{name}"), "# x\n".to_owned()));
    let bundle = include_directory(files.into());
    assert_eq!(bundle.errors, []);
    assert_eq!(weir_config::files(&bundle.text), ["", "/etc/d/a.toml"]);
}

#[test]
fn total_size_and_number_of_included_files_are_limited() {
    let file = |index: usize, bytes: usize| (format!("/etc/d/{index:04}.toml"), "#".repeat(bytes));
    let too_many = include_directory((0..2000).map(|index| file(index, 1)).collect());
    assert!(!too_many.errors.is_empty());
    let too_large = include_directory(vec![file(0, 16 << 20)]);
    assert_eq!(too_large.errors.len(), 1);
    let message = &too_large.errors[0].message;
    assert!(message.contains("16777216 bytes in total"), "{message}");
}

#[test]
fn dotted_keys_of_inline_tables_are_formatted() {
    let formatted = canonical("a = {b . c=1,b.d  =  { e=2 },f=3}\n").expect("valid TOML");
    assert_eq!(formatted, "a = { b.c = 1, b.d = { e = 2 }, f = 3 }\n");
}

#[test]
fn paths_are_absolute_and_have_at_most_one_query() {
    for (to, is_valid) in [
        ("/a", true),
        ("/a?b", true),
        ("{path}", true),
        ("a", false),
        ("/a?b?c", false),
        ("/a b", false),
        ("/a#b", false),
    ] {
        let diagnostics = findings(&route(&format!("pool = \"p\"\nrewrite = \"{to}\"")));
        let expected = (Code::BadName, format!("invalid path `{to}`"));
        assert_eq!(
            diagnostics,
            Vec::from_iter((!is_valid).then_some(expected)),
            "{to}"
        );
    }
}

#[test]
fn paths_of_static_files_stay_in_their_directory() {
    let with_files = |keys: &str| route(&format!("files = {{ {keys} }}"));
    assert_valid(&with_files(
        "root = \"/srv\", try = [\"{path}\", \"{path}.html\", \"/index.html\"]",
    ));
    for attempt in ["index.html", "/../a", "{path}/..", "/{host}", "/a\\u0000"] {
        let diagnostics = findings(&with_files(&format!(
            "root = \"/srv\", try = [\"{attempt}\"]"
        )));
        let codes: Vec<Code> = diagnostics.iter().map(|(code, _)| *code).collect();
        assert_eq!(codes, [Code::BadText], "{attempt}: {diagnostics:?}");
    }
    for root in ["srv", "/s\\u0000"] {
        let diagnostics = findings(&with_files(&format!("root = \"{root}\"")));
        let message = "the directory must be an absolute path".to_owned();
        assert_eq!(diagnostics, [(Code::BadText, message)], "{root}");
    }
}

#[test]
fn maps_in_a_log_format_are_added_to_the_service() {
    let text = service("access_log = { path = \"/log\", format = \"{map.two} {status}\" }")
        + "[map.one]\nentries = [\"a b\"]\n[map.two]\nentries = [\"c d\"]\n";
    let desired = assert_valid(&text);
    let names: Vec<&str> = desired.proxies[0]
        .log_maps
        .iter()
        .map(|map| map.name.as_str())
        .collect();
    assert_eq!(names, ["two"]);
}

/// A machine whose properties are unknown.
struct UnknownMachine;

impl Machine for UnknownMachine {
    fn local_ports(&self) -> Option<(u16, u16)> {
        None
    }

    fn forwards(&self, _: Family) -> Option<bool> {
        None
    }
}

#[test]
fn properties_of_a_machine_are_unknown_by_default() {
    let address: SocketAddr = ([192, 0, 2, 1], 80).into();
    assert_eq!(UnknownMachine.has_group("a"), None);
    assert_eq!(UnknownMachine.has_interface("a"), None);
    assert_eq!(UnknownMachine.has_address(address), None);
    assert_eq!(UnknownMachine.has_program("/a"), None);
    assert!(UnknownMachine.secret(&SecretSource::Text).is_none());
    assert!(UnknownMachine.variable("A").is_none());
    assert_eq!(UnknownMachine.list_file("/a"), None);
}
