//! Reports servers whose checks fail, with a fix for the cause that the check found.

use std::collections::BTreeSet;
use std::net::IpAddr;

use weir_model::{
    Desired, Forward, NO_RESPONSE_PREFIX, PATH_BROKEN_PREFIX, PathFailure, Server, Service,
    TunnelKind, Via,
};
use weir_netlink::NetState;

use crate::server_path::{is_unresolved, parse_ip, replies_must_pass_director, return_route_fix};
use crate::{Diagnosis, ServerReport, claimant, reach};

/// The command that verifies the fix on a server that must accept packets for the VIP.
const DOCTOR: &str = "weir real-server doctor";

/// Reports a server whose checks fail.
pub(crate) fn down_server(
    service: &str,
    server: &ServerReport,
    (desired, state): (&Desired, &NetState),
) -> Diagnosis {
    if server.is_recovering {
        return recovering_server(service, server);
    }
    let context = (desired, state);
    let observation = format!(
        "server {} of {service} is down: {}",
        server.address, server.reason
    );
    let address = parse_ip(&server.address);
    if let Some(address) = address.filter(|address| is_unresolved(*address, state)) {
        return Diagnosis::new(observation, "it gets no new flows").fix(format!(
            "make {address} reachable first; a separate finding reports that it, or the router to it, does not reply"
        ));
    }
    let failure = PathFailure::find_in(&server.reason);
    let is_routed = address.is_some_and(|address| reach::router(address, state).is_some());
    if is_routed && server.forward == "direct" && failure.is_some() {
        return Diagnosis::new(observation, "it gets no new flows")
            .fix("see the finding about the router on the path to it");
    }
    let fix = failure.and_then(|failure| path_fix(failure, service, server, desired));
    if let Some(fix) = fix {
        return Diagnosis::new(observation, "it gets no new flows").fix(fix);
    }
    if has_no_reply_through_director(service, server, desired) {
        let route = return_route_fix(service, server, context);
        let (consequence, fix) = match server.reason.starts_with(PATH_BROKEN_PREFIX) {
            true => (
                "it gets no new flows: its replies to clients do not return through this machine",
                route,
            ),
            false => (
                "it gets no new flows: its replies to clients do not return through this machine; or its application \
                 is not running, or a firewall blocks the port",
                format!(
                    "if its application is running and no firewall blocks the port, {route}; otherwise start the \
                     application, or allow the port in the firewall"
                ),
            ),
        };
        return Diagnosis::new(observation, consequence).fix(fix);
    }
    Diagnosis::new(observation, "it gets no new flows").fix(application_fix(server))
}

/// Reports a server whose last probes passed, but not yet often enough.
fn recovering_server(service: &str, server: &ServerReport) -> Diagnosis {
    let observation = format!(
        "server {} of {service} is down but recovering: {}",
        server.address, server.reason
    );
    Diagnosis::new(
        observation,
        "it gets no new flows until as many consecutive probes have passed as `rise` requires",
    )
    .fix("nothing to do, unless its probes fail again")
}

/// Returns the fix if the check has not found that the path is the cause.
fn application_fix(server: &ServerReport) -> String {
    let is_direct = matches!(server.forward.as_str(), "direct" | "tunnel" | "l3dsr");
    let is_running = server.reason.starts_with(PATH_BROKEN_PREFIX);
    if is_running && is_direct {
        return format!(
            "on that server: configure the application to listen on the VIP or on all addresses; then: {DOCTOR}"
        );
    }
    // The reason begins with the program or file of the check, not with the server's address.
    if server.reason.starts_with('/') {
        return "correct this program or file on this machine, or the check in the configuration"
            .to_owned();
    }
    let has_no_response = server.reason.contains(NO_RESPONSE_PREFIX);
    let start = match (parse_ip(&server.address), has_no_response) {
        (Some(address), true) => format!(
            "if ping -c 1 {address} receives no reply, start the server or correct its network; otherwise start its \
             application, correct the firewall that blocks the port"
        ),
        (None, true) => {
            "start its application, correct the firewall that blocks the port".to_owned()
        }
        (_, false) => "start its application".to_owned(),
    };
    let correct = "or correct its address and the check in the configuration";
    match is_direct {
        true => format!("{start}, {correct}; then on that server: {DOCTOR}"),
        false => format!("{start}, {correct}"),
    }
}

/// Returns the fix for a failure of the path; `None` if the service is not in the configuration.
fn path_fix(
    failure: PathFailure,
    service: &str,
    server: &ServerReport,
    desired: &Desired,
) -> Option<String> {
    let service = desired.service(service)?;
    Some(match failure {
        PathFailure::NoReply(vip) => {
            let up = preparation(service, server, desired, &vip.to_string());
            format!(
                "on that server: {DOCTOR}, which reports firewall rules and a missing VIP; if no VIP is configured \
                 there: {up}; if it finds nothing: check the firewalls and routes between the server and this machine"
            )
        }
        PathFailure::NotRestored(vip) => {
            let up = preparation(service, server, desired, &vip.to_string());
            format!("on that server: {up}; then: {DOCTOR}")
        }
        PathFailure::NoDecapsulation(_) => {
            let up = preparation(service, server, desired, &vips(service));
            format!("on that server: {up}; then: {DOCTOR}")
        }
        PathFailure::ClaimsVip(vip) => format!(
            "on that server: {}; {}",
            claimant::show_interface(vip),
            claimant::move_to_lo(vip, &server.forward)
        ),
        PathFailure::OtherMachine(vip) => format!(
            "remove {vip} from the machine that replies; or, if the server replies on another interface, use the \
             address of that interface in the configuration"
        ),
        PathFailure::Unreachable(vip) => format!(
            "on that server: {DOCTOR}, which reports what rejects packets for {vip}; then check the routers on the path"
        ),
    })
}

