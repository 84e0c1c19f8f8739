//! Compresses the body of a session's response with its encoder, if weir-http selected a coding for it.

use weir_http::{Encoding, ResponseStep};
use weir_model::Compression;

use super::Session;
use crate::context::Context;
use crate::encoder::Encoder;
use crate::plan::Detail;
use crate::plan::Service;

/// Returns a route's compression rules, or the service's rules if the route has no options.
pub(super) fn compression(service: &Service, route: Option<usize>) -> Option<&Compression> {
    let options = route.and_then(|index| service.options.get(index)?.as_deref());
    match options {
        Some(options) => options.compression.as_ref(),
        None => service.compression.as_ref(),
    }
}

impl Session {
    /// Returns the rules and the negotiated coding for compressing the current response.
    pub(super) fn encoding<'a>(&self, service: &'a Service) -> Option<Encoding<'a>> {
        compression(service, self.request.route).map(|rules| Encoding {
            rules,
            negotiated: self.request.negotiated_coding,
        })
    }

    /// Compresses the body that follows the head in `out`. Returns false if compression failed.
    pub(super) fn encode(&mut self, cx: &Context, step: &ResponseStep, out: &mut Vec<u8>) -> bool {
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
            let Ok(encoder) = Encoder::new(coding) else {
                return false;
            };
            self.request.encoder = Some(Box::new(encoder));
            let service = &self.local.service;
            service.detail(cx.worker, Detail::Compressed).add(1);
        }
        let is_last = self.request.exchange.response_done();
        // If the server has sent no more data yet, the output is flushed so that the client receives everything so far.
        let is_server_idle = cx
            .upstreams
            .get(self.server)
            .is_none_or(|upstream| !upstream.ready.readable);
        let Some(encoder) = &mut self.request.encoder else {
            return false;
        };
        let content = (out.len() - step.content_start) as u64;
        let flush = is_server_idle && !is_last && content > 0;
        let result = encoder.write(&out[step.content_start..], flush);
        out.truncate(step.content_start);
        encoder.take(out);
        let service = &self.local.service;
        service.detail(cx.worker, Detail::CompressedIn).add(content);
        let output_bytes = (out.len() - step.content_start) as u64;
        service
            .detail(cx.worker, Detail::CompressedOut)
            .add(output_bytes);
        if is_last {
            return result.is_ok() && self.end_encoding(cx, out);
        }
        result.is_ok()
    }

    /// Appends the end of a compressed body to `out`, if the body is compressed. Returns false if compression failed.
    pub(super) fn end_encoding(&mut self, cx: &Context, out: &mut Vec<u8>) -> bool {
        let Some(encoder) = self.request.encoder.take() else {
            return true;
        };
        let length_before = out.len();
        let is_done = encoder.finish(out).is_ok();
        let service = &self.local.service;
        let counter = service.detail(cx.worker, Detail::CompressedOut);
        counter.add((out.len() - length_before) as u64);
        is_done
    }
}
