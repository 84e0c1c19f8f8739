//! Defines, sends and reads the messages between the daemon and the engine process.
//!
//! Messages are JSON in packets on a SOCK_SEQPACKET socket; long messages are in an attached file. A new release may
//! add requests, but must not change the meaning of an existing one.
//!
//! Replies with one record for each server are binary (postcard): the daemon requests them several times per second,
//! and encoding a hundred thousand servers as JSON takes longer than reading their counters. Both ends are the same
//! program.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use weir_engine::snapshot::{Layer4Snapshot, ServiceStatus};
use weir_engine::{AdjustedWeights, Explanation, Origin};
use weir_health::Sample;
use weir_ipvsadm::{Connection, Edit, EditError, Listing, Timeouts};
use weir_state::{OverrideRecord, SavedServers, StateCopy};
use weir_sys::{Channel, Message, sealed_file};

use crate::Error;

/// Version of the message format.
const VERSION: u32 = 1;
/// The message number of [`Reply::Started`], which is not a reply to a request.
pub(crate) const UNREQUESTED: u64 = u64::MAX;
/// Maximum size of a message without an attached file, in bytes.
const MAX_INLINE_BYTES: usize = 32 << 10;
/// Maximum size of a message, in bytes; enough for a snapshot of a million servers.
const MAX_BYTES: u64 = 1 << 30;
/// The content of a packet if the message is in the first attached file.
const ATTACHED: &[u8] = b"attached";
/// The content of a packet if a binary reply is in the first attached file.
const BINARY: &[u8] = b"binary";

/// A server that a server list or the API adds to a pool, or that is in a different version of the group's
/// configuration.
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
    /// The upper connection threshold; 0 = none.
    pub max_connections: u32,
    /// The lower connection threshold.
    pub min_connections: u32,
    /// Names of `[check.NAME]`; `None` = the pool's checks.
    pub checks: Option<Vec<String>>,
    /// For a server in a different version, `weir_model::OtherVersion::replaces`; `None` = the server is added to the
    /// pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces_second_hop: Option<bool>,
}

/// A request from the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// First half of opening the engine. The text of the configuration is attached. [`Request::Finish`] or
    /// [`Request::Cancel`] follows.
    Begin {
        /// Servers from server lists.
        added: Vec<AddedServer>,
        /// See [`Request::Apply`].
        #[serde(default)]
        address_digest: Option<u64>,
    },
    /// Second half of opening the engine.
    Finish {
        /// The complete server states.
        states: StateCopy,
    },
    /// Restore the previous state, instead of the second half of opening.
    Cancel,
    /// Start reading the configuration file, because the daemon is loading it.
    Prepare,
    /// Apply a configuration; its text is attached if it differs from the last one.
    Apply {
        /// Servers from server lists.
        added: Vec<AddedServer>,
        /// Changes to the state of servers.
        states: StateCopy,
        /// `weir_helper::address_digest`; `None` = the text has no environment variables. Both processes must have the
        /// same values for the variables.
        #[serde(default)]
        address_digest: Option<u64>,
    },
    /// Apply the weights of these pools.
    Weights {
        /// The pools.
        pools: Vec<String>,
        /// Changes to the state of servers.
        states: StateCopy,
    },
    /// Add an override to the copy that Weir 0.1.0 reads.
    CopyOverride {
        /// The override.
        record: OverrideRecord,
    },
    /// Execute ipvsadm edits that a client has requested ([`crate::permit_edits`]).
    Edit {
        /// In execution order.
        edits: Vec<Edit>,
    },
    /// Execute a query.
    Read(Query),
    /// Forward the packets of a probe along a service's path.
    AddProbe {
        /// Identifies the probe's packets.
        id: ProbeId,
        /// The path, which must be that of a configured service and server.
        #[serde(rename = "way")]
        forwarding: ProbeForwarding,
    },
    /// Stop forwarding the packets of a probe.
    RemoveProbe(ProbeId),
    /// Check whether the server of a probe responds to ARP requests for the VIP.
    ClaimsVip(ProbeId),
    /// Make no changes without a request, because the daemon's successor is opening its own engine. Flows are still
    /// synchronized until the successor takes over.
    Pause,
    /// Continue, because the successor has failed.
    Resume,
    /// Drop the engine, because a successor has taken over. The data plane stays in the kernel.
    Close,
    /// Check whether the data plane still belongs to this engine.
    IsCurrent,
    /// Transfer counters to a program that has replaced the maps.
    TransferCounts,
    /// Detach programs that the successor does not detach.
    DetachTc,
}

