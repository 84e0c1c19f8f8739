//! Tests the TLS, access log and header settings of services, and `admin`.

use weir_model::{
    AccessLog, Admin, CipherSuite, ClientAuth, Coding, Compression, ErrorResponse, Forwarded,
    LogFormat, ServiceTls, SyslogFormat, TlsGroup, TlsVersion,
};

use crate::{POOL, desired, messages, with_service};

#[track_caller]
fn tls(fields: &str) -> ServiceTls {
    let text = with_service(&format!("tls = {{ certificates = \"/c\"{fields} }}"));
    desired(&text).proxies[0]
        .tls
        .clone()
        .expect("no TLS settings")
}

#[test]
fn certificates_are_paths_without_duplicates() {
    for (certificates, expected) in [
        ("\"/c\"", &["/c"][..]),
        ("[\"/c\", \"/d.pem\", \"/c\"]", &["/c", "/d.pem"]),
    ] {
        let text = with_service(&format!("tls = {{ certificates = {certificates} }}"));
        let found = desired(&text).proxies[0]
            .tls
            .clone()
            .expect("no TLS settings");
        assert_eq!(found.certificates, expected);
    }
    let not_absolute = "`certificates` must be an absolute path";
    for (certificates, message) in [
        ("\"c\"", not_absolute),
        ("[\"/c\", \"d\"]", not_absolute),
        ("[]", "`certificates` is an empty list"),
    ] {
        let text = with_service(&format!("tls = {{ certificates = {certificates} }}"));
        assert_eq!(messages(&text), [message], "{certificates}");
    }
}

#[test]
fn tls_settings_of_a_service_are_in_the_model() {
    let found = tls(
        ", minimum = \"1.2\", strict_sni = true, client_ca = \"/ca\", client_crl = \"/crl\", client_auth = \
         \"optional\", groups = [\"X25519\", \"secp256r1\", \"X25519\"], ciphers = [\"ECDHE-RSA-AES128-GCM-SHA256\", \
         \"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256\"], ticket_keys = [\"0123456789abcdef0123456789abcdef\"]",
    );
    assert_eq!((found.minimum, found.strict_sni), (TlsVersion::V12, true));
    assert_eq!(found.client_ca.as_deref(), Some("/ca"));
    assert_eq!(found.client_crl.as_deref(), Some("/crl"));
    assert_eq!(found.client_auth, ClientAuth::Optional);
    assert_eq!(found.groups, [TlsGroup::X25519, TlsGroup::P256]);
    assert_eq!(found.ciphers, [CipherSuite::RsaAes128Gcm]);
    assert_eq!(found.ticket_keys[0].expose().len(), 32);
    let default = tls("");
    assert!(!default.strict_sni && default.ciphers.is_empty() && default.groups.is_empty());
    assert_eq!(tls(", minimum = \"1.3\"").minimum, TlsVersion::V13);
    // TLS 1.3 supports groups that TLS 1.2 does not support.
    assert_eq!(
        tls(", minimum = \"1.3\", groups = [\"X25519MLKEM768\"]")
            .groups
            .len(),
        1
    );
    assert_eq!(
        tls(", minimum = \"1.2\", groups = [\"X25519MLKEM768\", \"X25519\"]")
            .groups
            .len(),
        2
    );
    assert_eq!(
        tls(", minimum = \"1.3\", ciphers = [\"TLS_AES_128_GCM_SHA256\"]")
            .ciphers
            .len(),
        1
    );
}

#[test]
fn contradictory_tls_settings_are_reported() {
    for (fields, message) in [
        (
            "client_auth = \"optional\"",
            "`client_auth` requires `client_ca`",
        ),
        ("client_crl = \"/crl\"", "`client_crl` requires `client_ca`"),
        (
            "ticket_keys = [\"0123456789abcdef0123456789abcde\"]",
            "a ticket key is shorter than 32 bytes",
        ),
        ("groups = []", "`groups` is empty"),
        ("ciphers = []", "`ciphers` is empty"),
        (
            "minimum = \"1.2\", groups = [\"X25519MLKEM768\"]",
            "TLS 1.2 supports none of these groups",
        ),
        (
            "minimum = \"1.3\", ciphers = [\"TLS_AES_128_GCM_SHA256\", \"ECDHE-RSA-AES128-GCM-SHA256\"]",
            "`TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256` is a cipher suite of TLS 1.2, which `minimum` excludes",
        ),
        ("client_ca = \"ca\"", "`client_ca` must be an absolute path"),
    ] {
        let text = with_service(&format!("tls = {{ certificates = \"/c\", {fields} }}"));
        assert_eq!(messages(&text), [message], "{fields}");
    }
}

