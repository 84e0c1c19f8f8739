//! Drives FRR: configures `network` statements, route maps and blackhole routes over the sockets of its daemons. Where
//! a socket is not accessible, it runs vtysh, which takes about 50 ms.
//!
//! bgpd waits 50 ms before it selects paths again, and then sends a withdrawal. A removed network is no longer valid in
//! the meantime, and bgpd sends the withdrawal immediately if it filters its routes again, which it does when the
//! prefix list of a neighbor changes. After a withdrawal, Weir therefore adds an entry to `prefix_list` that matches no
//! route, and removes it again. If this fails, the withdrawal is only slower.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use tokio::time::timeout;
use weir_model::Family;

use super::command::run_command;
use super::vty::Connection;
use super::{COMMAND_TIMEOUT, Change, Outcome, prefix};
use crate::error::Result;
use crate::{Error, Quality};

/// FRR's replies to the removal of a `network` statement and of a static route that it does not have, for example
/// because it was restarted.
const MISSING_REPLIES: [&str; 2] = [
    "% Can't find static route specified",
    "% Refusing to remove a non-existent route",
];
/// Directory of the sockets, unless a vtysh option specifies a different one.
const SOCKET_DIRECTORY: &str = "/var/run/frr";
const BGPD_SOCKET: &str = "bgpd.vty";
const STATICD_SOCKET: &str = "staticd.vty";
/// If this socket exists (FRR 9 and later), static routes are configured in mgmtd, which only vtysh can control.
const MGMTD_SOCKET: &str = "mgmtd.vty";
/// Sequence number of the entry that Weir adds to the prefix list. FRR assigns 5, 10 and so on to entries without one.
const ENTRY_SEQUENCE: u8 = 1;
const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

/// An FRR instance, and how it is controlled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frr<'a> {
    /// vtysh and its options.
    pub(super) command: &'a [String],
    /// AS number in `router bgp`.
    pub(super) asn: u32,
    pub(super) prefix_list: Option<&'a str>,
}

