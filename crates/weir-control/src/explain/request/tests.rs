//! Tests `weir explain --request` on a configuration file, without a daemon.

use super::*;
use weir_config::{Host, parse};

const FILE: &str = r#"
[pool.web]
servers = ["10.0.0.5"]

[service.web]
listen   = ["0.0.0.0:80"]
forward  = "proxy"
protocol = "http"
pool     = "web"

[[route]]
service = "web"
path    = "/old/*"
redirect = "https://{host}{path}"

[[route]]
service = "web"
header  = ["X-Beta: yes"]
status  = 403
"#;

fn explain(text: &str, headers: &[&str]) -> String {
    let desired = parse(FILE, &Host::default()).unwrap().desired;
    let headers: Vec<String> = headers.iter().map(|line| (*line).to_owned()).collect();
    match Request::parse(text, &headers) {
        Ok(request) => request
            .explain(&desired, Some(&Report::default()), Path::new("weir.toml"))
            .to_string(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn client_conditions_require_the_client_address() {
    let file = FILE.replace(
        "header  = [\"X-Beta: yes\"]",
        "source  = [\"192.0.2.0/24\"]",
    );
    let explain = |keys: &str, header: &str, client: Option<&str>| {
        let file = file.replace(
            "pool     = \"web\"\n\n",
            &format!("pool = \"web\"\n{keys}\n"),
        );
        let desired = parse(&file, &Host::default()).unwrap().desired;
        let request = Request::parse("GET http://a.example/", &[header.to_owned()]).unwrap();
        request
            .from_client(client.map(|address| address.parse().unwrap()))
            .explain(&desired, Some(&Report::default()), Path::new("weir.toml"))
            .to_string()
    };
    let refusal = "response 403 from the route";
    let without_client = explain("", "X: y", None);
    assert!(
        without_client.contains("`--client ADDRESS`"),
        "{without_client}"
    );
    assert!(!without_client.contains(refusal), "{without_client}");
    assert!(explain("", "X: y", Some("192.0.2.7")).contains(refusal));
    let other = explain("", "X: y", Some("198.51.100.7"));
    assert!(!other.contains(refusal), "{other}");
    assert!(other.contains("the request has 198.51.100.7"), "{other}");
    // A trusted proxy sends the client's address.
    let keys = "trusted = [\"10.0.0.0/8\"]\nclient_ip_header = \"X-Forwarded-For\"";
    let header_line = "X-Forwarded-For: 192.0.2.7";
    for (client, is_refused) in [
        (None, true),
        (Some("10.0.0.1"), true),
        (Some("11.0.0.1"), false),
    ] {
        let text = explain(keys, header_line, client);
        assert_eq!(text.contains(refusal), is_refused, "{client:?}: {text}");
    }
}

#[test]
fn each_outcome_is_explained() {
    let explanations = [
        explain("GET http://a.example/old/x?y", &[]),
        explain("GET http://a.example", &["X-Beta: yes"]),
        explain("GET http://a.example/", &[]),
        explain("GET http://a.example:81/", &[]),
        explain("GET http://a.example/ x", &[]),
        explain("GET /", &[]),
        explain("GET http://a/", &["X"]),
    ];
    insta::assert_snapshot!(explanations.join("\n"));
}

#[test]
fn literal_address_selects_the_service_that_listens_there() {
    let addresses = FILE.replace("\"0.0.0.0:80\"", "\"192.0.2.1:80\"");
    let desired = parse(&addresses, &Host::default()).unwrap().desired;
    let explain = |url: &str| {
        let request = Request::parse(&format!("GET {url}"), &[]).unwrap();
        request.explain(&desired, None, Path::new("weir.toml"))
    };
    for url in [
        "http://192.0.2.1/",
        "http://192.0.2.1:80/",
        "http://a.example/",
    ] {
        assert_eq!(explain(url).service.as_deref(), Some("web"), "{url}");
    }
    let other = explain("http://192.0.2.9/");
    assert_eq!(other.service, None);
    assert_eq!(
        other.outcome.as_deref(),
        Some("no http service listens on 192.0.2.9:80; http services listen on 192.0.2.1:80")
    );
}

#[test]
fn listener_on_all_addresses_is_selected_for_its_own_family_only() {
    let service = |file: &str, url: &str| {
        let desired = parse(file, &Host::default()).unwrap().desired;
        let request = Request::parse(&format!("GET {url}"), &[]).unwrap();
        let explanation = request.explain(&desired, None, Path::new("weir.toml"));
        explanation.service
    };
    let v6 = FILE.replace("\"0.0.0.0:80\"", "\"[::]:80\"");
    for (file, url, expected) in [
        (FILE, "http://192.0.2.1/", Some("web")),
        (FILE, "http://[2001:db8::1]/", None),
        (&v6, "http://[2001:db8::1]/", Some("web")),
        (&v6, "http://192.0.2.1/", None),
    ] {
        assert_eq!(service(file, url).as_deref(), expected, "{url}");
    }
}

#[test]
fn received_and_normalized_path_are_shown() {
    let explanations = [
        explain("GET http://a.example//x/../%6fld/y?z", &[]),
        explain("GET http://a.example/%zz", &[]),
    ];
    insta::assert_snapshot!(explanations.join("\n"));
}

#[test]
fn host_header_overrides_the_url() {
    let explanation = explain("GET http://127.0.0.1/old/x", &["host: b.example"]);
    assert!(
        explanation.contains("redirect 302 to https://b.example/old/x"),
        "{explanation}"
    );
}
