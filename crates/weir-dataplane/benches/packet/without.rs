//! `--stages`, the first table: the additional cost of an established packet compared with a build that lacks one
//! stage.
//!
//! Each build is a copy of bpf/ in which the stage's result is a constant, so all later stages run unchanged. The front
//! cache contains the flow, as for all packets of a flow within a tick except the first one. A processor executes
//! several stages at the same time, so the difference of one build is what its stage adds to the others; the sum of all
//! differences is only close to the whole. The last row lacks all stages.

use std::path::{Path, PathBuf};

use crate::Outcome;
use crate::case::established;
use crate::director::Director;
use crate::feed::{Feed, Objects};
use crate::ground::Ground;
use crate::measure::Effort;
use crate::report::{Spread, Table};
use crate::stage::{self, Edit};

const MAIN: &str = "weir_xdp.bpf.c";

/// A stage's name and the changes that remove it.
struct Absent {
    stage: &'static str,
    edits: Vec<Edit>,
}

/// Replaces a piece of source that occurs once in a file.
fn instead(file: &'static str, piece: &str, by: &str) -> Edit {
    Edit {
        file,
        piece: piece.to_owned(),
        by: by.to_owned(),
    }
}

/// Inserts statements at the start of a function whose head ends with this text.
fn first(file: &'static str, head: &str, statements: &str) -> Edit {
    instead(file, head, &format!("{head}\t{statements}\n"))
}

/// The results for the packets of the one flow, for builds that lack their computation.
struct Known {
    hash: u64,
    dest: u32,
    tick: u32,
    hop: [u64; 3],
}

fn known(director: &Director) -> Outcome<Known> {
    let maps = director.dataplane.maps();
    let flow = maps.flows.walk().next().ok_or("no flow was made")?;
    let key = weir_flow::FlowKey::new(director.dataplane.secret());
    let hash = key.hash(&weir_flow::Tuple::of_cold(&flow.cold));
    let hop = maps.hop(flow.dest(), (hash >> 20) as u32 & 3)?;
    Ok(Known {
        hash,
        dest: flow.dest(),
        tick: flow.meta().seen,
        hop: [hop.link, hop.dmac, hop.smac],
    })
}

/// The stages in the packet's order.
fn absences(known: &Known) -> Vec<Absent> {
    let absent = |stage, edits| Absent { stage, edits };
    [arrival(known), way(known)]
        .into_iter()
        .flatten()
        .map(|(stage, edits)| absent(stage, edits))
        .collect()
}

