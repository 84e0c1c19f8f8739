//! Defines the options for rendering the text.

use std::time::Duration;

use super::super::Report;

/// A previous document for computing rates, and the time since it was read.
#[derive(Clone, Copy, Debug)]
pub struct Previous<'a> {
    /// The document.
    pub report: &'a Report,
    /// Time between the two documents; must not be zero.
    pub elapsed: Duration,
}

/// Options for rendering the text.
#[derive(Clone, Copy, Debug, Default)]
pub struct View<'a> {
    /// Number of columns of the terminal, at least 80; `None` = the output is not a terminal.
    pub width: Option<usize>,
    /// Whether states are colored.
    pub color: bool,
    /// Whether all servers are listed, even in a large pool.
    pub all: bool,
    /// Whether only servers that are down were selected.
    pub down: bool,
    /// The current time since 1970, from which the age of states is computed; `None` = the time of the state change is
    /// shown instead.
    pub now: Option<Duration>,
    /// A previous document, for rates; `None` = no rates are shown.
    pub previous: Option<Previous<'a>>,
}
