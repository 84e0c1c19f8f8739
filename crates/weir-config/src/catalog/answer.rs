//! What a proxy service makes of answers: pages of one's own, and compression.

use super::*;
use weir_model::Coding;

/// A member of `error_pages`.
pub(crate) static ERROR_PAGE: Section = Section {
    path: "service.NAME.error_pages",
    page: "error-pages",
    purpose: "A page for answers that Weir gives in a server's place. Files are read at start and at each `weir reload`.",
    example: "[pool.web]\nservers = [\"10.0.0.5\"]\n\n[service.web]\nlisten = [\"0.0.0.0:80\"]\nforward = \
              \"proxy\"\nprotocol = \"http\"\npool = \"web\"\nerror_pages = [{ status = \"502-504\", file = \
              \"/etc/weir/later.html\" }]\n",
    keys: &[
        Key::new(
            "status",
            Kind::Either(&Kind::StatusCodes, &Kind::Integer { min: 100, max: 599 }),
            Required,
            "Statuses that it is for.",
            "status = \"502-504\"",
        )
        .known_as(&["code", "codes"]),
        Key::new(
            "file",
            Kind::Words("the path of a file"),
            Required,
            "The body, 64 KiB at most. Its name tells what it is: `.html`, `.json`, `.svg`, or else plain text; all in UTF-8. A \
             file that begins with `HTTP/1.` is a whole response, as HAProxy's are: its content and `Content-Type` count. The content is \
             sent as it is: no variables are replaced.",
            "file = \"/etc/weir/later.html\"",
        )
        .known_as(&["path", "page"]),
    ],
};

fn codings() -> Choices {
    Choices {
        now: Coding::ALL.iter().map(|coding| coding.as_str()).collect(),
        known_as: &[("brotli", "br"), ("zstandard", "zstd")],
        ..Choices::default()
    }
}

/// `compression` as a table.
pub(crate) static COMPRESSION: Section = Section {
    path: "service.NAME.compression",
    page: "compression",
    purpose: "Compression with a choice of your own.",
    example: "[pool.web]\nservers = [\"10.0.0.5\"]\n\n[service.web]\nlisten = [\"0.0.0.0:80\"]\nforward = \
              \"proxy\"\nprotocol = \"http\"\npool = \"web\"\ncompression = { codings = [\"gzip\"], types = [\"text/*\"] }\n",
    keys: &[
        Key::new(
            "codings",
            Kind::List(&Kind::OneOf(codings)),
            Default("[\"zstd\", \"br\", \"gzip\"]"),
            "What is made, in the order that decides where a client likes several as much.",
            "codings = [\"br\", \"gzip\"]",
        )
        .known_as(&["algo", "algorithms"]),
        Key::new(
            "types",
            Kind::List(&Kind::Words("a media type, `*` at its end for any rest")),
            Absent("text, JSON, JavaScript, XML, SVG, WebAssembly"),
            "Media types that are compressed.",
            "types = [\"text/*\", \"application/json\"]",
        )
        .known_as(&["type", "gzip_types"]),
        Key::new(
            "minimum",
            size((0, u32::MAX)),
            Default("1024"),
            "Bodies of a known length below so many octets stay as they are.",
            "minimum = 256",
        )
        .known_as(&["gzip_min_length", "min_length", "minsize"]),
    ],
};
