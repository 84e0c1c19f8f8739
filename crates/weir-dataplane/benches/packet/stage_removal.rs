//! Measures how much each stage adds to the cost of a packet of an established flow (`--stages`, first table), by
//! comparison with a build without the stage.
//!
//! Each build is a copy of bpf/ in which the stage's result is a constant, so all later stages run unchanged. The front
//! cache contains the flow, as it does for all packets of a flow in a tick except the first. A processor executes
//! several stages at the same time, so the difference for one build is the cost that its stage adds to the others; the
//! sum of all differences is only close to the total. The last build lacks all stages.

use std::path::{Path, PathBuf};

use crate::Outcome;
use crate::case::established;
use crate::director::Director;
use crate::feed::{Feed, Objects};
use crate::measure::Effort;
use crate::network::TestNetwork;
use crate::report::{Spread, Table};
use crate::stage::{self, Edit};

const MAIN: &str = "weir_xdp.bpf.c";

/// A stage's name, and the edits that remove it.
struct Removal {
    stage: &'static str,
    edits: Vec<Edit>,
}

/// Returns an edit that replaces a piece of source that occurs once in a file.
fn replace_source(file: &'static str, piece: &str, replacement: &str) -> Edit {
    Edit {
        file,
        piece: piece.to_owned(),
        replacement: replacement.to_owned(),
    }
}

/// Returns an edit that inserts statements at the start of the function whose header ends with `head`.
fn insert_at_start(file: &'static str, head: &str, statements: &str) -> Edit {
    replace_source(file, head, &format!("{head}\t{statements}\n"))
}

/// The results of the stages for the packets of the only flow, for builds that do not compute them.
struct KnownResults {
    hash: u64,
    dest: u32,
    tick: u32,
    hop: [u64; 3],
}

fn known_results(director: &Director) -> Outcome<KnownResults> {
    let maps = director.dataplane.maps();
    let flow = maps.flows.walk().next().ok_or("no flow was created")?;
    let key = weir_flow::FlowKey::new(director.dataplane.secret());
    let hash = key.hash(&weir_flow::Tuple::from_cold(&flow.cold));
    let hop = maps.hop(flow.dest(), (hash >> 20) as u32 & 3)?;
    Ok(KnownResults {
        hash,
        dest: flow.dest(),
        tick: flow.meta().seen,
        hop: [hop.link, hop.dmac, hop.smac],
    })
}

/// Returns the removals of all stages, in the order of a packet's processing.
fn removals(known: &KnownResults) -> Vec<Removal> {
    let removal = |stage, edits| Removal { stage, edits };
    [scheduling_stages(known), forwarding_stages(known)]
        .into_iter()
        .flatten()
        .map(|(stage, edits)| removal(stage, edits))
        .collect()
}

type Stage = (&'static str, Vec<Edit>);

/// Returns the stages up to the selection of the server.
fn scheduling_stages(known: &KnownResults) -> Vec<Stage> {
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
            vec![replace_source(
                MAIN,
                "int reason = parse_packet(data, data_end, &p), match;\n\n\tif (reason == WEIR_PASS_NOT_IP)",
                parse,
            )],
        ),
        (
            "address filter, lengths",
            vec![
                insert_at_start(
                    "lib/balance.h",
                    "address_filter_match(const struct packet *p)\n{\n",
                    "return MATCH_DST;",
                ),
                insert_at_start(
                    MAIN,
                    "length_fits(struct xdp_md *ctx, const struct packet *p)\n{\n",
                    "return 1;",
                ),
            ],
        ),
        (
            "time",
            vec![insert_at_start(
                "lib/maps.h",
                "weir_tick(void)\n{\n",
                &format!("return {};", known.tick),
            )],
        ),
        (
            "keyed hash",
            vec![insert_at_start(
                "lib/hash.h",
                "packet_hash(const struct packet *p)\n{\n",
                &format!("return {}ULL;", known.hash),
            )],
        ),
        (
            "front table, server row",
            vec![replace_source(
                "lib/balance.h",
                "if (!is_first_fragment && match == MATCH_DST && front_lookup(p, &flow, hash, now, settings))",
                &front,
            )],
        ),
        (
            "latency estimator, off",
            vec![insert_at_start(
                "lib/latency.h",
                "latency_is_sampled(__u64 hash)\n{\n",
                "if (1)\n\t\treturn 0;",
            )],
        ),
    ]
}

