//! The keys of checks. Every kind of check has one table of keys; which of them belong to which kind is written beside them.

use weir_model::{OnFailure, ProxyHeader, Require, Start, Timing};

use super::integer;
use crate::key::{Choices, Key, Kind, Presence, Section};

use Presence::{Absent, Default};

/// `check` of a pool or a server.
pub(super) const CHECKS: Kind = Kind::Either(
    &Kind::CheckName,
    &Kind::Either(
        &Kind::Table(&CHECK),
        &Kind::List(&Kind::Either(&Kind::CheckName, &Kind::Table(&CHECK))),
    ),
);

const INTERVAL: Kind = Kind::Duration {
    min: Timing::INTERVAL.0,
    max: Timing::INTERVAL.1,
};

const TIMEOUT: Kind = Kind::Duration {
    min: Timing::TIMEOUT.0,
    max: Timing::TIMEOUT.1,
};

const COUNT: Kind = integer(Timing::COUNT);

fn kinds() -> Choices {
    Choices {
        now: vec!["tcp", "http"],
        later: vec![
            "https", "tls", "smtp", "dns", "ping", "udp", "redis", "mysql", "postgres", "grpc",
            "script", "file", "agent",
        ],
        known_as: &[
            ("connect", "tcp"),
            ("TCP_CHECK", "tcp"),
            ("HTTP_GET", "http"),
            ("SSL_GET", "https"),
            ("MISC_CHECK", "script"),
            ("external", "script"),
            ("PING_CHECK", "ping"),
            ("UDP_CHECK", "udp"),
            ("DNS_CHECK", "dns"),
            ("SMTP_CHECK", "smtp"),
            ("FILE_CHECK", "file"),
            ("pgsql", "postgres"),
        ],
        ..Choices::default()
    }
}

/// Keys that only some kinds have, and which.
pub(crate) const OF_KINDS: &[(&str, &[&str])] = &[
    ("path", &["http"]),
    ("method", &["http"]),
    ("version", &["http"]),
    ("host", &["http"]),
    ("headers", &["http"]),
    ("body", &["http"]),
    ("expect", &["http"]),
    ("port", &["tcp", "http"]),
    ("proxy_protocol", &["tcp", "http"]),
];

fn versions() -> Choices {
    Choices {
        now: vec!["1.0", "1.1"],
        ..Choices::default()
    }
}

fn starts() -> Choices {
    Choices {
        now: Start::ALL.iter().map(|start| start.as_str()).collect(),
        ..Choices::default()
    }
}

fn on_failures() -> Choices {
    Choices {
        now: OnFailure::ALL
            .iter()
            .map(|choice| choice.as_str())
            .collect(),
        ..Choices::default()
    }
}

fn proxy_protocols() -> Choices {
    Choices {
        now: ProxyHeader::ALL
            .iter()
            .map(|version| version.as_str())
            .collect(),
        ..Choices::default()
    }
}

pub(super) fn requires() -> Choices {
    Choices {
        now: Require::ALL.iter().map(|choice| choice.as_str()).collect(),
        ..Choices::default()
    }
}

