//! Converts lists stored by earlier versions, which allowed every key of a configured server in an entry.

use serde_json::{Map, Value};

use super::{MEMBER_KEYS, members};

/// A converted list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MigratedMembers {
    /// The list in a format that [`members`] accepts; empty if the list is unusable.
    pub text: String,
    /// Addresses of servers whose own check was removed; the pool's checks apply to them.
    pub unchecked: Vec<String>,
    /// Addresses of servers that were removed because they had a key that is not allowed.
    pub removed: Vec<String>,
    /// Whether the list is unusable: it is not JSON, has no entries, or is invalid even without the removed parts.
    pub unusable: bool,
}

/// Removes keys that are no longer allowed from a list.
///
/// A server with its own check is kept without the check, so an upgrade does not remove the server from its pool. A
/// server with any other key that is not allowed, such as `forward` or `tunnel`, is removed: without that key, the
/// server could receive packets that it cannot process. A valid list is not changed.
pub fn migrate_members(text: &str) -> MigratedMembers {
    if members(text).is_ok() {
        return MigratedMembers {
            text: text.to_owned(),
            ..MigratedMembers::default()
        };
    }
    let mut migrated = MigratedMembers::default();
    let list = match serde_json::from_str(text) {
        Ok(Value::Array(list)) => list,
        Ok(Value::Object(mut table)) => match table.remove("servers") {
            Some(Value::Array(list)) => list,
            _ => Vec::new(),
        },
        _ => Vec::new(),
    };
    let had_entries = !list.is_empty();
    let remaining: Vec<Value> = list
        .into_iter()
        .filter_map(|entry| migrated.convert_entry(entry))
        .collect();
    let remaining = Value::from(remaining).to_string();
    if had_entries && members(&remaining).is_ok() {
        migrated.text = remaining;
        return migrated;
    }
    MigratedMembers {
        unusable: true,
        ..MigratedMembers::default()
    }
}

impl MigratedMembers {
    /// Converts an entry; `None` = it is removed. Objects without a valid address are removed too, but not reported.
    fn convert_entry(&mut self, entry: Value) -> Option<Value> {
        let Value::Object(mut table) = entry else {
            return Some(entry);
        };
        let address = address(&table)?;
        if table.keys().any(|key| !MEMBER_KEYS.contains(&key.as_str())) {
            self.removed.push(address);
            return None;
        }
        let is_name = |value: &Value| match value {
            Value::Array(names) => names.iter().all(Value::is_string),
            value => value.is_string(),
        };
        if table.get("check").is_some_and(|check| !is_name(check)) {
            table.remove("check");
            self.unchecked.push(address);
        }
        Some(table.into())
    }
}

/// Returns the address if it is valid. Only a valid address is shown to the operator.
fn address(table: &Map<String, Value>) -> Option<String> {
    let text = table.get("address")?.as_str()?;
    crate::address::parse_server(text).ok()?;
    Some(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn migration_removes_inline_check_and_keeps_server() {
        let script = r#"{"kind": "script", "command": ["/bin/sh", "-c", "id"], "user": "root"}"#;
        for list in [
            format!(
                "[\"10.0.0.1\", {{\"address\": \"10.0.0.2:80\", \"weight\": 3, \"check\": {script}}}]"
            ),
            format!(
                "{{\"servers\": [\"10.0.0.1\", {{\"address\": \"10.0.0.2:80\", \"weight\": 3, \"check\": \
                 [{script}]}}]}}"
            ),
        ] {
            let migrated = migrate_members(&list);
            assert_eq!(migrated.unchecked, ["10.0.0.2:80"], "{list}");
            assert!(migrated.removed.is_empty() && !migrated.unusable);
            assert!(!migrated.text.contains("script"), "{}", migrated.text);
            let members = members(&migrated.text).unwrap();
            assert_eq!((members.len(), members[1].server.weight), (2, 3));
            assert!(members.iter().all(|member| member.checks.is_none()));
        }
    }

    #[test]
    fn migration_removes_server_with_disallowed_key() {
        let list = r#"["10.0.0.1", {"address": "10.0.0.2", "forward": "tunnel"}]"#;
        let migrated = migrate_members(list);
        assert_eq!(migrated.removed, ["10.0.0.2"]);
        assert_eq!(members(&migrated.text).unwrap().len(), 1);
    }

    #[test]
    fn migration_keeps_valid_list() {
        for list in [
            "",
            "10.0.0.1 weight=3\n",
            r#"[{"address": "10.0.0.1", "check": "site"}]"#,
        ] {
            let migrated = migrate_members(list);
            assert_eq!((migrated.text.as_str(), migrated.unusable), (list, false));
        }
    }

    #[test]
    fn migration_rejects_invalid_list() {
        for list in [
            "root:*:1::",
            "[1]",
            "{}",
            r#"[{"address": "x", "check": {}}, 1]"#,
        ] {
            let migrated = migrate_members(list);
            assert!(migrated.unusable && migrated.text.is_empty(), "{list}");
        }
    }
}
