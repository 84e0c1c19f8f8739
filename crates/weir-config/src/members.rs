//! A list of servers that another program writes: `servers_file`, a name's records, and the servers of the API.
//!
//! Two forms: JSON, as the value of `servers` or as an object that has it, and lines, `ADDRESS[:PORT] [KEY=VALUE]…`, where
//! `#` begins a comment. Who writes a list is trusted with the choice of servers and with nothing else: an entry has an address,
//! a weight and limits, and may name a `[check.NAME]` of the configuration. It can hold no check, because a check may run a
//! program, name the account that runs it, or read a file.
//!
//! An error has a line, a column and a reason, and never a part of the text: the list may be a file that its writer could not
//! read.

mod former;

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::ops::Range;

use weir_model::{Server, Source};

pub use self::former::{Former, former_members};
use crate::address;
use crate::catalog;
use crate::code::Code;
use crate::diagnostic::Lines;
use crate::json;
use crate::key::Kind;
use crate::tree::{Item, Table, Value};

/// What an entry of a list may hold.
pub const MEMBER_KEYS: [&str; 5] = [
    "address",
    "weight",
    "max_connections",
    "min_connections",
    "check",
];

/// One server of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Without checks of its own: [`Self::checks`] names them.
    pub server: Server,
    /// Names of `[check.NAME]` in place of the pool's checks, which the configuration may or may not have.
    pub checks: Option<Vec<String>>,
    /// Where the entry begins in the list.
    pub at: Source,
}

/// Why a list is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {}, column {}: {reason}", at.line, at.column)]
pub struct MemberError {
    /// In the list.
    pub at: Source,
    /// What is wrong there, without a part of the list.
    pub reason: MemberReason,
}

/// What is wrong with a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberReason {
    /// The text is no JSON.
    NotJson,
    /// An object has one key twice.
    KeyTwice,
    /// Neither a list nor an object with `servers` alone.
    NoList,
    /// An entry that is neither text nor a table.
    NoEntry,
    /// A line has something other than `KEY=VALUE` after the address.
    NoPair,
    /// An entry without an address.
    NoAddress,
    /// What should be an address is none that a server can have.
    BadAddress,
    /// The port is none.
    BadPort,
    /// A key of a server that only the configuration may set.
    NotAllowed(&'static str),
    /// No key of a server at all.
    UnknownKey,
    /// `check` is something other than names.
    CheckBody,
    /// A number is out of range, or no number.
    BadNumber(&'static str),
    /// `min_connections` is above `max_connections`.
    Thresholds,
    /// A server is listed twice; the line of its first entry.
    Twice(u32),
}

impl fmt::Display for MemberReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotJson => f.write_str("not JSON"),
            Self::KeyTwice => f.write_str("a key is written twice"),
            Self::NoList => f.write_str(
                "expected a list of servers, or an object with `servers` and no other key",
            ),
            Self::NoEntry => f.write_str("expected an address, or an object with `address`"),
            Self::NoPair => f.write_str("expected KEY=VALUE after the address"),
            Self::NoAddress => f.write_str("`address` is missing"),
            Self::BadAddress => f.write_str("not an IP address that a server can have"),
            Self::BadPort => f.write_str("the port is not a number from 1 to 65535"),
            Self::NotAllowed(key) => write!(f, "`{key}` is not allowed here; {}", allowed()),
            Self::UnknownKey => write!(f, "unknown key; {}", allowed()),
            Self::CheckBody => write!(
                f,
                "`check` can only name a [check.NAME] of the configuration; {}",
                allowed()
            ),
            Self::BadNumber(key) => write!(f, "`{key}` must be {}", syntax(key)),
            Self::Thresholds => f.write_str("`min_connections` is above `max_connections`"),
            Self::Twice(line) => write!(f, "this server is listed twice, first in line {line}"),
        }
    }
}

/// The keys of an entry in a sentence.
fn allowed() -> String {
    let [first @ .., check] = MEMBER_KEYS;
    let quoted: Vec<String> = first.iter().map(|key| format!("`{key}`")).collect();
    format!(
        "a server of a list has {}, and `{check}` with the name of a [check.NAME]",
        quoted.join(", ")
    )
}

fn syntax(key: &str) -> String {
    catalog::SERVER
        .key(key)
        .map_or_else(|| "a number".to_owned(), |key| key.kind.syntax())
}

/// Reads a list.
///
/// # Errors
/// The first mistake in it.
pub fn members(text: &str) -> Result<Vec<Member>, MemberError> {
    let mut list = List {
        lines: Lines::new(text),
        members: Vec::new(),
        first: HashMap::new(),
    };
    match text.trim_start().as_bytes().first() {
        Some(b'[' | b'{') => list.json(text)?,
        _ => list.plain(text)?,
    }
    Ok(list.members)
}

struct List<'t> {
    lines: Lines<'t>,
    members: Vec<Member>,
    /// The line of each server.
    first: HashMap<(IpAddr, Option<u16>), u32>,
}

/// An entry as far as it is read.
#[derive(Default)]
struct Entry {
    server: Option<Server>,
    weight: Option<u32>,
    most: u32,
    least: u32,
    checks: Option<Vec<String>>,
}

type Found<T> = Result<T, MemberError>;

