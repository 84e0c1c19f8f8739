//! Adds servers to a pool and removes them, at the request of API clients.
//!
//! The servers are stored in the JSON list format of `servers_file`, with the same keys.

use serde_json::{Map, Value};
use weir_config::{MEMBER_KEYS, Member};
use weir_model::{Desired, Pool, Server};

use crate::list::{List, ListSource};
use crate::{Lists, Membership, find_incompatibility, origin};

impl Membership {
    /// Returns the lists after adding a server to a pool, or after changing the keys of a server that the API has
    /// already added. `keys` are the keys of a list entry without the address.
    ///
    /// # Errors
    /// Returns a one-line message if the keys or the address are invalid, if the configuration or another source
    /// already contains the server, or if the server cannot be in the pool.
    pub fn with_server(
        &self,
        configured: &Desired,
        pool: &Pool,
        address: &str,
        mut keys: Map<String, Value>,
    ) -> Result<Lists, String> {
        // The client sent the body, so the message can quote the unknown key.
        if let Some(key) = keys.keys().find(|key| !MEMBER_KEYS.contains(&key.as_str())) {
            let allowed = MEMBER_KEYS[1..].join("`, `");
            return Err(format!(
                "unknown key `{key}`; allowed keys are `{allowed}` (the name of a [check.NAME])"
            ));
        }
        keys.insert("address".to_owned(), address.into());
        let member = parse_entry(address, keys.clone().into())?;
        let server = &member.server;
        self.reject_other_source(pool, server)?;
        let mut entries = self.entries(&pool.name);
        match entries
            .iter_mut()
            .find(|entry| is_for_server(entry, server))
        {
            Some(entry) => *entry = keys.into(),
            None => entries.push(keys.into()),
        }
        self.with_entries(configured, pool, entries)
    }

    /// Returns the lists after removing a server that the API has added.
    ///
    /// # Errors
    /// Returns a one-line message if the address is invalid or the API has not added the server.
    pub fn without_server(
        &self,
        configured: &Desired,
        pool: &Pool,
        address: &str,
    ) -> Result<Lists, String> {
        let member = parse_entry(address, address.into())?;
        let mut entries = self.entries(&pool.name);
        let previous_count = entries.len();
        entries.retain(|entry| !is_for_server(entry, &member.server));
        if entries.len() == previous_count {
            self.reject_other_source(pool, &member.server)?;
        }
        if entries.len() == previous_count {
            return Err(format!("pool {} has no server {address}", pool.name));
        }
        self.with_entries(configured, pool, entries)
    }

    /// Returns an error if the configuration or another source already contains the server.
    fn reject_other_source(&self, pool: &Pool, server: &Server) -> Result<(), String> {
        let is_same = |other: &Server| (other.address, other.port) == (server.address, server.port);
        let name = &server.name;
        if pool.servers.iter().any(is_same) {
            return Err(format!(
                "{name} in pool {} is defined in the configuration; use `weir server` to change its state or weight",
                pool.name
            ));
        }
        if pool.sorry.as_ref().is_some_and(is_same) {
            return Err(format!("{name} is the sorry server of pool {}", pool.name));
        }
        for (source, list) in self.lists.for_pool(&pool.name) {
            let mut servers = list.members.iter().map(|member| &member.server);
            if source != ListSource::Api && servers.any(is_same) {
                return Err(format!(
                    "{name} is already in another server list of pool {}",
                    pool.name
                ));
            }
        }
        Ok(())
    }

    /// Returns the list entries of the servers that the API has added to a pool.
    fn entries(&self, pool: &str) -> Vec<Value> {
        let list = self
            .lists
            .for_pool(pool)
            .find(|(source, _)| *source == ListSource::Api);
        let entries = list.map(|(_, list)| serde_json::from_str(&list.text));
        entries.and_then(Result::ok).unwrap_or_default()
    }

    /// Returns the lists after replacing the API's entries for a pool with `entries`.
    fn with_entries(
        &self,
        configured: &Desired,
        pool: &Pool,
        entries: Vec<Value>,
    ) -> Result<Lists, String> {
        let text = Value::from(entries).to_string();
        let members = weir_config::members(&text).map_err(|error| error.reason.to_string())?;
        for member in &members {
            if let Some(reason) = find_incompatibility(configured, pool, member) {
                return Err(format!("{}: {reason}", member.server.name));
            }
        }
        let list = List {
            text,
            members,
            origin: origin(pool, ListSource::Api),
            problem: None,
        };
        let mut lists = self.lists.clone();
        lists
            .by_source
            .insert((pool.name.clone(), ListSource::Api), list);
        Ok(lists)
    }
}

