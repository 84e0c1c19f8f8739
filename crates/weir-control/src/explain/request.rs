//! Explains what would happen to an HTTP request, for `weir explain --request`.
//!
//! The explanation uses the active configuration and the current server states. The workers' own code parses the
//! request. Decisions that depend on a worker's state (cursors, random numbers) are described as rules.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use weir_http::head::{self, HeadLimits};
use weir_http::route::{
    self, MAX_RESTARTS, RequestId, RestartedPath, RouteInput, RouteTable, TemplateContext,
    TlsProperties, client_address,
};
use weir_http::{Field, ParseError, RequestPath, mark_untrusted, path};
use weir_model::{
    ConditionKey, Desired, Forwarded, ForwardedPath, Pool, Proxy, ProxyProtocol, RequestPart,
    Route, RouteAction, Source,
};

use super::ExplainResponse;
use crate::status::Report;

/// The client address that is used if the command line does not specify one.
const UNKNOWN_CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// Maximum number of listening addresses to show if no service matches.
const MAX_SHOWN_ADDRESSES: usize = 8;

/// A request as given on the command line: `GET http://host[:port]/path`, and header lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    text: String,
    /// The host and port in the URL, to which the client connects.
    authority: String,
    port: u16,
    /// The request's head in the form that a client sends.
    head: String,
    /// The client's address; [`UNKNOWN_CLIENT`] = unknown.
    client: IpAddr,
    /// See [`Self::for_reader`].
    is_public: bool,
}

/// A request that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The text does not consist of a method and a URL.
    #[error("expected 'GET http://host/path', found {text:?}")]
    Form {
        /// The argument.
        text: String,
    },
    /// A header does not have the form `Name: value`.
    #[error("expected 'Name: value', found {text:?}")]
    Header {
        /// The argument.
        text: String,
    },
}

impl Request {
    /// Parses a method and a URL, and header lines of the form `Name: value`.
    ///
    /// # Errors
    /// Fails if the text or a header is malformed.
    pub fn parse(text: &str, headers: &[String]) -> Result<Self, RequestError> {
        let form = || RequestError::Form {
            text: text.to_owned(),
        };
        let (method, url) = text.split_once(' ').ok_or_else(form)?;
        let (default_port, rest) = match (url.strip_prefix("http://"), url.strip_prefix("https://"))
        {
            (Some(rest), _) => (80, rest),
            (None, Some(rest)) => (443, rest),
            (None, None) => return Err(form()),
        };
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let port = match authority.rsplit_once(':') {
            Some((_, digits)) if !digits.contains(']') => digits.parse().map_err(|_| form())?,
            _ => default_port,
        };
        if method.is_empty() || authority.is_empty() || text.contains(['\r', '\n']) {
            return Err(form());
        }
        let slash = if path.starts_with('/') { "" } else { "/" };
        let is_host = |line: &String| {
            let name = line.split_once(':').map(|(name, _)| name);
            name.is_some_and(|name| name.eq_ignore_ascii_case("host"))
        };
        let mut head = format!("{method} {slash}{path} HTTP/1.1\r\n");
        // As in curl, a `Host` header replaces the host of the URL.
        if !headers.iter().any(is_host) {
            head.push_str(&format!("Host: {authority}\r\n"));
        }
        for line in headers {
            if !line.contains(':') || line.contains(['\r', '\n']) {
                return Err(RequestError::Header { text: line.clone() });
            }
            head.push_str(line);
            head.push_str("\r\n");
        }
        head.push_str("\r\n");
        Ok(Self {
            text: text.to_owned(),
            authority: authority.to_owned(),
            port,
            head,
            client: UNKNOWN_CLIENT,
            is_public: false,
        })
    }

    /// Sets the client address; `None` = unknown.
    #[must_use]
    pub fn from_client(self, address: Option<IpAddr>) -> Self {
        Self {
            client: address.unwrap_or(UNKNOWN_CLIENT),
            ..self
        }
    }

