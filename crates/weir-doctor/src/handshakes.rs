//! Reports servers and services whose clients' handshakes do not complete, although checks may pass.

use weir_model::{Desired, NO_REPLY_LIFETIME, Service};
use weir_netlink::NetState;

use crate::server_path::{has_ipv4_vip, parse_ip, replies_must_pass_director, return_route_fix};
use crate::{Diagnosis, Handshakes, ServerReport, ServiceReport, reach};

/// Minimum number of SYNs without an established connection before a problem is reported.
const MIN_SYNS: u64 = 10;

/// Returns whether the daemon itself warns about a server if its clients receive no reply. Such a server is not
/// reported here: the number of SYNs includes old ones, whereas the daemon's warning ends if no client tries again.
fn is_watched(service: &str, server: &ServerReport, desired: &Desired) -> bool {
    server.state == "up"
        && server.packets_out == 0
        && replies_must_pass_director(service, server, desired)
}

/// Returns whether SYNs were sent to a server recently. Otherwise its clients may have reached other servers since the
/// problem was fixed.
fn are_recent(handshakes: &Handshakes) -> bool {
    let age = handshakes.last_syn_seconds;
    age.is_none_or(|seconds| seconds < NO_REPLY_LIFETIME.as_secs())
}

/// Returns the age of the last SYN for an observation; empty if it is unknown.
fn age_of_last_syn(seconds: Option<u64>) -> String {
    seconds.map_or_else(String::new, |seconds| {
        format!(" (last SYN {seconds} s ago)")
    })
}

/// Adds the event that ends the finding to its consequence. The fix alone does not end it, because the next client may
/// reach another server.
fn with_end(finding: Diagnosis, servers: &str) -> Diagnosis {
    let consequence = format!(
        "{}. This finding ends with the first handshake that a client completes with {servers}, or {} min after the \
         last SYN",
        finding.consequence,
        NO_REPLY_LIFETIME.as_secs() / 60
    );
    Diagnosis {
        consequence,
        ..finding
    }
}

/// Reports a server whose handshakes never complete although those of other servers do.
pub(crate) fn server_without_handshakes(
    service: &str,
    server: &ServerReport,
    context: (&Desired, &NetState),
) -> Option<Diagnosis> {
    let handshakes = server.handshakes.as_ref();
    let handshakes = handshakes.filter(|it| it.completed == 0 && are_recent(it))?;
    let syns = handshakes.syns;
    let is_reported =
        server.warning.is_some() || server.ejected.is_some() || server.state == "down";
    if syns < MIN_SYNS || is_reported || is_watched(service, server, context.0) {
        return None;
    }
    let address = parse_ip(&server.address).filter(|_| server.forward == "direct");
    let router = address.and_then(|address| Some((address, reach::router(address, context.1)?)));
    if let Some((address, router)) = router {
        return Some(reach::routed_server(service, address, router));
    }
    let observation = format!(
        "{syns} SYNs were sent to server {} of {service}, and no handshake has completed{}",
        server.address,
        age_of_last_syn(handshakes.last_syn_seconds)
    );
    let finding = if replies_must_pass_director(service, server, context.0) {
        let consequence = "it does not reply, or its replies do not return through this machine";
        Diagnosis::new(observation, consequence).fix(return_route_fix(service, server, context))
    } else if server.forward == "nat" {
        let consequence = "handshakes with other servers complete: this server does not reply, or a firewall on the \
                           path drops the packets";
        Diagnosis::new(observation, consequence)
            .fix("correct the server's application, or the firewalls on the path to it")
    } else {
        let consequence = format!(
            "handshakes with other servers complete: this server does not have the VIP, its firewall drops the \
             packets,{} or its replies are lost",
            gateway_cause(&server.forward, context.0.service(service))
        );
        Diagnosis::new(observation, consequence).fix("on that server: weir real-server doctor")
    };
    Some(with_end(finding, "this server"))
}

