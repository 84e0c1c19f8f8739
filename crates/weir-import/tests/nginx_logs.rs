//! Tests that nginx's `access_log` becomes the access log of a service.

use weir_import::{EmptyEnvironment, Imported, nginx};

const FILE: &str = "access_log /var/log/nginx/a.log;";

/// Imports two server blocks that listen on the same address. Each argument contains the lines of one level.
fn import(http: &str, server: &str, location: &str, other_server: &str) -> Imported {
    let imported = nginx(
        "nginx.conf",
        &format!(
            "events {{}}\nhttp {{\n{http}\nserver {{ listen 80;\n{server}\n\
             location / {{ proxy_pass http://10.0.0.5; }}\n\
             location /up {{ {location}\nproxy_pass http://10.0.0.5; }}\n}}\n\
             server {{ listen 80; server_name b.example;\n{other_server}\n\
             location / {{ proxy_pass http://10.0.0.6; }}\n}}\n}}\n"
        ),
        &EmptyEnvironment,
    );
    let parsed = weir_config::parse(&imported.toml, &weir_config::Host::default());
    assert!(parsed.is_ok(), "{parsed:?}\n{}", imported.toml);
    assert!(imported.losses.is_empty(), "{:#?}", imported.losses);
    imported
}

/// Returns the value of `access_log` of the first service.
fn access_log(imported: &Imported) -> &str {
    let (_, service) = imported.toml.split_once("[service.").unwrap_or_default();
    let service = service.split("\n\n").next().unwrap_or_default();
    let mut lines = service.lines();
    lines
        .find_map(|line| line.strip_prefix("access_log = "))
        .unwrap_or_default()
}

/// Returns whether the route with this text does not log its requests.
fn is_disabled(imported: &Imported, text: &str) -> bool {
    let mut routes = imported.toml.split("[[route]]").skip(1);
    let route = routes.find(|route| route.contains(text));
    let route = route.unwrap_or_else(|| panic!("no route with {text}:\n{}", imported.toml));
    route.contains("access_log = false")
}

fn has_note(imported: &Imported, text: &str) -> bool {
    imported.notes.iter().any(|note| note.contains(text))
}

#[test]
fn innermost_level_sets_the_log_of_a_service() {
    for (http, server, other_server, expected) in [
        (FILE, "", "", "\"/var/log/nginx/a.log\""),
        ("", FILE, "", "\"/var/log/nginx/a.log\""),
        ("", "", FILE, "\"/var/log/nginx/a.log\""),
        (FILE, "access_log /b combined;", "", "\"/b\""),
        (FILE, "access_log off;", "access_log off;", ""),
        ("access_log off;", FILE, "", "\"/var/log/nginx/a.log\""),
        ("access_log /dev/null;", "", "", ""),
        ("access_log logs/a.log;", "", "", ""),
        ("access_log logs/a.log; access_log /b;", "", "", "\"/b\""),
        ("", "", "", ""),
    ] {
        let imported = import(http, server, "", other_server);
        let case = format!("{http} / {server} / {other_server}: {:#?}", imported.notes);
        assert_eq!(access_log(&imported), expected, "{case}");
    }
}

#[test]
fn access_log_off_becomes_access_log_false_in_routes() {
    let imported = import(FILE, "", "access_log off;", "");
    assert!(is_disabled(&imported, "path = \"/up*\""));
    assert!(!is_disabled(&imported, "host = \"b.example\""));
    let imported = import(FILE, "access_log off;", "", "");
    assert!(is_disabled(&imported, "path = \"/up*\""));
    assert!(!is_disabled(&imported, "host = \"b.example\""));
    let imported = import(FILE, "", "", "access_log off;");
    assert!(!is_disabled(&imported, "path = \"/up*\""));
    assert!(is_disabled(&imported, "host = \"b.example\""));
    let imported = import("", "", "access_log off;", "");
    assert!(!imported.toml.contains("access_log"), "{}", imported.toml);
    assert!(has_note(&imported, "the service has no access log"));
}

#[test]
fn other_logs_of_a_service_are_reported() {
    for (location, other_server) in [("access_log /b;", ""), ("", "access_log /b;")] {
        let imported = import("", FILE, location, other_server);
        assert_eq!(access_log(&imported), "\"/var/log/nginx/a.log\"");
        assert!(
            has_note(&imported, "a service has only one `access_log`"),
            "{:#?}",
            imported.notes
        );
    }
    for text in ["buffer=32k flush=1s", "gzip", "if=$http_x"] {
        let imported = import("", &format!("access_log /b combined {text};"), "", "");
        assert_eq!(access_log(&imported), "\"/b\"", "{text}");
        let notes = imported.notes.iter();
        let mut notes = notes.filter(|note| note.contains("access_log /b"));
        assert!(notes.any(|note| note.contains("not imported")), "{text}");
    }
}

#[test]
fn log_format_becomes_a_template() {
    let map = "map $http_x $kind { default none; a first; }";
    for (format, expected) in [
        (
            "'$remote_addr [$time_local] ' '\"$request\" $status'",
            "{ path = \"/b\", format = \"{client} [{date}] \\\"{method} {target} {version}\\\" {status}\" }",
        ),
        (
            "'$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent \"$http_referer\" \
             \"$http_user_agent\"'",
            "\"/b\"",
        ),
        (
            "'$status $kind'",
            "{ path = \"/b\", format = \"{status} {map.kind}\" }",
        ),
    ] {
        let map = if format.contains("$kind") { map } else { "" };
        let http = format!("{map}\nlog_format main {format};\naccess_log /b main;");
        assert_eq!(access_log(&import(&http, "", "", "")), expected, "{format}");
    }
    for (format, reason) in [
        ("'$status $gzip_ratio'", "no equivalent for $gzip_ratio"),
        ("escape=json '{\"a\":\"$status\"}'", "a literal `{`"),
    ] {
        let http = format!("log_format main {format};\naccess_log /b main;");
        let imported = import(&http, "", "", "");
        assert_eq!(access_log(&imported), "\"/b\"");
        assert!(has_note(&imported, reason), "{:#?}", imported.notes);
    }
}

#[test]
fn stream_log_format_is_not_imported() {
    let imported = nginx(
        "nginx.conf",
        "stream {\nlog_format basic '$remote_addr $session_time';\naccess_log /var/log/stream.log basic;\n\
         server { listen 5432; proxy_pass 10.0.0.5:5432; }\n\
         server { listen 5433; proxy_pass 10.0.0.5:5433; access_log off; }\n}\n",
        &EmptyEnvironment,
    );
    assert!(imported.losses.is_empty(), "{:#?}", imported.losses);
    assert_eq!(access_log(&imported), "\"/var/log/stream.log\"");
    assert_eq!(imported.toml.matches("access_log").count(), 1);
    assert!(has_note(&imported, "`tcp` service has its own format"));
}
