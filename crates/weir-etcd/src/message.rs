//! Encodes and decodes the JSON of etcd's gateway.
//!
//! 64-bit integers are strings, and keys and values are encoded as base64.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use weir_cluster::{Compare, Entry, Event, Txn, Write};

pub(crate) fn encode_bytes(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Decodes base64. A missing value is empty, because the gateway omits empty values.
fn decode_bytes(value: &Value) -> Option<Vec<u8>> {
    STANDARD.decode(value.as_str().unwrap_or_default()).ok()
}

/// Parses a 64-bit integer, which is usually a string. Returns 0 if it is missing (the gateway omits 0) or invalid.
pub(crate) fn parse_integer(value: &Value) -> i64 {
    match value {
        Value::String(text) => text.parse().unwrap_or_default(),
        other => other.as_i64().unwrap_or_default(),
    }
}

pub(crate) fn parse_revision(response: &Value) -> i64 {
    parse_integer(&response["header"]["revision"])
}

pub(crate) fn parse_entry(kv: &Value) -> Option<Entry> {
    Some(Entry {
        key: String::from_utf8(decode_bytes(&kv["key"])?).ok()?,
        value: decode_bytes(&kv["value"])?,
        revision: parse_integer(&kv["mod_revision"]),
    })
}

/// Returns the entries in the response to a range request. Skips keys that are not UTF-8, which other programs wrote.
pub(crate) fn parse_entries(response: &Value) -> Vec<Entry> {
    let kvs = response["kvs"].as_array();
    kvs.into_iter().flatten().filter_map(parse_entry).collect()
}

pub(crate) fn parse_event(event: &Value) -> Option<Event> {
    let entry = parse_entry(&event["kv"])?;
    Some(match event["type"].as_str() {
        Some("DELETE") => Event::Delete {
            key: entry.key,
            revision: entry.revision,
        },
        _ => Event::Put(entry),
    })
}

pub(crate) fn range_request(key: &str, end: &str) -> Value {
    json!({ "key": encode_bytes(key.as_bytes()), "range_end": encode_bytes(end.as_bytes()) })
}

pub(crate) fn watch_request(key: &str, end: &str, start_revision: i64) -> Value {
    json!({ "create_request": {
        "key": encode_bytes(key.as_bytes()),
        "range_end": encode_bytes(end.as_bytes()),
        "start_revision": start_revision.to_string(),
    } })
}

/// Encodes a transaction. If a condition fails, etcd returns the compared keys: only the key for an existence
/// condition, and otherwise its value too.
pub(crate) fn txn_request(txn: &Txn, lease: Option<i64>) -> Value {
    let compares = txn.compares.iter().map(|compare| match compare {
        Compare::Revision(key, revision) => json!({
            "key": encode_bytes(key.as_bytes()),
            "target": "MOD",
            "result": "EQUAL",
            "mod_revision": revision.to_string(),
        }),
        Compare::Exists(key) => json!({
            "key": encode_bytes(key.as_bytes()),
            "target": "CREATE",
            "result": "GREATER",
            "create_revision": "0",
        }),
    });
    let writes = txn.writes.iter().map(|write| match write {
        Write::Put(put) => {
            let mut request = json!({
                "key": encode_bytes(put.key.as_bytes()),
                "value": encode_bytes(&put.value),
            });
            if let Some(lease) = lease.filter(|_| put.leased) {
                request["lease"] = json!(lease.to_string());
            }
            json!({ "request_put": request })
        }
        Write::Delete(key) => {
            json!({ "request_delete_range": { "key": encode_bytes(key.as_bytes()) } })
        }
    });
    let reads = txn.compares.iter().map(|compare| {
        let keys_only = matches!(compare, Compare::Exists(_));
        json!({ "request_range": { "key": encode_bytes(compare.key().as_bytes()), "keys_only": keys_only } })
    });
    json!({
        "compare": compares.collect::<Vec<_>>(),
        "success": writes.collect::<Vec<_>>(),
        "failure": reads.collect::<Vec<_>>(),
    })
}

/// Returns the object with the code and the message of an error response; `None` = the response is not an error.
pub(crate) fn error_of(response: &Value) -> Option<&Value> {
    match response.get("error") {
        // Responses to streaming requests wrap the error in an object.
        Some(error @ Value::Object(_)) => Some(error),
        Some(_) => Some(response),
        // Version 2 of etcd's gateway (etcd 3.6, and 3.5 in Debian) reports errors without `error`. No other response
        // has a code and a message.
        None => {
            let is_error = response["code"].is_number() && response["message"].is_string();
            is_error.then_some(response)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_all_gateway_versions_are_recognized() {
        let message = |response: Value| {
            error_of(&response)
                .map(|error| error["message"].as_str().unwrap_or_default().to_owned())
        };
        let expected = Some("no such user".to_owned());
        for response in [
            json!({ "error": "no such user", "code": 3, "message": "no such user" }),
            json!({ "error": { "grpc_code": 3, "message": "no such user" } }),
            json!({ "code": 3, "message": "no such user" }),
        ] {
            assert_eq!(message(response), expected);
        }
        assert_eq!(message(json!({ "header": { "revision": "3" } })), None);
    }

    #[test]
    fn gateway_events_are_decoded() {
        let put = json!({ "kv": { "key": "YQ==", "value": "Yg==", "mod_revision": "7" } });
        let expected = Entry {
            key: "a".to_owned(),
            value: b"b".to_vec(),
            revision: 7,
        };
        assert_eq!(parse_event(&put), Some(Event::Put(expected)));
        let delete = json!({ "type": "DELETE", "kv": { "key": "YQ==", "mod_revision": "8" } });
        let expected = Event::Delete {
            key: "a".to_owned(),
            revision: 8,
        };
        assert_eq!(parse_event(&delete), Some(expected));
        for invalid in [json!({}), json!(1), json!({ "kv": { "key": "%" } })] {
            let decoded = parse_event(&invalid);
            assert!(decoded.is_none_or(|it| matches!(it, Event::Put(it) if it.key.is_empty())));
        }
    }
}
