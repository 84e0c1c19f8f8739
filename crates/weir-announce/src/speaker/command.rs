//! Drives GoBGP and FRR through their command-line tools.

use std::net::IpAddr;
use std::process::Stdio;

use tokio::process::Command;
use tokio::time::timeout;

use super::{COMMAND_TIMEOUT, Change, Outcome, prefix};
use crate::error::Result;
use crate::{Error, Quality};

/// Maximum length of the part of a reply that an error quotes.
const REPLY_MAX_CHARS: usize = 200;
/// FRR's replies to the removal of a `network` statement and of a static route that it does not have, for example
/// because it was restarted.
const MISSING_REPLIES: [&str; 2] = [
    "% Can't find static route specified",
    "% Refusing to remove a non-existent route",
];

/// Runs the `gobgp` commands for a change. A route that cannot be withdrawn does not block the announcements.
pub(super) async fn apply_gobgp(command: &[String], change: &Change<'_>) -> Outcome {
    let mut outcome = Outcome::default();
    for vip in &change.removed {
        match run_command("gobgp", command, &gobgp_withdrawal(*vip)).await {
            Ok(_) => outcome.withdrawn.push(*vip),
            Err(error) => outcome.add_error(error),
        }
    }
    for (vip, quality) in &change.added {
        let arguments = gobgp_announcement(change, *vip, *quality);
        match run_command("gobgp", command, &arguments).await {
            Ok(_) => outcome.announced.push(*vip),
            Err(error) => outcome.add_error(error),
        }
    }
    outcome
}

/// Returns the arguments of `gobgp` that withdraw a route.
pub(super) fn gobgp_withdrawal(vip: IpAddr) -> Vec<String> {
    gobgp_arguments("del", vip)
}

/// Returns the arguments of `gobgp` that announce a route.
pub(super) fn gobgp_announcement(
    change: &Change<'_>,
    vip: IpAddr,
    quality: Quality,
) -> Vec<String> {
    let mut words = gobgp_arguments("add", vip);
    let next_hop = if vip.is_ipv4() { "0.0.0.0" } else { "::" };
    // The default origin is "incomplete". Routers use multiple paths only if their origins are equal.
    let attributes = ["origin", "igp", "nexthop", next_hop];
    words.extend(attributes.into_iter().map(str::to_owned));
    let communities: Vec<String> = change
        .communities(quality)
        .map(|it| it.to_string())
        .collect();
    if !communities.is_empty() {
        words.extend(["community".to_owned(), communities.join(",")]);
    }
    words
}

fn gobgp_arguments(action: &str, vip: IpAddr) -> Vec<String> {
    let family = if vip.is_ipv4() { "ipv4" } else { "ipv6" };
    let words = ["global", "rib", "-a", family, action];
    let words = words.into_iter().map(str::to_owned);
    words.chain([prefix(vip)]).collect()
}

/// Returns whether two `gobgp` commands show the same route to a VIP. They then control the same GoBGP, because the
/// output contains the time at which the route was announced. If the output changes between the two calls, returns
/// false.
///
/// # Errors
/// Returns an error if the GoBGP of `command` does not respond.
pub(super) async fn is_same_gobgp_route(
    command: &[String],
    other: &[String],
    vip: IpAddr,
) -> Result<bool> {
    let family = if vip.is_ipv4() { "ipv4" } else { "ipv6" };
    let prefix = prefix(vip);
    let query = ["global", "rib", "-a", family, &prefix, "-j"].map(str::to_owned);
    let route = match run_command("gobgp", command, &query).await {
        Ok(route) => route,
        // `gobgp` also fails if GoBGP has no such route.
        Err(error @ Error::Rejected { .. }) if !error.is_not_running() => return Ok(false),
        Err(error) => return Err(error),
    };
    let is_same = route.contains(&prefix)
        && run_command("gobgp", other, &query)
            .await
            .is_ok_and(|it| it == route);
    Ok(is_same)
}

/// Runs vtysh with the configuration commands for a change. Withdrawals and announcements are separate calls, because
/// vtysh stops at the first command that fails.
pub(super) async fn apply_frr(command: &[String], asn: u32, change: &Change<'_>) -> Outcome {
    let mut outcome = Outcome::default();
    if !change.removed.is_empty() {
        withdraw_from_frr(command, asn, &change.removed, &mut outcome).await;
    }
    // Without any route, the call checks that FRR accepts the settings.
    if !change.added.is_empty() || change.removed.is_empty() {
        match run_command("frr", command, &frr_announcements(asn, change)).await {
            Ok(_) => outcome
                .announced
                .extend(change.added.iter().map(|(vip, _)| *vip)),
            Err(error) => outcome.add_error(error),
        }
    }
    outcome
}