/// Parses a list entry. `address` is the server's address, which error messages contain.
fn parse_entry(address: &str, entry: Value) -> Result<Member, String> {
    let members = weir_config::members(&Value::from(vec![entry]).to_string());
    let mut members = members.map_err(|error| format!("{address}: {}", error.reason))?;
    members
        .pop()
        .ok_or_else(|| format!("{address}: the entry contains no server"))
}

/// Returns whether an entry has the address and port of a server.
fn is_for_server(entry: &Value, server: &Server) -> bool {
    let members = weir_config::members(&Value::from(vec![entry.clone()]).to_string());
    members.is_ok_and(|members| {
        members
            .iter()
            .any(|other| (other.server.address, other.server.port) == (server.address, server.port))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> Map<String, Value> {
        serde_json::from_str(text).expect("valid JSON object")
    }

    const CONFIGURATION: &str = "[check.site]\nkind = \"http\"\n[pool.p]\nservers = [\"10.0.0.1\"]\n[service.s]\n\
                                 listen = [\"192.0.2.1:80\"]\nforward = \"direct\"\npool = \"p\"\n";

    #[tokio::test]
    async fn servers_are_added_changed_and_removed() {
        let directory = std::env::temp_dir().join(format!("weir-added-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("create a directory");
        let configured = weir_config::parse(CONFIGURATION, &weir_config::Host::default())
            .expect("valid configuration")
            .desired;
        let pool = configured.pools[0].clone();
        let mut membership = Membership::new(&directory);
        let put = |membership: &mut Membership, address: &str, text: &str| {
            let lists = membership.with_server(&configured, &pool, address, table(text))?;
            membership.commit(&configured, lists);
            let with_added = membership.lists().added_to(&configured);
            Ok::<_, String>(with_added.pools[0].servers.clone())
        };
        let servers = put(&mut membership, "10.0.0.2:80", "{}").expect("add a server");
        assert_eq!((servers.len(), servers[1].weight), (2, 1));
        assert_eq!(servers[1].checks, None);
        let keys = r#"{"weight": 7, "max_connections": 9, "check": "site"}"#;
        let servers = put(&mut membership, "10.0.0.2:80", keys).expect("change the server");
        assert_eq!((servers.len(), servers[1].weight), (2, 7));
        assert_eq!(servers[1].max_connections, 9);
        let site = configured.check("site").cloned();
        assert_eq!(servers[1].checks, site.map(|site| vec![site]));
        for (address, text, expected) in [
            ("10.0.0.1", "{}", "is defined in the configuration"),
            ("10.0.0.300", "{}", "10.0.0.300"),
            ("10.0.0.3", r#"{"color": 1}"#, "color"),
            ("10.0.0.3", r#"{"user": "root"}"#, "unknown key `user`"),
            (
                "10.0.0.3",
                r#"{"forward": "tunnel"}"#,
                "unknown key `forward`",
            ),
            (
                "10.0.0.3",
                r#"{"check": "other"}"#,
                "does not name a [check.NAME]",
            ),
            (
                "10.0.0.3",
                r#"{"check": {"kind": "tcp"}}"#,
                "can only name a [check.NAME]",
            ),
            (
                "10.0.0.3",
                r#"{"check": [{"kind": "script", "command": "/bin/id", "user": "root"}]}"#,
                "can only name a [check.NAME]",
            ),
            ("2001:db8::1", "{}", "cannot forward to"),
        ] {
            let error = put(&mut membership, address, text).expect_err(address);
            assert!(error.contains(expected), "{error}");
        }

        // The server remains after a restart and after a reload.
        let mut restarted = Membership::new(&directory);
        let lists = restarted.read_for_reload(&configured);
        assert_eq!(lists.added_to(&configured).pools[0].servers.len(), 2);
        restarted.commit(&configured, lists);
        assert_eq!(restarted.sources(&configured)[0].kind, ListSource::Api);
        for address in ["10.0.0.1", "10.0.0.9"] {
            let result = restarted.without_server(&configured, &pool, address);
            assert!(result.is_err(), "{address}");
        }
        let lists = restarted
            .without_server(&configured, &pool, "10.0.0.2:80")
            .expect("remove the server");
        restarted.commit(&configured, lists);
        let servers = restarted.read_for_reload(&configured).added_to(&configured);
        assert_eq!(servers.pools[0].servers.len(), 1);
        std::fs::remove_dir_all(&directory).expect("remove the directory");
    }
}
