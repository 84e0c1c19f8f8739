//! Parses a command line to a [`Command`], or to what the tool prints instead.
//!
//! Order matters: the first option is the command, `-r` uses the family and port of the service named before it, `-M`
//! is a dotted mask or a prefix length depending on the family so far.

mod argument;
mod draft;
mod finish;
mod option_table;

use self::draft::Draft;
use self::option_table::OPTION_TABLE;
use crate::exit::Exit;
use crate::popt::Options;
use crate::{Columns, Edit, Names, ServiceKey};

/// The request of a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// A change of the table.
    Edit(Edit),
    /// `-L`.
    List(List, Columns),
    /// `-S`.
    Save(Columns),
    /// `-R`.
    Restore,
}

/// What to list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum List {
    /// Every service.
    All,
    /// One service.
    Service(ServiceKey),
    /// `-c`.
    Connections,
    /// `--timeout`.
    Timeouts,
    /// `--daemon`.
    Daemons,
}

/// Parses a command line: `program` is its name, `arguments` follow it. No arguments mean `-L`.
///
/// # Errors
/// What the tool prints and its exit code if there is nothing to run, mainly after errors.
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
    draft.positional(&mut others)?;
    if let Some(other) = others.next() {
        return Err(Exit::fail(format!("unexpected argument {other}")));
    }
    draft.scheduler_flags()?;
    draft.verb.rule().check(draft.given)?;
    draft.finish()
}
