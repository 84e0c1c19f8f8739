//! Tests the findings about routes that are constructed in memory.

use super::path::Path;
use super::*;

const VIP: &str = "192.0.2.10";

fn vip() -> IpAddr {
    VIP.parse().unwrap()
}

fn kernel(prefix: &str, next_hops: usize) -> KernelRoute {
    let (_, length) = prefix.split_once('/').unwrap();
    KernelRoute {
        prefix: prefix.to_owned(),
        length: length.parse().unwrap(),
        next_hops,
    }
}

/// Returns a director's path.
fn path(source: &str) -> Path {
    Path {
        source: source.to_owned(),
        is_bgp: true,
        next_hops: [format!("{source} eth0")].into(),
        local_preference: 100,
        as_path: "65001".to_owned(),
        as_path_length: 1,
        origin: "igp".to_owned(),
        ..Path::default()
    }
}

fn entry(paths: impl IntoIterator<Item = Path>) -> RouteEntry {
    RouteEntry {
        paths: paths.into_iter().collect(),
        ..RouteEntry::parse(&format!("{VIP}/32")).unwrap()
    }
}

fn best(path: Path) -> Path {
    Path {
        is_best: true,
        is_selected: true,
        ..path
    }
}

/// Returns the findings, as text.
fn findings_text(
    speaker: Speaker,
    entry: Option<&RouteEntry>,
    kernel: Option<&KernelRoute>,
) -> String {
    let context = Context {
        speaker,
        command: if speaker == Speaker::Bird {
            "birdc"
        } else {
            "vtysh"
        },
        as_number: Some(65000),
    };
    let causes = causes(vip(), entry, kernel, speaker);
    let findings = causes.iter();
    let findings = findings.map(|cause| report::diagnosis(cause, &[vip()], context).to_string());
    findings.collect::<Vec<_>>().join("\n")
}

#[test]
fn equal_paths_in_the_kernel_are_not_a_problem() {
    let route = kernel("192.0.2.10/32", 2);
    let bird = entry([best(path("d1")), path("d2")]);
    assert_eq!(findings_text(Speaker::Bird, Some(&bird), Some(&route)), "");
    let selected_path = Path {
        is_selected: true,
        ..path("d2")
    };
    let frr = entry([best(path("d1")), selected_path]);
    assert_eq!(findings_text(Speaker::Frr, Some(&frr), Some(&route)), "");
    let single_path = entry([best(path("d1"))]);
    assert_eq!(
        findings_text(
            Speaker::Bird,
            Some(&single_path),
            Some(&kernel("192.0.2.10/32", 1))
        ),
        ""
    );
    // Two sessions with the same director, or directors behind the same router.
    let same = Path {
        next_hops: path("d1").next_hops,
        ..path("d2")
    };
    let same = entry([best(path("d1")), same]);
    assert_eq!(
        findings_text(
            Speaker::Bird,
            Some(&same),
            Some(&kernel("192.0.2.10/32", 1))
        ),
        ""
    );
    // The next hops are unknown if the kernel shows only the identifier of a next hop group.
    assert_eq!(
        findings_text(
            Speaker::Bird,
            Some(&bird),
            Some(&kernel("192.0.2.10/32", 0))
        ),
        ""
    );
}

#[test]
fn findings_of_bird() {
    let single_hop_route = kernel("192.0.2.10/32", 1);
    let origin = Path {
        origin: "incomplete".to_owned(),
        ..path("d2")
    };
    let prepended = Path {
        as_path: "65001 65001".to_owned(),
        as_path_length: 2,
        ..path("d3")
    };
    let static_route = Path {
        is_bgp: false,
        ..best(path("static1"))
    };
    let unreachable = Path {
        next_hops: BTreeSet::new(),
        ..path("d2")
    };
    let equal = [best(path("d1")), path("d2"), path("d3")];
    let cases = [
        (
            "mixed attributes",
            entry([best(path("d1")), origin.clone(), prepended]),
            Some(&single_hop_route),
        ),
        (
            "no merge paths",
            entry(equal.clone()),
            Some(&single_hop_route),
        ),
        (
            "limit of merge paths",
            entry(equal.clone()),
            Some(&kernel("192.0.2.10/32", 2)),
        ),
        (
            "mixed, and not merged",
            entry([best(path("d1")), path("d3"), origin]),
            Some(&single_hop_route),
        ),
        (
            "static route",
            entry([static_route, path("d1")]),
            Some(&single_hop_route),
        ),
        (
            "aggregate",
            entry(equal.clone()),
            Some(&kernel("192.0.2.0/24", 1)),
        ),
        ("not in the kernel", entry(equal), None),
        (
            "unreachable",
            entry([unreachable]),
            Some(&kernel("0.0.0.0/0", 1)),
        ),
    ]
    .map(|(name, entry, kernel)| {
        format!(
            "== {name}\n{}",
            findings_text(Speaker::Bird, Some(&entry), kernel)
        )
    });
    insta::assert_snapshot!(cases.join("\n"));
}

