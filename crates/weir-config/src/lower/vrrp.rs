//! Lowers `[vrrp.NAME]`.

mod track;

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::ops::Range;
use std::time::Duration;

use weir_model::{
    Accept, AcceptedPorts, AddressInterface, Listener, Network, Notify, RouterAnnouncements,
    RouterHmac, RouterHmacMode, RouterKey, VirtualRoute, VirtualRouter, VirtualRule,
};

use crate::address;
use crate::catalog::{VRRP, VRRP_HMAC, VRRP_HMAC_KEY, VRRP_INTERFACE, VRRP_ROUTE, VRRP_RULE};
use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::key::{Kind, Section};
use crate::lower::secret;
use crate::tree::{Entry, Item, Table, Value};
use crate::view::{Sink, View, text, wrong_type};

/// Maximum advertisement interval in version 3: 12 bits, in centiseconds.
const INTERVAL_MAX_V3: Duration = Duration::from_millis(40_950);

/// Maximum number of addresses in an advertisement: the count is one byte (RFC 9568, section 5.2.5).
const MAX_LISTED_ADDRESSES: usize = 255;

/// Maximum length of a version 2 password, in bytes.
const MAX_PASSWORD_BYTES: usize = 8;
/// The main routing table (linux/rtnetlink.h, `RT_TABLE_MAIN`).
const MAIN_TABLE: u32 = 254;

type Entries<'a, 't> = [(&'a Entry<'t>, &'a Table<'t>)];

/// The objects that virtual routers can refer to: the services and pools of the configuration.
pub(super) struct KnownObjects<'a> {
    pub(super) has_layer_4_services: bool,
    pub(super) services: HashSet<&'a str>,
    pub(super) pools: HashSet<&'a str>,
    /// Listeners of all services; an unspecified address includes every address.
    pub(super) listeners: Vec<Listener>,
}

/// Lowers all virtual routers, and reports conflicts between them.
pub(super) fn routers(
    sink: &mut Sink<'_>,
    tables: &Entries<'_, '_>,
    objects: &KnownObjects<'_>,
) -> Vec<VirtualRouter> {
    let mut routers = Vec::new();
    let mut addresses: HashMap<IpAddr, Range<usize>> = HashMap::new();
    let mut ids: HashMap<(Option<String>, u8, bool), Range<usize>> = HashMap::new();
    for (entry, table) in tables {
        let view = View::open(sink, &VRRP, table, &entry.key_span);
        let (router, spans) = router(sink, &view, entry, objects);
        if !is_enabled(sink, &view) {
            continue;
        }
        for (network, span) in router.managed_addresses().zip(&spans) {
            if let Some(first) = addresses.get(&network.address) {
                let message = format!("{} is configured twice in virtual routers", network.address);
                sink.push(
                    Diagnostic::new(Code::DuplicateEntry, span, message)
                        .related(first, "first here")
                        .fix("remove one of them"),
                );
            } else {
                addresses.insert(network.address, span.clone());
            }
        }
        if let Some((id, _)) = view.get("virtual_router_id") {
            let key = (router.interface.clone(), router.router_id, router.is_ipv4());
            let span = id.item.span.clone();
            if let Some(first) = ids.get(&key) {
                let message = format!(
                    "virtual router ID {} is used twice on one interface",
                    router.router_id
                );
                sink.push(
                    Diagnostic::new(Code::DuplicateEntry, &span, message)
                        .related(first, "first here")
                        .fix("use another ID"),
                );
            } else {
                ids.insert(key, span);
            }
        }
        routers.push(router);
    }
    routers
}

/// Returns whether the virtual router is enabled. A disabled router is not part of the model, so another router may
/// have its addresses and its ID.
fn is_enabled(sink: &mut Sink<'_>, view: &View<'_, '_>) -> bool {
    view.flag(sink, "enabled").unwrap_or(true)
}

