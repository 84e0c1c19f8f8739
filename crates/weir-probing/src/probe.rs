//! One run of one probe, from connecting to its result.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout_at;
use weir_health::{Dialogue, Outcome, ProbeId, ProbeRequest, Reply, Target, Verdict, dialogue};
use weir_model::Probe;

use crate::connect::{Refused, connect};
use crate::path::Passage;
use crate::tls::{Shaken, shake};
use crate::{Shared, datagram, local};

/// Hands a result in, whatever becomes of the task: a probe without one would never be repeated.
struct Report {
    shared: Arc<Shared>,
    id: ProbeId,
    outcome: Option<Outcome>,
}

impl Drop for Report {
    fn drop(&mut self) {
        let outcome = self.outcome.take();
        let outcome = outcome.unwrap_or_else(|| Outcome::unknown("the probe was given up"));
        let mut monitor = self.shared.monitor();
        let before = monitor.next_deadline();
        monitor.handle_result(self.id, outcome, self.shared.clock.now());
        self.shared.gather(&mut monitor);
        let earlier = monitor.next_deadline() < before || before.is_none();
        drop(monitor);
        if earlier {
            self.shared.earlier.notify_one();
        }
    }
}

pub(crate) async fn run(shared: Arc<Shared>, order: ProbeRequest) {
    let deadline = shared.clock.instant(order.deadline);
    let mut report = Report {
        shared,
        id: order.id,
        outcome: None,
    };
    let started = Instant::now();
    let target = &order.target;
    let passage = match Passage::of(target, &report.shared) {
        Ok(passage) => passage,
        Err(outcome) => {
            report.outcome = Some(outcome);
            return;
        }
    };
    let asked = ask(&report.shared, target, passage.as_ref());
    let outcome = match timeout_at(deadline.into(), asked).await {
        Ok(outcome) => outcome,
        Err(_) => {
            let limit = weir_config::show_duration(target.timing.timeout);
            Outcome::failed(format!("no answer within {limit}"))
        }
    };
    let outcome = timed(outcome, started.elapsed());
    report.outcome = Some(match passage {
        Some(passage) => passage.judge(outcome).await,
        None => target.with_address(outcome),
    });
}

/// How long an answer took belongs to what is seen of a server.
fn timed(outcome: Outcome, took: Duration) -> Outcome {
    if outcome.verdict != Verdict::Passed {
        return outcome;
    }
    let millis = took.as_secs_f64() * 1000.0;
    Outcome {
        note: format!("{} in {millis:.1}ms", outcome.note),
        ..outcome
    }
}

async fn ask(shared: &Arc<Shared>, target: &Target, passage: Option<&Passage>) -> Outcome {
    match &target.probe {
        Probe::Script(script) => local::run(script, target).await,
        Probe::File { path } => {
            shared.files.follow(shared, Path::new(path));
            local::read(path).await
        }
        Probe::Ping | Probe::Dns { .. } | Probe::Udp { .. } => {
            match datagram::ask(shared, target, passage).await {
                Ok(outcome) => outcome,
                Err(error) => Refused::from(error).outcome(),
            }
        }
        _ => talk(shared, target, passage).await,
    }
}

/// A probe over a connection.
async fn talk(shared: &Shared, target: &Target, passage: Option<&Passage>) -> Outcome {
    let mut stream = match connect(shared, target, passage).await {
        Ok(stream) => stream,
        Err(refused) => return refused.outcome(),
    };
    let Some(tls) = &target.tls else {
        let outcome = ask_over(&mut stream, target, "tcp connected").await;
        hang_up(&stream);
        return outcome;
    };
    match shake(&shared.clients, tls, target, stream).await {
        Shaken::Done(mut stream) => {
            let outcome = ask_over(stream.as_mut(), target, "tls agreed").await;
            hang_up(stream.get_ref().0);
            outcome
        }
        Shaken::Failed(error) => Refused::from(error).outcome(),
        Shaken::Unable(why) => Outcome::unknown(format!("the director cannot probe: {why}")),
    }
}

/// The target's dialogue over a stream; where there is none, that it came about is all that was asked.
async fn ask_over(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    target: &Target,
    without: &str,
) -> Outcome {
    let Some(mut dialogue) = dialogue::for_target(target) else {
        return Outcome::passed(without);
    };
    let outcome = converse(stream, dialogue.as_mut()).await;
    // Whether it is still heard changes nothing.
    let _ = stream.write_all(dialogue.quit_message()).await;
    outcome
}

/// Without this every probe would leave a port in TIME_WAIT for a minute.
fn hang_up(stream: &TcpStream) {
    let _ = stream.set_zero_linger();
}

/// Leads a dialogue over a stream until it ends.
async fn converse(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    dialogue: &mut dyn Dialogue,
) -> Outcome {
    match exchange(stream, dialogue).await {
        Ok(outcome) => outcome,
        Err(error) => Refused::from(error).outcome(),
    }
}

async fn exchange(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    dialogue: &mut dyn Dialogue,
) -> io::Result<Outcome> {
    let mut buffer = [0; 4096];
    stream.write_all(&dialogue.open()).await?;
    loop {
        let read = stream.read(&mut buffer).await?;
        if read == 0 {
            return Ok(dialogue.end());
        }
        match dialogue.receive(&buffer[..read]) {
            Reply::More => {}
            Reply::Send(bytes) => stream.write_all(&bytes).await?,
            Reply::Finished(outcome) => return Ok(outcome),
        }
    }
}
