//! Holds the state of the screen, such as the selected row and the typed text, and handles keys.

use std::time::Instant;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use weir_control::api::Override;
use weir_control::status::Report;

use super::rows::{EarlierReport, Key, Level, Row, ViewOptions, rows};

/// Number of rows by which a page key moves the selection.
const PAGE_ROWS: usize = 10;

/// The mode, which determines the effect of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Browse,
    /// Keys edit the filter. `before` is the previous filter, which Esc restores.
    Filter {
        before: String,
    },
    /// A change is waiting for `y`.
    Confirm(ServerChange),
}

/// A change to a server's override.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerChange {
    pub(super) pool: String,
    pub(super) server: String,
    /// `None` = ready.
    pub(super) request: Option<Override>,
}

impl ServerChange {
    pub(super) const fn verb(&self) -> &'static str {
        match self.request {
            Some(Override::Drain) => "drain",
            Some(Override::Maint) => "maint",
            _ => "ready",
        }
    }
}

/// What the event loop does after a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Draw,
    Execute(ServerChange),
    Quit,
}

/// The state that is drawn.
#[derive(Debug)]
pub(super) struct Screen {
    pub(super) report: Report,
    read_at: Instant,
    earlier: Option<(Report, Instant)>,
    pub(super) options: ViewOptions,
    pub(super) mode: Mode,
    pub(super) rows: Vec<Row>,
    /// Index of the selected row.
    pub(super) selected: usize,
    /// The result of the last change.
    pub(super) message: Option<String>,
    /// Why the report could not be updated.
    pub(super) error: Option<String>,
}

impl Screen {
    pub(super) fn new(report: Report, now: Instant) -> Self {
        let mut screen = Self {
            report,
            read_at: now,
            earlier: None,
            options: ViewOptions::default(),
            mode: Mode::Browse,
            rows: Vec::new(),
            selected: 0,
            message: None,
            error: None,
        };
        screen.update_rows();
        screen
    }

    /// Replaces the report. The selected row remains selected if the new report has it.
    pub(super) fn update(&mut self, report: Report, now: Instant) {
        let before = std::mem::replace(&mut self.report, report);
        self.earlier = Some((before, self.read_at));
        self.read_at = now;
        self.error = None;
        self.update_rows();
    }

    pub(super) fn selected_row(&self) -> Option<&Row> {
        self.rows.get(self.selected)
    }

    fn update_rows(&mut self) {
        let key: Option<Key> = self.selected_row().map(|row| row.key.clone());
        let earlier = self
            .earlier
            .as_ref()
            .map(|(report, read_at)| EarlierReport {
                report,
                elapsed: self.read_at.saturating_duration_since(*read_at),
            });
        self.rows = rows(&self.report, earlier, &self.options);
        let index = key.and_then(|key| self.rows.iter().position(|row| row.key == key));
        let last = self.rows.len().saturating_sub(1);
        self.selected = index.unwrap_or(self.selected).min(last);
    }

    /// Handles a pressed or repeated key; ignores its release.
    pub(super) fn handle_key(&mut self, key: KeyEvent) -> Action {
        if key.kind == KeyEventKind::Release {
            return Action::Draw;
        }
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        if is_control && matches!(key.code, KeyCode::Char('c')) {
            return Action::Quit;
        }
        match std::mem::replace(&mut self.mode, Mode::Browse) {
            Mode::Browse => self.browse(key.code),
            Mode::Filter { before } => self.edit_filter(key.code, before),
            Mode::Confirm(change) if key.code == KeyCode::Char('y') => Action::Execute(change),
            Mode::Confirm(change) => {
                self.message = Some(format!("{} canceled", change.verb()));
                Action::Draw
            }
        }
    }

