//! Parses external server lists: `servers_file`, DNS records, and servers added through the API.
//!
//! A list has one of two formats: JSON, as the value of `servers` or an object that contains `servers`; or lines of the
//! form `ADDRESS[:PORT] [KEY=VALUE]…`, where `#` starts a comment. The writer of a list is trusted only to choose
//! servers: an entry can have the keys [`MEMBER_KEYS`], and can refer to a `[check.NAME]`. An entry cannot define a
//! check, because a check can run a program under a specified account or read a file.
//!
//! An error contains a line, a column and a reason, but never quotes the text, because not every user who sees the
//! error may read the file.

mod migrate;

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::ops::Range;

use weir_model::{Server, Source};

pub use self::migrate::{MigratedMembers, migrate_members};
use crate::address;
use crate::catalog;
use crate::code::Code;
use crate::diagnostic::Lines;
use crate::json;
use crate::key::Kind;
use crate::lower::is_cookie_value;
use crate::tree::{Item, Table, Value};

/// Keys allowed in an entry.
pub const MEMBER_KEYS: [&str; 7] = [
    "address",
    "weight",
    "max_connections",
    "min_connections",
    "cookie",
    "backup",
    "check",
];

/// A server in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The server, without checks; see [`Self::checks`].
    pub server: Server,
    /// Names of `[check.NAME]` that override the pool's checks; the configuration may lack some of them.
    pub checks: Option<Vec<String>>,
    /// Position of the entry in the list.
    pub at: Source,
}

/// An error that rejects a list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {}, column {}: {reason}", at.line, at.column)]
pub struct MemberError {
    /// Position in the list.
    pub at: Source,
    /// The reason, without text from the list.
    pub reason: MemberReason,
}

/// Reason why a list is invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberReason {
    /// The text is not JSON.
    InvalidJson,
    /// Duplicate key.
    DuplicateKey,
    /// The value is neither a list nor an object with only `servers`.
    ExpectedList,
    /// An entry is neither a string nor a table.
    ExpectedEntry,
    /// A line has something other than `KEY=VALUE` after the address.
    ExpectedPair,
    /// An entry has no address.
    MissingAddress,
    /// Invalid server address.
    BadAddress,
    /// Invalid port.
    BadPort,
    /// A key that is only allowed in the configuration.
    NotAllowed(&'static str),
    /// Unknown key.
    UnknownKey,
    /// `check` is not a name or a list of names.
    InlineCheck,
    /// The value of a key has the wrong type, or is out of range.
    BadValue(&'static str),
    /// `min_connections` exceeds `max_connections`.
    Thresholds,
    /// Duplicate server, with the line of its first entry.
    DuplicateServer(u32),
}

impl fmt::Display for MemberReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidJson => f.write_str("invalid JSON"),
            Self::DuplicateKey => f.write_str("duplicate key"),
            Self::ExpectedList => f.write_str(
                "expected a list of servers, or an object with `servers` and no other key",
            ),
            Self::ExpectedEntry => f.write_str("expected an address, or an object with `address`"),
            Self::ExpectedPair => f.write_str("expected KEY=VALUE after the address"),
            Self::MissingAddress => f.write_str("`address` is missing"),
            Self::BadAddress => f.write_str("not a valid IP address of a server"),
            Self::BadPort => f.write_str("the port is not a number from 1 to 65535"),
            Self::NotAllowed(key) => {
                write!(f, "`{key}` is not allowed here; {}", allowed_keys_text())
            }
            Self::UnknownKey => write!(f, "unknown key; {}", allowed_keys_text()),
            Self::InlineCheck => write!(
                f,
                "`check` can only name a [check.NAME] in the configuration; {}",
                allowed_keys_text()
            ),
            Self::BadValue(key) => write!(f, "`{key}` must be {}", value_syntax(key)),
            Self::Thresholds => f.write_str("`min_connections` exceeds `max_connections`"),
            Self::DuplicateServer(line) => write!(f, "duplicate server, first on line {line}"),
        }
    }
}

/// Returns a sentence that lists the allowed keys.
fn allowed_keys_text() -> String {
    let [first @ .., check] = MEMBER_KEYS;
    let quoted: Vec<String> = first.iter().map(|key| format!("`{key}`")).collect();
    format!(
        "a listed server may have {}, and `{check}` with the name of a [check.NAME]",
        quoted.join(", ")
    )
}