#[test]
fn tls_of_a_pool_is_a_flag_or_a_table() {
    let with_tls = |tls: &str| {
        let text = with_service("");
        text.replace("[service.s]", &format!("tls = {tls}\n[service.s]"))
    };
    let pool_tls = |tls: &str| desired(&with_tls(tls)).pools[0].tls.clone();
    assert_eq!(pool_tls("false"), None);
    let found = pool_tls("true").expect("no TLS settings");
    assert_eq!(
        (found.verify, found.ca, found.server_name),
        (true, None, None)
    );
    let found = pool_tls(
        "{ verify = false, ca = \"/ca\", server_name = \"A_b-1.example\", certificate = \"/own\", minimum = \"1.3\" }",
    );
    let found = found.expect("no TLS settings");
    assert_eq!((found.verify, found.ca.as_deref()), (false, Some("/ca")));
    assert_eq!(found.server_name.as_deref(), Some("a_b-1.example"));
    assert_eq!(
        (found.certificate.as_deref(), found.minimum),
        (Some("/own"), TlsVersion::V13)
    );
    let longest = format!("{}a.b", "a.".repeat(125));
    assert_eq!(longest.len(), 253);
    let tls = |name: &str| format!("{{ server_name = \"{name}\" }}");
    assert!(pool_tls(&tls(&longest)).is_some());
    for name in ["", "a..b", "a b", "a.", "a:80", &format!("{longest}c")] {
        assert_eq!(
            messages(&with_tls(&tls(name))),
            [format!("invalid host `{name}`")]
        );
    }
}

#[test]
fn access_log_has_a_target_and_a_format() {
    let log = |value: &str| {
        let found = desired(&with_service(&format!("access_log = {value}")));
        found.proxies[0].access_log.clone().expect("no access log")
    };
    for path in [
        "-",
        "syslog",
        "journald",
        "syslog:/run/log",
        "journald:/run/j",
        "/var/log/a",
    ] {
        let expected = AccessLog::new(path, LogFormat::Combined);
        assert_eq!(log(&format!("\"{path}\"")), expected);
        assert_eq!(log(&format!("{{ path = \"{path}\" }}")), expected);
    }
    for (format, expected) in [
        ("combined", LogFormat::Combined),
        ("json", LogFormat::Json),
        (
            "{client} {response.X-A}",
            LogFormat::Template("{client} {response.X-A}".to_owned()),
        ),
    ] {
        let found = log(&format!("{{ path = \"-\", format = \"{format}\" }}"));
        assert_eq!(found.format, expected);
    }
    let found = log("{ path = \"-\", sample = 10, syslog_format = \"rfc5424\" }");
    assert_eq!((found.sample, found.syslog), (10, SyslogFormat::Rfc5424));
    for (value, message) in [
        ("\"log\"", "the log path must be absolute"),
        ("\"syslog:log\"", "the log path must be absolute"),
        ("\"/a\\u0000\"", "the log path must be absolute"),
        (
            "{ path = \"-\", format = \"x\" }",
            "the log format contains no variables",
        ),
        (
            "{ path = \"-\", format = \"{client\" }",
            "`{` without matching `}`",
        ),
        (
            "{ path = \"-\", format = \"{client} {x\" }",
            "`{` without matching `}`",
        ),
        (
            "{ path = \"-\", format = \"{clint}\" }",
            "unknown log variable `clint`",
        ),
        (
            "{ path = \"-\", format = \"{rest}\" }",
            "unknown log variable `rest`",
        ),
        (
            "{ path = \"-\", format = \"{map.m}\" }",
            "unknown log variable `map.m`",
        ),
    ] {
        assert_eq!(
            messages(&with_service(&format!("access_log = {value}"))),
            [message],
            "{value}"
        );
    }
}

