//! Draws the live view: a header, the table and the key bindings.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row as TableRow, Table, TableState};
use weir_control::count::format_count;
use weir_control::status::table::servers_text;

use super::rows::{Level, Row};
use super::screen::{Mode, Screen};

const KEYS: &str = "q quit  / filter  s sort  S reverse  d drain  m maint  r ready";

/// Draws the screen. Without `color`, only bold and reverse video distinguish rows.
pub(super) fn draw(frame: &mut Frame<'_>, screen: &Screen, color: bool) {
    let areas = [
        Constraint::Length(2),
        Constraint::Min(1),
        Constraint::Length(1),
    ];
    let [header, body, footer] = Layout::vertical(areas).areas(frame.area());
    frame.render_widget(Paragraph::new(header_lines(screen)), header);
    draw_table(frame, screen, body, color);
    frame.render_widget(Paragraph::new(footer_line(screen)), footer);
}

fn header_lines(screen: &Screen) -> Vec<Line<'static>> {
    let report = &screen.report;
    let servers = || report.services.iter().flat_map(|service| &service.servers);
    let down = servers().filter(|server| server.state == "down").count();
    let first = format!(
        "weir top  revision {}  {}, {}, {down} down  {} of {} flow slots in use",
        report.revision,
        format_count(report.services.len() as u64, "service"),
        servers_text(report),
        report.flows.entries,
        report.flows.slots,
    );
    let mut second = format!(
        "sort: {}{}",
        screen.options.sort.as_str(),
        if screen.options.reverse {
            ", reversed"
        } else {
            ""
        }
    );
    if !screen.options.filter.is_empty() {
        second.push_str(&format!("  filter: {}", screen.options.filter));
    }
    if let Some(error) = &screen.error {
        second = format!("{error}; the values are stale");
    }
    vec![first.into(), second.into()]
}

fn footer_line(screen: &Screen) -> Line<'static> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    match &screen.mode {
        Mode::Filter { .. } => Line::from(format!("filter: {}_", screen.options.filter)),
        Mode::Confirm(change) => Line::from(Span::styled(
            format!("{} {}/{}? y/n", change.verb(), change.pool, change.server),
            bold,
        )),
        Mode::Browse => match &screen.message {
            Some(message) => Line::from(Span::styled(message.clone(), bold)),
            None => Line::from(KEYS),
        },
    }
}

fn draw_table(frame: &mut Frame<'_>, screen: &Screen, area: ratatui::layout::Rect, color: bool) {
    let names = screen.rows.iter().map(|row| row.name().chars().count());
    let name_width = u16::try_from(names.max().unwrap_or(0).clamp(12, 40)).unwrap_or(40);
    let widths = [
        Constraint::Length(name_width),
        Constraint::Length(9),
        Constraint::Length(7),
        Constraint::Length(7),
        Constraint::Length(7),
        Constraint::Length(6),
        Constraint::Length(7),
        Constraint::Length(7),
        Constraint::Length(7),
        Constraint::Min(10),
    ];
    let header = [
        "name", "state", "weight", "active", "rate/s", "err/s", "in B/s", "out B/s", "p99 ms",
        "reason",
    ];
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let rows = screen.rows.iter().map(|row| table_row(row, color));
    let table = Table::new(rows, widths)
        .header(TableRow::new(header).style(bold))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::new().with_selected(Some(screen.selected));
    frame.render_stateful_widget(table, area, &mut state);
}

fn table_row(row: &Row, color: bool) -> TableRow<'static> {
    let rate = |value: Option<f64>| value.map(format_short).unwrap_or_default();
    let state = Cell::from(row.state.clone());
    let state = match state_color(row).filter(|_| color) {
        Some(color) => state.style(Style::new().fg(color)),
        None => state,
    };
    let table_row = TableRow::new(vec![
        Cell::from(row.name()),
        state,
        Cell::from(row.weight.clone()),
        Cell::from(format_short(row.active as f64)),
        Cell::from(rate(row.rate)),
        Cell::from(rate(row.errors)),
        Cell::from(rate(row.bytes.map(|it| it.0))),
        Cell::from(rate(row.bytes.map(|it| it.1))),
        Cell::from(row.p99_ms.map(milliseconds).unwrap_or_default()),
        Cell::from(row.reason.clone()),
    ]);
    match row.level {
        Level::Service => table_row.style(Style::new().add_modifier(Modifier::BOLD)),
        Level::Pool | Level::Server => table_row,
    }
}

