//! The state of the screen: which row is selected, what is typed, and what a key does.

use std::time::Instant;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use weir_control::api::Override;
use weir_control::status::Report;

use super::rows::{Arrangement, Earlier, Key, Level, Row, rows};

/// Rows that a page key moves.
const PAGE: usize = 10;

/// What the keys are for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Browse,
    /// Text for the filter; the filter before it, which Esc restores.
    Filter {
        before: String,
    },
    /// An order waits for `y`.
    Confirm(Order),
}

/// A change of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) pool: String,
    pub(super) server: String,
    /// `None` = ready.
    pub(super) change: Option<Override>,
}

impl Order {
    pub(super) const fn verb(&self) -> &'static str {
        match self.change {
            Some(Override::Drain) => "drain",
            Some(Override::Maint) => "maint",
            _ => "ready",
        }
    }
}

/// What the loop has to do after a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Draw,
    Execute(Order),
    Quit,
}

/// Everything that is drawn.
#[derive(Debug)]
pub(super) struct Screen {
    pub(super) report: Report,
    read: Instant,
    earlier: Option<(Report, Instant)>,
    pub(super) how: Arrangement,
    pub(super) mode: Mode,
    pub(super) rows: Vec<Row>,
    /// Index of the selected row.
    pub(super) selected: usize,
    /// Result of the last order.
    pub(super) message: Option<String>,
    /// Why the document is old.
    pub(super) trouble: Option<String>,
}

impl Screen {
    pub(super) fn new(report: Report, now: Instant) -> Self {
        let mut screen = Self {
            report,
            read: now,
            earlier: None,
            how: Arrangement::default(),
            mode: Mode::Browse,
            rows: Vec::new(),
            selected: 0,
            message: None,
            trouble: None,
        };
        screen.arrange();
        screen
    }

    /// Takes a new document; the selected row stays selected.
    pub(super) fn update(&mut self, report: Report, now: Instant) {
        let before = std::mem::replace(&mut self.report, report);
        self.earlier = Some((before, self.read));
        self.read = now;
        self.trouble = None;
        self.arrange();
    }

    /// The selected row.
    pub(super) fn row(&self) -> Option<&Row> {
        self.rows.get(self.selected)
    }

    fn arrange(&mut self) {
        let key: Option<Key> = self.row().map(|row| row.key.clone());
        let earlier = self.earlier.as_ref().map(|(report, at)| Earlier {
            report,
            elapsed: self.read.saturating_duration_since(*at),
        });
        self.rows = rows(&self.report, earlier, &self.how);
        let same = key.and_then(|key| self.rows.iter().position(|row| row.key == key));
        let last = self.rows.len().saturating_sub(1);
        self.selected = same.unwrap_or(self.selected).min(last);
    }

    /// Handles a key.
    pub(super) fn key(&mut self, key: KeyEvent) -> Next {
        if key.kind == KeyEventKind::Release {
            return Next::Draw;
        }
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        if is_control && matches!(key.code, KeyCode::Char('c')) {
            return Next::Quit;
        }
        match std::mem::replace(&mut self.mode, Mode::Browse) {
            Mode::Browse => self.browse(key.code),
            Mode::Filter { before } => self.edit_filter(key.code, before),
            Mode::Confirm(order) if key.code == KeyCode::Char('y') => Next::Execute(order),
            Mode::Confirm(order) => {
                self.message = Some(format!("{} cancelled", order.verb()));
                Next::Draw
            }
        }
    }

    fn browse(&mut self, code: KeyCode) -> Next {
        let last = self.rows.len().saturating_sub(1);
        match code {
            KeyCode::Char('q') => return Next::Quit,
            KeyCode::Esc => {
                self.how.filter.clear();
                self.arrange();
            }
            KeyCode::Down | KeyCode::Char('j') => self.selected = (self.selected + 1).min(last),
            KeyCode::Up | KeyCode::Char('k') => self.selected = self.selected.saturating_sub(1),
            KeyCode::PageDown => self.selected = (self.selected + PAGE).min(last),
            KeyCode::PageUp => self.selected = self.selected.saturating_sub(PAGE),
            KeyCode::Home => self.selected = 0,
            KeyCode::End => self.selected = last,
            KeyCode::Char('s') => {
                self.how.sort = self.how.sort.next();
                self.arrange();
            }
            KeyCode::Char('S') => {
                self.how.reverse = !self.how.reverse;
                self.arrange();
            }
            KeyCode::Char('/') => {
                let before = self.how.filter.clone();
                self.mode = Mode::Filter { before };
            }
            KeyCode::Char('d') => self.confirm(Some(Override::Drain)),
            KeyCode::Char('m') => self.confirm(Some(Override::Maint)),
            KeyCode::Char('r') => self.confirm(None),
            _ => {}
        }
        Next::Draw
    }

