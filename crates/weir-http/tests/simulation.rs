//! Exchanges over a simulated network: reads and writes have random sizes, connections end at random times, and
//! received messages are compared with sent ones. A failure prints its seed.
//!
//! `WEIR_SOAK` runs a million seeds instead of ten thousand, `WEIR_RUNS=N` N of them.

#![allow(
    clippy::disallowed_methods,
    reason = "the number of runs comes from the environment"
)]

use weir_http::head::{self, HeadLimits};
use weir_http::{Exchange, Framing, RequestEdit, ResponseEdit, ServerEnd, write_request};
use weir_model::SplitMix64;

/// Seeded random numbers.
struct Dice(SplitMix64);

impl Dice {
    fn roll(&mut self, end: usize) -> usize {
        self.0.below(end as u64) as usize
    }

    fn chance(&mut self, one_in: usize) -> bool {
        self.roll(one_in) == 0
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        (0..self.roll(most)).map(|_| self.roll(256) as u8).collect()
    }
}

/// A message as sent.
#[derive(Debug, Clone, PartialEq)]
struct Message {
    /// Number of the exchange, which is part of the target and the body.
    number: usize,
    content: Vec<u8>,
    framing: Framing,
}

fn body(message: &Message, dice: &mut Dice) -> Vec<u8> {
    if message.framing != Framing::Chunked {
        return message.content.clone();
    }
    let mut out = Vec::new();
    let mut rest = message.content.as_slice();
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at((dice.roll(40) + 1).min(rest.len()));
        let extension = if dice.chance(4) { ";a=b" } else { "" };
        out.extend_from_slice(format!("{:X}{extension}\r\n", chunk.len()).as_bytes());
        out.extend_from_slice(chunk);
        out.extend_from_slice(b"\r\n");
        rest = after;
    }
    let trailer = if dice.chance(3) { "Sum: 1\r\n" } else { "" };
    out.extend_from_slice(format!("0\r\n{trailer}\r\n").as_bytes());
    out
}

fn framing_lines(message: &Message) -> String {
    match message.framing {
        Framing::Length(length) => format!("Content-Length: {length}\r\n"),
        Framing::Chunked => "Transfer-Encoding: chunked\r\n".to_owned(),
        Framing::None | Framing::UntilClose => String::new(),
    }
}

fn message(number: usize, dice: &mut Dice, may_close: bool) -> Message {
    let content = if dice.chance(3) {
        Vec::new()
    } else {
        dice.bytes(300)
    };
    let framing = match dice.roll(4) {
        0 => Framing::Chunked,
        1 if may_close => Framing::UntilClose,
        _ => Framing::Length(content.len() as u64),
    };
    Message {
        number,
        content,
        framing,
    }
}

/// A strict receiver of a stream of messages: a second parser that must agree with the first.
struct Receiver {
    stream: Vec<u8>,
    requests: bool,
}

impl Receiver {
    /// Returns the complete messages, and whether an incomplete one follows.
    fn messages(&self, ended: bool) -> (Vec<Message>, bool) {
        let mut found = Vec::new();
        let mut at = 0;
        while at < self.stream.len() {
            let rest = &self.stream[at..];
            if rest.starts_with(b"HTTP/1.1 103 ") {
                let Some(end) = rest.windows(4).position(|four| four == b"\r\n\r\n") else {
                    return (found, true);
                };
                at += end + 4;
                continue;
            }
            match self.message(&self.stream[at..], ended) {
                Some((message, len)) => {
                    found.push(message);
                    at += len;
                }
                None => return (found, true),
            }
        }
        (found, false)
    }

