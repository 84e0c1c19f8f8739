//! Aligns columns, and wraps lines at a maximum width.

use std::fmt::Write as _;

/// Pads each cell to the width of its column, except the last non-empty cell of a row; trailing empty cells are
/// omitted. `draw` may add zero-width text, such as color escape sequences.
pub(super) fn columns<const N: usize>(
    out: &mut String,
    rows: &[[String; N]],
    draw: impl Fn(usize, String) -> String,
) {
    let width = |index: usize| rows.iter().map(|row| row[index].chars().count()).max();
    let widths: [usize; N] = std::array::from_fn(|index| width(index).unwrap_or(0));
    for row in rows {
        let mut line = String::new();
        let last = row.iter().rposition(|cell| !cell.is_empty()).unwrap_or(0);
        for (index, (cell, width)) in row.iter().zip(widths).enumerate().take(last + 1) {
            let width = if index == last { 0 } else { width };
            let _ = write!(line, "  {}", draw(index, format!("{cell:<width$}")));
        }
        out.push_str(&line);
        out.push('\n');
    }
}

/// Truncates a line to at most `width` characters, including an ellipsis.
pub(super) fn truncate(line: &str, width: usize) -> String {
    if line.chars().count() <= width {
        return line.to_owned();
    }
    let start: String = line.chars().take(width - 1).collect();
    start + "…"
}

/// Breaks long lines at whitespace, indents the continuation lines, and truncates words that do not fit on a line.
/// Lines with escape sequences are not changed, because they never exceed `width`.
pub(super) fn wrap(text: &str, width: usize) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        if line.contains('\x1b') || line.chars().count() <= width {
            out.push_str(line);
            out.push('\n');
            continue;
        }
        let indent = line.len() - line.trim_start().len();
        let mut current = " ".repeat(indent);
        let mut is_empty = true;
        for word in line.split_whitespace() {
            let added_len = word.chars().count() + usize::from(!is_empty);
            if !is_empty && current.chars().count() + added_len > width {
                out.push_str(&current);
                out.push('\n');
                current = " ".repeat(indent + 4);
                is_empty = true;
            }
            if !is_empty {
                current.push(' ');
            }
            current.push_str(&truncate(word, width - indent - 4));
            is_empty = false;
        }
        out.push_str(&current);
        out.push('\n');
    }
    out
}

/// Formats a number with at most five digits and, if necessary, a unit prefix. Numbers above 99,999 T have more digits.
pub(super) fn format_short(number: u64) -> String {
    let units = [
        (1, ""),
        (1_000, "k"),
        (1_000_000, "M"),
        (1_000_000_000, "G"),
    ];
    if number < 100_000 {
        return number.to_string();
    }
    let (unit, name) = units
        .into_iter()
        .find(|(unit, _)| number / unit < 10_000)
        .unwrap_or((1_000_000_000_000, "T"));
    format!("{}{name}", number / unit)
}

/// Formats a duration in at most two units: `3d4h`, `12m5s`, `7s`.
pub(super) fn format_age(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m{}s", seconds % 60),
        (0, _, _) => format!("{hours}h{}m", minutes % 60),
        (1..100, ..) => format!("{days}d{}h", hours % 24),
        _ => format!("{days}d"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_durations_are_short() {
        for (number, text) in [
            (0, "0"),
            (99_999, "99999"),
            (100_000, "100k"),
            (9_999_999, "9999k"),
            (12_345_678, "12M"),
            (u64::MAX, "18446744T"),
        ] {
            assert_eq!(format_short(number), text);
        }
        for (seconds, text) in [
            (7, "7s"),
            (61, "1m1s"),
            (3_660, "1h1m"),
            (100_000, "1d3h"),
            (864_000_000, "10000d"),
        ] {
            assert_eq!(format_age(seconds), text);
        }
    }

    #[test]
    fn wrapped_lines_contain_all_words() {
        let text = format!("  a {}\n", "word ".repeat(40).trim_end());
        let wrapped = wrap(&text, 80);
        assert!(wrapped.lines().count() > 2);
        assert!(wrapped.lines().all(|line| line.chars().count() <= 80));
        let words = |text: &str| text.split_whitespace().count();
        assert_eq!(words(&wrapped), words(&text));
        let long = wrap(&"x".repeat(200), 80);
        assert!(
            long.lines().all(|line| line.chars().count() <= 80),
            "{long}"
        );
    }
}
