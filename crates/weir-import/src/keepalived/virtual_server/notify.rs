//! Converts `notify_up`, `notify_down`, `quorum_up` and `quorum_down`.
//!
//! keepalived has a program for each change of each server; Weir has one program for all changes of a pool. A shell
//! command selects keepalived's program by the variables that Weir sets.

use crate::document::{Entry, Item, Table, Value};
use crate::keepalived::tree::{Node, parse_command};
use crate::note::{Notes, Position};

/// A program, and the change for which it is run.
#[derive(Clone, Debug)]
pub(super) struct Program {
    position: Position,
    /// The line of the server, or `None` if the virtual server defines the program.
    server: Option<Position>,
    is_up: bool,
    words: Vec<String>,
}

impl Program {
    /// Parses the line of a server, or of the virtual server.
    pub(super) fn read(server: Option<Position>, node: &Node, notes: &mut Notes) -> Option<Self> {
        let Some(words) = parse_command(&node.arguments).filter(|words| !words.is_empty()) else {
            node.ignore(
                notes,
                "the program is missing, and keepalived ignores the line",
            );
            return None;
        };
        Some(Self {
            position: node.position,
            server,
            is_up: node.keyword().ends_with("_up"),
            words,
        })
    }

    /// Returns the branch of a `case` over `$WEIR_SERVER:$WEIR_FROM:$WEIR_TO`, or `None` if the pool does not contain
    /// the program's server.
    fn case_branch(&self, servers: &[Item]) -> Option<String> {
        let pattern = match self.server {
            Some(position) => {
                let server = servers
                    .iter()
                    .find(|item| item.position == Some(position))?;
                // keepalived does not run a program for a server's first result if the server is up.
                let change = if self.is_up { "down:up" } else { "*:down" };
                format!("{}:{change}", shell_quote(address(&server.value)?))
            }
            None if self.is_up => "':down:up'|':below quorum:up'".to_owned(),
            None => "':up:down'|':up:below quorum'".to_owned(),
        };
        let words: Vec<String> = self.words.iter().map(|word| shell_quote(word)).collect();
        Some(format!("{pattern}) exec {} ;;", words.join(" ")))
    }
}

fn address(server: &Value) -> Option<&str> {
    match server {
        Value::Text(text) => Some(text),
        Value::Table(entries) => {
            let entry = entries.iter().find(|entry| entry.key == "address")?;
            address(&entry.item.value)
        }
        Value::Integer(_) | Value::Hundredths(_) | Value::Flag(_) | Value::List(_) => None,
    }
}

/// Quotes a word for the shell.
fn shell_quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Adds the programs to a pool.
pub(super) fn write(pool: &mut Table, programs: &[Program], notes: &mut Notes) {
    let servers = pool.entries.iter().find(|entry| entry.key == "servers");
    let servers = match servers.map(|entry| &entry.item.value) {
        Some(Value::List(items)) => items.as_slice(),
        _ => &[],
    };
    let mut branches = Vec::new();
    for program in programs {
        match program.case_branch(servers) {
            Some(branch) => branches.push((branch, program.position)),
            None => notes.remark(
                program.position,
                "not imported: another server has the same address",
            ),
        }
    }
    let Some((_, first)) = branches.first() else {
        return;
    };
    let first = *first;
    let branches: Vec<&str> = branches.iter().map(|(branch, _)| branch.as_str()).collect();
    let script = format!(
        "[ -n \"$WEIR_SERVICE\" ] || case \"$WEIR_SERVER:$WEIR_FROM:$WEIR_TO\" in {} esac",
        branches.join(" ")
    );
    let words = vec!["/bin/sh".to_owned(), "-c".to_owned(), script];
    pool.push(Entry::new("notify", words, first));
}