    fn message(&self, input: &[u8], ended: bool) -> Option<(Message, usize)> {
        let text_end = input.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
        let text = std::str::from_utf8(&input[..text_end]).expect("heads are ASCII");
        let line = text.lines().next()?;
        let number = if self.requests {
            line.split(' ')
                .nth(1)?
                .trim_start_matches('/')
                .parse()
                .ok()?
        } else {
            line.split(' ').nth(2)?.parse().ok()?
        };
        let field = |name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(name).map(|v| v.trim().to_owned()))
        };
        let rest = &input[text_end..];
        if field("Transfer-Encoding:").is_some() {
            let (content, len) = dechunk(rest)?;
            return Some((
                Message {
                    number,
                    content,
                    framing: Framing::Chunked,
                },
                text_end + len,
            ));
        }
        let (content, framing) = match field("Content-Length:") {
            Some(length) => {
                let length: usize = length.parse().expect("length is a number");
                (rest.get(..length)?.to_vec(), Framing::Length(length as u64))
            }
            None if self.requests => (Vec::new(), Framing::None),
            None if ended => (rest.to_vec(), Framing::UntilClose),
            None => return None,
        };
        let len = text_end + content.len();
        Some((
            Message {
                number,
                content,
                framing,
            },
            len,
        ))
    }
}

fn dechunk(input: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (mut at, mut content) = (0, Vec::new());
    let line = |at: usize| {
        let rest = input.get(at..)?;
        rest.windows(2)
            .position(|two| two == b"\r\n")
            .map(|end| at + end)
    };
    loop {
        let end = line(at)?;
        let text = std::str::from_utf8(&input[at..end]).expect("sizes are ASCII");
        let size = usize::from_str_radix(text.split(';').next()?, 16).expect("size is hexadecimal");
        at = end + 2;
        if size == 0 {
            break;
        }
        content.extend_from_slice(input.get(at..at + size)?);
        at += size + 2;
    }
    loop {
        let end = line(at)?;
        let empty = end == at;
        at = end + 2;
        if empty {
            return Some((content, at));
        }
    }
}

/// Counters over all runs.
#[derive(Debug, Default)]
struct Outcome {
    complete: usize,
    cut: usize,
    interim: usize,
}

/// Simulates a client connection with some exchanges, each over a server connection that may end at any byte.
#[expect(clippy::too_many_lines, reason = "one scenario, step by step")]
fn run(seed: u64, outcome: &mut Outcome) {
    let mut dice = Dice(SplitMix64::new(seed));
    let http10 = dice.chance(5);
    let count = 1 + dice.roll(4);
    let mut fields = Vec::new();
    let mut to_client = Receiver {
        stream: Vec::new(),
        requests: false,
    };
    let mut sent = Vec::new();
    for number in 0..count {
        let mut request = message(number, &mut dice, false);
        if http10 && request.framing == Framing::Chunked {
            request.framing = Framing::Length(request.content.len() as u64);
        }
        let version = if http10 { "HTTP/1.0" } else { "HTTP/1.1" };
        let head_text = format!(
            "POST /{number} {version}\r\nHost: a\r\nConnection: keep-alive, Noise\r\nNoise: x\r\n{}\r\n",
            framing_lines(&request)
        );
        let mut from_client = head_text.into_bytes();
        from_client.extend(body(&request, &mut dice));
        let response = message(number, &mut dice, true);
        let (end, to_server, stays) = exchange(
            &from_client,
            &response,
            &mut dice,
            &mut fields,
            &mut to_client.stream,
            outcome,
        );
        let server = Receiver {
            stream: to_server,
            requests: true,
        };
        let (received, partial) = server.messages(false);
        for got in &received {
            assert_eq!(
                (got.number, &got.content),
                (number, &request.content),
                "seed {seed}: the server's request"
            );
        }
        assert!(
            received.len() <= 1,
            "seed {seed}: one request became {}",
            received.len()
        );
        if end == ServerEnd::Complete {
            assert!(
                !(stays && (partial || received.is_empty())),
                "seed {seed}: a persistent connection has an incomplete request"
            );
            sent.push(response);
            outcome.complete += 1;
        } else {
            outcome.cut += 1;
        }
        if !stays {
            break;
        }
    }
    let (received, partial) = to_client.messages(true);
    for (got, meant) in received.iter().zip(&sent) {
        assert_eq!(
            (got.number, &got.content),
            (meant.number, &meant.content),
            "seed {seed}: the client's response"
        );
    }
    assert!(
        received.len() >= sent.len(),
        "seed {seed}: {} of {} responses, {partial}",
        received.len(),
        sent.len()
    );
}

