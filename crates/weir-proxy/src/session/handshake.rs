//! Handles TLS handshakes with clients, failed TLS handshakes with servers, upgrades to HTTP/2, and the server name in
//! TCP connections.

use weir_http::hello::{self, SniResult};
use weir_model::ProxyProtocol;
use weir_select::Failure;

use super::record::Timer;
use super::state::{Linger, Phase};
use super::{Session, Step};
use crate::context::{Context, HEAD_BUFFER_BYTES};
use crate::h2::SWITCHING;
use crate::slab::Key;
use crate::socket::{Read, Written};
use crate::tls::{ErrorOrigin, Handshake, describe_error};

impl Session {
    /// Continues the TLS handshake with the client, and starts serving the client when the handshake is complete.
    pub(super) fn handshake(&mut self, key: Key, cx: &mut Context) -> Step {
        match self.transport.handshake(&mut self.ready) {
            Handshake::Pending => return Step::Pending,
            Handshake::Failed => {
                self.local.service.counters.of(cx.worker).tls_failed.add(1);
                let service = &self.local.service.name;
                let error = self.transport.error();
                let error_text = error.map(|error| describe_error(error, ErrorOrigin::Client));
                tracing::debug!(service, peer = %self.peer, error = error_text, "TLS handshake with a client failed");
                if error.is_none() {
                    return Step::Close;
                }
                // The client must be able to read the alert.
                self.phase = Phase::Linger(Linger::Flush);
                return Step::Continue;
            }
            Handshake::Done => {
                let counters = self.local.service.counters.of(cx.worker);
                counters.tls_done.add(1);
                counters
                    .tls_resumed
                    .add(u64::from(self.transport.is_resumed()));
            }
        }
        if self.local.service.protocol == ProxyProtocol::Tcp {
            let sni = self.transport.sni().map(str::to_owned);
            return self.connect_by_server_name(key, cx, sni.as_deref());
        }
        if self.transport.protocol() == Some(b"h2") {
            return Step::Http2;
        }
        self.phase = Phase::Head;
        let ms = self.local.service.timeouts.request;
        self.set_deadline(key, cx, ms);
        Step::Continue
    }

    /// Returns whether the client may switch to HTTP/2 without TLS.
    pub(super) fn may_upgrade_to_h2(&self) -> bool {
        self.local.service.http2 && !self.transport.is_secure() && !self.is_stream()
    }

    /// Switches to HTTP/2, with the request as the first stream. `rest` contains the bytes after the request.
    pub(super) fn upgrade_to_h2(&mut self, first: Vec<u8>, rest: &[u8]) -> Step {
        match self.transport.write(SWITCHING) {
            Written::Some(bytes) if bytes == SWITCHING.len() => {
                self.to_server = first.into();
                self.input = rest.to_vec();
                Step::Http2
            }
            // The client has not received earlier responses, and would not receive this one.
            _ => Step::Close,
        }
    }

    /// Returns whether the routes of a TCP service depend on the TLS server name.
    pub(super) fn needs_server_name(&self) -> bool {
        let service = &self.local.service;
        service.protocol == ProxyProtocol::Tcp && service.routes.needs_server_name()
    }

    /// Reads until the client's TLS server name is known, or it is known that there is none. After the timeout, a
    /// client that waits for the server's first bytes is handled like one without a name.
    pub(super) fn peek_sni(&mut self, key: Key, cx: &mut Context) -> Step {
        if !self.ready.readable {
            return Step::Pending;
        }
        let mut scratch = std::mem::take(&mut cx.scratch);
        let read = self
            .transport
            .read(&mut self.ready, &mut scratch[..HEAD_BUFFER_BYTES]);
        if let Read::Some(bytes) = read {
            self.input.extend_from_slice(&scratch[..bytes]);
        }
        cx.scratch = scratch;
        match read {
            Read::Some(_) => {}
            Read::Blocked => return Step::Pending,
            Read::End | Read::Broken => return Step::Close,
        }
        match hello::server_name(&self.input) {
            SniResult::Incomplete => Step::Continue,
            SniResult::Name(name) => self.connect_by_server_name(key, cx, Some(&name)),
            SniResult::NoName => self.connect_by_server_name(key, cx, None),
        }
    }

    /// Connects to the pool for the server name. The bytes that were read are sent first.
    pub(super) fn connect_by_server_name(
        &mut self,
        key: Key,
        cx: &mut Context,
        name: Option<&str>,
    ) -> Step {
        let service = &self.local.service;
        let client = self.peer.ip();
        let pool = service
            .routes
            .pool_for_connection(name, client, &mut cx.random);
        let Some(pool) = pool else {
            return Step::Close;
        };
        self.request.pool = pool;
        self.to_server = std::mem::take(&mut self.input).into();
        let bytes = self.to_server.bytes.len();
        service.counters.of(cx.worker).bytes_in.add(bytes as u64);
        self.count_in(bytes);
        self.stop_timer(Timer::Request);
        self.connect(key, cx)
    }

    /// Handles a failed TLS handshake with a server, including a rejected certificate: the server counts as
    /// unreachable.
    pub(super) fn fail_tls(&mut self, key: Key, cx: &mut Context) -> Step {
        let is_due = cx.may_warn();
        if let Some(upstream) = cx.upstreams.get(self.server)
            && is_due
        {
            let error = upstream.transport.error();
            let service = &self.local.service.name;
            let server = &upstream.target.name;
            match error {
                Some(error) => {
                    let error = describe_error(error, ErrorOrigin::Server);
                    tracing::warn!(service, server, error, "TLS handshake with a server failed");
                }
                None => tracing::warn!(
                    service,
                    server,
                    "a server closed the connection during the TLS handshake"
                ),
            }
        }
        self.fail_server(key, cx, Failure::Connect)
    }
}
