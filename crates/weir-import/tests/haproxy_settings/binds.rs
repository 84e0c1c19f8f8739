//! Tests the addresses and certificates of `bind` lines.

use super::{Row, assert_changes};

const BIND_ADDRESSES_ARE_CONVERTED: &[Row] = &[
    (
        "",
        &[
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
            "+ [service.f]",
            r#"+ listen = ["127.0.0.1:22000"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ pool = "b""#,
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
            "1 LOST: Weir cannot listen on any address of this section; the service listens on \
            127.0.0.1:22000, which all processes on this host can reach",
        ],
    ),
    (
        "bind",
        &["3 LOST: not imported: haproxy requires an address"],
    ),
    (
        "bind :80",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["0.0.0.0:80"]"#,
        ],
    ),
    (
        "bind *:80",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["0.0.0.0:80"]"#,
        ],
    ),
    (
        "bind 10.0.0.1:80,10.0.0.2:80",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["10.0.0.1:80", "10.0.0.2:80"]"#,
        ],
    ),
    (
        "bind ,:80",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["0.0.0.0:80"]"#,
        ],
    ),
    (
        "bind :80-82",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["0.0.0.0:80", "0.0.0.0:81", "0.0.0.0:82"]"#,
        ],
    ),
    (
        "bind :82-80",
        &[
            "3 LOST: not imported: invalid port range 82-80",
            "3 LOST: Weir cannot listen on any address of this section; the service listens on \
            127.0.0.1:22000, which all processes on this host can reach",
        ],
    ),
    (
        "bind :80-80",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["0.0.0.0:80"]"#,
        ],
    ),
    (
        "bind :0",
        &[
            "3 LOST: not imported: invalid port 0",
            "3 LOST: Weir cannot listen on any address of this section; the service listens on \
            127.0.0.1:22000, which all processes on this host can reach",
        ],
    ),
    (
        "bind :65536",
        &[
            "3 LOST: not imported: invalid port 65536",
            "3 LOST: Weir cannot listen on any address of this section; the service listens on \
            127.0.0.1:22000, which all processes on this host can reach",
        ],
    ),
    (
        "bind :x",
        &[
            "3 LOST: not imported: invalid port x",
            "3 LOST: Weir cannot listen on any address of this section; the service listens on \
            127.0.0.1:22000, which all processes on this host can reach",
        ],
    ),
    (
        "bind 80",
        &[
            "3 LOST: not imported: 80 has no port",
            "3 LOST: Weir cannot listen on any address of this section; the service listens on \
            127.0.0.1:22000, which all processes on this host can reach",
        ],
    ),
    (
        "bind 10.0.0.1",
        &[
            "3 LOST: not imported: 10.0.0.1 has no port",
            "3 LOST: Weir cannot listen on any address of this section; the service listens on \
            127.0.0.1:22000, which all processes on this host can reach",
        ],
    ),
    (
        "bind ipv4@:80",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["0.0.0.0:80"]"#,
        ],
    ),
    (
        "bind tcp4@10.0.0.1:80",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["10.0.0.1:80"]"#,
        ],
    ),
    (
        "bind ipv6@:80",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["[::]:80", "0.0.0.0:80"]"#,
        ],
    ),
    (
        "bind ipv6@*:80",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["[::]:80", "0.0.0.0:80"]"#,
        ],
    ),
    (
        "bind tcp6@[fd00::1]:80",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["[fd00::1]:80"]"#,
        ],
    ),
    (
        "bind tcp@:80",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["0.0.0.0:80"]"#,
        ],
    ),
    (
        "bind abns@x",
        &[
            "3 LOST: not imported: Weir cannot listen on abns@",
            "3 LOST: Weir cannot listen on any address of this section; the service listens on \
            127.0.0.1:22000, which all processes on this host can reach",
        ],
    ),
    (
        "bind fd@3",
        &[
            "3 LOST: not imported: Weir cannot listen on fd@",
            "3 LOST: Weir cannot listen on any address of this section; the service listens on \
            127.0.0.1:22000, which all processes on this host can reach",
        ],
    ),
    (
        "bind unix@/run/f",
        &[
            "3 LOST: not imported: Weir cannot listen on unix@",
            "3 LOST: Weir cannot listen on any address of this section; the service listens on \
            127.0.0.1:22000, which all processes on this host can reach",
        ],
    ),
    (
        "bind /run/f",
        &[
            "3 LOST: not imported: Weir cannot listen on a Unix socket",
            "3 LOST: Weir cannot listen on any address of this section; the service listens on \
            127.0.0.1:22000, which all processes on this host can reach",
        ],
    ),
    (
        "bind :::80",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["[::]:80", "0.0.0.0:80"]"#,
        ],
    ),
    (
        "bind [::]:80",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["[::]:80", "0.0.0.0:80"]"#,
        ],
    ),
    (
        "bind [::]:80 v6only",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["[::]:80"]"#,
            "3: v6only is not imported: `listen` has no such option",
        ],
    ),
    (
        "bind [::]:80 v4v6",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["[::]:80", "0.0.0.0:80"]"#,
            "3: v4v6 is not imported: `listen` has no such option",
        ],
    ),
    (
        "bind [::1]:80",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["[::1]:80"]"#,
        ],
    ),
    (
        "bind ::1:80",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["[::1]:80"]"#,
        ],
    ),
    (
        "bind [::]:80\n bind :80",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["[::]:80", "0.0.0.0:80"]"#,
        ],
    ),
    (
        "bind :80\n bind [::]:80",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["0.0.0.0:80", "[::]:80"]"#,
        ],
    ),
    (
        "bind [::]:80\n bind *:81",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["[::]:80", "0.0.0.0:80", "0.0.0.0:81"]"#,
        ],
    ),
    (
        "bind [::]:80,[::]:81\n bind 10.0.0.1:80",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["[::]:80", "0.0.0.0:80", "[::]:81", "0.0.0.0:81", "10.0.0.1:80"]"#,
        ],
    ),
    (
        "bind four:80",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["192.0.2.4:80"]"#,
        ],
    ),
    (
        "bind ipv6@six:80",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["[fd00::6]:80"]"#,
        ],
    ),
    (
        "bind six:80",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["127.0.0.1:80"]"#,
            "3 LOST: the name six cannot be resolved; 127.0.0.1:80 is used instead",
        ],
    ),
    (
        "bind ipv6@four:80",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["127.0.0.1:80"]"#,
            "3 LOST: the name four cannot be resolved; 127.0.0.1:80 is used instead",
        ],
    ),
    (
        "bind none:80",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["127.0.0.1:80"]"#,
            "3 LOST: the name none cannot be resolved; 127.0.0.1:80 is used instead",
        ],
    ),
    (
        "bind none:80-81",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["127.0.0.1:80", "127.0.0.1:81"]"#,
            "3 LOST: the name none cannot be resolved; 127.0.0.1:80 to 127.0.0.1:81 are used \
            instead",
        ],
    ),
    (
        "bind none:80-82",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["127.0.0.1:80", "127.0.0.1:81", "127.0.0.1:82"]"#,
            "3 LOST: the name none cannot be resolved; 127.0.0.1:80 to 127.0.0.1:82 are used \
            instead",
        ],
    ),
    (
        "bind ${UNSET}:80",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["${UNSET}:80"]"#,
        ],
    ),
    (
        "bind :${UNSET}",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["0.0.0.0:${UNSET}"]"#,
        ],
    ),
    (
        "bind :${UNSET}x",
        &[
            "3 LOST: not imported: invalid port ${UNSET}x",
            "3 LOST: Weir cannot listen on any address of this section; the service listens on \
            127.0.0.1:22000, which all processes on this host can reach",
        ],
    ),
    (
        "bind ${ADDRESS}:${PORT}",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["10.0.0.9:8080"]"#,
        ],
    ),
    (
        "bind ipv6@${UNSET}:80",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["${UNSET}:80"]"#,
        ],
    ),
    (
        "bind :80\n bind :80 ssl crt /a",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["0.0.0.0:80"]"#,
        ],
    ),
    (
        "bind :80\n bind :81",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["0.0.0.0:80", "0.0.0.0:81"]"#,
        ],
    ),
    (
        "bind :80\n bind :81 accept-proxy",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["0.0.0.0:80"]"#,
            "+ [service.f-proxied]",
            r#"+ listen = ["0.0.0.0:81"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ pool = "b""#,
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
            "+ proxy_protocol = true",
        ],
    ),
    (
        "bind :80 ssl crt /a\n bind :81 ssl crt /a accept-proxy\n bind :82 accept-proxy\n bind :83",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["0.0.0.0:83"]"#,
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
            "+ [service.f-proxied]",
            r#"+ listen = ["0.0.0.0:82"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ pool = "b""#,
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
            "+ proxy_protocol = true",
            "+ [service.f-tls-proxied]",
            r#"+ listen = ["0.0.0.0:81"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ pool = "b""#,
            r#"+ tls = { certificates = "/a" }"#,
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
            "+ proxy_protocol = true",
        ],
    ),
    (
        "bind :81 ssl crt /a accept-proxy\n bind :82 accept-proxy",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["0.0.0.0:82"]"#,
            "+ proxy_protocol = true",
            "+ [service.f-tls-proxied]",
            r#"+ listen = ["0.0.0.0:81"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ pool = "b""#,
            r#"+ tls = { certificates = "/a" }"#,
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
            "+ proxy_protocol = true",
        ],
    ),
    (
        "bind abns@x ssl crt /a",
        &[
            r#"+ tls = { certificates = "/a" }"#,
            "3 LOST: not imported: Weir cannot listen on abns@",
            "3 LOST: Weir cannot listen on any address of this section; the service listens on \
            127.0.0.1:22000, which all processes on this host can reach",
        ],
    ),
    (
        "bind abns@x\n bind abns@y ssl crt /a",
        &[
            "3 LOST: not imported: Weir cannot listen on abns@",
            "3 LOST: Weir cannot listen on any address of this section; the service listens on \
            127.0.0.1:22000, which all processes on this host can reach",
            "4 LOST: not imported: Weir cannot listen on abns@",
        ],
    ),
    (
        "bind abns@x\n bind :80",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["0.0.0.0:80"]"#,
            "3 LOST: not imported: Weir cannot listen on abns@",
        ],
    ),
    (
        "bind :80\n bind abns@x",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["0.0.0.0:80"]"#,
            "4 LOST: not imported: Weir cannot listen on abns@",
        ],
    ),
];