/// Runs one exchange in pieces. Returns how the response ended, what was sent to the server, and whether the client
/// connection persists.
#[expect(clippy::too_many_lines, reason = "one scenario, step by step")]
fn exchange(
    from_client: &[u8],
    response: &Message,
    dice: &mut Dice,
    fields: &mut Vec<weir_http::Field>,
    to_client: &mut Vec<u8>,
    outcome: &mut Outcome,
) -> (ServerEnd, Vec<u8>, bool) {
    let limits = HeadLimits::default();
    let mut arrived = 0;
    let request = loop {
        arrived = (arrived + 1 + dice.roll(30)).min(from_client.len());
        match head::request(&from_client[..arrived], &limits, fields) {
            Ok(Some(request)) => break request,
            Ok(None) => {}
            Err(refusal) => panic!("a valid request is rejected: {refusal}"),
        }
    };
    let mut to_server = Vec::new();
    let edit = RequestEdit {
        set_host: None,
        add: b"",
        edits: [None, None],
        fields: None,
        client: None,
        version: "1.1",
        host: b"a",
        path: None,
        close: false,
    };
    write_request(from_client, &request, fields, &edit, &mut to_server);
    let mut exchange = Exchange::new(&request, weir_model::Underscores::Drop);
    let mut taken = request.len;
    let mut from_server = Vec::new();
    if dice.chance(4) {
        from_server.extend_from_slice(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n");
        outcome.interim += 1;
    }
    from_server.extend(
        format!(
            "HTTP/1.1 200 {}\r\nKeep-Alive: 5\r\n{}\r\n",
            response.number,
            framing_lines(response)
        )
        .into_bytes(),
    );
    from_server.extend(body(response, dice));
    // Truncation cannot be detected if the body ends with the connection.
    let cut = dice.chance(5) && response.framing != Framing::UntilClose;
    let ends_at = if cut {
        dice.roll(from_server.len())
    } else {
        from_server.len()
    };
    let (mut read, mut used) = (0, 0);
    loop {
        // A server may respond before it has received the whole request.
        if taken < from_client.len() && !dice.chance(3) {
            let until = (taken + 1 + dice.roll(60)).min(from_client.len());
            let upload = exchange
                .client_data(&from_client[taken..until])
                .expect("body is valid");
            to_server.extend_from_slice(&from_client[taken..taken + upload.forward]);
            to_server.extend_from_slice(&upload.trailers);
            taken += upload.consumed;
        }
        if read == ends_at && (used == read || !dice.chance(2)) {
            if exchange.response_done() {
                return (ServerEnd::Complete, to_server, exchange.client_persists());
            }
            let end = exchange.server_end();
            return (
                end,
                to_server,
                end == ServerEnd::Complete && exchange.client_persists(),
            );
        }
        read = (read + 1 + dice.roll(80)).min(ends_at);
        let mut out = Vec::new();
        let input = &from_server[used..read];
        let step = exchange
            .server_data(
                input,
                &limits,
                false,
                &ResponseEdit::default(),
                fields,
                &mut out,
            )
            .expect("response is valid");
        to_client.extend_from_slice(&out);
        to_client.extend_from_slice(&input[step.forward]);
        used += step.consumed;
        if exchange.response_done() {
            return (ServerEnd::Complete, to_server, exchange.client_persists());
        }
    }
}

#[test]
fn received_messages_equal_sent_ones_at_length() {
    let runs_variable = std::env::var("WEIR_RUNS")
        .ok()
        .and_then(|runs| runs.parse().ok());
    let soak = std::env::var_os("WEIR_SOAK").is_some();
    let runs: usize = runs_variable.unwrap_or(if soak { 1_000_000 } else { 10_000 });
    let mut outcome = Outcome::default();
    for seed in 0..runs {
        run(seed as u64, &mut outcome);
    }
    // The simulation is meaningful only if there were both failures and successes.
    assert!(
        outcome.complete > runs / 2 && outcome.cut > runs / 20 && outcome.interim > runs / 20,
        "{outcome:?}"
    );
}
