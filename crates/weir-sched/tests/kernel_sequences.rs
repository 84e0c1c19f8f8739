//! Checks the scripted sequences of the data plane's tests with a second implementation of the schedulers.
//!
//! It implements the rules of net/netfilter/ipvs/ip_vs_*.c in their simplest form, on one list. It shares only the
//! random numbers of `twos` with weir-sched. The scripts must expect the choices of this implementation. Lines that use
//! Weir's extensions (repair, bounded load) are skipped.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const VIP: u16 = 10;
const SEED: u32 = 4711;

macro_rules! scripts {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("../../weir-dataplane/tests/packet/sequences/", $name, ".txt"))),)*]
    };
}

#[derive(Clone, Debug)]
struct Server {
    number: u32,
    address: IpAddr,
    weight: i64,
    last_weight: i64,
    overloaded: bool,
    active: i64,
    inactive: i64,
}

impl Server {
    fn overhead(&self) -> i64 {
        self.active * 256 + self.inactive
    }

    fn accepts_flows(&self) -> bool {
        self.weight > 0 && !self.overloaded
    }
}

/// A choice: a server's number, no server, or not defined by the kernel's rules.
enum Choice {
    Server(u32),
    NoServer,
    Undefined,
}

#[derive(Default)]
struct Options {
    v6: bool,
    udp: bool,
    strict: bool,
    fallback: bool,
    port: bool,
}

/// A service with the kernel's list of servers and its scheduler's state.
struct Service {
    scheduler: &'static str,
    options: Options,
    /// The servers, newest first.
    list: Vec<Server>,
    /// `rr` and `wrr`: the number of the last chosen server; `None` = the head of the list.
    cursor: Option<u32>,
    /// `wrr`: the weights of the current and the highest pass, and the step.
    pass: (i64, i64, i64),
    /// `dh`, `sh`, `mh`: owners by bucket.
    table: Vec<Option<u32>>,
    /// `lblc`, `lblcr`: servers of an address, the last one added first.
    sets: HashMap<u16, Vec<u32>>,
    draws: u32,
}

fn fold(address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(v4) => u32::from(v4),
        IpAddr::V6(v6) => {
            let bits = u128::from(v6);
            (0..4).fold(0, |sum, word| sum ^ (bits >> (32 * word)) as u32)
        }
    }
}

fn hash_32(value: u32) -> usize {
    (value.wrapping_mul(0x61c8_8647) >> 24) as usize
}

