//! Defines the keys of `[map.NAME]`, and of the map form of a route's `pool`.

use super::*;
use weir_model::{MapKind, ValueMap};

fn map_kinds() -> Choices {
    Choices {
        values: MapKind::ALL.iter().map(|kind| kind.as_str()).collect(),
        known_as: &[
            ("str", "exact"),
            ("beg", "prefix"),
            ("end", "suffix"),
            ("ip", "network"),
            ("reg", "regex"),
        ],
        ..Choices::default()
    }
}

/// Keys of `[map.NAME]`.
pub(crate) static MAP: Section = Section {
    path: "map.NAME",
    page: "map",
    purpose: "A lookup table for texts from requests. The value of the matching entry selects a pool, or is available \
              as the variable `{map.NAME}`. Except with `kind = \"regex\"`, the cost of a lookup does not depend on \
              the number of entries. If a key occurs more than once, the first entry is used.",
    example: "[map.tenants]\nentries = [\"a.example one\", \"b.example two\"]\ndefault = \"one\"\n\n[pool.one]\n\
              servers = \
              [\"10.0.0.5\"]\n\n[pool.two]\nservers = [\"10.0.0.6\"]\n\n[service.web]\nlisten = \
              [\"0.0.0.0:80\"]\nforward = \"proxy\"\nprotocol = \"http\"\npool = \"one\"\n\n[[route]]\nservice = \
              \"web\"\npool = { map = \"tenants\" }\nset_header = [\"X-Tenant: {map.tenants}\"]\n",
    keys: &[
        Key::new(
            "file",
            Kind::DescribedText("an absolute file path"),
            Absent("no file"),
            "File with one entry per line: a key and its value, separated by whitespace. Empty lines and lines that \
             begin with `#` are ignored. Changes to the file take effect within a few seconds; if it is invalid, the \
             previous entries stay active. If it cannot be read at startup, the configuration is rejected.",
            "file = \"/etc/weir/tenants.map\"",
        )
        .known_as(&["path"]),
        Key::new(
            "entries",
            Kind::List(&Kind::DescribedText("`KEY VALUE`")),
            Absent("only the entries in `file`"),
            "Entries in the same format as in `file`; they precede those in the file.",
            "entries = [\"a.example one\", \"b.example two\"]",
        ),
        Key::new(
            "kind",
            Kind::OneOf(map_kinds),
            Default("exact"),
            "How the keys of entries are compared with the text. `exact`: the key equals the text; `prefix`, `suffix`: \
             the text begins or ends with the key, and the longest key wins; `network`: the key is a network that \
             contains the address, and the longest prefix wins; `regex`: the key is a regular expression that matches \
             anywhere in the text, and the first match wins.",
            "kind = \"suffix\"",
        ),
        Key::new(
            "key",
            Kind::DescribedText("text with variables"),
            Default(ValueMap::KEY),
            "Text to look up; it may contain request variables. `{host}` is converted to lower case.",
            "key = \"{header.x-tenant}\"",
        ),
        Key::new(
            "default",
            Kind::DescribedText("any text"),
            Absent("the empty string; if the map selects a pool, the service's pool"),
            "Value used if no key matches.",
            "default = \"none\"",
        ),
        Key::new(
            "ignore_case",
            Kind::Flag,
            Default("false"),
            "Whether keys are compared without regard to ASCII case.",
            "ignore_case = true",
        ),
    ],
};

/// Keys of a route's `pool` in table form.
pub(crate) static ROUTE_POOL: Section = Section {
    path: "route.pool",
    page: "route-pool",
    purpose: "Selects the pool by a lookup in a map whose values are pool names.",
    example: "[map.tenants]\nentries = [\"a.example one\"]\n\n[pool.one]\nservers = [\"10.0.0.5\"]\n\n[pool.web]\n\
              servers \
              = [\"10.0.0.6\"]\n\n[service.web]\nlisten = [\"0.0.0.0:80\"]\nforward = \"proxy\"\nprotocol = \
              \"http\"\npool = \"web\"\n\n[[route]]\nservice = \"web\"\npool = { map = \"tenants\", default = \
              \"web\" }\n",
    keys: &[
        Key::new(
            "map",
            Kind::DescribedText("the name of a `[map.NAME]` table"),
            Required,
            "The map. Each of its values must be the name of a pool.",
            "map = \"tenants\"",
        ),
        Key::new(
            "key",
            Kind::DescribedText("text with variables"),
            Absent("the map's `key`"),
            "Text to look up; it may contain request variables.",
            "key = \"{header.x-tenant}\"",
        ),
        Key::new(
            "default",
            Kind::DescribedText("the name of a pool"),
            Absent("the map's `default`, or the service's pool"),
            "Pool used if no key matches.",
            "default = \"images\"",
        ),
    ],
};