/// Selects what [`Request::Read`] reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Query {
    /// State of the active configuration.
    Active,
    /// The status.
    Snapshot,
    /// Only the services of the status; the reply is a snapshot without its other parts.
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
    /// Number of current flows of a service, or of one of its servers.
    LiveFlows {
        /// The service.
        service: String,
        /// The server.
        server: Option<String>,
    },
    /// Numbers of connections to a server: open connections, and closed connections that have not expired.
    ConnectionsOf {
        /// The pool.
        pool: String,
        /// The server.
        server: String,
    },
    /// Handshake counters for passive checks.
    Handshakes,
    /// Counters of responses within `max_latency`, and weights that follow the latency.
    Latencies,
    /// Status of flow synchronization.
    Sync,
    /// Results of a probe along a service's path.
    Probe(ProbeId),
}

/// Identifies the packets of a probe along a service's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbeId {
    /// Source address, which must be an address of this machine.
    pub local: IpAddr,
    /// Source port.
    pub port: u16,
    /// IP protocol number.
    pub protocol: u8,
}

/// The forwarding path of a probe's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbeForwarding {
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
    /// DSCP for `l3dsr`.
    pub dscp: u8,
    /// Tunnel port.
    pub tunnel_port: u16,
}

/// The programs' observations of a probe's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeResult {
    /// Number of packets sent.
    pub sent: u32,
    /// Number of replies from the VIP.
    pub answered: u32,
    /// Number of replies from the VIP that were sent by a different machine.
    pub stray: u32,
    /// Number of replies from the server's address instead of the VIP.
    pub untranslated: u32,
    /// Type of a received ICMP error.
    pub error_type: u8,
    /// Code of the ICMP error.
    pub error_code: u8,
}

/// Status of `[sync]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncStatus {
    /// Address and port of this director.
    pub listen: String,
    /// Why the address cannot be used.
    pub error: Option<String>,
    /// Whether flows are sent.
    pub sending: bool,
    /// Whether flows from peers are inserted.
    pub receiving: bool,
    /// The other directors, in file order.
    pub peers: Vec<SyncPeerStatus>,
    /// Number of records from peers by result; results that never occurred are omitted.
    pub records: BTreeMap<String, u64>,
    /// Number of datagrams from unknown addresses.
    pub unknown_senders: u64,
    /// Number of changes that were overwritten before they were read.
    pub overwritten: u64,
    /// Number of this director's proxied connections that the peers know about.
    #[serde(default)]
    pub proxied_connections: u64,
    /// Number of proxied connections that are not sent because there are more than 65,536.
    #[serde(default)]
    pub excess_connections: u64,
    /// Number of segments sent after takeovers so that clients of other directors' proxies get a reset.
    #[serde(default)]
    pub reset_prompts: u64,
    /// Whether some flows that a change to `maglev` tables affects have not been sent to every peer yet.
    #[serde(default)]
    pub moving: bool,
    /// Whether this director has not received all flows from its peers yet.
    #[serde(default)]
    pub joining: bool,
    /// The text of `ipvsadm -L --daemon`.
    pub daemons: String,
}

/// Status of a peer in `[sync]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncPeerStatus {
    /// The peer's address and port.
    pub address: String,
    /// `connecting`: the session is less than three seconds old, and the peer has not responded yet. `silent`: the peer
    /// does not respond. `unacknowledged`: the peer sends datagrams, but has acknowledged none for more than three
    /// seconds. `transfer`: this director is sending all flows to the peer. `established`: the peer has all flows.
    pub state: String,
    /// Age of the oldest change that the peer has not acknowledged, in milliseconds; for a silent peer, the time since
    /// its last datagram.
    pub lag_ms: u64,
    /// Number of changes waiting to be sent.
    pub queued: u64,
    /// Number of datagrams that the peer did not receive; their flows were sent again.
    pub lost: u64,
    /// Number of records sent to the peer.
    pub sent: u64,
    /// Number of records received from the peer.
    pub received: u64,
    /// Number of changes dropped because the queue was full; all flows were sent instead.
    pub dropped: u64,
    /// Number of times that all flows were sent.
    pub transfers: u64,
    /// Whether the peer has sent all of its flows.
    pub complete: bool,
    /// Number of connections to the peer's proxy that this director resets when it takes over their VIP.
    #[serde(default)]
    pub proxied_connections: u64,
    /// Number of ignored datagrams, by reason.
    pub ignored: BTreeMap<String, u64>,
}

