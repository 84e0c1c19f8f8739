//! Tests that each changed key results in one edit with both values, without credentials or long texts.

#![expect(clippy::too_many_lines, reason = "tables of keys")]

use std::time::Duration;

use weir_model::*;

fn respond(body: &str) -> RouteAction {
    RouteAction::Respond {
        status: 200,
        body: Template::literal(body),
    }
}

/// A pool with an http check, a server with its own tcp check, a service, a proxy service and the admin address.
fn base() -> Desired {
    let mut pool = Pool::new("p");
    pool.servers = vec![Server::new("10.0.0.5", [10, 0, 0, 5].into(), None)];
    pool.servers[0].checks = Some(vec![Check::new(Probe::Tcp)]);
    pool.sorry = Some(Server::new("10.0.0.9", [10, 0, 0, 9].into(), None));
    pool.checks = vec![Check::new(Probe::Http(Box::default()))];
    pool.checks[0].target.tls = Some(CheckTls::default());
    pool.tls = Some(ServerTls::default());
    pool.sticky = Some(Sticky {
        cookie: "SRV".to_owned(),
        mode: StickyMode::Insert,
        secret: None,
        attributes: None,
        private: false,
    });
    pool.servers_dns = vec![ServersDns::new("web.example")];
    let mut proxy = Proxy::new("www", ProxyProtocol::Http, "p");
    proxy.listen = vec!["192.0.2.1:80".parse().unwrap()];
    proxy.tls = Some(service_tls());
    proxy.compression = Some(Compression {
        codings: vec![Coding::Gzip],
        types: vec!["text/*".to_owned()],
        minimum: 100,
    });
    proxy.access_log = Some(AccessLog::new("/a.log", LogFormat::Json));
    proxy.routes = vec![
        Route::new(RouteAction::Pool("p".to_owned())),
        Route::new(respond("long")),
    ];
    let mut desired = Desired {
        pools: vec![pool],
        services: vec![Service::new("l4", Forward::Direct, "p")],
        proxies: vec![proxy],
        ..Desired::default()
    };
    desired.node.admin = Some(Admin::new("127.0.0.1:900".parse().unwrap()));
    desired
}

fn header(name: &str, value: &str) -> HeaderEdit {
    HeaderEdit {
        name: name.to_owned(),
        value: Template::literal(value),
        statuses: Vec::new(),
        file: None,
    }
}

fn service_tls() -> ServiceTls {
    ServiceTls {
        ticket_keys: Vec::new(),
        certificates: vec!["/certs".to_owned()],
        strict_sni: false,
        sni_host: SniHost::default(),
        minimum: TlsVersion::V12,
        ciphers: Vec::new(),
        groups: Vec::new(),
        client_ca: None,
        client_crl: None,
        client_auth: ClientAuth::Required,
        source: Source::default(),
    }
}

