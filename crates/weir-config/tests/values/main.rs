//! Tests the values of keys: which values are accepted, and what they mean in the model.

mod check;
mod machine;
mod name;
mod pool;
mod route;
mod service;
mod vrrp;

use weir_config::{Host, Machine, parse};
use weir_model::Desired;

/// Returns the messages of all findings, in text order.
fn messages_on(text: &str, machine: &dyn Machine) -> Vec<String> {
    let found = match parse(text, machine) {
        Ok(parsed) => parsed.findings,
        Err(found) => found,
    };
    found.into_iter().map(|it| it.message).collect()
}

fn messages(text: &str) -> Vec<String> {
    messages_on(text, &Host::default())
}

/// Returns the model of a configuration without findings.
#[track_caller]
fn desired(text: &str) -> Desired {
    assert_eq!(messages(text), Vec::<String>::new(), "{text}");
    parse(text, &Host::default()).expect("no findings").desired
}

const POOL: &str = "[pool.p]\nservers = [\"10.0.0.5:80\"]\ncheck = { kind = \"tcp\" }\n";

/// Returns a configuration with one HTTP service and additional lines in its table.
fn with_service(lines: &str) -> String {
    format!(
        "{POOL}[service.s]\nlisten = [\"192.0.2.1:80\"]\nforward = \"proxy\"\nprotocol = \"http\"\npool = \"p\"\n\
         {lines}\n"
    )
}
