//! Expands environment variables in addresses, such as `listen = ["0.0.0.0:${PORT}"]`.
//!
//! Containers get their ports and servers from environment variables. Only `listen` of services and addresses of
//! servers are expanded; `$` has no meaning elsewhere.

use std::borrow::Cow;
use std::ops::Range;

use crate::address;
use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::tree::{Item, Table, Value};
use crate::verify::Machine;
use crate::view::Sink;

/// The keys that are expanded, with their tables.
const EXPANDED: [(&str, &str); 2] = [("service", "listen"), ("pool", "servers")];

fn key_of(table: &str) -> Option<&'static str> {
    let found = EXPANDED.iter().find(|(name, _)| *name == table);
    found.map(|(_, key)| *key)
}

/// A variable that a configuration uses.
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) span: Range<usize>,
    /// The key of the address.
    pub(crate) key: &'static str,
    /// The table of the key, as in `pool.web`.
    pub(crate) location: String,
}

/// Returns the variables in a configuration, in the order of its tables.
pub(crate) fn variables(root: &Table<'_>) -> Vec<Variable> {
    let mut found = Vec::new();
    for entry in &root.entries {
        let (Some(key), Value::Table(named)) = (key_of(&entry.key), &entry.item.value) else {
            continue;
        };
        for table in &named.entries {
            let Value::Table(settings) = &table.item.value else {
                continue;
            };
            for setting in settings.entries.iter().filter(|it| it.key == key) {
                for_each_name(&setting.item, &mut |name, span| {
                    found.push(Variable {
                        name: name.to_owned(),
                        span: span.clone(),
                        key,
                        location: format!("{}.{}", entry.key, table.key),
                    });
                });
            }
        }
    }
    found
}

/// Calls `action` with the name and position of each variable.
fn for_each_name(item: &Item<'_>, action: &mut impl FnMut(&str, &Range<usize>)) {
    match &item.value {
        Value::Text(text) => {
            let mut rest = text.as_ref();
            while let Some((_, after)) = rest.split_once("${") {
                let (inner, after) = after.split_once('}').unwrap_or((after, ""));
                let name = inner.split_once(":-").map_or(inner, |(name, _)| name);
                action(name, &item.span);
                rest = after;
            }
        }
        Value::List(items) => items.iter().for_each(|item| for_each_name(item, action)),
        Value::Table(table) => {
            for entry in table.entries.iter().filter(|it| it.key == "address") {
                for_each_name(&entry.item, action);
            }
        }
        Value::Integer(_) | Value::Float(_) | Value::Bool(_) | Value::Datetime | Value::Null => {}
    }
}

/// Returns the configuration with its environment variables expanded, or `None` if the text contains no `${`.
pub(crate) fn expand_variables(
    sink: &mut Sink<'_>,
    text: &str,
    root: &Table<'_>,
    host: &dyn Machine,
) -> Option<Table<'static>> {
    if !text.contains("${") {
        return None;
    }
    let mut root = root.clone().into_owned();
    for entry in &mut root.entries {
        let Some(key) = key_of(&entry.key) else {
            continue;
        };
        let Value::Table(named) = &mut entry.item.value else {
            continue;
        };
        let tables = named.entries.iter_mut();
        for table in tables.filter_map(|it| match &mut it.item.value {
            Value::Table(table) => Some(table),
            _ => None,
        }) {
            for setting in table.entries.iter_mut().filter(|it| it.key == key) {
                expand(sink, &mut setting.item, key, host);
            }
        }
    }
    Some(root)
}

