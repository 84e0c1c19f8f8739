//! Decides which configurations the daemon may apply: only those whose layer 4 part root permits.
//!
//! The daemon sends the text that it has loaded. The text is accepted if its layer 4 part is the same as that of
//! - the current configuration file, if only root can write it and the files that it includes. On a member of a group,
//!   the part published by the group is first added to the file, within the limits that the file sets
//!   ([`weir_helper::with_published_part`]),
//! - the active configuration, or the previous one, which a guarded reload may restore, or
//! - the configuration that was last active, as recorded in [`RECORD_FILE`]: a daemon that is restarted after a crash
//!   uses it even if the file has changed.
//!
//! A configuration from an API client can therefore change proxy services, but no VIP, interface, server or limit of
//! layer 4.

use std::borrow::Cow;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use weir_helper::{Environment, parse};
use weir_model::{
    Admin, Check, Desired, FlowSync, MAX_WEIGHT, Metrics, Node, OtherVersion, Server, SocketMode,
};
use weir_sys::{read_owned_file, replace_file};

use crate::message::AddedServer;
use crate::proxied::ProxyListeners;

/// Name of the file in the runtime directory that contains the text of the active configuration. Root owns the file.
pub const RECORD_FILE: &str = "layer4-configuration";

/// A configuration that may be applied.
#[derive(Clone, Debug)]
pub(crate) struct AcceptedConfiguration {
    text: String,
    desired: Desired,
}

/// Compares the daemon's configurations with root's.
#[derive(Debug)]
pub(crate) struct Policy {
    path: PathBuf,
    record_file: PathBuf,
    active: Option<Arc<AcceptedConfiguration>>,
    /// The previous configuration, for the rollback of a guarded reload.
    previous: Option<Arc<AcceptedConfiguration>>,
    /// A thread that reads and parses the configuration file in advance.
    prepared: Option<JoinHandle<Option<AcceptedConfiguration>>>,
    /// The hash has a random key, so an attacker cannot construct a configuration with the same hash as an accepted
    /// one.
    hash_builder: RandomState,
}

impl Policy {
    pub(crate) fn new(configuration: &Path, runtime_dir: &Path) -> Self {
        Self {
            path: configuration.to_owned(),
            record_file: runtime_dir.join(RECORD_FILE),
            active: None,
            previous: None,
            prepared: None,
            hash_builder: RandomState::new(),
        }
    }

    /// Returns the active configuration, for changes that affect only server lists.
    pub(crate) fn active(&self) -> Option<Arc<AcceptedConfiguration>> {
        self.active.clone()
    }

    /// Starts reading and parsing the file, in parallel with the daemon.
    pub(crate) fn prepare(&mut self) {
        let path = self.path.clone();
        let active_configuration = self.active.clone();
        self.prepared = Some(std::thread::spawn(move || {
            let root_text = weir_helper::read_trusted(&path).ok()?;
            let published = active_configuration.as_ref().map_or("", |it| &it.text);
            let text = weir_helper::with_published_part(&root_text, published).ok()?;
            let desired = parse(&text, &Environment).ok()?;
            Some(AcceptedConfiguration { text, desired })
        }));
    }

