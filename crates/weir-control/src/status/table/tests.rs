//! Tests the text of the status for constructed reports.

use super::*;
use crate::status::tests::director;

fn terminal_view() -> View<'static> {
    View {
        width: Some(80),
        // About one hour after the test director's servers entered their states.
        now: Some(Duration::from_secs(1_795_201_200 + 3_725)),
        ..View::default()
    }
}

fn assert_fits(text: &str) {
    for line in text.lines() {
        assert!(
            line.chars().count() <= 80,
            "{} columns: {line}",
            line.chars().count()
        );
    }
}

#[test]
fn report_without_a_terminal_lists_services_and_servers() {
    insta::assert_snapshot!(render(&Report::from(&director()), &View::default()));
}

#[test]
fn report_fits_80_columns() {
    let text = render(&Report::from(&director()), &terminal_view());
    assert_fits(&text);
    insta::assert_snapshot!(text);
}

#[test]
fn lost_access_log_lines_are_reported() {
    let mut report = Report::from(&director());
    let details = serde_json::json!({
        "protocol": "http", "clients": 0, "requests": 9, "errors": 0, "retries": 0, "log_dropped": 4,
    });
    report.services[0].proxy = Some(serde_json::from_value(details).unwrap());
    let text = render(&report, &View::default());
    assert!(
        text.contains("  warning: 4 access log lines lost (see the log for the cause)\n"),
        "{text}"
    );
}

#[test]
fn warning_shows_when_it_was_last_seen() {
    let mut report = Report::from(&director());
    report.services[0].servers[0].warning = Some(crate::status::Warning {
        reason: "8 SYNs received no reply".to_owned(),
        since: "2026-11-20T19:00:00Z".to_owned(),
        last_seen_seconds: 12,
    });
    let text = render(&report, &View::default());
    let line = "  warning: 10.0.0.5: 8 SYNs received no reply (last seen 12 s ago)\n";
    assert!(text.contains(line), "{text}");
}

#[test]
fn vip_is_omitted_for_services_without_one() {
    let report = |listen: &str, forward: &str| {
        let mut report = Report::from(&director());
        report.services.truncate(1);
        let service = &mut report.services[0];
        service.listen = vec![listen.to_owned()];
        service.forward = forward.to_owned();
        service.vip = "absent".to_owned();
        render(&report, &View::default())
    };
    assert!(report("tcp/192.0.2.10:80", "nat").contains("  vip absent"));
    for (listen, forward) in [
        ("fwmark/7", "nat"),
        ("fwmark6/7", "nat"),
        ("tcp/192.0.2.10:80", "socket"),
    ] {
        let text = report(listen, forward);
        assert!(!text.contains("vip"), "{text}");
    }
}

/// Returns a report with a pool of 2,000 servers that have long addresses, counters, reasons and probe results. Every
/// twentieth server is down.
fn large_report() -> Report {
    let mut report = Report::from(&director());
    let service = &mut report.services[0];
    let first = service.servers[0].clone();
    service.servers = (0..2_000_usize)
        .map(|index| {
            let mut server = first.clone();
            server.overloaded = false;
            server.address = match index % 40 {
                0 => format!("[2001:db8:1:2:3:4:5:{index:x}]:65535"),
                _ => format!("10.100.{}.{}:65535", index / 256, index % 256),
            };
            server.state = if index % 20 == 0 { "down" } else { "up" }.to_owned();
            server.reason =
                "http 503 in 1000.0ms, expected 200-299, 301, 302 (failed 3 of 3)".to_owned();
            server.weight = 65_535;
            server.effective_weight = if index % 20 == 0 { 0 } else { 65_535 };
            server.active_connections = 123_456_789;
            server.totals.connections = 9_876_543_210_123;
            server.checks[0].results = "+-".repeat(16);
            server.checks.push(server.checks[0].clone());
            server
        })
        .collect();
    report
}

#[test]
fn large_pool_is_summarized_on_a_terminal() {
    let text = render(&large_report(), &terminal_view());
    assert_fits(&text);
    assert!(text.lines().count() < 120, "{} lines", text.lines().count());
    insta::assert_snapshot!(text);
}