/// Returns a virtual router and the positions of its addresses.
fn router(
    sink: &mut Sink<'_>,
    view: &View<'_, '_>,
    entry: &Entry<'_>,
    objects: &KnownObjects<'_>,
) -> (VirtualRouter, Vec<Range<usize>>) {
    let interface = view
        .text(sink, "interface")
        .and_then(|(name, span)| super::present::check_interface(sink, name, span))
        .map(str::to_owned);
    let byte_or = |number: Option<u32>, default: u8| optional_byte(number).unwrap_or(default);
    let mut spans = Vec::new();
    let addresses = networks(sink, view, "addresses", &mut spans);
    let address_spans = spans.clone();
    let excluded_addresses = networks(sink, view, "excluded_addresses", &mut spans);
    let other_interfaces = other_interfaces(sink, view, &[&addresses, &excluded_addresses]);
    let router = VirtualRouter {
        name: entry.key.to_string(),
        interface,
        router_id: byte_or(view.integer(sink, "virtual_router_id"), 1),
        priority: byte_or(view.integer(sink, "priority"), 100),
        version: byte_or(view.integer(sink, "version"), 2),
        advert_interval: view
            .duration(sink, "advert_interval")
            .unwrap_or(Duration::from_secs(1)),
        addresses,
        excluded_addresses,
        other_interfaces,
        preempt: view.flag(sink, "preempt").unwrap_or(true),
        preempt_delay: view.duration(sink, "preempt_delay").unwrap_or_default(),
        source: source(sink, view),
        peers: peers(sink, view),
        // 255 is the default.
        unicast_ttl: optional_byte(view.integer(sink, "unicast_ttl")).filter(|it| *it != u8::MAX),
        unicast_min_ttl: optional_byte(view.integer(sink, "unicast_min_ttl")),
        group: view
            .text(sink, "group")
            .and_then(|(name, span)| single_line(sink, name, span)),
        track: track::tracks(sink, view, objects),
        notify: Notify {
            all: command(sink, view, "notify"),
            active: command(sink, view, "notify_master"),
            backup: command(sink, view, "notify_backup"),
            fault: command(sink, view, "notify_fault"),
            stop: command(sink, view, "notify_stop"),
            group: command(sink, view, "notify_group"),
            fifo: line_of_key(sink, view, "notify_fifo"),
            user: line_of_key(sink, view, "notify_user").unwrap_or_else(|| "root".to_owned()),
        },
        start_delay: view.duration(sink, "start_delay").unwrap_or_default(),
        down_adverts: view.integer(sink, "down_adverts").unwrap_or(3),
        pseudo_header: view.choice(sink, "checksum", &["plain", "pseudo-header"], |it| it)
            == Some("pseudo-header"),
        virtual_mac: view.flag(sink, "virtual_mac").unwrap_or(false),
        track_interface: view.flag(sink, "track_interface").unwrap_or(true),
        announcements: announcements(sink, view),
        password: password(sink, view),
        hmac: hmac(sink, view),
        routes: lower_tables(sink, view, "routes", &VRRP_ROUTE, route),
        rules: lower_tables(sink, view, "rules", &VRRP_RULE, rule),
        accept: Accept::All,
    };
    let router = VirtualRouter {
        accept: accept(sink, view, &router, &objects.listeners),
        ..router
    };
    verify(sink, view, entry, &router, &address_spans);
    (router, spans)
}

fn optional_byte(number: Option<u32>) -> Option<u8> {
    number.and_then(|it| u8::try_from(it).ok())
}

/// Returns which packets the active director accepts, derived from `accept` and the listeners of this configuration.
fn accept(
    sink: &mut Sink<'_>,
    view: &View<'_, '_>,
    router: &VirtualRouter,
    listeners: &[Listener],
) -> Accept {
    if view.flag(sink, "accept") != Some(false) {
        return Accept::All;
    }
    let ports = router.managed_addresses().flat_map(|network| {
        // A socket bound to [::] may receive IPv4 packets too.
        let matches = |listener: &&Listener| {
            listener.address == network.address
                || listener.address.is_unspecified()
                    && (listener.address.is_ipv6() || network.address.is_ipv4())
        };
        listeners.iter().filter(matches).map(|listener| {
            let (first, last) = listener.ports.bounds();
            AcceptedPorts {
                address: network.address,
                protocol: listener.protocol.number(),
                first,
                last,
            }
        })
    });
    Accept::Services(ports.collect())
}