    /// Checks a text that the daemon requests to apply.
    ///
    /// # Errors
    /// Returns a message if the text is invalid or root's configuration does not permit it.
    pub(crate) fn accept(&mut self, text: Vec<u8>) -> Result<Arc<AcceptedConfiguration>, String> {
        let prepared = self.prepared.take().and_then(|it| it.join().ok()?);
        if let Some(prepared) = prepared.filter(|it| it.text.as_bytes() == text) {
            return Ok(Arc::new(prepared));
        }
        let text = String::from_utf8(text)
            .map_err(|_| "the configuration is not valid UTF-8".to_owned())?;
        if let Some(active) = self.active.as_ref().filter(|active| active.text == text) {
            return Ok(Arc::clone(active));
        }
        let desired = parse(&text, &Environment)?;
        let configuration = Arc::new(AcceptedConfiguration { text, desired });
        let path = self.path.display();
        let file = weir_helper::read_trusted(&self.path).map_err(|error| {
            format!("layer 4 services must be defined in {path}, which cannot be used: {error}")
        });
        let file = file.and_then(|root_text| {
            let not_permitted =
                |reason| format!("{path} does not permit what the group publishes: {reason}");
            let combined = weir_helper::with_published_part(&root_text, &configuration.text)
                .map_err(not_permitted)?;
            // Do not parse the same text twice: parsing takes as long as all other steps combined.
            let is_identical = combined == configuration.text;
            match is_identical {
                true => Ok(None),
                false => parse(&combined, &Environment)
                    .map(Some)
                    .map_err(not_permitted),
            }
        });
        if matches!(file, Ok(None)) {
            return Ok(configuration);
        }
        let requested_hash = self.hash(&configuration.desired);
        let is_same = |desired: &Desired| self.hash(desired) == requested_hash;
        let mut candidates = self.active.iter().chain(&self.previous);
        let is_permitted = candidates.any(|candidate| is_same(&candidate.desired))
            || matches!(&file, Ok(Some(file)) if is_same(file))
            || self.recorded().is_some_and(|recorded| is_same(&recorded));
        if is_permitted {
            return Ok(configuration);
        }
        Err(file.err().unwrap_or_else(|| {
            format!(
                "{path} does not permit the daemon to apply these layer 4 services: edit the file and reload"
            )
        }))
    }

    /// Records the configuration that became active.
    pub(crate) fn set_active(&mut self, accepted: Arc<AcceptedConfiguration>) {
        let is_recorded = self
            .active
            .as_ref()
            .is_some_and(|active| active.text == accepted.text);
        if !is_recorded
            && let Err(error) = replace_file(&self.record_file, accepted.text.as_bytes())
        {
            let path = self.record_file.display();
            tracing::warn!(%error, %path, "failed to record the active configuration");
        }
        let former = self.active.replace(accepted);
        if !is_recorded {
            let dropped = std::mem::replace(&mut self.previous, former);
            // Free the configuration on another thread: freeing the names of a hundred thousand servers takes as long
            // as applying a change to one server.
            std::thread::spawn(move || drop(dropped));
        }
    }

    fn recorded(&self) -> Option<Desired> {
        let bytes = read_owned_file(&self.record_file).ok()?;
        parse(&String::from_utf8(bytes).ok()?, &Environment).ok()
    }

    fn hash(&self, desired: &Desired) -> u64 {
        let mut hasher = self.hash_builder.build_hasher();
        hash_layer_4(desired, &mut hasher);
        hasher.finish()
    }
}

/// Hashes every part of a configuration that the engine reads.
fn hash_layer_4(desired: &Desired, hasher: &mut impl Hasher) {
    let Desired {
        files: _,
        node,
        timeouts,
        ipvs,
        // Pools contain copies of the checks that they use.
        checks: _,
        check_authorities: _,
        pools,
        services,
        proxies: _,
        vrrp,
        announce,
        sync,
        cluster,
        // The daemon's helper, not the engine, runs the notifiers' programs.
        notifiers: _,
        tracing: _,
    } = desired;
    let layer_4_node = Node {
        admin: None::<Admin>,
        socket_mode: SocketMode::default(),
        drain_timeout: std::time::Duration::ZERO,
        metrics: Metrics::default(),
        ..node.clone()
    };
    (
        layer_4_node,
        node.socket_mode,
        timeouts,
        ipvs,
        services,
        vrrp,
    )
        .hash(hasher);
    // The name and the limits of the group determine which servers may be added to each pool.
    let group = cluster.as_ref().map(|group| (&group.name, &group.publish));
    (announce, sync, group).hash(hasher);
    if node.vip_interface.is_some() {
        let mut addresses: Vec<_> = desired.proxy_addresses().collect();
        addresses.sort_unstable();
        addresses.hash(hasher);
    }
    for pool in pools {
        if services.iter().any(|service| service.pool == pool.name) {
            (pool, desired.is_published(pool.source)).hash(hasher);
        }
    }
}

