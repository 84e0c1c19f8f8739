//! Messages between the daemon and the process that owns the engine: JSON in packets of a SEQPACKET channel, long ones
//! in an attached file. Requests are only added and never change their meaning.
//!
//! Answers with one record for each server are binary (postcard): the daemon requests them several times per second,
//! and JSON of a hundred thousand servers costs more than reading their counters. Both ends are the same program.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use weir_engine::snapshot::{Layer4Snapshot, ServiceStatus};
use weir_engine::{Adjusted, Explanation, Origin};
use weir_health::Sample;
use weir_ipvsadm::{Connection, Edit, Listing, Refusal, Timeouts};
use weir_state::{OverrideRecord, SavedServers, StateCopy};
use weir_sys::{Channel, Message, sealed_file};

use crate::Error;

/// Version of the format.
const VERSION: u32 = 1;
/// The number of [`Reply::Started`], which answers no request.
pub(crate) const UNREQUESTED: u64 = u64::MAX;
/// Longer messages are in an attached file; in bytes.
const INLINE_MAX: usize = 32 << 10;
/// Maximum size of a message, in bytes: a snapshot of a million servers.
const MAX: u64 = 1 << 30;
/// The content of a packet whose message is in the first attached file.
const ATTACHED: &[u8] = b"attached";
/// The same for a binary answer.
const BINARY: &[u8] = b"binary";

/// A server that a list or the API adds to a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddedServer {
    /// The pool.
    pub pool: String,
    /// The address as written, including the port.
    pub name: String,
    /// The address.
    pub address: IpAddr,
    /// The port; `None` = the client's.
    pub port: Option<u16>,
    /// The weight, up to `weir_model::MAX_WEIGHT`.
    pub weight: u32,
    /// The upper limit of connections; 0 = none.
    pub max_connections: u32,
    /// The lower one.
    pub min_connections: u32,
    /// Names of `[check.NAME]`; `None` = the pool's checks.
    pub checks: Option<Vec<String>>,
}

/// A request of the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Open the engine with the configuration whose text is attached: its first half. [`Request::Finish`] or
    /// [`Request::Cancel`] follows.
    Begin {
        /// Servers of lists.
        added: Vec<AddedServer>,
        /// See [`Request::Apply`].
        #[serde(default)]
        addresses: Option<u64>,
    },
    /// The second half.
    Finish {
        /// The whole state of servers.
        states: StateCopy,
    },
    /// Instead of the second half: leave everything as it was.
    Cancel,
    /// The daemon loads the configuration file: read it at the same time.
    Prepare,
    /// Apply a configuration; its text is attached if it differs from the last one.
    Apply {
        /// Servers of lists.
        added: Vec<AddedServer>,
        /// What changed of the state of servers.
        states: StateCopy,
        /// `weir_helper::address_digest`, if the text has environment variables: both processes must know the same
        /// values.
        #[serde(default)]
        addresses: Option<u64>,
    },
    /// Apply the weights of these pools.
    Weights {
        /// The pools.
        pools: Vec<String>,
        /// What changed of the state of servers.
        states: StateCopy,
    },
    /// Add an override to the copy that 0.1.0 reads.
    CopyOverride {
        /// The override.
        record: OverrideRecord,
    },
    /// Execute edits of ipvsadm that a client has asked for ([`crate::permit_edits`]).
    Edit {
        /// In order.
        edits: Vec<Edit>,
    },
    /// Read something.
    Read(Query),
    /// Forward the packets of a probe along the path of a service.
    AddProbe {
        /// Its packets.
        id: ProbeId,
        /// The path, which is that of a configured service and server.
        way: ProbeWay,
    },
    /// The probe has ended.
    RemoveProbe(ProbeId),
    /// Whether the server of a probe answers ARP for the VIP.
    ClaimsVip(ProbeId),
    /// Do nothing without a request: a successor of the daemon opens its own engine.
    Pause,
    /// The successor has failed: continue.
    Resume,
    /// Drop the engine: a successor has taken over. The kernel keeps everything.
    Close,
    /// Whether the data plane is still this engine's.
    IsCurrent,
    /// Leave counters to a program that replaced the maps.
    TransferCounts,
    /// Detach what a successor does not know.
    DetachTc,
}

