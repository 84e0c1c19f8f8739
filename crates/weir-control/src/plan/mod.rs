//! What a reload would change, and how many live flows each change touches: `weir plan`.
//!
//! Pure: the difference of two desired states in the words of [`weir_model::diff`], with counts that the caller knows.
//! It does not say how a change reaches the kernel.

use std::fmt;

use serde::{Deserialize, Serialize};
use weir_model::{Change, Desired, OnRemove, diff};

/// `POST /v1/plan`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// In the order of the file.
    pub changes: Vec<Planned>,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Planned {
    /// `+` added, `-` removed, `~` changed, and what.
    pub change: String,
    /// Live flows of what changes.
    pub flows: u64,
    /// What becomes of these flows; absent where nothing does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<String>,
}

/// Live flows of a service, or of one server in it by its address as in the file.
pub trait LiveFlows {
    /// Counts them.
    fn count(&self, service: &str, server: Option<&str>) -> u64;
}

impl<F: Fn(&str, Option<&str>) -> u64> LiveFlows for F {
    fn count(&self, service: &str, server: Option<&str>) -> u64 {
        self(service, server)
    }
}

/// From what is in force to what a file asks for.
pub fn plan(old: &Desired, new: &Desired, live: &impl LiveFlows) -> Plan {
    let planned = |change: &Change| Planned {
        change: change.to_string(),
        flows: touched(change, old, live),
        effect: effect(change, new).map(str::to_owned),
    };
    Plan {
        changes: diff(old, new).iter().map(planned).collect(),
    }
}

fn touched(change: &Change, old: &Desired, live: &impl LiveFlows) -> u64 {
    let of_pool = |pool: &str, server: Option<&str>| {
        let layer_4 = old
            .services
            .iter()
            .map(|service| (&service.name, &service.pool));
        let proxies = old
            .proxies
            .iter()
            .filter(|proxy| proxy.pools().contains(&pool));
        layer_4
            .filter(|(_, used)| *used == pool)
            .map(|(service, _)| service)
            .chain(proxies.map(|proxy| &proxy.name))
            .map(|service| live.count(service, server))
            .sum()
    };
    match change {
        Change::Node(_) => 0,
        Change::Timeouts(_) | Change::Ipvs(_) => {
            let count = |service: &weir_model::Service| live.count(&service.name, None);
            old.services.iter().map(count).sum()
        }
        Change::PoolAdded { .. } | Change::ServerAdded { .. } | Change::ServiceAdded { .. } => 0,
        Change::PoolRemoved { pool, .. }
        | Change::PoolChanged { pool, .. }
        | Change::ServersReordered { pool } => of_pool(pool, None),
        Change::ServerRemoved { pool, server } | Change::ServerChanged { pool, server, .. } => {
            of_pool(pool, Some(server))
        }
        Change::ServiceRemoved { service, .. } | Change::ServiceChanged { service, .. } => {
            live.count(service, None)
        }
    }
}

fn effect(change: &Change, new: &Desired) -> Option<&'static str> {
    let Change::ServerRemoved { pool, .. } = change else {
        return None;
    };
    Some(match new.pool(pool)?.on_remove {
        OnRemove::Keep => "live on",
        OnRemove::Reset => "are reset",
        OnRemove::Reschedule => "choose another server",
    })
}

/// A line a change, then the sum.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for planned in &self.changes {
            write!(f, "{}", planned.change)?;
            if planned.flows != 0 {
                let effect = planned.effect.as_deref().unwrap_or("touched");
                write!(f, "  ({} {effect})", flows(planned.flows))?;
            }
            writeln!(f)?;
        }
        match self.changes.len() {
            0 => writeln!(f, "no changes"),
            1 => writeln!(f, "1 change"),
            count => writeln!(f, "{count} changes"),
        }
    }
}

fn flows(count: u64) -> String {
    format!("{count} live flow{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_config::{Host, parse};

    const BEFORE: &str = r#"
        [pool.images]
        servers = ["10.0.0.5", "10.0.0.6"]
        [service.images]
        listen = ["192.0.2.10:80"]
        forward = "direct"
        pool = "images"
        [service.old]
        listen = ["192.0.2.11:80"]
        forward = "nat"
        pool = "images"
    "#;

    const AFTER: &str = r#"
        [timeouts]
        tcp = "5m"
        [pool.images]
        on_remove = "reset"
        servers = [{ address = "10.0.0.5", weight = 3 }, "10.0.0.7"]
        [service.images]
        listen = ["192.0.2.10:80"]
        forward = "direct"
        pool = "images"
    "#;

    fn desired(text: &str) -> Desired {
        parse(text, &Host::default()).unwrap().desired
    }

    fn live(service: &str, server: Option<&str>) -> u64 {
        let each = if service == "images" { 10 } else { 1 };
        if server.is_some() { each } else { 2 * each }
    }

    #[test]
    fn changes_with_the_flows_that_they_touch() {
        insta::assert_snapshot!(plan(&desired(BEFORE), &desired(AFTER), &live));
    }

    #[test]
    fn without_a_daemon_all_is_new() {
        let none = |_: &str, _: Option<&str>| 0;
        insta::assert_snapshot!(plan(&Desired::default(), &desired(BEFORE), &none));
    }

    #[test]
    fn the_same_twice_is_no_change() {
        let same = desired(AFTER);
        assert_eq!(plan(&same, &same, &live).to_string(), "no changes\n");
    }
}
