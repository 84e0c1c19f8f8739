//! Lists that an earlier build remembered, when an entry could hold everything that a server of the configuration may.

use serde_json::{Map, Value};

use super::{MEMBER_KEYS, members};

/// A remembered list as this build takes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Former {
    /// The list, which [`members`] accepts; empty where nothing of it could be used.
    pub text: String,
    /// Addresses of servers that lost their own check. They stay, with the pool's.
    pub unchecked: Vec<String>,
    /// Addresses of servers that are left out, because they had another key that is not allowed.
    pub removed: Vec<String>,
    /// Nothing of it could be used.
    pub unusable: bool,
}

/// The list without what a list may not hold any more.
///
/// A server with a check of its own stays without it, so that an upgrade takes no server from a pool; what the check was to run
/// or to read is forgotten. A server with `forward`, `tunnel` or `backup` is left out: without that key it would get packets that
/// it cannot take.
pub fn former_members(text: &str) -> Former {
    if members(text).is_ok() {
        return Former {
            text: text.to_owned(),
            ..Former::default()
        };
    }
    let mut former = Former::default();
    let list = match serde_json::from_str(text) {
        Ok(Value::Array(list)) => list,
        Ok(Value::Object(mut table)) => match table.remove("servers") {
            Some(Value::Array(list)) => list,
            _ => Vec::new(),
        },
        _ => Vec::new(),
    };
    let had = !list.is_empty();
    let kept: Vec<Value> = list
        .into_iter()
        .filter_map(|entry| former.entry(entry))
        .collect();
    let kept = Value::from(kept).to_string();
    if had && members(&kept).is_ok() {
        former.text = kept;
        return former;
    }
    Former {
        unusable: true,
        ..Former::default()
    }
}

impl Former {
    /// `None` = it is left out.
    fn entry(&mut self, entry: Value) -> Option<Value> {
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

/// The address, if it is one: it is shown to the operator, and a text that is none is not.
fn address(table: &Map<String, Value>) -> Option<String> {
    let text = table.get("address")?.as_str()?;
    crate::address::server(text).ok()?;
    Some(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remembered_check_is_forgotten_and_its_server_stays() {
        let script = r#"{"kind": "script", "command": ["/bin/sh", "-c", "id"], "user": "root"}"#;
        for list in [
            format!(
                "[\"10.0.0.1\", {{\"address\": \"10.0.0.2:80\", \"weight\": 3, \"check\": {script}}}]"
            ),
            format!(
                "{{\"servers\": [\"10.0.0.1\", {{\"address\": \"10.0.0.2:80\", \"weight\": 3, \"check\": [{script}]}}]}}"
            ),
        ] {
            let former = former_members(&list);
            assert_eq!(former.unchecked, ["10.0.0.2:80"], "{list}");
            assert!(former.removed.is_empty() && !former.unusable);
            assert!(!former.text.contains("script"), "{}", former.text);
            let members = members(&former.text).unwrap();
            assert_eq!((members.len(), members[1].server.weight), (2, 3));
            assert!(members.iter().all(|member| member.checks.is_none()));
        }
    }

    #[test]
    fn a_server_that_needs_another_key_is_left_out() {
        let list = r#"["10.0.0.1", {"address": "10.0.0.2", "forward": "tunnel"}]"#;
        let former = former_members(list);
        assert_eq!(former.removed, ["10.0.0.2"]);
        assert_eq!(members(&former.text).unwrap().len(), 1);
    }

    #[test]
    fn an_allowed_list_stays_as_it_is() {
        for list in [
            "",
            "10.0.0.1 weight=3\n",
            r#"[{"address": "10.0.0.1", "check": "site"}]"#,
        ] {
            let former = former_members(list);
            assert_eq!((former.text.as_str(), former.unusable), (list, false));
        }
    }

    #[test]
    fn nothing_of_what_is_no_list_is_used() {
        for list in [
            "root:*:1::",
            "[1]",
            "{}",
            r#"[{"address": "x", "check": {}}, 1]"#,
        ] {
            let former = former_members(list);
            assert!(former.unusable && former.text.is_empty(), "{list}");
        }
    }
}