/// Returns the command that prepares a server for VIPs of a service.
fn preparation(service: &Service, server: &ServerReport, desired: &Desired, vips: &str) -> String {
    let forward = &server.forward;
    let configured = configured_server(service, server, desired);
    let up = format!("weir real-server up --forward {forward}");
    match forward.as_str() {
        "tunnel" => {
            let tunnel = configured.map_or(service.tunnel, |it| it.tunnel_in(service));
            let tunnel = match tunnel.kind {
                TunnelKind::Gue => format!("gue:{}", tunnel.port),
                kind @ (TunnelKind::Ipip | TunnelKind::Gre) => kind.to_string(),
            };
            format!("{up} --tunnel {tunnel} --vip {vips}")
        }
        "l3dsr" => format!("{up} --vip {vips} --dscp {}", service.dscp),
        _ => format!("{up} --vip {vips}"),
    }
}

/// Returns the addresses of a service's listeners, separated by spaces.
fn vips(service: &Service) -> String {
    let vips: BTreeSet<IpAddr> = service.listen.iter().map(|it| it.address).collect();
    let vips: Vec<String> = vips.iter().map(ToString::to_string).collect();
    match vips.is_empty() {
        // Services that firewall marks select have no listeners.
        true => "VIP".to_owned(),
        false => vips.join(" "),
    }
}

fn configured_server<'a>(
    service: &Service,
    server: &ServerReport,
    desired: &'a Desired,
) -> Option<&'a Server> {
    let mut servers = desired.pool(&service.pool)?.servers.iter();
    servers.find(|it| it.name == server.address)
}

/// Returns whether a probe whose reply had to pass through this machine received no reply: with `nat` and without
/// source rewriting, probes along the path use the VIP as their source.
fn has_no_reply_through_director(service: &str, server: &ServerReport, desired: &Desired) -> bool {
    let Some(service) = desired.service(service) else {
        return false;
    };
    let configured = configured_server(service, server, desired);
    let uses_path = || {
        let pool = desired.pool(&service.pool);
        let checks = pool.zip(configured).map(|(pool, it)| pool.checks_of(it));
        checks.is_some_and(|checks| checks.iter().any(|check| check.target.via == Via::Path))
    };
    server.forward == Forward::Nat.as_str()
        && replies_must_pass_director(&service.name, server, desired)
        && server.reason.contains(NO_RESPONSE_PREFIX)
        && (server.reason.starts_with(PATH_BROKEN_PREFIX) || uses_path())
}

#[cfg(test)]
mod tests {
    use weir_config::{Host, parse};

    use super::*;

    fn fix(forward: &str, via: &str, reason: &str) -> String {
        let text = format!(
            "[pool.web]\nservers = [\"10.0.0.5\"]\ncheck = {{ kind = \"tcp\", via = \"{via}\" }}\n[service.web]\n\
             listen = [\"10.0.0.10:80\", \"10.0.0.11:80\"]\npool = \"web\"\n{forward}\n"
        );
        let desired = parse(&text, &Host::default()).unwrap().desired;
        let server = ServerReport {
            address: "10.0.0.5".to_owned(),
            forward: desired.services[0].forward.to_string(),
            state: "down".to_owned(),
            reason: reason.to_owned(),
            ..ServerReport::default()
        };
        let state = NetState::default();
        let found = down_server("web", &server, (&desired, &state));
        found.fix.expect("a down server has a fix")
    }

    #[test]
    fn broken_paths_are_fixed_by_preparing_the_server() {
        for (forward, reason, command) in [
            (
                "forward = \"l3dsr\"",
                PathFailure::NotRestored([10, 0, 0, 10].into()).to_string(),
                "--forward l3dsr --vip 10.0.0.10 --dscp 1; then",
            ),
            (
                "forward = \"tunnel\"",
                format!(
                    "{PATH_BROKEN_PREFIX}{}",
                    PathFailure::NoDecapsulation(TunnelKind::Ipip)
                ),
                "--forward tunnel --tunnel ipip --vip 10.0.0.10 10.0.0.11; then",
            ),
            (
                "forward = \"tunnel\"\ntunnel = { type = \"gue\", port = 7000 }",
                format!(
                    "{} (no response within 1s)",
                    PathFailure::NoReply([10, 0, 0, 11].into())
                ),
                "--forward tunnel --tunnel gue:7000 --vip 10.0.0.11; if it finds nothing",
            ),
            (
                "forward = \"direct\"",
                format!(
                    "{} (no response within 1s)",
                    PathFailure::NoReply([10, 0, 0, 10].into())
                ),
                "--forward direct --vip 10.0.0.10; if it finds nothing",
            ),
            (
                "forward = \"direct\"",
                PathFailure::ClaimsVip([10, 0, 0, 10].into()).to_string(),
                "ip addr del 10.0.0.10/PREFIX dev INTERFACE; then weir real-server up --forward direct",
            ),
        ] {
            let fix = fix(forward, "path", &reason);
            assert!(fix.contains(command), "{reason}: {fix}");
            assert!(!fix.contains("application"), "{reason}: {fix}");
        }
    }

