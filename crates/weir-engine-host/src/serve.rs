//! Runs the main loop, which executes requests one after another, and the engine's periodic work.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep_until};
use weir_engine::Paths;
use weir_netlink::ReopeningWatch;
use weir_state::{SavedServers, StateCopy};
use weir_sys::{Channel, Message};

use crate::Error;
use crate::host::{Host, OpenHandshake};
use crate::message::{self, Query, Reply, Request, UNREQUESTED};
use crate::policy::Policy;

/// Interval between two ticks of the engine.
const TICK_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of queued messages; further messages wait in the channel.
const MAX_QUEUED_MESSAGES: usize = 256;
/// Interval between checks for drift.
const DRIFT_INTERVAL: Duration = Duration::from_millis(500);

/// Raises the open-file limit, and drops the capabilities that the engine does not need. Must be called before the
/// process has other threads.
///
/// # Errors
/// Fails if the kernel rejects the change.
pub fn restrict() -> Result<(), Error> {
    // Each map, program and link holds a descriptor.
    if let Err(error) = weir_sys::raise_nofile() {
        tracing::warn!(
            %error,
            "failed to raise the open-file limit: only a few maps, programs and links can be open"
        );
    }
    Ok(weir_sys::keep_engine_capabilities()?)
}

/// Serves a daemon at the other end of the channel; the process exits when the daemon exits. `configuration` is the
/// configuration file. Must be called inside a tokio runtime, in the director's network namespace; [`restrict`] must be
/// called before the runtime is created, because existing threads keep their capabilities.
///
/// # Errors
/// Fails if the network cannot be watched.
pub async fn serve(channel: Channel, configuration: &Path, paths: &Paths) -> Result<(), Error> {
    let mut channel = DaemonChannel::new(channel);
    channel.send(UNREQUESTED, &Reply::Started);
    let mut host = Host::new(
        paths.clone(),
        Policy::new(configuration, &paths.runtime_dir),
    );
    // Watch before the engine reads the tables, so no change is missed.
    let mut network = ReopeningWatch::open()?;
    let (mut ticks, mut drift_checks) = (ticker(TICK_INTERVAL), ticker(DRIFT_INTERVAL));
    let (mut latency_at, mut sync_at) = (Instant::now(), Instant::now());
    loop {
        tokio::select! {
            received = channel.messages.recv() => {
                let Some(received) = received else { return Ok(()) };
                handle(&mut host, &mut channel, received).await;
            }
            event = network.next() => match event {
                Ok(event) => host.network_event(&event).await,
                Err(error) => tracing::error!(%error, "the netlink watch failed"),
            },
            () = sleep_until(latency_at) => {
                let pause = host.publish_latency();
                latency_at = Instant::now() + pause.unwrap_or(TICK_INTERVAL);
            }
            () = sleep_until(sync_at) => sync_at = Instant::now() + host.synchronize(),
            _ = drift_checks.tick() => host.repair_drift().await,
            _ = ticks.tick() => {
                network.reopen();
                host.tick().await;
            }
        }
    }
}

async fn handle(host: &mut Host, channel: &mut DaemonChannel, received: Message) {
    let (number, request, files) = match message::open::<Request>(received) {
        Ok(opened) => opened,
        Err(error) => {
            tracing::error!(%error, "refused an invalid request from the daemon");
            return;
        }
    };
    if let Request::Begin {
        added,
        address_digest,
    } = request
    {
        let mut handshake = ChannelHandshake { channel, number };
        let reply = host
            .open(added, address_digest, files, &mut handshake)
            .await;
        let number = handshake.number;
        channel.send(number, &reply);
        return;
    }
    if let Request::ClaimsVip(id) = request
        && let Some(claim) = host.claim_request(id)
    {
        let channel = Arc::clone(&channel.channel);
        tokio::task::spawn_blocking(move || {
            let reply = Reply::Claims(claim.probe());
            if let Err(error) = message::send(&channel, number, &reply, &[]) {
                tracing::debug!(%error, "failed to send a reply");
            }
        });
        return;
    }
    let reply = host
        .execute(request, files, &mut |part| channel.send(number, part))
        .await;
    channel.send(number, &reply);
}

/// The channel to the daemon, with a thread that reads it.
struct DaemonChannel {
    channel: Arc<Channel>,
    messages: mpsc::Receiver<Message>,
}

impl DaemonChannel {
    fn new(channel: Channel) -> Self {
        let channel = Arc::new(channel);
        let (sender, messages) = mpsc::channel(MAX_QUEUED_MESSAGES);
        let reader = Arc::clone(&channel);
        std::thread::spawn(move || {
            while let Ok(Some(message)) = reader.receive() {
                if sender.blocking_send(message).is_err() {
                    return;
                }
            }
            // Exit immediately, even if a request is being executed: another daemon may have started.
            std::process::exit(0);
        });
        Self { channel, messages }
    }

    /// Sends a reply. Ignores errors, because the reader detects that the daemon has exited.
    fn send(&self, number: u64, reply: &Reply) {
        if let Err(error) = message::send_reply(&self.channel, number, reply) {
            tracing::debug!(%error, "failed to send a reply");
        }
    }
}

/// The channel while an engine is being opened. `number` is the number of the request for the first half, and later of
/// the request for the second half.
struct ChannelHandshake<'a> {
    channel: &'a mut DaemonChannel,
    number: u64,
}

impl OpenHandshake for ChannelHandshake<'_> {
    async fn receive_states(&mut self, saved: SavedServers) -> Option<StateCopy> {
        self.channel.send(self.number, &Reply::Begun { saved });
        loop {
            let received = self.channel.messages.recv().await?;
            match message::open::<Request>(received) {
                Ok((number, Request::Finish { states }, _)) => {
                    self.number = number;
                    return Some(states);
                }
                Ok((number, Request::Cancel, _)) => {
                    self.number = number;
                    return None;
                }
                // Probe requests can arrive at any time.
                Ok((number, request, _)) if is_probe_request(&request) => {
                    let reason = "the engine is being opened".to_owned();
                    self.channel.send(number, &Reply::Failed { reason });
                }
                Ok(_) | Err(_) => {
                    tracing::error!(
                        "refused a request from the daemon while the engine is being opened"
                    );
                    self.number = UNREQUESTED - 1;
                    return None;
                }
            }
        }
    }
}

const fn is_probe_request(request: &Request) -> bool {
    matches!(
        request,
        Request::AddProbe { .. }
            | Request::RemoveProbe(_)
            | Request::ClaimsVip(_)
            | Request::Read(Query::Probe(_))
    )
}

fn ticker(period: Duration) -> Interval {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
