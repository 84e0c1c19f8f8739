//! Tests that the examples and defaults in the catalog are valid.

use super::*;
use crate::{Host, parse};

/// Builds a complete file around a line that sets a key of a section.
pub(crate) fn file_with(section: &Section, line: &str) -> String {
    let key = line.split(' ').next().unwrap_or("");
    let frame = Frame { key, line };
    match section.page {
        "node" | "timeouts" | "ipvs" => format!("[{}]\n{line}\n", section.path),
        "node-admin" => {
            let base = [
                "listen = \"10.0.0.1:9900\"",
                "tls = { certificates = \"/c.pem\" }",
                "tokens = \"/t\"",
            ];
            format!("[node]\nadmin = {{ {} }}\n", frame.inline(&base))
        }
        "route-timeouts" => format!(
            "{POOL}{}[[route]]\nservice = \"images\"\npool = \"images\"\ntimeouts = {{ {line} }}\n",
            service("proxy", "protocol = \"http\"")
        ),
        "defaults" => format!(
            "{}[defaults]\n{line}\n",
            POOL.to_owned() + "check = {}\n" + &service("nat", "")
        ),
        "check" => check_file(key, line),
        "exchange" => {
            let step = frame.inline(&["expect = \"OK\""]);
            check_file("exchange", &format!("exchange = [{{ {step} }}]"))
        }
        "expect" => frame.expect(),
        "route" | "route-not" | "address-file" | "host-file" | "response-header" | "route-pool"
        | "header-replacement" | "route-rewrite" | "route-limits" | "route-mirror"
        | "basic-auth" | "forward-auth" | "files" => frame.route(section.page),
        "map" => {
            let base = frame.others(&["entries = [\"a b\"]"]).join("\n");
            format!("[map.m]\n{base}\n{line}\n")
        }
        "pool" | "server" | "scheduler" | "sticky" | "servers-dns" | "pool-tls" => {
            frame.pool(section.page)
        }
        "service" | "tunnel" | "persistence" | "snat" => frame.service(section.page),
        page if page.starts_with("vrrp") => frame.vrrp(section.page),
        "announce" => frame.announce(),
        "notify" => {
            let base = match key {
                "webhook_ca" => "webhook = \"https://hooks.example.com/\"",
                _ => "mail = [\"ops@example.com\"]",
            };
            let base = frame.others(&[base]).join("\n");
            format!("{POOL}[notify.operators]\n{base}\n{line}\n")
        }
        "tracing" => {
            let base = match key {
                "ca" => "endpoint = \"https://127.0.0.1:4318\"",
                _ => "endpoint = \"http://127.0.0.1:4318\"",
            };
            let base = frame.others(&[base]).join("\n");
            format!("{POOL}[tracing]\n{base}\n{line}\n")
        }
        "sync" => frame.sync(),
        "cluster" => frame.cluster(),
        "cluster-publish" => {
            let required = ["vips = [\"192.0.2.0/24\"]", "servers = [\"10.0.0.0/16\"]"];
            let others = frame.others(&required).join("\n");
            format!(
                "[cluster]\netcd = [\"https://10.0.0.7:2379\"]\nname = \"edge\"\n[cluster.publish]\n{others}\n{line}\n"
            )
        }
        _ => frame.proxy(section),
    }
}

const POOL: &str = "[pool.images]\nservers = [\"10.0.0.5\"]\n";

fn service(forward: &str, extra: &str) -> String {
    format!(
        "[service.images]\nlisten = [\"192.0.2.10:80\"]\nforward = \"{forward}\"\npool = \"images\"\n{extra}\n"
    )
}

/// A line to add to a file, and its key: other lines with the same key are omitted.
struct Frame<'a> {
    key: &'a str,
    line: &'a str,
}