#[test]
fn bind_addresses_are_converted() {
    assert_changes(
        "frontend f\n mode http\n {}\n default_backend b\nbackend b\n mode http\n server a \
        10.0.0.5:80\n",
        BIND_ADDRESSES_ARE_CONVERTED,
    );
}

const EARLIER_SECTIONS_KEEP_THEIR_ADDRESSES: &[Row] = &[
    (
        "",
        &[
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
            "+ [service.e]",
            r#"+ listen = ["0.0.0.0:80", "10.0.0.1:90"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ pool = "b""#,
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
            "+ [service.f]",
            r#"+ listen = ["127.0.0.1:22000"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ pool = "b""#,
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
            "9 LOST: Weir cannot listen on any address of this section; the service listens on \
            127.0.0.1:22000, which all processes on this host can reach",
        ],
    ),
    (
        "bind :80",
        &[
            "11 LOST: not imported: an earlier section listens on 0.0.0.0:80",
            "11 LOST: Weir cannot listen on any address of this section; the service listens on \
            127.0.0.1:22000, which all processes on this host can reach",
        ],
    ),
    (
        "bind :80\n bind :81",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["0.0.0.0:81"]"#,
            "11 LOST: not imported: an earlier section listens on 0.0.0.0:80",
        ],
    ),
    (
        "bind [::]:80",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["[::]:80"]"#,
        ],
    ),
    (
        "bind [::]:90",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["[::]:90", "0.0.0.0:90"]"#,
        ],
    ),
    (
        "bind 10.0.0.1:90,:91",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["0.0.0.0:91"]"#,
            "11 LOST: not imported: an earlier section listens on 10.0.0.1:90",
        ],
    ),
];