fn verify(
    sink: &mut Sink<'_>,
    view: &View<'_, '_>,
    entry: &Entry<'_>,
    router: &VirtualRouter,
    address_spans: &[Range<usize>],
) {
    let span = |name: &str| {
        view.get(name).map_or_else(
            || entry.key_span.clone(),
            |(entry, _)| entry.item.span.clone(),
        )
    };
    if router.accept != Accept::All && router.priority == 255 {
        let message = "the address owner always accepts packets to the addresses";
        let fix = "use a priority below 255, or remove `accept`";
        sink.push(Diagnostic::new(Code::Contradiction, &span("accept"), message).fix(fix));
    }
    let is_enabled = is_enabled(sink, view);
    if is_enabled && view.get("virtual_router_id").is_none() {
        let message = "`virtual_router_id` is missing";
        let fix =
            "add `virtual_router_id = 51`, the same number on all directors, or `enabled = false`";
        sink.push(Diagnostic::new(Code::MissingKey, &entry.key_span, message).fix(fix));
    }
    if is_enabled && view.get("interface").is_none() && view.get("source").is_none() {
        let message = "`interface` and `source` are missing";
        let fix = "add `interface = \"eth0\"`";
        sink.push(Diagnostic::new(Code::MissingKey, &entry.key_span, message).fix(fix));
    }
    let is_ipv4 = router.is_ipv4();
    for (network, span) in router.addresses.iter().zip(address_spans) {
        if network.address.is_ipv4() != is_ipv4 {
            let message = "`addresses` contains IPv4 and IPv6 addresses";
            let fix = "use one virtual router for each family, or `excluded_addresses`";
            sink.push(Diagnostic::new(Code::Contradiction, span, message).fix(fix));
            break;
        }
    }
    verify_source_and_peers(sink, router, &span);
    verify_interval(sink, router, &span("version"), &span("advert_interval"));
    verify_addresses_and_peers(sink, router, &span);
    report_keys_without_effect(sink, view, router);
    if router.password.is_some() && router.version == 3 {
        let message = "version 3 does not support passwords";
        let fix = "use `hmac`, or version = 2";
        sink.push(Diagnostic::new(Code::Contradiction, &span("password"), message).fix(fix));
    }
    if router.password.is_some() && router.hmac.is_some() {
        let message = "`hmac` and `password` are mutually exclusive";
        sink.push(
            Diagnostic::new(Code::Contradiction, &span("password"), message).fix("remove it"),
        );
    }
    if router.virtual_mac && !router.peers.is_empty() {
        let message = "`virtual_mac` and `unicast_peers` are mutually exclusive";
        let fix = "remove one of them";
        sink.push(Diagnostic::new(Code::Contradiction, &span("virtual_mac"), message).fix(fix));
    }
    if !router.preempt && router.priority == 255 {
        let message = "the address owner always preempts";
        let fix = "use a priority below 255, or remove `preempt`";
        sink.push(Diagnostic::new(Code::Contradiction, &span("preempt"), message).fix(fix));
    }
}

/// Checks that `source` and `unicast_peers` have the address family of the virtual router.
fn verify_source_and_peers(
    sink: &mut Sink<'_>,
    router: &VirtualRouter,
    span: &impl Fn(&str) -> Range<usize>,
) {
    let is_ipv4 = router.is_ipv4();
    let others = router.source.iter().chain(&router.peers);
    if others.into_iter().any(|it| it.is_ipv4() != is_ipv4) {
        let key = if router.source.is_some_and(|it| it.is_ipv4() != is_ipv4) {
            "source"
        } else {
            "unicast_peers"
        };
        let message = match (router.addresses.first(), router.source) {
            (Some(_), _) => format!("`{key}` has a different address family than `addresses`"),
            (None, Some(_)) => {
                "`source` and `unicast_peers` have different address families".to_owned()
            }
            (None, None) => "`unicast_peers` contains IPv4 and IPv6 addresses".to_owned(),
        };
        sink.push(Diagnostic::new(Code::Contradiction, &span(key), message));
    }
}

