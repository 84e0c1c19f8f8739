//! Tests the reported changes to a service's `forward_auth`, scheme conditions and TLS settings.

use std::time::Duration;

use weir_model::*;

/// Returns a proxy service with one route and TLS.
fn proxy() -> Proxy {
    let mut proxy = Proxy::new("www", ProxyProtocol::Http, "p");
    proxy.routes = vec![Route::new(RouteAction::Pool("p".to_owned()))];
    proxy.tls = Some(ServiceTls {
        certificates: vec!["/certs".to_owned()],
        strict_sni: false,
        minimum: TlsVersion::V12,
        ciphers: Vec::new(),
        groups: Vec::new(),
        sni_host: SniHost::default(),
        client_ca: None,
        client_crl: None,
        client_auth: ClientAuth::Required,
        ticket_keys: Vec::new(),
        source: Source::default(),
    });
    proxy
}

fn diff_after(change: impl Fn(&mut Proxy)) -> String {
    let desired = |proxy| Desired {
        proxies: vec![proxy],
        ..Desired::default()
    };
    let mut new = proxy();
    change(&mut new);
    let changes = diff(&desired(proxy()), &desired(new));
    let lines: Vec<String> = changes.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

fn auth(value: &str) -> Option<Box<RouteOptions>> {
    let name = |text: &str| text.to_owned();
    Some(Box::new(RouteOptions {
        forward_auth: Some(ForwardAuth {
            pool: name("q"),
            path: name("/verify"),
            timeout: Duration::from_secs(1),
            copy: vec![(name("X-User"), name("X-User")), (name("A"), name("B"))],
            set: vec![HeaderEdit {
                name: name("x"),
                value: Template::literal(value),
                statuses: Vec::new(),
                file: None,
            }],
        }),
        ..RouteOptions::default()
    }))
}

#[test]
fn changes_are_reported_without_header_values() {
    let shown = diff_after(|proxy| proxy.routes[0].options = auth("secret"));
    let expected = "route 1.forward_auth none -> GET /verify from pool q, timeout 1s, copies X-User B as A, sets x";
    assert!(shown.ends_with(expected), "{shown}");
    let shown = diff_after(|proxy| proxy.routes[0].when.schemes = vec![Scheme::Http]);
    assert!(shown.ends_with("/* scheme=http -> pool p"), "{shown}");
    fn tls(proxy: &mut Proxy) -> &mut ServiceTls {
        proxy.tls.as_mut().unwrap()
    }
    let shown = diff_after(|proxy| tls(proxy).client_crl = Some("/crl".to_owned()));
    assert!(shown.ends_with("tls.client_crl none -> /crl"), "{shown}");
    let shown = diff_after(|proxy| tls(proxy).ciphers = vec![CipherSuite::Aes128Gcm]);
    let expected = "tls.ciphers default -> TLS_AES_128_GCM_SHA256";
    assert!(shown.ends_with(expected), "{shown}");
    let shown = diff_after(|proxy| tls(proxy).groups = vec![TlsGroup::P384]);
    assert!(
        shown.ends_with("tls.groups default -> secp384r1"),
        "{shown}"
    );
}
