//! Tests choice sequences that follow from the kernel's schedulers, each with its reason: `sequences/NAME.txt`.
//!
//! A line is `steps | chosen servers, - for rejected | reason`. Servers are numbered from 1 in the order in which they
//! are added. Steps: `+W` adds a server of weight W, `=S:W` sets the weight of server S to W, `-S` removes server S,
//! `!S` puts server S at its upper threshold, `.S` puts it below the threshold again, `*N` starts N flows to the
//! current VIP, `@V` makes 192.0.2.V (2001:db8::V) the current one, `~F` ends flow F. Flow F is the Fth of the line; it
//! comes from 198.51.100.F (2001:db8:1::F), port 1000 + F. Options before the steps: `v6`, `udp`, `strict`, `fallback`,
//! `port`, `load125` (`max_load = 1.25`).
//!
//! The reference model, which uses weir-sched's pure functions with the same counts, also processes every packet.

use weir_abi::{DEST_LIVE, DEST_STRICT, Forward};
use weir_sched::{Kind, Mode};

use crate::bench::{Bench, NewServer, Xdp};
use crate::wire::{FIN, SYN, Shape, at};

const VIPS: [&str; 4] = ["10", "11", "12", "13"];
const SEED: u32 = 4711;

struct Case<'a> {
    bench: &'a mut Bench,
    service: u32,
    port: u16,
    v6: bool,
    udp: bool,
    strict: bool,
    vip: String,
    dests: Vec<u32>,
    /// The VIP of each flow.
    flows: Vec<String>,
    chosen: Vec<String>,
}

impl<'a> Case<'a> {
    fn new(bench: &'a mut Bench, kind: Kind, words: &[&str]) -> Self {
        let has = |word| words.contains(&word);
        let mode = match (has("strict"), has("fallback") || kind == Kind::Maglev) {
            (_, true) => Mode::Fallback,
            (true, _) => Mode::Strict,
            _ => Mode::Repair,
        };
        let service = bench.add_service_with(kind, mode, has("port"));
        let bound = words.iter().find_map(|word| word.strip_prefix("load"));
        let schedules = &mut bench.model.scheduler_mut().schedules;
        schedules.get_mut(&service).unwrap().max_load = bound.map(|word| word.parse().unwrap());
        let case = Self {
            service,
            port: bench.next_port(),
            bench,
            v6: has("v6"),
            udp: has("udp"),
            strict: has("strict"),
            vip: VIPS[0].to_owned(),
            dests: Vec::new(),
            flows: Vec::new(),
            chosen: Vec::new(),
        };
        for vip in VIPS {
            let vip = case.address_of(vip);
            case.bench.listen(service, &vip, case.port);
        }
        case
    }

    fn address_of(&self, vip: &str) -> String {
        if self.v6 {
            format!("2001:db8::{vip}")
        } else {
            format!("192.0.2.{vip}")
        }
    }

    fn frame(&self, flow: usize, flags: weir_wire::TcpFlags) -> Vec<u8> {
        let client = if self.v6 {
            format!("2001:db8:1::{flow}")
        } else {
            format!("198.51.100.{flow}")
        };
        let shape = if self.udp {
            Shape::udp()
        } else {
            Shape::tcp(flags)
        };
        let vip = self.address_of(&self.flows[flow - 1]);
        shape.arriving(at(&client, 1000 + flow as u16), at(&vip, self.port))
    }

    fn apply_step(&mut self, step: &str) {
        let (kind, argument) = step.split_at(1);
        let number = |text: &str| text.parse::<u32>().unwrap();
        let dest = |text: &str| self.dests[number(text) as usize - 1];
        match kind {
            "+" => self.add(number(argument)),
            "*" => (0..number(argument)).for_each(|_| self.start_flow()),
            "@" => self.vip = argument.to_owned(),
            "-" => self.bench.remove(self.service, dest(argument), DEST_LIVE),
            "!" => self.bench.set_overloaded(dest(argument), true),
            "." => self.bench.set_overloaded(dest(argument), false),
            "~" => {
                let frame = self.frame(number(argument) as usize, FIN);
                self.bench.send(&frame);
            }
            "=" => {
                let (server, weight) = argument.split_once(':').unwrap();
                self.bench
                    .set_weight(self.service, dest(server), number(weight));
            }
            _ => panic!("unknown step {step}"),
        }
    }

    fn add(&mut self, weight: u32) {
        let number = self.dests.len() + 1;
        let address = if self.v6 {
            format!("fd00::{number}")
        } else {
            format!("10.0.0.{number}")
        };
        let strict = if self.strict { DEST_STRICT } else { 0 };
        let server = NewServer::new(Forward::Direct, &address)
            .weight(weight)
            .row(|row| row.flags = strict);
        self.dests.push(self.bench.add(self.service, server));
    }

    fn start_flow(&mut self) {
        self.flows.push(self.vip.clone());
        let outcome = self.bench.send(&self.frame(self.flows.len(), SYN));
        let dest = u32::from(outcome.frame[5]);
        let server = self.dests.iter().position(|row| *row == dest);
        let is_sent = outcome.verdict == Xdp::Tx && outcome.counted.is_empty();
        self.chosen.push(match server.filter(|_| is_sent) {
            Some(index) => (index + 1).to_string(),
            None => "-".to_owned(),
        });
    }
}

fn check_sequences(kind: Kind, text: &str) {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    bench.seed_random_numbers(SEED);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() >= 12, "{kind}: {} sequences", lines.len());
    let mut mismatches = Vec::new();
    for line in lines {
        let parts: Vec<&str> = line.split('|').map(str::trim).collect();
        let [script, expected, reason] = parts[..] else {
            panic!("{line}: expected three parts");
        };
        assert!(!reason.is_empty(), "{line}: the reason is missing");
        let is_word = |word: &&str| word.starts_with(|c: char| c.is_ascii_lowercase());
        let words: Vec<&str> = script.split(' ').take_while(is_word).collect();
        let mut case = Case::new(&mut bench, kind, &words);
        for step in script.split(' ').skip(words.len()) {
            case.apply_step(step);
        }
        let chosen = case.chosen.join(" ");
        if chosen != expected {
            mismatches.push(format!("{script} | {chosen} | {reason}"));
        }
    }
    bench.assert_same_state();
    assert!(
        mismatches.is_empty(),
        "{kind} made different choices:\n{}",
        mismatches.join("\n")
    );
}

macro_rules! sequences {
    ($($name:ident $kind:ident)*) => { $(
        #[test]
        fn $name() {
            check_sequences(
                Kind::$kind,
                include_str!(concat!("sequences/", stringify!($name), ".txt")),
            );
        }
    )* };
}

sequences! {
    rr Rr wrr Wrr lc Lc wlc Wlc sed Sed nq Nq fo Fo ovf Ovf twos Twos dh Dh sh Sh mh Mh
    lblc Lblc lblcr Lblcr maglev Maglev p2c P2c
}