    /// Restricts the explanation for a caller with the read role: condition values that can be secret are not shown.
    #[must_use]
    pub(crate) fn for_reader(self) -> Self {
        Self {
            is_public: true,
            ..self
        }
    }

    /// Explains the request. `report` contains the server states; `None` = the daemon does not use this configuration.
    pub fn explain(
        &self,
        desired: &Desired,
        report: Option<&Report>,
        file: &Path,
    ) -> ExplainResponse {
        let mut explanation = ExplainResponse {
            packet: self.text.clone(),
            ..ExplainResponse::default()
        };
        let Some(proxy) = self.service(desired, &mut explanation.steps) else {
            explanation.outcome = Some(self.describe_no_service(desired));
            return explanation;
        };
        explanation.service = Some(proxy.name.clone());
        let main = file.display().to_string();
        let file = desired.file_name(proxy.source, &main);
        explanation.at = Some(format!("{file}:{}", proxy.source.line));
        let limits = HeadLimits::from(proxy);
        let head = self.head.as_bytes();
        let mut fields = Vec::new();
        let request = match head::parse_request(head, &limits, &mut fields) {
            Ok(Some(request)) => request,
            Ok(None) => return explanation,
            Err(refusal) => return rejected(explanation, &refusal),
        };
        mark_untrusted_fields(proxy, head, &mut fields);
        let mut buffer = Vec::new();
        let path = request.path_in(head);
        let target = match compared_path(proxy, path, &mut buffer, &mut explanation.steps) {
            Ok(target) => target,
            Err(refusal) => return rejected(explanation, &refusal),
        };
        let input = RouteInput {
            client: self.client_of(proxy, head, &fields),
            target: &target,
            head,
            request: &request,
            fields: &fields,
            tls: TlsProperties::default(),
            secure: proxy.tls.is_some()
                || !proxy.trusted.is_empty() && self.text.contains(" https://"),
        };
        let name = |source| desired.file_name(source, &main);
        let mut new_path = Vec::new();
        let chosen = self.choose(proxy, &input, &name, &mut new_path, &mut explanation);
        let chosen = match chosen {
            Ok(chosen) => chosen,
            Err(refusal) => return rejected(explanation, &refusal),
        };
        let target = match chosen.restarted {
            Some(found) => found.target(target, &new_path),
            None => target,
        };
        let chosen = chosen.route;
        let context = TemplateContext {
            route_input: RouteInput {
                target: &target,
                ..input
            },
            client: SocketAddr::new(input.client, 0),
            port: self.port,
            default_host: b"",
            request_id: RequestId::Generated(0),
            server: None,
            pool: "",
            route: chosen.map(|index| &proxy.routes[index]),
            regex: None,
        };
        show_limits(proxy, chosen, &mut explanation.steps);
        show_preferred_server(proxy, chosen, &mut explanation.steps);
        if let Some(index) = chosen {
            show_rewritten_path(&proxy.routes[index], &context, &mut explanation.steps);
        }
        explain_action(proxy, chosen, &context, desired, report, &mut explanation);
        explanation
    }

    /// Returns the client's address. Uses the address in the header field of a trusted proxy if the request could come
    /// from such a proxy.
    fn client_of(&self, proxy: &Proxy, head: &[u8], fields: &[Field]) -> IpAddr {
        let is_unknown = self.client == UNKNOWN_CLIENT;
        let mut trusted = proxy.trusted.iter();
        let sent = proxy
            .client_ip_header
            .as_ref()
            .filter(|_| is_unknown || trusted.any(|network| network.contains(self.client)))
            .and_then(|name| client_address(head, fields, name, proxy.client_ip_skipped()));
        sent.unwrap_or(self.client)
    }