impl List<'_> {
    fn error(&self, offset: usize, reason: MemberReason) -> MemberError {
        MemberError {
            at: self.lines.source(offset),
            reason,
        }
    }

    fn json(&mut self, text: &str) -> Found<()> {
        let (item, twice) = json::read(text)
            .map_err(|found| self.error(found.span.start, MemberReason::NotJson))?;
        if let Some(found) = twice.first() {
            return Err(self.error(found.span.start, MemberReason::KeyTwice));
        }
        let list = match &item.value {
            Value::Table(table) => match table.entries.as_slice() {
                [only] if only.key == "servers" => &only.item,
                _ => return Err(self.error(item.span.start, MemberReason::NoList)),
            },
            _ => &item,
        };
        let Value::List(items) = &list.value else {
            return Err(self.error(list.span.start, MemberReason::NoList));
        };
        for item in items {
            let entry = self.json_entry(item)?;
            self.add(entry, item.span.start)?;
        }
        Ok(())
    }

    fn json_entry(&self, item: &Item<'_>) -> Found<Entry> {
        let mut entry = Entry::default();
        match &item.value {
            Value::Text(text) => entry.server = Some(self.address(text, item.span.start)?),
            Value::Table(table) => self.json_table(&mut entry, table)?,
            _ => return Err(self.error(item.span.start, MemberReason::NoEntry)),
        }
        Ok(entry)
    }

    fn json_table(&self, entry: &mut Entry, table: &Table<'_>) -> Found<()> {
        for pair in &table.entries {
            let key = self.key(&pair.key, pair.key_span.start)?;
            let (value, at) = (&pair.item.value, pair.item.span.start);
            match (key, value) {
                ("address", Value::Text(text)) => entry.server = Some(self.address(text, at)?),
                ("address", _) => return Err(self.error(at, MemberReason::BadAddress)),
                ("check", value) => {
                    let names = check_names(value);
                    let names = names.ok_or_else(|| self.error(at, MemberReason::CheckBody))?;
                    entry.checks = Some(names);
                }
                (_, Value::Integer(number)) => self.number(entry, key, *number, at)?,
                _ => return Err(self.error(at, MemberReason::BadNumber(key))),
            }
        }
        Ok(())
    }

    fn plain(&mut self, text: &str) -> Found<()> {
        for line in text.split_inclusive('\n') {
            let start = offset(text, line);
            let content = line.split('#').next().unwrap_or_default();
            let mut words = content.split_whitespace();
            let Some(first) = words.next() else {
                continue;
            };
            let mut entry = Entry {
                server: Some(self.address(first, offset(text, first))?),
                ..Entry::default()
            };
            let mut seen = Vec::new();
            for word in words {
                let at = offset(text, word);
                let pair = word.split_once('=');
                let (key, value) = pair.ok_or_else(|| self.error(at, MemberReason::NoPair))?;
                let key = self.key(key, at)?;
                if key == "address" || seen.contains(&key) {
                    return Err(self.error(at, MemberReason::KeyTwice));
                }
                seen.push(key);
                if key == "check" {
                    entry.checks = Some(vec![value.to_owned()]);
                } else {
                    self.number(&mut entry, key, value.parse().ok(), at)?;
                }
            }
            self.add(entry, start)?;
        }
        Ok(())
    }

    /// The key as the catalog has it.
    fn key(&self, key: &str, at: usize) -> Found<&'static str> {
        if let Some(known) = MEMBER_KEYS.into_iter().find(|known| *known == key) {
            return Ok(known);
        }
        let known = catalog::SERVER.key(key);
        Err(self.error(
            at,
            known.map_or(MemberReason::UnknownKey, |key| {
                MemberReason::NotAllowed(key.name)
            }),
        ))
    }

    fn number(
        &self,
        entry: &mut Entry,
        key: &'static str,
        value: Option<i64>,
        at: usize,
    ) -> Found<()> {
        let range = match catalog::SERVER.key(key).map(|key| &key.kind) {
            Some(Kind::Integer { min, max }) => *min..=*max,
            _ => 0..=u32::MAX,
        };
        let value = value.and_then(|value| u32::try_from(value).ok());
        let value = value.filter(|value| range.contains(value));
        let value = value.ok_or_else(|| self.error(at, MemberReason::BadNumber(key)))?;
        match key {
            "weight" => entry.weight = Some(value),
            "max_connections" => entry.most = value,
            _ => entry.least = value,
        }
        Ok(())
    }

    fn address(&self, text: &str, at: usize) -> Found<Server> {
        let refused = |code| match code {
            Code::BadPort => MemberReason::BadPort,
            _ => MemberReason::BadAddress,
        };
        let (address, port) =
            address::server(text).map_err(|why| self.error(at, refused(why.code)))?;
        Ok(Server::new(text, address, port))
    }

    fn add(&mut self, entry: Entry, offset: usize) -> Found<()> {
        let Some(server) = entry.server else {
            return Err(self.error(offset, MemberReason::NoAddress));
        };
        if entry.least > entry.most {
            return Err(self.error(offset, MemberReason::Thresholds));
        }
        let at = self.lines.source(offset);
        let key = (server.address, server.port);
        if let Some(first) = self.first.insert(key, at.line) {
            return Err(self.error(offset, MemberReason::Twice(first)));
        }
        self.members.push(Member {
            server: Server {
                weight: entry.weight.unwrap_or(server.weight),
                max_connections: entry.most,
                min_connections: entry.least,
                ..server
            },
            checks: entry.checks,
            at,
        });
        Ok(())
    }
}

/// One name, or a list of them.
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

/// Where a part of a text begins in it.
fn offset(text: &str, part: &str) -> usize {
    let range: Range<usize> = text.as_bytes().as_ptr_range().start.addr()..part.as_ptr().addr();
    range.len().min(text.len())
}

#[cfg(test)]
mod tests;
