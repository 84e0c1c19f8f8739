//! Defines the keys of health checks. All kinds share one table; `choice` lists the keys that are valid for each kind.

mod choice;

use weir_model::Timing;

pub(crate) use self::choice::CheckKind;
use self::choice::{failure_actions, kinds, probe_paths, records, start_states, versions};
pub(super) use self::choice::{proxy_protocols, require_modes};
use super::integer;
use crate::key::{Key, Kind, Presence, Section};

use Presence::{Absent, Default};

/// Type of a program, with or without arguments.
pub(super) const COMMAND: Kind = Kind::Either(&Kind::List(&Kind::Text), &Kind::Text);

/// Type of `check` in a pool or a server.
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

/// Keys of `[check.NAME]`, and of `check` in a pool or a server in table form.
pub(crate) static CHECK: Section = Section {
    path: "check.NAME",
    page: "check",
    purpose: "A health check. The same keys are valid in `[pool.NAME.check]`, in each `[[pool.NAME.check]]`, and in a \
              server's `check`. Pools and servers can refer to the check by NAME.",
    example: "[check.site]\nkind = \"http\"\npath = \"/hello\"\nexpect = { body = \"Up\" }\n\n[pool.images]\nservers = \
              [\"10.0.0.5\"]\ncheck = \"site\"\n\n[service.images]\nlisten = [\"192.0.2.10:80\"]\nforward = \
              \"direct\"\npool = \"images\"\n",
    keys: &[
        Key::new(
            "kind",
            Kind::OneOf(kinds),
            Default("tcp"),
            "Type of check. `tcp` connects; `tls` completes a handshake; `http` and `https` send a request and \
             evaluate the response; `grpc` uses the gRPC health checking protocol; `smtp`, `redis`, `mysql` and \
             `postgres` exchange a greeting in their protocol; `dns` resolves a name; `udp` sends a datagram; `ping` \
             sends an ICMP echo request. `agent` reads the weight or state that the server reports, like HAProxy's \
             agent-check. `script` runs a program on the director and evaluates its exit code; `file` reads a number \
             from a file.",
            "kind = \"http\"",
        )
        .known_as(&["type", "checktype", "mode"]),
        Key::new(
            "interval",
            INTERVAL,
            Default("2s"),
            "Time between probes. It varies randomly by up to 5%, so that probes do not synchronize.",
            "interval = \"5s\"",
        )
        .known_as(&["delay_loop", "inter", "checkinterval"]),
        Key::new(
            "interval_falling",
            INTERVAL,
            Absent("`interval`"),
            "Interval for a server that is up and failed its last probe. A small value detects failures sooner.",
            "interval_falling = \"500ms\"",
        )
        .known_as(&["delay_before_retry"]),
        Key::new(
            "interval_down",
            INTERVAL,
            Absent("`interval`"),
            "Interval for a server that is down.",
            "interval_down = \"10s\"",
        )
        .known_as(&["downinter"]),
        Key::new(
            "interval_rising",
            INTERVAL,
            Absent("`interval`"),
            "Interval for a server that is down and passed its last probe.",
            "interval_rising = \"500ms\"",
        )
        .known_as(&["fastinter"]),
        Key::new(
            "timeout",
            TIMEOUT,
            Default("1s"),
            "Deadline for the whole probe: connect, TLS handshake, request and response.",
            "timeout = \"3s\"",
        )
        .known_as(&["connect_timeout", "checktimeout", "negotiatetimeout"]),
        Key::new(
            "rise",
            COUNT,
            Default("2"),
            "Consecutive successful probes required to mark a server up.",
            "rise = 1",
        ),
        Key::new(
            "fall",
            COUNT,
            Default("3"),
            "Consecutive failed probes required to mark a server down.",
            "fall = 2",
        )
        .known_as(&["retry", "failurecount", "max_fails"]),
        Key::new(
            "on_failure",
            Kind::OneOf(failure_actions),
            Default("quiesce"),
            "What happens to a server that is down: `quiesce` sets its weight to 0 and keeps its flows; `remove` \
             applies the pool's `on_remove` to its flows.",
            "on_failure = \"remove\"",
        )
        .known_as(&["inhibit_on_failure", "quiescent", "on-marked-down"]),
        Key::new(
            "start",
            Kind::OneOf(start_states),
            Default("checking"),
            "State before the first result. `checking`: used only while no other server is up, and the first result \
             decides immediately. `up` and `down`: the server is assumed to be in that state.",
            "start = \"down\"",
        )
        .known_as(&["init-state", "alpha"]),
        Key::new(
            "address",
            Kind::Address,
            Absent("the server's address"),
            "Target address for probes, instead of the server's.",
            "address = \"10.9.0.5\"",
        )
        .known_as(&["connect_ip", "addr"]),
        Key::new(
            "port",
            integer((1, 65_535)),
            Absent("the server's port, otherwise the first exact port that a service using the pool listens on"),
            "Target port for probes.",
            "port = 8081",
        )
        .known_as(&["connect_port", "checkport"]),
        Key::new(
            "source",
            Kind::Address,
            Absent("selected by the kernel"),
            "Source address for probes. It must be one of the director's addresses.",
            "source = \"10.0.0.1\"",
        )
        .known_as(&["bindto"]),
        Key::new(
            "interface",
            Kind::Interface,
            Absent("selected by the kernel"),
            "Outgoing interface for probes.",
            "interface = \"eth1\"",
        )
        .known_as(&["bind_if"]),
        Key::new(
            "proxy_protocol",
            Kind::OneOf(proxy_protocols),
            Absent("no header"),
            "Sends a PROXY protocol header first, for servers that expect one.",
            "proxy_protocol = \"v2\"",
        )
        .known_as(&["check-send-proxy", "send-proxy"]),
        Key::new(
            "path",
            Kind::Text,
            Default("/"),
            "Request path and query.",
            "path = \"/health?deep=1\"",
        )
        .known_as(&["url", "uri", "request"]),
        Key::new(
            "method",
            Kind::Text,
            Default("GET"),
            "Request method.",
            "method = \"HEAD\"",
        )
        .known_as(&["httpmethod", "meth"]),
        Key::new(
            "version",
            Kind::OneOf(versions),
            Default("1.1"),
            "HTTP version.",
            "version = \"1.0\"",
        )
        .known_as(&["http_protocol", "ver"]),
        Key::new(
            "host",
            Kind::Text,
            Absent("the server's address"),
            "Value of the `Host` field.",
            "host = \"www.example\"",
        )
        .known_as(&["virtualhost", "hdr"]),
        Key::new(
            "headers",
            Kind::List(&Kind::Text),
            Default("[]"),
            "Additional request header fields, each `NAME: VALUE`.",
            "headers = [\"X-Probe: weir\"]",
        )
        .known_as(&["header"]),
        Key::new(
            "body",
            Kind::Text,
            Absent("no body"),
            "Request body.",
            "body = \"ping\"",
        ),
        Key::new(
            "expect",
            Kind::Table(&EXPECT),
            Absent("status 200-399, any body"),
            "Conditions that the response must meet.",
            "expect = { status = \"200-299\", body = \"Up\" }",
        )
        .known_as(&["status_code", "receive", "http-check"]),
        Key::new(
            "verify",
            Kind::Flag,
            Default("true"),
            "`https`, `tls`, `grpc`: whether to verify the server's certificate: trusted CA and matching name.",
            "verify = false",
        )
        .known_as(&["tls_verify"]),
        Key::new(
            "ca",
            Kind::Text,
            Absent("the system's CA bundle, `/etc/ssl/certs/ca-certificates.crt`"),
            "`https`, `tls`, `grpc`: absolute path to a PEM file with the trusted CA certificates.",
            "ca = \"/etc/weir/internal-ca.pem\"",
        )
        .known_as(&["ca_file"]),
        Key::new(
            "server_name",
            Kind::Text,
            Absent("`host`, otherwise the server's address without SNI"),
            "`https`, `tls`, `grpc`: name sent as SNI; the certificate must be valid for it.",
            "server_name = \"web.internal\"",
        )
        .known_as(&["sni", "check-sni", "enable_sni"]),
        Key::new(
            "tls",
            Kind::Flag,
            Default("false"),
            "`grpc`: use TLS.",
            "tls = true",
        ),
        Key::new(
            "service",
            Kind::Text,
            Absent("the overall health of the server"),
            "`grpc`: name of the service to query.",
            "service = \"shop.Cart\"",
        ),
        Key::new(
            "exchange",
            Kind::List(&Kind::Table(&EXCHANGE)),
            Absent("a connection, or for `tls` a handshake, is enough"),
            "`tcp`, `tls`: strings to send, and strings that the server must send in response, in this order. The last \
             step must have `expect` or `regex`.",
            "exchange = [{ send = \"PING\\r\\n\", expect = \"+PONG\" }]",
        )
        .known_as(&["tcp-check"]),
        Key::new(
            "helo",
            Kind::Text,
            Default("localhost"),
            "`smtp`: name sent with HELO.",
            "helo = \"director.example\"",
        )
        .known_as(&["helo_name"]),
        Key::new(
            "user",
            Kind::Text,
            Absent("`nobody` for `script`, `weir` for `mysql`, `postgres` for `postgres`"),
            "`script`: account that the program runs as. `mysql` and `postgres`: user name sent to the server, \
             without a password; a rejected login counts as success.",
            "user = \"weir\"",
        )
        .known_as(&["login", "script_user"]),
        Key::new(
            "query",
            Kind::Text,
            Absent("none; required for `dns`"),
            "`dns`: the name to resolve.",
            "query = \"www.example\"",
        )
        .known_as(&["name"]),
        Key::new(
            "record",
            Kind::OneOf(records),
            Default("A"),
            "`dns`: record type. The response must contain at least one such record.",
            "record = \"AAAA\"",
        ),
        Key::new(
            "payload",
            Kind::Text,
            Absent("none; required for `udp`"),
            "`udp`: datagram to send, in hexadecimal.",
            "payload = \"00 ff 10\"",
        ),
        Key::new(
            "send",
            Kind::Text,
            Absent("nothing"),
            "`agent`: text to send after connecting.",
            "send = \"status\"",
        )
        .known_as(&["agent-send"]),
        Key::new(
            "command",
            COMMAND,
            Absent("none; required for `script`"),
            "`script`: absolute path to a program, and its arguments; no shell is involved. The check passes if the \
             exit code is 0, and fails otherwise. The environment contains the server in `WEIR_ADDRESS` and \
             `WEIR_PORT`. The program is killed when the timeout expires.",
            "command = [\"/usr/local/bin/check\", \"--fast\"]",
        )
        .known_as(&["script", "misc_path", "checkcommand"]),
        Key::new(
            "dynamic",
            Kind::Flag,
            Default("false"),
            "`script`: the check also passes with exit codes 2 to 255, which set the weight to the exit code minus 2.",
            "dynamic = true",
        )
        .known_as(&["misc_dynamic"]),
        Key::new(
            "file",
            Kind::Text,
            Absent("none; required for `file`"),
            "`file`: absolute path to a file that contains the weight as a number. The file is read when it changes \
             and at each interval. A missing file, or one without a number, fails the check.",
            "file = \"/run/weight\"",
        )
        .known_as(&["track_file"]),
        Key::new(
            "via",
            Kind::OneOf(probe_paths),
            Default("server"),
            "Path that probes take. `server`: directly to the server's address. `path`: through the forwarding method \
             of each layer 4 service that uses the pool, with the VIP as destination; this detects a server without \
             the VIP, missing decapsulation, and a server that replies to ARP requests for the VIP. `both`: both \
             paths; the reason states which one failed.",
            "via = \"both\"",
        ),
    ],
};

