//! Reads the lists that a previous daemon persisted in the runtime directory.
//!
//! An earlier build allowed every key of the configuration in a list, including programs to run. Keys that are no
//! longer allowed are removed before the list is used; the log names the pool and the address, but not the value.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use weir_config::{MigratedMembers, migrate_members};

use crate::{Key, List, ListSource};

pub(crate) fn read(file: &Path) -> BTreeMap<Key, List> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let persisted: Vec<(String, ListSource, String)> =
        serde_json::from_str(&text).unwrap_or_default();
    let lists = persisted.into_iter().filter_map(|(pool, source, text)| {
        let former = migrate_members(&text);
        warn(&pool, source, &former);
        let members = weir_config::members(&former.text).ok()?;
        let list = List {
            text: former.text,
            members,
            problem: None,
        };
        Some(((pool, source), list))
    });
    lists.collect()
}

fn warn(pool: &str, source: ListSource, former: &MigratedMembers) {
    for address in &former.unchecked {
        tracing::warn!(
            pool,
            address,
            source = source.as_str(),
            "a persisted server had a check of its own, which is no longer allowed in a list: the server uses the \
             pool's checks"
        );
    }
    for address in &former.removed {
        tracing::warn!(
            pool,
            address,
            source = source.as_str(),
            "removed a persisted server with keys that are no longer allowed in a list"
        );
    }
    if former.unusable {
        tracing::warn!(
            pool,
            source = source.as_str(),
            "a persisted list of servers is not usable"
        );
    }
}
