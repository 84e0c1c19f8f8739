//! Generates the JSON Schema of the configuration from the catalog.
//!
//! The schema contains only implemented keys and values, and no rules that involve several settings (overlapping
//! listeners, address families).

use serde_json::{Map, Value, json};

use crate::catalog;
use crate::key::{Key, Kind, Presence, Section};

/// Returns the JSON Schema (draft 2020-12) of `weir.toml`, and of the same configuration as JSON.
pub fn schema() -> Value {
    let mut root = section(&catalog::ROOT);
    if let Value::Object(root) = &mut root {
        root.insert(
            "$schema".to_owned(),
            json!("https://json-schema.org/draft/2020-12/schema"),
        );
        root.insert("title".to_owned(), json!("weir.toml"));
    }
    root
}

fn section(section: &Section) -> Value {
    let properties: Map<String, Value> = section
        .implemented_keys()
        .map(|key| (key.name.to_owned(), property(key)))
        .collect();
    // No key of `[defaults]` is required.
    let properties = match section.page == catalog::DEFAULTS.page {
        true => properties.into_iter().map(optional).collect(),
        false => properties,
    };
    let required: Vec<&str> = section
        .implemented_keys()
        .filter(|key| matches!(key.presence, Presence::Required))
        .map(|key| key.name)
        .collect();
    let mut schema =
        json!({"type": "object", "properties": properties, "additionalProperties": false});
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

fn optional((name, mut schema): (String, Value)) -> (String, Value) {
    if let Value::Object(schema) = &mut schema {
        schema.remove("required");
    }
    (name, schema)
}

fn property(key: &Key) -> Value {
    let mut schema = kind_schema(&key.kind);
    let description = match key.presence {
        Presence::Absent(meaning) => format!("{} Absent: {meaning}.", key.purpose),
        Presence::Required | Presence::Default(_) => key.purpose.to_owned(),
    };
    schema["description"] = json!(description);
    if let Presence::Default(text) = key.presence {
        schema["default"] = default(&key.kind, text);
    }
    schema
}

/// Returns a default value as JSON: a number, a boolean or a list, otherwise a string.
fn default(kind: &Kind, text: &str) -> Value {
    match kind {
        Kind::Integer { .. }
        | Kind::Factor { .. }
        | Kind::Size { .. }
        | Kind::Flag
        | Kind::List(_) => serde_json::from_str(text).unwrap_or(Value::Null),
        Kind::Either(first, _) => default(first, text),
        _ => json!(text),
    }
}

fn kind_schema(kind: &Kind) -> Value {
    const PORT: &str = "[0-9]{1,5}";
    match kind {
        Kind::Planned => json!(false),
        Kind::DescribedText(_) | Kind::Text => json!({"type": "string"}),
        Kind::PoolName | Kind::ServiceName | Kind::CheckName => {
            json!({"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"})
        }
        Kind::Secret => json!({"anyOf": [
            {"type": "string", "minLength": 1},
            section(&catalog::SECRET).as_object().map(|it| {
                let mut source = it.clone();
                source.insert("minProperties".to_owned(), json!(1));
                source.insert("maxProperties".to_owned(), json!(1));
                Value::Object(source)
            }),
        ]}),
        Kind::StatusCodes => {
            json!({"type": "string", "pattern": "^[1-5][0-9]{2}(-[1-5][0-9]{2})?( *, \
                *[1-5][0-9]{2}(-[1-5][0-9]{2})?)*$"})
        }
        Kind::Interface => {
            json!({"type": "string", "minLength": 1, "maxLength": 15, "pattern": "^[^/:\\s]+$"})
        }
        Kind::SocketAddress => json!({"type": "string", "pattern": format!("^.+:{PORT}$")}),
        Kind::Address => {
            json!({"type": "string", "anyOf": [{"format": "ipv4"}, {"format": "ipv6"}]})
        }
        Kind::Network => json!({"type": "string", "pattern": "^[0-9a-fA-F.:]+(/[0-9]{1,3})?$"}),
        Kind::ServerAddress | Kind::PoolServer => json!({"type": "string", "minLength": 1}),
        Kind::Listener => {
            json!({"type": "string", "pattern": format!("^((tcp/|udp/)?[^/]+:({PORT}|{PORT}-{PORT}|\\*)|fwmark6?/[0-9]{{1,10}})$")})
        }
        Kind::PortRange => json!({"type": "string", "pattern": format!("^{PORT}(-{PORT})?$")}),
        Kind::Flag => json!({"type": "boolean"}),
        Kind::Integer { min, max } => json!({"type": "integer", "minimum": min, "maximum": max}),
        Kind::Size { min, max } => json!({"anyOf": [
            {"type": "integer", "minimum": min, "maximum": max},
            {
                "type": "string",
                "pattern": "^[0-9]+ *(B|KiB|MiB|GiB)$",
                "$comment": format!("from {min} to {max} bytes"),
            },
        ]}),
        Kind::Factor { min, max } => json!({
            "type": "number",
            "minimum": f64::from(*min) / 100.0,
            "maximum": f64::from(*max) / 100.0,
            "$comment": "at most two decimal places",
        }),
        Kind::Duration { min, max } => json!({
            "type": "string",
            "pattern": "^[0-9]+ *(ms|s|m|h|d)$",
            "$comment": format!("from {} to {}", weir_model::format_duration(*min), weir_model::format_duration(*max)),
        }),
        Kind::OneOf(choices) => {
            let choices = choices();
            let values: Vec<&str> = choices.values.into_iter().chain(choices.aliases).collect();
            json!({"type": "string", "enum": values})
        }
        Kind::List(item) => json!({"type": "array", "items": kind_schema(item)}),
        Kind::Table(table) => section(table),
        Kind::Named(table) => json!({
            "type": "object",
            "propertyNames": {"pattern": "^[A-Za-z0-9._-]{1,64}$"},
            "additionalProperties": section(table),
        }),
        Kind::Either(first, second) => json!({"anyOf": [kind_schema(first), kind_schema(second)]}),
    }
}
