//! Defines the keys of `[sync]`: flow synchronization between directors.

use crate::key::{Key, Kind, Presence, Section};

use Presence::Required;

/// Keys of `[sync]`.
pub(crate) static SYNC: Section = Section {
    path: "sync",
    page: "sync",
    purpose: "Synchronizes flows, persistent clients and `nat` tuples between directors, so that connections continue \
              after a failover. All directors need the same services and servers. Datagrams are encrypted and \
              authenticated (UDP, AES-256-GCM).",
    example: "[sync]\nlisten = \"10.0.0.1:8482\"\n\
              peers = [\"10.0.0.2:8482\"]\nkey = { file = \"/etc/weir/sync.key\" }\n",
    keys: &[
        Key::new(
            "listen",
            Kind::SocketAddress,
            Required,
            "Address and port of this director, for datagrams to and from its peers. It must be an address that only \
             this director has, not a VIP.",
            "listen = \"10.0.0.1:8482\"",
        )
        .known_as(&["address", "bind"]),
        Key::new(
            "peers",
            Kind::List(&Kind::SocketAddress),
            Required,
            "The other directors' `listen` addresses.",
            "peers = [\"10.0.0.2:8482\"]",
        )
        .known_as(&["peer"]),
        Key::new(
            "key",
            Kind::Secret,
            Required,
            "Secret of at least 16 bytes that all directors share, for example the output of `openssl rand -base64 \
             32`.",
            "key = { file = \"/etc/weir/sync.key\" }",
        )
        .known_as(&["secret"]),
    ],
};
