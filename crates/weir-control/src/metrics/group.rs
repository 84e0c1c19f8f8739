//! Writes the metrics of the group of directors.

use super::text::Text;
use crate::status::Report;

pub(super) fn write_members(text: &mut Text, report: &Report) {
    let Some(group) = &report.cluster else {
        return;
    };
    text.write_single(
        "weir_cluster_connected",
        "gauge",
        "1 while etcd responds.",
        u64::from(group.etcd == "connected"),
    );
    text.write_single(
        "weir_cluster_published_version",
        "gauge",
        "Version of the published configuration.",
        group.published,
    );
    text.write_single(
        "weir_cluster_pending",
        "gauge",
        "Changes from this director that are not in etcd yet.",
        group.pending as u64,
    );
    text.write_single(
        "weir_cluster_state_saved",
        "gauge",
        "1 while the state that this director uses when etcd is unavailable is saved on disk.",
        u64::from(group.record_error.is_none()),
    );
    text.write_single(
        "weir_cluster_rollout_stopped",
        "gauge",
        "1 while the rollout of the configuration is stopped.",
        u64::from(group.rollout == "stopped"),
    );
    text.write_single(
        "weir_cluster_servers_down",
        "gauge",
        "Servers that the group considers down.",
        group.down.len() as u64,
    );
    let name = "weir_cluster_member_present";
    text.write_family(name, "gauge", "1 while the director's lease is valid.");
    for member in &group.members {
        let is_present = u64::from(member.state == "present");
        text.write_sample(name, &[("member", member.name.as_str())], is_present);
    }
    let name = "weir_cluster_member_version";
    text.write_family(
        name,
        "gauge",
        "Version of the configuration that the director has applied.",
    );
    for member in &group.members {
        text.write_sample(name, &[("member", member.name.as_str())], member.version);
    }
}
