//! Options of `bind` lines.

use super::{Row, assert_changes};

const BIND_OPTIONS: &[Row] = &[
    (
        "",
        &[
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
            "+ [service.f]",
            r#"+ listen = ["0.0.0.0:80"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ pool = "b""#,
            r#"+ tls = { certificates = "/a.pem" }"#,
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
        ],
    ),
    (
        "crt /b.pem",
        &[
            r#"- tls = { certificates = "/a.pem" }"#,
            r#"+ tls = { certificates = ["/a.pem", "/b.pem"] }"#,
        ],
    ),
    ("crt /a.pem", &[]),
    (
        "crt b.pem",
        &[
            r#"- tls = { certificates = "/a.pem" }"#,
            r#"+ tls = { certificates = ["/a.pem", "/etc/haproxy/b.pem"] }"#,
            "3 LOST: b.pem is a relative path, interpreted relative to /etc/haproxy",
        ],
    ),
    (
        "crt @store/x",
        &[
            "3 LOST: not imported: no crt-store has this certificate; set the path of its file \
            in `certificates`",
        ],
    ),
    (
        "crt @store/x strict-sni",
        &[
            r#"- tls = { certificates = "/a.pem" }"#,
            r#"+ tls = { certificates = "/a.pem", strict_sni = true }"#,
            "3 LOST: not imported: no crt-store has this certificate; set the path of its file \
            in `certificates`",
        ],
    ),
    (
        "default-crt /b.pem",
        &[
            r#"- tls = { certificates = "/a.pem" }"#,
            r#"+ tls = { certificates = ["/b.pem", "/a.pem"] }"#,
        ],
    ),
    ("default-crt /a.pem", &[]),
    (
        "crt /b.pem default-crt /b.pem",
        &[
            r#"- tls = { certificates = "/a.pem" }"#,
            r#"+ tls = { certificates = ["/b.pem", "/a.pem"] }"#,
        ],
    ),
    (
        "crt-list /etc/list",
        &[
            r#"- tls = { certificates = "/a.pem" }"#,
            r#"+ tls = { certificates = ["/a.pem", "/etc/haproxy/b.pem", "/c.pem", "/d.pem"] }"#,
            "3 LOST: b.pem in /etc/list: options and negative SNI filters are not imported",
            "3 LOST: /c.pem in /etc/list: options and negative SNI filters are not imported",
            "3: /d.pem in /etc/list: the SNI filters are not imported; the names in the \
            certificate are used",
        ],
    ),
    (
        "crt-list /etc/none",
        &["3 LOST: the certificates in /etc/none are not imported: no such file"],
    ),
    (
        "strict-sni",
        &[
            r#"- tls = { certificates = "/a.pem" }"#,
            r#"+ tls = { certificates = "/a.pem", strict_sni = true }"#,
        ],
    ),
    (
        "ssl-min-ver TLSv1.2",
        &[
            r#"- tls = { certificates = "/a.pem" }"#,
            r#"+ tls = { certificates = "/a.pem", minimum = "1.2" }"#,
        ],
    ),
    (
        "ssl-min-ver TLSv1.3",
        &[
            r#"- tls = { certificates = "/a.pem" }"#,
            r#"+ tls = { certificates = "/a.pem", minimum = "1.3" }"#,
        ],
    ),
    (
        "ssl-min-ver TLSv1.0",
        &["3 LOST: Weir does not support TLS versions below 1.2"],
    ),
    (
        "ssl-min-ver",
        &["3 LOST: Weir does not support TLS versions below 1.2"],
    ),
    (
        "ca-file /ca",
        &[
            r#"- tls = { certificates = "/a.pem" }"#,
            r#"+ tls = { certificates = "/a.pem", client_ca = "/ca" }"#,
        ],
    ),
    (
        "ca-file /ca verify optional",
        &[
            r#"- tls = { certificates = "/a.pem" }"#,
            r#"+ tls = { certificates = "/a.pem", client_ca = "/ca", client_auth = "optional" }"#,
        ],
    ),
    (
        "ca-file /ca verify required",
        &[
            r#"- tls = { certificates = "/a.pem" }"#,
            r#"+ tls = { certificates = "/a.pem", client_ca = "/ca", client_auth = "required" }"#,
        ],
    ),
    (
        "verify required ca-file /ca",
        &[
            r#"- tls = { certificates = "/a.pem" }"#,
            r#"+ tls = { certificates = "/a.pem", client_auth = "required", client_ca = "/ca" }"#,
        ],
    ),
    (
        "verify required",
        &["3 OPEN: verify is not imported: there is no ca-file"],
    ),
    ("verify none", &[]),
    (
        "verify optional",
        &[
            "3 LOST: not imported: client_auth requires client_ca (without a CA, client \
            certificates cannot be verified)",
        ],
    ),
    ("accept-proxy", &["+ proxy_protocol = true"]),
    (
        "alpn h2 strict-sni",
        &[
            r#"- tls = { certificates = "/a.pem" }"#,
            r#"+ tls = { certificates = "/a.pem", strict_sni = true }"#,
            "3: alpn is not imported: Weir offers the protocols that it supports",
        ],
    ),
    (
        "npn h2 strict-sni",
        &[
            r#"- tls = { certificates = "/a.pem" }"#,
            r#"+ tls = { certificates = "/a.pem", strict_sni = true }"#,
            "3: npn is not imported: Weir offers the protocols that it supports",
        ],
    ),
    ("no-sslv3", &[]),
    ("no-tlsv10", &[]),
    ("no-tlsv11", &[]),
    (
        "v4v6 strict-sni",
        &[
            r#"- tls = { certificates = "/a.pem" }"#,
            r#"+ tls = { certificates = "/a.pem", strict_sni = true }"#,
            "3: v4v6 is not imported: `listen` has no such option",
        ],
    ),
    (
        "name strict-sni",
        &["3: name is not imported: `listen` has no such option"],
    ),
    (
        "name x strict-sni",
        &[
            r#"- tls = { certificates = "/a.pem" }"#,
            r#"+ tls = { certificates = "/a.pem", strict_sni = true }"#,
            "3: name is not imported: `listen` has no such option",
        ],
    ),
    (
        "id 3 strict-sni",
        &[
            r#"- tls = { certificates = "/a.pem" }"#,
            r#"+ tls = { certificates = "/a.pem", strict_sni = true }"#,
            "3: id is not imported: `listen` has no such option",
        ],
    ),
    (
        "expose-fd listeners strict-sni",
        &[
            r#"- tls = { certificates = "/a.pem" }"#,
            r#"+ tls = { certificates = "/a.pem", strict_sni = true }"#,
            "3: expose-fd is not imported: `listen` has no such option",
        ],
    ),
    (
        "defer-accept strict-sni",
        &[
            r#"- tls = { certificates = "/a.pem" }"#,
            r#"+ tls = { certificates = "/a.pem", strict_sni = true }"#,
            "3: defer-accept is not imported: `listen` has no such option",
        ],
    ),
    (
        "no-tls-tickets strict-sni",
        &[
            r#"- tls = { certificates = "/a.pem" }"#,
            r#"+ tls = { certificates = "/a.pem", strict_sni = true }"#,
            "3: no-tls-tickets is not imported: `listen` has no such option",
        ],
    ),
    (
        "tls-tickets strict-sni",
        &[
            r#"- tls = { certificates = "/a.pem" }"#,
            r#"+ tls = { certificates = "/a.pem", strict_sni = true }"#,
            "3: tls-tickets is not imported: `listen` has no such option",
        ],
    ),
    (
        "no-alpn strict-sni",
        &[
            r#"- tls = { certificates = "/a.pem" }"#,
            r#"+ tls = { certificates = "/a.pem", strict_sni = true }"#,
            "3: no-alpn is not imported: `listen` has no such option",
        ],
    ),
    (
        "v6only strict-sni",
        &[
            r#"- tls = { certificates = "/a.pem" }"#,
            r#"+ tls = { certificates = "/a.pem", strict_sni = true }"#,
            "3: v6only is not imported: `listen` has no such option",
        ],
    ),
    (
        "tfo strict-sni",
        &[
            r#"- tls = { certificates = "/a.pem" }"#,
            r#"+ tls = { certificates = "/a.pem", strict_sni = true }"#,
            "3: tfo is not imported: `listen` has no such option",
        ],
    ),
    (
        "prefer-client-ciphers strict-sni",
        &[
            r#"- tls = { certificates = "/a.pem" }"#,
            r#"+ tls = { certificates = "/a.pem", strict_sni = true }"#,
            "3: prefer-client-ciphers is not imported: `listen` has no such option",
        ],
    ),
    (
        "no-strict-sni",
        &["3: no-strict-sni is not imported: `listen` has no such option"],
    ),
    (
        "no-tlsv12",
        &[
            r#"- tls = { certificates = "/a.pem" }"#,
            r#"+ tls = { certificates = "/a.pem", minimum = "1.3" }"#,
        ],
    ),
    (
        "force-tlsv13",
        &[
            r#"- tls = { certificates = "/a.pem" }"#,
            r#"+ tls = { certificates = "/a.pem", minimum = "1.3" }"#,
        ],
    ),
    (
        "ssl-max-ver TLSv1.3 strict-sni",
        &[
            r#"- tls = { certificates = "/a.pem" }"#,
            r#"+ tls = { certificates = "/a.pem", strict_sni = true }"#,
        ],
    ),
    (
        "ssl-max-ver TLSv1.2 strict-sni",
        &[
            r#"- tls = { certificates = "/a.pem" }"#,
            r#"+ tls = { certificates = "/a.pem", strict_sni = true }"#,
            "3 LOST: ssl-max-ver is not imported: `listen` has no such option",
        ],
    ),
    (
        "ciphers ECDHE-RSA-AES256-GCM-SHA384",
        &[
            r#"- tls = { certificates = "/a.pem" }"#,
            "+ tls = { certificates = \"/a.pem\", ciphers = \
            [\"TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384\"] }",
        ],
    ),
    (
        "ciphersuites TLS_AES_128_GCM_SHA256",
        &[
            r#"- tls = { certificates = "/a.pem" }"#,
            r#"+ tls = { certificates = "/a.pem", ciphers = ["TLS_AES_128_GCM_SHA256"] }"#,
        ],
    ),
    (
        "curves X25519",
        &[
            r#"- tls = { certificates = "/a.pem" }"#,
            r#"+ tls = { certificates = "/a.pem", groups = ["X25519"] }"#,
        ],
    ),
    (
        "ciphers ECDHE-RSA-AES256-GCM-SHA384 no-tlsv12",
        &[
            r#"- tls = { certificates = "/a.pem" }"#,
            r#"+ tls = { certificates = "/a.pem", minimum = "1.3" }"#,
            "3: not imported: the service does not use TLS 1.2",
        ],
    ),
    (
        "ssl-min-ver TLSv1.2 ciphers ECDHE-RSA-AES256-GCM-SHA384",
        &[
            r#"- tls = { certificates = "/a.pem" }"#,
            "+ tls = { certificates = \"/a.pem\", minimum = \"1.2\", ciphers = \
            [\"TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384\"] }",
        ],
    ),
    (
        "sigalgs strict-sni",
        &["3: sigalgs is not imported: `listen` has no such option"],
    ),
    (
        "mode 660 strict-sni",
        &[
            r#"- tls = { certificates = "/a.pem" }"#,
            r#"+ tls = { certificates = "/a.pem", strict_sni = true }"#,
            "3: mode is not imported: `listen` has no such option",
        ],
    ),
    (
        "thread 1 strict-sni",
        &[
            r#"- tls = { certificates = "/a.pem" }"#,
            r#"+ tls = { certificates = "/a.pem", strict_sni = true }"#,
            "3: thread is not imported: `listen` has no such option",
        ],
    ),
    (
        "transparent strict-sni",
        &[
            r#"- tls = { certificates = "/a.pem" }"#,
            r#"+ tls = { certificates = "/a.pem", strict_sni = true }"#,
            "3 LOST: transparent is not imported: `listen` has no such option",
        ],
    ),
    (
        "generate-certificates strict-sni",
        &[
            r#"- tls = { certificates = "/a.pem" }"#,
            r#"+ tls = { certificates = "/a.pem", strict_sni = true }"#,
            "3 LOST: generate-certificates is not imported: `listen` has no such option",
        ],
    ),
    (
        "no-tlsv13 strict-sni",
        &[
            r#"- tls = { certificates = "/a.pem" }"#,
            r#"+ tls = { certificates = "/a.pem", strict_sni = true }"#,
            "3 LOST: no-tlsv13 is not imported: `listen` has no such option",
        ],
    ),
    (
        "force-tlsv12 strict-sni",
        &[
            r#"- tls = { certificates = "/a.pem" }"#,
            r#"+ tls = { certificates = "/a.pem", strict_sni = true }"#,
            "3 LOST: force-tlsv12 is not imported: `listen` has no such option",
        ],
    ),
    (
        "interface eth0 strict-sni",
        &[
            r#"- tls = { certificates = "/a.pem" }"#,
            r#"+ tls = { certificates = "/a.pem", strict_sni = true }"#,
            "3 OPEN: interface is not imported: `listen` has no such option",
        ],
    ),
    (
        "crl-file /crl strict-sni",
        &[
            r#"- tls = { certificates = "/a.pem" }"#,
            r#"+ tls = { certificates = "/a.pem", strict_sni = true }"#,
            "3 OPEN: crl-file is not imported: `listen` has no such option",
        ],
    ),
    (
        "ca-sign-file /x strict-sni",
        &[
            r#"- tls = { certificates = "/a.pem" }"#,
            r#"+ tls = { certificates = "/a.pem", strict_sni = true }"#,
            "3 LOST: ca-sign-file is not imported: `listen` has no such option",
        ],
    ),
    (
        "foo bar strict-sni",
        &[
            r#"- tls = { certificates = "/a.pem" }"#,
            r#"+ tls = { certificates = "/a.pem", strict_sni = true }"#,
            "3 LOST: foo is not imported: `listen` has no such option",
        ],
    ),
    (
        "ca-verify-file /x",
        &["3 OPEN: ca-verify-file is not imported: `listen` has no such option"],
    ),
];