/// Expands a string, each string in a list, or the `address` key of a table.
fn expand(sink: &mut Sink<'_>, item: &mut Item<'_>, key: &str, host: &dyn Machine) {
    let expand_address = |text: &str| {
        let address = expand_text(text, host)?;
        let is_valid = match key {
            "listen" => {
                address::parse_layer_4_listener(&address).is_ok()
                    || address::parse_proxy_listener(&address).is_ok()
            }
            _ => address::parse_server(&address).is_ok(),
        };
        // A later error would quote the values.
        is_valid.then_some(address).ok_or_else(|| {
            let text = text.escape_debug();
            let message = format!("`{text}` does not expand to a valid address");
            (
                message,
                "set the variables to addresses and ports".to_owned(),
            )
        })
    };
    match &mut item.value {
        Value::Text(text) if text.contains("${") => match expand_address(text) {
            Ok(address) => *text = Cow::Owned(address),
            Err((message, fix)) => {
                sink.push(Diagnostic::new(Code::BadAddress, &item.span, message).fix(fix));
                // Use a valid placeholder, so the address is not reported a second time.
                *text = Cow::Borrowed("192.0.2.0:1");
            }
        },
        Value::List(items) => items
            .iter_mut()
            .for_each(|item| expand(sink, item, key, host)),
        Value::Table(table) => {
            for entry in table.entries.iter_mut().filter(|it| it.key == "address") {
                expand(sink, &mut entry.item, key, host);
            }
        }
        Value::Text(_)
        | Value::Integer(_)
        | Value::Float(_)
        | Value::Bool(_)
        | Value::Datetime
        | Value::Null => {}
    }
}

/// Replaces `${NAME}` and `${NAME:-DEFAULT}`. An error consists of a message and a fix; neither contains a value.
fn expand_text(text: &str, host: &dyn Machine) -> Result<String, (String, String)> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        out.push_str(before);
        let Some((inner, after)) = after.split_once('}') else {
            let message = format!("`}}` is missing after `${{` in `{}`", text.escape_debug());
            return Err((message, "write `${NAME}`".to_owned()));
        };
        let (name, default) = match inner.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inner, None),
        };
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if name.is_empty() || !name.bytes().all(is_name) {
            let message = format!("`{}` is not a valid variable name", name.escape_debug());
            return Err((message, "use letters, digits and `_`".to_owned()));
        }
        let is_first = out.is_empty() || out.ends_with('/');
        out.push_str(&match (variable_value(name, default, host)?, is_first) {
            (Some(value), _) => value,
            (None, true) if after.is_empty() => {
                format!("{}:{}", placeholder_address(name), placeholder_port(name))
            }
            (None, true) => placeholder_address(name),
            (None, false) => placeholder_port(name),
        });
        rest = after;
    }
    out.push_str(rest);
    // Whether a caller may use a Unix socket is checked on the unexpanded text, so expansion must not produce one.
    if out.starts_with(weir_model::unix_socket::PREFIX) {
        let message = "a Unix socket path must not come from an environment variable".to_owned();
        return Err((message, "write the full path".to_owned()));
    }
    Ok(out)
}

/// Returns the variable's value or its default; `None` if the environment of the target host is unknown and there is no
/// default.
fn variable_value(
    name: &str,
    default: Option<&str>,
    host: &dyn Machine,
) -> Result<Option<String>, (String, String)> {
    let found = match host.variable(name) {
        Some(Ok(value)) => String::from_utf8_lossy(&value.bytes).trim().to_owned(),
        Some(Err(_)) => String::new(),
        None => return Ok(default.map(str::to_owned)),
    };
    let found = match (found.as_str(), default) {
        ("", Some(default)) => default.to_owned(),
        _ => found,
    };
    // Allow only characters of addresses and ports, so messages show no other content of the environment.
    let is_address_byte = |byte: u8| byte.is_ascii_hexdigit() || b".:[]*-".contains(&byte);
    if found.is_empty() {
        let message = format!("the environment variable {name} is not set or is empty");
        let fix = format!("set it in Weir's environment, or write `${{{name}:-DEFAULT}}`");
        return Err((message, fix));
    }
    if !found.bytes().all(is_address_byte) {
        let message = format!("the environment variable {name} is neither an address nor a port");
        return Err((
            message,
            "use a numeric address or port: host names are not resolved here".to_owned(),
        ));
    }
    Ok(Some(found))
}

