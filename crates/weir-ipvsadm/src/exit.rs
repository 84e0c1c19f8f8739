//! The end of a command line without a command to run.

/// The exit of a command line without a command to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Exit code.
    pub code: u8,
    /// Printed to standard output.
    pub stdout: String,
    /// Printed to standard error.
    pub stderr: String,
    /// `-R` continues with the next line; otherwise the program exits.
    pub continues: bool,
}

impl Exit {
    /// An error in the arguments: code 2.
    pub(crate) fn fail(message: impl Into<String>) -> Self {
        Self {
            code: 2,
            stdout: String::new(),
            stderr: message.into() + "\n",
            continues: false,
        }
    }

    /// Refers to the help: code 255.
    pub fn try_help(program: &str) -> Self {
        Self {
            code: 255,
            stdout: String::new(),
            stderr: format!("Try `{program} -h' or '{program} --help' for more information.\n"),
            continues: false,
        }
    }

    pub(crate) fn output(stdout: String) -> Self {
        Self {
            code: 0,
            stdout,
            stderr: String::new(),
            continues: false,
        }
    }
}
