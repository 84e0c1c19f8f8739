//! Builds configurations with many health checks and reads the status of each checked server.

use super::{Family, World};

/// Returns a configuration with a pool and a service for each check (name, keys) of server 0. Service `n` listens on
/// port `1000 + n`.
pub fn config(checks: &[(&str, impl AsRef<str>)], timeout: &str) -> String {
    let mut text = "[node]\ninterfaces = [\"eth0\"]\n".to_owned();
    for (n, (name, check)) in (0..).zip(checks) {
        text += &format!(
            "[pool.{name}]\nservers = [{{ address = \"{}\", weight = 100 }}]\n\
             [pool.{name}.check]\ninterval = \"300ms\"\ntimeout = \"{timeout}\"\nrise = 1\nfall = 1\n{}\n\
             [service.{name}]\nlisten = [\"{}:{}\"]\nforward = \"direct\"\npool = \"{name}\"\n",
            Family::V4.server(0),
            check.as_ref(),
            Family::V4.vip(),
            1000 + n
        );
    }
    text
}

/// Returns the status of the only server of the named service.
pub fn server(world: &World, name: &str) -> serde_json::Value {
    let status = world.status();
    let services = status["services"].as_array().expect("services is an array");
    let service = services.iter().find(|service| service["name"] == name);
    service.expect("the status contains the service")["servers"][0].clone()
}
