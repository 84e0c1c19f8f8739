//! Drives GoBGP through its command-line tool, and runs the command-line tools of all speakers.

use std::net::IpAddr;
use std::process::Stdio;

use tokio::process::Command;
use tokio::time::timeout;

use super::{COMMAND_TIMEOUT, Change, Outcome, prefix};
use crate::error::Result;
use crate::{Error, Quality};

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

/// Runs a program without a shell, and returns its output. Fails if the program fails or prints an error message.
pub(super) async fn run_command(
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
    if output.status.success() && !text.lines().any(|line| line.starts_with('%')) {
        return Ok(text);
    }
    let status = output.status.to_string();
    Err(Error::rejected(speaker, &text, &status))
}
