//! Runs one probe, from the connection to the result.

use std::io;
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout_at;
use weir_health::{Dialogue, Outcome, Reply, Target, Verdict, dialogue};
use weir_model::{DirectorProbe, Medium};

use crate::connect::{ConnectError, connect};
use crate::context::Context;
use crate::path::PathProbe;
use crate::stream::Stream;
use crate::tls::{Handshake, handshake};
use crate::{datagram, local};

/// Runs a probe, at most until its deadline.
pub(crate) async fn run(context: &Context, target: &Target, deadline: Instant) -> Outcome {
    let started = Instant::now();
    let path = match PathProbe::for_target(target, context) {
        Ok(path) => path,
        Err(outcome) => return outcome,
    };
    let run = run_probe(context, target, path.as_ref());
    let outcome = match timeout_at(deadline.into(), run).await {
        Ok(outcome) => outcome,
        Err(_) => {
            let limit = weir_config::show_duration(target.timing.timeout);
            Outcome::failed(format!("{}{limit}", weir_model::NO_RESPONSE_PREFIX))
        }
    };
    let outcome = with_duration(outcome, started.elapsed());
    match path {
        Some(path) => path.refine(outcome).await,
        None => target.with_address(outcome),
    }
}

/// Appends the duration to the note of a passed probe.
fn with_duration(outcome: Outcome, duration: Duration) -> Outcome {
    if outcome.verdict != Verdict::Passed {
        return outcome;
    }
    let millis = duration.as_secs_f64() * 1000.0;
    Outcome {
        note: format!("{} in {millis:.1}ms", outcome.note),
        ..outcome
    }
}

async fn run_probe(context: &Context, target: &Target, path: Option<&PathProbe>) -> Outcome {
    match target.probe.medium() {
        Medium::Director(DirectorProbe::Script(script)) => local::run_script(script, target).await,
        Medium::Director(DirectorProbe::File(path)) => local::read_weight(path).await,
        Medium::Datagram(_) => match datagram::probe(context, target, path).await {
            Ok(outcome) => outcome,
            Err(error) => ConnectError::from(error).outcome(),
        },
        Medium::Stream => probe_stream(context, target, path).await,
    }
}

/// Runs a probe over a connection.
async fn probe_stream(context: &Context, target: &Target, path: Option<&PathProbe>) -> Outcome {
    let mut stream = match connect(context, target, path).await {
        Ok(stream) => stream,
        Err(error) => return error.outcome(),
    };
    let connected = match stream {
        Stream::Tcp(_) => "tcp connected",
        Stream::Unix(_) => "connected",
    };
    let Some(tls) = &target.tls else {
        let outcome = run_over(&mut stream, target, connected).await;
        stream.reset_on_close();
        return outcome;
    };
    match handshake(&context.tls_configs, tls, target, stream).await {
        Handshake::Done(mut stream) => {
            let outcome = run_over(stream.as_mut(), target, "tls handshake completed").await;
            stream.get_ref().0.reset_on_close();
            outcome
        }
        Handshake::Failed(error) => ConnectError::from(error).outcome(),
        Handshake::InvalidSettings(error) => {
            Outcome::unknown(format!("the director cannot probe: {error}"))
        }
    }
}

/// Runs the target's dialogue over a stream. If the probe has no dialogue, an open connection is sufficient.
async fn run_over(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    target: &Target,
    connected: &str,
) -> Outcome {
    let Some(mut dialogue) = dialogue::for_target(target) else {
        return Outcome::passed(connected);
    };
    let outcome = run_dialogue(stream, dialogue.as_mut()).await;
    // The outcome is already decided, so an error does not matter.
    let _ = stream.write_all(dialogue.quit_message()).await;
    outcome
}

/// Runs a dialogue over a stream. A stream error is a failure.
async fn run_dialogue(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    dialogue: &mut dyn Dialogue,
) -> Outcome {
    match exchange(stream, dialogue).await {
        Ok(outcome) => outcome,
        Err(error) => ConnectError::from(error).outcome(),
    }
}

/// Exchanges messages with the server until the dialogue has an outcome or the server closes the connection.
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
