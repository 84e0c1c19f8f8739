//! `[cluster]`: a group of directors that share state in etcd.

use std::time::Duration;

use crate::{EtcdEndpoint, Publish, Secret};

/// `[cluster]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Cluster {
    /// Members of the etcd cluster, at least one.
    pub etcd: Vec<EtcdEndpoint>,
    /// Name of the group.
    pub name: String,
    /// Name of this director in the group; `None` = the host name.
    pub member: Option<String>,
    /// File with the authorities of etcd's certificates; `None` = the system's.
    pub ca: Option<String>,
    /// File with this director's certificate.
    pub certificate: Option<String>,
    /// File with its key; `None` = it is in the file of the certificate.
    pub key: Option<String>,
    /// User of etcd.
    pub user: Option<String>,
    /// Its password.
    pub password: Option<Secret>,
    /// The key that seals configurations; `None` = they are not sealed.
    pub group_key: Option<Secret>,
    /// Time to live of this director's lease, whole seconds.
    pub lease: Duration,
    /// Whether a server is down if a quorum of the directors reports it down.
    pub agreement: bool,
    /// Files and directories that a published configuration may name.
    pub files: Vec<String>,
    /// Which layer 4 services the group may publish; `None` = none.
    pub publish: Option<Publish>,
}

impl Cluster {
    /// Default of [`Self::lease`].
    pub const LEASE: Duration = Duration::from_secs(10);
    /// Name of the file of a published configuration, followed by the name of the group.
    pub const PUBLISHED: &str = "cluster/";
    /// Smallest length of the group key in bytes.
    pub const KEY_MIN: usize = 16;
}