impl Frr<'_> {
    /// Executes the configuration commands for a change.
    pub(super) async fn apply(&self, change: &Change<'_>) -> Outcome {
        let mut outcome = Outcome::default();
        if !change.removed.is_empty() {
            self.withdraw(&change.removed, &mut outcome).await;
        }
        // Without any route, the commands check that FRR accepts the settings.
        if !change.added.is_empty() || change.removed.is_empty() {
            match self.configure(&announcements(self.asn, change)).await {
                Ok(()) => outcome
                    .announced
                    .extend(change.added.iter().map(|(vip, _)| *vip)),
                Err(error) => outcome.add_error(error),
            }
        }
        // After an error, skip this check: a speaker that does not respond would delay the next step even more.
        if outcome.error.is_none() {
            let checked: Vec<Family> = outcome.warnings.iter().map(|it| it.0).collect();
            let mut families = families(change.routes.keys());
            families.retain(|family| !checked.contains(family));
            let warnings = self.use_prefix_lists(&families, false).await;
            outcome.warnings.extend(warnings);
        }
        outcome
    }

    /// Withdraws the routes to `vips`.
    async fn withdraw(&self, vips: &[IpAddr], outcome: &mut Outcome) {
        let networks = |vips: &[IpAddr]| remove_networks(self.asn, vips);
        let vips = self.remove(vips, networks, outcome).await;
        if vips.is_empty() {
            return;
        }
        outcome.warnings = self.use_prefix_lists(&families(vips.iter()), true).await;
        outcome.withdrawn = self.remove(&vips, remove_routes, outcome).await;
    }

    /// Removes the statements for `vips` with one sequence of commands, or with a sequence for each VIP if FRR does not
    /// have some of them. Returns the VIPs for which FRR no longer has statements.
    async fn remove(
        &self,
        vips: &[IpAddr],
        commands: impl Fn(&[IpAddr]) -> Vec<String>,
        outcome: &mut Outcome,
    ) -> Vec<IpAddr> {
        match self.configure(&commands(vips)).await {
            Ok(()) => return vips.to_vec(),
            Err(error) if is_missing(&error) => {}
            Err(error) => {
                outcome.add_error(error);
                return Vec::new();
            }
        }
        let mut removed = Vec::new();
        for vip in vips {
            match self.configure(&commands(&[*vip])).await {
                Err(error) if !is_missing(&error) => {
                    let is_rejection = matches!(error, Error::Rejected { .. });
                    outcome.add_error(error);
                    // Each further sequence would wait for the time limit too.
                    if !is_rejection {
                        break;
                    }
                }
                _ => removed.push(*vip),
            }
        }
        removed
    }

    /// Checks the prefix lists of address families, and removes entries that a killed Weir left. If `filter_again`,
    /// makes bgpd filter its routes again. Returns for each family why its list cannot be used; `None` = it can. This
    /// is not an error, because the routes are correct without the lists.
    async fn use_prefix_lists(
        &self,
        families: &[Family],
        filter_again: bool,
    ) -> Vec<(Family, Option<String>)> {
        let Some(name) = self.prefix_list.filter(|_| !families.is_empty()) else {
            return Vec::new();
        };
        let mut results = Vec::new();
        let change = async {
            let mut connection = self.open_bgpd().await?;
            for family in families {
                let list = format!("{} prefix-list {name}", keyword(*family));
                match use_prefix_list(&mut connection, &list, *family, filter_again).await {
                    Ok(()) => results.push((*family, None)),
                    Err(error @ Error::Rejected { .. }) => {
                        results.push((*family, Some(error.to_string())));
                    }
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        };
        if let Err(error) = run_in_time(change).await {
            let error = error.to_string();
            let rest = families[results.len()..].iter();
            results.extend(rest.map(|family| (*family, Some(error.clone()))));
        }
        results
    }

    async fn open_bgpd(&self) -> Result<Connection> {
        let Some(directory) = socket_directory(self.command) else {
            return Err(list_error(
                "`prefix_list` requires a local vtysh in `command`, with no options other than `--vty_socket DIR` and \
                 `-N NAME`; Weir connects to bgpd's socket in the same directory"
                    .to_owned(),
            ));
        };
        let path = directory.join(BGPD_SOCKET);
        Connection::open(&path).await.map_err(|error| {
            list_error(format!(
                "`prefix_list` requires access to {}, and bgpd must be running: {error}",
                path.display()
            ))
        })
    }

    /// Executes each configuration command in the daemon that is responsible for it.
    async fn configure(&self, lines: &[String]) -> Result<()> {
        let Some(directory) = socket_directory(self.command) else {
            return self.run_vtysh(lines).await;
        };
        let Some(mut bgpd) = open(&directory.join(BGPD_SOCKET)).await? else {
            return self.run_vtysh(lines).await;
        };
        for lines in lines.chunk_by(|a, b| is_static_route(a) == is_static_route(b)) {
            if is_static_route(&lines[0]) {
                let socket = directory.join(STATICD_SOCKET);
                self.configure_static_routes(&socket, lines).await?;
            } else {
                run_in_time(bgpd.execute_all(lines)).await?;
            }
        }
        Ok(())
    }

    async fn configure_static_routes(&self, socket: &Path, lines: &[String]) -> Result<()> {
        if !socket.with_file_name(MGMTD_SOCKET).exists()
            && let Some(mut staticd) = open(socket).await?
        {
            return run_in_time(staticd.execute_all(lines)).await;
        }
        self.run_vtysh(lines).await
    }

    async fn run_vtysh(&self, lines: &[String]) -> Result<()> {
        run_command("frr", self.command, &vtysh_arguments(lines))
            .await
            .map(drop)
    }
}

/// Connects to a daemon; `None` = this is not possible, so vtysh must be used.
async fn open(socket: &Path) -> Result<Option<Connection>> {
    let connection = run_in_time(async { Ok(Connection::open(socket).await) }).await?;
    if let Err(error) = &connection {
        tracing::debug!(%error, socket = %socket.display(), "running vtysh instead of using the socket");
    }
    Ok(connection.ok())
}

async fn run_in_time<T>(commands: impl Future<Output = Result<T>>) -> Result<T> {
    timeout(COMMAND_TIMEOUT, commands)
        .await
        .map_err(|_| Error::Timeout { speaker: "frr" })?
}

fn list_error(reply: String) -> Error {
    Error::Rejected {
        speaker: "frr",
        reply,
    }
}

/// Returns whether FRR does not have the statement that was to be removed.
fn is_missing(error: &Error) -> bool {
    matches!(error, Error::Rejected { reply, .. } if MISSING_REPLIES.contains(&reply.as_str()))
}

/// Checks a prefix list, and removes the entry that a killed Weir left. If `filter_again`, changes the list and
/// restores it.
async fn use_prefix_list(
    connection: &mut Connection,
    list: &str,
    family: Family,
    filter_again: bool,
) -> Result<()> {
    let unused_line = format!("seq {ENTRY_SEQUENCE} {}", unused_entry(family));
    let reply = match connection.execute(&format!("do show {list}")).await {
        Err(Error::Rejected { reply, .. })
            if reply.contains("Can't find specified prefix-list") =>
        {
            return Err(list_error(format!(
                "bgpd does not have the `{list}` that `prefix_list` specifies; add it, or remove `prefix_list`"
            )));
        }
        reply => reply?,
    };
    let entries = reply
        .lines()
        .filter_map(|line| line.find("seq ").map(|at| &line[at..]));
    let (own_entries, other_entries): (Vec<&str>, Vec<&str>) =
        entries.partition(|entry| entry.starts_with(&unused_line));
    let remove = format!("no {list} seq {ENTRY_SEQUENCE}");
    if !own_entries.is_empty() {
        connection.execute(&remove).await?;
    }
    if other_entries.is_empty() {
        return Err(list_error(format!(
            "`{list}` has no entries, so Weir's entry would reject all routes; add `{list} seq 5 permit any`"
        )));
    }
    if other_entries
        .iter()
        .any(|entry| entry.starts_with(&format!("seq {ENTRY_SEQUENCE} ")))
    {
        return Err(list_error(format!(
            "`{list}` has an entry with sequence number {ENTRY_SEQUENCE}, which Weir needs; renumber it"
        )));
    }
    if filter_again {
        connection.execute(&format!("{list} {unused_line}")).await?;
        connection.execute(&remove).await?;
    }
    Ok(())
}

/// Returns the address families of VIPs.
fn families<'a>(vips: impl Iterator<Item = &'a IpAddr>) -> Vec<Family> {
    let present_families: BTreeSet<Family> = vips.map(|vip| Family::of(*vip)).collect();
    present_families.into_iter().collect()
}