/// Counters for the servers of a layer 4 service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// The service.
    pub service: String,
    /// The counters, with the server's name.
    pub samples: Vec<(String, Sample)>,
    /// Servers whose replies bypass the director: index in `samples`, and the time since the first unanswered SYN. A
    /// duration, because the clocks of two processes may differ.
    pub silent_for: Vec<(usize, Duration)>,
}

/// State of the active configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActiveState {
    /// Number of configurations that have been applied.
    pub revision: u64,
    /// Addresses that were added, with their interfaces.
    pub added_vips: Vec<(String, IpAddr)>,
    /// Whether packets reach the data plane.
    pub is_attached: bool,
    /// The smallest MTU of the interfaces with the packet path, in bytes; `None` = no interface has it.
    #[serde(default)]
    pub smallest_mtu: Option<u32>,
    /// The changes made with ipvsadm.
    pub origin: Origin,
}

/// A reply from the engine process.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// A new process serves the channel, without an engine. It does not reply to earlier requests.
    Started,
    /// See [`Request::Begin`].
    Begun {
        /// The server states in the state file.
        saved: SavedServers,
    },
    /// The configuration is active; also the reply to [`Query::Active`].
    Active(ActiveState),
    /// The request was executed.
    Done,
    /// The results of edits.
    Edited {
        /// In execution order.
        results: Vec<Result<(), EditError>>,
        /// State of the active configuration.
        active_state: ActiveState,
    },
    /// See [`Request::IsCurrent`].
    Current(bool),
    /// The first services of a snapshot, which the daemon decodes while the next services are read. Another reply
    /// follows.
    Services(Vec<ServiceStatus>),
    /// See [`Query::Snapshot`] and [`Query::Services`]; without the services that were already sent.
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
        /// Numbers of responses: within the limit, and in total.
        counters: Vec<Counters>,
        /// Changed weights.
        adjusted: Vec<AdjustedWeights>,
    },
    /// See [`Query::Sync`]; `None` = there is no `[sync]`.
    Sync(Option<SyncStatus>),
    /// See [`Query::Probe`]; `None` = the probe does not exist.
    Probe(Option<ProbeResult>),
    /// See [`Request::ClaimsVip`].
    Claims(bool),
    /// The engine is not open.
    NotOpen,
    /// The engine's error.
    Failed {
        /// The reason.
        reason: String,
    },
    /// The policy does not permit the request.
    Refused {
        /// The reason.
        reason: String,
    },
}

impl Reply {
    /// Returns whether the reply has a record for each server of each service.
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
/// Fails if the other end is closed, or there is not enough memory.
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
    let bytes = serde_json::to_vec(&envelope).map_err(|error| invalid_message(&error))?;
    if bytes.len() <= MAX_INLINE_BYTES {
        return Ok(channel.send(&bytes, files)?);
    }
    let file = sealed_file("weir-message", &bytes).map_err(|error| invalid_message(&error))?;
    let mut descriptors = vec![file.as_fd()];
    descriptors.extend_from_slice(files);
    Ok(channel.send(ATTACHED, &descriptors)?)
}

/// Sends a reply.
///
/// # Errors
/// See [`send`].
pub(crate) fn send_reply(channel: &Channel, number: u64, reply: &Reply) -> Result<(), Error> {
    if !reply.has_servers() {
        return send(channel, number, reply, &[]);
    }
    let envelope = Envelope {
        version: VERSION,
        number,
        body: reply,
    };
    let bytes =
        postcard::to_extend(&envelope, Vec::new()).map_err(|error| invalid_message(&error))?;
    let file = sealed_file("weir-message", &bytes).map_err(|error| invalid_message(&error))?;
    Ok(channel.send(BINARY, &[file.as_fd()])?)
}

/// Reads a received reply: its number and its body.
///
/// # Errors
/// Fails if the message has an unknown format or version.
pub(crate) fn open_reply(message: Message) -> Result<(u64, Reply), Error> {
    if message.bytes != BINARY {
        let (number, reply, _) = open(message)?;
        return Ok((number, reply));
    }
    let file = message.files.into_iter().next();
    let bytes = read_content(file.ok_or_else(|| invalid_message(&"no file"))?)?;
    let envelope: Envelope<Reply> =
        postcard::from_bytes(&bytes).map_err(|error| invalid_message(&error))?;
    if envelope.version != VERSION {
        return Err(invalid_message(&format!(
            "unsupported version {}",
            envelope.version
        )));
    }
    Ok((envelope.number, envelope.body))
}