    /// Chooses a route. If a route with `restart` rewrites the path, chooses again for the new path. `path` is a buffer
    /// for the last path.
    fn choose<'a>(
        &self,
        proxy: &Proxy,
        route_input: &RouteInput<'_>,
        name: &dyn Fn(Source) -> &'a str,
        path: &mut Vec<u8>,
        explanation: &mut ExplainResponse,
    ) -> Result<ChosenRoute, ParseError> {
        let route = self.examine(proxy, route_input, name, &mut explanation.steps);
        let restarted = restart_routing(proxy, route_input, path, &mut explanation.steps)?;
        let Some(found) = restarted else {
            let restarted = None;
            return Ok(ChosenRoute { route, restarted });
        };
        let target = found.target(*route_input.target, path);
        let route = match target == *route_input.target {
            true => route,
            false => {
                let route_input = RouteInput {
                    target: &target,
                    ..*route_input
                };
                self.examine(proxy, &route_input, name, &mut explanation.steps)
            }
        };
        Ok(ChosenRoute { route, restarted })
    }

    /// For each route, shows whether it matches. If it does not, shows the value that its condition requires and the
    /// value in the request. Returns the position of the first matching route.
    fn examine<'a>(
        &self,
        proxy: &Proxy,
        route_input: &RouteInput<'_>,
        name: &dyn Fn(Source) -> &'a str,
        steps: &mut Vec<String>,
    ) -> Option<usize> {
        let mut first = None;
        let routes = proxy.routes.iter().enumerate();
        for (index, route) in routes.skip(route_input.target.first_route()) {
            let unmet = route::first_unmet_condition(route, route_input, route_input.host());
            let unknown = |key: ConditionKey| match key.part() {
                RequestPart::Head => None,
                RequestPart::Client if route_input.client != UNKNOWN_CLIENT => None,
                RequestPart::Client => Some("the client address (`--client ADDRESS`)"),
                RequestPart::TlsConnection => Some("the TLS connection"),
            };
            let by_unknown = route.conditions().find_map(|conditions| {
                let mut keys = ConditionKey::ALL
                    .into_iter()
                    .filter(|key| conditions.has(*key));
                keys.find_map(unknown)
            });
            let result = match (unmet, by_unknown) {
                (Some((key, negated)), _) if unknown(key).is_none() => {
                    let conditions = match negated {
                        true => route.not.as_deref(),
                        false => Some(&route.when),
                    };
                    let required = conditions
                        .map(|conditions| conditions.format_alternatives(key, self.is_public));
                    let required = required.unwrap_or_default();
                    let not = if negated { "not." } else { "" };
                    let actual = route::compared_value(key, conditions, route_input);
                    let key = key.as_str();
                    format!("does not match: {not}{key} is {required}, the request has {actual}")
                }
                (_, Some(unknown_part)) => {
                    format!("is skipped: it matches on {unknown_part}, which is unknown")
                }
                (None, None) if first.is_some() => {
                    "would match, but an earlier route does".to_owned()
                }
                (None, None) => "matches".to_owned(),
                (Some((key, _)), None) => format!("does not match: {}", key.as_str()),
            };
            let line = route.source.line;
            let file = name(route.source);
            let route_text = match self.is_public {
                true => format!("{route:#}"),
                false => route.to_string(),
            };
            steps.push(format!("route {file}:{line} ({route_text}) {result}"));
            if unmet.is_none() && by_unknown.is_none() && first.is_none() {
                first = Some(index);
            }
        }
        first
    }

    /// Returns why no service receives the request, and the addresses that accept requests.
    fn describe_no_service(&self, desired: &Desired) -> String {
        let http = desired.proxies.iter();
        let http = http.filter(|proxy| proxy.protocol == ProxyProtocol::Http);
        let listening: BTreeSet<SocketAddr> = http
            .flat_map(|proxy| proxy.listen.iter().copied())
            .collect();
        let mut text = match self.address() {
            Some(address) => {
                let address = SocketAddr::new(address, self.port);
                format!("no http service listens on {address}")
            }
            None => format!("no http service listens on port {}", self.port),
        };
        if !listening.is_empty() {
            let shown_addresses = listening.iter().take(MAX_SHOWN_ADDRESSES);
            let shown_addresses: Vec<String> = shown_addresses.map(ToString::to_string).collect();
            text += &format!("; http services listen on {}", shown_addresses.join(", "));
            if listening.len() > MAX_SHOWN_ADDRESSES {
                text += ", …";
            }
        }
        text
    }

    /// Returns the IP address in the URL; `None` = the URL contains a name.
    fn address(&self) -> Option<IpAddr> {
        let socket = self
            .authority
            .parse()
            .map(|address: SocketAddr| address.ip());
        let bare = self.authority.trim_matches(['[', ']']);
        socket.or_else(|_| bare.parse()).ok()
    }

    /// Returns the service that listens on the URL's address, or on all addresses of that port. If the URL contains a
    /// name, the address is unknown, so the first service on the port is returned.
    fn service<'a>(&self, desired: &'a Desired, steps: &mut Vec<String>) -> Option<&'a Proxy> {
        let http = desired.proxies.iter();
        let http = http.filter(|proxy| proxy.protocol == ProxyProtocol::Http);
        let has_port =
            |proxy: &&Proxy| proxy.listen.iter().any(|listen| listen.port() == self.port);
        let proxies: Vec<&Proxy> = http.filter(has_port).collect();
        let find = |address: IpAddr| {
            let listen = SocketAddr::new(address, self.port);
            proxies.iter().find(|proxy| proxy.listen.contains(&listen))
        };
        let address = self.address();
        let proxy = match address {
            // A listener on [::] does not accept IPv4 connections: the proxy's sockets have IPV6_V6ONLY.
            Some(address) => {
                let all_addresses = match address {
                    IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                    IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
                };
                find(address).or_else(|| find(all_addresses))
            }
            None => proxies.first(),
        }?;
        let listen: Vec<String> = proxy
            .listen
            .iter()
            .map(|address| format!("tcp/{address}"))
            .collect();
        steps.push(format!(
            "service {} listens on {}",
            proxy.name,
            listen.join(" ")
        ));
        if proxies.len() > 1 && address.is_none() {
            steps.push(format!(
                "{} services listen on port {}; the destination address selects one",
                proxies.len(),
                self.port
            ));
        }
        Some(proxy)
    }
}

