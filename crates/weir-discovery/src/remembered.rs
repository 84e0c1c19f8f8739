//! The lists that a daemon before this one kept in the runtime directory.
//!
//! An earlier build let a list hold whatever the configuration may say of a server, programs to run included. What is
//! not allowed any more is dropped before anything is made of it, and the log names the pool and the address, and not
//! what was there.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use weir_config::{MigratedMembers, migrate_members};

use crate::{Giver, Key, List};

pub(crate) fn read(memory: &Path) -> BTreeMap<Key, List> {
    let text = fs::read_to_string(memory).unwrap_or_default();
    let remembered: Vec<(String, Giver, String)> = serde_json::from_str(&text).unwrap_or_default();
    let lists = remembered.into_iter().filter_map(|(pool, giver, text)| {
        let former = migrate_members(&text);
        warn(&pool, giver, &former);
        let members = weir_config::members(&former.text).ok()?;
        let list = List {
            text: former.text,
            members,
            problem: None,
        };
        Some(((pool, giver), list))
    });
    lists.collect()
}

fn warn(pool: &str, giver: Giver, former: &MigratedMembers) {
    for address in &former.unchecked {
        tracing::warn!(
            pool,
            address,
            source = giver.as_str(),
            "a remembered server had a check of its own, which a list may not hold any more: the check is dropped, the server has \
             the pool's"
        );
    }
    for address in &former.removed {
        tracing::warn!(
            pool,
            address,
            source = giver.as_str(),
            "a remembered server had keys that a list may not hold any more, and is dropped"
        );
    }
    if former.unusable {
        tracing::warn!(
            pool,
            source = giver.as_str(),
            "a remembered list of servers could not be used"
        );
    }
}
