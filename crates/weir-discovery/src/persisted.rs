//! Reads the lists that a previous daemon persisted in the runtime directory.
//!
//! Earlier versions allowed every server key in a list, even keys that run programs. Keys that are no longer allowed
//! are removed before the list is used. The log contains the pool and the address, but not the values.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use weir_config::{MigratedMembers, migrate_members};

use crate::list::{Key, List, ListSource};

/// Reads the lists, without invalid ones. Returns no lists if the file cannot be read. `origins_file` contains the
/// origins of the lists; if it is missing, they are unknown.
pub(crate) fn read(file: &Path, origins_file: &Path) -> BTreeMap<Key, List> {
    let origins = read_values(origins_file).into_iter();
    let mut origins: BTreeMap<Key, String> = origins
        .map(|(pool, source, origin)| ((pool, source), origin))
        .collect();
    let persisted = read_values(file).into_iter();
    let lists = persisted.filter_map(|(pool, source, text)| {
        let migrated = migrate_members(&text);
        log_removed_keys(&pool, source, &migrated);
        let members = weir_config::members(&migrated.text).ok()?;
        let key = (pool, source);
        let list = List {
            text: migrated.text,
            members,
            origin: origins.remove(&key).unwrap_or_default(),
            problem: None,
        };
        Some((key, list))
    });
    lists.collect()
}

fn read_values(file: &Path) -> Vec<(String, ListSource, String)> {
    let text = fs::read_to_string(file).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// Logs the servers and keys that were removed from a list.
fn log_removed_keys(pool: &str, source: ListSource, migrated: &MigratedMembers) {
    for address in &migrated.unchecked {
        tracing::warn!(
            pool,
            address,
            source = source.as_str(),
            "a persisted server defines a check, which is no longer allowed in a server list: the server uses the \
                pool's checks"
        );
    }
    for address in &migrated.removed {
        tracing::warn!(
            pool,
            address,
            source = source.as_str(),
            "removed a persisted server with keys that are no longer allowed in a server list"
        );
    }
    if migrated.unusable {
        tracing::warn!(
            pool,
            source = source.as_str(),
            "ignored an invalid persisted server list"
        );
    }
}
