//! Tests that each HAProxy criterion becomes a route's condition, or is reported.

use weir_import::{EmptyEnvironment, Imported, haproxy};

/// Imports a frontend that rejects requests if a condition is met.
fn import(condition: &str) -> Imported {
    let text = format!(
        "defaults\n mode http\nfrontend web\n bind :80\n http-request deny if {condition}\n \
         default_backend app\nbackend app\n server a 10.0.0.5:80\n"
    );
    haproxy("haproxy.cfg", &text, &EmptyEnvironment)
}

/// Returns the conditions of each route. A route without a condition applies to all requests.
fn conditions(imported: &Imported) -> Vec<String> {
    let routes = imported.toml.split("[[route]]").skip(1);
    let keys = routes.map(|route| {
        let lines = route.lines().filter(|line| {
            let other_prefixes = ["#", "service", "status"];
            !line.is_empty()
                && !other_prefixes
                    .iter()
                    .any(|prefix| line.starts_with(*prefix))
        });
        lines.collect::<Vec<_>>().join("; ")
    });
    keys.collect()
}

#[track_caller]
fn assert_conditions(criterion: &str, expected: &[&str]) {
    let imported = import(criterion);
    let parsed = weir_config::parse(&imported.toml, &weir_config::Host::default());
    let reads_file = criterion.contains(" -f ");
    assert!(parsed.is_ok() || reads_file, "{criterion}: {parsed:?}");
    assert_eq!(conditions(&imported), expected, "{criterion}");
    let losses: Vec<_> = imported.losses.iter().collect();
    assert!(losses.is_empty(), "{criterion}: {losses:?}");
}

#[test]
fn header_cookie_and_query_criteria_are_imported() {
    for (criterion, expected) in [
        ("hdr(X-A) abc", "header = [\"X-A: abc\"]"),
        ("hdr(X-A) -i a.c", "header = [\"X-A: ~(?i)^a\\\\.c$\"]"),
        ("hdr(X-A),lower abc", "header = [\"X-A: ~(?i)^abc$\"]"),
        ("hdr_beg(X-A) ab", "header = [\"X-A: ab*\"]"),
        ("hdr_end(X-A) bc", "header = [\"X-A: *bc\"]"),
        ("hdr_sub(X-A) b", "header = [\"X-A: *b*\"]"),
        ("hdr_reg(X-A) ^a[0-9]", "header = [\"X-A: ~^a[0-9]\"]"),
        ("hdr_beg(X-A) -i ab", "header = [\"X-A: ~(?i)^ab\"]"),
        ("hdr_end(X-A) -i bc", "header = [\"X-A: ~(?i)bc$\"]"),
        ("hdr_sub(X-A) -i b", "header = [\"X-A: ~(?i)b\"]"),
        ("hdr_reg(X-A) -i ^a", "header = [\"X-A: ~(?i)^a\"]"),
        ("hdr(X-A) a b", "header = [\"X-A: a\", \"X-A: b\"]"),
        ("hdr(X-A) -m found", "header = [\"X-A\"]"),
        ("hdr_cnt(X-A) gt 0", "header = [\"X-A\"]"),
        ("hdr_cnt(X-A) ge 1", "header = [\"X-A\"]"),
        ("hdr_cnt(X-A) eq 0", "not = { header = [\"X-A\"] }"),
        ("hdr_cnt(X-A) 0", "not = { header = [\"X-A\"] }"),
        ("hdr_cnt(X-A) lt 1", "not = { header = [\"X-A\"] }"),
        ("hdr_cnt(X-A) le 0", "not = { header = [\"X-A\"] }"),
        ("cook(c) ab", "cookie = [\"c=ab\"]"),
        ("cook(c) -m beg ab", "cookie = [\"c=ab*\"]"),
        ("cook(c) -m found", "cookie = [\"c\"]"),
        ("url_param(p) ab", "query = [\"p=ab\"]"),
        ("url_param(p) -m sub b", "query = [\"p=*b*\"]"),
        ("urlp(p) -m found", "query = [\"p\"]"),
        ("req.cook(c) -i 12", "cookie = [\"c=12\"]"),
        ("hdr(X-A) -n -u 7 -- abc", "header = [\"X-A: abc\"]"),
        (
            "req.hdr(X-A) -m beg a b",
            "header = [\"X-A: a*\", \"X-A: b*\"]",
        ),
        ("req.hdr(host) -m found", "header = [\"host\"]"),
        ("req.hdr_cnt(X-A) gt 0", "header = [\"X-A\"]"),
    ] {
        assert_conditions(&format!("{{ {criterion} }}"), &[expected]);
    }
}