impl Frame<'_> {
    /// Returns the lines of `base` that set other keys.
    fn others<'b>(&self, base: &[&'b str]) -> Vec<&'b str> {
        base.iter()
            .copied()
            .filter(|other| other.split(' ').next() != Some(self.key))
            .collect()
    }

    /// Returns the content of an inline table: the line, and the lines of `base` with other keys.
    fn inline(&self, base: &[&str]) -> String {
        let mut parts = self.others(base);
        parts.extend((!self.line.is_empty()).then_some(self.line));
        parts.join(", ")
    }

    fn pool(&self, page: &str) -> String {
        let http = service("proxy", "protocol = \"http\"");
        match page {
            "pool" => format!("[pool.images]\n{}\n", self.line),
            "server" => {
                let table = self.inline(&["address = \"10.0.0.5\""]);
                format!("[pool.images]\nservers = [{{ {table} }}]\n")
            }
            "scheduler" => {
                let name = if self.key == "key" { "hash" } else { "mh" };
                let table = self.inline(&[&format!("name = \"{name}\"")]);
                format!("[pool.images]\nscheduler = {{ {table} }}\n")
            }
            "sticky" => {
                let table = self.inline(&["cookie = \"SRV\""]);
                format!("{POOL}sticky = {{ {table} }}\n{http}")
            }
            "servers-dns" => {
                let table = self.inline(&["name = \"web.internal\""]);
                format!("{POOL}servers_dns = {{ {table} }}\n{}", service("nat", ""))
            }
            _ => format!("{POOL}tls = {{ {} }}\n{http}", self.line),
        }
    }

    fn service(&self, page: &str) -> String {
        let line = self.line;
        let text = match page {
            "service" => {
                let listen = if line == "one_packet = true" {
                    "listen = [\"udp/192.0.2.10:53\"]"
                } else {
                    "listen = [\"192.0.2.10:80\"]"
                };
                let base = [listen, "forward = \"nat\"", "pool = \"images\""];
                format!(
                    "[service.images]\n{}\n{line}\n",
                    self.others(&base).join("\n")
                )
            }
            "tunnel" => {
                let table = self.inline(&["type = \"gue\""]);
                service("tunnel", &format!("tunnel = {{ {table} }}"))
            }
            _ => service("nat", &format!("{page} = {{ {line} }}")),
        };
        POOL.to_owned() + &text
    }

    fn proxy(&self, section: &Section) -> String {
        let table = section.path.rsplit('.').next().unwrap_or("");
        let value = match section.page {
            "access-log" => format!("{{ {} }}", self.inline(&["path = \"/x\""])),
            "error-pages" => {
                let response = match self.key {
                    "redirect" | "redirect_status" => "redirect = \"/e\"",
                    _ => "file = \"/e.html\"",
                };
                format!("[{{ {} }}]", self.inline(&["status = 503", response]))
            }
            "service-tls" => {
                let base = ["certificates = \"/c\"", "client_ca = \"/ca.pem\""];
                format!("{{ {} }}", self.inline(&base))
            }
            "proxy-timeouts" | "proxy-limits" | "compression" | "normalize-path"
            | "x-forwarded" => {
                format!("{{ {} }}", self.line)
            }
            page => panic!("no frame for {page}"),
        };
        let extra = format!("protocol = \"http\"\n{table} = {value}");
        POOL.to_owned() + &service("proxy", &extra)
    }

    fn expect(&self) -> String {
        let expect = format!("expect = {{ {} }}", self.line);
        match self.key {
            "answer" => check_file("query", &format!("query = \"a\"\n{expect}")),
            "bytes" => check_file("payload", &format!("payload = \"00\"\n{expect}")),
            _ => check_file("expect", &expect),
        }
    }

    fn route(&self, page: &str) -> String {
        let base = ["service = \"images\"", "pool = \"images\""];
        // The actions are mutually exclusive.
        let is_action = matches!(
            self.key,
            "redirect" | "status" | "body" | "split" | "split_by" | "files" | "restart"
        );
        let excludes_pool = page == "route" && (is_action || self.line == "close = true");
        let base = if excludes_pool { &base[..1] } else { &base[..] };
        let required = match self.key {
            _ if page != "route" => "",
            "body" => "status = 404\n",
            "status" => "redirect = \"/x\"\n",
            "split_by" => "split = [\"images:1\"]\n",
            "restart" => "rewrite = \"/x\"\n",
            _ => "",
        };
        let line = match page {
            "route-not" => format!("not = {{ {} }}", self.line),
            "address-file" => format!("source = {{ {} }}", self.line),
            "host-file" => format!("host = {{ {} }}", self.line),
            "route-pool" => {
                let table = self.inline(&["map = \"tenants\""]);
                format!("pool = {{ {table} }}\n\n[map.tenants]\nentries = [\"a images\"]")
            }
            "route-rewrite" => {
                let table = self.inline(&["regex = \"^/(.*)\"", "to = \"/b\""]);
                format!("rewrite = {{ {table} }}")
            }
            "route-limits" => {
                format!("limits = {{ {} }}", self.inline(&["rate = 10"]))
            }
            "route-mirror" => {
                format!("mirror = {{ {} }}", self.inline(&["pool = \"images\""]))
            }
            "forward-auth" => {
                let table = self.inline(&["pool = \"images\""]);
                format!("forward_auth = {{ {table} }}")
            }
            "basic-auth" => {
                let table = self.inline(&["users = [\"a:{SHA}x\"]"]);
                format!("basic_auth = {{ {table} }}")
            }
            "files" => format!("files = {{ {} }}", self.inline(&["root = \"/srv\""])),
            "response-header" => {
                let table = self.inline(&["header = \"X: y\"", "status = 404"]);
                format!("set_response_header = [{{ {table} }}]")
            }
            "header-replacement" => {
                let base = ["name = \"X\"", "regex = \"(.*)\"", "to = \"y\""];
                format!("replace_response_header = [{{ {} }}]", self.inline(&base))
            }
            _ => self.line.to_owned(),
        };
        let service = service("proxy", "protocol = \"http\"");
        let others = match page {
            "route" => self.others(base),
            "route-pool" | "files" => base[..1].to_vec(),
            _ => base.to_vec(),
        };
        let others = others.join("\n");
        format!("{POOL}{service}[[route]]\n{others}\n{required}{line}\n")
    }

    fn announce(&self) -> String {
        let speaker = match self.key {
            "speaker" => "",
            "pipe" => "speaker = \"exabgp\"",
            "command" => "speaker = \"gobgp\"",
            "asn" => "speaker = \"frr\"",
            "prefix_list" => "speaker = \"frr\"\nasn = 65001",
            _ => "speaker = \"bird\"",
        };
        let service = match self.key {
            "services" => {
                let names = self.line.split('"').skip(1).step_by(2);
                let services = names.zip(1..).map(|(name, port)| {
                    let service = service("direct", "");
                    let service = service.replace("service.images", &format!("service.{name}"));
                    service.replace(":80", &format!(":{port}"))
                });
                format!("{POOL}{}", services.collect::<String>())
            }
            _ => String::new(),
        };
        format!("{service}[announce]\n{speaker}\n{}\n", self.line)
    }

    fn sync(&self) -> String {
        let required = [
            "listen = \"10.0.0.7:8482\"",
            "peers = [\"10.0.0.8:8482\"]",
            "key = \"0123456789abcdef\"",
        ];
        let others = self.others(&required).join("\n");
        format!("[sync]\n{others}\n{}\n", self.line)
    }

    fn cluster(&self) -> String {
        let required = ["etcd = [\"https://10.0.0.7:2379\"]", "name = \"edge\""];
        let others = self.others(&required).join("\n");
        let companion = match self.key {
            "key" => "certificate = \"/c.pem\"",
            "user" => "password = \"secret\"",
            "password" => "user = \"weir\"",
            _ => "",
        };
        format!("[cluster]\n{others}\n{companion}\n{}\n", self.line)
    }

    fn vrrp(&self, page: &str) -> String {
        if page == "vrrp" {
            let required = [
                "virtual_router_id = 51",
                "interface = \"eth0\"",
                "addresses = [\"192.0.2.10/24\"]",
            ];
            let others = self.others(&required).join("\n");
            return format!("[vrrp.outside]\n{others}\n{}\n", self.line);
        }
        let frame = |key: &str, table: String| {
            format!(
                "[vrrp.outside]\nvirtual_router_id = 51\ninterface = \"eth0\"\naddresses = [\"192.0.2.10\"]\n\
                 {key} = {table}\n"
            )
        };
        const KEY: &str = "secret = \"0123456789abcdef0123456789abcdef\"";
        let keys = format!("keys = [{{ id = 1, {KEY} }}]");
        match page {
            "vrrp-interface" => {
                let base = ["interface = \"eth1\"", "addresses = [\"192.0.2.10\"]"];
                return frame(
                    "other_interfaces",
                    format!("[{{ {} }}]", self.inline(&base)),
                );
            }
            "vrrp-route" => {
                return frame(
                    "routes",
                    format!("[{{ {} }}]", self.inline(&["to = \"10.8.0.0/16\""])),
                );
            }
            "vrrp-rule" => {
                let base = ["from = \"192.0.2.10\"", "table = 100"];
                return frame("rules", format!("[{{ {} }}]", self.inline(&base)));
            }
            "vrrp-hmac" => return frame("hmac", format!("{{ {} }}", self.inline(&[&keys]))),
            "vrrp-hmac-key" => {
                let table = self.inline(&["id = 1", KEY]);
                return frame("hmac", format!("{{ keys = [{{ {table} }}] }}"));
            }
            _ => {}
        }
        let is_tracked_object = matches!(
            self.key,
            "interface" | "script" | "process" | "file" | "service" | "pool" | "data_plane"
        );
        let table = self.inline(if is_tracked_object {
            &[]
        } else {
            &["file = \"/x\""]
        });
        let others = match self.key {
            "pool" => POOL.to_owned(),
            "service" => format!("{POOL}{}", service("nat", "")),
            _ => String::new(),
        };
        format!("{others}{}", frame("track", format!("[{{ {table} }}]")))
    }
}

