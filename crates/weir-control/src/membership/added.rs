//! Servers that users of the API add to a pool and take out again.
//!
//! They are kept as a list in the JSON form of `servers`, so that what may be said of a server, and what of it is wrong, is the
//! configuration's own language.

use serde_json::{Map, Value};
use weir_model::{Desired, Pool, Server};

use super::{Giver, List, Lists, Membership, fits};

impl Membership {
    /// The lists with a server added to a pool, or changed: `keys` is what a table in `servers` may hold beside the address.
    ///
    /// # Errors
    /// The keys or the address are wrong, or the server is not the API's; in one line.
    pub fn with(
        &self,
        configured: &Desired,
        pool: &Pool,
        address: &str,
        mut keys: Map<String, Value>,
    ) -> Result<Lists, String> {
        keys.insert("address".to_owned(), address.into());
        let one = weir_config::members(&Value::from(vec![Value::from(keys.clone())]).to_string())?;
        let [server] = one.as_slice() else {
            return Err(format!("{address} is no address"));
        };
        self.refuse_others(pool, server)?;
        let mut entries = self.entries(&pool.name);
        match entries.iter_mut().find(|entry| names(entry, server)) {
            Some(entry) => *entry = keys.into(),
            None => entries.push(keys.into()),
        }
        self.with_entries(configured, pool, entries)
    }

    /// The lists without a server that the API had added.
    ///
    /// # Errors
    /// The API has not added it; in one line.
    pub fn without(
        &self,
        configured: &Desired,
        pool: &Pool,
        address: &str,
    ) -> Result<Lists, String> {
        let one = weir_config::members(&Value::from(vec![Value::from(address)]).to_string())?;
        let mut entries = self.entries(&pool.name);
        let before = entries.len();
        if let [server] = one.as_slice() {
            entries.retain(|entry| !names(entry, server));
            if entries.len() == before {
                self.refuse_others(pool, server)?;
            }
        }
        if entries.len() == before {
            return Err(format!("pool {} has no server {address}", pool.name));
        }
        self.with_entries(configured, pool, entries)
    }

    /// A server that somebody else lists is somebody else's.
    fn refuse_others(&self, pool: &Pool, server: &Server) -> Result<(), String> {
        let same = |other: &Server| (other.address, other.port) == (server.address, server.port);
        let name = &server.name;
        if pool.servers.iter().any(same) {
            return Err(format!(
                "the configuration lists {name} in pool {}; `weir server` says what becomes of it meanwhile",
                pool.name
            ));
        }
        for (giver, list) in self.lists.of(&pool.name) {
            if giver != Giver::Api && list.servers.iter().any(same) {
                return Err(format!("another list of pool {} has {name}", pool.name));
            }
        }
        Ok(())
    }

    fn entries(&self, pool: &str) -> Vec<Value> {
        let list = self.lists.of(pool).find(|(giver, _)| *giver == Giver::Api);
        let entries = list.map(|(_, list)| serde_json::from_str(&list.text));
        entries.and_then(Result::ok).unwrap_or_default()
    }

    fn with_entries(
        &self,
        configured: &Desired,
        pool: &Pool,
        entries: Vec<Value>,
    ) -> Result<Lists, String> {
        let text = Value::from(entries).to_string();
        let servers = weir_config::members(&text)?;
        fits(configured, pool, &servers)?;
        let list = List {
            text,
            servers,
            problem: None,
        };
        let mut lists = self.lists.clone();
        lists
            .by_source
            .insert((pool.name.clone(), Giver::Api), list);
        Ok(lists)
    }
}

/// Whether an entry is about the same address and port.
fn names(entry: &Value, server: &Server) -> bool {
    let one = weir_config::members(&Value::from(vec![entry.clone()]).to_string());
    one.is_ok_and(|one| {
        one.iter()
            .any(|other| (other.address, other.port) == (server.address, server.port))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str) -> Map<String, Value> {
        serde_json::from_str(text).expect("an object")
    }

    #[tokio::test]
    async fn servers_are_added_changed_and_taken_out() {
        let directory = std::env::temp_dir().join(format!("weir-added-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let text = "[pool.p]\nservers = [\"10.0.0.1\"]\n[service.s]\nlisten = [\"192.0.2.1:80\"]\nforward = \"direct\"\n\
                    pool = \"p\"\n";
        let configured = weir_config::parse(text, &weir_config::Host::default())
            .expect("a configuration")
            .desired;
        let pool = configured.pools[0].clone();
        let mut membership = Membership::new(&directory);
        let put = |membership: &mut Membership, address: &str, text: &str| {
            let lists = membership.with(&configured, &pool, address, keys(text))?;
            membership.keep(&configured, lists);
            Ok::<_, String>(
                membership.lists().added_to(&configured).pools[0]
                    .servers
                    .clone(),
            )
        };
        let servers = put(&mut membership, "10.0.0.2:80", "{}").expect("added");
        assert_eq!((servers.len(), servers[1].weight), (2, 1));
        let servers = put(&mut membership, "10.0.0.2:80", r#"{"weight": 7}"#).expect("changed");
        assert_eq!((servers.len(), servers[1].weight), (2, 7));
        for (address, text, word) in [
            ("10.0.0.1", "{}", "the configuration lists"),
            ("10.0.0.300", "{}", "10.0.0.300"),
            ("10.0.0.3", r#"{"colour": 1}"#, "colour"),
            ("2001:db8::1", "{}", "cannot take its clients"),
        ] {
            let why = put(&mut membership, address, text).expect_err(address);
            assert!(why.contains(word), "{why}");
        }

        // Over a restart, and a reload that reads every list anew.
        let mut again = Membership::new(&directory);
        let lists = again.lists_of(&configured);
        assert_eq!(lists.added_to(&configured).pools[0].servers.len(), 2);
        again.keep(&configured, lists);
        assert_eq!(again.sources(&configured)[0].kind, Giver::Api);
        assert!(again.without(&configured, &pool, "10.0.0.1").is_err());
        assert!(again.without(&configured, &pool, "10.0.0.9").is_err());
        let lists = again
            .without(&configured, &pool, "10.0.0.2:80")
            .expect("taken out");
        again.keep(&configured, lists);
        let servers = again.lists_of(&configured).added_to(&configured);
        assert_eq!(servers.pools[0].servers.len(), 1);
        std::fs::remove_dir_all(&directory).expect("removed");
    }
}
