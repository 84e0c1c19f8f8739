//! Options for rendering the text.

use std::time::Duration;

use super::super::Report;

/// A previous document, for computing rates, and the time since it was read.
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
    /// Columns of the terminal, at least 80; `None` = not a terminal.
    pub width: Option<usize>,
    /// Whether states are coloured.
    pub color: bool,
    /// Whether all servers are listed, even in a large pool.
    pub all: bool,
    /// Whether only servers that are down were selected.
    pub down: bool,
    /// The current time since 1970, for the age of states; `None` = the time of the state change is shown.
    pub now: Option<Duration>,
    /// A previous document; `None` = no rates are shown.
    pub previous: Option<Previous<'a>>,
}