#[test]
fn log_uses_only_the_maps_in_its_format() {
    let text = with_service(
        "access_log = { path = \"-\", format = \"{client} {map.b}\" }\n[map.a]\nentries = [\"x \
         y\"]\n[map.b]\nentries = [\"x z\"]",
    );
    let found = desired(&text);
    let names: Vec<&str> = found.proxies[0]
        .log_maps
        .iter()
        .map(|it| it.name.as_str())
        .collect();
    assert_eq!(names, ["b"]);
}

#[test]
fn header_field_names_are_tokens() {
    let found = desired(&with_service(
        "request_id = \"X-Request-Id\"\nclient_ip_header = \"X-Client!\"\ntrusted = [\"10.0.0.0/8\"]\n\
         client_ip_recursive = false",
    ));
    let proxy = &found.proxies[0];
    assert_eq!(proxy.request_id.as_deref(), Some("X-Request-Id"));
    assert_eq!(proxy.client_ip_header.as_deref(), Some("x-client!"));
    assert!(!proxy.client_ip_recursive);
    assert!(desired(&with_service("")).proxies[0].client_ip_recursive);
    for name in ["", "a b", "a:", "\u{e9}"] {
        let found = messages(&with_service(&format!("request_id = \"{name}\"")));
        assert_eq!(found, [format!("`{name}` is not a header field name")]);
    }
    for (lines, message) in [
        (
            "client_ip_header = \"X-A\"",
            "`client_ip_header` requires `trusted`",
        ),
        (
            "client_ip_recursive = true",
            "`client_ip_recursive` has no effect without `client_ip_header`",
        ),
    ] {
        assert_eq!(messages(&with_service(lines)), [message]);
    }
}

fn with_admin(value: &str) -> String {
    format!("[node]\nadmin = {value}\n")
}

#[track_caller]
fn admin(value: &str) -> Admin {
    desired(&with_admin(value))
        .node
        .admin
        .expect("no admin listener")
}

#[test]
fn admin_is_an_address_or_a_table() {
    for address in ["127.0.0.1:9900", "[::1]:1"] {
        let listen = address.parse().expect("parse address");
        for value in [
            format!("\"{address}\""),
            format!("{{ listen = \"{address}\" }}"),
        ] {
            let found = admin(&value);
            assert_eq!((found.listen, found.read_requires_token), (listen, false));
            assert_eq!((found.source.line, found.source.column), (2, 1));
        }
    }
    let found = admin(
        "{ listen = \"192.0.2.1:9900\", tls = { certificates = \"/c\" }, tokens = \"/t\", hosts = [\"LB1.example\"] }",
    );
    assert!(found.read_requires_token && found.tls.is_some());
    assert_eq!(
        (found.tokens.as_deref(), found.hosts),
        (Some("/t"), vec!["lb1.example".to_owned()])
    );
    let found = admin(
        "{ listen = \"192.0.2.1:9900\", tls = { certificates = \"/c\" }, read_requires_token = false }",
    );
    assert!(!found.read_requires_token);
    assert!(admin("{ listen = \"127.0.0.1:1\", read_requires_token = true }").read_requires_token);
}

#[test]
fn invalid_admin_is_rejected() {
    let without_tls = "`admin` at 192.0.2.1:9900 needs `tls`: it is reachable from other machines";
    for (value, message) in [
        ("\"127.0.0.1:0\"", "port 0 is not allowed"),
        ("\"127.0.0.1\"", "expected ADDRESS:PORT, found `127.0.0.1`"),
        ("\"::1\"", "expected ADDRESS:PORT, found `::1`"),
        (
            "\"localhost:1\"",
            "expected ADDRESS:PORT, found `localhost:1`",
        ),
        ("\"192.0.2.1:9900\"", without_tls),
        (
            "{ listen = \"192.0.2.1:9900\", tokens = \"/t\" }",
            without_tls,
        ),
        (
            "{ listen = \"192.0.2.1:9900\", tls = { certificates = \"/c\" } }",
            "clients on other machines have no access",
        ),
        (
            "{ listen = \"127.0.0.1:1\", tokens = \"t\" }",
            "`tokens` must be an absolute path",
        ),
        (
            "{ listen = \"127.0.0.1:1\", tls = { certificates = \"/c\", ticket_keys = \
             [\"0123456789abcdef0123456789abcdef\"] } }",
            "`ticket_keys` is not allowed here: TLS sessions of the API are not resumed",
        ),
        // The invalid path does not also cause an error about a missing `tls`.
        (
            "{ listen = \"192.0.2.1:9900\", tls = { certificates = \"c\" }, tokens = \"/t\" }",
            "`certificates` must be an absolute path",
        ),
    ] {
        assert_eq!(messages(&with_admin(value)), [message], "{value}");
    }
}

