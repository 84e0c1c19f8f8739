//! From a command line to a [`Command`], or to what the tool says instead.
//!
//! Order is meaning: the first option is the command, `-r` takes the family and port of the service named before it, `-M`
//! is a dotted mask or a prefix length by the family seen so far.

mod draft;
mod finish;
mod known;
mod word;

use self::draft::Draft;
use self::known::KNOWN;
use crate::popt::Options;
use crate::{Columns, Edit, Names, ServiceKey};

/// What a command line asks for.
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

/// What is to be listed.
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

/// The end of a command line that asks for nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Exit code.
    pub code: u8,
    /// To standard output.
    pub stdout: String,
    /// To standard error.
    pub stderr: String,
    /// `-R` goes on with the next line; other ends are the program's.
    pub goes_on: bool,
}

impl Exit {
    /// A mistake in the arguments: code 2.
    pub(crate) fn fail(message: impl Into<String>) -> Self {
        Self {
            code: 2,
            stdout: String::new(),
            stderr: message.into() + "\n",
            goes_on: false,
        }
    }

    /// Points to the help: code 255.
    pub fn try_help(program: &str) -> Self {
        Self {
            code: 255,
            stdout: String::new(),
            stderr: format!("Try `{program} -h' or '{program} --help' for more information.\n"),
            goes_on: false,
        }
    }

    fn output(stdout: String) -> Self {
        Self {
            code: 0,
            stdout,
            stderr: String::new(),
            goes_on: false,
        }
    }
}

/// Reads a command line: `program` as it was called, `arguments` after it. No arguments ask for the list.
///
/// # Errors
/// What the tool prints and exits with when there is nothing to do, mistakes above all.
pub fn parse(program: &str, arguments: &[String], names: &dyn Names) -> Result<Command, Exit> {
    if arguments.is_empty() {
        return Ok(Command::List(List::All, Columns::default()));
    }
    let mut options = Options::new(KNOWN, arguments);
    let mut draft = match options.next_option() {
        Some(Ok((tag, argument))) => Draft::new(program, tag, argument)?,
        _ => return Err(Exit::try_help(program)),
    };
    while let Some(option) = options.next_option() {
        let word = options.last_word();
        match option {
            Ok((tag, argument)) => draft.enter(tag, argument, word, names)?,
            Err(problem) => {
                return Err(Exit {
                    code: 255,
                    stdout: String::new(),
                    stderr: format!("{word}: {}\n", problem.as_str()),
                    goes_on: true,
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