#[test]
fn bind_options_are_imported_or_reported() {
    assert_changes(
        "frontend f\n mode http\n bind :80 ssl crt /a.pem {}\n default_backend b\nbackend b\n \
        mode http\n server a 10.0.0.5:80\n",
        BIND_OPTIONS,
    );
}

const SECOND_BIND: &[Row] = &[
    (
        "",
        &[
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
            "+ [service.f]",
            r#"+ listen = ["0.0.0.0:80"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ pool = "b""#,
            "+ tls = { certificates = \"/a.pem\", client_ca = \"/ca\", client_auth = \
            \"required\", minimum = \"1.2\" }",
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
        ],
    ),
    (
        "bind :81 ssl crt /a.pem",
        &[
            r#"- listen = ["0.0.0.0:80"]"#,
            r#"+ listen = ["0.0.0.0:80", "0.0.0.0:81"]"#,
        ],
    ),
    (
        "bind :81 ssl crt /a.pem ca-file /ca verify required ssl-min-ver TLSv1.2",
        &[
            r#"- listen = ["0.0.0.0:80"]"#,
            r#"+ listen = ["0.0.0.0:80", "0.0.0.0:81"]"#,
        ],
    ),
    (
        "bind :81 ssl crt /a.pem ca-file /cb",
        &[
            r#"- listen = ["0.0.0.0:80"]"#,
            r#"+ listen = ["0.0.0.0:80", "0.0.0.0:81"]"#,
            "4 OPEN: a second client_ca is not imported: a service has only one",
        ],
    ),
    (
        "bind :81 ssl crt /a.pem ca-file /ca verify optional",
        &[
            r#"- listen = ["0.0.0.0:80"]"#,
            r#"+ listen = ["0.0.0.0:80", "0.0.0.0:81"]"#,
            "4 OPEN: a second client_auth is not imported: a service has only one",
        ],
    ),
    (
        "bind :81 ssl crt /a.pem ssl-min-ver TLSv1.3",
        &[
            r#"- listen = ["0.0.0.0:80"]"#,
            r#"+ listen = ["0.0.0.0:80", "0.0.0.0:81"]"#,
            "4 LOST: a second minimum is not imported: a service has only one",
        ],
    ),
    (
        "bind :81 ssl crt /b.pem",
        &[
            r#"- listen = ["0.0.0.0:80"]"#,
            "- tls = { certificates = \"/a.pem\", client_ca = \"/ca\", client_auth = \
            \"required\", minimum = \"1.2\" }",
            r#"+ listen = ["0.0.0.0:80", "0.0.0.0:81"]"#,
            "+ tls = { certificates = [\"/a.pem\", \"/b.pem\"], client_ca = \"/ca\", client_auth \
            = \"required\", minimum = \"1.2\" }",
        ],
    ),
    (
        "bind :81 ciphers ECDHE-RSA-AES256-GCM-SHA384",
        &[
            r#"+ listen = ["0.0.0.0:81"]"#,
            "+ [service.f-tls]",
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ pool = "b""#,
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
        ],
    ),
    (
        "bind :81 ssl ciphers ECDHE-RSA-AES256-GCM-SHA384",
        &[
            r#"- listen = ["0.0.0.0:80"]"#,
            "- tls = { certificates = \"/a.pem\", client_ca = \"/ca\", client_auth = \
            \"required\", minimum = \"1.2\" }",
            r#"+ listen = ["0.0.0.0:80", "0.0.0.0:81"]"#,
            "+ tls = { certificates = \"/a.pem\", client_ca = \"/ca\", client_auth = \
            \"required\", minimum = \"1.2\", ciphers = \
            [\"TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384\"] }",
        ],
    ),
];

