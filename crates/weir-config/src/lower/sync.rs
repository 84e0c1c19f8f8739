//! Lowers `[sync]`.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use weir_model::{FlowSync, Secret};

use super::secret;
use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::key::Kind;
use crate::view::{Sink, View, text};

pub(super) fn sync(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Option<FlowSync> {
    let listen = view
        .text(sink, "listen")
        .and_then(|(text, span)| Some((address(sink, text, span)?, span.clone())));
    let peers = peers(sink, view, listen.as_ref());
    let key = secret::from_key(sink, view, "key");
    if let (Some(key), Some((entry, _))) = (&key, view.get("key")) {
        check_key(sink, key, &entry.item.span);
    }
    let (listen, _) = listen?;
    Some(FlowSync {
        listen,
        peers: peers?,
        key: key?,
    })
}

/// Reports a `listen` address that is managed by a virtual router, because it can fail over to another director.
pub(super) fn reject_managed_address(
    sink: &mut Sink<'_>,
    view: &View<'_, '_>,
    sync: Option<&FlowSync>,
    mut managed: impl Iterator<Item = IpAddr>,
) {
    let (Some(sync), Some((entry, _))) = (sync, view.get("listen")) else {
        return;
    };
    let listen = sync.listen.ip();
    if managed.any(|address| address == listen) {
        let message =
            format!("{listen} is managed by a virtual router and fails over between directors");
        sink.push(
            Diagnostic::new(Code::Contradiction, &entry.item.span, message)
                .fix("write an address that only this director has"),
        );
    }
}

/// Reports a `listen` address that this machine does not have.
pub(super) fn report_absent_address(
    sink: &mut Sink<'_>,
    view: &View<'_, '_>,
    sync: Option<&FlowSync>,
) {
    let (Some(sync), Some((entry, _))) = (sync, view.get("listen")) else {
        return;
    };
    let is_absent = |machine: &dyn crate::Machine| machine.has_address(sync.listen) == Some(false);
    if sink.machine.is_some_and(is_absent) {
        let message = format!("{} is not configured on this machine", sync.listen.ip());
        sink.push(
            Diagnostic::new(Code::MissingSyncAddress, &entry.item.span, message)
                .cause("flows are not synchronized until an interface has the address")
                .fix("write an address of this machine; `ip -brief address` lists them"),
        );
    }
}

/// Reports a key that is too short. An empty key was not read, so its length is unknown.
fn check_key(sink: &mut Sink<'_>, key: &Secret, span: &Range<usize>) {
    let length = key.expose().len();
    if (1..FlowSync::MIN_KEY_BYTES).contains(&length) {
        let message = format!(
            "`key` has {length} bytes; it needs at least {}",
            FlowSync::MIN_KEY_BYTES
        );
        sink.push(
            Diagnostic::new(Code::SecretUnavailable, span, message)
                .fix("create one with `openssl rand -base64 32`"),
        );
    }
}

fn peers(
    sink: &mut Sink<'_>,
    view: &View<'_, '_>,
    listen: Option<&(SocketAddr, Range<usize>)>,
) -> Option<Vec<SocketAddr>> {
    let items = view.list(sink, "peers")?;
    if items.is_empty() {
        let span = view
            .get("peers")
            .map_or(0..0, |(entry, _)| entry.item.span.clone());
        sink.push(
            Diagnostic::new(Code::EmptyList, &span, "`peers` is empty")
                .fix("add the other director's `listen` address, or remove [sync]"),
        );
        return None;
    }
    let mut found: Vec<(SocketAddr, Range<usize>)> = Vec::new();
    for item in items {
        let Some((text, span)) = text(sink, item, &Kind::SocketAddress) else {
            continue;
        };
        let Some(peer) = address(sink, text, span) else {
            continue;
        };
        if let Some(diagnostic) = peer_conflict(peer, span, listen, &found) {
            sink.push(diagnostic);
            continue;
        }
        found.push((peer, span.clone()));
    }
    Some(found.into_iter().map(|(peer, _)| peer).collect())
}

fn peer_conflict(
    peer: SocketAddr,
    span: &Range<usize>,
    listen: Option<&(SocketAddr, Range<usize>)>,
    others: &[(SocketAddr, Range<usize>)],
) -> Option<Diagnostic> {
    if let Some((_, first)) = others.iter().find(|(other, _)| *other == peer) {
        let message = format!("the peer {peer} is listed twice");
        return Some(
            Diagnostic::new(Code::DuplicateEntry, span, message)
                .related(first, "first here")
                .fix("remove it"),
        );
    }
    let (listen, listen_span) = listen?;
    let reject = |message: String, fix: &str| {
        let diagnostic = Diagnostic::new(Code::Contradiction, span, message);
        Some(diagnostic.related(listen_span, "this director").fix(fix))
    };
    if *listen == peer {
        return reject(
            format!("the peer {peer} is this director"),
            "write the other director's `listen` address",
        );
    }
    if listen.is_ipv4() != peer.is_ipv4() {
        return reject(
            format!("the peer {peer} has a different address family than `listen`"),
            "use addresses of the same family",
        );
    }
    None
}

fn address(sink: &mut Sink<'_>, text: &str, span: &Range<usize>) -> Option<SocketAddr> {
    let mut reject = |message: String, fix: String| {
        sink.push(Diagnostic::new(Code::BadAddress, span, message).fix(fix));
        None
    };
    let Ok(address) = text.parse::<SocketAddr>() else {
        let fix = match text.parse::<IpAddr>() {
            Ok(IpAddr::V6(bare)) => format!("write \"[{bare}]:8482\""),
            Ok(bare) => format!("write \"{bare}:8482\""),
            Err(_) => "write ADDRESS:PORT, as in \"10.0.0.1:8482\"; host names are not resolved"
                .to_owned(),
        };
        return reject(format!("expected ADDRESS:PORT, found `{text}`"), fix);
    };
    let ip = address.ip();
    if address.port() == 0 {
        return reject(
            "port 0 is not allowed".to_owned(),
            format!("write \"{}\"", SocketAddr::new(ip, 8482)),
        );
    }
    if ip.is_unspecified() || ip.is_multicast() {
        let message = format!("`{ip}` is not the address of a single director");
        return reject(
            message,
            "write an address that only one director has".to_owned(),
        );
    }
    Some(address)
}
