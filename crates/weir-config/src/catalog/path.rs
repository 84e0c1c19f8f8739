//! Defines the keys of path normalization: `normalize_path`.

use super::*;
use weir_model::{EncodedSlash, ForwardedPath};

/// Keys of `normalize_path` in table form.
pub(crate) static NORMALIZE_PATH: Section = Section {
    path: "service.NAME.normalize_path",
    page: "normalize-path",
    purpose: "How request paths of an `http` service are normalized before routes, `hash` and `limits` compare them. \
              Always: percent-encoded unreserved characters (letters, digits, `-._~`) are decoded, other \
              percent-encodings are converted to upper case, characters not allowed in a URI are encoded, and dot \
              segments (including `%2e`) are removed, never above the root. Path parameters and the query are kept. \
              Requests with an invalid percent-encoding (`%zz`) or `%00` are rejected with 400.",
    example: "[pool.web]\nservers = [\"10.0.0.5\"]\n\n[service.web]\nlisten = [\"0.0.0.0:80\"]\nforward = \
              \"proxy\"\nprotocol = \"http\"\npool = \"web\"\nnormalize_path = { encoded_slash = \"reject\", forward = \
              \"normalized\" }\n",
    keys: &[
        Key::new(
            "merge_slashes",
            Kind::Flag,
            Default("true"),
            "Whether `//` is merged into `/`. Slashes are merged before dot segments are removed, as in nginx.",
            "merge_slashes = false",
        ),
        Key::new(
            "encoded_slash",
            Kind::OneOf(encoded_slashes),
            Default("keep"),
            "How `%2F`, `%5C` and `\\` are treated: as ordinary characters of a segment (`keep`), as slashes \
             (`decode`), or rejected with 400 (`reject`). Servers differ here: choose the behavior of your servers, \
             or `reject`.",
            "encoded_slash = \"reject\"",
        )
        .known_as(&["path_with_escaped_slashes_action"]),
        Key::new(
            "forward",
            Kind::OneOf(forwarded_paths),
            Default("received"),
            "Path sent to the server if the route has no `rewrite`: the client's, byte for byte (`received`), or the \
             normalized one (`normalized`). With `normalized`, servers see exactly the path that the routes matched.",
            "forward = \"normalized\"",
        ),
    ],
};

fn encoded_slashes() -> Choices {
    Choices {
        values: EncodedSlash::ALL.iter().map(|it| it.as_str()).collect(),
        known_as: &[
            ("KEEP_UNCHANGED", "keep"),
            ("REJECT_REQUEST", "reject"),
            ("UNESCAPE_AND_FORWARD", "decode"),
        ],
        ..Choices::default()
    }
}

fn forwarded_paths() -> Choices {
    Choices {
        values: ForwardedPath::ALL.iter().map(|it| it.as_str()).collect(),
        ..Choices::default()
    }
}