#[test]
fn addresses_in_headers_become_regular_expressions() {
    for (criterion, expected) in [
        (
            "hdr_ip(X-A) 10.0.0.0/8",
            r#"~(^|,)\\s*10\\.[0-9]+\\.[0-9]+\\.[0-9]+\\s*(,|$)"#,
        ),
        (
            "hdr_ip(X-A,-1) 10.1.0.0/16",
            r#"~(^|,)\\s*10\\.1\\.[0-9]+\\.[0-9]+\\s*$"#,
        ),
        (
            "hdr_ip(X-A,1) 10.1.2.0/24",
            r#"~^\\s*10\\.1\\.2\\.[0-9]+\\s*(,|$)"#,
        ),
        ("hdr_ip(X-A,1) 10.1.2.3", r#"~^\\s*10\\.1\\.2\\.3\\s*(,|$)"#),
    ] {
        let expected = format!("header = [\"X-A: {expected}\"]");
        assert_conditions(&format!("{{ {criterion} }}"), &[&expected]);
    }
}

#[test]
fn path_host_method_and_source_criteria_are_imported() {
    for (criterion, expected) in [
        ("path /a /b", &["path = \"/a\"", "path = \"/b\""][..]),
        ("path_end -i .PHP", &["path_regex = \"(?i)\\\\.PHP$\""]),
        ("path_reg ^/a", &["path_regex = \"^/a\""]),
        ("path_dir a", &["path = \"*/a/*\"", "path = \"*/a\""]),
        ("url_beg /a", &["path = \"/a*\""]),
        ("url_beg -i /a", &["path_regex = \"(?i)^/a\""]),
        ("path_beg /a", &["path = \"/a*\""]),
        ("path_sub a", &["path = \"*a*\""]),
        ("path_end .php", &["path = \"*.php\""]),
        ("path -i /a.b", &["path_regex = \"(?i)^/a\\\\.b$\""]),
        ("path_sub -i a", &["path_regex = \"(?i)a\""]),
        ("path_reg -i ^/a", &["path_regex = \"(?i)^/a\""]),
        ("path -m found", &[""]),
        ("base a.example/b", &["host = \"a.example\"; path = \"/b\""]),
        (
            "base_beg a.example/b",
            &["host = \"a.example\"; path = \"/b*\""],
        ),
        ("hdr(host) A.example:8080", &["host = \"a.example\""]),
        ("hdr(host),field(1,:) a.example", &["host = \"a.example\""]),
        (
            "hdr(host),field(1,:),lower a.example",
            &["host = \"a.example\""],
        ),
        ("hdr_beg(host) www.", &["host = \"www.*\""]),
        ("hdr_sub(host) img", &["host = \"*img*\""]),
        ("hdr_reg(host) ^a", &["host = \"~(?i)^a\""]),
        ("hdr_ip(host) 192.0.2.1", &["host = \"192.0.2.1\""]),
        ("ssl_fc_sni_end .example", &["host = \"*.example\""]),
        ("path,lower -m beg /a", &["path_regex = \"(?i)^/a\""]),
        ("hdr(host) a.example", &["host = \"a.example\""]),
        ("hdr_end(host) .example", &["host = \"*.example\""]),
        (
            "hdr_dom(host) a.example",
            &["host = \"a.example\"", "host = \"*.a.example\""],
        ),
        ("hdr_dom(host) www", &["host = \"~(^|\\\\.)www(\\\\.|$)\""]),
        (
            "hdr_dom(host) .a.example",
            &["host = \"a.example\"", "host = \"*.a.example\""],
        ),
        ("req.ssl_sni a.example", &["host = \"a.example\""]),
        (
            "hdr(host) -i -f /etc/hosts.lst",
            &["host = { file = \"/etc/hosts.lst\" }"],
        ),
        ("method GET POST", &["method = [\"GET\", \"POST\"]"]),
        (
            "src 10.0.0.0/8 192.0.2.1",
            &["source = [\"10.0.0.0/8\", \"192.0.2.1\"]"],
        ),
        ("src -f /etc/nets", &["source = [{ file = \"/etc/nets\" }]"]),
    ] {
        assert_conditions(&format!("{{ {criterion} }}"), expected);
    }
    assert_conditions("LOCALHOST", &["source = [\"127.0.0.0/8\"]"]);
    assert_conditions("TRUE", &[""]);
    assert_conditions("FALSE", &[]);
    assert_conditions("METH_GET", &["method = [\"GET\", \"HEAD\"]"]);
    for method in [
        "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "CONNECT", "TRACE",
    ] {
        let expected = format!("method = [\"{method}\"]");
        assert_conditions(&format!("METH_{method}"), &[&expected]);
    }
}

#[test]
fn criteria_of_the_listener_are_evaluated_during_import() {
    for always in [
        "always_true",
        "ssl_fc 0",
        "ssl_fc false",
        "dst_port 80",
        "dst_port eq 80",
        "dst_port 70-80",
        "dst_port 80:90",
        "dst_port 1 80",
    ] {
        assert_conditions(&format!("{{ {always} }}"), &[""]);
    }
    for never in [
        "always_false",
        "ssl_fc",
        "dst_port 81",
        "dst_port eq 81",
        "dst_port 81:90",
        "dst_port 80-79",
    ] {
        assert_conditions(&format!("{{ {never} }}"), &[]);
    }
}

/// Criteria that routes cannot express, each with part of the reported reason.
const UNSUPPORTED: &[(&str, &str)] = &[
    (
        "hdr_sub(X-A) a*",
        "routes cannot compare hdr_sub(X-A) this way",
    ),
    (
        "hdr_dom(X-A) a.b",
        "routes cannot compare hdr_dom(X-A) this way",
    ),
    (
        "hdr_cnt(X-A) gt 1",
        "routes cannot compare the number of fields",
    ),
    (
        "hdr_ip(X-A,2) 10.1.2.3",
        "routes cannot select an address by its position",
    ),
    (
        "hdr_ip(X-A) 10.0.0.0/12",
        "routes compare hdr_ip(X-A) only with IPv4 addresses",
    ),
    (
        "hdr_ip(X-A) 10.0.0.0/0",
        "routes compare hdr_ip(X-A) only with IPv4 addresses",
    ),
    (
        "hdr_ip(X-A) 10.0.0.0/40",
        "routes compare hdr_ip(X-A) only with IPv4 addresses",
    ),
    ("dst_port gt 80", "routes cannot compare ports this way"),
    ("dst_port eq", "routes cannot compare ports this way"),
    (
        "hdr(X-A) -f /etc/x.lst",
        "the file with the ACL's values cannot be read",
    ),
    (
        "src a.example",
        "a route's `source` accepts only addresses and networks",
    ),
    ("nbsrv(app) lt 1", "routes cannot match nbsrv(app)"),
    ("path_len gt 10", "routes cannot compare path_len this way"),
    ("path_beg /a*", "routes cannot compare path_beg this way"),
    ("path_dir -i a", "routes cannot compare path_dir this way"),
    ("path_sub -i é", "routes cannot compare path_sub this way"),
    ("url_sub select", "routes cannot compare url_sub this way"),
    (
        "url_reg -i select",
        "routes cannot compare url_reg this way",
    ),
    ("url /a", "routes cannot compare url this way"),
    ("url_beg /a?b", "routes cannot compare url_beg this way"),
    ("pathq /a", "routes cannot compare pathq this way"),
    ("base /a", "routes cannot compare base this way"),
    (
        "base_end a.example/b",
        "routes cannot compare base_end this way",
    ),
    ("hdr(X-A) ~a", "routes cannot compare hdr(X-A) this way"),
    (
        "hdr_dom(X-A) -i a",
        "routes cannot compare hdr_dom(X-A) this way",
    ),
    (
        "hdr_dom(host) .",
        "routes cannot compare hdr_dom(host) this way",
    ),
    (
        "hdr(host) *.example",
        "routes cannot compare hdr(host) this way",
    ),
    (
        "hdr_dir(host) a",
        "routes cannot compare hdr_dir(host) this way",
    ),
    (
        "hdr_ip(host) -m found",
        "routes cannot compare hdr_ip(host) this way",
    ),
    (
        "req.ssl_sni -m found",
        "routes cannot compare req.ssl_sni this way",
    ),
    ("cook(c) a*", "routes cannot compare cook(c) this way"),
    ("cook a", "routes cannot match cook"),
    ("cook(c) -i a", "routes compare cook(c) case-sensitively"),
    (
        "cook(c) -i -m sub a",
        "routes compare cook(c) case-sensitively",
    ),
    (
        "url_param(p),lower -m reg ^a",
        "routes compare url_param(p) case-sensitively",
    ),
    ("urlp(p) -i a", "routes compare urlp(p) case-sensitively"),
    (
        "hdr(X-A),upper a",
        "routes do not support converters (upper)",
    ),
    (
        "hdr(X-A),field(1,:) a",
        "routes do not support converters (field(1,:))",
    ),
    ("path -M -f /etc/m", "routes do not support map files"),
    (
        "src -f /etc/a -f /etc/b",
        "the file with the ACL's values cannot be read",
    ),
    (
        "path -f relative",
        "the file with the ACL's values cannot be read",
    ),
    (
        "hdr_beg(host) -f /etc/a",
        "a route reads only networks and hosts from files",
    ),
    (
        "hdr(host) -f /etc/a b",
        "a route reads only networks and hosts from files",
    ),
    (
        "hdr_cnt(X-A) eq 1",
        "routes cannot compare the number of fields",
    ),
    (
        "hdr_ip(X-A) -f /etc/a",
        "routes compare hdr_ip(X-A) only with IPv4 addresses",
    ),
    (
        "hdr_ip(X-A)",
        "routes compare hdr_ip(X-A) only with IPv4 addresses",
    ),
    (
        "hdr_ip(X-A) ::1",
        "routes compare hdr_ip(X-A) only with IPv4 addresses",
    ),
    (
        "src",
        "a route's `source` accepts only addresses and networks",
    ),
];

#[test]
fn unsupported_criteria_are_reported() {
    for (criterion, reason) in UNSUPPORTED {
        let imported = import(&format!("{{ {criterion} }}"));
        let losses: Vec<_> = imported.losses.iter().collect();
        assert_eq!(losses.len(), 1, "{criterion}: {losses:?}");
        assert!(losses[0].contains(reason), "{criterion}: {losses:?}");
        // The rule may protect something, so the imported route rejects all requests.
        assert_eq!(conditions(&imported), [""], "{criterion}");
    }
}

#[test]
fn port_criterion_is_unsupported_if_it_matches_only_some_listeners() {
    let import = |criterion: &str| {
        let text = format!(
            "frontend web\n mode http\n bind :80\n bind :81\n http-request deny if {{ {criterion} }}\n \
             default_backend app\nbackend app\n mode http\n server a 10.0.0.5:80\n"
        );
        haproxy("haproxy.cfg", &text, &EmptyEnvironment)
    };
    let denied = |imported: &Imported| imported.toml.contains("status = 403");
    let always = import("dst_port 80:81");
    assert!(
        always.losses.is_empty() && denied(&always),
        "{:?}",
        always.losses
    );
    let never = import("dst_port 82");
    assert!(
        never.losses.is_empty() && !denied(&never),
        "{:?}",
        never.losses
    );
    let unknown = import("dst_port 80");
    let reason = "the service has listeners on several ports";
    assert!(unknown.losses[0].contains(reason), "{:?}", unknown.losses);
}