#[test]
fn all_option_lists_every_server() {
    let mut report = large_report();
    select(&mut report, Some("images"), false).expect("the pool exists");
    let view = View {
        all: true,
        ..terminal_view()
    };
    let text = render(&report, &view);
    assert_fits(&text);
    assert!(
        text.contains("10.100.7.207:65535"),
        "the last server must be listed"
    );
}

#[test]
fn report_without_a_terminal_lists_every_server() {
    let text = render(&large_report(), &View::default());
    assert_eq!(text.matches(":65535").count(), 2_000);
}

#[test]
fn only_servers_that_are_down_are_selected() {
    let mut report = large_report();
    select(&mut report, None, true).expect("selection without a pool cannot fail");
    assert_eq!(
        report.services.len(),
        1,
        "the other service has no server that is down"
    );
    assert_eq!(report.services[0].servers.len(), 100);
    let unknown_pool_error = select(&mut report, Some("nope"), false).unwrap_err();
    assert_eq!(
        unknown_pool_error.to_string(),
        "pool nope: not found; pools in use: images"
    );
    report.services[0].name = "site".to_owned();
    let service_name_error = select(&mut report, Some("site"), false).unwrap_err();
    assert_eq!(
        service_name_error.to_string(),
        "pool site: not found; service site uses pool images: run `weir status images`"
    );
}

#[test]
fn states_are_colored_only_if_requested() {
    let view = View {
        color: true,
        ..terminal_view()
    };
    let text = render(&large_report(), &view);
    assert!(text.contains("\x1b[31mdown\x1b[0m"), "{text}");
    assert!(!render(&large_report(), &terminal_view()).contains('\x1b'));
}

#[test]
fn report_without_services_states_that_there_are_none() {
    insta::assert_snapshot!(render(&Report::default(), &View::default()));
}

#[test]
fn failed_source_without_servers_does_not_mention_previous_servers() {
    let text = |servers| {
        let report = Report {
            sources: vec![weir_discovery::Source {
                pool: "web".to_owned(),
                kind: weir_discovery::ListSource::File,
                from: "/run/web".to_owned(),
                servers,
                problem: Some("No such file".to_owned()),
            }],
            ..Report::default()
        };
        render(&report, &View::default())
    };
    let (no_servers, one_server) = (text(0), text(1));
    assert!(
        no_servers.contains("pool web: 0 servers from /run/web: No such file\n"),
        "{no_servers}"
    );
    assert!(
        one_server.contains(
            "pool web: 1 server from /run/web; the previous servers remain in use: No such file\n"
        ),
        "{one_server}"
    );
}

#[test]
fn failed_reload_of_changed_files_is_reported() {
    let key_error = "service www: /etc/weir/www.key: the key does not match the certificate";
    let report = Report {
        certificate_error: Some(key_error.to_owned()),
        list_error: Some("/etc/weir/block.txt: line 3: not a network".to_owned()),
        ..Report::default()
    };
    let text = render(&report, &View::default());
    for warning in [
        "warning: failed to load changed certificate files; the previous files remain in use: \
         service www: /etc/weir/www.key: the key does not match the certificate\n",
        "warning: failed to load changed list files; the previous files remain in use: \
         /etc/weir/block.txt: line 3: not a network\n",
    ] {
        assert!(text.contains(warning), "{text}");
    }
    assert!(!render(&Report::default(), &View::default()).contains("warning"));
}

#[test]
fn rates_are_computed_from_two_reports() {
    let previous = Report::from(&director());
    let mut now = previous.clone();
    now.services[0].totals.connections += 30;
    now.services[0].totals.packets_in += 4000;
    // The service was removed and added again, which reset its counters.
    now.services[1].totals.connections = 0;
    let view = View {
        previous: Some(Previous {
            report: &previous,
            elapsed: Duration::from_secs(2),
        }),
        ..View::default()
    };
    let text = render(&now, &view);
    assert!(
        text.contains("15.0 connections/s, 2000 packets/s in, 0 out"),
        "{text}"
    );
    assert!(text.contains("0.0 connections/s"), "{text}");
}