/// Checks the number of addresses, and that `unicast_peers` does not contain `source`.
fn verify_addresses_and_peers(
    sink: &mut Sink<'_>,
    router: &VirtualRouter,
    span: &impl Fn(&str) -> Range<usize>,
) {
    if router.addresses.len() > MAX_LISTED_ADDRESSES {
        let message = format!(
            "too many addresses: {}; an advertisement lists at most {MAX_LISTED_ADDRESSES}",
            router.addresses.len()
        );
        let fix = "move the excess addresses to `excluded_addresses`";
        sink.push(Diagnostic::new(Code::OutOfRange, &span("addresses"), message).fix(fix));
    }
    if router
        .source
        .is_some_and(|source| router.peers.contains(&source))
    {
        let message = "`unicast_peers` contains `source`, the address of this director";
        let fix = "list only the other directors";
        sink.push(Diagnostic::new(Code::Contradiction, &span("unicast_peers"), message).fix(fix));
    }
}

/// Checks that version, address family and interval are compatible.
fn verify_interval(
    sink: &mut Sink<'_>,
    router: &VirtualRouter,
    version_span: &Range<usize>,
    interval_span: &Range<usize>,
) {
    let interval = router.advert_interval;
    if router.version == 2 && !router.is_ipv4() {
        let message = "version 2 does not support IPv6";
        let fix = "write version = 3";
        sink.push(Diagnostic::new(Code::Contradiction, version_span, message).fix(fix));
    } else if router.version == 2 && (interval.subsec_nanos() != 0 || interval.is_zero()) {
        let message = "version 2 only supports intervals of whole seconds";
        let fix = "use whole seconds, or version = 3";
        sink.push(Diagnostic::new(Code::Contradiction, interval_span, message).fix(fix));
    } else if router.version == 3
        && (interval > INTERVAL_MAX_V3 || !interval.as_millis().is_multiple_of(10))
    {
        let message = "version 3 only supports intervals from 10 ms to 40.95 s in steps of 10 ms";
        sink.push(Diagnostic::new(Code::Contradiction, interval_span, message));
    }
}

/// Reports keys that have no effect because of other keys.
fn report_keys_without_effect(sink: &mut Sink<'_>, view: &View<'_, '_>, router: &VirtualRouter) {
    let is_owner = router.priority == 255;
    let causes = [
        (
            "preempt_delay",
            !router.preempt,
            "`preempt_delay` has no effect with `preempt = false`",
        ),
        (
            "preempt_delay",
            is_owner && router.preempt,
            "`preempt_delay` has no effect: the address owner takes over immediately",
        ),
        (
            "unicast_ttl",
            router.peers.is_empty(),
            "`unicast_ttl` has no effect without `unicast_peers`",
        ),
        (
            "unicast_min_ttl",
            router.peers.is_empty(),
            "`unicast_min_ttl` has no effect without `unicast_peers`",
        ),
        (
            "track",
            is_owner
                && router
                    .track
                    .iter()
                    .any(|it| (it.penalty, it.bonus) != (0, 0)),
            "`penalty` and `bonus` have no effect: the priority of the address owner does not change",
        ),
    ];
    for (key, has_no_effect, message) in causes {
        if let (true, Some((entry, _))) = (has_no_effect, view.get(key)) {
            sink.push(Diagnostic::new(Code::NoEffect, &entry.item.span, message));
        }
    }
}