/// Returns the text for the cause that this machine is the servers' default gateway; empty unless the servers reply
/// from an IPv4 VIP.
fn gateway_cause(forward: &str, service: Option<&Service>) -> &'static str {
    let replies_from_vip = matches!(forward, "direct" | "tunnel" | "l3dsr");
    match replies_from_vip && service.is_some_and(has_ipv4_vip) {
        true => {
            " its default gateway is this director, which drops replies whose source is the VIP,"
        }
        false => "",
    }
}

/// Reports a `nat` service whose handshakes with all servers fail to complete. `age` is the age of the last SYN.
fn nat_without_handshakes(
    service: &ServiceReport,
    (syns, age): (u64, &str),
    context: (&Desired, &NetState),
) -> Diagnosis {
    let observation = format!(
        "{syns} SYNs were sent to the servers of {}, and no handshake has completed{age}",
        service.name
    );
    let mut servers = service.servers.iter().filter(|server| !server.removed);
    let server =
        servers.find(|server| replies_must_pass_director(&service.name, server, context.0));
    match server {
        Some(server) => {
            let route = return_route_fix(&service.name, server, context);
            Diagnosis::new(
                observation,
                "the servers do not reply, or their replies do not return through this machine. A check shows which is \
                 the case",
            )
            .fix(format!("add a check to the pool; then {route}"))
        }
        None => Diagnosis::new(observation, "the servers do not reply")
            .fix("correct the servers' applications, or the firewalls on the path to them"),
    }
}

/// Reports a service whose handshakes with all servers fail to complete: packets from the VIP are lost on their path.
pub(crate) fn service_without_handshakes(
    service: &ServiceReport,
    context: (&Desired, &NetState),
) -> Option<Diagnosis> {
    let servers = service.servers.iter().filter(|server| !server.removed);
    let unwatched = servers.filter(|server| !is_watched(&service.name, server, context.0));
    let unwatched = unwatched.filter_map(|server| server.handshakes);
    let recent: Vec<Handshakes> = unwatched.filter(are_recent).collect();
    let syns: u64 = recent.iter().map(|handshakes| handshakes.syns).sum();
    let last_syn = recent.iter().filter_map(|it| it.last_syn_seconds).min();
    let age = age_of_last_syn(last_syn);
    let is_reported = service
        .servers
        .iter()
        .any(|server| server.warning.is_some());
    if syns < MIN_SYNS || is_reported {
        return None;
    }
    if service.forward == "nat" {
        let finding = nat_without_handshakes(service, (syns, &age), context);
        return Some(with_end(finding, "one of them"));
    }
    let gateway = match gateway_cause(&service.forward, context.0.service(&service.name)) {
        "" => "",
        _ => {
            " this director is the servers' default gateway and drops replies whose source is the VIP,"
        }
    };
    let finding =
        Diagnosis::new(
            format!(
                "{syns} SYNs reached the servers of {}, and no handshake has completed{age}",
                service.name
            ),
            format!(
                "the servers reply from the VIP: a router, switch or firewall upstream drops packets with an \
                 unexpected source (reverse path filter, port security, source guard), a stateful firewall on the \
                 path sees only one direction and drops packets as invalid,{gateway} or no server has the VIP"
            ),
        )
        .fix("run `weir real-server doctor` on each server; if it finds nothing, allow packets from the VIP upstream");
    Some(with_end(finding, "one of them"))
}

#[cfg(test)]
mod tests {
    use weir_config::{Host, parse};

    use super::*;
    fn desired(vip: &str, keys: &str) -> Desired {
        let text = format!(
            "[pool.p]\nservers = [\"10.0.0.5\"]\n[service.web]\nlisten = [\"{vip}:80\"]\npool = \"p\"\n{keys}\n"
        );
        parse(&text, &Host::default()).unwrap().desired
    }

    fn service(forward: &str) -> ServiceReport {
        let server = ServerReport {
            address: "10.0.0.5".to_owned(),
            forward: forward.to_owned(),
            handshakes: Some(Handshakes {
                syns: 16,
                ..Handshakes::default()
            }),
            ..ServerReport::default()
        };
        ServiceReport {
            name: "web".to_owned(),
            forward: forward.to_owned(),
            servers: vec![server],
        }
    }

