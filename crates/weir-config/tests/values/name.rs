//! Tests names: values of other programs, interfaces, and the group of `[cluster]`.

use weir_config::{Host, parse};
use weir_model::{Forward, Publish, SocketMode};

use crate::{POOL, desired, messages, with_service};

#[test]
fn values_of_other_programs_are_recognized() {
    let layer_4 = |line: &str| {
        format!(
            "{POOL}[service.s]\nlisten = [\"192.0.2.1:80\"]\nforward = \"nat\"\npool = \"p\"\n{line}\n"
        )
    };
    for (text, value) in [
        ("[announce]\nspeaker = \"bgpd\"\n".to_owned(), "frr"),
        ("[check.c]\nkind = \"HTTP_GET\"\n".to_owned(), "http"),
        ("[check.c]\nkind = \"pgsql\"\n".to_owned(), "postgres"),
        ("[map.m]\nkind = \"beg\"\n".to_owned(), "prefix"),
        ("[node]\nattach = \"clsact\"\n".to_owned(), "tc"),
        ("[node]\nsocket_mode = \"660\"\n".to_owned(), "0660"),
        (
            "[pool.q]\nservers_dns = { name = \"a\", record = \"aaaa\" }\n".to_owned(),
            "AAAA",
        ),
        (layer_4("").replace("\"nat\"", "\"masq\""), "nat"),
        (layer_4("").replace("\"nat\"", "\"DR\""), "direct"),
        (with_service("retry_on = [\"junk-response\"]"), "malformed"),
        (
            with_service("compression = { codings = [\"brotli\"] }"),
            "br",
        ),
        (with_service("x_forwarded = { for = \"pass\" }"), "keep"),
        (with_service("underscores = \"on\""), "keep"),
        (
            with_service("normalize_path = { encoded_slash = \"REJECT_REQUEST\" }"),
            "reject",
        ),
        (
            with_service("tls = { certificates = \"/c\", minimum = \"TLSv1.3\" }"),
            "1.3",
        ),
        (
            with_service(
                "tls = { certificates = \"/c\", client_ca = \"/c\", client_auth = \"on\" }",
            ),
            "required",
        ),
        (
            with_service("[[route]]\nservice = \"s\"\npool = \"p\"\ntls_version = \"TLSv1.2\""),
            "1.2",
        ),
    ] {
        let found = parse(&text, &Host::default()).expect_err("unknown value was accepted");
        let fix = format!("did you mean \"{value}\"?");
        let fixes: Vec<_> = found.iter().filter_map(|it| it.fix.as_deref()).collect();
        assert!(fixes.contains(&fix.as_str()), "{text}: {fixes:?}");
    }
}

/// The kernel's `dev_valid_name` (net/core/dev.c).
#[test]
fn interface_names_follow_the_kernels_rules() {
    let text = |name: &str| format!("[node]\ninterfaces = [\"{name}\"]\n");
    for name in ["a", "eth0.100", "abcdefghijklmno", "...", "é"] {
        let found = desired(&text(name)).node.interfaces;
        assert_eq!(found, Some(vec![name.to_owned()]));
    }
    for name in [
        "",
        ".",
        "..",
        "abcdefghijklmnop",
        "a/b",
        "a:b",
        "a b",
        "ééééééééé",
    ] {
        let found = messages(&text(name));
        assert_eq!(found, [format!("invalid interface name `{name}`")]);
    }
    assert_eq!(
        messages("[node]\ninterfaces = []\n"),
        ["`interfaces` is empty"]
    );
    let twice = "[node]\ninterfaces = [\"a\", \"b\", \"a\"]\n";
    assert_eq!(messages(twice), ["interface `a` is listed twice"]);
}

#[test]
fn socket_group_has_access_by_default() {
    let mode = |lines: &str| desired(&format!("[node]\n{lines}\n")).node.socket_mode;
    assert_eq!(mode(""), SocketMode::Owner);
    assert_eq!(mode("socket_group = \"g\""), SocketMode::Group);
    assert_eq!(
        mode("socket_group = \"g\"\nsocket_mode = \"0600\""),
        SocketMode::Owner
    );
}

fn with_cluster(lines: &str) -> String {
    format!("[cluster]\nname = \"edge\"\netcd = [\"https://10.0.0.1:2379\"]\n{lines}\n")
}