/// A change to the configuration, and the expected line without the name of its table.
type Case = (fn(&mut Desired), &'static str);

/// Asserts that each change to the configuration results in one line, `table: edit`.
fn check(table: &str, cases: &[Case]) {
    let lines = |change: &fn(&mut Desired)| {
        let mut new = base();
        change(&mut new);
        let changes = diff(&base(), &new);
        changes
            .iter()
            .map(|it| format!("{it}\n"))
            .collect::<String>()
    };
    let found: String = cases.iter().map(|(change, _)| lines(change)).collect();
    let expected: String = cases
        .iter()
        .map(|(_, edit)| format!("~ {table}: {edit}\n"))
        .collect();
    assert_eq!(found, expected);
}

fn text(text: &str) -> String {
    text.to_owned()
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn changed_check_keys_are_shown() {
    fn check_of(desired: &mut Desired) -> &mut Check {
        &mut desired.pools[0].checks[0]
    }
    fn http(desired: &mut Desired) -> &mut Http {
        match &mut check_of(desired).probe {
            Probe::Http(http) => http,
            other => panic!("{other:?}"),
        }
    }
    fn tls(desired: &mut Desired) -> &mut CheckTls {
        check_of(desired).target.tls.as_mut().unwrap()
    }
    check(
        "pool p",
        &[
            (
                |it| check_of(it).timing.interval = 5 * SECOND,
                "check.interval 2s -> 5s",
            ),
            (
                |it| check_of(it).timing.interval_falling = Some(SECOND),
                "check.interval_falling none -> 1s",
            ),
            (
                |it| check_of(it).timing.interval_down = Some(SECOND),
                "check.interval_down none -> 1s",
            ),
            (
                |it| check_of(it).timing.interval_rising = Some(SECOND),
                "check.interval_rising none -> 1s",
            ),
            (
                |it| check_of(it).timing.timeout = 3 * SECOND,
                "check.timeout 1s -> 3s",
            ),
            (|it| check_of(it).timing.rise = 7, "check.rise 2 -> 7"),
            (|it| check_of(it).timing.fall = 7, "check.fall 3 -> 7"),
            (
                |it| check_of(it).start = Start::Up,
                "check.start checking -> up",
            ),
            (
                |it| check_of(it).on_failure = OnFailure::Remove,
                "check.on_failure quiesce -> remove",
            ),
            (
                |it| check_of(it).target.port = Some(81),
                "check.port inherited from the server -> 81",
            ),
            (
                |it| check_of(it).target.address = Some([10, 0, 0, 7].into()),
                "check.address inherited from the server -> 10.0.0.7",
            ),
            (
                |it| check_of(it).target.source = Some([10, 0, 0, 8].into()),
                "check.source none -> 10.0.0.8",
            ),
            (
                |it| check_of(it).target.interface = some("eth1"),
                "check.interface none -> eth1",
            ),
            (
                |it| check_of(it).target.via = Via::Both,
                "check.via server -> both",
            ),
            (
                |it| check_of(it).target.proxy_protocol = Some(ProxyHeader::V2),
                "check.proxy_protocol none -> v2",
            ),
            (|it| tls(it).verify = false, "check.verify true -> false"),
            (|it| tls(it).ca = some("/ca"), "check.ca none -> /ca"),
            (
                |it| tls(it).server_name = some("h"),
                "check.server_name none -> h",
            ),
            (|it| http(it).path = text("/up"), "check.path / -> /up"),
            (
                |it| http(it).method = text("HEAD"),
                "check.method GET -> HEAD",
            ),
            (|it| http(it).minor_version = 0, "check.version 1.1 -> 1.0"),
            (|it| http(it).host = some("h"), "check.host none -> h"),
            // If the kind of check changes, the whole check is shown.
            (
                |it| check_of(it).target.tls = None,
                "check https every 2s -> http every 2s",
            ),
            (
                |it| it.pools[0].checks.clear(),
                "check https every 2s -> none",
            ),
            (
                |it| it.pools[0].checks.push(Check::new(Probe::Ping)),
                "check https every 2s -> https every 2s and ping every 2s",
            ),
            (
                |it| {
                    let mut tls = Check::new(Probe::Tcp);
                    tls.target.tls = Some(CheckTls::default());
                    it.pools[0].checks[0] = tls;
                },
                "check https every 2s -> tls every 2s",
            ),
        ],
    );
}

#[test]
fn changed_probe_parameters_are_shown() {
    let line = |old: Probe, new: Probe| {
        let mut before = base();
        before.pools[0].checks = vec![Check::new(Probe::Ping), Check::new(old)];
        let mut after = before.clone();
        after.pools[0].checks[1].probe = new;
        let changes = diff(&before, &after);
        assert!(changes.len() <= 1);
        changes.first().map(ToString::to_string).unwrap_or_default()
    };
    let user = text;
    for (old, new, edit) in [
        (
            Probe::Grpc { service: text("") },
            Probe::Grpc { service: text("s") },
            "check 2 (grpc).service none -> s",
        ),
        (
            Probe::Smtp { helo: text("a") },
            Probe::Smtp { helo: text("b") },
            "check 2 (smtp).helo a -> b",
        ),
        (
            Probe::Mysql { user: user("a") },
            Probe::Mysql { user: user("b") },
            "check 2 (mysql).user a -> b",
        ),
        (
            Probe::Postgres { user: user("a") },
            Probe::Postgres { user: user("b") },
            "check 2 (postgres).user a -> b",
        ),
        (
            Probe::Agent { send: None },
            Probe::Agent {
                send: some("secret"),
            },
            "check 2 (agent).send changed",
        ),
        (
            Probe::File { path: text("/a") },
            Probe::File { path: text("/b") },
            "check 2 (file).file /a -> /b",
        ),
    ] {
        assert_eq!(line(old.clone(), old.clone()), "");
        assert_eq!(line(old, new), format!("~ pool p: {edit}"));
    }
    let dns = |name: &str, record, answer: Option<&str>| Probe::Dns {
        name: text(name),
        record,
        answer: answer.map(|it| it.parse().unwrap()),
    };
    assert_eq!(
        line(
            dns("a", DnsRecord::A, None),
            dns("b", DnsRecord::Aaaa, Some("::1"))
        ),
        "~ pool p: check 2 (dns).query a -> b, check 2 (dns).record A -> AAAA, check 2 (dns).expect.answer none -> ::1"
    );
    let udp = |payload: &[u8], bytes| Probe::Udp {
        payload: payload.to_vec(),
        bytes,
    };
    assert_eq!(
        line(udp(b"a", None), udp(b"b", Some(vec![None]))),
        "~ pool p: check 2 (udp).payload changed, check 2 (udp).expect.bytes changed"
    );
    let script = |command: &[&str], user: &str, dynamic| {
        Probe::Script(Script {
            command: command.iter().map(|it| text(it)).collect(),
            user: text(user),
            dynamic,
        })
    };
    assert_eq!(
        line(
            script(&["/a", "password"], "x", false),
            script(&["/b", "password"], "y", true)
        ),
        "~ pool p: check 2 (script).command /a -> /b, check 2 (script).user x -> y, \
         check 2 (script).dynamic false -> true"
    );
    assert_eq!(
        line(
            script(&["/a", "old"], "x", false),
            script(&["/a", "new"], "x", false)
        ),
        "~ pool p: check 2 (script).command changed"
    );
}

#[test]
fn changed_pool_and_server_keys_are_shown() {
    fn pool(desired: &mut Desired) -> &mut Pool {
        &mut desired.pools[0]
    }
    fn dns(desired: &mut Desired) -> &mut ServersDns {
        &mut pool(desired).servers_dns[0]
    }
    fn sticky(desired: &mut Desired) -> &mut Sticky {
        pool(desired).sticky.as_mut().unwrap()
    }
    fn tls(desired: &mut Desired) -> &mut ServerTls {
        pool(desired).tls.as_mut().unwrap()
    }
    check(
        "pool p",
        &[
            (
                |it| pool(it).no_server = NoServer::Drop,
                "no_server reject -> drop",
            ),
            (
                |it| pool(it).on_remove = OnRemove::Reset,
                "on_remove keep -> reset",
            ),
            (
                |it| pool(it).hash_key = HashKey::Uri,
                "scheduler.key source -> uri",
            ),
            (
                |it| pool(it).queue_timeout = SECOND,
                "queue_timeout 5s -> 1s",
            ),
            (
                |it| pool(it).proxy_protocol = Some(ProxyHeader::V1),
                "proxy_protocol none -> v1",
            ),
            (|it| pool(it).sorry = None, "sorry 10.0.0.9 -> none"),
            (
                |it| pool(it).sorry.as_mut().unwrap().weight = 9,
                "sorry.weight 1 -> 9",
            ),
            (
                |it| pool(it).servers_file = some("/f"),
                "servers_file none -> /f",
            ),
            (
                |it| pool(it).servers_dns = Vec::new(),
                "servers_dns web.example -> none",
            ),
            (
                |it| dns(it).name = text("x"),
                "servers_dns.name web.example -> x",
            ),
            (
                |it| dns(it).record = ServersRecord::Srv,
                "servers_dns.record address -> SRV",
            ),
            (|it| dns(it).port = Some(80), "servers_dns.port none -> 80"),
            (|it| dns(it).weight = 2, "servers_dns.weight 1 -> 2"),
            (
                |it| dns(it).max_connections = 7,
                "servers_dns.max_connections 0 -> 7",
            ),
            (
                |it| dns(it).cookie = Some(text("a")),
                "servers_dns.cookie none -> a",
            ),
            (
                |it| dns(it).backup = true,
                "servers_dns.backup false -> true",
            ),
            (
                |it| {
                    let mut second = dns(it).clone();
                    second.name = text("b");
                    pool(it).servers_dns.push(second);
                },
                "servers_dns web.example -> web.example, b",
            ),
            (
                |it| {
                    dns(it).resolvers =
                        vec!["10.0.0.1:53".parse().unwrap(), "[::1]:53".parse().unwrap()]
                },
                "servers_dns.resolvers none -> 10.0.0.1:53, [::1]:53",
            ),
            (|it| pool(it).sticky = None, "sticky SRV insert -> none"),
            (|it| sticky(it).cookie = text("C"), "sticky.cookie SRV -> C"),
            (
                |it| sticky(it).private = true,
                "sticky.private false -> true",
            ),
            (
                |it| sticky(it).mode = StickyMode::Prefix,
                "sticky.mode insert -> prefix",
            ),
            (
                |it| sticky(it).attributes = some(""),
                "sticky.attributes default -> \"\"",
            ),
            (
                |it| {
                    sticky(it).secret =
                        Some(Secret::new(SecretSource::Env(text("S")), b"value".to_vec()))
                },
                "sticky.secret none -> environment variable S",
            ),
            (
                |it| pool(it).health.require = Require::Any,
                "require all -> any",
            ),
            (
                |it| pool(it).health.slow_start = SECOND,
                "slow_start 0s -> 1s",
            ),
            (|it| pool(it).health.quorum = 3, "quorum 0 -> 3"),
            (
                |it| pool(it).health.quorum_hysteresis = 3,
                "quorum_hysteresis 0 -> 3",
            ),
            (
                |it| pool(it).health.panic_threshold = Some(50),
                "panic_threshold none -> 50",
            ),
            (|it| pool(it).health.max_ejected = 1, "max_ejected 50 -> 1"),
            (
                |it| pool(it).health.max_latency = Some(SECOND),
                "max_latency none -> 1s",
            ),
            (
                |it| pool(it).adapt = weir_model::Adapt::Latency,
                "adapt none -> latency",
            ),
            (
                |it| pool(it).health.notify = vec![text("/n"), text("password")],
                "notify none -> /n",
            ),
            (|it| tls(it).verify = false, "tls.verify true -> false"),
            (|it| tls(it).ca = some("/ca"), "tls.ca none -> /ca"),
            (
                |it| tls(it).server_name = some("h"),
                "tls.server_name none -> h",
            ),
            (
                |it| tls(it).certificate = some("/c"),
                "tls.certificate none -> /c",
            ),
            (
                |it| tls(it).minimum = TlsVersion::V13,
                "tls.minimum 1.2 -> 1.3",
            ),
            (|it| pool(it).tls = None, "tls verified -> none"),
        ],
    );
    check(
        "server p/10.0.0.5",
        &[
            (
                |it| pool(it).servers[0].backup = true,
                "backup false -> true",
            ),
            (
                |it| pool(it).servers[0].cookie = Some("s1".to_owned()),
                "cookie generated -> s1",
            ),
            (
                |it| pool(it).servers[0].min_connections = 3,
                "min_connections 0 -> 3",
            ),
            (
                |it| pool(it).servers[0].forward = Some(Forward::Tunnel),
                "forward inherited from the service -> tunnel",
            ),
            (
                |it| pool(it).servers[0].checks = None,
                "check tcp every 2s -> inherited from the pool",
            ),
            (
                |it| pool(it).servers[0].checks = Some(Vec::new()),
                "check tcp every 2s -> none",
            ),
            (
                |it| pool(it).servers[0].checks.as_mut().unwrap()[0].timing.fall = 9,
                "check.fall 3 -> 9",
            ),
        ],
    );
    check(
        "service l4",
        &[
            (|it| it.services[0].dscp = 9, "dscp 1 -> 9"),
            (
                |it| it.services[0].strict_ipvs = true,
                "strict_ipvs false -> true",
            ),
            (
                |it| it.services[0].one_packet = true,
                "one_packet false -> true",
            ),
            (
                |it| {
                    it.services[0].tunnel = Tunnel {
                        kind: TunnelKind::Gue,
                        checksum: TunnelChecksum::Full,
                        ..Tunnel::default()
                    };
                },
                "tunnel ipip -> gue port 6080 checksum full",
            ),
        ],
    );
}

#[test]
fn changed_proxy_service_keys_are_shown() {
    fn proxy(desired: &mut Desired) -> &mut Proxy {
        &mut desired.proxies[0]
    }
    fn route(desired: &mut Desired) -> &mut Route {
        &mut proxy(desired).routes[0]
    }
    fn tls(desired: &mut Desired) -> &mut ServiceTls {
        proxy(desired).tls.as_mut().unwrap()
    }
    fn compression(desired: &mut Desired) -> &mut Compression {
        proxy(desired).compression.as_mut().unwrap()
    }
    fn log(desired: &mut Desired) -> &mut AccessLog {
        proxy(desired).access_log.as_mut().unwrap()
    }
    check(
        "service www",
        &[
            (
                |it| proxy(it).listen.push("[::1]:80".parse().unwrap()),
                "listen tcp/192.0.2.1:80 -> tcp/192.0.2.1:80 tcp/[::1]:80",
            ),
            (
                |it| proxy(it).protocol = ProxyProtocol::Tcp,
                "protocol http -> tcp",
            ),
            (|it| proxy(it).pool = text("q"), "pool p -> q"),
            (
                |it| proxy(it).timeouts.request = SECOND,
                "timeouts.request 10s -> 1s",
            ),
            (
                |it| proxy(it).timeouts.response = Some(SECOND),
                "timeouts.response none -> 1s",
            ),
            (
                |it| proxy(it).timeouts.total = Some(SECOND),
                "timeouts.total none -> 1s",
            ),
            (
                |it| proxy(it).limits.head = 2048,
                "limits.head 16384 -> 2048",
            ),
            (
                |it| proxy(it).limits.retry_budget = 5,
                "limits.retry_budget 100 -> 5",
            ),
            (
                |it| proxy(it).limit_key = HashKey::Header(text("x")),
                "limits.key source -> header:x",
            ),
            (
                |it| proxy(it).retry_on.statuses = vec![(502, 504), (500, 500)],
                "retry_on connect, empty -> connect, empty, 502-504, 500",
            ),
            (
                |it| {
                    proxy(it).retry_on = RetryOn {
                        conditions: Vec::new(),
                        statuses: Vec::new(),
                    };
                },
                "retry_on connect, empty -> none",
            ),
            (
                |it| proxy(it).normalize_path = None,
                "normalize_path merge_slashes true, encoded_slash keep, forward received -> false",
            ),
            (
                |it| proxy(it).forwarded = Forwarded::Off,
                "forwarded true -> false",
            ),
            (
                |it| proxy(it).forwarded = Forwarded::Rfc7239,
                "forwarded true -> rfc7239",
            ),
            (
                |it| proxy(it).forwarded = Forwarded::Both,
                "forwarded true -> both",
            ),
            (|it| proxy(it).connect = true, "connect false -> true"),
            (
                |it| proxy(it).abort_on_close = false,
                "abort_on_close true -> false",
            ),
            (
                |it| proxy(it).request_buffering = false,
                "request_buffering true -> false",
            ),
            (
                |it| proxy(it).client_ip_recursive = false,
                "client_ip_recursive true -> false",
            ),
            (
                |it| proxy(it).proxy_protocol = true,
                "proxy_protocol false -> true",
            ),
            (
                |it| {
                    proxy(it).trusted = vec![Network {
                        address: [10, 0, 0, 0].into(),
                        prefix: 8,
                    }];
                },
                "trusted none -> 10.0.0.0/8",
            ),
            (
                |it| {
                    proxy(it).error_pages = vec![ErrorPage {
                        status: vec![(500, 599), (404, 404)],
                        response: ErrorResponse::File(text("/e")),
                        source: Source::default(),
                    }];
                },
                "error_pages none -> 500-599,404 /e",
            ),
            (
                |it| proxy(it).compression = None,
                "compression gzip -> none",
            ),
            (
                |it| compression(it).codings = vec![Coding::Gzip, Coding::Brotli],
                "compression.codings gzip -> gzip, br",
            ),
            (
                |it| compression(it).types.clear(),
                "compression.types text/* -> none",
            ),
            (
                |it| compression(it).minimum = 7,
                "compression.minimum 100 -> 7",
            ),
            (
                |it| proxy(it).access_log = None,
                "access_log /a.log -> none",
            ),
            (
                |it| log(it).path = text("/b.log"),
                "access_log.path /a.log -> /b.log",
            ),
            (
                |it| log(it).format = LogFormat::Combined,
                "access_log.format json -> combined",
            ),
            (
                |it| log(it).format = LogFormat::Template(text("{client}")),
                "access_log.format json -> \"{client}\"",
            ),
            (
                |it| tls(it).certificates.push(text("/x")),
                "tls.certificates /certs -> /certs /x",
            ),
            (
                |it| tls(it).client_ca = some("/ca"),
                "tls.client_ca none -> /ca",
            ),
            (
                |it| tls(it).client_auth = ClientAuth::Optional,
                "tls.client_auth required -> optional",
            ),
            (
                |it| tls(it).minimum = TlsVersion::V13,
                "tls.minimum 1.2 -> 1.3",
            ),
            (
                |it| tls(it).strict_sni = true,
                "tls.strict_sni false -> true",
            ),
            (
                |it| {
                    tls(it).ticket_keys =
                        vec![Secret::new(SecretSource::File(text("/k")), b"k".to_vec())]
                },
                "tls.ticket_keys none -> file /k",
            ),
        ],
    );
    check(
        "service www",
        &[
            (
                |it| route(it).when.paths = vec![text("/a*")],
                "route 1 /* -> pool p -> /a* -> pool p",
            ),
            (
                |it| route(it).edits.request.set = vec![header("authorization", "secret")],
                "route 1.set_header changed",
            ),
            (
                |it| route(it).edits.response.add = vec![header("x", "secret")],
                "route 1.add_response_header changed",
            ),
            (
                |it| route(it).edits.request.remove = vec![text("cookie"), text("te")],
                "route 1.remove_header none -> cookie, te",
            ),
            (
                |it| route(it).edits.response.set = vec![header("x", "secret")],
                "route 1.set_response_header changed",
            ),
            (
                |it| route(it).edits.response.remove = vec![text("server")],
                "route 1.remove_response_header none -> server",
            ),
            (
                |it| proxy(it).routes[1].action = respond("other"),
                "route 2.body changed",
            ),
            (
                |it| {
                    let action = RouteAction::Redirect {
                        to: Template::literal("/new"),
                        status: 301,
                    };
                    proxy(it).routes.insert(1, Route::new(action));
                },
                "route 2 added: /* -> 301 to /new",
            ),
            (
                |it| proxy(it).routes.clear(),
                "routes 1-2 removed: [/* -> pool p, /* -> respond 200]",
            ),
        ],
    );
}

#[test]
fn changed_node_keys_are_shown() {
    fn admin(desired: &mut Desired) -> &mut Admin {
        desired.node.admin.as_mut().unwrap()
    }
    check(
        "node",
        &[
            (
                |it| it.node.interfaces = Some(Vec::new()),
                "interfaces from the routes -> none",
            ),
            (
                |it| it.node.vip_interface = some("v0"),
                "vip_interface none -> v0",
            ),
            (
                |it| it.node.socket_group = some("adm"),
                "socket_group none -> adm",
            ),
            (|it| it.node.admin = None, "admin 127.0.0.1:900 -> none"),
            (
                |it| admin(it).listen = "127.0.0.1:901".parse().unwrap(),
                "admin.listen 127.0.0.1:900 -> 127.0.0.1:901",
            ),
            (
                |it| admin(it).tokens = some("/t"),
                "admin.tokens none -> /t",
            ),
            (
                |it| admin(it).read_requires_token = true,
                "admin.read_requires_token false -> true",
            ),
            (
                |it| admin(it).hosts = vec![text("a"), text("b")],
                "admin.hosts none -> a, b",
            ),
            (
                |it| admin(it).tls = Some(service_tls()),
                "admin.tls none -> /certs",
            ),
        ],
    );
}
