//! TLS before a client's first octet, and when a server's does not come about.

use weir_http::hello::{self, Hello};
use weir_model::ProxyProtocol;
use weir_select::Failure;

use super::record::Part;
use super::state::{Linger, Phase};
use super::{Session, Step};
use crate::context::{Context, HEAD_ROOM};
use crate::h2::SWITCHING;
use crate::slab::Key;
use crate::socket::{Read, Written};
use crate::tls::{Handshake, Peer, describe_error};

impl Session {
    /// Goes on with the client's handshake; then its service begins.
    pub(super) fn greet(&mut self, key: Key, cx: &mut Context) -> Step {
        match self.transport.handshake(&mut self.ready) {
            Handshake::Waits => return Step::Pending,
            Handshake::Failed => {
                let service = &self.local.service.name;
                let error = self.transport.error();
                tracing::debug!(service, peer = %self.peer, error = error.map(|it| describe_error(it, Peer::Client)), "no TLS with a client");
                if error.is_none() {
                    return Step::Close;
                }
                // An alert says why; it shall be read.
                self.phase = Phase::Linger(Linger::Flush);
                return Step::Continue;
            }
            Handshake::Done => {}
        }
        if self.local.service.protocol == ProxyProtocol::Tcp {
            let asked = self.transport.asked().map(str::to_owned);
            return self.lead(key, cx, asked.as_deref());
        }
        if self.transport.protocol() == Some(b"h2") {
            return Step::Http2;
        }
        self.phase = Phase::Head;
        let ms = self.local.service.timeouts.request;
        self.wait(key, cx, ms);
        Step::Continue
    }

    /// Whether the client may turn to HTTP/2 without TLS.
    pub(super) fn may_switch(&self) -> bool {
        self.local.service.http2 && !self.transport.is_secure() && !self.is_stream()
    }

    /// To HTTP/2, with the request as its first stream; `rest` came behind it.
    pub(super) fn switch(&mut self, first: Vec<u8>, rest: &[u8]) -> Step {
        match self.transport.write(SWITCHING) {
            Written::Some(octets) if octets == SWITCHING.len() => {
                self.to_server = first.into();
                self.input = rest.to_vec();
                Step::Http2
            }
            // A client that has not taken the answers before this takes none.
            _ => Step::Close,
        }
    }

    /// Whether connections of its service go different ways.
    pub(super) fn is_routed(&self) -> bool {
        let service = &self.local.service;
        service.protocol == ProxyProtocol::Tcp && !service.routes.is_empty()
    }

    /// Reads until it is known which name a client of TLS asks a server for, or that there is none. A client that waits
    /// for the server's first word goes where a nameless one does once its time is over.
    pub(super) fn overhear(&mut self, key: Key, cx: &mut Context) -> Step {
        if !self.ready.readable {
            return Step::Pending;
        }
        let mut scratch = std::mem::take(&mut cx.scratch);
        let found = self
            .transport
            .read(&mut self.ready, &mut scratch[..HEAD_ROOM]);
        if let Read::Some(octets) = found {
            self.input.extend_from_slice(&scratch[..octets]);
        }
        cx.scratch = scratch;
        match found {
            Read::Some(_) => {}
            Read::Blocked => return Step::Pending,
            Read::End | Read::Broken => return Step::Close,
        }
        match hello::server_name(&self.input) {
            Hello::More => Step::Continue,
            Hello::Name(name) => self.lead(key, cx, Some(&name)),
            Hello::Nameless => self.lead(key, cx, None),
        }
    }

    /// To the pool for that name; what was read goes ahead.
    pub(super) fn lead(&mut self, key: Key, cx: &mut Context, name: Option<&str>) -> Step {
        let service = &self.local.service;
        self.request.pool = service.routes.pool_for_server_name(name, &mut cx.random);
        self.to_server = std::mem::take(&mut self.input).into();
        let octets = self.to_server.bytes.len();
        service.counters.of(cx.worker).bytes_in.add(octets as u64);
        self.count_in(octets);
        self.mark(Part::Request);
        self.connect(key, cx)
    }

    /// A server that is not who it should be, or speaks no TLS: as if it had not been reached.
    pub(super) fn mistrust(&mut self, key: Key, cx: &mut Context) -> Step {
        let due = cx.complains();
        if let Some(upstream) = cx.upstreams.get(self.server)
            && due
        {
            let error = upstream.transport.error();
            let service = &self.local.service.name;
            let server = &upstream.target.name;
            match error {
                Some(error) => {
                    let error = describe_error(error, Peer::Server);
                    tracing::warn!(service, server, error, "no TLS with a server");
                }
                None => tracing::warn!(service, server, "a server ended the TLS handshake"),
            }
        }
        self.fail_server(key, cx, Failure::Connect)
    }
}