/// Marks the fields that keys and conditions must ignore. If `trusted` is empty, no client is trusted; otherwise the
/// client is assumed to be one of the trusted proxies.
fn mark_untrusted_fields(proxy: &Proxy, head: &[u8], fields: &mut [Field]) {
    let removes_others = proxy.forwarded != Forwarded::Off && proxy.trusted.is_empty();
    mark_untrusted(head, fields, Some(&proxy.x_forwarded), removes_others);
}

/// Explains what the route at position `chosen` does, or what the service does if no route matches.
fn explain_action(
    proxy: &Proxy,
    chosen: Option<usize>,
    template_context: &TemplateContext<'_>,
    desired: &Desired,
    report: Option<&Report>,
    explanation: &mut ExplainResponse,
) {
    match chosen.map(|index| &proxy.routes[index].action) {
        Some(RouteAction::Redirect { to, status }) => {
            let to = route::location(to, template_context);
            explanation.outcome = Some(format!(
                "redirect {status} to {}",
                String::from_utf8_lossy(&to)
            ));
        }
        Some(RouteAction::Respond { status, .. }) => {
            explanation.outcome = Some(format!("response {status} from the route"));
        }
        Some(RouteAction::Mapped(map)) => {
            let key = route::map_key(map, template_context);
            let (key, value) = (String::from_utf8_lossy(&key), map.value(&key));
            explanation
                .steps
                .push(format!("map {} has \"{value}\" for \"{key}\"", map.name));
            let pool = if value.is_empty() { &proxy.pool } else { value };
            show_servers(desired.pool(pool), proxy, report, explanation);
        }
        Some(RouteAction::Files(files)) if files.pool.is_some() => {
            explanation.outcome = Some(format!("{files}: a file, or a server in the pool"));
        }
        Some(RouteAction::Files(files)) => {
            let status = files.missing_status;
            explanation.outcome = Some(format!("{files}: a file, or response {status}"));
        }
        Some(RouteAction::Close) => {
            explanation.outcome = Some("the connection is closed without a response".to_owned());
        }
        Some(RouteAction::Restart(_)) => {
            explanation.outcome = Some(format!(
                "response 500: the path was rewritten {MAX_RESTARTS} times, or a `rewrite` does not change it"
            ));
        }
        Some(RouteAction::Split(split)) => {
            for (pool, weight) in &split.parts {
                explanation
                    .steps
                    .push(format!("pool {pool} has weight {weight}"));
            }
            explanation.outcome = Some(match &split.by {
                Some(by) => format!("one of these pools, by the hash of \"{by}\""),
                None => "one of these pools, at random by weight".to_owned(),
            });
        }
        Some(RouteAction::Pool(pool)) => {
            show_servers(desired.pool(pool), proxy, report, explanation)
        }
        None => show_servers(desired.pool(&proxy.pool), proxy, report, explanation),
    }
}