/// What is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Query {
    /// What follows from the active configuration.
    Facts,
    /// The status.
    Snapshot,
    /// The services of the status alone; the reply is a snapshot without its other parts.
    Services,
    /// Services as ipvsadm lists them.
    Listing,
    /// All flows.
    Connections,
    /// The active timeouts.
    Timeouts,
    /// How a packet would be handled.
    Explain {
        /// `tcp SRC:PORT VIP:PORT`.
        packet: String,
    },
    /// The current flows of a service, or of one of its servers.
    LiveFlows {
        /// The service.
        service: String,
        /// The server.
        server: Option<String>,
    },
    /// Connections of a server: open ones, and closed ones that have not expired.
    ConnectionsOf {
        /// The pool.
        pool: String,
        /// The server.
        server: String,
    },
    /// Handshake counters for passive checks.
    Handshakes,
    /// Counters of answers within `max_latency`, and weights that follow the latency.
    Latencies,
    /// Flow synchronization.
    Sync,
    /// What a probe through a service's path has observed.
    Probe(ProbeId),
}

/// The packets of a probe through a service's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbeId {
    /// Address of this machine.
    pub local: IpAddr,
    /// Its port.
    pub port: u16,
    /// Number of the protocol.
    pub protocol: u8,
}

/// How its packets are forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbeWay {
    /// The server.
    pub server: IpAddr,
    /// The VIP of the service.
    pub vip: IpAddr,
    /// `enum weir_forward`.
    pub forward: u8,
    /// `enum weir_tunnel`.
    pub tunnel: u8,
    /// `WEIR_TUNNEL_*`.
    pub tunnel_flags: u8,
    /// DSCP of `l3dsr`.
    pub dscp: u8,
    /// Port of the tunnel.
    pub tunnel_port: u16,
}

/// What the programs observed of a probe's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeResult {
    /// Packets sent.
    pub sent: u32,
    /// Replies from the VIP.
    pub answered: u32,
    /// Replies from the VIP, but of another machine.
    pub stray: u32,
    /// Replies from the server's address instead of the VIP.
    pub unturned: u32,
    /// Type of an ICMP error.
    pub error_type: u8,
    /// Its code.
    pub error_code: u8,
}

/// `[sync]` as it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncStatus {
    /// Address and port of this director.
    pub listen: String,
    /// Why the address cannot be used.
    pub error: Option<String>,
    /// Whether flows are sent.
    pub sending: bool,
    /// Whether flows of peers are inserted.
    pub receiving: bool,
    /// The other directors, in file order.
    pub peers: Vec<SyncPeerStatus>,
    /// Records of peers by result; results that never occurred are omitted.
    pub records: BTreeMap<String, u64>,
    /// Datagrams from unknown addresses.
    pub unknown_senders: u64,
    /// Changes that were overwritten before they were read.
    pub overwritten: u64,
    /// Whether a change of tables has moved flows that not every peer knows yet.
    #[serde(default)]
    pub moving: bool,
    /// The text of `ipvsadm -L --daemon`.
    pub daemons: String,
}

/// Another director, also in the status document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncPeerStatus {
    /// Its address and port.
    pub address: String,
    /// `silent`: no answer. `transfer`: it is being sent all flows. `established`: it has all flows.
    pub state: String,
    /// Age of the oldest change that it has not acknowledged, in milliseconds; of a silent peer the time since the last
    /// datagram from it.
    pub lag_ms: u64,
    /// Changes that wait to be sent.
    pub queued: u64,
    /// Datagrams that it did not receive; their flows were sent again.
    pub lost: u64,
    /// Records sent to it.
    pub sent: u64,
    /// Records received from it.
    pub received: u64,
    /// Changes dropped because the queue was full; all flows were sent instead.
    pub dropped: u64,
    /// Number of times all flows were sent.
    pub transfers: u64,
    /// Whether it has sent all of its flows.
    pub complete: bool,
    /// Datagrams ignored, by reason.
    pub ignored: BTreeMap<String, u64>,
}

/// Counters of the servers of a layer 4 service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// The service.
    pub service: String,
    /// By server.
    pub samples: Vec<(String, Sample)>,
    /// Servers that send no reply through the director: their indexes, and since when.
    pub silent: Vec<(usize, Duration)>,
}

/// What follows from the active configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// Number of configurations that have been applied.
    pub revision: u64,
    /// Addresses that were added, by interface.
    pub added_vips: Vec<(String, IpAddr)>,
    /// Whether packets reach the data plane.
    pub is_attached: bool,
    /// What ipvsadm has changed.
    pub origin: Origin,
}

