//! Adds the published configuration of a group of directors to a director's bundle, as the last file, and verifies it.
//!
//! The published configuration contains the settings that all directors share. Settings of a single machine, and
//! settings that control programs, files and access, remain in the director's own file.

use std::fmt::Display;
use std::ops::Range;

use weir_model::{Cluster, Forward, Listener, Ports, Protocol, Publish};

use crate::bundle_file::{FILE_MARKER, is_bundle, split_bundle};
use crate::code::Code;
use crate::diagnostic::{Diagnostic, Lines};
use crate::include;
use crate::lower::{LoweredConfig, LoweredPool, LoweredService};
use crate::privilege;
use crate::tree::Value;
use crate::view::Sink;

/// The tables that a published configuration may have.
const PUBLISHABLE_TABLES: &[&str] = &[
    "defaults", "timeouts", "ipvs", "check", "pool", "service", "route",
];

/// Returns the name of the group in a director's own configuration, and the files that the published configuration may
/// name; `None` if there is no `[cluster]` with a name.
pub fn group_of(own: &str) -> Option<(String, Vec<String>)> {
    // Parsing a large file twice is expensive.
    if !own.contains("cluster") {
        return None;
    }
    let root = include::any_tree(own);
    let cluster = root.entries.iter().find(|entry| entry.key == "cluster")?;
    let Value::Table(cluster) = &cluster.item.value else {
        return None;
    };
    let value_of = |key: &str| {
        let entry = cluster.entries.iter().find(|entry| entry.key == key);
        entry.map(|entry| &entry.item.value)
    };
    let Some(Value::Text(name)) = value_of("name") else {
        return None;
    };
    let files = match value_of("files") {
        Some(Value::List(items)) => items.iter().filter_map(|item| match &item.value {
            Value::Text(path) => Some(path.to_string()),
            _ => None,
        }),
        _ => return Some((name.to_string(), Vec::new())),
    };
    Some((name.to_string(), files.collect()))
}

/// Returns the bundle of a director's own configuration and the published configuration of its group.
pub fn with_published(own: &str, group: &str, published: &str) -> String {
    format!("{own}\n{}{published}", marker_line(group))
}

/// Returns the director's own part of a bundle that [`with_published`] created.
pub fn own_part<'t>(text: &'t str, group: &str) -> &'t str {
    match text.find(&format!("\n{}", marker_line(group))) {
        Some(end) => &text[..end],
        None => text,
    }
}

/// Returns the published part of a bundle that [`with_published`] created; `None` if it has no part of this group.
pub fn published_part<'t>(text: &'t str, group: &str) -> Option<&'t str> {
    Some(&text[published_start(text, group)?..])
}

fn published_start(text: &str, group: &str) -> Option<usize> {
    let line = format!("\n{}", marker_line(group));
    Some(text.find(&line)? + line.len())
}

fn marker_line(group: &str) -> String {
    format!("{FILE_MARKER}{}{group}\n", Cluster::PUBLISHED)
}

/// Rejects values of the published part that `[cluster.publish]` does not permit. Without `[cluster.publish]`, these
/// are layer 4 services, `[timeouts]`, `[ipvs]`, and addresses that `vip_interface` would add.
pub(crate) fn verify(sink: &mut Sink<'_>, lowered: &LoweredConfig, text: &str) {
    let Some(cluster) = &lowered.cluster else {
        return;
    };
    if !is_bundle(text) {
        return;
    }
    let Some(start) = published_start(text, &cluster.name) else {
        return;
    };
    let mut part = PublishedPart { sink, start };
    match &cluster.publish {
        Some(publish) => part.verify(lowered, publish),
        None => part.verify_without_limits(lowered),
    }
}

/// Verifies the values in the published part of a bundle.
struct PublishedPart<'s, 't> {
    sink: &'s mut Sink<'t>,
    /// Offset of the part in the bundle.
    start: usize,
}

impl PublishedPart<'_, '_> {
    fn verify_without_limits(&mut self, lowered: &LoweredConfig) {
        let services = lowered.services.iter().map(|it| &it.name);
        for span in services.filter(|span| span.start >= self.start) {
            let message = "a layer 4 service cannot be published without [cluster.publish]";
            self.sink.push(
                Diagnostic::new(Code::OwnerOnly, span, message)
                    .cause(
                        "each director's file limits what the group may publish to that director",
                    )
                    .fix("add [cluster.publish] to each director's file"),
            );
        }
        self.reject_settings(lowered);
        if lowered.node.vip_interface.is_some() {
            self.reject_added_addresses(lowered);
        }
    }