/// `[check.NAME]`, and `check` of a pool or a server as a table.
pub(crate) static CHECK: Section = Section {
    path: "check.NAME",
    page: "check",
    purpose: "How the health of servers is found out. The same keys stand in `[pool.NAME.check]`, in each \
              `[[pool.NAME.check]]`, and in `check` of a server. NAME is what these may say instead.",
    example: "[check.site]\nkind = \"http\"\npath = \"/hello\"\nexpect = { body = \"Up\" }\n\n[pool.images]\nservers = \
              [\"10.0.0.5\"]\ncheck = \"site\"\n\n[service.images]\nlisten = [\"192.0.2.10:80\"]\nforward = \
              \"direct\"\npool = \"images\"\n",
    keys: &[
        Key::new(
            "kind",
            Kind::OneOf(kinds),
            Default("tcp"),
            "What is asked. `tcp` connects; `http` sends a request and looks at the answer.",
            "kind = \"http\"",
        )
        .known_as(&["type", "checktype", "mode"]),
        Key::new(
            "interval",
            INTERVAL,
            Default("2s"),
            "From one probe to the next, a twentieth more or less so that probes never align.",
            "interval = \"5s\"",
        )
        .known_as(&["delay_loop", "inter", "checkinterval"]),
        Key::new(
            "interval_down",
            INTERVAL,
            Absent("`interval`"),
            "The same for a server that is down.",
            "interval_down = \"10s\"",
        )
        .known_as(&["downinter"]),
        Key::new(
            "interval_rising",
            INTERVAL,
            Absent("`interval`"),
            "The same for a server that is down and passed its last probe.",
            "interval_rising = \"500ms\"",
        )
        .known_as(&["fastinter", "delay_before_retry"]),
        Key::new(
            "timeout",
            TIMEOUT,
            Default("1s"),
            "One deadline for the whole probe: connecting, TLS, question and answer.",
            "timeout = \"3s\"",
        )
        .known_as(&["connect_timeout", "checktimeout", "negotiatetimeout"]),
        Key::new(
            "rise",
            COUNT,
            Default("2"),
            "Probes in a row that must pass to bring a server up.",
            "rise = 1",
        ),
        Key::new(
            "fall",
            COUNT,
            Default("3"),
            "Probes in a row that must fail to take a server down.",
            "fall = 2",
        )
        .known_as(&["retry", "failurecount", "max_fails"]),
        Key::new(
            "on_failure",
            Kind::OneOf(on_failures),
            Default("quiesce"),
            "What becomes of a server that is down: it gets weight 0 and its flows live on, or the pool's `on_remove` \
             applies to them.",
            "on_failure = \"remove\"",
        )
        .known_as(&["inhibit_on_failure", "quiescent", "on-marked-down"]),
        Key::new(
            "start",
            Kind::OneOf(starts),
            Default("checking"),
            "Before the first result: used only while no other server is up, and the first result decides at once; or \
             taken for up; or taken for down.",
            "start = \"down\"",
        )
        .known_as(&["init-state", "alpha"]),
        Key::new(
            "address",
            Kind::Address,
            Absent("the server's"),
            "Where probes go in place of the server.",
            "address = \"10.9.0.5\"",
        )
        .known_as(&["connect_ip", "addr"]),
        Key::new(
            "port",
            integer((1, 65_535)),
            Absent("the server's, or else the first exact port that a service of the pool listens on"),
            "Which port probes go to.",
            "port = 8081",
        )
        .known_as(&["connect_port", "checkport"]),
        Key::new(
            "source",
            Kind::Address,
            Absent("the kernel's choice"),
            "Source address of probes. It must be one of the director's.",
            "source = \"10.0.0.1\"",
        )
        .known_as(&["bindto"]),
        Key::new(
            "interface",
            Kind::Interface,
            Absent("the kernel's choice"),
            "Interface that probes leave by.",
            "interface = \"eth1\"",
        )
        .known_as(&["bind_if"]),
        Key::new(
            "proxy_protocol",
            Kind::OneOf(proxy_protocols),
            Absent("no header"),
            "Puts a PROXY protocol header in front, for servers that expect one.",
            "proxy_protocol = \"v2\"",
        )
        .known_as(&["check-send-proxy", "send-proxy"]),
        Key::new(
            "path",
            Kind::Text,
            Default("/"),
            "Path and query of the request.",
            "path = \"/health?deep=1\"",
        )
        .known_as(&["url", "uri", "request"]),
        Key::new(
            "method",
            Kind::Text,
            Default("GET"),
            "Method of the request.",
            "method = \"HEAD\"",
        )
        .known_as(&["httpmethod", "meth"]),
        Key::new(
            "version",
            Kind::OneOf(versions),
            Default("1.1"),
            "Version of the request.",
            "version = \"1.0\"",
        )
        .known_as(&["http_protocol", "ver"]),
        Key::new(
            "host",
            Kind::Text,
            Absent("the server's address"),
            "`Host` of the request.",
            "host = \"www.example\"",
        )
        .known_as(&["virtualhost", "hdr"]),
        Key::new(
            "headers",
            Kind::List(&Kind::Text),
            Default("[]"),
            "Further fields of the request, each `NAME: VALUE`.",
            "headers = [\"X-Probe: weir\"]",
        )
        .known_as(&["header"]),
        Key::new(
            "body",
            Kind::Text,
            Absent("no body"),
            "Body of the request.",
            "body = \"ping\"",
        ),
        Key::new(
            "expect",
            Kind::Table(&EXPECT),
            Absent("status 200-399, any body"),
            "What the answer must be like.",
            "expect = { status = \"200-299\", body = \"Up\" }",
        )
        .known_as(&["status_code", "receive", "http-check"]),
        Key::later("via", "Sends the probe through the forward of the service, to find a broken path."),
        Key::later("notify", "A program that is called when a state changes."),
    ],
};

/// `expect` of a check.
pub(crate) static EXPECT: Section = Section {
    path: "check.NAME.expect",
    page: "expect",
    purpose: "What the answer to a probe must be like. Everything that is written must hold.",
    example: "[check.site]\nkind = \"http\"\nexpect = { status = \"200-299\", body = \"Up\" }\n\n[pool.images]\nservers = \
              [\"10.0.0.5\"]\ncheck = \"site\"\n\n[service.images]\nlisten = [\"192.0.2.10:80\"]\nforward = \
              \"direct\"\npool = \"images\"\n",
    keys: &[
        Key::new(
            "status",
            Kind::Either(&Kind::StatusCodes, &Kind::Integer { min: 100, max: 599 }),
            Default("200-399"),
            "Status codes that pass.",
            "status = \"200-299,304\"",
        )
        .known_as(&["status_code"]),
        Key::new(
            "body",
            Kind::Text,
            Absent("any body"),
            "Text that the body must hold, within its first MiB.",
            "body = \"Up\"",
        )
        .known_as(&["receive", "string", "content"]),
    ],
};
