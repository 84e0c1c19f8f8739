//! Defines the edits of the BPF sources for the builds that `--stages` measures.
//!
//! These are builds without a stage, and builds that return after a step.
//!
//! Each edit replaces a piece of source that must occur exactly once, so the sources need no switches. The test
//! `bench_edits` reports the edits that no longer match the sources.

use std::fmt;

/// The file with the stages before the selection of the server.
const DIRECTOR: &str = "lib/director.h";
const BALANCE: &str = "lib/balance.h";
const FORWARD: &str = "lib/forward.h";
const REWRITE: &str = "lib/rewrite.h";

/// A piece of source text that occurs once in a file of bpf/, and its replacement.
pub(crate) struct Edit {
    pub(crate) file: &'static str,
    piece: String,
    replacement: String,
}

/// An edit that does not match the source.
#[derive(Debug)]
pub(crate) struct Mismatch {
    file: &'static str,
    piece: String,
    count: usize,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, piece, count } = self;
        write!(
            f,
            "{piece:?} occurs {count} times in bpf/{file}: update benches/packet/edit.rs to match the source"
        )
    }
}

impl std::error::Error for Mismatch {}

impl Edit {
    /// Returns the text of the file after the edit.
    ///
    /// # Errors
    /// Fails if the piece does not occur exactly once.
    pub(crate) fn apply(&self, text: &str) -> Result<String, Mismatch> {
        match text.matches(&self.piece).count() {
            1 => Ok(text.replace(&self.piece, &self.replacement)),
            count => Err(Mismatch {
                file: self.file,
                piece: self.piece.clone(),
                count,
            }),
        }
    }
}

/// A stage, and the edits that remove it.
pub(crate) struct Removal {
    pub(crate) stage: &'static str,
    pub(crate) edits: Vec<Edit>,
}

/// The results of the stages for the packets of the only flow, for builds that do not compute them.
pub(crate) struct KnownResults {
    pub(crate) hash: u64,
    pub(crate) dest: u32,
    pub(crate) tick: u32,
    /// The words `link`, `dmac` and `smac` of the next hop.
    pub(crate) hop: [u64; 3],
}

/// Returns the removals of all stages, in the order of a packet's processing.
pub(crate) fn removals(results: &KnownResults) -> Vec<Removal> {
    let mut removals = stages_before_server(results);
    removals.extend(stages_after_server(results));
    removals
}

/// Returns an edit that replaces a piece of source.
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

fn removal(stage: &'static str, edits: Vec<Edit>) -> Removal {
    Removal { stage, edits }
}