#[test]
fn hosts_of_admin_are_names_or_addresses_with_an_optional_port() {
    for host in [
        "lb1.example",
        "lb_1-a.example:9900",
        "192.0.2.1",
        "192.0.2.1:65535",
        "[2001:db8::1]",
        "[2001:db8::1]:9900",
    ] {
        let found = admin(&format!(
            "{{ listen = \"127.0.0.1:1\", hosts = [\"{host}\"] }}"
        ));
        assert_eq!(found.hosts, [host]);
    }
    for host in [
        "",
        ":80",
        "a b",
        "*.example",
        "a:0",
        "a:x",
        "a:",
        "a:65536",
        "[a]",
        "[192.0.2.1]",
        "[::1",
        "::1",
        "[::1]a",
    ] {
        let text = with_admin(&format!(
            "{{ listen = \"127.0.0.1:1\", hosts = [\"{host}\"] }}"
        ));
        assert_eq!(
            messages(&text),
            [format!("`{host}` is not NAME or NAME:PORT")]
        );
    }
}

#[test]
fn keys_for_other_kinds_of_services_are_reported() {
    for line in [
        "snat = true",
        "dscp = 1",
        "strict_ipvs = true",
        "one_packet = true",
        "persistence = true",
    ] {
        let key = line.split(' ').next().unwrap_or_default();
        assert_eq!(
            messages(&with_service(line)),
            [format!("`{key}` has no effect here")]
        );
    }
    for line in [
        "timeouts = {}",
        "protocol = \"tcp\"",
        "compression = true",
        "http2 = true",
    ] {
        let key = line.split(' ').next().unwrap_or_default();
        let text = format!(
            "{POOL}[service.s]\nlisten = [\"192.0.2.1:80\"]\nforward = \"nat\"\npool = \"p\"\n{line}\n"
        );
        assert_eq!(messages(&text), [format!("`{key}` has no effect here")]);
    }
    for line in [
        "compression = true",
        "http2 = true",
        "limits = { head = \"16KiB\" }",
    ] {
        let key = line.split(' ').next().unwrap_or_default();
        let key = if key == "limits" { "head" } else { key };
        let text = with_service(line).replace("\"http\"", "\"tcp\"");
        assert_eq!(messages(&text), [format!("`{key}` has no effect here")]);
    }
}

#[test]
fn forward_auth_loop_is_reported() {
    for (listen, server, returns) in [
        ("192.0.2.1:80", "192.0.2.1:80", true),
        ("192.0.2.1:80", "192.0.2.1", true),
        ("192.0.2.1:80", "192.0.2.1:81", false),
        ("192.0.2.1:80", "192.0.2.2:80", false),
        ("0.0.0.0:80", "127.0.0.1:80", true),
        ("0.0.0.0:80", "127.0.0.1:81", false),
        ("0.0.0.0:80", "10.0.0.9:80", false),
        ("127.0.0.1:80", "127.0.0.2:80", false),
        ("[::]:80", "[::1]:80", true),
    ] {
        let text = with_service(&format!(
            "[[route]]\nservice = \"s\"\npool = \"p\"\nforward_auth = {{ pool = \"a\" }}\n[pool.a]\nservers = \
             [\"{server}\"]\ncheck = {{ kind = \"ping\" }}"
        ));
        let found = messages(&text.replace(
            "192.0.2.1:80\"]\nforward =",
            &format!("{listen}\"]\nforward ="),
        ));
        let message =
            format!("server {server} is a listener of service `s`, which also uses `forward_auth`");
        assert_eq!(
            found.contains(&message),
            returns,
            "{listen} {server}: {found:?}"
        );
    }
}