/// Returns the color for the state of a row; `None` = the default color.
fn state_color(row: &Row) -> Option<Color> {
    match (row.level, row.state.as_str()) {
        (Level::Server, "up") => Some(Color::Green),
        (Level::Server, "down" | "ejected") => Some(Color::Red),
        (Level::Server, "drain" | "maint" | "starting" | "full" | "removed") => Some(Color::Yellow),
        (Level::Service, state) if !state.is_empty() => Some(Color::Red),
        _ => None,
    }
}

/// Formats a number in at most six characters.
fn format_short(value: f64) -> String {
    const UNITS: [&str; 5] = ["", "k", "M", "G", "T"];
    let (mut value, mut unit) = (value, 0);
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1_000.0;
        unit += 1;
    }
    if unit == 0 && value.fract() == 0.0 || value >= 99.95 {
        format!("{value:.0}{}", UNITS[unit])
    } else {
        format!("{value:.1}{}", UNITS[unit])
    }
}

/// Formats a latency. A latency below the resolution of the column is not shown as zero.
fn milliseconds(ms: f64) -> String {
    match ms {
        ..0.05 => "<0.1".to_owned(),
        _ => format!("{ms:.1}"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::KeyCode;

    use super::super::rows::tests::report;
    use super::*;

    fn drawn_text(screen: &Screen, width: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, 8)).unwrap();
        terminal.draw(|frame| draw(frame, screen, true)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let line = |y| -> String { (0..width).map(|x| buffer[(x, y)].symbol()).collect() };
        (0..8)
            .map(|y| line(y).trim_end().to_owned() + "\n")
            .collect()
    }

    #[test]
    fn small_latency_is_not_zero() {
        assert_eq!(
            [0.0, 0.04, 0.05, 2.25].map(milliseconds),
            ["<0.1", "<0.1", "0.1", "2.2"]
        );
    }

    #[test]
    fn numbers_have_at_most_six_characters() {
        for (value, expected) in [
            (0.0, "0"),
            (0.5, "0.5"),
            (999.0, "999"),
            (1_234.0, "1.2k"),
            (123_456.0, "123k"),
            (999_600.0, "1.0M"),
            (5e13, "50.0T"),
        ] {
            assert_eq!(format_short(value), expected);
        }
    }

    #[test]
    fn header_table_and_key_bindings_are_drawn() {
        let now = Instant::now();
        let mut screen = Screen::new(report(&[("10.0.0.5", "up", 3, 10)]), now);
        screen.update(
            report(&[("10.0.0.5", "down", 3, 30)]),
            now + Duration::from_secs(1),
        );
        let drawn = drawn_text(&screen, 110);
        assert!(
            drawn.contains("weir top  revision 7  1 service, 1 server, 1 down"),
            "{drawn}"
        );
        let line = drawn
            .lines()
            .find(|line| line.contains("10.0.0.5"))
            .unwrap();
        let cells: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(
            cells[..7],
            ["10.0.0.5", "down", "0/1", "3", "20", "200", "0"],
            "{drawn}"
        );
        assert!(drawn.contains(KEYS), "{drawn}");
    }

    #[test]
    fn confirmation_shows_the_server() {
        let mut screen = Screen::new(report(&[("10.0.0.5", "up", 0, 0)]), Instant::now());
        for letter in ['j', 'j', 'd'] {
            screen.handle_key(KeyCode::Char(letter).into());
        }
        let drawn = drawn_text(&screen, 80);
        assert!(drawn.contains("drain app/10.0.0.5? y/n"), "{drawn}");
    }

    #[test]
    fn narrow_terminal_is_drawn_without_panic() {
        let screen = Screen::new(report(&[("10.0.0.5", "up", 0, 0)]), Instant::now());
        for width in [1, 10, 30] {
            drawn_text(&screen, width);
        }
    }
}
