//! Reports the results as a table or JSON, and whether Weir meets all limits.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value, json};

use super::catalog::Attack;
use super::proxy::Candidate;
use super::rules::{self, Column, FACTOR, median};
use super::trial::{Measurement, RECOVERY_TIMEOUT, Settings};

/// Results of one attack on one proxy, over all rounds.
#[derive(Clone, Debug)]
pub struct AttackRow {
    /// The attack's name.
    pub attack: &'static str,
    /// The proxy's name.
    pub proxy: &'static str,
    /// Number of units that the attackers sent per second: streams, frames, bytes or connections, depending on the
    /// attack.
    pub sent_per_second: f64,
    /// Connections that the attackers opened.
    pub opened: f64,
    /// Requests of the attackers that reached the server.
    pub requests: f64,
    /// Maximum number of concurrent requests.
    pub max_concurrent_requests: f64,
    /// Share of the tool CPU that the lab's own process used, 0 to 1.
    pub tool_share: f64,
    /// The summary of all rounds, by column.
    values: Vec<f64>,
    /// The values of all rounds, by column.
    rounds: Vec<Vec<f64>>,
    /// Columns in which Weir exceeds its limit; empty for other proxies.
    violations: Vec<Column>,
}

impl AttackRow {
    /// Returns the maximum number of requests that remained at the server after a round.
    pub fn remaining_requests(&self) -> f64 {
        self.values[Column::Remaining as usize]
    }

    fn json(&self) -> Value {
        let mut row = json!({
            "attack": self.attack,
            "proxy": self.proxy,
            "sent_per_second": self.sent_per_second,
            "connections_opened": self.opened,
            "requests_at_server": self.requests,
            "requests_at_once": self.max_concurrent_requests,
            "tool_cpu_share": self.tool_share,
            "violations": self.violations.iter().map(|it| it.key()).collect::<Vec<_>>(),
        });
        for column in Column::ALL {
            row[column.key()] = json!(self.values[column as usize]);
            row["rounds"][column.key()] = json!(self.rounds[column as usize]);
        }
        row
    }
}

/// Report of a run.
#[derive(Clone, Debug)]
pub struct AttackReport {
    /// One row for each attack and proxy.
    pub rows: Vec<AttackRow>,
    /// Lines with versions, settings and limits.
    header: Vec<String>,
    configurations: BTreeMap<&'static str, String>,
    /// The privileges of each proxy's processes in its first trial. JSON: `"rights"`.
    privileges: BTreeMap<&'static str, Vec<String>>,
}

impl AttackReport {
    pub(crate) fn new(
        settings: &Settings<'_>,
        rounds: u32,
        candidates: &[Candidate],
        directory: &Path,
    ) -> Self {
        let mut header = Vec::new();
        for candidate in candidates {
            let name = candidate.kind.name();
            header.push(format!("{name}: {}", candidate.program.display()));
            header.extend(candidate.version.iter().map(|line| format!("  {line}")));
            header.extend(candidate.note().map(|note| format!("  note: {note}")));
        }
        header.push(format!(
            "Each attack lasts {} s per proxy and round. The proxies alternate; number of rounds: {rounds}. Each proxy \
             has one worker on CPU {}; all other programs run on CPU {}.",
            settings.duration.as_secs(),
            settings.proxy_cpu,
            settings.tool_cpu
        ));
        header.push(format!(
            "The server responds to attackers after {} s. A proxy has {} s to recover.",
            settings.delay.as_secs(),
            RECOVERY_TIMEOUT.as_secs()
        ));
        let floors: Vec<String> = Column::ALL
            .iter()
            .filter(|column| **column != Column::Remaining)
            .map(|column| format!("{} {}", column.heading(), column.floor()))
            .collect();
        header.push(format!(
            "Weir's value may be at most {FACTOR} times that of the better peer. Differences up to these values count \
             as noise: {}.",
            floors.join(", ")
        ));
        header.push(
            "\"remaining\", the requests that remain at the server, must be 0 if a peer has 0. It is the maximum of \
             the rounds; all other columns are medians.".into(),
        );
        let configuration = |candidate: &Candidate| {
            let text = candidate.configuration(directory, &directory.join("certificate.pem"));
            (candidate.kind.name(), text)
        };
        Self {
            rows: Vec::new(),
            header,
            configurations: candidates.iter().map(configuration).collect(),
            privileges: BTreeMap::new(),
        }
    }

