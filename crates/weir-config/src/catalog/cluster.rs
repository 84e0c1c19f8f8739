//! Defines the keys of `[cluster]`: state that directors share in etcd.

use std::time::Duration;

use super::forwards;
use crate::key::{Key, Kind, Presence, Section};

use Presence::{Absent, Default, Required};

/// A firewall mark.
pub(crate) const MARK: Kind = Kind::Integer {
    min: 1,
    max: u32::MAX,
};

const PATH: Kind = Kind::DescribedText("an absolute path");

/// Keys of `[cluster]`.
pub(crate) static CLUSTER: Section = Section {
    path: "cluster",
    page: "cluster",
    purpose: "Makes this director a member of a group that shares state in etcd: the configuration (`weir cluster \
              publish`), overrides, servers added through the API, and which servers are down. While etcd is \
              unavailable, each director continues with its current state.",
    example: "[cluster]\netcd = [\"https://10.0.0.11:2379\", \"https://10.0.0.12:2379\"]\nname = \"edge\"\n",
    keys: &[
        Key::new(
            "etcd",
            Kind::List(&Kind::DescribedText("a URL like \"https://10.0.0.11:2379\"")),
            Required,
            "Client URLs of the etcd members, version 3.4 or later. One member is used at a time; if it fails, the \
             next one is used.",
            "etcd = [\"https://10.0.0.11:2379\"]",
        )
        .known_as(&["endpoints"]),
        Key::new(
            "name",
            Kind::DescribedText("the name of the group"),
            Required,
            "Name of the group, the same on all of its directors. Keys in etcd begin with `/weir/NAME/`.",
            "name = \"edge\"",
        ),
        Key::new(
            "member",
            Kind::DescribedText("the name of a director"),
            Absent("the host name"),
            "Name of this director, unique within the group.",
            "member = \"lb1\"",
        ),
        Key::new(
            "ca",
            PATH,
            Absent("the system's CA certificates"),
            "File with the CA certificates for verifying the etcd members.",
            "ca = \"/etc/weir/etcd-ca.pem\"",
        ),
        Key::new(
            "certificate",
            PATH,
            Absent("none"),
            "File with this director's certificate and chain, if etcd requires client certificates \
             (`--client-cert-auth`).",
            "certificate = \"/etc/weir/etcd.pem\"",
        ),
        Key::new(
            "key",
            PATH,
            Absent("the key is in `certificate`"),
            "File with the key of `certificate`.",
            "key = \"/etc/weir/etcd.key\"",
        ),
        Key::new(
            "user",
            Kind::DescribedText("the name of an etcd user"),
            Absent("no authentication"),
            "etcd user. It needs permission to read and write keys that begin with `/weir/NAME/`.",
            "user = \"weir\"",
        ),
        Key::new(
            "password",
            Kind::Secret,
            Absent("none"),
            "Password of `user`.",
            "password = { file = \"/etc/weir/etcd.password\" }",
        ),
        Key::new(
            "group_key",
            Kind::Secret,
            Absent("configurations are not encrypted"),
            "Secret of at least 16 bytes that all directors in the group share and that is never stored in etcd. \
             Published configurations are encrypted with it (AES-256-GCM), so they may contain secrets; overrides and \
             added servers are authenticated with it.",
            "group_key = { file = \"/etc/weir/group.key\" }",
        ),
        Key::new(
            "lease",
            Kind::Duration {
                min: Duration::from_secs(2),
                max: Duration::from_secs(300),
            },
            Default("10s"),
            "How long a failed director remains a member, in whole seconds.",
            "lease = \"5s\"",
        ),
        Key::new(
            "agreement",
            Kind::Flag,
            Default("true"),
            "Whether a server is also considered down if a quorum of the directors reports it down. Directors that \
             cannot reach any server are not counted.",
            "agreement = false",
        ),
        Key::new(
            "files",
            Kind::List(&PATH),
            Absent("the files that this configuration uses"),
            "Files and directories with certificates, keys and revocation lists that a published configuration may use \
             in the `tls` tables of services and pools and in the `ca` key of checks. Files that this configuration \
             uses are always allowed. With `group_key`, the files are published too and need not exist here.",
            "files = [\"/etc/weir/certs\"]",
        ),
        Key::new(
            "publish",
            Kind::Table(&CLUSTER_PUBLISH),
            Absent("no layer 4 services"),
            "Which services the group may publish to this director. Without this table, a published configuration with \
             layer 4 services is rejected.",
            "publish = { vips = [\"192.0.2.0/24\"], servers = [\"10.0.0.0/16\"] }",
        ),
    ],
};

/// Keys of `[cluster.publish]`.
pub(crate) static CLUSTER_PUBLISH: Section = Section {
    path: "cluster.publish",
    page: "cluster-publish",
    purpose: "Limits on the configurations that the group may publish to this director. The daemon, and each process \
              that has root privileges, rejects a published configuration that exceeds them. A published \
              configuration cannot contain interfaces, virtual routers or announcements; these are set only in the \
              director's own file.",
    example: "[cluster]\netcd = [\"https://10.0.0.11:2379\"]\nname = \"edge\"\n\n[cluster.publish]\nvips = \
              [\"192.0.2.0/24\"]\nports = [\"80\", \"443\"]\nservers = [\"10.0.0.0/16\"]\nforwards = \
              [\"direct\", \"proxy\"]\n",
    keys: &[
        Key::new(
            "vips",
            Kind::List(&Kind::Network),
            Required,
            "Networks that must contain the `listen` and `snat` addresses of published services. A proxy service on \
             all addresses needs `0.0.0.0` or `::` here. If `[announce]` has no `services`, addresses in these \
             networks may be announced.",
            "vips = [\"192.0.2.0/24\", \"2001:db8:1::/64\"]",
        ),
        Key::new(
            "servers",
            Kind::List(&Kind::Network),
            Required,
            "Networks that must contain the servers in published pools, including servers from lists, DNS and the API. \
             Servers that another director adds to a pool used by layer 4 services must be in these networks as well.",
            "servers = [\"10.0.0.0/16\"]",
        ),
        Key::new(
            "ports",
            Kind::List(&Kind::PortRange),
            Absent("all ports"),
            "Ports that published services may use. A listener with a port range needs a single entry that contains \
             the whole range.",
            "ports = [\"80\", \"443\", \"8000-8999\"]",
        ),
        Key::new(
            "forwards",
            Kind::List(&Kind::OneOf(forwards)),
            Absent("all except `socket`"),
            "Values of `forward` allowed in published services and servers. `socket` redirects connections made by \
             programs on this machine.",
            "forwards = [\"direct\", \"proxy\"]",
        ),
        Key::new(
            "marks",
            Kind::List(&MARK),
            Absent("none"),
            "Firewall marks that published services may use in `listen`.",
            "marks = [7]",
        ),
        Key::new(
            "timeouts",
            Kind::Flag,
            Default("false"),
            "Whether the group may publish `[timeouts]` and `[ipvs]`, which apply to all services on this director.",
            "timeouts = true",
        ),
    ],
};
