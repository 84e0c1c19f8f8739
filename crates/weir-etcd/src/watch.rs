//! Reads the response to a watch request: a long-lived HTTP response with one JSON object per line.

use http_body_util::BodyExt;
use hyper::Response;
use hyper::body::Incoming;
use serde_json::Value;
use weir_cluster::Input;

use crate::client::{Client, Error};
use crate::message;

/// Maximum length of a line, in bytes.
const MAX_LINE_BYTES: usize = 64 << 20;

/// Watches a range until the watch ends. Passes the changes and the end of the watch to `report`.
pub(crate) async fn run(
    client: &Client,
    (key, end): (&str, &str),
    start_revision: i64,
    report: impl Fn(Input),
) {
    let last_event = match client.watch(key, end, start_revision).await {
        Ok(response) => read_lines(client, response, &report).await,
        Err(error) => watch_ended(error),
    };
    report(last_event);
}

/// Returns the event for a watch that ended with an error.
fn watch_ended(error: Error) -> Input {
    Input::WatchEnded {
        is_compacted: false,
        reason: error.to_string(),
    }
}

/// Reads lines until the watch ends. Returns the last event.
async fn read_lines(
    client: &Client,
    response: Response<Incoming>,
    report: &impl Fn(Input),
) -> Input {
    let mut body = response.into_body();
    let mut buffer: Vec<u8> = Vec::new();
    loop {
        let frame = match body.frame().await {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => return watch_ended(client.protocol_error(error)),
            None => return watch_ended(client.protocol_error("etcd closed the watch")),
        };
        let Ok(data) = frame.into_data() else {
            continue;
        };
        let searched_length = buffer.len();
        buffer.extend_from_slice(&data);
        if buffer.len() > MAX_LINE_BYTES {
            return watch_ended(client.protocol_error("a watch response is too large"));
        }
        if !buffer[searched_length..].contains(&b'\n') {
            continue;
        }
        let mut start = 0;
        while let Some(length) = buffer[start..].iter().position(|byte| *byte == b'\n') {
            let line = &buffer[start..start + length];
            start += length + 1;
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            if let Some(end) = handle_line(client, line, report) {
                return end;
            }
        }
        buffer.drain(..start);
    }
}

/// Passes the changes in a line to `report`. If the line ends the watch, returns the last event.
fn handle_line(client: &Client, line: &[u8], report: &impl Fn(Input)) -> Option<Input> {
    let Ok(line) = serde_json::from_slice::<Value>(line) else {
        return Some(watch_ended(
            client.protocol_error("a watch response is not JSON"),
        ));
    };
    let result = &line["result"];
    if let Some(error) = line.get("error") {
        let message = error["message"]
            .as_str()
            .unwrap_or("etcd returned an error without a message");
        return Some(watch_ended(client.protocol_error(message)));
    }
    if result["canceled"] == true {
        let is_compacted = message::parse_integer(&result["compact_revision"]) > 0;
        let reason = result["cancel_reason"].as_str();
        return Some(Input::WatchEnded {
            is_compacted,
            reason: reason.unwrap_or("etcd canceled the watch").to_owned(),
        });
    }
    let events = result["events"].as_array();
    let events: Vec<_> = events
        .into_iter()
        .flatten()
        .filter_map(message::parse_event)
        .collect();
    report(Input::Watched { events });
    None
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::time::Duration;

    use weir_cluster::{Entry, Event};
    use weir_model::EtcdEndpoint;

    use super::*;

    /// Returns the reported inputs, and the input that ends the watch.
    fn handle(line: &str) -> (Vec<Input>, Option<Input>) {
        let endpoint = EtcdEndpoint::parse("http://192.0.2.1:2379").expect("URL is valid");
        let client = Client::new(vec![endpoint], None, None, Duration::from_secs(1));
        let inputs = RefCell::new(Vec::new());
        let report = |input| inputs.borrow_mut().push(input);
        let end = handle_line(&client, line.as_bytes(), &report);
        (inputs.into_inner(), end)
    }

    fn watched(events: Vec<Event>) -> (Vec<Input>, Option<Input>) {
        (vec![Input::Watched { events }], None)
    }

    #[test]
    fn changes_are_reported() {
        let put = Event::Put(Entry {
            key: "a".to_owned(),
            value: b"b".to_vec(),
            revision: 7,
        });
        let delete = Event::Delete {
            key: "a".to_owned(),
            revision: 8,
        };
        let line = r#"{"result":{"header":{"revision":"8"},"events":[
            {"kv":{"key":"YQ==","value":"Yg==","mod_revision":"7"}},
            {"type":"DELETE","kv":{"key":"YQ==","mod_revision":"8"}}]}}"#;
        assert_eq!(handle(line), watched(vec![put, delete]));
        let created = r#"{"result":{"header":{"revision":"8"},"created":true}}"#;
        assert_eq!(handle(created), watched(Vec::new()));
    }

    /// The keys are read again immediately only after a compaction, which shows that etcd responds. Every other end of
    /// a watch counts as a connection failure.
    #[test]
    fn end_of_watch_states_whether_etcd_has_compacted_the_revision() {
        let prefix = "192.0.2.1:2379: ";
        for (line, is_compacted, reason) in [
            (
                r#"{"result":{"canceled":true,"compact_revision":"9","cancel_reason":"etcdserver: mvcc: compacted"}}"#,
                true,
                "etcdserver: mvcc: compacted".to_owned(),
            ),
            (
                r#"{"result":{"canceled":true,"compact_revision":"9"}}"#,
                true,
                "etcd canceled the watch".to_owned(),
            ),
            (
                r#"{"result":{"canceled":true,"cancel_reason":"etcdserver: no leader"}}"#,
                false,
                "etcdserver: no leader".to_owned(),
            ),
            (
                r#"{"result":{"canceled":true,"compact_revision":"0"}}"#,
                false,
                "etcd canceled the watch".to_owned(),
            ),
            (
                r#"{"error":{"grpc_code":14,"message":"etcdserver: no leader"}}"#,
                false,
                format!("{prefix}etcdserver: no leader"),
            ),
            (
                r#"{"error":{}}"#,
                false,
                format!("{prefix}etcd returned an error without a message"),
            ),
            (
                "not JSON",
                false,
                format!("{prefix}a watch response is not JSON"),
            ),
        ] {
            let (inputs, end) = handle(line);
            assert_eq!(inputs, [], "{line}");
            let Some(Input::WatchEnded {
                is_compacted: found,
                reason: found_reason,
            }) = end
            else {
                panic!("{line}: {end:?}");
            };
            assert_eq!(found, is_compacted, "{line}");
            assert!(found_reason.ends_with(&reason), "{line}: {found_reason}");
        }
    }
}
