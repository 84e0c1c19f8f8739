//! Compression of responses.

use weir_http::{Encoding, Step};
use weir_model::Compression;

use super::Session;
use crate::context::Context;
use crate::encoder::Encoder;
use crate::plan::Service;

/// The rules of a route, or of the service.
pub(super) fn compression(service: &Service, route: Option<usize>) -> Option<&Compression> {
    let options = route.and_then(|at| service.options.get(at)?.as_deref());
    match options {
        Some(options) => options.compression.as_ref(),
        None => service.compression.as_ref(),
    }
}

impl Session {
    /// The rules by which the current response may be compressed.
    pub(super) fn encoding<'a>(&self, service: &'a Service) -> Option<Encoding<'a>> {
        compression(service, self.request.route).map(|rules| Encoding {
            rules,
            negotiated: self.request.accepts,
        })
    }

    /// Compresses the body that follows the head in `out`. Returns false if that failed.
    pub(super) fn encode(&mut self, cx: &Context, step: &Step, out: &mut Vec<u8>) -> bool {
        let Some(coding) = self
            .request
            .exchange
            .response_coding()
            .filter(|_| !self.request.exchange.to_head())
        else {
            return true;
        };
        if !self.request.exchange.is_answered() {
            return true;
        }
        if self.request.encoder.is_none() {
            self.request.encoder = Encoder::new(coding).ok().map(Box::new);
        }
        let done = self.request.exchange.response_done();
        // If the server pauses, the client should not wait for more.
        let pauses = cx
            .upstreams
            .get(self.server)
            .is_none_or(|upstream| !upstream.ready.readable);
        let Some(encoder) = &mut self.request.encoder else {
            return false;
        };
        let flushed = pauses && !done && out.len() > step.content;
        let written = encoder.write(&out[step.content..], flushed);
        out.truncate(step.content);
        encoder.take(out);
        if done {
            return written.is_ok() && self.end_encoding(out);
        }
        written.is_ok()
    }

    /// Appends the end of a compressed body, if there is one. Returns false if that failed.
    pub(super) fn end_encoding(&mut self, out: &mut Vec<u8>) -> bool {
        match self.request.encoder.take() {
            Some(encoder) => encoder.finish(out).is_ok(),
            None => true,
        }
    }
}
