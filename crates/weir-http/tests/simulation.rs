//! Simulates exchanges over a network, and compares the received messages with the sent messages.
//!
//! Reads and writes have random sizes, and connections end at random times. A failure prints its seed.
//!
//! `WEIR_SOAK` runs a million seeds instead of ten thousand; `WEIR_RUNS=N` runs N seeds.

#![allow(
    clippy::disallowed_methods,
    reason = "the number of runs comes from the environment"
)]

use weir_http::head::{self, HeadLimits};
use weir_http::{Exchange, Framing, RequestEdit, ResponseEdit, ServerEnd, write_request};
use weir_model::SplitMix64;

/// Seeded random numbers.
struct Random(SplitMix64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0.below(end as u64) as usize
    }

    fn one_in(&mut self, number: usize) -> bool {
        self.below(number) == 0
    }

    fn bytes(&mut self, end: usize) -> Vec<u8> {
        (0..self.below(end))
            .map(|_| self.below(256) as u8)
            .collect()
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

fn encode_body(message: &Message, random: &mut Random) -> Vec<u8> {
    if message.framing != Framing::Chunked {
        return message.content.clone();
    }
    let mut out = Vec::new();
    let mut rest = message.content.as_slice();
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at((random.below(40) + 1).min(rest.len()));
        let extension = if random.one_in(4) { ";a=b" } else { "" };
        out.extend_from_slice(format!("{:X}{extension}\r\n", chunk.len()).as_bytes());
        out.extend_from_slice(chunk);
        out.extend_from_slice(b"\r\n");
        rest = after;
    }
    let trailer = if random.one_in(3) { "Sum: 1\r\n" } else { "" };
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

fn random_message(number: usize, random: &mut Random, may_close: bool) -> Message {
    let content = if random.one_in(3) {
        Vec::new()
    } else {
        random.bytes(300)
    };
    let framing = match random.below(4) {
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

/// A strict receiver of a stream of messages: a second parser, whose results must agree with Weir's parser.
struct Receiver {
    stream: Vec<u8>,
    receives_requests: bool,
}

impl Receiver {
    /// Returns the complete messages, and whether an incomplete one follows.
    fn messages(&self, is_ended: bool) -> (Vec<Message>, bool) {
        let mut found = Vec::new();
        let mut offset = 0;
        while offset < self.stream.len() {
            let rest = &self.stream[offset..];
            if rest.starts_with(b"HTTP/1.1 103 ") {
                let Some(end) = rest.windows(4).position(|window| window == b"\r\n\r\n") else {
                    return (found, true);
                };
                offset += end + 4;
                continue;
            }
            match self.message(&self.stream[offset..], is_ended) {
                Some((message, len)) => {
                    found.push(message);
                    offset += len;
                }
                None => return (found, true),
            }
        }
        (found, false)
    }

    fn message(&self, input: &[u8], is_ended: bool) -> Option<(Message, usize)> {
        let text_end = input.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
        let text = std::str::from_utf8(&input[..text_end]).expect("heads are ASCII");
        let line = text.lines().next()?;
        let number = if self.receives_requests {
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
            None if self.receives_requests => (Vec::new(), Framing::None),
            None if is_ended => (rest.to_vec(), Framing::UntilClose),
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
    let (mut offset, mut content) = (0, Vec::new());
    let line = |offset: usize| {
        let rest = input.get(offset..)?;
        rest.windows(2)
            .position(|two| two == b"\r\n")
            .map(|end| offset + end)
    };
    loop {
        let end = line(offset)?;
        let text = std::str::from_utf8(&input[offset..end]).expect("sizes are ASCII");
        let size = usize::from_str_radix(text.split(';').next()?, 16).expect("size is hexadecimal");
        offset = end + 2;
        if size == 0 {
            break;
        }
        content.extend_from_slice(input.get(offset..offset + size)?);
        offset += size + 2;
    }
    loop {
        let end = line(offset)?;
        let is_empty = end == offset;
        offset = end + 2;
        if is_empty {
            return Some((content, offset));
        }
    }
}

/// Counters over all runs: complete and truncated exchanges, and interim responses.
#[derive(Debug, Default)]
struct Outcome {
    complete: usize,
    truncated: usize,
    interim: usize,
}

/// Simulates a client connection with some exchanges, each over a server connection that may end at any byte.
#[expect(clippy::too_many_lines, reason = "one scenario, step by step")]
fn run(seed: u64, outcome: &mut Outcome) {
    let mut random = Random(SplitMix64::new(seed));
    let is_http10 = random.one_in(5);
    let count = 1 + random.below(4);
    let mut fields = Vec::new();
    let mut to_client = Receiver {
        stream: Vec::new(),
        receives_requests: false,
    };
    let mut sent = Vec::new();
    for number in 0..count {
        let mut request = random_message(number, &mut random, false);
        if is_http10 && request.framing == Framing::Chunked {
            request.framing = Framing::Length(request.content.len() as u64);
        }
        let version = if is_http10 { "HTTP/1.0" } else { "HTTP/1.1" };
        let head_text = format!(
            "POST /{number} {version}\r\nHost: a\r\nConnection: keep-alive, Noise\r\nNoise: x\r\n{}\r\n",
            framing_lines(&request)
        );
        let mut from_client = head_text.into_bytes();
        from_client.extend(encode_body(&request, &mut random));
        let response = random_message(number, &mut random, true);
        let (end, to_server, persists) = exchange(
            &from_client,
            &response,
            &mut random,
            &mut fields,
            &mut to_client.stream,
            outcome,
        );
        let server = Receiver {
            stream: to_server,
            receives_requests: true,
        };
        let (received, is_partial) = server.messages(false);
        for request_at_server in &received {
            assert_eq!(
                (request_at_server.number, &request_at_server.content),
                (number, &request.content),
                "seed {seed}: the server must receive the sent request"
            );
        }
        assert!(
            received.len() <= 1,
            "seed {seed}: one request became {}",
            received.len()
        );
        if end == ServerEnd::Complete {
            assert!(
                !(persists && (is_partial || received.is_empty())),
                "seed {seed}: a persistent connection has an incomplete request"
            );
            sent.push(response);
            outcome.complete += 1;
        } else {
            outcome.truncated += 1;
        }
        if !persists {
            break;
        }
    }
    let (received, is_partial) = to_client.messages(true);
    for (received, sent) in received.iter().zip(&sent) {
        assert_eq!(
            (received.number, &received.content),
            (sent.number, &sent.content),
            "seed {seed}: the client must receive the sent response"
        );
    }
    assert!(
        received.len() >= sent.len(),
        "seed {seed}: {} of {} responses, {is_partial}",
        received.len(),
        sent.len()
    );
}

/// Runs one exchange in pieces. Returns the end of the response, the bytes sent to the server, and whether the client
/// connection persists.
#[expect(clippy::too_many_lines, reason = "one scenario, step by step")]
fn exchange(
    from_client: &[u8],
    response: &Message,
    random: &mut Random,
    fields: &mut Vec<weir_http::Field>,
    to_client: &mut Vec<u8>,
    outcome: &mut Outcome,
) -> (ServerEnd, Vec<u8>, bool) {
    let limits = HeadLimits::default();
    let mut arrived = 0;
    let request = loop {
        arrived = (arrived + 1 + random.below(30)).min(from_client.len());
        match head::parse_request(&from_client[..arrived], &limits, fields) {
            Ok(Some(request)) => break request,
            Ok(None) => {}
            Err(error) => panic!("a valid request is rejected: {error}"),
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
    let mut processed = request.len;
    let mut from_server = Vec::new();
    if random.one_in(4) {
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
    from_server.extend(encode_body(response, random));
    // Truncation cannot be detected if the body ends with the connection.
    let is_cut = random.one_in(5) && response.framing != Framing::UntilClose;
    let stream_end = if is_cut {
        random.below(from_server.len())
    } else {
        from_server.len()
    };
    let (mut read, mut consumed) = (0, 0);
    loop {
        // A server may respond before it has received the whole request.
        if processed < from_client.len() && !random.one_in(3) {
            let end = (processed + 1 + random.below(60)).min(from_client.len());
            let upload = exchange
                .process_client_data(&from_client[processed..end])
                .expect("body is valid");
            to_server.extend_from_slice(&from_client[processed..processed + upload.forward_len]);
            to_server.extend_from_slice(&upload.trailers);
            processed += upload.consumed;
        }
        if read == stream_end && (consumed == read || !random.one_in(2)) {
            if exchange.response_done() {
                return (ServerEnd::Complete, to_server, exchange.client_persists());
            }
            let end = exchange.handle_server_end();
            return (
                end,
                to_server,
                end == ServerEnd::Complete && exchange.client_persists(),
            );
        }
        read = (read + 1 + random.below(80)).min(stream_end);
        let mut out = Vec::new();
        let input = &from_server[consumed..read];
        let step = exchange
            .process_server_data(
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
        consumed += step.consumed;
        if exchange.response_done() {
            return (ServerEnd::Complete, to_server, exchange.client_persists());
        }
    }
}

#[test]
fn received_messages_equal_sent_ones_soak() {
    let runs_variable = std::env::var("WEIR_RUNS")
        .ok()
        .and_then(|runs| runs.parse().ok());
    let is_soak = std::env::var_os("WEIR_SOAK").is_some();
    let runs: usize = runs_variable.unwrap_or(if is_soak { 1_000_000 } else { 10_000 });
    let mut outcome = Outcome::default();
    for seed in 0..runs {
        run(seed as u64, &mut outcome);
    }
    // The simulation is meaningful only if exchanges both failed and succeeded.
    assert!(
        outcome.complete > runs / 2 && outcome.truncated > runs / 20 && outcome.interim > runs / 20,
        "{outcome:?}"
    );
}
