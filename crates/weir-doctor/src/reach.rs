//! Whether a server of a `direct` service answers for its VIP: a SYN for the VIP is sent to the server's own link
//! address, as a client's would be, and its answer looked for on the wire. The stack is not asked, which has the VIP
//! itself. Connections that come about by it are reset at once.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use weir_model::{Desired, Forward, Ports, Protocol};
use weir_netlink::{NetState, Resolved, resolve};
use weir_sys::FrameSocket;
use weir_wire::{MacAddr, Packet, TcpFlags};

use crate::Diagnosis;

/// How long answers are waited for; a SYN that is lost is repeated once, at half of it.
const LISTENING: Duration = Duration::from_millis(600);

/// More questions than these are not asked: it is a doctor, not a load.
const MOST: usize = 256;

/// Ports of questions, one each; outside of what the kernel gives out (`ip_local_port_range`).
const FIRST_PORT: u16 = 61_000;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;

/// A SYN to a server.
#[derive(Clone, Debug)]
struct Question {
    service: String,
    server: IpAddr,
    /// The VIP and its port.
    vip: SocketAddr,
    /// Of this machine.
    source: SocketAddr,
    from: MacAddr,
    to: MacAddr,
    device: u32,
}

/// What came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Accepted { seq: u32 },
    Refused,
}

impl Question {
    fn frame(&self, flags: TcpFlags, seq: u32) -> Vec<u8> {
        Packet::ethernet(self.from, self.to)
            .ip(self.source.ip(), self.vip.ip())
            .tcp(self.source.port(), self.vip.port())
            .flags(flags)
            .seq(seq)
            .build()
    }

    fn answer(&self, frame: &[u8]) -> Option<Answer> {
        let parsed = Packet::parse(frame).ok()?;
        let tuple = parsed.five_tuple()?;
        let ends = (
            SocketAddr::new(tuple.src, tuple.sport),
            SocketAddr::new(tuple.dst, tuple.dport),
        );
        if ends != (self.vip, self.source) {
            return None;
        }
        let header = parsed.tcp()?;
        if header.flags.contains(TcpFlags::RST) {
            return Some(Answer::Refused);
        }
        let both = TcpFlags::SYN | TcpFlags::ACK;
        let seq = header.ack;
        header
            .flags
            .contains(both)
            .then_some(Answer::Accepted { seq })
    }
}

/// Servers that take no packets for the VIP. Those in `down` are known to be gone.
pub(crate) fn deaf(desired: &Desired, state: &NetState, down: &[String]) -> Vec<Diagnosis> {
    let questions = questions(desired, state, down);
    let mut by_device: BTreeMap<(u32, bool), Vec<&Question>> = BTreeMap::new();
    for question in &questions {
        let key = (question.device, question.vip.is_ipv4());
        by_device.entry(key).or_default().push(question);
    }
    let mut found = Vec::new();
    for ((device, is_ipv4), questions) in by_device {
        // A director without the right to ask finds nothing.
        let ethertype = if is_ipv4 { IPV4 } else { IPV6 };
        let Ok(answers) = ask(device, ethertype, &questions) else {
            continue;
        };
        let answers = questions.iter().zip(answers);
        found.extend(answers.filter_map(|(question, answer)| diagnosis(question, answer)));
    }
    found
}

fn diagnosis(question: &Question, answer: Option<Answer>) -> Option<Diagnosis> {
    let Question {
        service,
        server,
        vip,
        source,
        ..
    } = question;
    let (seen, why) = match answer {
        Some(Answer::Accepted { .. }) => return None,
        Some(Answer::Refused) => (
            format!("server {server} of {service} refuses connections to {vip}"),
            "nobody listens there for the VIP: clients that are sent to it are refused",
        ),
        None => (
            format!(
                "server {server} of {service} does not answer a SYN for {vip} from {}",
                source.ip()
            ),
            "it does not have the VIP, a firewall or rp_filter of its own drops the packet, or its answer is lost: clients that are \
             sent to it wait in vain",
        ),
    };
    Some(Diagnosis::new(seen, why).fix("on that server: weir real-server doctor"))
}

fn questions(desired: &Desired, state: &NetState, down: &[String]) -> Vec<Question> {
    let mut questions = Vec::new();
    for service in &desired.services {
        let pool = desired.pool(&service.pool);
        for server in pool.into_iter().flat_map(|pool| &pool.servers) {
            let is_direct = server.forward_in(service) == Forward::Direct;
            if !is_direct || down.contains(&server.name) {
                continue;
            }
            let ways = resolve(server.address, state);
            for listener in &service.listen {
                let (Protocol::Tcp, Ports::One(port)) = (listener.protocol, listener.ports) else {
                    continue;
                };
                let vip = SocketAddr::new(listener.address, port);
                let number = u16::try_from(questions.len()).unwrap_or(u16::MAX);
                let Some(way) = ways.first().filter(|_| questions.len() < MOST) else {
                    continue;
                };
                let question = question(way, state, vip, FIRST_PORT + number.min(4000));
                questions.extend(question.map(|question| Question {
                    service: service.name.clone(),
                    server: server.address,
                    ..question
                }));
            }
        }
    }
    questions
}

/// A question by one way; none by tagged ones, whose answers another device gets.
fn question(way: &Resolved, state: &NetState, vip: SocketAddr, port: u16) -> Option<Question> {
    if way.local || way.vlan.is_some() || way.ifindex != way.device {
        return None;
    }
    let own = state.addresses.iter().find(|address| {
        let here = address.ifindex == way.device && address.ip.is_ipv4() == vip.is_ipv4();
        let link_local =
            matches!(address.ip, IpAddr::V6(v6) if v6.segments()[0] & 0xffc0 == 0xfe80);
        here && address.ip != vip.ip() && !address.tentative && !link_local
    })?;
    let mac = |mac: weir_netlink::MacAddr| MacAddr::new(mac.octets());
    Some(Question {
        service: String::new(),
        server: vip.ip(),
        vip,
        source: SocketAddr::new(own.ip, port),
        from: mac(way.smac?),
        to: mac(way.mac?),
        device: way.ifindex,
    })
}

fn ask(
    device: u32,
    ethertype: u16,
    questions: &[&Question],
) -> Result<Vec<Option<Answer>>, weir_sys::Error> {
    let socket = FrameSocket::listening(device, ethertype)?;
    let mut answers = vec![None; questions.len()];
    let mut frame = [0; 256];
    for _ in 0..2 {
        for question in open(questions, &answers) {
            socket.send(device, &question.frame(TcpFlags::SYN, 1))?;
        }
        let until = Instant::now() + LISTENING / 2;
        while open(questions, &answers).next().is_some() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let Some(length) = socket.receive_within(&mut frame, left)? else {
                break;
            };
            let frame = frame.get(..length).unwrap_or_default();
            for (question, answer) in questions.iter().zip(&mut answers) {
                let Some(heard) = question.answer(frame) else {
                    continue;
                };
                if let Answer::Accepted { seq } = heard {
                    socket.send(device, &question.frame(TcpFlags::RST, seq))?;
                }
                *answer = Some(heard);
            }
        }
    }
    Ok(answers)
}

/// Those without an answer yet.
fn open<'a>(
    questions: &'a [&Question],
    answers: &'a [Option<Answer>],
) -> impl Iterator<Item = &'a Question> {
    let both = questions.iter().zip(answers);
    both.filter(|(_, answer)| answer.is_none())
        .map(|(question, _)| *question)
}