    pub(crate) fn add(
        &mut self,
        attack: &Attack,
        candidates: &[Candidate],
        measurements_by_candidate: &[Vec<Measurement>],
    ) {
        let mut rows = Vec::new();
        for (candidate, measurements) in candidates.iter().zip(measurements_by_candidate) {
            if let Some(first) = measurements.first() {
                let privileges = self.privileges.entry(candidate.kind.name());
                privileges.or_insert_with(|| first.privileges.clone());
            }
            let median_of = |value: &dyn Fn(&Measurement) -> f64| {
                median(&measurements.iter().map(value).collect::<Vec<_>>())
            };
            let rounds = Column::ALL.map(|column| {
                let values = measurements.iter();
                values.map(|it| it.value(column)).collect::<Vec<_>>()
            });
            let summary = |column: Column| column.summary(&rounds[column as usize]);
            let values = Column::ALL.map(summary).to_vec();
            rows.push(AttackRow {
                attack: attack.name,
                proxy: candidate.kind.name(),
                sent_per_second: median_of(&|it| it.sent_per_second),
                opened: median_of(&|it| it.work.opened as f64),
                requests: median_of(&|it| it.requests.0 as f64),
                max_concurrent_requests: median_of(&|it| it.requests.1 as f64),
                tool_share: median_of(&|it| it.tool_share),
                values,
                rounds: rounds.to_vec(),
                violations: Vec::new(),
            });
        }
        let values = rows.iter().map(|row| (row.proxy, row.values.clone()));
        let violations = rules::violations(&values.collect());
        if let Some(weir) = rows.iter_mut().find(|row| row.proxy == "weir") {
            weir.violations = violations;
        }
        self.rows.extend(rows);
    }

    /// Returns whether Weir meets all limits.
    pub fn passed(&self) -> bool {
        self.rows.iter().all(|row| row.violations.is_empty())
    }

    /// Returns all results as JSON.
    pub fn json(&self) -> String {
        let document = json!({
            "header": self.header,
            "configurations": self.configurations,
            "rights": self.privileges,
            "rows": self.rows.iter().map(AttackRow::json).collect::<Vec<_>>(),
            "passed": self.passed(),
        });
        format!("{document:#}")
    }

    /// Returns the table, preceded by the configurations, versions, settings and privileges. A value with `!` exceeds
    /// its limit.
    pub fn table(&self) -> String {
        let mut text = String::new();
        for (name, configuration) in &self.configurations {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "--- {name}\n{}", configuration.trim_end());
        }
        let _ = writeln!(text, "---\n{}\n", self.header.join("\n"));
        let _ = writeln!(
            text,
            "Processes and their privileges, as in /proc/PID/status:"
        );
        for (name, processes) in &self.privileges {
            for process in processes {
                let _ = writeln!(text, "  {name:<9}{process}");
            }
        }
        text.push('\n');
        let _ = write!(
            text,
            "{:<24}{:<9}{:>9}{:>9}{:>9}",
            "attack", "proxy", "sent/s", "opened", "requests"
        );
        for column in Column::ALL {
            let _ = write!(text, "{:>13}", column.heading());
        }
        let _ = writeln!(text, "{:>10}", "tool CPU");
        for row in &self.rows {
            let _ = writeln!(text, "{}", line(row));
        }
        let violation_count: usize = self.rows.iter().map(|row| row.violations.len()).sum();
        let _ = match violation_count {
            0 => writeln!(text, "\nWeir meets all limits."),
            _ => writeln!(
                text,
                "\nLimits exceeded by Weir (marked with !): {violation_count}."
            ),
        };
        text
    }
}

fn line(row: &AttackRow) -> String {
    let mut text = format!(
        "{:<24}{:<9}{:>9.0}{:>9.0}{:>9.0}",
        row.attack, row.proxy, row.sent_per_second, row.opened, row.requests
    );
    for column in Column::ALL {
        let mark = if row.violations.contains(&column) {
            "!"
        } else {
            " "
        };
        let value = column.format(row.values[column as usize]);
        let _ = write!(text, "{:>13}", format!("{value}{mark}"));
    }
    let _ = write!(text, "{:>9.0}%", row.tool_share * 100.0);
    text
}
