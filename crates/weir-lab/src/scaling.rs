//! Implements `weir lab scaling`, which simulates how many connections break, and calculates a director's resources.
//!
//! The output is tables or JSON.

use std::fmt::Write as _;

use clap::Args;
use serde_json::json;
use weir_scaling::{
    Costs, Design, Group, Load, Outcome, Requirements, Router, Scenario, Simulation, capacity,
};

use crate::error::{LabError, Result};
use crate::rate::Rate;

/// Arguments of `weir lab scaling`.
#[derive(Clone, Debug, Args)]
pub struct ScalingArguments {
    /// Number of directors.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub directors: u32,
    /// Number of servers in the service.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(2..=30_000))]
    pub servers: u32,
    /// Concurrent connections of the group.
    #[arg(long, value_name = "N", default_value_t = 100_000_000)]
    pub flows: u64,
    /// Mean duration of a connection in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 100,
        value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub duration: u32,
    /// Delay of flow synchronization in milliseconds: connections younger than this are not synchronized.
    #[arg(long, value_name = "MS", default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub lag: u32,
    /// Rate of each director's link.
    #[arg(long, value_name = "RATE", default_value = "100gbit")]
    pub link: Rate,
    /// Mean length of client packets in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 500,
        value_parser = clap::value_parser!(u32).range(64..=65_535))]
    pub packet: u32,
    /// Number of simulated connections.
    #[arg(long, value_name = "N", default_value_t = 1_000_000,
        value_parser = clap::value_parser!(u32).range(1_000..=10_000_000))]
    pub sample: u32,
    /// Seed of the simulated connections.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

impl ScalingArguments {
    fn group(&self) -> Group {
        Group {
            directors: self.directors,
            servers: self.servers,
            sample: self.sample,
            unsynced: (f64::from(self.lag) / 1e3 / f64::from(self.duration)).min(1.0),
            seed: self.seed,
        }
    }

    fn load(&self) -> Load {
        Load {
            directors: self.directors,
            link: self.link.bits_per_second() as f64,
            packet: f64::from(self.packet),
            flows: self.flows as f64,
            new_flows: self.flows as f64 / f64::from(self.duration),
        }
    }
}

/// The outcomes of one router and scenario for each design, in the order of [`Design::ALL`].
struct Row {
    scenario: &'static Scenario,
    outcomes: Vec<Outcome>,
}

/// Runs the simulation and returns its output.
pub(crate) fn run(arguments: &ScalingArguments) -> Result<String> {
    let group = arguments.group();
    let need = capacity::requirements(&arguments.load(), &Costs::default());
    let simulations = Design::ALL
        .into_iter()
        .map(|design| Simulation::new(group, design))
        .collect::<std::result::Result<Vec<_>, _>>()
        .map_err(|error| LabError::Usage {
            option: "scaling",
            reason: error.to_string(),
        })?;
    let tables: Vec<_> = Router::ALL
        .into_iter()
        .map(|router| {
            let row = |scenario| Row {
                scenario,
                outcomes: simulations
                    .iter()
                    .map(|simulation| simulation.run(router, scenario))
                    .collect(),
            };
            (router, Scenario::ALL.iter().map(row).collect::<Vec<_>>())
        })
        .collect();
    if arguments.json {
        return Ok(format!("{:#}\n", as_json(&group, &need, &tables)));
    }
    let mut text = format!(
        "{} directors, {} servers, seed {}, {} simulated connections.\nBroken connections per million connections \
         whose server is alive:\n",
        group.directors, group.servers, group.seed, group.sample
    );
    for (router, rows) in &tables {
        text += &table(*router, rows);
    }
    text += &requirements_table(arguments, &need);
    Ok(text)
}