/// The position of a request's route, and the path that routes with `restart` produced.
struct ChosenRoute {
    route: Option<usize>,
    restarted: Option<RestartedPath>,
}

/// Returns the explanation for a request that is rejected before a route is chosen.
fn rejected(mut explanation: ExplainResponse, refusal: &ParseError) -> ExplainResponse {
    explanation.outcome = Some(format!("response {}: {refusal}", refusal.request_status()));
    explanation
}

/// Returns the path that routes are matched against. Shows both the received and the normalized path if they differ.
fn compared_path<'a>(
    proxy: &Proxy,
    received: &'a [u8],
    buffer: &'a mut Vec<u8>,
    steps: &mut Vec<String>,
) -> Result<RequestPath<'a>, ParseError> {
    let Some(rules) = &proxy.normalize_path else {
        return Ok(RequestPath::as_received(received));
    };
    let target = path::normalize(received, rules, buffer)?;
    if target.is_changed() {
        let without_query = RequestPath::as_received(received).path();
        steps.push(format!(
            "path received: {}",
            String::from_utf8_lossy(without_query)
        ));
        let forwarded = match is_forwarded_normal(proxy) {
            true => "normalized",
            false => "received, unless a route rewrites it",
        };
        steps.push(format!(
            "path normalized: {}, used to match routes; the path is forwarded as {forwarded}",
            String::from_utf8_lossy(target.path())
        ));
    }
    Ok(target)
}

/// Returns the path after all routes with `restart` have rewritten it; `None` = no route has `restart`. Shows each new
/// path.
fn restart_routing(
    proxy: &Proxy,
    route_input: &RouteInput<'_>,
    buffer: &mut Vec<u8>,
    steps: &mut Vec<String>,
) -> Result<Option<RestartedPath>, ParseError> {
    let table = RouteTable::new(proxy.routes.clone());
    if !table.has_restarts() {
        return Ok(None);
    }
    let found = table.apply_restarts(
        route_input,
        proxy.normalize_path.as_ref(),
        buffer,
        |index, path| {
            let line = proxy.routes.get(index).map_or(0, |route| route.source.line);
            let path = String::from_utf8_lossy(path);
            steps.push(format!("route at line {line} rewrites the path to {path}"));
        },
    )?;
    Ok(Some(found))
}

fn is_forwarded_normal(proxy: &Proxy) -> bool {
    let rules = proxy.normalize_path;
    rules.is_some_and(|rules| rules.forward == ForwardedPath::Normalized)
}