impl AcceptedConfiguration {
    /// Compares the digest of the addresses (`weir_helper::address_digest`) with the daemon's digest of the same text.
    /// `None` = the text has no environment variables.
    ///
    /// # Errors
    /// Returns a message if the environments differ.
    pub(crate) fn check_addresses(&self, daemon_digest: Option<u64>) -> Result<(), String> {
        match daemon_digest {
            Some(digest) if digest != weir_helper::address_digest(&self.desired) => Err(
                "the configuration's environment variables have different values in the privileged process: set \
                 the same values for both processes; with systemd, in weir.service and weir-helper.service"
                    .to_owned(),
            ),
            _ => Ok(()),
        }
    }

    /// Returns `[sync]` with its key. This process reads the key, because only root's configuration file may refer to a
    /// key file.
    ///
    /// # Errors
    /// Returns a message if the secrets cannot be read.
    pub(crate) fn sync(&self) -> Result<Option<FlowSync>, String> {
        if self.desired.sync.is_none() {
            return Ok(None);
        }
        match parse(&self.text, &weir_helper::ThisMachine) {
            Ok(desired) => Ok(desired.sync),
            Err(_) => Err("the secrets that the configuration refers to cannot be read".to_owned()),
        }
    }

    /// Returns the listeners of proxy services. The daemon, not root's configuration file, determines them. They select
    /// the clients that get a segment after a takeover, and the segment's source must be on this machine (`proxied`).
    pub(crate) fn proxy_listeners(&self) -> ProxyListeners {
        ProxyListeners::new(&self.desired)
    }

    /// Returns the configuration plus the servers from server lists and from a different version of the group's
    /// configuration.
    ///
    /// # Errors
    /// Returns a message if a pool or a check does not exist, a weight is above [`MAX_WEIGHT`], or the group is not
    /// allowed to publish an address.
    pub(crate) fn with_list_servers(
        &self,
        added_servers: Vec<AddedServer>,
    ) -> Result<Cow<'_, Desired>, String> {
        if added_servers.is_empty() {
            return Ok(Cow::Borrowed(&self.desired));
        }
        let mut desired = self.desired.clone();
        for server in added_servers {
            let Some(pool_index) = desired
                .pools
                .iter()
                .position(|pool| pool.name == server.pool)
            else {
                return Err(format!("pool {} not found", server.pool));
            };
            if let Some(reason) =
                desired.unpublishable_reason(&desired.pools[pool_index], server.address)
            {
                return Err(format!("pool {}: {reason}", server.pool));
            }
            let pool = &mut desired.pools[pool_index];
            if server.weight > MAX_WEIGHT {
                return Err(format!(
                    "{}: weight {} is above {MAX_WEIGHT}",
                    server.name, server.weight
                ));
            }
            let checks = server.checks.map(|names| checks(&self.desired, &names));
            let new_server = Server {
                weight: server.weight,
                max_connections: server.max_connections,
                min_connections: server.min_connections,
                checks: checks.transpose()?,
                ..Server::new(server.name, server.address, server.port)
            };
            let Some(replaces) = server.replaces_second_hop else {
                pool.servers.push(new_server);
                continue;
            };
            let other_version = pool.other_version.get_or_insert(OtherVersion {
                servers: Vec::new(),
                replaces,
            });
            other_version.servers.push(new_server);
        }
        Ok(Cow::Owned(desired))
    }
}

