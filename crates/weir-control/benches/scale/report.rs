//! Rows as they are measured.

use std::time::Duration;

/// Prints its head with the first row.
pub(crate) struct Table {
    only: String,
    begun: bool,
}

fn shown(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1e3;
    if ms < 10.0 {
        format!("{ms:.2}")
    } else {
        format!("{ms:.0}")
    }
}

impl Table {
    /// Shows the rows whose name holds `only`.
    pub(crate) fn new(only: String) -> Self {
        Self { only, begun: false }
    }

    /// Median, least and most of what was measured.
    pub(crate) fn row(&mut self, name: &str, mut took: Vec<Duration>, goal: Option<Duration>) {
        if !name.contains(&self.only) || took.is_empty() {
            return;
        }
        if !self.begun {
            println!("| what | ms | least…most | goal | |\n| --- | --- | --- | --- | --- |");
            self.begun = true;
        }
        took.sort();
        let median = took[took.len() / 2];
        let (least, most) = (shown(took[0]), shown(took[took.len() - 1]));
        let (goal, met) = match goal {
            Some(goal) if median < goal => (format!("< {}", goal.as_millis()), "met"),
            Some(goal) => (format!("< {}", goal.as_millis()), "NOT met"),
            None => ("–".to_owned(), ""),
        };
        println!(
            "| {name} | {} | {least}…{most} | {goal} | {met} |",
            shown(median)
        );
    }
}