/// An answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// A new process serves the channel, without an engine. It does not answer requests of before.
    Started,
    /// See [`Request::Begin`].
    Begun {
        /// What the state file has of servers.
        saved: SavedServers,
    },
    /// The configuration is active; also the answer to [`Query::Facts`].
    Active(Facts),
    /// It is done.
    Done,
    /// The results of edits.
    Edited {
        /// In order.
        results: Vec<Result<(), Refusal>>,
        /// What follows.
        facts: Facts,
    },
    /// See [`Request::IsCurrent`].
    Current(bool),
    /// The first services of a snapshot, which the other process decodes while the next ones are read. The answer
    /// follows.
    Services(Vec<ServiceStatus>),
    /// See [`Query::Snapshot`] and [`Query::Services`]; without the services that were sent before.
    Snapshot(Box<Layer4Snapshot>),
    /// See [`Query::Listing`].
    Listing(Listing),
    /// See [`Query::Connections`].
    Connections(Vec<Connection>),
    /// See [`Query::Timeouts`].
    Timeouts(Timeouts),
    /// See [`Query::Explain`].
    Explained(Explanation),
    /// See [`Query::LiveFlows`] and [`Query::ConnectionsOf`].
    Numbers(u64, u64),
    /// See [`Query::Handshakes`].
    Handshakes(Vec<Counters>),
    /// See [`Query::Latencies`].
    Latencies {
        /// Answers within the limit, and all.
        counters: Vec<Counters>,
        /// Changed weights.
        adjusted: Vec<Adjusted>,
    },
    /// See [`Query::Sync`]; `None` = there is no `[sync]`.
    Sync(Option<SyncStatus>),
    /// See [`Query::Probe`]; `None` = there is no such probe.
    Probe(Option<ProbeResult>),
    /// See [`Request::ClaimsVip`].
    Claims(bool),
    /// The engine is not open.
    NotOpen,
    /// The engine's error.
    Failed {
        /// In words.
        reason: String,
    },
    /// The policy does not permit it.
    Refused {
        /// In words.
        reason: String,
    },
}

impl Reply {
    /// Whether it has a record for each server of each service.
    const fn has_servers(&self) -> bool {
        match self {
            Self::Services(_)
            | Self::Snapshot(_)
            | Self::Handshakes(_)
            | Self::Latencies { .. } => true,
            Self::Started
            | Self::Begun { .. }
            | Self::Active(_)
            | Self::Done
            | Self::Edited { .. }
            | Self::Current(_)
            | Self::Listing(_)
            | Self::Connections(_)
            | Self::Timeouts(_)
            | Self::Explained(_)
            | Self::Numbers(..)
            | Self::Sync(_)
            | Self::Probe(_)
            | Self::Claims(_)
            | Self::NotOpen
            | Self::Failed { .. }
            | Self::Refused { .. } => false,
        }
    }
}

/// A message with its number.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope<T> {
    version: u32,
    number: u64,
    body: T,
}

