//! Writes the metrics of flow synchronization.

use weir_engine_host::SyncPeerStatus;

use super::text::{Seconds, Text};
use crate::status::Report;

type Value = (
    &'static str,
    &'static str,
    &'static str,
    fn(&SyncPeerStatus) -> u64,
);

const VALUES: [Value; 9] = [
    (
        "weir_sync_peer_up",
        "gauge",
        "1 while the peer responds and acknowledges flows.",
        |peer| {
            let state = peer.state.as_str();
            u64::from(!matches!(state, "connecting" | "silent" | "unacknowledged"))
        },
    ),
    (
        "weir_sync_peer_lag_milliseconds",
        "gauge",
        "Deprecated, use weir_sync_peer_lag_seconds. Age of the oldest change that the peer has not acknowledged.",
        |peer| peer.lag_ms,
    ),
    (
        "weir_sync_queued",
        "gauge",
        "Changed flows that are waiting to be sent.",
        |peer| peer.queued,
    ),
    (
        "weir_sync_lost_total",
        "counter",
        "Datagrams that the peer did not receive; their flows were sent again.",
        |peer| peer.lost,
    ),
    (
        "weir_sync_dropped_total",
        "counter",
        "Changes dropped because the queue was full; all flows were sent instead.",
        |peer| peer.dropped,
    ),
    ("weir_sync_sent_total", "counter", "Records sent.", |peer| {
        peer.sent
    }),
    (
        "weir_sync_received_total",
        "counter",
        "Records received.",
        |peer| peer.received,
    ),
    (
        "weir_sync_transfers_total",
        "counter",
        "Number of times all flows were sent.",
        |peer| peer.transfers,
    ),
    (
        "weir_sync_peer_proxied_connections",
        "gauge",
        "Connections of the peer's proxy that this director resets when it takes over their VIP.",
        |peer| peer.proxied_connections,
    ),
];

pub(super) fn write_peers(text: &mut Text, report: &Report) {
    let Some(sync) = &report.sync else {
        return;
    };
    for (name, kind, help, value) in VALUES {
        text.write_family(name, kind, help);
        for peer in &sync.peers {
            text.write_sample(name, &[("peer", peer.address.as_str())], value(peer));
        }
    }
    let name = "weir_sync_peer_lag_seconds";
    let help = "Age of the oldest change that the peer has not acknowledged.";
    text.write_family(name, "gauge", help);
    for peer in &sync.peers {
        let lag = Seconds(peer.lag_ms.saturating_mul(1_000));
        text.write_sample(name, &[("peer", peer.address.as_str())], lag);
    }
    let name = "weir_sync_ignored_total";
    text.write_family(name, "counter", "Datagrams ignored, by reason.");
    for peer in &sync.peers {
        for (reason, count) in &peer.ignored {
            let labels = [("peer", peer.address.as_str()), ("reason", reason)];
            text.write_sample(name, &labels, *count);
        }
    }
    let name = "weir_sync_records_total";
    text.write_family(name, "counter", "Records received from peers, by result.");
    for (result, count) in &sync.records {
        text.write_sample(name, &[("result", result.as_str())], *count);
    }
    let name = "weir_sync_unknown_senders_total";
    text.write_single(
        name,
        "counter",
        "Datagrams from unknown addresses.",
        sync.unknown_senders,
    );
    let name = "weir_sync_overwritten_total";
    text.write_single(
        name,
        "counter",
        "Changes that were overwritten before they were read, and found by iterating over the table.",
        sync.overwritten,
    );
    let name = "weir_sync_proxied_connections";
    text.write_single(
        name,
        "gauge",
        "Connections of this director's proxy that were sent to the peers.",
        sync.proxied_connections,
    );
    let name = "weir_sync_excess_connections";
    text.write_single(
        name,
        "gauge",
        "Proxied connections that are not sent to the peers because there are too many.",
        sync.excess_connections,
    );
    let name = "weir_sync_reset_prompts_total";
    text.write_single(
        name,
        "counter",
        "Segments sent after takeovers so that clients of the other director's proxy get a reset.",
        sync.reset_prompts,
    );
}