/// Returns the directory of the sockets to which this vtysh connects; `None` = `command` runs a different program, for
/// example one that runs vtysh in a container, or has other options.
fn socket_directory(command: &[String]) -> Option<PathBuf> {
    let (program, options) = command.split_first()?;
    if Path::new(program).file_name()? != "vtysh" {
        return None;
    }
    let mut directory = PathBuf::from(SOCKET_DIRECTORY);
    let mut namespace = None;
    let mut options = options.iter();
    while let Some(option) = options.next() {
        match option.as_str() {
            "--vty_socket" => directory = options.next()?.into(),
            "-N" | "--pathspace" => namespace = Some(options.next()?.as_str()),
            _ => match option.split_once('=') {
                Some(("--vty_socket", value)) => directory = value.into(),
                Some(("--pathspace", value)) => namespace = Some(value),
                _ => return None,
            },
        }
    }
    Some(match namespace {
        Some(name) => directory.join(name),
        None => directory,
    })
}

fn remove_networks(asn: u32, vips: &[IpAddr]) -> Vec<String> {
    let statement = |vip: &IpAddr| (*vip, format!("no network {}", prefix(*vip)));
    router_bgp(asn, vips.iter().map(statement).collect())
}

fn remove_routes(vips: &[IpAddr]) -> Vec<String> {
    let routes = vips.iter().map(|vip| blackhole_route(*vip));
    routes.map(|route| format!("no {route}")).collect()
}

/// Returns the commands that announce routes: route maps that set communities, and `network` statements. Each VIP also
/// gets a blackhole route, because FRR announces only networks with a route.
pub(super) fn announcements(asn: u32, change: &Change<'_>) -> Vec<String> {
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
            // The route map may have communities from earlier settings.
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
    lines
}

fn blackhole_route(vip: IpAddr) -> String {
    let keyword = keyword(Family::of(vip));
    format!("{keyword} route {} blackhole", prefix(vip))
}

/// Returns the first word of commands for static routes and prefix lists.
const fn keyword(family: Family) -> &'static str {
    match family {
        Family::V4 => "ip",
        Family::V6 => "ipv6",
    }
}

/// Returns an entry of a prefix list that matches no route.
const fn unused_entry(family: Family) -> &'static str {
    match family {
        Family::V4 => "deny 255.255.255.255/32",
        Family::V6 => "deny ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128",
    }
}

/// Returns whether a command configures a static route, for which bgpd is not responsible.
fn is_static_route(line: &str) -> bool {
    let line = line.strip_prefix("no ").unwrap_or(line);
    line.starts_with("ip route ") || line.starts_with("ipv6 route ")
}

/// Returns the BGP configuration with a statement for each VIP, in the VIP's address family.
fn router_bgp(asn: u32, statements: Vec<(IpAddr, String)>) -> Vec<String> {
    let mut lines = vec![format!("router bgp {asn}")];
    for family in FAMILIES {
        let mut statements = statements
            .iter()
            .filter(|(vip, _)| Family::of(*vip) == family)
            .peekable();
        if statements.peek().is_some() {
            let name = match family {
                Family::V4 => "ipv4",
                Family::V6 => "ipv6",
            };
            lines.push(format!("address-family {name} unicast"));
            lines.extend(statements.map(|(_, statement)| statement.clone()));
            lines.push("exit-address-family".to_owned());
        }
    }
    lines.push("exit".to_owned());
    lines
}

/// Returns vtysh's arguments for configuration commands.
fn vtysh_arguments(lines: &[String]) -> Vec<String> {
    let lines = lines.iter().map(String::as_str);
    ["configure terminal"]
        .into_iter()
        .chain(lines)
        .flat_map(|line| ["-c".to_owned(), line.to_owned()])
        .collect()
}

#[cfg(test)]
mod tests;