#[test]
fn second_bind_adds_certificates_but_conflicting_options_are_reported() {
    assert_changes(
        "frontend f\n mode http\n bind :80 ssl crt /a.pem ca-file /ca verify required \
        ssl-min-ver TLSv1.2\n {}\n default_backend b\nbackend b\n mode http\n server a \
        10.0.0.5:80\n",
        SECOND_BIND,
    );
}

const GLOBAL_CIPHERS_AND_CURVES: &[Row] = &[
    (
        "",
        &[
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
            "+ [service.f]",
            r#"+ listen = ["0.0.0.0:81"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ pool = "b""#,
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
            "+ [service.f-tls]",
            r#"+ listen = ["0.0.0.0:80"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ pool = "b""#,
            r#"+ tls = { certificates = "/a" }"#,
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
        ],
    ),
    (
        "ssl-default-bind-ciphers ECDHE-RSA-AES256-GCM-SHA384",
        &[
            r#"- tls = { certificates = "/a" }"#,
            "+ tls = { certificates = \"/a\", ciphers = \
            [\"TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384\"] }",
            "2: imported as keys of each service's `tls`",
        ],
    ),
    (
        "ssl-default-bind-ciphersuites TLS_AES_128_GCM_SHA256",
        &[
            r#"- tls = { certificates = "/a" }"#,
            r#"+ tls = { certificates = "/a", ciphers = ["TLS_AES_128_GCM_SHA256"] }"#,
            "2: imported as keys of each service's `tls`",
        ],
    ),
    (
        "ssl-default-bind-curves X25519 P-256",
        &[
            r#"- tls = { certificates = "/a" }"#,
            r#"+ tls = { certificates = "/a", groups = ["X25519", "secp256r1"] }"#,
            "2: imported as keys of each service's `tls`",
        ],
    ),
    (
        "ssl-default-bind-curves X25519:P-256",
        &[
            r#"- tls = { certificates = "/a" }"#,
            r#"+ tls = { certificates = "/a", groups = ["X25519", "secp256r1"] }"#,
            "2: imported as keys of each service's `tls`",
        ],
    ),
    (
        "ssl-default-bind-options no-sslv3",
        &["2 LOST: not imported: Weir uses its own TLS defaults; see a service's `tls`"],
    ),
    (
        "crt-base /certs",
        &["2 LOST: not imported: Weir uses its own TLS defaults; see a service's `tls`"],
    ),
];