    /// Linux drops IPv4 packets whose source is the VIP, and forwards IPv6 packets.
    #[test]
    fn missing_handshakes_can_be_caused_by_the_default_gateway() {
        let state = NetState::default();
        for (forward, vip, is_cause) in [
            ("direct", "10.0.0.10", true),
            ("tunnel", "10.0.0.10", true),
            ("tunnel", "[2001:db8::10]", false),
            ("nat", "10.0.0.10", false),
        ] {
            let desired = desired(vip, &format!("forward = \"{forward}\""));
            let service = service(forward);
            let server = server_without_handshakes("web", &service.servers[0], (&desired, &state));
            let service = service_without_handshakes(&service, (&desired, &state));
            for found in [server, service].map(|found| found.expect("a finding")) {
                let text = &found.consequence;
                assert_eq!(text.contains("default gateway"), is_cause, "{text}");
            }
        }
    }

    /// Otherwise, SYNs from before the server was prepared would be reported until a client reaches the server.
    #[test]
    fn old_syns_are_not_reported() {
        let state = NetState::default();
        let desired = desired("10.0.0.10", "forward = \"direct\"");
        for (age, is_found) in [(None, true), (Some(12), true), (Some(300), false)] {
            let mut service = service("direct");
            let handshakes = service.servers[0].handshakes.as_mut().unwrap();
            handshakes.last_syn_seconds = age;
            let server = server_without_handshakes("web", &service.servers[0], (&desired, &state));
            let service = service_without_handshakes(&service, (&desired, &state));
            for found in [server, service] {
                assert_eq!(found.is_some(), is_found, "{age:?}");
                let Some(found) = found else { continue };
                let is_shown = found.observation.ends_with("completed (last SYN 12 s ago)");
                assert_eq!(is_shown, age.is_some(), "{found}");
                let end = "or 5 min after the last SYN";
                assert!(found.consequence.ends_with(end), "{found}");
            }
        }
    }

    /// Otherwise, SYNs from before a corrected route would be reported until a client reaches the server.
    #[test]
    fn old_syns_of_watched_servers_are_not_reported() {
        let state = NetState::default();
        for (keys, server_state, packets_out, is_found) in [
            ("", "up", 0, false),
            ("", "up", 3, true),
            ("", "unchecked", 0, true),
            ("snat = true", "up", 0, true),
        ] {
            let desired = desired("10.0.0.10", &format!("forward = \"nat\"\n{keys}"));
            let mut service = service("nat");
            server_state.clone_into(&mut service.servers[0].state);
            service.servers[0].packets_out = packets_out;
            let server = server_without_handshakes("web", &service.servers[0], (&desired, &state));
            let service = service_without_handshakes(&service, (&desired, &state));
            let actual = (server.is_some(), service.is_some());
            let case = format!("{keys} {server_state} {packets_out}");
            assert_eq!(actual, (is_found, is_found), "{case}");
        }
    }

    #[test]
    fn nat_without_handshakes_has_a_fix() {
        let state = NetState::default();
        let route = "ip route replace default via";
        for (keys, of_server, of_service) in [
            ("forward = \"nat\"", route, route),
            (
                "forward = \"nat\"\nsnat = true",
                "correct the server's application",
                "correct the servers' applications",
            ),
        ] {
            let desired = desired("10.0.0.10", keys);
            let service = service("nat");
            let server = server_without_handshakes("web", &service.servers[0], (&desired, &state));
            let service = service_without_handshakes(&service, (&desired, &state));
            for (found, expected) in [(server, of_server), (service, of_service)] {
                let found = found.expect("a finding");
                let fix = found.fix.as_deref().expect("a fix");
                assert!(fix.contains(expected), "{fix}");
                assert_eq!(
                    found.consequence.contains("return through this machine"),
                    !keys.contains("snat"),
                    "{found}"
                );
            }
        }
    }
}
