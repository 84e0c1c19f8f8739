//! In which form paths of requests are compared: `normalize_path`.

use super::*;
use weir_model::{EncodedSlash, ForwardedPath};

/// `normalize_path` as a table.
pub(crate) static NORMALIZE_PATH: Section = Section {
    path: "service.NAME.normalize_path",
    page: "normalize-path",
    purpose: "How the paths of an `http` service's requests are brought into one form before routes, `hash` and `limits` look \
              at them. Always: escapes of unreserved characters (letters, digits, `-._~`) are decoded, the digits of other escapes \
              are in upper case, characters that a URI may not contain are escaped, and dot segments are removed, `%2e` too, \
              never above the root. Path parameters and the query stay. An escape that is none (`%zz`) and `%00` are answered 400.",
    example: "[pool.web]\nservers = [\"10.0.0.5\"]\n\n[service.web]\nlisten = [\"0.0.0.0:80\"]\nforward = \
              \"proxy\"\nprotocol = \"http\"\npool = \"web\"\nnormalize_path = { encoded_slash = \"reject\", forward = \
              \"normalized\" }\n",
    keys: &[
        Key::new(
            "merge_slashes",
            Kind::Flag,
            Default("true"),
            "Whether `//` is `/`. Slashes are merged before dot segments are removed, as nginx does.",
            "merge_slashes = false",
        ),
        Key::new(
            "encoded_slash",
            Kind::OneOf(encoded_slashes),
            Default("keep"),
            "What `%2F`, `%5C` and `\\` are: characters of their segment (`keep`), slashes (`decode`), or a reason to answer 400 \
             (`reject`). Servers differ here: choose what yours do, or `reject`.",
            "encoded_slash = \"reject\"",
        )
        .known_as(&["path_with_escaped_slashes_action"]),
        Key::new(
            "forward",
            Kind::OneOf(forwarded_paths),
            Default("received"),
            "The path that a server is asked for where no route has a `rewrite`: the client's, byte for byte, or the normalized one. \
             With `normalized` a server sees just what the routes saw.",
            "forward = \"normalized\"",
        ),
    ],
};

fn encoded_slashes() -> Choices {
    Choices {
        now: EncodedSlash::ALL.iter().map(|one| one.as_str()).collect(),
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
        now: ForwardedPath::ALL.iter().map(|one| one.as_str()).collect(),
        ..Choices::default()
    }
}
