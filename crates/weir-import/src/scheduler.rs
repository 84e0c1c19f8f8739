//! Converts names of other proxies' schedulers to Weir's.

use crate::document::{Entry, Item, Value};

/// Returns the value of `scheduler` for a scheduler of haproxy or nginx. Other names are the same in weir.toml.
pub(crate) fn scheduler(name: &str) -> Value {
    match name {
        "roundrobin" | "static-rr" | "round_robin" => "wrr".into(),
        "leastconn" | "least_conn" => "wlc".into(),
        "random" => "p2c".into(),
        "source" => Value::Table(vec![
            Entry::implied("name", "sh").essential(),
            Entry::implied("flags", vec![Item::new("sh-fallback", None)]),
        ]),
        // All other names are valid in weir.toml. `first` and `ip_hash` are aliases there, but have no other name.
        name => name.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converted_name_and_alias_select_the_same_scheduler() {
        let parse = |scheduler: &str| {
            let text = format!("[pool.a]\nservers = [\"10.0.0.5:80\"]\nscheduler = {scheduler}\n");
            let parsed = weir_config::parse(&text, &weir_config::Host::default());
            let desired = parsed.expect("parser accepts the scheduler").desired;
            desired.pools[0].scheduler
        };
        for name in [
            "roundrobin",
            "static-rr",
            "round_robin",
            "leastconn",
            "least_conn",
            "random",
            "source",
            "ip_hash",
            "first",
        ] {
            let imported = match scheduler(name) {
                Value::Text(text) => format!("\"{text}\""),
                _ => "{ name = \"sh\", flags = [\"sh-fallback\"] }".to_owned(),
            };
            assert_eq!(parse(&imported), parse(&format!("\"{name}\"")), "{name}");
        }
    }
}
