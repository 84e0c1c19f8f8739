//! Handles PROXY protocol headers: reads them from clients that are proxies, and sends them to servers.

use std::net::SocketAddr;

use weir_http::{Preamble, preamble};
use weir_model::ProxyHeader;

use super::{Session, Step};
use crate::context::Context;
use crate::slab::Key;
use crate::socket::{self, Read, Written};

/// Buffer size for a header, in bytes.
const MAX_HEADER_BYTES: usize = 4096 + 16;

impl Session {
    /// Returns whether this client must send a PROXY protocol header.
    pub(super) fn expects_preamble(&self) -> bool {
        let service = &self.local.service;
        let trusted = &service.trusted;
        let is_trusted = || {
            let address = self.peer.ip();
            trusted.iter().any(|network| network.contains(address))
        };
        service.preamble && !self.is_stream() && (trusted.is_empty() || is_trusted())
    }

    /// Reads the header and no byte after it, because a TLS handshake may follow.
    pub(super) fn read_preamble(&mut self, key: Key, cx: &mut Context) -> Step {
        let Some(socket) = self.transport.socket() else {
            return self.start(key, cx);
        };
        let parsed = match socket::peek(socket, &mut cx.scratch[..MAX_HEADER_BYTES]) {
            Read::Some(bytes) => preamble::read(&cx.scratch[..bytes]),
            Read::Blocked => {
                self.ready.readable = false;
                return Step::Pending;
            }
            Read::End | Read::Broken => return Step::Close,
        };
        let preamble = match parsed {
            Ok(Some(preamble)) => preamble,
            // Further bytes cause an event, even if the current ones were not consumed.
            Ok(None) if self.ready.read_closed => return Step::Close,
            Ok(None) => {
                self.ready.readable = false;
                return Step::Pending;
            }
            Err(_) => {
                self.local.service.counters.of(cx.worker).errors.add(1);
                return Step::Close;
            }
        };
        let len = preamble.len();
        if socket::take(socket, &mut cx.scratch[..len]) != Read::Some(len) {
            return Step::Close;
        }
        if let Preamble::Client {
            source,
            destination,
            ..
        } = preamble
        {
            (self.peer, self.client) = (source, source);
            self.destination = Some(destination);
        }
        self.start(key, cx)
    }

    /// Sends the PROXY protocol header to the server, unless it was already sent. Returns false if that failed.
    pub(super) fn write_proxy_header(&mut self, version: ProxyHeader, cx: &mut Context) -> bool {
        let Some(upstream) = cx.upstreams.get_mut(self.server) else {
            return false;
        };
        if upstream.dedicated {
            return true;
        }
        let destination = self
            .destination
            .or_else(|| socket::local_address(self.transport.socket()?))
            .unwrap_or(SocketAddr::new(self.peer.ip(), self.port));
        let mut header = Vec::new();
        preamble::write(version, self.client, destination, &mut header);
        upstream.dedicated = true;
        let Some(socket) = upstream.transport.socket() else {
            return true;
        };
        socket::write(socket, &header) == Written::Some(header.len())
    }
}
