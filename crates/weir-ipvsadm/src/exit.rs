//! Defines the result of a command line that runs no command: output and exit code.

/// The result of a command line that runs no command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Exit code.
    pub code: u8,
    /// Text for standard output.
    pub stdout: String,
    /// Text for standard error.
    pub stderr: String,
    /// Whether `-R` continues with the next line; otherwise the program exits.
    pub continues: bool,
}

impl Exit {
    /// Returns the exit for an error in the arguments: code 2.
    pub(crate) fn fail(message: impl Into<String>) -> Self {
        Self {
            code: 2,
            stdout: String::new(),
            stderr: message.into() + "\n",
            continues: false,
        }
    }

    /// Returns the exit with a hint to use `--help`: code 255.
    pub fn try_help(program: &str) -> Self {
        Self {
            code: 255,
            stdout: String::new(),
            stderr: format!("Try `{program} -h' or '{program} --help' for more information.\n"),
            continues: false,
        }
    }

    /// Returns a successful exit with text for standard output.
    pub(crate) fn output(stdout: String) -> Self {
        Self {
            code: 0,
            stdout,
            stderr: String::new(),
            continues: false,
        }
    }
}