    fn edit_filter(&mut self, code: KeyCode, before: String) -> Next {
        match code {
            KeyCode::Enter => return Next::Draw,
            KeyCode::Esc => {
                self.how.filter = before;
                self.arrange();
                return Next::Draw;
            }
            KeyCode::Backspace => {
                self.how.filter.pop();
            }
            KeyCode::Char(letter) => self.how.filter.push(letter),
            _ => {}
        }
        self.mode = Mode::Filter { before };
        self.arrange();
        Next::Draw
    }

    /// Asks for a confirmation.
    fn confirm(&mut self, change: Option<Override>) {
        let server = self.row().filter(|row| row.level == Level::Server);
        let Some(key) = server.map(|row| row.key.clone()) else {
            self.message = Some("select a server first".to_owned());
            return;
        };
        self.message = None;
        self.mode = Mode::Confirm(Order {
            pool: key.pool,
            server: key.server,
            change,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::Sort;
    use super::super::rows::tests::report;
    use super::*;

    fn screen() -> Screen {
        let servers = [("10.0.0.5", "up", 1, 1), ("10.0.0.6", "up", 2, 2)];
        Screen::new(report(&servers), Instant::now())
    }

    fn press(screen: &mut Screen, keys: &str) -> Next {
        let mut last = Next::Draw;
        for letter in keys.chars() {
            last = screen.key(KeyCode::Char(letter).into());
        }
        last
    }

    #[test]
    fn order_needs_a_selected_server_and_a_confirmation() {
        let mut screen = screen();
        assert_eq!(press(&mut screen, "dy"), Next::Draw);
        assert_eq!(screen.message.as_deref(), Some("select a server first"));
        let drain = Order {
            pool: "app".to_owned(),
            server: "10.0.0.5".to_owned(),
            change: Some(Override::Drain),
        };
        assert_eq!(press(&mut screen, "jjdn"), Next::Draw);
        assert_eq!(screen.message.as_deref(), Some("drain cancelled"));
        assert_eq!(press(&mut screen, "dy"), Next::Execute(drain.clone()));
        let ready = Order {
            change: None,
            ..drain
        };
        assert_eq!(press(&mut screen, "ry"), Next::Execute(ready));
    }

    #[test]
    fn selection_follows_its_server() {
        let mut screen = screen();
        press(&mut screen, "jjj");
        assert_eq!(screen.row().unwrap().key.server, "10.0.0.6");
        press(&mut screen, "sss");
        assert_eq!(screen.how.sort, Sort::Active);
        assert_eq!(screen.selected, 2, "most connections first");
        let servers = [("10.0.0.6", "up", 2, 2)];
        screen.update(report(&servers), Instant::now());
        assert_eq!(screen.row().unwrap().key.server, "10.0.0.6");
    }

    #[test]
    fn letters_of_the_filter_are_not_orders() {
        let mut screen = screen();
        press(&mut screen, "/0.6q");
        assert_eq!(screen.how.filter, "0.6q");
        screen.key(KeyCode::Backspace.into());
        screen.key(KeyCode::Enter.into());
        assert_eq!((screen.rows.len(), &screen.mode), (3, &Mode::Browse));
        press(&mut screen, "/x");
        screen.key(KeyCode::Esc.into());
        assert_eq!(screen.how.filter, "0.6", "Esc restores the filter");
        screen.key(KeyCode::Esc.into());
        assert_eq!(screen.rows.len(), 4, "Esc while browsing removes it");
    }

    #[test]
    fn control_c_quits_in_every_mode() {
        let control = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        for keys in ["", "/", "jjd"] {
            let mut screen = screen();
            press(&mut screen, keys);
            assert_eq!(screen.key(control), Next::Quit, "{keys:?}");
        }
    }
}