#[test]
fn forwarded_is_a_flag_or_a_format() {
    for (lines, expected) in [
        ("", Forwarded::XForwarded),
        ("forwarded = true", Forwarded::XForwarded),
        ("forwarded = false", Forwarded::Off),
        ("forwarded = \"rfc7239\"", Forwarded::Rfc7239),
        ("forwarded = \"both\"", Forwarded::Both),
    ] {
        assert_eq!(
            desired(&with_service(lines)).proxies[0].forwarded,
            expected,
            "{lines}"
        );
    }
}

#[test]
fn compression_is_a_flag_or_a_table() {
    let found = |lines: &str| desired(&with_service(lines)).proxies[0].compression.clone();
    assert_eq!(found(""), None);
    assert_eq!(found("compression = false"), None);
    assert_eq!(found("compression = true"), Some(Compression::default()));
    let compression = found(
        "compression = { codings = [\"gzip\", \"br\", \"gzip\"], types = [\"TEXT/*\"], minimum = 5 }",
    );
    let expected = Compression {
        codings: vec![Coding::Gzip, Coding::Brotli],
        types: vec!["text/*".to_owned()],
        minimum: 5,
    };
    assert_eq!(compression, Some(expected));
    for kind in ["", "text", "a b/c", "*/html", "text/html; q=1"] {
        let text = with_service(&format!("compression = {{ types = [\"{kind}\"] }}"));
        assert_eq!(messages(&text), [format!("invalid media type `{kind}`")]);
    }
}

#[test]
fn error_page_has_a_file_or_a_redirect() {
    let page = |fields: &str| {
        let text = with_service(&format!(
            "error_pages = [{{ status = \"500-599\", {fields} }}]"
        ));
        desired(&text).proxies[0].error_pages[0].clone()
    };
    let redirect = |status| ErrorResponse::Redirect {
        to: "https://a.example/?b".to_owned(),
        status,
    };
    for (fields, expected) in [
        (
            "file = \"/sorry\"",
            ErrorResponse::File("/sorry".to_owned()),
        ),
        ("file = \"/dev/null\"", ErrorResponse::Close),
        ("redirect = \"https://a.example/?b\"", redirect(302)),
        (
            "redirect = \"https://a.example/?b\", redirect_status = 303",
            redirect(303),
        ),
    ] {
        let found = page(fields);
        assert_eq!(
            (found.status, found.response),
            (vec![(500, 599)], expected),
            "{fields}"
        );
    }
    for (fields, message) in [
        ("file = \"sorry\"", "`file` must be an absolute path"),
        ("file = \"/a\\u0000\"", "`file` must be an absolute path"),
        (
            "file = \"/a\", redirect = \"/b\"",
            "`file` and `redirect` are mutually exclusive",
        ),
        ("redirect = \"\"", "invalid URL ``"),
        ("redirect = \"/a b\"", "invalid URL `/a b`"),
        ("redirect = \"/{host}\"", "invalid URL `/{host}`"),
    ] {
        let text = with_service(&format!("error_pages = [{{ status = 503, {fields} }}]"));
        assert_eq!(messages(&text), [message], "{fields}");
    }
    let found = messages(&with_service("error_pages = [{ status = 503 }]"));
    assert_eq!(found, ["an error page requires `file` or `redirect`"]);
}

/// In a TCP service, only the SNI and the client's address are known when a route is selected.
#[test]
fn tcp_service_routes_match_only_connection_properties() {
    let invalid = "service `s` does not process HTTP requests";
    for (lines, is_valid) in [
        ("host = \"a.example\"\npool = \"p\"", true),
        ("source = \"10.0.0.0/8\"\nclose = true", true),
        ("host = \"*.example\"\nsplit = [\"p:1\"]", true),
        ("path = \"/a\"\npool = \"p\"", false),
        ("host = \"a.example\"\nstatus = 403", false),
        ("host = \"a.example\"\npool = \"p\"\nretries = 1", false),
    ] {
        let text = with_service(&format!("[[route]]\nservice = \"s\"\n{lines}"));
        let found = messages(&text.replace("protocol = \"http\"", "protocol = \"tcp\""));
        let expected = if is_valid { vec![] } else { vec![invalid] };
        assert_eq!(found, expected, "{lines}");
    }
}