/// Keys of a step in a check's `exchange`.
pub(crate) static EXCHANGE: Section = Section {
    path: "check.NAME.exchange",
    page: "exchange",
    purpose: "A step in a text dialogue over TCP or TLS.",
    example: "[check.primary]\nkind = \"tcp\"\nexchange = [{ send = \"PING\\r\\n\", expect = \"+PONG\" }, { send = \
              \"INFO replication\\r\\n\", expect = \"role:master\" }]\n\n[pool.redis]\nservers = \
              [\"10.0.0.5:6379\"]\ncheck = \"primary\"\n\n[service.redis]\nlisten = [\"192.0.2.10:6379\"]\nforward = \
              \"nat\"\npool = \"redis\"\n",
    keys: &[
        Key::new(
            "send",
            Kind::Text,
            Absent("nothing; the server speaks first"),
            "Text to send.",
            "send = \"PING\\r\\n\"",
        ),
        Key::new(
            "expect",
            Kind::Text,
            Absent("any text"),
            "Text that must occur in the first 64 KiB that the server sends after receiving the `send` text.",
            "expect = \"+PONG\"",
        )
        .known_as(&["string"]),
        Key::new(
            "regex",
            Kind::Text,
            Absent("any text"),
            "Regular expression that must match somewhere in the same 64 KiB; same syntax as `regex` in `expect` of \
             `http` checks.",
            "regex = \"role:(master|active)\"",
        )
        .known_as(&["rstring"]),
    ],
};