type Stage = (&'static str, Vec<Edit>);

/// The stages up to the selection of the server.
fn arrival(known: &Known) -> Vec<Stage> {
    let parse = "int reason = PARSE_OK, match;\n\n\tif (data + 54 > data_end)\n\t\treturn XDP_ABORTED;\n\
        \tp.src = addr_from_v4(*(__be32 *)(data + 26));\n\tp.dst = addr_from_v4(*(__be32 *)(data + 30));\n\
        \tp.sport = *(__be16 *)(data + 34);\n\tp.dport = *(__be16 *)(data + 36);\n\
        \tp.proto = 6;\n\tp.family = 4;\n\tp.tcp_flags = 0x10;\n\tp.l3 = 14;\n\tp.l4 = 34;\n\tp.ip_len = 50;\n\
        \tif (reason == WEIR_PASS_NOT_IP)";
    let front = format!(
        "flow.entry_index = WEIR_NO_PLACE;\n\tflow.dest = {};\n\tif (1)",
        known.dest
    );
    vec![
        (
            "parse",
            vec![instead(
                MAIN,
                "int reason = parse_packet(data, data_end, &p), match;\n\n\tif (reason == WEIR_PASS_NOT_IP)",
                parse,
            )],
        ),
        (
            "address filter, lengths",
            vec![
                first(
                    "lib/balance.h",
                    "address_filter_match(const struct packet *p)\n{\n",
                    "return MATCH_DST;",
                ),
                first(
                    MAIN,
                    "length_fits(struct xdp_md *ctx, const struct packet *p)\n{\n",
                    "return 1;",
                ),
            ],
        ),
        (
            "time",
            vec![first(
                "lib/maps.h",
                "weir_tick(void)\n{\n",
                &format!("return {};", known.tick),
            )],
        ),
        (
            "keyed hash",
            vec![first(
                "lib/hash.h",
                "packet_hash(const struct packet *p)\n{\n",
                &format!("return {}ULL;", known.hash),
            )],
        ),
        (
            "front table, server row",
            vec![instead(
                "lib/balance.h",
                "if (!is_first_fragment && match == MATCH_DST && front_lookup(p, &flow, hash, now, settings))",
                &front,
            )],
        ),
        (
            "latency estimator, off",
            vec![first(
                "lib/latency.h",
                "latency_sampled(__u64 hash)\n{\n",
                "if (1)\n\t\treturn 0;",
            )],
        ),
    ]
}

/// The stages from the server to transmission.
fn way(known: &Known) -> Vec<Stage> {
    let [link, dmac, smac] = known.hop;
    let hop = format!(
        "hop.link = {link}ULL;\n\thop.dmac = {dmac}ULL;\n\thop.smac = {smac}ULL;\n\tif (0)"
    );
    // Values of earlier stages must be used.
    let sent = "asm volatile(\"\" : : \"r\"(hop->link), \"r\"(hop->dmac), \"r\"(hop->smac));\n\treturn XDP_TX;";
    vec![
        (
            "next hop",
            vec![instead(
                "lib/forward.h",
                "if (!hop_to_server(ctx, dest_id, dest, hash, now, &hop))",
                &hop,
            )],
        ),
        (
            "MTU, packet and byte counts",
            vec![
                first(
                    "lib/forward.h",
                    "traffic_in(__u32 dest_id, __u32 bytes)\n{\n",
                    "if (1)\n\t\treturn;",
                ),
                instead(
                    "lib/forward.h",
                    "\tif (room && p->ip_len > room)",
                    "\tif (0)",
                ),
            ],
        ),
        (
            "TTL and checksum",
            vec![
                first(
                    "lib/rewrite.h",
                    "ttl_exceeded(void *data, void *data_end, const struct packet *p)\n{\n",
                    "if (1)\n\t\treturn 0;",
                ),
                first(
                    "lib/rewrite.h",
                    "ttl_decrement(void *data, void *data_end, const struct packet *p)\n{\n",
                    "if (1)\n\t\treturn;",
                ),
            ],
        ),
        (
            "frame addresses, transmit",
            vec![first(
                "lib/transmit.h",
                "struct weir_addr *next_hop, int tagged)\n{\n",
                sent,
            )],
        ),
    ]
}

/// Measures `direct` with one flow and prints what each stage adds.
pub(crate) fn run(
    ground: &mut Ground,
    objects: &mut Objects,
    scratch: &Path,
    effort: Effort,
) -> Outcome<()> {
    println!(
        "\n4. Stages of an established packet, direct, 1 flow: the whole less a build without the stage, ns\n"
    );
    let case = established(1);
    let director = Director::open(ground.pin_dir(), ground.director, case.setup)?;
    let whole = director.program()?;
    for plan in &case.before().0 {
        let mut feed = Feed::load(objects, plan)?;
        feed.aim(&whole)?;
        feed.run(1, ground.director)?;
    }
    let absences = absences(&known(&director)?);
    let mut builds = absences
        .iter()
        .enumerate()
        .map(|(number, absent)| {
            stage::build_edited(
                &scratch.join(format!("without-{number}")),
                absent.edits.iter(),
            )
            .map_err(|error| format!("without {:?}: {error}", absent.stage).into())
        })
        .collect::<Outcome<Vec<PathBuf>>>()?;
    let none = absences.iter().flat_map(|absent| &absent.edits);
    builds.push(stage::build_edited(&scratch.join("without-all"), none)?);
    let times = stage::time(ground, objects, &director, &builds, &case, effort)?;
    director.close()?;
    let [floor, without @ .., none, all] = times.as_slice() else {
        return Err("nothing was measured".into());
    };
    print(&absences, [floor, none, all], without);
    Ok(())
}

fn print(absences: &[Absent], [floor, none, all]: [&Spread; 3], without: &[Spread]) {
    let table = Table::new(&["stage", "adds"]);
    table.head();
    let rows = absences.iter().zip(without);
    let mut rows: Vec<(&str, f64)> = rows
        .map(|(absent, time)| (absent.stage, all.least - time.least))
        .collect();
    rows.push(("entry, tuple, return", none.least - floor.least));
    let sum: f64 = rows.iter().map(|(_, adds)| adds).sum();
    rows.push(("sum", sum));
    rows.push(("whole", all.least - floor.least));
    for (stage, adds) in rows {
        table.row(&[stage.to_owned(), format!("{adds:.0}")]);
    }
}