/// Returns the stages up to the selection of the server.
fn stages_before_server(results: &KnownResults) -> Vec<Removal> {
    let parse = "int reason = PARSE_OK, match;\n\n\tif (data + 54 > data_end)\n\t\treturn XDP_ABORTED;\n\
        \tp.src = addr_from_v4(*(__be32 *)(data + 26));\n\tp.dst = addr_from_v4(*(__be32 *)(data + 30));\n\
        \tp.sport = *(__be16 *)(data + 34);\n\tp.dport = *(__be16 *)(data + 36);\n\
        \tp.proto = 6;\n\tp.family = 4;\n\tp.tcp_flags = 0x10;\n\tp.l3 = 14;\n\tp.l4 = 34;\n\tp.ip_len = 50;\n\
        \tif (reason == WEIR_PASS_NOT_IP)";
    let front = format!(
        "flow.entry_index = WEIR_NO_INDEX;\n\tflow.dest = {};\n\tif (1)",
        results.dest
    );
    let parsed = "int reason = parse_packet(data, data_end, &p), match;\n\n\tif (reason == WEIR_PASS_NOT_IP)";
    let filter_head = "address_filter_match(const struct packet *p)\n{\n";
    let mac_head = "frame_is_for_host(struct weir_context *ctx, struct packet *p)\n{\n";
    let length_head = "length_fits(struct weir_context *ctx, const struct packet *p)\n{\n";
    let checksum_head =
        "has_partial_checksum(struct weir_context *ctx, const struct packet *p)\n{\n";
    let hash = format!("return {}ULL;", results.hash);
    let cached = "if (!is_first_fragment && match == MATCH_DST && front_lookup(p, &flow, hash, now, settings))";
    vec![
        removal("parse", vec![replace_source(DIRECTOR, parsed, parse)]),
        removal(
            "address filter",
            vec![insert_at_start(BALANCE, filter_head, "return MATCH_DST;")],
        ),
        removal(
            "MAC address, lengths",
            vec![
                insert_at_start("lib/frame_address.h", mac_head, "return 1;"),
                insert_at_start(DIRECTOR, length_head, "return 1;"),
                insert_at_start("lib/partial_checksum.h", checksum_head, "return 0;"),
            ],
        ),
        removal(
            "time",
            vec![insert_at_start(
                "lib/maps.h",
                "weir_tick(void)\n{\n",
                &format!("return {};", results.tick),
            )],
        ),
        removal(
            "keyed hash",
            vec![insert_at_start(
                "lib/hash.h",
                "packet_hash(const struct packet *p)\n{\n",
                &hash,
            )],
        ),
        removal(
            "front cache, server row",
            vec![replace_source(BALANCE, cached, &front)],
        ),
        removal(
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
fn stages_after_server(results: &KnownResults) -> Vec<Removal> {
    let [link, dmac, smac] = results.hop;
    let hop = format!(
        "hop.link = {link}ULL;\n\thop.dmac = {dmac}ULL;\n\thop.smac = {smac}ULL;\n\tif (0)"
    );
    // The values of earlier stages must be used; otherwise, the compiler omits their computation.
    let sent = "asm volatile(\"\" : : \"r\"(hop->link), \"r\"(hop->dmac), \"r\"(hop->smac));\n\treturn XDP_TX;";
    let lookup = "if (!hop_to_server(ctx, dest_id, dest, hash, now, &hop))";
    let count_head =
        "count_traffic_in(struct weir_context *ctx, const struct packet *p, __u32 dest_id)\n{\n";
    let ttl_head = "ttl_exceeded(void *data, void *data_end, const struct packet *p)\n{\n";
    let decrement_head = "ttl_decrement(struct weir_context *ctx, const struct packet *p)\n{\n";
    vec![
        removal("next hop", vec![replace_source(FORWARD, lookup, &hop)]),
        removal(
            "MTU, packet and byte counts",
            vec![
                insert_at_start(FORWARD, count_head, "if (1)\n\t\treturn;"),
                replace_source(
                    FORWARD,
                    "\tif (room && wire_length(ctx, p) > room)",
                    "\tif (0)",
                ),
            ],
        ),
        removal(
            "TTL and checksum",
            vec![
                insert_at_start(REWRITE, ttl_head, "if (1)\n\t\treturn 0;"),
                insert_at_start(REWRITE, decrement_head, "if (1)\n\t\treturn;"),
            ],
        ),
        removal(
            "frame addresses, transmit",
            vec![insert_at_start(
                "lib/transmit_xdp.h",
                "struct weir_addr *next_hop, int tagged)\n{\n",
                sent,
            )],
        ),
    ]
}

/// A build that returns before `before`, which occurs once in `file`; `step` is complete at this point.
pub(crate) struct Cut {
    pub(crate) step: &'static str,
    file: &'static str,
    before: &'static str,
    /// The value that must be computed before the return.
    used_value: &'static str,
}

const fn cut(
    step: &'static str,
    file: &'static str,
    before: &'static str,
    used_value: &'static str,
) -> Cut {
    Cut {
        step,
        file,
        before,
        used_value,
    }
}

/// The steps, in the order of a packet's processing.
pub(crate) const CUTS: [Cut; 8] = [
    cut(
        "parse",
        DIRECTOR,
        "\tif (reason == WEIR_PASS_NOT_IP)\n",
        "&p",
    ),
    cut(
        "address filter",
        DIRECTOR,
        "\tif (!frame_is_for_host(ctx, &p))\n",
        "&p",
    ),
    cut(
        "MAC address, lengths",
        DIRECTOR,
        "\tif (p.slow_path == PACKET_PLAIN)\n",
        "&p",
    ),
    cut(
        "time, keyed hash",
        BALANCE,
        "\tif (!is_first_fragment && match == MATCH_SRC && front_lookup_reply(",
        "&hash",
    ),
    cut(
        "front cache, server row",
        BALANCE,
        "\tdest = WEIR_LOOKUP(weir_dests, flow.dest);\n\tif (!dest)\n\t\treturn weir_verdict(",
        "&flow",
    ),
    cut(
        "next hop",
        FORWARD,
        "\troom = WEIR_HOP_MTU(hop.link);\n",
        "&hop",
    ),
    cut(
        "MTU, packet and byte counts",
        FORWARD,
        "\tttl_decrement(ctx, p);\n\tif (forward_keeps_addresses(",
        "&hop",
    ),
    cut(
        "TTL and checksum",
        FORWARD,
        "\tif (forward_keeps_addresses(dest->forward))\n",
        "&hop",
    ),
];

impl Cut {
    /// Returns the edit that inserts the return.
    pub(crate) fn edit(&self) -> Edit {
        Edit {
            file: self.file,
            piece: self.before.to_owned(),
            replacement: format!(
                "\tasm volatile(\"\" : : \"r\"({}) : \"memory\");\n\treturn XDP_TX;\n{}",
                self.used_value, self.before
            ),
        }
    }
}
