//! Defines the response keys of proxy services: error pages, compression and `x_forwarded`.

use super::*;
use weir_model::{Coding, FieldRule};

/// Keys of an entry in `error_pages`.
pub(crate) static ERROR_PAGE: Section = Section {
    path: "service.NAME.error_pages",
    page: "error-pages",
    purpose: "Responses for errors that Weir itself reports: a body from a file, a redirect, or none. Files are read \
              at startup and at each `weir reload`.",
    example: "[pool.web]\nservers = [\"10.0.0.5\"]\n\n[service.web]\nlisten = [\"0.0.0.0:80\"]\nforward = \
              \"proxy\"\nprotocol = \"http\"\npool = \"web\"\nerror_pages = [{ status = \"502-504\", file = \
              \"/etc/weir/later.html\" }]\n",
    keys: &[
        Key::new(
            "status",
            Kind::Either(&Kind::StatusCodes, &Kind::Integer { min: 100, max: 599 }),
            Required,
            "Status codes for which the page is sent.",
            "status = \"502-504\"",
        )
        .known_as(&["code", "codes"]),
        Key::new(
            "file",
            Kind::DescribedText("a file path"),
            Absent("`redirect` is used"),
            "File with the response body, at most 64 KiB. `/dev/null`: Weir closes the connection without a response, \
             as HAProxy does; over HTTP/2, it resets the stream. The media type depends on the extension: `.html`, \
             `.json` or `.svg`, otherwise plain text; always UTF-8. A file that begins with `HTTP/1.` is a complete \
             response, as in HAProxy: its body and `Content-Type` are used. The body is sent unchanged; variables \
             are not expanded.",
            "file = \"/etc/weir/later.html\"",
        )
        .known_as(&["path", "page"]),
        Key::new(
            "redirect",
            Kind::DescribedText("a URL"),
            Absent("`file` is used"),
            "URL or path that clients are redirected to, instead of `file`. It cannot contain variables.",
            "redirect = \"https://status.example.com/\"",
        )
        .known_as(&["errorloc", "location"]),
        Key::new(
            "redirect_status",
            integer((302, 303)),
            Default("302"),
            "Redirect status. With 302, clients may repeat the request's method; with 303, they use GET.",
            "redirect_status = 303",
        ),
    ],
};

fn codings() -> Choices {
    Choices {
        values: Coding::ALL.iter().map(|coding| coding.as_str()).collect(),
        known_as: &[("brotli", "br"), ("zstandard", "zstd")],
        ..Choices::default()
    }
}

/// Keys of `compression` in table form.
pub(crate) static COMPRESSION: Section = Section {
    path: "service.NAME.compression",
    page: "compression",
    purpose: "Compression settings.",
    example: "[pool.web]\nservers = [\"10.0.0.5\"]\n\n[service.web]\nlisten = [\"0.0.0.0:80\"]\nforward = \
              \"proxy\"\nprotocol = \"http\"\npool = \"web\"\ncompression = { codings = [\"gzip\"], types = \
              [\"text/*\"] }\n",
    keys: &[
        Key::new(
            "codings",
            Kind::List(&Kind::OneOf(codings)),
            Default("[\"zstd\", \"br\", \"gzip\"]"),
            "Content codings to offer, in order of preference when a client accepts several equally.",
            "codings = [\"br\", \"gzip\"]",
        )
        .known_as(&["algo", "algorithms"]),
        Key::new(
            "types",
            Kind::List(&Kind::DescribedText("a media type, optionally ending in `*`")),
            Absent("text, JSON, JavaScript, XML, SVG, WebAssembly"),
            "Media types to compress.",
            "types = [\"text/*\", \"application/json\"]",
        )
        .known_as(&["type", "gzip_types"]),
        Key::new(
            "minimum",
            size((0, u32::MAX)),
            Default("1024"),
            "Minimum body size in bytes. Smaller bodies of known length are not compressed.",
            "minimum = 256",
        )
        .known_as(&["gzip_min_length", "min_length", "minsize"]),
    ],
};

fn field_rules() -> Choices {
    Choices {
        values: FieldRule::ALL.iter().map(|rule| rule.as_str()).collect(),
        known_as: &[
            ("add", "append"),
            ("replace", "set"),
            ("pass", "keep"),
            ("remove", "drop"),
        ],
        ..Choices::default()
    }
}

const FIELD_RULE: Kind = Kind::OneOf(field_rules);
const AS_FORWARDED: Presence = Absent("as `forwarded` specifies");

/// Keys of a service's `x_forwarded`.
pub(crate) static X_FORWARDED: Section = Section {
    path: "service.NAME.x_forwarded",
    page: "x-forwarded",
    purpose: "Rules for individual `X-Forwarded-…` fields and `X-Real-IP` in requests to servers. `append` keeps the \
              values that the client sent and adds Weir's, `set` replaces them, `keep` forwards them as received, \
              `drop` removes them. The rules apply to every client, trusted or not: with `append` and `keep`, clients \
              can forge values.",
    example: "[pool.web]\nservers = [\"10.0.0.5\"]\n\n[service.web]\nlisten = [\"0.0.0.0:80\"]\nforward = \
              \"proxy\"\nprotocol = \"http\"\npool = \"web\"\nx_forwarded = { for = \"append\", port = \"set\", \
              real_ip = \"set\" }\n",
    keys: &[
        Key::new(
            "for",
            FIELD_RULE,
            AS_FORWARDED,
            "`X-Forwarded-For`: the client's address.",
            "for = \"append\"",
        ),
        Key::new(
            "proto",
            FIELD_RULE,
            AS_FORWARDED,
            "`X-Forwarded-Proto`: `http` or `https`.",
            "proto = \"set\"",
        ),
        Key::new(
            "host",
            FIELD_RULE,
            AS_FORWARDED,
            "`X-Forwarded-Host`: the requested host.",
            "host = \"set\"",
        ),
        Key::new(
            "port",
            FIELD_RULE,
            AS_FORWARDED,
            "`X-Forwarded-Port`: the port to which the client connected.",
            "port = \"set\"",
        ),
        Key::new(
            "real_ip",
            FIELD_RULE,
            AS_FORWARDED,
            "`X-Real-IP`: the client's address.",
            "real_ip = \"set\"",
        ),
        Key::new(
            "except",
            Kind::List(&Kind::Network),
            Absent("the rules apply to every client"),
            "Client networks to which the rules do not apply.",
            "except = [\"127.0.0.0/8\"]",
        ),
    ],
};