/// Returns a file with a check of the first kind that supports the key; the key is omitted if `line` is empty.
fn check_file(key: &str, line: &str) -> String {
    let mut kinds = catalog::CheckKind::ALL.into_iter();
    let kind = match catalog::CheckKind::is_kind_specific(key) {
        // `user` is a script's account on the director here, not a database user.
        true if key == "user" => Some(catalog::CheckKind::Script),
        true => kinds.find(|kind| kind.allows(key)),
        false => kinds.next(),
    };
    let kind = kind.expect("a kind with this key");
    let required_key = kind.required_keys().first();
    let required_key = required_key.filter(|key| !line.contains(&format!("{key} = ")));
    let required_key = required_key.and_then(|key| catalog::CHECK.key(key));
    let kind = kind.as_str();
    let line = match required_key {
        Some(key) => format!("{}\n{line}", key.example),
        None => line.to_owned(),
    };
    let kind = if key == "kind" {
        String::new()
    } else {
        format!("kind = \"{kind}\"\n")
    };
    format!("[pool.images]\nservers = [\"10.0.0.5\"]\n[pool.images.check]\n{kind}{line}\n")
}

fn errors(text: &str) -> Vec<String> {
    let Err(found) = parse(text, &Host::default()) else {
        return Vec::new();
    };
    // The service examples list an IPv6 VIP, which the IPv4 server of these examples cannot serve.
    found
        .iter()
        .filter(|diagnostic| diagnostic.severity() == crate::Severity::Error)
        .filter(|diagnostic| diagnostic.code != crate::Code::FamilyMismatch)
        .map(|diagnostic| diagnostic.message.clone())
        .collect()
}