    /// Rejects addresses of published proxy services if `vip_interface` would add them to this director.
    fn reject_added_addresses(&mut self, lowered: &LoweredConfig) {
        let listeners = lowered
            .proxies
            .iter()
            .flat_map(|proxy| proxy.proxy.listen.iter().zip(&proxy.listen));
        for (address, span) in listeners {
            if span.start < self.start || address.ip().is_unspecified() {
                continue;
            }
            let message = format!(
                "{} cannot be published without [cluster.publish]",
                address.ip()
            );
            self.sink.push(
                Diagnostic::new(Code::OwnerOnly, span, message)
                    .cause("`vip_interface` would add the address to this director")
                    .fix("add [cluster.publish] to each director's file"),
            );
        }
    }

    fn reject_settings(&mut self, lowered: &LoweredConfig) {
        for span in lowered
            .settings
            .iter()
            .filter(|span| span.start >= self.start)
        {
            let message =
                "[timeouts] and [ipvs] cannot be published without `timeouts` in [cluster.publish]";
            self.sink.push(
                Diagnostic::new(Code::OwnerOnly, span, message)
                    .cause("they apply to all layer 4 services of this director")
                    .fix("set `timeouts = true` in [cluster.publish] in each director's file"),
            );
        }
    }

    fn verify(&mut self, lowered: &LoweredConfig, publish: &Publish) {
        for service in &lowered.services {
            self.verify_service(service, publish);
        }
        for proxy in &lowered.proxies {
            let listeners = proxy.proxy.listen.iter().zip(&proxy.listen);
            for (address, span) in listeners {
                self.verify_listener(
                    &Listener {
                        protocol: Protocol::Tcp,
                        address: address.ip(),
                        ports: Ports::One(address.port()),
                    },
                    span,
                    publish,
                );
            }
            self.require(publish.proxy, &proxy.name, &"proxy", "forwards");
        }
        for pool in &lowered.pools {
            self.verify_pool(pool, publish);
        }
        if !publish.timeouts {
            self.reject_settings(lowered);
        }
    }

    fn verify_service(&mut self, service: &LoweredService, publish: &Publish) {
        for (listener, span) in service.service.listen.iter().zip(&service.listen) {
            self.verify_listener(listener, span, publish);
        }
        for (mark, span) in service.service.marks.iter().zip(&service.marks) {
            let is_permitted = publish.marks.contains(&mark.mark.get());
            self.require(is_permitted, span, mark, "marks");
        }
        if let Some(span) = &service.forward {
            self.verify_forward(service.service.forward, span, publish);
        }
        if let (Some(snat), Some(span)) = (&service.service.snat, &service.snat) {
            for address in &snat.addresses {
                self.require(publish.permits_vip(*address), span, address, "vips");
            }
        }
    }

    fn verify_listener(&mut self, listener: &Listener, span: &Range<usize>, publish: &Publish) {
        let address = listener.address;
        self.require(publish.permits_vip(address), span, &address, "vips");
        let ports = listener.ports;
        let value = format!("port {ports}");
        self.require(publish.permits_ports(ports), span, &value, "ports");
    }

    fn verify_forward(&mut self, forward: Forward, span: &Range<usize>, publish: &Publish) {
        let is_permitted = publish.forwards.contains(&forward);
        self.require(is_permitted, span, &forward, "forwards");
    }

    fn verify_pool(&mut self, pool: &LoweredPool, publish: &Publish) {
        let servers = pool.pool.servers.iter().zip(&pool.servers);
        let sorry = pool.pool.sorry.iter().zip(&pool.sorry);
        for (server, span) in servers.chain(sorry) {
            match server.ip() {
                Some(address) => {
                    self.require(publish.permits_server(address), span, &address, "servers");
                }
                None => self.reject_unix_server(&server.name, span),
            }
            if let Some(forward) = server.forward {
                self.verify_forward(forward, span, publish);
            }
        }
    }