    /// A timeout has several causes. `up` prints "nothing to do" on a prepared server.
    #[test]
    fn missing_reply_is_examined_on_the_server_first() {
        let failure = PathFailure::NoReply([10, 0, 0, 10].into());
        let reason = format!("{PATH_BROKEN_PREFIX}{failure} (no response within 1s)");
        let fix = fix("forward = \"direct\"", "both", &reason);
        let first = fix.split_once(',').map(|(first, _)| first);
        assert_eq!(
            first,
            Some("on that server: weir real-server doctor"),
            "{fix}"
        );
        assert!(fix.contains("firewall"), "{fix}");
    }

    #[test]
    fn recovering_server_needs_no_fix() {
        let find = |is_recovering| {
            let server = ServerReport {
                address: "10.0.0.5:80".to_owned(),
                forward: "direct".to_owned(),
                state: "down".to_owned(),
                reason: "http 200 in 2.6ms (passed 1 of 2)".to_owned(),
                is_recovering,
                ..ServerReport::default()
            };
            let (desired, state) = (Desired::default(), NetState::default());
            down_server("web", &server, (&desired, &state))
        };
        let found = find(true);
        let expected =
            "server 10.0.0.5:80 of web is down but recovering: http 200 in 2.6ms (passed 1 of 2)";
        assert_eq!(found.observation, expected);
        let fix = found.fix.unwrap_or_default();
        assert!(fix.starts_with("nothing to do"), "{fix}");
        let failed = find(false).fix.unwrap_or_default();
        assert!(failed.starts_with("start its application"), "{failed}");
    }

    #[test]
    fn nat_server_without_reply_through_the_director_needs_a_route() {
        let (nat, snat) = ("forward = \"nat\"", "forward = \"nat\"\nsnat = true");
        let path = "no response within 1s (10.0.0.5:80 for VIP 10.0.0.10)";
        let broken = format!("{PATH_BROKEN_PREFIX}{path}");
        let direct = "10.0.0.5:80: no response within 1s";
        let refused = "connection refused (10.0.0.5:80 for VIP 10.0.0.10)";
        for (forward, via, reason, has_route, has_application) in [
            (nat, "path", path, true, true),
            (nat, "both", &broken, true, false),
            (nat, "both", direct, false, true),
            (nat, "path", refused, false, true),
            (nat, "server", direct, false, true),
            (snat, "path", path, false, true),
        ] {
            let fix = fix(forward, via, reason);
            let actual = (
                fix.contains("route replace default via") && fix.contains("snat = true"),
                fix.contains("application"),
            );
            assert_eq!(
                actual,
                (has_route, has_application),
                "{via} {reason}: {fix}"
            );
        }
    }

    #[test]
    fn server_without_response_may_be_unreachable() {
        let fix = |reason| fix("forward = \"direct\"", "server", reason);
        let silent_fix = fix("10.0.0.5:80: no response within 1s");
        assert!(
            silent_fix.starts_with("if ping -c 1 10.0.0.5 receives no reply"),
            "{silent_fix}"
        );
        // If the machine replies to ping, a firewall may block the port. A refused connection rules this out.
        let firewall = "otherwise start its application, correct the firewall that blocks the port, or correct";
        assert!(silent_fix.contains(firewall), "{silent_fix}");
        let refused = fix("10.0.0.5:80: connection refused");
        assert!(refused.starts_with("start its application"), "{refused}");
        assert!(!refused.contains("firewall"), "{refused}");
        let program = fix("/opt/check: No such file or directory");
        assert!(program.starts_with("correct this program"), "{program}");
        let other_address = fix("server up, path broken: connection refused at 10.0.0.10:80");
        assert!(
            other_address.contains("listen on the VIP"),
            "{other_address}"
        );
    }

    #[test]
    fn server_without_link_layer_address_must_be_reachable_first() {
        let (desired, state) = (Desired::default(), crate::reach::tests::state(None, None));
        let server = ServerReport {
            address: "10.9.0.2:80".to_owned(),
            forward: "direct".to_owned(),
            reason: "10.9.0.2:80: no response within 1s".to_owned(),
            ..ServerReport::default()
        };
        let found = down_server("web", &server, (&desired, &state)).to_string();
        assert!(found.contains("make 10.9.0.2 reachable first"), "{found}");
        assert!(!found.contains("application"), "{found}");
    }
}