/// Keys of a check's `expect`.
pub(crate) static EXPECT: Section = Section {
    path: "check.NAME.expect",
    page: "expect",
    purpose: "Conditions that the response to a probe must meet. All of them must hold.",
    example: "[check.site]\nkind = \"http\"\nexpect = { status = \"200-299\", body = \"Up\" \
              }\n\n[pool.images]\nservers = [\"10.0.0.5\"]\ncheck = \"site\"\n\n[service.images]\nlisten = \
              [\"192.0.2.10:80\"]\nforward = \"direct\"\npool = \"images\"\n",
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
            "Text that must occur in the first 1 MiB of the body.",
            "body = \"Up\"",
        )
        .known_as(&["receive", "string", "content"]),
        Key::new(
            "regex",
            Kind::Text,
            Absent("any body"),
            "Regular expression that must match somewhere in the first 1 MiB of the body. Options such as `(?s)` and \
             `(?i)` go at the beginning. Backreferences and look-around are not supported; matching takes linear time.",
            "regex = \"^(Up|OK)$\"",
        )
        .known_as(&["rstring", "match"]),
        Key::new(
            "without",
            Kind::Text,
            Absent("any body"),
            "Regular expression that must not match in the first 1 MiB of the body.",
            "without = \"(?i)maintenance\"",
        )
        .known_as(&["regex_no_match"]),
        Key::new(
            "digest",
            Kind::Text,
            Absent("any body"),
            "Hexadecimal digest of the whole body: 32 digits are MD5, 64 are SHA-256. The check fails if the body is \
             larger than 1 MiB.",
            "digest = \"9a0364b9e99bb480dd25e1f0284c8555\"",
        )
        .known_as(&["md5", "sha256"]),
        Key::new(
            "answer",
            Kind::Address,
            Absent("any record"),
            "`dns`: address that the response must contain.",
            "answer = \"10.0.0.5\"",
        ),
        Key::new(
            "bytes",
            Kind::Text,
            Absent("any response"),
            "`udp`: bytes that the response must begin with, in hexadecimal; `xx` matches any byte.",
            "bytes = \"00 xx 10\"",
        )
        .known_as(&["require_reply"]),
    ],
};