/// Returns a hash of the name, so placeholders for different variables rarely collide.
fn name_hash(name: &str) -> u32 {
    name.bytes().fold(7_u32, |hash, byte| {
        hash.wrapping_mul(31).wrapping_add(u32::from(byte))
    })
}

/// Returns a placeholder port, for a host whose environment is unknown.
fn placeholder_port(name: &str) -> String {
    (20_000 + name_hash(name) % 10_000).to_string()
}

/// Returns a placeholder address from the benchmarking range 198.18.0.0/15 (RFC 2544), for a host whose environment is
/// unknown.
fn placeholder_address(name: &str) -> String {
    let [_, _, third, fourth] = name_hash(name).to_be_bytes();
    format!("198.18.{third}.{}", fourth.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::SecretValue;
    use weir_model::{Family, SecretSource};

    struct WithVariables(&'static [(&'static str, &'static str)]);

    impl Machine for WithVariables {
        fn local_ports(&self) -> Option<(u16, u16)> {
            None
        }

        fn forwards(&self, _: Family) -> Option<bool> {
            None
        }

        fn secret(&self, source: &SecretSource) -> Option<Result<SecretValue, String>> {
            let SecretSource::Env(variable) = source else {
                return None;
            };
            let found = self.0.iter().find(|(name, _)| name == variable);
            let value = |(_, text): &(&str, &str)| SecretValue {
                bytes: text.as_bytes().to_vec(),
                exposed: None,
            };
            Some(found.map(value).ok_or_else(|| "not set".to_owned()))
        }
    }

    const TEXT: &str = "[pool.a]\nservers = [\"${SERVER}:${PORT:-80}\", { address = \"${SERVER}\" }]\n\
                        [service.a]\nlisten = [\"0.0.0.0:${PORT:-80}\"]\nforward = \
                        \"proxy\"\nprotocol = \"tcp\"\npool = \"a\"\n";

    #[test]
    fn variables_in_addresses_are_expanded() {
        let machine = WithVariables(&[("SERVER", "10.0.0.5"), ("PORT", "8080")]);
        let parsed = crate::parse(TEXT, &machine).expect("valid");
        assert_eq!(parsed.desired.pools[0].servers[0].name, "10.0.0.5:8080");
        assert_eq!(parsed.desired.pools[0].servers[1].name, "10.0.0.5");
        let listen_text = format!("{:?}", parsed.desired.proxies[0].listen);
        assert!(listen_text.contains("8080"), "{listen_text}");
    }

    #[test]
    fn unix_socket_from_variable_is_rejected() {
        for text in ["unix${A:-:}/run/a.sock", "unix:/run/${A:-a}.sock"] {
            let text = format!("[pool.a]\nservers = [\"{text}\"]\n");
            let errors = crate::parse(&text, &WithVariables(&[])).expect_err("invalid");
            let message = "a Unix socket path must not come from an environment variable";
            assert!(errors.iter().any(|it| it.message == message), "{errors:?}");
        }
    }

    #[test]
    fn error_for_invalid_variable_omits_its_value() {
        for (variables, message) in [
            (
                &[][..],
                "the environment variable SERVER is not set or is empty",
            ),
            (
                &[("SERVER", "secret word")][..],
                "the environment variable SERVER is neither an address nor a port",
            ),
            (
                &[("SERVER", "5ec2e7")][..],
                "`${SERVER}:${PORT:-80}` does not expand to a valid address",
            ),
            (
                &[("SERVER", "10.0.0.1"), ("PORT", "5ec2e7")][..],
                "`0.0.0.0:${PORT:-80}` does not expand to a valid address",
            ),
        ] {
            let errors = crate::parse(TEXT, &WithVariables(variables)).expect_err("invalid");
            assert!(errors.iter().any(|it| it.message == message), "{errors:?}");
            assert!(!format!("{errors:?}").contains("secret word"));
            assert!(!format!("{errors:?}").contains("5ec2e7"));
        }
    }
}