/// Shows the authentication, limits and mirrors that apply to the request.
fn show_limits(proxy: &Proxy, chosen: Option<usize>, steps: &mut Vec<String>) {
    let route = chosen.and_then(|index| proxy.routes.get(index));
    let options = route.and_then(|route| route.options.as_deref());
    let route_auth = options.and_then(|options| options.basic_auth.as_ref());
    let auth = match route_auth {
        Some(route_auth) => route_auth.as_ref(),
        None => proxy.basic_auth.as_ref(),
    };
    if let Some(auth) = auth {
        steps.push(format!("basic_auth: {auth}; without a valid password: 401"));
    }
    let Some(options) = options else { return };
    if let Some(auth) = &options.forward_auth {
        steps.push(format!(
            "forward_auth: {auth}; 2xx admits the request; 401, 403 and redirects are returned; any other result: 503"
        ));
    }
    let limits = &options.limits;
    if limits.per_minute > 0 {
        let (rate, burst) = (limits.per_minute, limits.burst());
        steps.push(format!(
            "limit per client: {rate} requests per minute, {burst} at once; above the limit: 429"
        ));
    }
    if limits.concurrent > 0 {
        steps.push(format!(
            "limit per client: {} concurrent requests; above the limit: 429",
            limits.concurrent
        ));
    }
    for mirror in &options.mirrors {
        steps.push(format!("copies: {mirror}"));
    }
    if options.max_connections > 0 {
        steps.push(format!(
            "limit for all clients: {} concurrent requests; above the limit: 503",
            options.max_connections
        ));
    }
}

/// Shows the server that the route prefers.
fn show_preferred_server(proxy: &Proxy, chosen: Option<usize>, steps: &mut Vec<String>) {
    let route = chosen.and_then(|index| proxy.routes.get(index));
    let options = route.and_then(|route| route.options.as_deref());
    if let Some(server) = options.and_then(|options| options.server.as_ref()) {
        steps.push(format!("server {server} is used while it is usable"));
    }
}

/// Shows the path that is sent to the server if the route rewrites it.
fn show_rewritten_path(
    route: &Route,
    template_context: &TemplateContext<'_>,
    steps: &mut Vec<String>,
) {
    if let Some(edit) = &route.edits.path {
        steps.push(match route::rewrite_path(edit, template_context) {
            Some(path) => format!(
                "path sent to the server: {}",
                String::from_utf8_lossy(&path)
            ),
            None => "path sent to the server: not changed, because `rewrite.regex` does not match"
                .to_owned(),
        });
    }
}

/// Shows a pool's servers, and the only usable server or how the scheduler chooses one.
fn show_servers(
    pool: Option<&Pool>,
    proxy: &Proxy,
    report: Option<&Report>,
    explanation: &mut ExplainResponse,
) {
    let Some(pool) = pool else { return };
    explanation.pool = Some(pool.name.clone());
    let scheduler = pool
        .scheduler
        .unwrap_or(Proxy::default_scheduler(proxy.protocol));
    let Some(report) = report else {
        let servers = pool.servers.iter();
        let lines = servers.map(|server| format!("{}: weight {}", server.name, server.weight));
        explanation.steps.extend(lines);
        explanation.outcome = Some(format!(
            "scheduler {scheduler} chooses one of the usable servers of pool {}; only the daemon knows their state",
            pool.name
        ));
        return;
    };
    let service = report
        .services
        .iter()
        .find(|service| service.name == proxy.name);
    let mut usable = Vec::new();
    for server in &pool.servers {
        let status = service.and_then(|service| {
            service.servers.iter().find(|status| {
                status.address == server.name
                    && status.pool.as_ref().is_none_or(|name| *name == pool.name)
            })
        });
        let Some(status) = status else { continue };
        let line = format!(
            "{}: {}, weight {}, {} active",
            server.name, status.state, status.effective_weight, status.active_connections
        );
        if status.effective_weight == 0 {
            let reason = match &status.ejected {
                Some(ejected) => format!("ejected: {}", ejected.reason),
                None => status.reason.clone(),
            };
            explanation
                .steps
                .push(format!("{line}: not usable ({reason})"));
        } else {
            explanation.steps.push(line);
            usable.push(&server.name);
        }
    }
    explanation.outcome = Some(match usable.as_slice() {
        [] => format!("pool {} has no usable server: 503", pool.name),
        [only] => {
            explanation.server = Some((*only).clone());
            format!(
                "service {} forwards the request to {only}, the only usable server of pool {}",
                proxy.name, pool.name
            )
        }
        several => format!(
            "scheduler {scheduler} chooses one of {} servers of pool {}",
            several.len(),
            pool.name
        ),
    });
}

#[cfg(test)]
mod tests;
