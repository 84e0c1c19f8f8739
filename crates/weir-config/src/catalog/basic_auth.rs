//! Defines the keys of `basic_auth` in services and routes.

use super::*;
use weir_model::BasicAuth;

/// Keys of `basic_auth`.
pub(crate) static BASIC_AUTH: Section = Section {
    path: "route.basic_auth",
    page: "basic-auth",
    purpose: "User names and passwords for HTTP basic authentication (RFC 7617), for a route or an `http` service. \
              Requests without a valid name and password get a 401 response. Passwords are verified by separate \
              threads, and valid ones are cached.",
    example: "[pool.web]\nservers = [\"10.0.0.5\"]\n\n[service.web]\nlisten = [\"0.0.0.0:80\"]\nforward = \
              \"proxy\"\nprotocol = \"http\"\npool = \"web\"\n\n[[route]]\nservice = \"web\"\npath = \
              [\"/admin\", \"/admin/*\"]\npool = \"web\"\nbasic_auth = { realm = \"Staff\", users = \
              [\"anna:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=\"] }\n",
    keys: &[
        Key::new(
            "realm",
            Kind::Text,
            Default(BasicAuth::DEFAULT_REALM),
            "Realm that browsers show in the login prompt.",
            "realm = \"Staff\"",
        ),
        Key::new(
            "file",
            Kind::DescribedText("an absolute file path"),
            Absent("no file"),
            "File with one `NAME:HASH` per line, as `htpasswd` writes it. Supported hashes: bcrypt (`$2y$`), SHA-256 \
             crypt (`$5$`), SHA-512 crypt (`$6$`), `$apr1$` and `{SHA}`. Changes to the file take effect within a few \
             seconds; if it cannot be read, the previous users stay active. If it cannot be read at startup, the \
             configuration is rejected.",
            "file = \"/etc/weir/users\"",
        )
        .known_as(&["auth_basic_user_file", "usersfile", "path"]),
        Key::new(
            "users",
            Kind::List(&Kind::DescribedText("`NAME:HASH`")),
            Absent("only the users in `file`"),
            "Users, in the same format as in `file`.",
            "users = [\"anna:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=\"]",
        )
        .known_as(&["userlist", "user"]),
    ],
};

pub(super) const KIND: Kind = Kind::Either(&Kind::Flag, &Kind::Table(&BASIC_AUTH));

pub(super) const SERVICE_KEY: Key = Key::new(
    "basic_auth",
    KIND,
    Absent("all clients may send requests"),
    "Users who may send requests to an `http` service, with their passwords. A route may specify other users, or \
     `false`.",
    "basic_auth = { realm = \"Staff\", file = \"/etc/weir/users\" }",
)
.known_as(&["auth_basic", "http-request auth"]);

pub(super) const ROUTE_KEY: Key = Key::new(
    "basic_auth",
    KIND,
    Absent("the service's users"),
    "Users who may send requests to this route, with their passwords. They replace the service's users. `false`: no \
     authentication.",
    "basic_auth = { file = \"/etc/weir/users\" }",
)
.known_as(&["auth_basic", "http-request auth"]);
