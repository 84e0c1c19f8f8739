//! Parses a command line into a [`Command`], or into the output that the tool prints instead.
//!
//! Order matters: the first option is the command, `-r` uses the protocol and port of the service given before it, and
//! `-M` is a dotted mask or a prefix length depending on the family of the options before it.

mod argument;
mod draft;
mod finish;
mod option_table;

use self::draft::Draft;
use self::option_table::OPTION_TABLE;
use crate::exit::Exit;
use crate::popt::Options;
use crate::{Columns, Edit, Names, ServiceKey};

/// What a command line requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Changes the table.
    Edit(Edit),
    /// Lists services, connections, timeouts or synchronization daemons (`-L`).
    List(List, Columns),
    /// Saves the table (`-S`).
    Save(Columns),
    /// Restores a saved table (`-R`).
    Restore,
}

/// The content of a listing (`-L`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum List {
    /// All services.
    All,
    /// One service.
    Service(ServiceKey),
    /// Connections (`-c`).
    Connections,
    /// Timeouts (`--timeout`).
    Timeouts,
    /// Synchronization daemons (`--daemon`).
    Daemons,
}

/// Parses a command line. `program` is the program's name; `arguments` are the words after it. No arguments mean `-L`.
///
/// # Errors
/// Returns the tool's output and exit code if the command line is invalid, or requests only the help text or the
/// version.
pub fn parse(program: &str, arguments: &[String], names: &dyn Names) -> Result<Command, Exit> {
    if arguments.is_empty() {
        return Ok(Command::List(List::All, Columns::default()));
    }
    let mut options = Options::new(OPTION_TABLE, arguments);
    let mut draft = match options.next_option() {
        Some(Ok((tag, argument))) => Draft::new(program, tag, argument)?,
        _ => return Err(Exit::try_help(program)),
    };
    while let Some(option) = options.next_option() {
        let word = options.last_word();
        match option {
            Ok((tag, argument)) => draft.apply_option(tag, argument, word, names)?,
            Err(problem) => {
                return Err(Exit {
                    code: 255,
                    stdout: String::new(),
                    stderr: format!("{word}: {}\n", problem.as_str()),
                    continues: true,
                });
            }
        }
    }
    let mut others = options.others().into_iter();
    draft.apply_timeouts(&mut others)?;
    if let Some(other) = others.next() {
        return Err(Exit::fail(format!("unexpected argument {other}")));
    }
    draft.apply_scheduler_flags()?;
    draft.verb.rule().check(draft.given)?;
    draft.finish()
}
