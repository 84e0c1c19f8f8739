//! The keys of checks. Every kind of check has one table of keys; which of them belong to which kind is written beside them.

mod choice;

use weir_model::Timing;

pub(crate) use self::choice::{NEEDED, OF_KINDS};
use self::choice::{kinds, on_failures, records, starts, versions, vias};
pub(super) use self::choice::{proxy_protocols, requires};
use super::integer;
use crate::key::{Key, Kind, Presence, Section};

use Presence::{Absent, Default};

/// A program, alone or with its arguments.
pub(super) const COMMAND: Kind = Kind::Either(&Kind::List(&Kind::Text), &Kind::Text);

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
            "What is asked. `tcp` connects; `tls` comes to terms with the server about a key; `http` and `https` send a request \
             and look at the answer; `grpc` asks by gRPC's health checking protocol; `smtp`, `redis`, `mysql` and \
             `postgres` say hello in their protocols; `dns` resolves a name; `udp` sends a datagram; `ping` an ICMP echo. \
             `agent` lets the server say its weight or state, as HAProxy's agent-check does. `script` and `file` ask the \
             director: a program's exit code, a file's number.",
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
            "interval_falling",
            INTERVAL,
            Absent("`interval`"),
            "The same for a server that is up and failed its last probe: a small one finds out soon.",
            "interval_falling = \"500ms\"",
        )
        .known_as(&["delay_before_retry"]),
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
        .known_as(&["fastinter"]),
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
        Key::new(
            "verify",
            Kind::Flag,
            Default("true"),
            "`https`, `tls`, `grpc`: whether the certificate must be from a known authority and for the server's name.",
            "verify = false",
        )
        .known_as(&["tls_verify"]),
        Key::new(
            "ca",
            Kind::Text,
            Absent("the system's, `/etc/ssl/certs/ca-certificates.crt`"),
            "`https`, `tls`, `grpc`: a file with the certificates of authorities, as PEM, absolute.",
            "ca = \"/etc/weir/internal-ca.pem\"",
        )
        .known_as(&["ca_file"]),
        Key::new(
            "server_name",
            Kind::Text,
            Absent("`host`, else the server's address, and no name is sent"),
            "`https`, `tls`, `grpc`: the name that is sent (SNI) and that the certificate must be for.",
            "server_name = \"web.internal\"",
        )
        .known_as(&["sni", "check-sni", "enable_sni"]),
        Key::new(
            "tls",
            Kind::Flag,
            Default("false"),
            "`grpc`: by TLS.",
            "tls = true",
        ),
        Key::new(
            "service",
            Kind::Text,
            Absent("the server as a whole"),
            "`grpc`: which service of the server is asked about.",
            "service = \"shop.Cart\"",
        ),
        Key::new(
            "helo",
            Kind::Text,
            Default("localhost"),
            "`smtp`: what the director calls itself.",
            "helo = \"director.example\"",
        )
        .known_as(&["helo_name"]),
        Key::new(
            "user",
            Kind::Text,
            Absent("`nobody` for `script`, `weir` for `mysql`, `postgres` for `postgres`"),
            "`script`: the account that the program runs as. `mysql` and `postgres`: the account that is named to the server, \
             without a password; being refused passes.",
            "user = \"weir\"",
        )
        .known_as(&["login", "script_user"]),
        Key::new(
            "query",
            Kind::Text,
            Absent("none; `dns` needs it"),
            "`dns`: the name to resolve.",
            "query = \"www.example\"",
        )
        .known_as(&["name"]),
        Key::new(
            "record",
            Kind::OneOf(records),
            Default("A"),
            "`dns`: the kind of record. One at least must be in the answer.",
            "record = \"AAAA\"",
        ),
        Key::new(
            "payload",
            Kind::Text,
            Absent("none; `udp` needs it"),
            "`udp`: what is sent, as octets in hexadecimal.",
            "payload = \"00 ff 10\"",
        ),
        Key::new(
            "send",
            Kind::Text,
            Absent("nothing"),
            "`agent`: what is sent before the server speaks.",
            "send = \"status\"",
        )
        .known_as(&["agent-send"]),
        Key::new(
            "command",
            COMMAND,
            Absent("none; `script` needs it"),
            "`script`: the program, absolute, and its arguments; no shell sees them. 0 passes and all else fails. It finds \
             the server in `WEIR_ADDRESS` and `WEIR_PORT`, and is killed at the timeout.",
            "command = [\"/usr/local/bin/check\", \"--fast\"]",
        )
        .known_as(&["script", "misc_path", "checkcommand"]),
        Key::new(
            "dynamic",
            Kind::Flag,
            Default("false"),
            "`script`: exit codes from 2 to 255 pass too, with a weight of two less.",
            "dynamic = true",
        )
        .known_as(&["misc_dynamic"]),
        Key::new(
            "file",
            Kind::Text,
            Absent("none; `file` needs it"),
            "`file`: the file, absolute, whose number is the weight. It is read when it changes, and at each interval; a \
             file that is missing or holds no number fails.",
            "file = \"/run/weight\"",
        )
        .known_as(&["track_file"]),
        Key::new(
            "via",
            Kind::OneOf(vias),
            Default("server"),
            "Which way probes take: to the server's own address; or through the forward of each layer 4 service that uses \
             the pool, with the VIP as destination, so that a VIP missing on the server, a missing decapsulation or an \
             answer to ARP for the VIP is found; or both, and the reason tells which of them failed.",
            "via = \"both\"",
        ),
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
        Key::new(
            "regex",
            Kind::Text,
            Absent("any body"),
            "Regular expression that the body must match somewhere, within its first MiB; `(?s)`, `(?i)` and the like at its \
             beginning set options. It knows neither backreferences nor look-around, and takes linear time.",
            "regex = \"^(Up|OK)$\"",
        )
        .known_as(&["rstring", "match"]),
        Key::new(
            "without",
            Kind::Text,
            Absent("any body"),
            "Regular expression that must not match anywhere in the body, within its first MiB.",
            "without = \"(?i)maintenance\"",
        )
        .known_as(&["regex_no_match"]),
        Key::new(
            "digest",
            Kind::Text,
            Absent("any body"),
            "Digest of the whole body, in hexadecimal: 32 digits are MD5, 64 are SHA-256. A body above 1 MiB fails.",
            "digest = \"9a0364b9e99bb480dd25e1f0284c8555\"",
        )
        .known_as(&["md5", "sha256"]),
        Key::new(
            "answer",
            Kind::Address,
            Absent("any record"),
            "`dns`: an address that must be in the answer.",
            "answer = \"10.0.0.5\"",
        ),
        Key::new(
            "bytes",
            Kind::Text,
            Absent("any answer"),
            "`udp`: what the answer must begin with, as octets in hexadecimal; `xx` is any octet.",
            "bytes = \"00 xx 10\"",
        )
        .known_as(&["require_reply"]),
    ],
};