#[test]
fn settings_of_a_cluster_are_in_the_model() {
    let found = desired(&with_cluster(
        "member = \"a-1\"\nca = \"/ca\"\ncertificate = \"/c\"\nkey = \"/k\"\nlease = \"9s\"\nagreement = \
         false\nfiles = [\"/f\"]\nuser = \"u\"\npassword = \"p\"\ngroup_key = \"0123456789abcdef0123456789abcdef\"",
    ));
    let found = found.cluster.expect("not set");
    assert_eq!(
        (found.name.as_str(), found.member.as_deref()),
        ("edge", Some("a-1"))
    );
    assert_eq!(
        (found.ca.as_deref(), found.certificate.as_deref()),
        (Some("/ca"), Some("/c"))
    );
    assert_eq!(
        (found.key.as_deref(), found.user.as_deref()),
        (Some("/k"), Some("u"))
    );
    assert_eq!((found.lease.as_secs(), found.agreement), (9, false));
    assert_eq!(found.files, ["/f"]);
    assert_eq!(
        found.password.map(|it| it.expose().to_vec()),
        Some(b"p".to_vec())
    );
    assert!(found.group_key.is_some() && found.publish.is_none());
    let default = desired(&with_cluster("")).cluster.expect("not set");
    assert!(default.agreement && default.files.is_empty() && default.member.is_none());
    for (lines, message) in [
        ("member = \"\"", "`` is not a valid name"),
        ("member = \"a b\"", "`a b` is not a valid name"),
        ("key = \"/k\"", "`key` has no effect without `certificate`"),
        ("user = \"u\"", "`user` has no effect without `password`"),
        (
            "password = \"p\"",
            "`password` has no effect without `user`",
        ),
        ("files = [\"f\"]", "a path in `files` must be absolute"),
        (
            "lease = \"9500ms\"",
            "`lease` must be a whole number of seconds",
        ),
    ] {
        assert_eq!(messages(&with_cluster(lines)), [message], "{lines}");
    }
    let longest = "a".repeat(64);
    assert_eq!(
        messages(&with_cluster(&format!("member = \"{longest}\""))),
        Vec::<String>::new()
    );
    let found = messages(&with_cluster(&format!("member = \"{longest}a\"")));
    assert_eq!(found, [format!("`{longest}a` is not a valid name")]);
}

#[test]
fn publish_limits_what_the_group_may_publish() {
    const REQUIRED: &str = "vips = [\"192.0.2.0/24\"]\nservers = [\"10.0.0.0/8\"]";
    let publish = |lines: &str| {
        let found = desired(&with_cluster(&format!("[cluster.publish]\n{lines}")));
        found.cluster.expect("not set").publish.expect("not set")
    };
    let found = publish(
        "vips = [\"192.0.2.0/24\"]\nservers = [\"10.0.0.0/8\"]\nports = [\"80\", \"8000-8099\"]\nforwards = \
         [\"direct\"]\nmarks = [1, 4294967295]\ntimeouts = true",
    );
    assert_eq!((found.vips.len(), found.servers.len()), (1, 1));
    assert_eq!(found.ports, [(80, 80), (8000, 8099)]);
    assert_eq!(
        (found.forwards, found.proxy),
        (vec![Forward::Direct], false)
    );
    assert_eq!((found.marks, found.timeouts), (vec![1, u32::MAX], true));
    let found = publish(&format!("{REQUIRED}\nforwards = [\"proxy\"]"));
    assert_eq!(
        (found.forwards, found.proxy, found.timeouts),
        (vec![], true, false)
    );
    let found = publish(REQUIRED);
    assert_eq!(
        (found.forwards, found.proxy),
        (Publish::FORWARDS.to_vec(), true)
    );
    let bad_mark = "a firewall mark must be from 1 to 4294967295";
    for (lines, message) in [
        ("vips = []", "`vips` is empty"),
        ("ports = []", "`ports` is empty"),
        ("marks = [0]", bad_mark),
        ("marks = [4294967296]", bad_mark),
    ] {
        let found = messages(&with_cluster(&format!("[cluster.publish]\n{lines}")));
        assert!(found.iter().any(|it| it == message), "{lines}: {found:?}");
    }
}

/// Returns the fixes of all findings, in text order.
fn fixes(text: &str) -> Vec<String> {
    let found = parse(text, &Host::default()).expect_err("configuration was accepted");
    found.into_iter().filter_map(|it| it.fix).collect()
}

#[test]
fn fix_of_a_missing_forward_depends_on_protocol() {
    for (line, forward) in [
        ("", "direct"),
        ("protocol = \"http\"\n", "proxy"),
        ("protocl = \"http\"\n", "proxy"),
    ] {
        let text = format!("{POOL}[service.s]\nlisten = [\"192.0.2.1:80\"]\npool = \"p\"\n{line}");
        let fix = format!("add it, for example `forward = \"{forward}\"`");
        let found = fixes(&text);
        assert!(found.contains(&fix), "{line}: {found:?}");
    }
}

#[test]
fn directive_of_another_program_is_explained_only_where_a_route_can_replace_it() {
    let equivalent = "write the conditions themselves, for example";
    for (text, expected) in [
        ("[[route]]\nacl = \"x\"\n", true),
        ("[service.s]\nacl = \"x\"\n", true),
        ("[pool.p]\nacl = \"x\"\n", false),
        ("[node]\nacl = \"x\"\n", false),
    ] {
        let found = fixes(text);
        let is_explained = found.iter().any(|fix| fix.contains(equivalent));
        assert_eq!(is_explained, expected, "{text}: {found:?}");
    }
}