#[test]
fn earlier_sections_keep_their_addresses() {
    assert_changes(
        "frontend e\n mode http\n bind :80\n bind 10.0.0.1:90\n default_backend b\nbackend b\n \
        mode http\n server a 10.0.0.5:80\nfrontend f\n mode http\n {}\n default_backend b\n",
        EARLIER_SECTIONS_KEEP_THEIR_ADDRESSES,
    );
}

const BINDS_WITHOUT_CERTIFICATE_USE_THE_DEFAULT_DIRECTORY: &[Row] = &[
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
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
        ],
    ),
    (
        "ssl",
        &[
            r#"+ tls = { certificates = "/etc/weir/certs" }"#,
            "3 LOST: the certificates are not imported: place them in /etc/weir/certs",
        ],
    ),
    ("ssl crt /a", &[r#"+ tls = { certificates = "/a" }"#]),
    ("crt /a", &[]),
    ("ciphers ECDHE-RSA-AES256-GCM-SHA384", &[]),
];

#[test]
fn binds_without_certificate_use_the_default_directory() {
    assert_changes(
        "frontend f\n mode http\n bind :80 {}\n default_backend b\nbackend b\n mode http\n \
        server a 10.0.0.5:80\n",
        BINDS_WITHOUT_CERTIFICATE_USE_THE_DEFAULT_DIRECTORY,
    );
}

const RELATIVE_CERTIFICATES_ARE_BELOW_CRT_BASE: &[Row] = &[
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
            r#"+ tls = { certificates = "/etc/weir/certs" }"#,
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
            "2 LOST: not imported: Weir uses its own TLS defaults; see a service's `tls`",
            "5 LOST: the certificates are not imported: place them in /etc/weir/certs",
        ],
    ),
    (
        "crt a.pem",
        &[
            r#"- tls = { certificates = "/etc/weir/certs" }"#,
            r#"+ tls = { certificates = "/certs/a.pem" }"#,
        ],
    ),
    (
        "crt /a.pem",
        &[
            r#"- tls = { certificates = "/etc/weir/certs" }"#,
            r#"+ tls = { certificates = "/a.pem" }"#,
        ],
    ),
    (
        "crt-list /etc/list",
        &[
            r#"- tls = { certificates = "/etc/weir/certs" }"#,
            r#"+ tls = { certificates = ["/a.pem", "/certs/b.pem", "/c.pem", "/d.pem"] }"#,
            "5 LOST: b.pem in /etc/list: options and negative SNI filters are not imported",
            "5 LOST: /c.pem in /etc/list: options and negative SNI filters are not imported",
            "5: /d.pem in /etc/list: the SNI filters are not imported; the names in the \
            certificate are used",
        ],
    ),
];

#[test]
fn relative_certificates_are_below_crt_base() {
    assert_changes(
        "global\n crt-base /certs/\nfrontend f\n mode http\n bind :80 ssl {}\n default_backend \
        b\nbackend b\n mode http\n server a 10.0.0.5:80\n",
        RELATIVE_CERTIFICATES_ARE_BELOW_CRT_BASE,
    );
}
