//! Encodes and decodes the gateway's JSON: 64-bit integers are strings, and keys and values are base64.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use weir_cluster::{Compare, Entry, Event, Txn, Write};

pub(crate) fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

fn decode(value: &Value) -> Option<Vec<u8>> {
    // The gateway omits empty values.
    STANDARD.decode(value.as_str().unwrap_or_default()).ok()
}

/// Decodes a 64-bit integer; the gateway omits 0.
pub(crate) fn integer(value: &Value) -> i64 {
    match value {
        Value::String(text) => text.parse().unwrap_or_default(),
        other => other.as_i64().unwrap_or_default(),
    }
}

pub(crate) fn revision(response: &Value) -> i64 {
    integer(&response["header"]["revision"])
}

pub(crate) fn entry(kv: &Value) -> Option<Entry> {
    Some(Entry {
        key: String::from_utf8(decode(&kv["key"])?).ok()?,
        value: decode(&kv["value"])?,
        revision: integer(&kv["mod_revision"]),
    })
}

/// Returns the entries in the response to a range request. Skips keys that are not UTF-8: other programs wrote them.
pub(crate) fn entries(response: &Value) -> Vec<Entry> {
    let kvs = response["kvs"].as_array();
    kvs.into_iter().flatten().filter_map(entry).collect()
}

pub(crate) fn event(event: &Value) -> Option<Event> {
    let entry = entry(&event["kv"])?;
    Some(match event["type"].as_str() {
        Some("DELETE") => Event::Delete {
            key: entry.key,
            revision: entry.revision,
        },
        _ => Event::Put(entry),
    })
}

pub(crate) fn range(key: &str, end: &str) -> Value {
    json!({ "key": encode(key.as_bytes()), "range_end": encode(end.as_bytes()) })
}

pub(crate) fn watch(key: &str, end: &str, from: i64) -> Value {
    json!({ "create_request": {
        "key": encode(key.as_bytes()),
        "range_end": encode(end.as_bytes()),
        "start_revision": from.to_string(),
    } })
}

/// Encodes a transaction. If a condition fails, etcd reads the compared keys; without the value if the condition is
/// that the key exists.
pub(crate) fn txn(txn: &Txn, lease: Option<i64>) -> Value {
    let compares = txn.compares.iter().map(|compare| match compare {
        Compare::Revision(key, revision) => json!({
            "key": encode(key.as_bytes()),
            "target": "MOD",
            "result": "EQUAL",
            "mod_revision": revision.to_string(),
        }),
        Compare::Exists(key) => json!({
            "key": encode(key.as_bytes()),
            "target": "CREATE",
            "result": "GREATER",
            "create_revision": "0",
        }),
    });
    let writes = txn.writes.iter().map(|write| match write {
        Write::Put(put) => {
            let mut request = json!({
                "key": encode(put.key.as_bytes()),
                "value": encode(&put.value),
            });
            if let Some(lease) = lease.filter(|_| put.leased) {
                request["lease"] = json!(lease.to_string());
            }
            json!({ "request_put": request })
        }
        Write::Delete(key) => {
            json!({ "request_delete_range": { "key": encode(key.as_bytes()) } })
        }
    });
    let reads = txn.compares.iter().map(|compare| {
        let keys_only = matches!(compare, Compare::Exists(_));
        json!({ "request_range": { "key": encode(compare.key().as_bytes()), "keys_only": keys_only } })
    });
    json!({
        "compare": compares.collect::<Vec<_>>(),
        "success": writes.collect::<Vec<_>>(),
        "failure": reads.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateway_events_are_decoded() {
        let put = json!({ "kv": { "key": "YQ==", "value": "Yg==", "mod_revision": "7" } });
        let expected = Entry {
            key: "a".to_owned(),
            value: b"b".to_vec(),
            revision: 7,
        };
        assert_eq!(event(&put), Some(Event::Put(expected)));
        let delete = json!({ "type": "DELETE", "kv": { "key": "YQ==", "mod_revision": "8" } });
        let expected = Event::Delete {
            key: "a".to_owned(),
            revision: 8,
        };
        assert_eq!(event(&delete), Some(expected));
        for bad in [json!({}), json!(1), json!({ "kv": { "key": "%" } })] {
            let decoded = event(&bad);
            assert!(decoded.is_none_or(|it| matches!(it, Event::Put(it) if it.key.is_empty())));
        }
    }
}