/// Returns the stages from the selected server to transmission.
fn forwarding_stages(known: &KnownResults) -> Vec<Stage> {
    let [link, dmac, smac] = known.hop;
    let hop = format!(
        "hop.link = {link}ULL;\n\thop.dmac = {dmac}ULL;\n\thop.smac = {smac}ULL;\n\tif (0)"
    );
    // The values of earlier stages must be used; otherwise, the compiler omits their computation.
    let sent = "asm volatile(\"\" : : \"r\"(hop->link), \"r\"(hop->dmac), \"r\"(hop->smac));\n\treturn XDP_TX;";
    vec![
        (
            "next hop",
            vec![replace_source(
                "lib/forward.h",
                "if (!hop_to_server(ctx, dest_id, dest, hash, now, &hop))",
                &hop,
            )],
        ),
        (
            "MTU, packet and byte counts",
            vec![
                insert_at_start(
                    "lib/forward.h",
                    "traffic_in(__u32 dest_id, __u32 bytes)\n{\n",
                    "if (1)\n\t\treturn;",
                ),
                replace_source(
                    "lib/forward.h",
                    "\tif (room && p->ip_len > room)",
                    "\tif (0)",
                ),
            ],
        ),
        (
            "TTL and checksum",
            vec![
                insert_at_start(
                    "lib/rewrite.h",
                    "ttl_exceeded(void *data, void *data_end, const struct packet *p)\n{\n",
                    "if (1)\n\t\treturn 0;",
                ),
                insert_at_start(
                    "lib/rewrite.h",
                    "ttl_decrement(void *data, void *data_end, const struct packet *p)\n{\n",
                    "if (1)\n\t\treturn;",
                ),
            ],
        ),
        (
            "frame addresses, transmit",
            vec![insert_at_start(
                "lib/transmit.h",
                "struct weir_addr *next_hop, int tagged)\n{\n",
                sent,
            )],
        ),
    ]
}

/// Measures `direct` with one flow and prints the cost that each stage adds.
pub(crate) fn run(
    network: &mut TestNetwork,
    objects: &mut Objects,
    scratch: &Path,
    effort: Effort,
) -> Outcome<()> {
    println!(
        "\n4. Stages of an established packet, direct, 1 flow: the complete build minus a build without the stage, ns\n"
    );
    let case = established(1);
    let director = Director::open(network.pin_dir(), network.director, case.setup)?;
    let whole = director.program()?;
    for plan in &case.setup_plans().0 {
        let mut feed = Feed::load(objects, plan)?;
        feed.set_target(&whole)?;
        feed.run(1, network.director)?;
    }
    let removals = removals(&known_results(&director)?);
    let mut builds = removals
        .iter()
        .enumerate()
        .map(|(number, removal)| {
            stage::build_edited(
                &scratch.join(format!("without-{number}")),
                removal.edits.iter(),
            )
            .map_err(|error| format!("without {:?}: {error}", removal.stage).into())
        })
        .collect::<Outcome<Vec<PathBuf>>>()?;
    let none = removals.iter().flat_map(|removal| &removal.edits);
    builds.push(stage::build_edited(&scratch.join("without-all"), none)?);
    let times = stage::measure_times(network, objects, &director, &builds, &case, effort)?;
    director.close()?;
    let [floor, without @ .., none, all] = times.as_slice() else {
        return Err("nothing was measured".into());
    };
    print(&removals, [floor, none, all], without);
    Ok(())
}

fn print(removals: &[Removal], [floor, none, all]: [&Spread; 3], without: &[Spread]) {
    let table = Table::new(&["stage", "adds"]);
    table.print_header();
    let rows = removals.iter().zip(without);
    let mut rows: Vec<(&str, f64)> = rows
        .map(|(removal, time)| (removal.stage, all.min - time.min))
        .collect();
    rows.push(("entry, tuple, return", none.min - floor.min));
    let sum: f64 = rows.iter().map(|(_, adds)| adds).sum();
    rows.push(("sum", sum));
    rows.push(("whole", all.min - floor.min));
    for (stage, adds) in rows {
        table.print_row(&[stage.to_owned(), format!("{adds:.0}")]);
    }
}