#[test]
fn global_ciphers_and_curves_apply_to_tls_binds() {
    assert_changes(
        "global\n {}\nfrontend f\n mode http\n bind :80 ssl crt /a\n bind :81\n default_backend \
        b\nbackend b\n mode http\n server a 10.0.0.5:80\n",
        GLOBAL_CIPHERS_AND_CURVES,
    );
}

const BIND_CIPHERS: &[Row] = &[
    (
        "",
        &[
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
            "+ [service.f]",
            r#"+ listen = ["0.0.0.0:80"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ pool = "b""#,
            "+ tls = { certificates = \"/a.pem\", ciphers = \
            [\"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256\"] }",
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
            "2: imported as keys of each service's `tls`",
        ],
    ),
    (
        "ssl-min-ver TLSv1.2",
        &[
            "- tls = { certificates = \"/a.pem\", ciphers = \
            [\"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256\"] }",
            "+ tls = { certificates = \"/a.pem\", minimum = \"1.2\", ciphers = \
            [\"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256\"] }",
        ],
    ),
    (
        "ssl-min-ver TLSv1.3",
        &[
            "- tls = { certificates = \"/a.pem\", ciphers = \
            [\"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256\"] }",
            r#"+ tls = { certificates = "/a.pem", minimum = "1.3" }"#,
            "2: not imported: the service does not use TLS 1.2",
        ],
    ),
    (
        "no-tlsv12",
        &[
            "- tls = { certificates = \"/a.pem\", ciphers = \
            [\"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256\"] }",
            r#"+ tls = { certificates = "/a.pem", minimum = "1.3" }"#,
            "2: not imported: the service does not use TLS 1.2",
        ],
    ),
    (
        "force-tlsv13",
        &[
            "- tls = { certificates = \"/a.pem\", ciphers = \
            [\"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256\"] }",
            r#"+ tls = { certificates = "/a.pem", minimum = "1.3" }"#,
            "2: not imported: the service does not use TLS 1.2",
        ],
    ),
    (
        "ciphers ECDHE-RSA-AES256-GCM-SHA384",
        &[
            "- tls = { certificates = \"/a.pem\", ciphers = \
            [\"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256\"] }",
            "+ tls = { certificates = \"/a.pem\", ciphers = \
            [\"TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384\"] }",
        ],
    ),
    (
        "ciphersuites TLS_AES_128_GCM_SHA256",
        &[
            "- tls = { certificates = \"/a.pem\", ciphers = \
            [\"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256\"] }",
            "+ tls = { certificates = \"/a.pem\", ciphers = \
            [\"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256\", \"TLS_AES_128_GCM_SHA256\"] }",
        ],
    ),
    (
        "curves X25519",
        &[
            "- tls = { certificates = \"/a.pem\", ciphers = \
            [\"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256\"] }",
            "+ tls = { certificates = \"/a.pem\", ciphers = \
            [\"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256\"], groups = [\"X25519\"] }",
        ],
    ),
];

#[test]
fn bind_ciphers_replace_global_ciphers() {
    assert_changes(
        "global\n ssl-default-bind-ciphers ECDHE-RSA-AES128-GCM-SHA256\nfrontend f\n mode http\n \
        bind :80 ssl crt /a.pem {}\n default_backend b\nbackend b\n mode http\n server a \
        10.0.0.5:80\n",
        BIND_CIPHERS,
    );
}