#[test]
fn every_catalog_example_is_valid() {
    for section in catalog::PAGES {
        assert_eq!(
            errors(section.example),
            Vec::<String>::new(),
            "{}",
            section.example
        );
        for key in section.implemented_keys() {
            assert!(key.example.starts_with(key.name), "{}", key.name);
            let text = file_with(section, key.example);
            assert_eq!(errors(&text), Vec::<String>::new(), "{text}");
        }
    }
}

#[test]
fn explicit_defaults_equal_omitted_keys() {
    for section in catalog::PAGES {
        for key in section.implemented_keys() {
            let Presence::Default(text) = key.presence else {
                continue;
            };
            let without_key = match section.page {
                "scheduler" if key.name == "key" => file_with(section, "name = \"hash\""),
                "scheduler" => file_with(section, "name = \"mh\""),
                "access-log" => file_with(section, "path = \"/x\""),
                "sticky" => file_with(section, "cookie = \"SRV\""),
                "servers-dns" => file_with(section, "name = \"web.internal\""),
                "server" => file_with(section, "address = \"10.0.0.5\""),
                "tunnel" => file_with(section, "type = \"gue\""),
                "snat" => file_with(section, "addresses = []"),
                "service" => file_with(section, "pool = \"images\""),
                "check" => check_file(key.name, ""),
                "error-pages" => file_with(section, "redirect = \"/e\""),
                "announce" if key.name == "pipe" => file_with(section, "speaker = \"exabgp\""),
                _ => file_with(section, ""),
            };
            let with_key = file_with(
                section,
                &format!("{} = {}", key.name, quoted(&key.kind, text)),
            );
            let mut pair = [&without_key, &with_key]
                .map(|text| parse(text, &Host::default()).unwrap().desired);
            // Adding a line changes only positions.
            for desired in &mut pair {
                desired.pools.iter_mut().for_each(|pool| {
                    pool.source = weir_model::Source::default();
                    pool.servers
                        .iter_mut()
                        .for_each(|server| server.source = weir_model::Source::default());
                });
                desired
                    .services
                    .iter_mut()
                    .for_each(|service| service.source = weir_model::Source::default());
                desired
                    .proxies
                    .iter_mut()
                    .for_each(|proxy| proxy.source = weir_model::Source::default());
            }
            assert_eq!(pair[0], pair[1], "{with_key}");
        }
    }
}
