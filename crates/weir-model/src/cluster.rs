//! Defines the settings of `[cluster]`, a group of directors that share state in etcd.

use std::time::Duration;

use crate::{EtcdEndpoint, Publish, Secret};

/// Settings of `[cluster]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Cluster {
    /// Members of the etcd cluster, at least one.
    pub etcd: Vec<EtcdEndpoint>,
    /// Name of the group.
    pub name: String,
    /// Name of this director in the group; `None` = the host name.
    pub member: Option<String>,
    /// File with the CA certificates that verify etcd; `None` = the system's CA certificates.
    pub ca: Option<String>,
    /// File with this director's certificate.
    pub certificate: Option<String>,
    /// File with the key of `certificate`; `None` = the key is in the same file.
    pub key: Option<String>,
    /// etcd user.
    pub user: Option<String>,
    /// Password of `user`.
    pub password: Option<Secret>,
    /// The group key, which encrypts configurations; `None` = no encryption.
    pub group_key: Option<Secret>,
    /// Time to live of this director's lease, in whole seconds.
    pub lease: Duration,
    /// Whether a majority of the directors can also mark a server down.
    pub agreement: bool,
    /// Files and directories that a published configuration may reference.
    pub files: Vec<String>,
    /// Limits for the layer 4 services that the group may publish; `None` = the group may publish none.
    pub publish: Option<Publish>,
}

impl Cluster {
    /// Default of [`Self::lease`].
    pub const LEASE: Duration = Duration::from_secs(10);
    /// Prefix of a published configuration's file name; the name of the group follows.
    pub const PUBLISHED: &str = "cluster/";
    /// Minimum length of the group key, in bytes.
    pub const MIN_KEY_BYTES: usize = 16;

    /// Returns the defaults of a group with this name, without members of etcd.
    pub fn new(name: &str) -> Self {
        Self {
            etcd: Vec::new(),
            name: name.to_owned(),
            member: None,
            ca: None,
            certificate: None,
            key: None,
            user: None,
            password: None,
            group_key: None,
            lease: Self::LEASE,
            agreement: true,
            files: Vec::new(),
            publish: None,
        }
    }
}