/// Computes `hsiphash` as on 64-bit machines: SipHash-1-3 of four bytes, truncated to 32 bits (lib/siphash.c).
fn hsiphash(value: u32, key: u64) -> u32 {
    let (mut a, mut b) = (key ^ 0x736f_6d65_7073_6575, key ^ 0x646f_7261_6e64_6f6d);
    let (mut c, mut d) = (key ^ 0x6c79_6765_6e65_7261, key ^ 0x7465_6462_7974_6573);
    let word = 4 << 56 | u64::from(value);
    for number in 0..4 {
        match number {
            0 => d ^= word,
            1 => {
                a ^= word;
                c ^= 0xff;
            }
            _ => {}
        }
        a = a.wrapping_add(b);
        b = b.rotate_left(13) ^ a;
        a = a.rotate_left(32);
        c = c.wrapping_add(d);
        d = d.rotate_left(16) ^ c;
        a = a.wrapping_add(d);
        d = d.rotate_left(21) ^ a;
        c = c.wrapping_add(b);
        b = b.rotate_left(17) ^ c;
        c = c.rotate_left(32);
    }
    (a ^ b ^ c ^ d) as u32
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

const MH_SIZE: usize = 4093;
const MH_KEYS: [u64; 2] = [2_654_435_761, 2_654_446_892];

impl Service {
    fn new(scheduler: &'static str, options: Options) -> Self {
        let mut service = Self {
            scheduler,
            options,
            list: Vec::new(),
            cursor: None,
            pass: (0, 0, 1),
            table: Vec::new(),
            sets: HashMap::new(),
            draws: 0,
        };
        service.rebuild_table();
        service
    }

    fn find_server(&self, number: u32) -> Option<&Server> {
        self.list.iter().find(|server| server.number == number)
    }

    fn server_mut(&mut self, number: u32) -> &mut Server {
        let server = self.list.iter_mut().find(|server| server.number == number);
        server.expect("server is in the list")
    }

    fn position(&self, number: Option<u32>) -> Option<usize> {
        let number = number?;
        self.list.iter().position(|server| server.number == number)
    }

    fn add(&mut self, server: Server) {
        self.list.insert(0, server);
        self.handle_change(true);
    }

    fn edit(&mut self, number: u32, weight: i64) {
        let server = self.server_mut(number);
        server.weight = weight;
        if weight != 0 {
            server.last_weight = weight;
        }
        self.handle_change(false);
    }

    fn remove(&mut self, number: u32) {
        let index = self.position(Some(number)).expect("server is in the list");
        self.list.remove(index);
        if self.scheduler == "rr" && self.cursor == Some(number) {
            self.cursor = index.checked_sub(1).map(|before| self.list[before].number);
        }
        self.handle_change(true);
    }

    /// Handles a change: a server was added or removed if `membership` is true, otherwise a weight was changed.
    fn handle_change(&mut self, membership: bool) {
        match self.scheduler {
            "wrr" => self.restart_wrr(),
            "dh" if !membership => {}
            _ => self.rebuild_table(),
        }
    }

    fn restart_wrr(&mut self) {
        self.cursor = None;
        let weights = self.list.iter().map(|server| server.weight);
        let step = weights.clone().fold(0, gcd).max(1);
        let highest = weights.max().unwrap_or(0) - (step - 1);
        let mut pass_weight = self.pass.0;
        if pass_weight > highest || pass_weight == 0 {
            pass_weight = highest;
        } else if step > 1 {
            pass_weight = pass_weight / step * step + 1;
        }
        self.pass = (pass_weight, highest, step);
    }

    fn choose_rr(&mut self) -> Choice {
        let begin = self.position(self.cursor).map_or(0, |index| index + 1);
        let mut round = (begin..self.list.len()).chain(0..begin);
        match round.find(|index| self.list[*index].accepts_flows()) {
            Some(index) => {
                self.cursor = Some(self.list[index].number);
                Choice::Server(self.list[index].number)
            }
            None => Choice::NoServer,
        }
    }

    fn choose_wrr(&mut self) -> Choice {
        if self.list.iter().all(|server| server.weight == 0) {
            return Choice::NoServer;
        }
        if !self.list.iter().any(Server::accepts_flows) {
            // The walk's position after this affects later choices; the script of `wrr` covers it.
            return Choice::Undefined;
        }
        let mut index = self.position(self.cursor).map_or(0, |index| index + 1);
        loop {
            while let Some(server) = self.list.get(index) {
                if !server.overloaded && server.weight >= self.pass.0 {
                    self.cursor = Some(server.number);
                    return Choice::Server(server.number);
                }
                index += 1;
            }
            index = 0;
            self.pass.0 -= self.pass.2;
            if self.pass.0 <= 0 {
                self.pass.0 = self.pass.1;
            }
        }
    }

    /// Returns the first server with the lowest cost. Costs are fractions, which are compared by cross multiplication.
    fn least_cost(&self, cost: impl Fn(&Server) -> (i64, i64)) -> Choice {
        let mut best: Option<&Server> = None;
        for server in self.list.iter().filter(|server| server.accepts_flows()) {
            let better = best.is_none_or(|best| {
                let ((best_cost, best_share), (cost, share)) = (cost(best), cost(server));
                best_cost * share > cost * best_share
            });
            if better {
                best = Some(server);
            }
        }
        best.map_or(Choice::NoServer, |server| Choice::Server(server.number))
    }

    fn wlc(&self) -> Choice {
        self.least_cost(|server| (server.overhead(), server.weight))
    }

    fn sed(&self) -> Choice {
        self.least_cost(|server| (server.active + 1, server.weight))
    }

    fn nq(&self) -> Choice {
        let mut ready = self.list.iter().filter(|server| server.accepts_flows());
        match ready.find(|server| server.active == 0) {
            Some(idle) => Choice::Server(idle.number),
            None => self.sed(),
        }
    }

    fn heaviest(&self, is_eligible: impl Fn(&Server) -> bool) -> Choice {
        let mut best: Option<&Server> = None;
        for server in &self.list {
            let is_heavier = best.is_none_or(|best| server.weight > best.weight);
            if server.accepts_flows() && is_eligible(server) && is_heavier {
                best = Some(server);
            }
        }
        best.map_or(Choice::NoServer, |server| Choice::Server(server.number))
    }

    fn draw_by_weight(&mut self, total: i64) -> Option<Server> {
        let draw = u64::from(weir_sched::hash::seeded_draw(SEED, self.draws));
        self.draws += 1;
        let mut remaining = ((draw * (total as u64 + 1)) >> 32) as i64;
        for server in self.list.iter().filter(|server| server.accepts_flows()) {
            remaining -= server.weight;
            if remaining <= 0 {
                return Some(server.clone());
            }
        }
        None
    }

    fn choose_twos(&mut self) -> Choice {
        let ready = self.list.iter().filter(|server| server.accepts_flows());
        let total: i64 = ready.map(|server| server.weight).sum();
        if total == 0 {
            return Choice::NoServer;
        }
        let (first, second) = (self.draw_by_weight(total), self.draw_by_weight(total));
        let (Some(first), Some(second)) = (first, second) else {
            return Choice::NoServer;
        };
        let is_second_better = second.weight * first.overhead() > first.weight * second.overhead();
        Choice::Server(if is_second_better {
            second.number
        } else {
            first.number
        })
    }

    fn rebuild_table(&mut self) {
        self.table = match self.scheduler {
            "dh" => self.fill_buckets(|_| 1),
            "sh" => self.fill_buckets(|server| server.weight),
            "mh" => self.build_maglev(),
            _ => Vec::new(),
        };
    }

    /// Fills the 256 buckets in rounds over the list. Each server takes as many consecutive buckets as its share, at
    /// least one.
    fn fill_buckets(&self, share: impl Fn(&Server) -> i64) -> Vec<Option<u32>> {
        if self.list.is_empty() {
            return vec![None; 256];
        }
        let mut table = Vec::new();
        for server in self.list.iter().cycle() {
            for _ in 0..share(server).max(1) {
                table.push(Some(server.number));
            }
            if table.len() >= 256 {
                break;
            }
        }
        table.truncate(256);
        table
    }

    fn build_maglev(&self) -> Vec<Option<u32>> {
        let mut table = vec![None; MH_SIZE];
        let weights = self.list.iter().map(|server| server.last_weight);
        let step = weights.clone().fold(0, gcd);
        if step == 0 {
            return table;
        }
        let max_turn = weights.max().unwrap_or(0) / step;
        let shift = (64 - max_turn.leading_zeros()).saturating_sub(6);
        let mut turns = Vec::new();
        for server in &self.list {
            let hash = |key: usize| hsiphash(fold(server.address), MH_KEYS[key]) as usize;
            let turn_len = match server.last_weight {
                0 => 0,
                weight => ((weight / step) >> shift).max(1),
            };
            let (position, skip) = (hash(0) % MH_SIZE, hash(1) % (MH_SIZE - 1) + 1);
            turns.push((server.number, position, skip, turn_len));
        }
        let mut free_entries = MH_SIZE;
        loop {
            for (number, position, skip, turn_len) in &mut turns {
                for _ in 0..*turn_len {
                    while table[*position].is_some() {
                        *position = (*position + *skip) % MH_SIZE;
                    }
                    table[*position] = Some(*number);
                    free_entries -= 1;
                    if free_entries == 0 {
                        return table;
                    }
                }
            }
        }
    }

    /// Selects a server by hash. `index` returns the index for the client's key and an offset.
    fn choose_by_hash(&self, index: impl Fn(usize) -> usize) -> Choice {
        let owner = |offset: usize| self.find_server(self.table[index(offset)]?);
        let Some(first) = owner(0) else {
            return Choice::NoServer;
        };
        if first.accepts_flows() {
            return Choice::Server(first.number);
        }
        if !self.options.fallback {
            let has_weight = self.list.iter().any(|server| server.weight > 0);
            let is_repaired = first.weight == 0 && !self.options.strict && has_weight;
            return if is_repaired {
                Choice::Undefined
            } else {
                Choice::NoServer
            };
        }
        let size = self.table.len();
        let begin = index(0);
        for offset in 0..size {
            match owner((offset + begin) % size) {
                None => break,
                Some(server) if server.accepts_flows() => return Choice::Server(server.number),
                Some(_) => {}
            }
        }
        Choice::NoServer
    }

    /// Returns whether the server has more flows than its weight and another one has fewer than half of its weight.
    fn is_full_while_another_is_below_half(&self, server: &Server) -> bool {
        let idle = |other: &Server| other.active * 2 < other.weight;
        server.active > server.weight && self.list.iter().any(idle)
    }

    fn choose_lblc(&mut self, vip: u16) -> Choice {
        let cached_server = self.sets.get(&vip).and_then(|set| self.find_server(set[0]));
        if let Some(server) = cached_server
            && server.weight > 0
            && !self.is_full_while_another_is_below_half(server)
        {
            return Choice::Server(server.number);
        }
        let choice = self.wlc();
        if let Choice::Server(number) = choice {
            self.sets.insert(vip, vec![number]);
        }
        choice
    }

    fn choose_lblcr(&mut self, vip: u16) -> Choice {
        let set = self.sets.get(&vip).cloned().unwrap_or_default();
        let mut least_loaded: Option<&Server> = None;
        for server in set.iter().filter_map(|number| self.find_server(*number)) {
            let better =
                |best: &Server| best.overhead() * server.weight > server.overhead() * best.weight;
            if server.accepts_flows() && least_loaded.is_none_or(better) {
                least_loaded = Some(server);
            }
        }
        if let Some(server) = least_loaded
            && !self.is_full_while_another_is_below_half(server)
        {
            return Choice::Server(server.number);
        }
        let choice = self.wlc();
        if let Choice::Server(number) = choice
            && !set.contains(&number)
        {
            self.sets.entry(vip).or_default().insert(0, number);
        }
        choice
    }

    /// Returns the addresses of a flow. For IPv6, the scripts' numbers are read as hexadecimal.
    fn addresses(&self, flow: u16, vip: u16) -> (IpAddr, IpAddr) {
        if self.options.v6 {
            let v6 = |text: String| text.parse::<Ipv6Addr>().expect("address is valid").into();
            let source = v6(format!("2001:db8:1::{flow}"));
            return (source, v6(format!("2001:db8::{vip}")));
        }
        let last = |number: u16| u8::try_from(number).expect("number fits into a byte");
        (
            Ipv4Addr::new(198, 51, 100, last(flow)).into(),
            Ipv4Addr::new(192, 0, 2, last(vip)).into(),
        )
    }

    fn choose(&mut self, flow: u16, vip: u16) -> Choice {
        let (source, destination) = self.addresses(flow, vip);
        let port = if self.options.port {
            1000 + u32::from(flow)
        } else {
            0
        };
        let key = port.wrapping_add(fold(source));
        match self.scheduler {
            "rr" => self.choose_rr(),
            "wrr" => self.choose_wrr(),
            "lc" => self.least_cost(|server| (server.overhead(), 1)),
            "wlc" => self.wlc(),
            "sed" => self.sed(),
            "nq" => self.nq(),
            "fo" => self.heaviest(|_| true),
            "ovf" => self.heaviest(|server| server.active <= server.weight),
            "twos" => self.choose_twos(),
            "dh" => self.choose_by_hash(|_| hash_32(fold(destination))),
            "sh" => self.choose_by_hash(|offset| (offset + hash_32(key)) % 256),
            "mh" => self.choose_by_hash(|offset| {
                hsiphash(key.wrapping_add(offset as u32), MH_KEYS[0]) as usize % MH_SIZE
            }),
            "lblc" => self.choose_lblc(vip),
            "lblcr" => self.choose_lblcr(vip),
            other => panic!("{other} is not a kernel scheduler"),
        }
    }
}

/// A script line in progress.
struct Script {
    service: Service,
    added: u32,
    vip: u16,
    /// The server of each flow, and whether the flow is active.
    flows: Vec<(Option<u32>, bool)>,
}

impl Script {
    fn run_step(&mut self, step: &str) -> Option<()> {
        let (kind, argument) = step.split_at(1);
        let number = |text: &str| text.parse::<u32>().expect("number is valid");
        match kind {
            "+" => self.add(number(argument).into()),
            "=" => {
                let (server, weight) = argument.split_once(':').expect("step has a weight");
                self.service.edit(number(server), number(weight).into());
            }
            "-" => self.service.remove(number(argument)),
            "!" => self.service.server_mut(number(argument)).overloaded = true,
            "." => self.service.server_mut(number(argument)).overloaded = false,
            "@" => self.vip = argument.parse().expect("number is valid"),
            "~" => self.end(number(argument) as usize - 1),
            "*" => {
                for _ in 0..number(argument) {
                    self.arrive()?;
                }
            }
            _ => panic!("unknown step {step}"),
        }
        Some(())
    }

    fn add(&mut self, weight: i64) {
        self.added += 1;
        let number = self.added;
        let address = if self.service.options.v6 {
            format!("fd00::{number}")
        } else {
            format!("10.0.0.{number}")
        };
        self.service.add(Server {
            number,
            address: address.parse().expect("address is valid"),
            weight,
            last_weight: weight,
            overloaded: false,
            active: 0,
            inactive: 0,
        });
    }

    /// Ends a flow: a FIN in SYN_RECV leads to TIME_WAIT, which is inactive. For UDP, this has no effect.
    fn end(&mut self, flow: usize) {
        let (server, active) = self.flows[flow];
        let Some(server) = server.filter(|_| active && !self.service.options.udp) else {
            return;
        };
        self.flows[flow].1 = false;
        if self.service.find_server(server).is_some() {
            let server = self.service.server_mut(server);
            server.active -= 1;
            server.inactive += 1;
        }
    }

    fn arrive(&mut self) -> Option<()> {
        let flow = u16::try_from(self.flows.len() + 1).expect("number of flows fits into 16 bits");
        // In the kernel, UDP flows are never active. In Weir they are, except with `strict`; the rules are otherwise
        // the same.
        let active = !(self.service.options.udp && self.service.options.strict);
        let server = match self.service.choose(flow, self.vip) {
            Choice::Server(server) => Some(server),
            Choice::NoServer => None,
            Choice::Undefined => return None,
        };
        if let Some(server) = server {
            let server = self.service.server_mut(server);
            server.active += i64::from(active);
            server.inactive += i64::from(!active);
        }
        self.flows.push((server, active));
        Some(())
    }
}

/// Returns the servers of a script line, or `None` if the kernel's rules do not define them.
fn run_script(scheduler: &'static str, script: &str) -> Option<String> {
    let is_word = |word: &&str| word.starts_with(|c: char| c.is_ascii_lowercase());
    let mut options = Options::default();
    for word in script.split(' ').take_while(is_word) {
        match word {
            "v6" => options.v6 = true,
            "udp" => options.udp = true,
            "strict" => options.strict = true,
            "fallback" => options.fallback = true,
            "port" => options.port = true,
            _ => return None,
        }
    }
    let mut state = Script {
        service: Service::new(scheduler, options),
        added: 0,
        vip: VIP,
        flows: Vec::new(),
    };
    for step in script.split(' ').skip_while(is_word) {
        state.run_step(step)?;
    }
    let chosen = state.flows.iter().map(|(server, _)| match server {
        Some(server) => server.to_string(),
        None => "-".to_owned(),
    });
    Some(chosen.collect::<Vec<_>>().join(" "))
}

#[test]
fn scripts_match_kernel_rules() {
    let scripts = scripts!(
        "rr" "wrr" "lc" "wlc" "sed" "nq" "fo" "ovf" "twos" "dh" "sh" "mh" "lblc" "lblcr"
    );
    let mut differences = Vec::new();
    for (scheduler, text) in scripts {
        let mut compared = 0;
        for line in text.lines() {
            let parts: Vec<&str> = line.split('|').map(str::trim).collect();
            let Some(chosen) = run_script(scheduler, parts[0]) else {
                continue;
            };
            compared += 1;
            if chosen != parts[1] {
                let script = parts[0];
                differences.push(format!(
                    "{scheduler}: {script} | {chosen} | not {}",
                    parts[1]
                ));
            }
        }
        assert!(
            compared >= 12,
            "{scheduler}: only {compared} lines were compared"
        );
    }
    assert!(
        differences.is_empty(),
        "different choices:\n{}",
        differences.join("\n")
    );
}