/// Returns the table of a router. `moved` and `changed` are percentages and equal for all designs with a Maglev table.
fn table(router: Router, rows: &[Row]) -> String {
    let mut text = format!("\n{:<34}", router.name());
    for design in Design::ALL {
        let _ = write!(text, "{:>11}", design.name());
    }
    text += "   moved % changed %";
    for row in rows {
        let _ = write!(text, "\n{:<34}", row.scenario.name);
        for outcome in &row.outcomes {
            let surviving = (1.0 - outcome.lost).max(f64::MIN_POSITIVE);
            let _ = write!(text, "{:>11.0}", outcome.broken / surviving * 1e6);
        }
        let maglev = Design::ALL
            .iter()
            .position(|design| *design == Design::Maglev);
        if let Some(outcome) = maglev.and_then(|index| row.outcomes.get(index)) {
            let _ = write!(
                text,
                "{:>10.2}{:>10.3}",
                outcome.moved * 1e2,
                outcome.changed * 1e2
            );
        }
    }
    text.push('\n');
    text
}

fn requirements_table(arguments: &ScalingArguments, need: &Requirements) -> String {
    let gib = |bytes: f64| format!("{:.2} GiB", bytes / f64::from(1 << 30));
    let rows = [
        ("client packets", format!("{:.2} M/s", need.packets / 1e6)),
        ("CPUs for packets", format!("{:.2}", need.cpus_packets)),
        (
            "CPUs for new connections",
            format!("{:.3}", need.cpus_new_flows),
        ),
        ("CPUs for [sync]", format!("{:.2}", need.cpus_sync)),
        ("flow table, own connections", gib(need.memory)),
        ("flow table with [sync]", gib(need.memory_sync)),
        (
            "[sync] sends and receives",
            format!("{:.0} Mbit/s", need.sync_bits / 1e6),
        ),
    ];
    let mut text = format!(
        "\nOne director, {} link full of {}-byte packets, {} connections in the group:\n",
        arguments.link, arguments.packet, arguments.flows
    );
    for (name, value) in rows {
        let _ = writeln!(text, "  {name:<30}{value:>14}");
    }
    text
}

fn as_json(group: &Group, need: &Requirements, tables: &[(Router, Vec<Row>)]) -> serde_json::Value {
    let rows = tables.iter().flat_map(|(router, rows)| {
        rows.iter().flat_map(move |row| {
            let outcomes = Design::ALL.into_iter().zip(&row.outcomes);
            outcomes.map(move |(design, outcome)| {
                json!({ "router": router, "scenario": row.scenario.name, "design": design, "outcome": outcome })
            })
        })
    });
    json!({ "group": group, "rows": rows.collect::<Vec<_>>(), "director": need })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: ScalingArguments,
    }

    fn output(line: &[&str]) -> String {
        let line = Line::parse_from(["scaling"].iter().chain(line));
        run(&line.arguments).expect("valid arguments")
    }

    const SMALL: &[&str] = &[
        "--directors=4",
        "--servers=20",
        "--sample=2000",
        "--flows=1000000",
        "--link=10gbit",
    ];

    #[test]
    fn tables_of_a_small_group() {
        insta::assert_snapshot!(output(SMALL));
    }

    #[test]
    fn json_has_the_same_figures() {
        let text = output(&[SMALL, &["--json"]].concat());
        let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let rows = value["rows"].as_array().expect("rows");
        assert_eq!(
            rows.len(),
            Router::ALL.len() * Scenario::ALL.len() * Design::ALL.len()
        );
        let row = &rows[Design::ALL.len() - 1];
        assert_eq!(row["router"], "threshold");
        assert_eq!(row["scenario"], "server added");
        assert_eq!(row["design"], "second-hop");
        assert_eq!(row["outcome"]["broken"], 0.0);
        assert!(value["director"]["packets"].as_f64().expect("is a number") > 1e6);
    }

    #[test]
    fn page_contains_the_default_output_soak() {
        if std::env::var_os("WEIR_SOAK").is_none() {
            return;
        }
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/scaling.md");
        let page = std::fs::read_to_string(page).expect("docs/scaling.md");
        for part in output(&[]).split("\n\n") {
            assert!(
                page.contains(part.trim_end()),
                "docs/scaling.md lacks\n{part}"
            );
        }
    }
}