#[test]
fn findings_of_frr() {
    let single_hop_route = kernel("192.0.2.10/32", 1);
    let selected_path = Path {
        is_selected: true,
        ..path("10.0.0.4")
    };
    let other_as = Path {
        as_path: "65002".to_owned(),
        ..path("10.0.0.4")
    };
    let suppressed = Path {
        is_suppressed: true,
        ..selected_path.clone()
    };
    let internal = Path {
        is_internal: true,
        ..path("10.0.0.4")
    };
    let internal_best = Path {
        is_internal: true,
        ..best(path("10.0.0.3"))
    };
    let first = || best(path("10.0.0.3"));
    let cases = [
        (
            "maximum-paths",
            entry([first(), path("10.0.0.4")]),
            Some(&single_hop_route),
        ),
        (
            "maximum-paths ibgp",
            entry([internal_best, internal]),
            Some(&single_hop_route),
        ),
        (
            "different ASes",
            entry([first(), other_as]),
            Some(&single_hop_route),
        ),
        (
            "zebra",
            entry([first(), selected_path.clone()]),
            Some(&single_hop_route),
        ),
        (
            "summary-only",
            entry([first(), suppressed]),
            Some(&kernel("192.0.2.10/32", 2)),
        ),
        (
            "filter",
            entry([first(), selected_path]),
            Some(&kernel("192.0.2.0/24", 1)),
        ),
    ]
    .map(|(name, entry, kernel)| {
        format!(
            "== {name}\n{}",
            findings_text(Speaker::Frr, Some(&entry), kernel)
        )
    });
    insta::assert_snapshot!(cases.join("\n"));
}

#[test]
fn vip_without_host_route_is_not_announced() {
    let aggregate = RouteEntry {
        paths: vec![best(path("d1"))],
        ..RouteEntry::parse("192.0.2.0/24").unwrap()
    };
    let route = kernel("192.0.2.0/24", 1);
    for entry in [None, Some(&aggregate)] {
        let text = findings_text(Speaker::Frr, entry, Some(&route));
        let expected = "FRR has no usable host route to the VIP 192.0.2.10; packets follow the route to 192.0.2.0/24\n";
        assert!(text.starts_with(expected), "{text}");
    }
    let text = findings_text(Speaker::Frr, None, None);
    assert!(
        text.contains("the VIP 192.0.2.10; packets are dropped\n"),
        "{text}"
    );
}

#[test]
fn drained_paths_are_not_compared() {
    let drained = Path {
        is_drained: true,
        local_preference: 0,
        ..path("d2")
    };
    let single_hop_route = kernel("192.0.2.10/32", 1);
    let entry = entry([best(path("d1")), drained]);
    assert_eq!(
        findings_text(Speaker::Bird, Some(&entry), Some(&single_hop_route)),
        ""
    );
}

#[test]
fn vips_with_the_same_cause_are_listed_together() {
    let context = Context {
        speaker: Speaker::Bird,
        command: "birdc",
        as_number: None,
    };
    let vips: Vec<IpAddr> = (1..=10).map(|n| IpAddr::from([192, 0, 2, n])).collect();
    let cause = Cause::NotAnnounced { covering: None };
    let text = report::diagnosis(&cause, &vips, context).to_string();
    assert!(text.contains("the VIPs 192.0.2.1, 192.0.2.2, "), "{text}");
    assert!(text.contains("192.0.2.8 and 2 more; packets"), "{text}");
}

#[test]
fn hash_policies_with_ports_are_recognized() {
    for (policy, fields, expected) in [
        ("0", Some("7"), false),
        ("1", Some("7"), true),
        ("2", None, false),
        ("3", Some("7"), false),
        ("3", Some("55"), true),
    ] {
        assert_eq!(
            includes_ports(policy, fields),
            expected,
            "{policy} {fields:?}"
        );
    }
}