    fn browse(&mut self, code: KeyCode) -> Action {
        let last = self.rows.len().saturating_sub(1);
        match code {
            KeyCode::Char('q') => return Action::Quit,
            KeyCode::Esc => {
                self.options.filter.clear();
                self.update_rows();
            }
            KeyCode::Down | KeyCode::Char('j') => self.selected = (self.selected + 1).min(last),
            KeyCode::Up | KeyCode::Char('k') => self.selected = self.selected.saturating_sub(1),
            KeyCode::PageDown => self.selected = (self.selected + PAGE_ROWS).min(last),
            KeyCode::PageUp => self.selected = self.selected.saturating_sub(PAGE_ROWS),
            KeyCode::Home => self.selected = 0,
            KeyCode::End => self.selected = last,
            KeyCode::Char('s') => {
                self.options.sort = self.options.sort.next();
                self.update_rows();
            }
            KeyCode::Char('S') => {
                self.options.reverse = !self.options.reverse;
                self.update_rows();
            }
            KeyCode::Char('/') => {
                let before = self.options.filter.clone();
                self.mode = Mode::Filter { before };
            }
            KeyCode::Char('d') => self.confirm(Some(Override::Drain)),
            KeyCode::Char('m') => self.confirm(Some(Override::Maint)),
            KeyCode::Char('r') => self.confirm(None),
            _ => {}
        }
        Action::Draw
    }

    fn edit_filter(&mut self, code: KeyCode, before: String) -> Action {
        match code {
            KeyCode::Enter => return Action::Draw,
            KeyCode::Esc => {
                self.options.filter = before;
                self.update_rows();
                return Action::Draw;
            }
            KeyCode::Backspace => {
                self.options.filter.pop();
            }
            KeyCode::Char(letter) => self.options.filter.push(letter),
            _ => {}
        }
        self.mode = Mode::Filter { before };
        self.update_rows();
        Action::Draw
    }

    /// Asks the user to confirm a change to the selected server.
    fn confirm(&mut self, request: Option<Override>) {
        let server = self.selected_row().filter(|row| row.level == Level::Server);
        let Some(key) = server.map(|row| row.key.clone()) else {
            self.message = Some("select a server first".to_owned());
            return;
        };
        self.message = None;
        self.mode = Mode::Confirm(ServerChange {
            pool: key.pool,
            server: key.server,
            request,
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

    fn press(screen: &mut Screen, keys: &str) -> Action {
        let mut action = Action::Draw;
        for letter in keys.chars() {
            action = screen.handle_key(KeyCode::Char(letter).into());
        }
        action
    }

    #[test]
    fn change_requires_selected_server_and_confirmation() {
        let mut screen = screen();
        assert_eq!(press(&mut screen, "dy"), Action::Draw);
        assert_eq!(screen.message.as_deref(), Some("select a server first"));
        let drain = ServerChange {
            pool: "app".to_owned(),
            server: "10.0.0.5".to_owned(),
            request: Some(Override::Drain),
        };
        assert_eq!(press(&mut screen, "jjdn"), Action::Draw);
        assert_eq!(screen.message.as_deref(), Some("drain canceled"));
        assert_eq!(press(&mut screen, "dy"), Action::Execute(drain.clone()));
        let ready = ServerChange {
            request: None,
            ..drain
        };
        assert_eq!(press(&mut screen, "ry"), Action::Execute(ready));
    }

    #[test]
    fn selected_server_remains_selected() {
        let mut screen = screen();
        press(&mut screen, "jjj");
        assert_eq!(screen.selected_row().unwrap().key.server, "10.0.0.6");
        press(&mut screen, "sss");
        assert_eq!(screen.options.sort, Sort::Active);
        assert_eq!(screen.selected, 2, "most connections first");
        let servers = [("10.0.0.6", "up", 2, 2)];
        screen.update(report(&servers), Instant::now());
        assert_eq!(screen.selected_row().unwrap().key.server, "10.0.0.6");
    }

    #[test]
    fn letters_typed_into_filter_are_not_commands() {
        let mut screen = screen();
        press(&mut screen, "/0.6q");
        assert_eq!(screen.options.filter, "0.6q");
        screen.handle_key(KeyCode::Backspace.into());
        screen.handle_key(KeyCode::Enter.into());
        assert_eq!((screen.rows.len(), &screen.mode), (3, &Mode::Browse));
        press(&mut screen, "/x");
        screen.handle_key(KeyCode::Esc.into());
        assert_eq!(screen.options.filter, "0.6", "Esc restores the filter");
        screen.handle_key(KeyCode::Esc.into());
        assert_eq!(
            screen.rows.len(),
            4,
            "Esc while browsing removes the filter"
        );
    }

    #[test]
    fn control_c_quits_in_every_mode() {
        let control = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        for keys in ["", "/", "jjd"] {
            let mut screen = screen();
            press(&mut screen, keys);
            assert_eq!(screen.handle_key(control), Action::Quit, "{keys:?}");
        }
    }
}
