//! How the text is drawn.

use std::time::Duration;

use super::super::Report;

/// An earlier document and how long ago it was read; gives the rates.
#[derive(Clone, Copy, Debug)]
pub struct Earlier<'a> {
    /// The document.
    pub report: &'a Report,
    /// Time between the two; not zero.
    pub elapsed: Duration,
}

/// How the text is drawn.
#[derive(Clone, Copy, Debug, Default)]
pub struct View<'a> {
    /// Columns of the terminal, at least 80; `None` = not a terminal.
    pub width: Option<usize>,
    /// Whether states are coloured.
    pub color: bool,
    /// Every server is listed, however many there are.
    pub all: bool,
    /// Only servers that are down were selected.
    pub down: bool,
    /// The present time since 1970, for the age of states; `None` = their time is shown.
    pub now: Option<Duration>,
    /// For rates.
    pub earlier: Option<Earlier<'a>>,
}