    /// Rejects a published server on a Unix socket.
    fn reject_unix_server(&mut self, name: &str, span: &Range<usize>) {
        if span.start < self.start {
            return;
        }
        let message = format!("server {name} cannot be published");
        self.sink.push(
            Diagnostic::new(Code::OwnerOnly, span, message)
                .cause("a Unix socket exists on one director only")
                .fix("publish a pool of servers with addresses"),
        );
    }

    /// Rejects a published value unless it is permitted. `key` is the key of `[cluster.publish]`.
    fn require(&mut self, is_permitted: bool, span: &Range<usize>, value: &dyn Display, key: &str) {
        if is_permitted || span.start < self.start {
            return;
        }
        self.sink.push(
            Diagnostic::new(
                Code::OwnerOnly,
                span,
                format!("{value} is not in `{key}` of [cluster.publish]"),
            )
            .cause("each director's file limits what the group may publish to that director")
            .fix(format!(
                "add it to `{key}` of [cluster.publish] in each director's file"
            ))
            .merge_group(format!("published {key}")),
        );
    }
}

/// Returns a diagnostic for each item that the last file of `bundle`, which the group publishes, must not contain:
/// tables that cannot be published or, if there are none, programs and files that the director's own configuration does
/// not use. The file may also name `files` as certificates.
pub fn published_findings(own: &str, bundle: &str, files: &[String]) -> Vec<Diagnostic> {
    let lines = Lines::new(bundle);
    let mut found = Vec::new();
    let parts = split_bundle(bundle);
    if let Some(part) = parts.last() {
        let mut root = include::any_tree(part.text);
        root.shift(part.start);
        for entry in &root.entries {
            if PUBLISHABLE_TABLES.contains(&&*entry.key) {
                continue;
            }
            let message = format!("`{}` cannot be published", entry.key.escape_debug());
            let mut diagnostic = Diagnostic::new(Code::OwnerOnly, &entry.key_span, message)
                .cause(format!(
                    "only these tables can be published: {}",
                    PUBLISHABLE_TABLES.join(", ")
                ))
                .fix("move it to each director's file");
            diagnostic.at = lines.source(entry.key_span.start);
            found.push(diagnostic);
        }
    }
    if found.is_empty() {
        found = privilege::changes(own, bundle, files);
    }
    found
}