/// Withdraws the routes to `vips` with one call of vtysh, or with a call for each statement if FRR does not have some
/// of them.
async fn withdraw_from_frr(command: &[String], asn: u32, vips: &[IpAddr], outcome: &mut Outcome) {
    match run_command("frr", command, &frr_withdrawals(asn, vips)).await {
        Ok(_) => {
            outcome.withdrawn.extend(vips);
            return;
        }
        Err(error) if !is_missing(&error) => {
            outcome.add_error(error);
            return;
        }
        Err(_) => {}
    }
    for vip in vips {
        let mut is_withdrawn = true;
        for statement in [remove_networks(asn, &[*vip]), remove_routes(&[*vip])] {
            match run_command("frr", command, &configuration(statement)).await {
                Err(error) if !is_missing(&error) => {
                    is_withdrawn = false;
                    let is_rejection = matches!(error, Error::Rejected { .. });
                    outcome.add_error(error);
                    // Each further call would wait for the time limit too.
                    if !is_rejection {
                        return;
                    }
                }
                _ => {}
            }
        }
        if is_withdrawn {
            outcome.withdrawn.push(*vip);
        }
    }
}

/// Returns whether FRR does not have the statement that was to be removed.
fn is_missing(error: &Error) -> bool {
    matches!(error, Error::Rejected { reply, .. } if MISSING_REPLIES.contains(&reply.trim_end()))
}

/// Returns the arguments of vtysh that withdraw routes.
pub(super) fn frr_withdrawals(asn: u32, vips: &[IpAddr]) -> Vec<String> {
    let networks = remove_networks(asn, vips).into_iter();
    configuration(networks.chain(remove_routes(vips)))
}

fn remove_networks(asn: u32, vips: &[IpAddr]) -> Vec<String> {
    let statement = |vip: &IpAddr| (*vip, format!("no network {}", prefix(*vip)));
    router_bgp(asn, vips.iter().map(statement).collect())
}

fn remove_routes(vips: &[IpAddr]) -> Vec<String> {
    let routes = vips.iter().map(|vip| blackhole_route(*vip));
    routes.map(|route| format!("no {route}")).collect()
}

/// Returns the arguments of vtysh that announce routes: route maps that set communities, and `network` statements. Each
/// VIP also gets a blackhole route, because FRR announces only networks with a route.
pub(super) fn frr_announcements(asn: u32, change: &Change<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, quality) in [
        ("WEIR", Quality::Normal),
        ("WEIR-DRAIN", Quality::LastResort),
    ] {
        lines.push(format!("route-map {name} permit 10"));
        lines.push("set origin igp".to_owned());
        let communities: Vec<String> = change
            .communities(quality)
            .map(|it| it.to_string())
            .collect();
        lines.push(match communities.as_slice() {
            // The route map may have communities of earlier settings.
            [] => "no set community".to_owned(),
            communities => format!("set community {}", communities.join(" ")),
        });
        lines.push("exit".to_owned());
    }
    lines.extend(change.added.iter().map(|(vip, _)| blackhole_route(*vip)));
    let network = |(vip, quality): &(IpAddr, Quality)| {
        let route_map = match quality {
            Quality::Normal => "WEIR",
            Quality::LastResort => "WEIR-DRAIN",
        };
        let statement = format!("network {} route-map {route_map}", prefix(*vip));
        (*vip, statement)
    };
    lines.extend(router_bgp(asn, change.added.iter().map(network).collect()));
    configuration(lines)
}

fn blackhole_route(vip: IpAddr) -> String {
    let keyword = if vip.is_ipv4() { "ip" } else { "ipv6" };
    format!("{keyword} route {} blackhole", prefix(vip))
}

/// Returns the configuration of BGP with a statement for each VIP, in the VIP's address family.
fn router_bgp(asn: u32, statements: Vec<(IpAddr, String)>) -> Vec<String> {
    let (v4, v6): (Vec<_>, Vec<_>) = statements.into_iter().partition(|(vip, _)| vip.is_ipv4());
    let mut lines = vec![format!("router bgp {asn}")];
    for (family, statements) in [("ipv4", v4), ("ipv6", v6)] {
        if !statements.is_empty() {
            lines.push(format!("address-family {family} unicast"));
            lines.extend(statements.into_iter().map(|(_, statement)| statement));
            lines.push("exit-address-family".to_owned());
        }
    }
    lines.push("exit".to_owned());
    lines
}

/// Returns the arguments of vtysh for configuration commands.
fn configuration(lines: impl IntoIterator<Item = String>) -> Vec<String> {
    ["configure terminal".to_owned()]
        .into_iter()
        .chain(lines)
        .flat_map(|line| ["-c".to_owned(), line])
        .collect()
}

/// Runs a program without a shell, and returns its output. Fails if the program fails or prints an error message.
async fn run_command(
    speaker: &'static str,
    command: &[String],
    arguments: &[String],
) -> Result<String> {
    let (program, options) = command.split_first().ok_or(Error::Rejected {
        speaker,
        reply: "`command` is empty".to_owned(),
    })?;
    let output = Command::new(program)
        .args(options)
        .args(arguments)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = timeout(COMMAND_TIMEOUT, output)
        .await
        .map_err(|_| Error::Timeout { speaker })?
        .map_err(|source| Error::Program {
            program: program.clone(),
            source,
        })?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    // For an unknown command, vtysh prints a line that begins with a percent sign, but can still exit with 0.
    let error_line = text.lines().find(|line| line.starts_with('%'));
    if output.status.success() && error_line.is_none() {
        return Ok(text);
    }
    let reply = error_line.unwrap_or(text.trim());
    Err(Error::Rejected {
        speaker,
        reply: match reply {
            "" => output.status.to_string(),
            reply => reply.chars().take(REPLY_MAX_CHARS).collect(),
        },
    })
}
