//! Defines the keys of `[notify.NAME]`: messages about state changes.

use std::time::Duration;

use weir_model::{Mail, Notifier};

use super::COMMAND;
use crate::key::{Choices, Key, Kind, Presence, Section};

use Presence::{Absent, Default};

fn states() -> Choices {
    Choices {
        values: vec!["up", "down", "starting", "panic", "below quorum"],
        ..Choices::default()
    }
}

/// The new state of a server, a pool or a service.
pub(crate) const STATE: Kind = Kind::OneOf(states);

/// Keys of `[notify.NAME]`.
pub(crate) static NOTIFY: Section = Section {
    path: "notify.NAME",
    page: "notify",
    purpose: "Notifications about state changes of servers, pools and services. Changes are collected for one second, \
              and `interval` limits the rate, so that many changes result in a single message.",
    example: "[notify.operators]\nmail = [\"ops@example.com\"]\nstates = [\"down\", \"up\"]\ninterval = \"1m\"\n",
    keys: &[
        Key::new(
            "pools",
            Kind::List(&Kind::PoolName),
            Absent("all pools"),
            "Pools whose changes are reported.",
            "pools = [\"images\"]",
        ),
        Key::new(
            "states",
            Kind::List(&STATE),
            Absent("all states"),
            "New states that are reported: `up`, `down` and `starting` for servers; `up`, `panic`, `below quorum` and \
             `down` for pools.",
            "states = [\"down\"]",
        ),
        Key::new(
            "interval",
            Kind::Duration {
                min: Duration::from_secs(1),
                max: Duration::from_secs(86_400),
            },
            Default("10s"),
            "Minimum time between two messages. Changes in between are combined into one message.",
            "interval = \"1m\"",
        ),
        Key::new(
            "command",
            COMMAND,
            Absent("no program"),
            "Absolute path to a program, and its arguments. It receives one line per change on its standard input, and \
             the number of changes in `WEIR_CHANGES`. It is killed after 30 seconds. No shell is involved.",
            "command = [\"/usr/local/bin/notify\", \"--all\"]",
        ),
        Key::new(
            "user",
            Kind::Text,
            Default(Notifier::USER),
            "User that `command` runs as.",
            "user = \"monitor\"",
        ),
        Key::new(
            "webhook",
            Kind::DescribedText("`http://HOST[:PORT]/PATH` or `https://…`"),
            Absent("no request"),
            "URL that receives the changes as JSON in a POST request: `{\"notify\": …, \"lost\": 0, \"changes\": \
             [{\"pool\", \"server\", \"service\", \"from\", \"to\", \"reason\", \"time\"}]}`.",
            "webhook = \"https://hooks.example.com/weir\"",
        )
        .known_as(&["url"]),
        Key::new(
            "webhook_ca",
            Kind::DescribedText("a path"),
            Absent("the system's CA certificates"),
            "File with the CA certificates for verifying the web server.",
            "webhook_ca = \"/etc/weir/hooks-ca.pem\"",
        ),
        Key::new(
            "mail",
            Kind::List(&Kind::DescribedText("an email address")),
            Absent("no email"),
            "Email recipients.",
            "mail = [\"ops@example.com\"]",
        )
        .known_as(&["notification_email", "email_to", "emailalert", "email-alert"]),
        Key::new(
            "mail_from",
            Kind::DescribedText("an email address"),
            Absent("`weir@` followed by the host name"),
            "Sender address.",
            "mail_from = \"weir@lb1.example.com\"",
        )
        .known_as(&["notification_email_from", "emailalertfrom"]),
        Key::new(
            "mail_server",
            Kind::DescribedText("`HOST:PORT`"),
            Default(Mail::SERVER),
            "Mail server. Email is sent over SMTP without TLS and without authentication.",
            "mail_server = \"192.0.2.25:25\"",
        )
        .known_as(&["smtp_server", "mailers"]),
    ],
};