fn networks(
    sink: &mut Sink<'_>,
    view: &View<'_, '_>,
    key: &str,
    spans: &mut Vec<Range<usize>>,
) -> Vec<Network> {
    let mut networks = Vec::new();
    for item in view.list(sink, key).unwrap_or_default() {
        let Some((text, span)) = text(sink, item, &Kind::Network) else {
            continue;
        };
        match address::parse_network(text) {
            Ok(network) if is_unusable(network.address) => {
                let message = format!("`{}` cannot be a virtual address", network.address);
                let fix = "use an address that can be assigned to an interface";
                sink.push(Diagnostic::new(Code::BadAddress, span, message).fix(fix));
            }
            Ok(network) => {
                networks.push(network);
                spans.push(span.clone());
            }
            Err(error) => super::report_error(sink, span, error),
        }
    }
    networks
}

/// Returns whether the address cannot be assigned to an interface.
fn is_unusable(address: IpAddr) -> bool {
    let is_broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    address.is_unspecified() || address.is_multicast() || is_broadcast
}

/// An entry of `other_interfaces`: an interface, and its addresses with their spans.
type OtherInterface = (String, Vec<(IpAddr, Range<usize>)>);

fn other_interface(
    sink: &mut Sink<'_>,
    view: &View<'_, '_>,
    _: &Item<'_>,
) -> Option<OtherInterface> {
    let mut addresses = Vec::new();
    for item in view.list(sink, "addresses").unwrap_or_default() {
        if let Some((text, span)) = text(sink, item, &Kind::Address) {
            let address = address_without_port(sink, text, span);
            addresses.extend(address.map(|address| (address, span.clone())));
        }
    }
    Some((interface_of_key(sink, view)?, addresses))
}

/// Lowers `other_interfaces`. Each address must be one of the virtual router's and be on only one interface.
fn other_interfaces(
    sink: &mut Sink<'_>,
    view: &View<'_, '_>,
    managed: &[&Vec<Network>],
) -> Vec<AddressInterface> {
    let key = "other_interfaces";
    let others = lower_tables(sink, view, key, &VRRP_INTERFACE, other_interface);
    let is_managed = |address: IpAddr| {
        let mut networks = managed.iter().copied().flatten();
        networks.any(|network| network.address == address)
    };
    let mut listed_addresses: Vec<IpAddr> = Vec::new();
    let mut entries = Vec::new();
    for (interface, addresses) in others {
        let mut interface_addresses = Vec::new();
        for (address, span) in addresses {
            if !is_managed(address) {
                let message = format!("{address} is not in `addresses` or `excluded_addresses`");
                let fix = "add it there, with its prefix length";
                sink.push(Diagnostic::new(Code::Contradiction, &span, message).fix(fix));
            } else if listed_addresses.contains(&address) {
                let message = format!("{address} is listed twice");
                sink.push(
                    Diagnostic::new(Code::Contradiction, &span, message)
                        .fix("remove one of the entries"),
                );
            } else {
                listed_addresses.push(address);
                interface_addresses.push(address);
            }
        }
        entries.push(AddressInterface {
            interface,
            addresses: interface_addresses,
        });
    }
    entries
}