/// Sends a message with files.
///
/// # Errors
/// The other end is closed, or there is not enough memory.
pub(crate) fn send<T: Serialize>(
    channel: &Channel,
    number: u64,
    body: &T,
    files: &[BorrowedFd<'_>],
) -> Result<(), Error> {
    let envelope = Envelope {
        version: VERSION,
        number,
        body,
    };
    let bytes = serde_json::to_vec(&envelope).map_err(|error| invalid(&error))?;
    if bytes.len() <= INLINE_MAX {
        return Ok(channel.send(&bytes, files)?);
    }
    let file = sealed_file("weir-message", &bytes).map_err(|error| invalid(&error))?;
    let mut all = vec![file.as_fd()];
    all.extend_from_slice(files);
    Ok(channel.send(ATTACHED, &all)?)
}

/// Sends an answer.
///
/// # Errors
/// As [`send`].
pub(crate) fn send_reply(channel: &Channel, number: u64, reply: &Reply) -> Result<(), Error> {
    if !reply.has_servers() {
        return send(channel, number, reply, &[]);
    }
    let envelope = Envelope {
        version: VERSION,
        number,
        body: reply,
    };
    let bytes = postcard::to_extend(&envelope, Vec::new()).map_err(|error| invalid(&error))?;
    let file = sealed_file("weir-message", &bytes).map_err(|error| invalid(&error))?;
    Ok(channel.send(BINARY, &[file.as_fd()])?)
}

/// Reads a received answer: its number and its body.
///
/// # Errors
/// It has another format or version.
pub(crate) fn open_reply(message: Message) -> Result<(u64, Reply), Error> {
    if message.bytes != BINARY {
        let (number, reply, _) = open(message)?;
        return Ok((number, reply));
    }
    let file = message.files.into_iter().next();
    let bytes = content(file.ok_or_else(|| invalid(&"no file"))?)?;
    let envelope: Envelope<Reply> =
        postcard::from_bytes(&bytes).map_err(|error| invalid(&error))?;
    if envelope.version != VERSION {
        return Err(invalid(&format!("version {}", envelope.version)));
    }
    Ok((envelope.number, envelope.body))
}

/// Reads a received message: its number, its body and the files of its sender.
///
/// # Errors
/// It has another format or version.
pub(crate) fn open<T: DeserializeOwned>(message: Message) -> Result<(u64, T, Vec<OwnedFd>), Error> {
    let Message { mut bytes, files } = message;
    let mut files = files.into_iter();
    if bytes == ATTACHED {
        let file = files.next().ok_or_else(|| invalid(&"no file"))?;
        bytes = content(file)?;
    }
    let envelope: Envelope<T> = serde_json::from_slice(&bytes).map_err(|error| invalid(&error))?;
    if envelope.version != VERSION {
        return Err(invalid(&format!("version {}", envelope.version)));
    }
    Ok((envelope.number, envelope.body, files.collect()))
}

/// The content of an attached file in memory. Another kind of file could block.
///
/// # Errors
/// It is not a regular file, or too long.
pub(crate) fn content(file: OwnedFd) -> Result<Vec<u8>, Error> {
    let mut file = File::from(file);
    let known = file.metadata().map_err(|error| invalid(&error))?;
    if !known.is_file() || known.len() > MAX {
        return Err(invalid(&"the file is of another kind or too long"));
    }
    file.rewind().map_err(|error| invalid(&error))?;
    let mut bytes = Vec::with_capacity(usize::try_from(known.len()).unwrap_or(0));
    let read = file.take(MAX).read_to_end(&mut bytes);
    read.map_err(|error| invalid(&error))?;
    Ok(bytes)
}

fn invalid(reason: &dyn std::fmt::Display) -> Error {
    Error::Message {
        reason: reason.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_format_is_stable() {
        let (one, other) = Channel::pair().unwrap();
        let request = Request::Read(Query::LiveFlows {
            service: "web".to_owned(),
            server: None,
        });
        send(&one, 7, &request, &[]).unwrap();
        let message = other.receive().unwrap().unwrap();
        let text = String::from_utf8(message.bytes.clone()).unwrap();
        assert_eq!(
            text,
            r#"{"version":1,"number":7,"body":{"read":{"live_flows":{"service":"web","server":null}}}}"#
        );
        assert_eq!(open::<Request>(message).unwrap().1, request);
        for wrong in [
            text.replace("\"version\":1", "\"version\":2"),
            text.replace("\"server\":null", "\"interface\":\"eth0\""),
        ] {
            let message = Message {
                bytes: wrong.into_bytes(),
                files: Vec::new(),
            };
            assert!(open::<Request>(message).is_err());
        }
    }

    #[test]
    fn long_message_is_in_a_file_and_other_files_follow() {
        let (one, other) = Channel::pair().unwrap();
        let request = Request::Read(Query::Explain {
            packet: "x".repeat(INLINE_MAX),
        });
        let null = File::open("/dev/null").unwrap();
        send(&one, 1, &request, &[null.as_fd()]).unwrap();
        let (number, body, files) = open::<Request>(other.receive().unwrap().unwrap()).unwrap();
        assert_eq!((number, files.len()), (1, 1));
        assert_eq!(body, request);
        one.send(ATTACHED, &[null.as_fd()]).unwrap();
        assert!(
            open::<Request>(other.receive().unwrap().unwrap()).is_err(),
            "a device"
        );
        one.send(ATTACHED, &[]).unwrap();
        assert!(
            open::<Request>(other.receive().unwrap().unwrap()).is_err(),
            "no file"
        );
    }

    #[test]
    fn answers_with_servers_are_binary_and_keep_every_value() {
        let (one, other) = Channel::pair().unwrap();
        let samples = (0..40_000_u64).map(|at| {
            let sample = Sample {
                syns: at,
                answered: u64::MAX - at,
            };
            (format!("10.0.{}.{}:80", at / 256, at % 256), sample)
        });
        let counters = vec![Counters {
            service: "web".to_owned(),
            samples: samples.collect(),
            silent: vec![(3, Duration::from_millis(1500))],
        }];
        send_reply(&one, 5, &Reply::Handshakes(counters.clone())).unwrap();
        send_reply(&one, 6, &Reply::Numbers(1, 2)).unwrap();
        let message = other.receive().unwrap().unwrap();
        assert_eq!(message.bytes, BINARY);
        let (number, reply) = open_reply(message).unwrap();
        assert!(matches!(reply, Reply::Handshakes(same) if same == counters && number == 5));
        let (number, reply) = open_reply(other.receive().unwrap().unwrap()).unwrap();
        assert!(matches!((number, reply), (6, Reply::Numbers(1, 2))));
        // The privileged process does not read this format.
        send_reply(&one, 7, &Reply::Handshakes(counters)).unwrap();
        assert!(open::<Request>(other.receive().unwrap().unwrap()).is_err());
        let short = sealed_file("short", b"\x01").unwrap();
        one.send(BINARY, &[short.as_fd()]).unwrap();
        assert!(open_reply(other.receive().unwrap().unwrap()).is_err());
        one.send(BINARY, &[]).unwrap();
        assert!(open_reply(other.receive().unwrap().unwrap()).is_err());
    }
}
