//! Defines the types of the schema: name, type, range, default, purpose and example of a key.
//!
//! The values in [`crate::catalog`] are the only definition of the schema for `weir.toml`: the checks for unknown keys,
//! types and ranges, the JSON Schema and the manual use them.

use std::time::Duration;

/// One table of the configuration.
#[derive(Debug)]
pub(crate) struct Section {
    /// Path in the notation of the manual, such as `pool.NAME`; empty for the root.
    pub(crate) path: &'static str,
    /// Name of the manual page.
    pub(crate) page: &'static str,
    /// Purpose, in full sentences.
    pub(crate) purpose: &'static str,
    /// Example: a complete file, as TOML.
    pub(crate) example: &'static str,
    pub(crate) keys: &'static [Key],
}

/// One key of a section.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) presence: Presence,
    /// Purpose, in full sentences.
    pub(crate) purpose: &'static str,
    /// Example: the key with a value, as TOML.
    pub(crate) example: &'static str,
    /// Names of equivalent keys in other programs.
    pub(crate) known_as: &'static [&'static str],
}

/// Whether a key is required, and its default.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Presence {
    Required,
    /// Default value, as written in the configuration.
    Default(&'static str),
    /// No default value; describes what applies if the key is absent.
    Absent(&'static str),
}

/// Type of a value.
#[derive(Debug)]
pub(crate) enum Kind {
    /// Reserved and not implemented.
    Planned,
    /// Name of a pool.
    PoolName,
    /// Secret text, which is never shown, or the source to read it from.
    Secret,
    /// Name of a `[check.NAME]`.
    CheckName,
    /// Any text on one line.
    Text,
    /// HTTP status codes, `200-299,304`.
    StatusCodes,
    ServiceName,
    /// Text, with a description.
    DescribedText(&'static str),
    Interface,
    /// `ADDRESS:PORT` of the director.
    SocketAddress,
    Address,
    /// `ADDRESS` or `ADDRESS/LENGTH`.
    Network,
    ServerAddress,
    /// `ADDRESS`, `ADDRESS:PORT` or `unix:PATH`.
    PoolServer,
    Listener,
    PortRange,
    Flag,
    Integer {
        min: u32,
        max: u32,
    },
    /// A number with at most two decimal places. `min` and `max` are in hundredths.
    Factor {
        min: u32,
        max: u32,
    },
    /// A size in bytes, as a number or with a unit.
    Size {
        min: u32,
        max: u32,
    },
    Duration {
        min: Duration,
        max: Duration,
    },
    /// One of a fixed set of values.
    OneOf(fn() -> Choices),
    List(&'static Self),
    Table(&'static Section),
    /// Tables with names that the operator chooses.
    Named(&'static Section),
    Either(&'static Self, &'static Self),
}

/// The values of a key.
#[derive(Debug, Default)]
pub(crate) struct Choices {
    pub(crate) values: Vec<&'static str>,
    /// Accepted aliases.
    pub(crate) aliases: Vec<&'static str>,
    /// Values from other programs that Weir does not accept, each with Weir's equivalent.
    pub(crate) known_as: &'static [(&'static str, &'static str)],
    /// Reserved values that are not implemented.
    pub(crate) planned: Vec<&'static str>,
}

impl Section {
    pub(crate) fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }

    /// Returns the implemented keys.
    pub(crate) fn implemented_keys(&self) -> impl Iterator<Item = &'static Key> {
        self.keys.iter().filter(|key| key.is_implemented())
    }

    /// Returns the path in brackets, such as `[pool.NAME]`; "the file" for the root.
    pub(crate) fn heading(&self) -> String {
        if self.path.is_empty() {
            "the file".to_owned()
        } else {
            format!("[{}]", self.path)
        }
    }
}

impl Key {
    pub(crate) const fn new(
        name: &'static str,
        kind: Kind,
        presence: Presence,
        purpose: &'static str,
        example: &'static str,
    ) -> Self {
        Self {
            name,
            kind,
            presence,
            purpose,
            example,
            known_as: &[],
        }
    }

    /// Creates a reserved key that is not implemented.
    pub(crate) const fn planned(name: &'static str, purpose: &'static str) -> Self {
        Self::new(
            name,
            Kind::Planned,
            Presence::Absent("not built yet"),
            purpose,
            "",
        )
    }

    pub(crate) const fn known_as(mut self, names: &'static [&'static str]) -> Self {
        self.known_as = names;
        self
    }

    /// Returns the first sentence of the purpose.
    pub(crate) fn first_sentence(&self) -> &'static str {
        self.purpose
            .split_once(". ")
            .map_or(self.purpose, |(first, _)| first)
            .trim_end_matches('.')
    }

    pub(crate) const fn is_implemented(&self) -> bool {
        !matches!(self.kind, Kind::Planned)
    }
}

impl Kind {
    /// Returns the section of a table type or of the tables in a list type; `None` for other types and for named
    /// tables.
    pub(crate) fn table(&self) -> Option<&'static Section> {
        match self {
            Self::Table(section) => Some(section),
            Self::List(item) => item.table(),
            Self::Either(first, second) => first.table().or_else(|| second.table()),
            Self::Named(_)
            | Self::Planned
            | Self::PoolName
            | Self::Secret
            | Self::CheckName
            | Self::Text
            | Self::StatusCodes
            | Self::ServiceName
            | Self::DescribedText(_)
            | Self::Interface
            | Self::SocketAddress
            | Self::Address
            | Self::Network
            | Self::ServerAddress
            | Self::PoolServer
            | Self::Listener
            | Self::PortRange
            | Self::Flag
            | Self::Integer { .. }
            | Self::Factor { .. }
            | Self::Size { .. }
            | Self::Duration { .. }
            | Self::OneOf(_) => None,
        }
    }

    /// Returns the description for "expected …" and for the manual.
    pub(crate) fn syntax(&self) -> String {
        match self {
            Self::Planned => "not built yet".to_owned(),
            Self::PoolName => "the name of a pool".to_owned(),
            Self::CheckName => "the name of a [check.NAME]".to_owned(),
            Self::Text => "a string".to_owned(),
            Self::Secret => {
                "a string, or { file = PATH }, { env = NAME } or { credential = NAME }".to_owned()
            }
            Self::StatusCodes => "status codes like \"200-299,304\"".to_owned(),
            Self::ServiceName => "the name of a service".to_owned(),
            Self::DescribedText(meaning) => format!("a string, {meaning}"),
            Self::Interface => "an interface name".to_owned(),
            Self::SocketAddress => "\"ADDRESS:PORT\"".to_owned(),
            Self::Address => "an IP address".to_owned(),
            Self::Network => "\"ADDRESS\" or \"ADDRESS/LENGTH\"".to_owned(),
            Self::ServerAddress => "\"ADDRESS\" or \"ADDRESS:PORT\"".to_owned(),
            Self::PoolServer => "\"ADDRESS\", \"ADDRESS:PORT\" or \"unix:PATH\"".to_owned(),
            Self::Listener => {
                "\"[tcp/|udp/]ADDRESS:PORT\" (PORT may also be FIRST-LAST or `*`), \"fwmark/N\" or \
                 \"fwmark6/N\""
                    .to_owned()
            }
            Self::PortRange => "\"FIRST-LAST\", ports from 1 to 65535".to_owned(),
            Self::Flag => "true or false".to_owned(),
            Self::Integer { min, max } => format!("an integer from {min} to {max}"),
            Self::Size { min, max } => {
                format!("an integer from {min} to {max}, or a size like \"64KiB\"")
            }
            Self::Factor { min, max } => format!(
                "a number from {} to {} with at most two decimal places",
                format_hundredths(*min),
                format_hundredths(*max)
            ),
            Self::Duration { min, max } => {
                format!(
                    "a duration from \"{}\" to \"{}\"",
                    weir_model::format_duration(*min),
                    weir_model::format_duration(*max)
                )
            }
            Self::OneOf(choices) => quoted_list(&choices().values),
            Self::List(item) => format!("a list in which each item is {}", item.syntax()),
            Self::Table(section) => {
                let keys: Vec<&str> = section.implemented_keys().map(|key| key.name).collect();
                format!("a table {{ {} }}", keys.join(", "))
            }
            Self::Named(section) => format!("tables `{}`", section.heading()),
            Self::Either(first, second) => {
                format!("{}, or {}", first.syntax(), second.syntax())
            }
        }
    }
}

/// Formats hundredths as a decimal number.
pub(crate) fn format_hundredths(hundredths: u32) -> String {
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

/// Formats words as `"a"`, `"a" or "b"`, `"a", "b" or "c"`.
pub(crate) fn quoted_list(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}