fn source(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Option<IpAddr> {
    let (text, span) = view.text(sink, "source")?;
    address_without_port(sink, text, span)
}

fn peers(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Vec<IpAddr> {
    let mut peers = Vec::new();
    for item in view.list(sink, "unicast_peers").unwrap_or_default() {
        if let Some((text, span)) = text(sink, item, &Kind::Address) {
            peers.extend(address_without_port(sink, text, span));
        }
    }
    peers
}

/// Parses an address without a port.
fn address_without_port(sink: &mut Sink<'_>, text: &str, span: &Range<usize>) -> Option<IpAddr> {
    match address::parse_server(text) {
        Ok((address, None)) => return Some(address),
        Ok((address, Some(_))) => {
            let message = format!("a port is not allowed in `{text}`");
            let fix = format!("write \"{address}\"");
            sink.push(Diagnostic::new(Code::BadAddress, span, message).fix(fix));
        }
        Err(error) => super::report_error(sink, span, error),
    }
    None
}

/// Returns a program and its arguments; empty = none.
fn command(sink: &mut Sink<'_>, view: &View<'_, '_>, key: &str) -> Vec<String> {
    let items = view.list(sink, key).unwrap_or_default();
    let words = items.iter().enumerate().filter_map(|(index, item)| {
        let (word, span) = text(sink, item, &Kind::Text)?;
        if index == 0 {
            super::present::check_program(sink, word, span);
        }
        single_line(sink, word, span)
    });
    words.collect()
}

fn single_line(sink: &mut Sink<'_>, text: &str, span: &Range<usize>) -> Option<String> {
    if text.is_empty() || text.chars().any(char::is_control) {
        let message = "this string is empty or contains a control character";
        let fix = "write a string without control characters such as line breaks";
        sink.push(Diagnostic::new(Code::BadText, span, message).fix(fix));
        return None;
    }
    Some(text.to_owned())
}

fn line_of_key(sink: &mut Sink<'_>, view: &View<'_, '_>, key: &str) -> Option<String> {
    let (text, span) = view.text(sink, key)?;
    single_line(sink, text, span)
}

fn announcements(sink: &mut Sink<'_>, view: &View<'_, '_>) -> RouterAnnouncements {
    RouterAnnouncements {
        repeat: view.integer(sink, "garp_repeat").unwrap_or(5),
        second_announcement_delay: view
            .duration(sink, "garp_delay")
            .unwrap_or(Duration::from_secs(5)),
        refresh: view.duration(sink, "garp_refresh").unwrap_or_default(),
        refresh_repeat: view.integer(sink, "garp_refresh_repeat").unwrap_or(1),
    }
}

fn password(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Option<RouterKey> {
    let secret = secret::from_key(sink, view, "password")?;
    let length = secret.expose().len();
    if length > MAX_PASSWORD_BYTES {
        let (entry, _) = view.get("password")?;
        let message = format!("the password has {length} bytes; version 2 allows at most 8");
        let fix = "use its first 8 bytes, as keepalived does";
        sink.push(Diagnostic::new(Code::BadText, &entry.item.span, message).fix(fix));
        return None;
    }
    Some(RouterKey(secret.expose().to_vec()))
}

fn hmac(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Option<RouterHmac> {
    let (entry, kind) = view.get("hmac")?;
    let Value::Table(table) = &entry.item.value else {
        sink.push(wrong_type(&entry.item, kind));
        return None;
    };
    let hmac = View::open(sink, &VRRP_HMAC, table, &entry.item.span);
    let keys = lower_tables(sink, &hmac, "keys", &VRRP_HMAC_KEY, hmac_key);
    let interval = view.duration(sink, "advert_interval");
    let min_window = interval.unwrap_or(Duration::from_secs(1)) * 3;
    let active = hmac.integer(sink, "active");
    let active = active.and_then(|id| u8::try_from(id).ok());
    let active = active.or_else(|| keys.first().map(|(id, _)| *id))?;
    if !keys.iter().any(|(id, _)| *id == active) {
        let message = format!("no key has the ID {active}");
        let span = hmac
            .get("active")
            .map_or(&entry.item.span, |(entry, _)| &entry.item.span);
        sink.push(Diagnostic::new(Code::Contradiction, span, message));
    }
    Some(RouterHmac {
        keys,
        active,
        mode: hmac
            .choice(sink, "mode", &RouterHmacMode::ALL, RouterHmacMode::as_str)
            .unwrap_or(RouterHmacMode::Enforce),
        window: hmac
            .duration(sink, "window")
            .unwrap_or(min_window.max(Duration::from_secs(5))),
    })
}

fn hmac_key(sink: &mut Sink<'_>, view: &View<'_, '_>, item: &Item<'_>) -> Option<(u8, RouterKey)> {
    let id = view.integer(sink, "id")?;
    let secret = secret::from_key(sink, view, "secret")?;
    let bytes = match secret.expose().strip_prefix(b"hex:") {
        Some(digits) => parse_hex(digits),
        None => Some(secret.expose().to_vec()),
    };
    let problem = match bytes.as_ref().map(Vec::len) {
        // The secret was not read.
        _ if secret.expose().is_empty() => None,
        None => {
            Some("the text after `hex:` is not a sequence of hexadecimal digit pairs".to_owned())
        }
        Some(32..=64) => None,
        Some(length) => Some(format!("the key has {length} bytes; it must have 32 to 64")),
    };
    if let Some(message) = problem {
        let fix = "create one: (echo -n hex:; openssl rand -hex 32) > /etc/weir/vrrp.key";
        sink.push(Diagnostic::new(Code::BadText, &item.span, message).fix(fix));
        return None;
    }
    Some((u8::try_from(id).ok()?, RouterKey(bytes?)))
}

fn parse_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let parse_digit = |byte: u8| char::from(byte).to_digit(16);
    let pairs = digits.chunks(2).map(|pair| match *pair {
        [high, low] => u8::try_from(parse_digit(high)? * 16 + parse_digit(low)?).ok(),
        _ => None,
    });
    pairs.collect()
}

/// Lowers the entries of a list of tables.
fn lower_tables<T>(
    sink: &mut Sink<'_>,
    view: &View<'_, '_>,
    key: &str,
    section: &'static Section,
    lower: fn(&mut Sink<'_>, &View<'_, '_>, &Item<'_>) -> Option<T>,
) -> Vec<T> {
    let mut entries = Vec::new();
    for item in view.list(sink, key).unwrap_or_default() {
        match &item.value {
            Value::Table(table) => {
                let view = View::open(sink, section, table, &item.span);
                entries.extend(lower(sink, &view, item));
            }
            _ => sink.push(wrong_type(item, &Kind::Table(section))),
        }
    }
    entries
}

fn network_of_key(sink: &mut Sink<'_>, view: &View<'_, '_>, key: &str) -> Option<Network> {
    let (text, span) = view.text(sink, key)?;
    match address::parse_network(text) {
        Ok(network) => Some(network),
        Err(error) => {
            super::report_error(sink, span, error);
            None
        }
    }
}

fn address_of_key(sink: &mut Sink<'_>, view: &View<'_, '_>, key: &str) -> Option<IpAddr> {
    let (text, span) = view.text(sink, key)?;
    address_without_port(sink, text, span)
}

fn interface_of_key(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Option<String> {
    let (name, span) = view.text(sink, "interface")?;
    super::present::check_interface(sink, name, span).map(str::to_owned)
}

fn route(sink: &mut Sink<'_>, view: &View<'_, '_>, item: &Item<'_>) -> Option<VirtualRoute> {
    let to = network_of_key(sink, view, "to")?;
    let (via, source) = (
        address_of_key(sink, view, "via"),
        address_of_key(sink, view, "source"),
    );
    let is_ipv4 = to.address.is_ipv4();
    if via.iter().chain(&source).any(|it| it.is_ipv4() != is_ipv4) {
        let message = "`via` and `source` must have the same address family as `to`";
        sink.push(Diagnostic::new(Code::Contradiction, &item.span, message));
    }
    Some(VirtualRoute {
        to,
        via,
        interface: interface_of_key(sink, view),
        source,
        table: view.integer(sink, "table").unwrap_or(MAIN_TABLE),
        metric: view.integer(sink, "metric").unwrap_or(0),
    })
}

fn rule(sink: &mut Sink<'_>, view: &View<'_, '_>, item: &Item<'_>) -> Option<VirtualRule> {
    let rule = VirtualRule {
        from: network_of_key(sink, view, "from"),
        to: network_of_key(sink, view, "to"),
        interface: interface_of_key(sink, view),
        mark: view.integer(sink, "mark"),
        table: view.integer(sink, "table")?,
        priority: view.integer(sink, "priority").unwrap_or(16_384),
    };
    let problem = match (&rule.from, &rule.to) {
        (None, None) => Some("a rule needs `from` or `to`, which determine its address family"),
        (Some(from), Some(to)) if from.address.is_ipv4() != to.address.is_ipv4() => {
            Some("`from` and `to` must have the same address family")
        }
        _ => None,
    };
    if let Some(message) = problem {
        sink.push(Diagnostic::new(Code::Contradiction, &item.span, message));
        return None;
    }
    Some(rule)
}