fn checks(desired: &Desired, names: &[String]) -> Result<Vec<Check>, String> {
    let check = |name: &String| {
        let check = desired.check(name).cloned();
        check.ok_or_else(|| format!("check {name} not found"))
    };
    names.iter().map(check).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::{env, fs, process};

    use super::*;

    const TEXT: &str = r#"
[node]
interfaces = ["eth0"]
[check.deep]
kind = "tcp"
[pool.p]
servers = ["10.0.0.1:80"]
[service.s]
listen = ["10.0.0.9:80"]
forward = "nat"
pool = "p"
[service.w]
listen = ["10.0.0.8:80"]
forward = "proxy"
protocol = "http"
pool = "p"
"#;

    struct Directory(PathBuf);

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn directory(name: &str) -> (Directory, PathBuf) {
        let directory = env::temp_dir().join(format!("weir-policy-{name}-{}", process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir(&directory).unwrap();
        let file = directory.join("weir.toml");
        (Directory(directory), file)
    }

    fn write(file: &Path, text: &str) {
        fs::write(file, text).unwrap();
        fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
    }

    #[test]
    fn layer_4_part_must_match_roots_file() {
        if !weir_testing::require_root() {
            return;
        }
        let (directory, file) = directory("part");
        write(&file, TEXT);
        let mut policy = Policy::new(&file, &directory.0);
        let mut accept = |text: &str| policy.accept(text.as_bytes().to_vec());
        assert!(accept(TEXT).is_ok());
        let other_proxy = TEXT.replace("10.0.0.8:80", "10.0.0.7:81");
        assert!(
            accept(&other_proxy).is_ok(),
            "proxy services are not checked"
        );
        assert!(accept(&format!("\n# moved\n{TEXT}")).is_ok());
        for (old, new) in [
            ("eth0", "eth1"),
            ("10.0.0.9:80", "10.0.0.6:80"),
            ("10.0.0.9:80", "10.0.0.9:81"),
            ("10.0.0.1:80", "10.0.0.2:80"),
            ("\"nat\"", "\"direct\""),
            ("[node]", "[node]\nmax_flows = 2048"),
            ("[node]", "[node]\nvip_interface = \"eth0\""),
        ] {
            let refused = accept(&TEXT.replace(old, new)).unwrap_err();
            assert!(refused.contains("does not permit"), "{new}: {refused}");
        }
        let error = accept("[").unwrap_err();
        assert!(error.contains("invalid TOML"), "{error}");
    }

    #[test]
    fn address_variables_must_be_set_and_equal_in_both_processes() {
        if !weir_testing::require_root() {
            return;
        }
        let (directory, file) = directory("variables");
        let text = TEXT.replace("10.0.0.9:80", "${WEIR_TEST_UNSET}:80");
        write(&file, &text);
        let mut policy = Policy::new(&file, &directory.0);
        let refused = policy.accept(text.into_bytes()).unwrap_err();
        assert!(
            refused.contains("the environment variable WEIR_TEST_UNSET is not set"),
            "{refused}"
        );
        // The daemon has the variable; this process has only the default.
        let text = TEXT.replace("10.0.0.9:80", "${WEIR_TEST_UNSET:-10.0.0.9}:80");
        write(&file, &text);
        let configuration = policy.accept(text.into_bytes()).unwrap();
        let digest = |text: &str| weir_helper::address_digest(&parse(text, &Environment).unwrap());
        let other_digest = digest(&TEXT.replace("10.0.0.9:80", "10.0.0.6:80"));
        let refused = configuration
            .check_addresses(Some(other_digest))
            .unwrap_err();
        assert!(refused.contains("have different values"), "{refused}");
        assert_eq!(configuration.check_addresses(Some(digest(TEXT))), Ok(()));
    }

    const GROUP: &str = "[cluster]\netcd = [\"http://10.0.0.1:2379\"]\nname = \"edge\"\n[cluster.publish]\n\
        vips = [\"192.0.2.0/24\"]\nservers = [\"10.0.0.0/8\"]\n";

    fn published(vip: &str) -> String {
        format!(
            "[pool.q]\nscheduler = \"maglev\"\nservers = [\"10.0.0.2\"]\n[service.q]\nlisten = [\"{vip}:80\"]\n\
             forward = \"nat\"\npool = \"q\"\n"
        )
    }

    #[test]
    fn group_publishes_only_settings_that_roots_file_permits() {
        if !weir_testing::require_root() {
            return;
        }
        let (directory, file) = directory("group");
        // Proxy services do not support `maglev`.
        let layer_4 = TEXT.split("[service.w]").next().unwrap();
        let root_file = layer_4.replace("[pool.p]", "[pool.p]\nscheduler = \"maglev\"");
        let root_file = format!("{GROUP}{root_file}");
        write(&file, &root_file);
        let mut policy = Policy::new(&file, &directory.0);
        let with_published = weir_config::with_published;
        let accept = |policy: &mut Policy, text: &str| policy.accept(text.as_bytes().to_vec());
        let valid_text = with_published(&root_file, "edge", &published("192.0.2.1"));
        let configuration = accept(&mut policy, &valid_text).unwrap();
        policy.set_active(configuration);
        assert!(
            accept(
                &mut policy,
                &with_published(&root_file, "edge", &published("192.0.2.2"))
            )
            .is_ok()
        );
        assert!(accept(&mut policy, &root_file).is_ok(), "nothing published");
        let wide = root_file.replace("192.0.2.0/24", "0.0.0.0/0");
        let other_service = root_file.replace("10.0.0.9:80", "192.0.2.9:80");
        let outside = published("198.51.100.1");
        for (text, expected) in [
            (
                with_published(&root_file, "edge", &outside),
                "is not in `vips`",
            ),
            (with_published(&wide, "edge", &outside), "is not in `vips`"),
            (
                with_published(&wide, "other", &outside),
                "does not permit the daemon",
            ),
            (
                format!("{root_file}{outside}"),
                "does not permit the daemon",
            ),
            (
                with_published(&other_service, "edge", &published("192.0.2.1")),
                "does not permit the daemon",
            ),
            (
                with_published(&root_file, "edge", "[node]\nmax_flows = 2048\n"),
                "`node` cannot be published",
            ),
            (
                with_published(
                    &root_file,
                    "edge",
                    "[vrrp.a]\ninterface = \"lo\"\nvirtual_router_id = 9\naddresses = [\"192.0.2.1\"]\n",
                ),
                "`vrrp` cannot be published",
            ),
        ] {
            let refused = accept(&mut policy, &text).unwrap_err();
            assert!(refused.contains(expected), "{text}: {refused}");
        }
        // A restarted process adopts the configuration that was active, even if the file has changed since.
        write(&file, &root_file.replace("192.0.2.0/24", "203.0.113.0/24"));
        let mut restarted = Policy::new(&file, &directory.0);
        assert!(accept(&mut restarted, &valid_text).is_ok(), "recorded");
        let refused = accept(
            &mut restarted,
            &with_published(&root_file, "edge", &published("192.0.2.2")),
        );
        let refused = refused.unwrap_err();
        assert!(refused.contains("192.0.2.2 is not in `vips`"), "{refused}");
    }

    /// The limits on added servers come from root's configuration file, even for a text that differs only in its
    /// limits.
    #[test]
    fn group_limits_come_from_roots_file() {
        if !weir_testing::require_root() {
            return;
        }
        let (directory, file) = directory("limits");
        let layer_4 = TEXT.split("[service.w]").next().unwrap();
        let root_file = layer_4.replace("[pool.p]", "[pool.p]\nscheduler = \"maglev\"");
        let root_file = format!("{GROUP}{root_file}");
        write(&file, &root_file);
        let mut policy = Policy::new(&file, &directory.0);
        let published = published("192.0.2.1");
        let good_configuration = weir_config::with_published(&root_file, "edge", &published);
        let configuration = policy
            .accept(good_configuration.clone().into_bytes())
            .unwrap();
        policy.set_active(configuration);
        for other in [
            good_configuration.replace("servers = [\"10.0.0.0/8\"]", "servers = [\"0.0.0.0/0\"]"),
            good_configuration.replace("name = \"edge\"", "name = \"other\""),
            format!("{root_file}{published}"),
        ] {
            assert_ne!(other, good_configuration);
            let refused = policy.accept(other.clone().into_bytes()).unwrap_err();
            assert!(
                refused.contains("does not permit the daemon"),
                "{other}: {refused}"
            );
        }
    }

    #[test]
    fn servers_are_added_to_a_published_pool_within_the_limits() {
        let text = weir_config::with_published(GROUP, "edge", &published("192.0.2.1"));
        let desired = parse(&text, &Environment).unwrap();
        let configuration = AcceptedConfiguration { text, desired };
        let server = |address: [u8; 4]| AddedServer {
            pool: "q".to_owned(),
            name: "x".to_owned(),
            address: address.into(),
            port: None,
            weight: 1,
            max_connections: 0,
            min_connections: 0,
            checks: None,
            replaces_second_hop: None,
        };
        assert!(
            configuration
                .with_list_servers(vec![server([10, 0, 0, 7])])
                .is_ok()
        );
        let refused = configuration
            .with_list_servers(vec![server([192, 0, 2, 7])])
            .unwrap_err();
        assert!(refused.contains("is not in `servers`"), "{refused}");

        // The same limits apply to servers of a different version, which are only the second hop.
        let staged = |address: [u8; 4]| AddedServer {
            replaces_second_hop: Some(true),
            ..server(address)
        };
        let desired = configuration.with_list_servers(vec![staged([10, 0, 0, 7])]);
        let desired = desired.unwrap();
        let pool = desired.pool("q").unwrap();
        let other_version = pool.other_version.as_ref().unwrap();
        assert_eq!((pool.servers.len(), other_version.servers.len()), (1, 1));
        assert!(other_version.replaces);
        let refused = configuration.with_list_servers(vec![staged([192, 0, 2, 7])]);
        assert!(refused.is_err());
    }

    #[test]
    fn active_and_recorded_configurations_stay_accepted_and_files_writable_by_others_are_rejected()
    {
        if !weir_testing::require_root() {
            return;
        }
        let (directory, file) = directory("record");
        write(&file, TEXT);
        let mut policy = Policy::new(&file, &directory.0);
        let configuration = policy.accept(TEXT.as_bytes().to_vec()).unwrap();
        policy.set_active(configuration);
        let other_text = TEXT.replace("10.0.0.9", "10.0.0.5");
        write(&file, &other_text);
        let accept = |policy: &mut Policy, text: &str| policy.accept(text.as_bytes().to_vec());
        assert!(accept(&mut policy, TEXT).is_ok() && accept(&mut policy, &other_text).is_ok());
        let configuration = accept(&mut policy, &other_text).unwrap();
        policy.set_active(configuration);
        write(&file, &other_text.replace("10.0.0.5", "10.0.0.4"));
        assert!(
            accept(&mut policy, TEXT).is_ok(),
            "the previous configuration"
        );
        let configuration = accept(&mut policy, TEXT).unwrap();
        policy.set_active(configuration);
        let mut restarted = Policy::new(&file, &directory.0);
        assert!(accept(&mut restarted, TEXT).is_ok(), "recorded");
        restarted.prepare();
        assert!(
            accept(&mut restarted, TEXT).is_ok(),
            "not the prepared configuration"
        );
        restarted.prepare();
        let in_file = other_text.replace("10.0.0.5", "10.0.0.4");
        assert_eq!(
            accept(&mut restarted, &in_file).unwrap().text,
            in_file,
            "prepared"
        );
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
        let refused = accept(&mut restarted, &other_text).unwrap_err();
        assert!(refused.contains("must be owned by root"), "{refused}");
        std::os::unix::fs::chown(directory.0.join(RECORD_FILE), Some(1), None).unwrap();
        assert!(accept(&mut Policy::new(&file, &directory.0), TEXT).is_err());
    }

    #[test]
    fn list_server_with_unknown_pool_or_check_or_high_weight_is_rejected() {
        let configuration = AcceptedConfiguration {
            text: TEXT.to_owned(),
            desired: parse(TEXT, &Environment).unwrap(),
        };
        let server = AddedServer {
            pool: "p".to_owned(),
            name: "10.0.0.2:80".to_owned(),
            address: [10, 0, 0, 2].into(),
            port: Some(80),
            weight: 3,
            max_connections: 0,
            min_connections: 0,
            checks: Some(vec!["deep".to_owned()]),
            replaces_second_hop: None,
        };
        let desired = configuration
            .with_list_servers(vec![server.clone()])
            .unwrap();
        let added_server = &desired.pools[0].servers[1];
        assert_eq!(
            (
                added_server.weight,
                added_server.checks.as_ref().unwrap().len()
            ),
            (3, 1)
        );
        for wrong in [
            AddedServer {
                pool: "q".to_owned(),
                ..server.clone()
            },
            AddedServer {
                weight: MAX_WEIGHT + 1,
                ..server.clone()
            },
            AddedServer {
                checks: Some(vec!["none".to_owned()]),
                ..server
            },
        ] {
            assert!(configuration.with_list_servers(vec![wrong]).is_err());
        }
    }
}