fn value_syntax(key: &str) -> String {
    catalog::SERVER
        .key(key)
        .map_or_else(|| "a number".to_owned(), |key| key.kind.syntax())
}

/// Parses a server list.
///
/// # Errors
/// Returns the first error.
pub fn members(text: &str) -> Result<Vec<Member>, MemberError> {
    let mut list = ListParser {
        lines: Lines::new(text),
        members: Vec::new(),
        first_lines: HashMap::new(),
    };
    match text.trim_start().as_bytes().first() {
        Some(b'[' | b'{') => list.parse_json(text)?,
        _ => list.parse_lines(text)?,
    }
    Ok(list.members)
}

struct ListParser<'t> {
    lines: Lines<'t>,
    members: Vec<Member>,
    /// Line of the first entry for each server.
    first_lines: HashMap<(IpAddr, Option<u16>), u32>,
}

/// A partially parsed entry.
#[derive(Default)]
struct Entry {
    server: Option<Server>,
    weight: Option<u32>,
    max_connections: u32,
    min_connections: u32,
    cookie: Option<String>,
    backup: bool,
    checks: Option<Vec<String>>,
}

type MemberResult<T> = Result<T, MemberError>;

impl ListParser<'_> {
    fn error(&self, offset: usize, reason: MemberReason) -> MemberError {
        MemberError {
            at: self.lines.source(offset),
            reason,
        }
    }

    fn parse_json(&mut self, text: &str) -> MemberResult<()> {
        let (item, duplicates) = json::read(text)
            .map_err(|error| self.error(error.span.start, MemberReason::InvalidJson))?;
        if let Some(found) = duplicates.first() {
            return Err(self.error(found.span.start, MemberReason::DuplicateKey));
        }
        let list = match &item.value {
            Value::Table(table) => match table.entries.as_slice() {
                [entry] if entry.key == "servers" => &entry.item,
                _ => return Err(self.error(item.span.start, MemberReason::ExpectedList)),
            },
            _ => &item,
        };
        let Value::List(items) = &list.value else {
            return Err(self.error(list.span.start, MemberReason::ExpectedList));
        };
        for item in items {
            let entry = self.parse_json_entry(item)?;
            self.add_entry(entry, item.span.start)?;
        }
        Ok(())
    }

    fn parse_json_entry(&self, item: &Item<'_>) -> MemberResult<Entry> {
        let mut entry = Entry::default();
        match &item.value {
            Value::Text(text) => entry.server = Some(self.parse_address(text, item.span.start)?),
            Value::Table(table) => self.parse_json_table(&mut entry, table)?,
            _ => return Err(self.error(item.span.start, MemberReason::ExpectedEntry)),
        }
        Ok(entry)
    }

    fn parse_json_table(&self, entry: &mut Entry, table: &Table<'_>) -> MemberResult<()> {
        for pair in &table.entries {
            let key = self.check_key(&pair.key, pair.key_span.start)?;
            let (value, offset) = (&pair.item.value, pair.item.span.start);
            match (key, value) {
                ("address", Value::Text(text)) => {
                    entry.server = Some(self.parse_address(text, offset)?)
                }
                ("address", _) => return Err(self.error(offset, MemberReason::BadAddress)),
                ("check", value) => {
                    let names = check_names(value);
                    let names =
                        names.ok_or_else(|| self.error(offset, MemberReason::InlineCheck))?;
                    entry.checks = Some(names);
                }
                ("backup", Value::Bool(backup)) => entry.backup = *backup,
                ("cookie", Value::Text(text)) => entry.cookie = Some(self.cookie(text, offset)?),
                ("backup" | "cookie", _) => {
                    return Err(self.error(offset, MemberReason::BadValue(key)));
                }
                (_, Value::Integer(number)) => self.set_number(entry, key, *number, offset)?,
                _ => return Err(self.error(offset, MemberReason::BadValue(key))),
            }
        }
        Ok(())
    }

    fn parse_lines(&mut self, text: &str) -> MemberResult<()> {
        for line in text.split_inclusive('\n') {
            let start = offset_of(text, line);
            let content = line.split('#').next().unwrap_or_default();
            let mut words = content.split_whitespace();
            let Some(address) = words.next() else {
                continue;
            };
            let mut entry = Entry {
                server: Some(self.parse_address(address, offset_of(text, address))?),
                ..Entry::default()
            };
            let mut seen_keys = Vec::new();
            for word in words {
                let offset = offset_of(text, word);
                let pair = word.split_once('=');
                let (key, value) =
                    pair.ok_or_else(|| self.error(offset, MemberReason::ExpectedPair))?;
                let key = self.check_key(key, offset)?;
                if key == "address" || seen_keys.contains(&key) {
                    return Err(self.error(offset, MemberReason::DuplicateKey));
                }
                seen_keys.push(key);
                match (key, value) {
                    ("check", _) => entry.checks = Some(vec![value.to_owned()]),
                    ("cookie", _) => entry.cookie = Some(self.cookie(value, offset)?),
                    ("backup", "true" | "false") => entry.backup = value == "true",
                    ("backup", _) => return Err(self.error(offset, MemberReason::BadValue(key))),
                    _ => self.set_number(&mut entry, key, value.parse().ok(), offset)?,
                }
            }
            self.add_entry(entry, start)?;
        }
        Ok(())
    }

    /// Returns the key, or an error if it is not allowed.
    fn check_key(&self, key: &str, offset: usize) -> MemberResult<&'static str> {
        if let Some(allowed) = MEMBER_KEYS.into_iter().find(|allowed| *allowed == key) {
            return Ok(allowed);
        }
        let config_key = catalog::SERVER.key(key);
        Err(self.error(
            offset,
            config_key.map_or(MemberReason::UnknownKey, |key| {
                MemberReason::NotAllowed(key.name)
            }),
        ))
    }

    fn set_number(
        &self,
        entry: &mut Entry,
        key: &'static str,
        value: Option<i64>,
        offset: usize,
    ) -> MemberResult<()> {
        let range = match catalog::SERVER.key(key).map(|key| &key.kind) {
            Some(Kind::Integer { min, max }) => *min..=*max,
            _ => 0..=u32::MAX,
        };
        let value = value.and_then(|value| u32::try_from(value).ok());
        let value = value.filter(|value| range.contains(value));
        let value = value.ok_or_else(|| self.error(offset, MemberReason::BadValue(key)))?;
        match key {
            "weight" => entry.weight = Some(value),
            "max_connections" => entry.max_connections = value,
            _ => entry.min_connections = value,
        }
        Ok(())
    }

    fn cookie(&self, text: &str, offset: usize) -> MemberResult<String> {
        match is_cookie_value(text) {
            true => Ok(text.to_owned()),
            false => Err(self.error(offset, MemberReason::BadValue("cookie"))),
        }
    }

    fn parse_address(&self, text: &str, offset: usize) -> MemberResult<Server> {
        let reason = |code| match code {
            Code::BadPort => MemberReason::BadPort,
            _ => MemberReason::BadAddress,
        };
        let (address, port) =
            address::parse_server(text).map_err(|error| self.error(offset, reason(error.code)))?;
        Ok(Server::new(text, address, port))
    }

    fn add_entry(&mut self, entry: Entry, offset: usize) -> MemberResult<()> {
        let Some(server) = entry.server else {
            return Err(self.error(offset, MemberReason::MissingAddress));
        };
        if entry.min_connections > entry.max_connections {
            return Err(self.error(offset, MemberReason::Thresholds));
        }
        let source = self.lines.source(offset);
        let key = (server.address, server.port);
        if let Some(first) = self.first_lines.insert(key, source.line) {
            return Err(self.error(offset, MemberReason::DuplicateServer(first)));
        }
        self.members.push(Member {
            server: Server {
                weight: entry.weight.unwrap_or(server.weight),
                max_connections: entry.max_connections,
                min_connections: entry.min_connections,
                cookie: entry.cookie,
                backup: entry.backup,
                ..server
            },
            checks: entry.checks,
            at: source,
        });
        Ok(())
    }
}

/// Parses a name or a list of names.
fn check_names(value: &Value<'_>) -> Option<Vec<String>> {
    let name = |value: &Value<'_>| match value {
        Value::Text(name) => Some(name.as_ref().to_owned()),
        _ => None,
    };
    match value {
        Value::List(items) => items.iter().map(|item| name(&item.value)).collect(),
        value => Some(vec![name(value)?]),
    }
}

/// Returns the byte offset of `part`, a part of `text`, in `text`.
fn offset_of(text: &str, part: &str) -> usize {
    let range: Range<usize> = text.as_bytes().as_ptr_range().start.addr()..part.as_ptr().addr();
    range.len().min(text.len())
}

#[cfg(test)]
mod tests;