/// Reads a received message: its number, its body and the files of its sender.
///
/// # Errors
/// Fails if the message has an unknown format or version.
pub(crate) fn open<T: DeserializeOwned>(message: Message) -> Result<(u64, T, Vec<OwnedFd>), Error> {
    let Message { mut bytes, files } = message;
    let mut files = files.into_iter();
    if bytes == ATTACHED {
        let file = files.next().ok_or_else(|| invalid_message(&"no file"))?;
        bytes = read_content(file)?;
    }
    let envelope: Envelope<T> =
        serde_json::from_slice(&bytes).map_err(|error| invalid_message(&error))?;
    if envelope.version != VERSION {
        return Err(invalid_message(&format!(
            "unsupported version {}",
            envelope.version
        )));
    }
    Ok((envelope.number, envelope.body, files.collect()))
}

/// Reads an attached memory file. Rejects other kinds of files, because reading them could block.
///
/// # Errors
/// Fails if the file is not a regular file, or too long.
pub(crate) fn read_content(file: OwnedFd) -> Result<Vec<u8>, Error> {
    let mut file = File::from(file);
    let metadata = file.metadata().map_err(|error| invalid_message(&error))?;
    if !metadata.is_file() || metadata.len() > MAX_BYTES {
        return Err(invalid_message(
            &"the attached file is not a regular file or is too large",
        ));
    }
    file.rewind().map_err(|error| invalid_message(&error))?;
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or(0));
    let read = file.take(MAX_BYTES).read_to_end(&mut bytes);
    read.map_err(|error| invalid_message(&error))?;
    Ok(bytes)
}

fn invalid_message(reason: &dyn std::fmt::Display) -> Error {
    Error::Message {
        reason: reason.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_format_is_stable() {
        let (sender, receiver) = Channel::pair().unwrap();
        let request = Request::Read(Query::LiveFlows {
            service: "web".to_owned(),
            server: None,
        });
        send(&sender, 7, &request, &[]).unwrap();
        let message = receiver.receive().unwrap().unwrap();
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
    fn long_message_is_sent_in_a_file_before_other_files() {
        let (sender, receiver) = Channel::pair().unwrap();
        let request = Request::Read(Query::Explain {
            packet: "x".repeat(MAX_INLINE_BYTES),
        });
        let null = File::open("/dev/null").unwrap();
        send(&sender, 1, &request, &[null.as_fd()]).unwrap();
        let (number, body, files) = open::<Request>(receiver.receive().unwrap().unwrap()).unwrap();
        assert_eq!((number, files.len()), (1, 1));
        assert_eq!(body, request);
        sender.send(ATTACHED, &[null.as_fd()]).unwrap();
        assert!(
            open::<Request>(receiver.receive().unwrap().unwrap()).is_err(),
            "a device"
        );
        sender.send(ATTACHED, &[]).unwrap();
        assert!(
            open::<Request>(receiver.receive().unwrap().unwrap()).is_err(),
            "no file"
        );
    }

    #[test]
    fn replies_with_servers_are_binary_and_keep_every_value() {
        let (sender, receiver) = Channel::pair().unwrap();
        let samples = (0..40_000_u64).map(|index| {
            let sample = Sample {
                syns: index,
                answered: u64::MAX - index,
            };
            (format!("10.0.{}.{}:80", index / 256, index % 256), sample)
        });
        let counters = vec![Counters {
            service: "web".to_owned(),
            samples: samples.collect(),
            silent_for: vec![(3, Duration::from_millis(1500))],
        }];
        send_reply(&sender, 5, &Reply::Handshakes(counters.clone())).unwrap();
        send_reply(&sender, 6, &Reply::Numbers(1, 2)).unwrap();
        let message = receiver.receive().unwrap().unwrap();
        assert_eq!(message.bytes, BINARY);
        let (number, reply) = open_reply(message).unwrap();
        assert!(matches!(reply, Reply::Handshakes(same) if same == counters && number == 5));
        let (number, reply) = open_reply(receiver.receive().unwrap().unwrap()).unwrap();
        assert!(matches!((number, reply), (6, Reply::Numbers(1, 2))));
        // The privileged process does not read this format.
        send_reply(&sender, 7, &Reply::Handshakes(counters)).unwrap();
        assert!(open::<Request>(receiver.receive().unwrap().unwrap()).is_err());
        let short_file = sealed_file("short", b"\x01").unwrap();
        sender.send(BINARY, &[short_file.as_fd()]).unwrap();
        assert!(open_reply(receiver.receive().unwrap().unwrap()).is_err());
        sender.send(BINARY, &[]).unwrap();
        assert!(open_reply(receiver.receive().unwrap().unwrap()).is_err());
    }
}
