//! Deserializes fields of a snapshot from another process, and maps names to this build's static strings.

use serde::de::Error;
use serde::{Deserialize, Deserializer};
use weir_abi::{LATENCY_REASONS, REASONS};
use weir_dataplane::Mode;

use super::Counter;

/// Reads counters. Skips those that this build does not have.
fn read_counters<'de, D: Deserializer<'de>>(
    deserializer: D,
    find: impl Fn(&str) -> Option<(&'static str, &'static str)>,
) -> Result<Vec<Counter>, D::Error> {
    let sent = Vec::<(String, String, u64)>::deserialize(deserializer)?;
    let counters = sent.into_iter().filter_map(|(label, _, count)| {
        let (label, text) = find(&label)?;
        Some((label, text, count))
    });
    Ok(counters.collect())
}

pub(super) fn reasons<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<Counter>, D::Error> {
    read_counters(deserializer, |label| {
        let info = REASONS.iter().find(|info| info.label == label)?;
        Some((info.label, info.text))
    })
}

pub(super) fn latency<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<Counter>, D::Error> {
    read_counters(deserializer, |label| {
        let (_, label, text) = LATENCY_REASONS
            .iter()
            .find(|(_, known, _)| *known == label)?;
        Some((*label, *text))
    })
}

/// Reads a name, which must be one of `names`.
fn one_of<'de, D: Deserializer<'de>>(
    deserializer: D,
    names: &[&'static str],
) -> Result<&'static str, D::Error> {
    let name = String::deserialize(deserializer)?;
    let static_name = names.iter().find(|static_name| **static_name == name);
    static_name
        .copied()
        .ok_or_else(|| D::Error::custom(format!("unknown name {name:?}")))
}

pub(super) fn mode<'de, D: Deserializer<'de>>(deserializer: D) -> Result<&'static str, D::Error> {
    one_of(
        deserializer,
        &[Mode::Native, Mode::Generic, Mode::Tc].map(Mode::as_str),
    )
}

pub(super) fn origin<'de, D: Deserializer<'de>>(deserializer: D) -> Result<&'static str, D::Error> {
    one_of(deserializer, &["file", "ipvsadm"])
}

/// Reads and writes a forwarding method as its name.
pub(super) mod forward {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};
    use weir_model::Forward;

    pub(in crate::snapshot) fn serialize<S: Serializer>(
        forward: &Forward,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(forward.as_str())
    }

    pub(in crate::snapshot) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Forward, D::Error> {
        let name = String::deserialize(deserializer)?;
        let known = Forward::ALL
            .into_iter()
            .find(|known| known.as_str() == name);
        known.ok_or_else(|| D::Error::custom(format!("unknown forwarding method {name:?}")))
    }
}