/// Returns whether a text can be published. A bundle cannot be published.
pub fn is_publishable(text: &str) -> bool {
    !is_bundle(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "[node]\ninterfaces = [\"eth0\"]\n[cluster]\nname = \"edge\"\n[check.own]\nkind = \"script\"\n\
        command = [\"/usr/bin/check\"]\nuser = \"checks\"\n";

    fn findings(published: &str) -> Vec<(String, u32, u32)> {
        let bundle = with_published(OWN, "edge", published);
        assert_eq!(own_part(&bundle, "edge"), OWN);
        let files = ["/etc/weir/certs".to_owned()];
        let found = published_findings(OWN, &bundle, &files);
        found
            .into_iter()
            .map(|it| (it.message, it.at.file, it.at.line))
            .collect()
    }

    const LIMITS: &str = "[cluster]\netcd = [\"http://10.0.0.1:2379\"]\nname = \"edge\"\n[cluster.publish]\n\
        vips = [\"192.0.2.0/24\"]\nservers = [\"10.0.0.0/16\"]\nports = [\"80\", \"8000-8099\"]\nforwards = [\"nat\", \
        \"proxy\"]\n[pool.own]\nscheduler = \"maglev\"\nservers = [\"172.16.0.1\"]\n[service.own]\nlisten = \
        [\"198.51.100.1:53\"]\nforward = \"direct\"\npool = \"own\"\n";

    /// Returns the errors of a bundle with a published service.
    fn errors(own: &str, service: &str, server: &str, settings: &str) -> Vec<String> {
        let scheduler = match service.contains("proxy") {
            true => "",
            false => "scheduler = \"maglev\"\n",
        };
        let published = format!(
            "[pool.a]\n{scheduler}servers = [{server}]\n[service.a]\n{service}\npool = \"a\"\n{settings}"
        );
        let bundle = with_published(own, "edge", &published);
        assert_eq!(published_part(&bundle, "edge"), Some(published.as_str()));
        match crate::parse(&bundle, &crate::Host::default()) {
            Ok(_) => Vec::new(),
            Err(found) => {
                let errors = found
                    .into_iter()
                    .filter(|it| it.severity() == crate::Severity::Error);
                errors
                    .map(|it| {
                        assert_eq!(it.at.file, 1, "in the published part");
                        it.message
                    })
                    .collect()
            }
        }
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table of cases")]
    fn published_services_are_limited_by_own_file() {
        let nat = "listen = [\"192.0.2.1:80\"]\nforward = \"nat\"";
        let server = "\"10.0.0.5\"";
        assert_eq!(errors(LIMITS, nat, server, ""), Vec::<String>::new());
        let not_in = |value: &str, key: &str| {
            vec![format!("{value} is not in `{key}` of [cluster.publish]")]
        };
        for (service, server, settings, expected) in [
            (
                "listen = [\"192.0.3.1:80\"]\nforward = \"nat\"",
                server,
                "",
                not_in("192.0.3.1", "vips"),
            ),
            (
                "listen = [\"192.0.2.1:81\"]\nforward = \"nat\"",
                server,
                "",
                not_in("port 81", "ports"),
            ),
            (
                "listen = [\"192.0.2.1:*\"]\nforward = \"nat\"",
                server,
                "",
                not_in("port *", "ports"),
            ),
            (
                "listen = [\"192.0.2.1:80\"]\nforward = \"direct\"",
                server,
                "",
                not_in("direct", "forwards"),
            ),
            (
                "listen = [\"fwmark/7\"]\nforward = \"nat\"",
                server,
                "",
                not_in("fwmark/7", "marks"),
            ),
            (nat, "\"10.1.0.5\"", "", not_in("10.1.0.5", "servers")),
            (
                nat,
                "{ address = \"10.0.0.5\", forward = \"tunnel\" }",
                "",
                not_in("tunnel", "forwards"),
            ),
            (
                "listen = [\"192.0.2.1:80\"]\nforward = \"nat\"\nsnat = { addresses = [\"198.51.100.1\"] }",
                server,
                "",
                not_in("198.51.100.1", "vips"),
            ),
            (
                nat,
                server,
                "[pool.b]\nservers = [\"10.0.0.6\"]\n[service.b]\nlisten = [\"0.0.0.0:80\"]\nforward = \"proxy\"\n\
                 protocol = \"tcp\"\npool = \"b\"\n",
                not_in("0.0.0.0", "vips"),
            ),
            (
                nat,
                server,
                "[defaults.service]\nsnat = { addresses = [\"198.51.100.1\"] }\n",
                not_in("198.51.100.1", "vips"),
            ),
            (
                nat,
                server,
                "[timeouts]\ntcp = \"1m\"\n",
                vec![
                    "[timeouts] and [ipvs] cannot be published without `timeouts` in [cluster.publish]".to_owned(),
                ],
            ),
        ] {
            assert_eq!(errors(LIMITS, service, server, settings), expected, "{service} {server} {settings}");
        }
        let unlimited = LIMITS.replace("[cluster.publish]", "[pool.unused]").replace(
            "vips = [\"192.0.2.0/24\"]\nservers = [\"10.0.0.0/16\"]\nports = [\"80\", \"8000-8099\"]\n\
             forwards = [\"nat\", \"proxy\"]",
            "servers = [\"10.0.0.9\"]",
        );
        assert_eq!(
            errors(&unlimited, nat, server, ""),
            ["a layer 4 service cannot be published without [cluster.publish]"]
        );
        let proxy = "listen = [\"0.0.0.0:8080\"]\nforward = \"proxy\"\nprotocol = \"tcp\"";
        assert_eq!(errors(&unlimited, proxy, server, ""), Vec::<String>::new());
        let with_vip_interface = format!("[node]\nvip_interface = \"eth0\"\n{unlimited}");
        assert_eq!(
            errors(&with_vip_interface, proxy, server, ""),
            Vec::<String>::new()
        );
        let proxy = proxy.replace("0.0.0.0", "192.0.2.1");
        assert_eq!(
            errors(&with_vip_interface, &proxy, server, ""),
            ["192.0.2.1 cannot be published without [cluster.publish]"]
        );
    }

    #[test]
    fn published_text_cannot_use_new_privileged_settings() {
        assert_eq!(group_of(OWN), Some(("edge".to_owned(), Vec::new())));
        assert_eq!(
            findings("[pool.web]\nservers = [\"10.0.0.5\"]\ncheck = \"own\"\n"),
            []
        );
        let (message, file, line) = findings("[pool.a]\n[node]\n").remove(0);
        assert_eq!(
            (message.as_str(), file, line),
            ("`node` cannot be published", 1, 2)
        );
        for rejected in [
            "[pool.a.check]\nkind = \"script\"\ncommand = [\"/bin/sh\"]\n",
            "[check.b]\nkind = \"script\"\ncommand = [\"/usr/bin/check\"]\nuser = \"root\"\n",
            "[pool.a]\nservers_file = \"/etc/shadow\"\n",
            "[pool.a]\nnotify = [\"/bin/sh\"]\n",
            "[service.a]\ntls = { certificates = \"/etc/other\" }\n",
            "[service.a]\ntls = { certificates = \"/etc/weir/certs/../../shadow\" }\n",
            "[service.a]\naccess_log = \"/etc/weir/certs/log\"\n",
            "[notify.a]\ncommand = [\"/bin/sh\"]\n",
            "[vrrp.a]\n",
            "include = [\"/etc/shadow\"]\n",
        ] {
            assert_eq!(findings(rejected).len(), 1, "{rejected}");
        }
        for allowed in [
            "[service.a]\ntls = { certificates = \"/etc/weir/certs\" }\n",
            "[service.a]\ntls = { certificates = [\"/etc/weir/certs/a.pem\", \"/etc/weir/certs/b.pem\"] }\n",
        ] {
            assert_eq!(findings(allowed), [], "{allowed}");
        }
    }

    #[test]
    fn cluster_files_may_only_be_used_as_certificates() {
        let service = "[service.s]\nlisten = [\"192.0.2.1:443\"]\nforward = \"proxy\"\nprotocol = \"http\"\n\
            pool = \"p\"\n";
        let pool = "[pool.p]\nservers = [\"10.0.0.5\"]\n";
        for published in [
            format!(
                "{service}tls = {{ certificates = \"/etc/weir/certs\", client_ca = \"/etc/weir/certs/ca.pem\", \
                     client_crl = \"/etc/weir/certs/crl.pem\" }}\n{pool}"
            ),
            format!(
                "{pool}tls = {{ ca = \"/etc/weir/certs/ca.pem\", certificate = \"/etc/weir/certs/own.pem\" }}\n"
            ),
            format!("{pool}check = {{ kind = \"https\", ca = \"/etc/weir/certs/ca.pem\" }}\n"),
        ] {
            assert_eq!(findings(&published), [], "{published}");
        }
        for published in [
            format!(
                "{service}error_pages = [{{ status = 404, file = \"/etc/weir/certs/www.pem\" }}]\n{pool}"
            ),
            format!(
                "{service}{pool}[[route]]\nservice = \"s\"\npath = \"/\"\nfiles = \"/etc/weir/certs\"\n"
            ),
            format!(
                "{service}{pool}[[route]]\nservice = \"s\"\nfiles = {{ root = \"/etc/weir/certs\" }}\n"
            ),
            format!("{pool}servers_file = \"/etc/weir/certs/www.pem\"\n"),
            format!("{pool}check = {{ kind = \"file\", file = \"/etc/weir/certs/www.pem\" }}\n"),
            format!(
                "{pool}sticky = {{ cookie = \"c\", secret = {{ file = \"/etc/weir/certs/www.pem\" }} }}\n"
            ),
        ] {
            let found = findings(&published);
            assert_eq!(found.len(), 1, "{published}: {found:?}");
            assert!(found[0].0.contains("specifies a file"), "{found:?}");
        }
    }

    #[test]
    fn new_environment_variables_cannot_be_published() {
        let found = findings("[pool.p]\nservers = [\"${SECRET}\"]\n");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].0.contains("an environment variable"), "{found:?}");
    }

    #[test]
    fn servers_shared_by_directors_are_limited_in_all_pools() {
        let proxy = "[pool.w]\nservers = [\"10.0.0.7\"]\n[service.w]\nlisten = [\"192.0.2.1:80\"]\nforward = \
            \"proxy\"\nprotocol = \"tcp\"\npool = \"w\"\n";
        let is_unshareable = |own: &str, pool: &str, address: &str| {
            let parsed = crate::parse(&format!("{own}{proxy}"), &crate::Host::default());
            let desired = parsed.expect("parse the configuration").desired;
            desired
                .unshareable_reason(pool, address.parse().ok())
                .is_some()
        };
        for pool in ["own", "w"] {
            assert!(!is_unshareable(LIMITS, pool, "10.0.0.8"), "{pool}");
            assert!(is_unshareable(LIMITS, pool, "203.0.113.66"), "{pool}");
            assert!(is_unshareable(LIMITS, pool, "unix:/run/a.sock"), "{pool}");
        }
        let (before, after) = LIMITS
            .split_once("[cluster.publish]")
            .expect("no [cluster.publish]");
        let (_, after) = after.split_once("[pool.own]").expect("no [pool.own]");
        let unlimited = format!("{before}[pool.own]{after}");
        assert!(is_unshareable(&unlimited, "own", "10.0.0.8"));
        assert!(!is_unshareable(&unlimited, "w", "203.0.113.66"));
    }

    #[test]
    fn bundle_cannot_be_published() {
        assert!(is_publishable(""));
        assert!(is_publishable("[pool.a]\n"));
        assert!(!is_publishable(&with_published(OWN, "edge", "")));
    }

    #[test]
    fn group_is_the_name_of_the_cluster() {
        let files = |files: &[&str]| files.iter().map(|it| (*it).to_owned()).collect();
        for (own, expected) in [
            ("", None),
            ("# cluster\n", None),
            ("cluster = 1\n", None),
            ("[cluster]\n", None),
            ("[cluster]\nname = 1\n", None),
            (
                "[cluster]\nname = \"a\"\n",
                Some(("a".to_owned(), Vec::new())),
            ),
            (
                "[cluster]\nname = \"a\"\nfiles = [\"/b\", 1, \"/c\"]\n",
                Some(("a".to_owned(), files(&["/b", "/c"]))),
            ),
        ] {
            assert_eq!(group_of(own), expected, "{own}");
        }
    }

    #[test]
    fn parts_of_a_bundle_are_those_of_its_group() {
        let bundle = with_published("a = 1\n", "g", "b = 2\n");
        assert_eq!(own_part(&bundle, "g"), "a = 1\n");
        assert_eq!(published_part(&bundle, "g"), Some("b = 2\n"));
        assert_eq!(own_part(&bundle, "h"), bundle);
        assert_eq!(published_part(&bundle, "h"), None);
    }

    #[test]
    fn server_on_a_unix_socket_cannot_be_published() {
        let proxy = "listen = [\"192.0.2.1:80\"]\nforward = \"proxy\"\nprotocol = \"http\"";
        let found = errors(LIMITS, proxy, "\"unix:/run/a.sock\"", "");
        assert_eq!(found, ["server unix:/run/a.sock cannot be published"]);
        let own = format!("{LIMITS}[pool.local]\nservers = [\"unix:/run/b.sock\"]\n");
        assert_eq!(
            errors(&own, proxy, "\"10.0.0.5\"", ""),
            Vec::<String>::new()
        );
    }

    #[test]
    fn setting_at_the_start_of_the_published_text_is_limited() {
        let bundle = with_published(LIMITS, "edge", "timeouts.tcp = \"1h\"\n");
        let found = crate::parse(&bundle, &crate::Host::default()).unwrap_err();
        let found = found.iter().filter(|it| it.code == Code::OwnerOnly);
        let messages: Vec<&str> = found.map(|it| it.message.as_str()).collect();
        let message =
            "[timeouts] and [ipvs] cannot be published without `timeouts` in [cluster.publish]";
        assert_eq!(messages, [message]);
    }

    #[test]
    fn own_services_are_not_limited() {
        let own = "[node]\nvip_interface = \"eth0\"\n[cluster]\netcd = [\"http://10.0.0.1:2379\"]\nname = \"edge\"\n\
            [pool.own]\nservers = [\"10.0.0.9\"]\n[service.own]\nlisten = [\"192.0.2.9:80\"]\nforward = \"proxy\"\n\
            protocol = \"tcp\"\npool = \"own\"\n";
        let proxy = "listen = [\"0.0.0.0:8080\"]\nforward = \"proxy\"\nprotocol = \"tcp\"";
        assert_eq!(errors(own, proxy, "\"10.0.0.5\"", ""), Vec::<String>::new());
    }
}
