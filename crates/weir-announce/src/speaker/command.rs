//! Drives GoBGP and FRR through their command-line tools.

use std::net::IpAddr;
use std::process::Stdio;

use tokio::process::Command;
use tokio::time::timeout;

use super::{COMMAND_TIMEOUT, Change, prefix};
use crate::error::Result;
use crate::{Error, Quality};

/// Maximum length of the part of a reply that an error quotes.
const REPLY_MAX_CHARS: usize = 200;

/// Runs the `gobgp` commands for a change.
pub(super) async fn apply_gobgp(command: &[String], change: &Change<'_>) -> Result<()> {
    for arguments in gobgp_commands(change) {
        run_command("gobgp", command, &arguments).await?;
    }
    Ok(())
}

/// Returns the arguments for each call of `gobgp`.
pub(super) fn gobgp_commands(change: &Change<'_>) -> Vec<Vec<String>> {
    let arguments = |action: &str, vip: IpAddr| {
        let family = if vip.is_ipv4() { "ipv4" } else { "ipv6" };
        let words = ["global", "rib", "-a", family, action];
        let words = words.into_iter().map(str::to_owned);
        words.chain([prefix(vip)]).collect::<Vec<_>>()
    };
    let removed = change.removed_vips().map(|vip| arguments("del", *vip));
    let added = change.added_routes().map(|(vip, quality)| {
        let mut words = arguments("add", *vip);
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
    });
    removed.chain(added).collect()
}

/// Runs vtysh with the configuration commands for a change.
pub(super) async fn apply_frr(command: &[String], asn: u32, change: &Change<'_>) -> Result<()> {
    let arguments = frr_arguments(asn, change);
    run_command("frr", command, &arguments).await
}

/// Returns the arguments for one call of vtysh: route maps that set communities, and `network` statements. Each VIP
/// also gets a blackhole route, because FRR announces only networks with a route.
pub(super) fn frr_arguments(asn: u32, change: &Change<'_>) -> Vec<String> {
    let mut lines = vec!["configure terminal".to_owned()];
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
        if !communities.is_empty() {
            lines.push(format!("set community {}", communities.join(" ")));
        }
        lines.push("exit".to_owned());
    }
    let removed: Vec<IpAddr> = change.removed_vips().copied().collect();
    let added: Vec<(IpAddr, Quality)> = change.added_routes().map(|(vip, it)| (*vip, it)).collect();
    let route_keyword = |vip: IpAddr| if vip.is_ipv4() { "ip" } else { "ipv6" };
    for (vip, _) in &added {
        lines.push(format!(
            "{} route {} blackhole",
            route_keyword(*vip),
            prefix(*vip)
        ));
    }
    lines.push(format!("router bgp {asn}"));
    for (family, is_v4) in [("ipv4", true), ("ipv6", false)] {
        let is_in_family = |vip: &IpAddr| vip.is_ipv4() == is_v4;
        let removed = removed.iter().filter(|vip| is_in_family(vip));
        let removed = removed.map(|vip| format!("no network {}", prefix(*vip)));
        let added = added.iter().filter(|(vip, _)| is_in_family(vip));
        let added = added.map(|(vip, quality)| {
            let route_map = match quality {
                Quality::Normal => "WEIR",
                Quality::LastResort => "WEIR-DRAIN",
            };
            format!("network {} route-map {route_map}", prefix(*vip))
        });
        let statements: Vec<String> = removed.chain(added).collect();
        if !statements.is_empty() {
            lines.push(format!("address-family {family} unicast"));
            lines.extend(statements);
            lines.push("exit-address-family".to_owned());
        }
    }
    lines.push("exit".to_owned());
    for vip in &removed {
        lines.push(format!(
            "no {} route {} blackhole",
            route_keyword(*vip),
            prefix(*vip)
        ));
    }
    lines
        .into_iter()
        .flat_map(|line| ["-c".to_owned(), line])
        .collect()
}

/// Runs a program without a shell. Fails if the program fails or prints an error message.
async fn run_command(
    speaker: &'static str,
    command: &[String],
    arguments: &[String],
) -> Result<()> {
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
        return Ok(());
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
