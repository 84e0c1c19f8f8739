//! Parses the JSON output of FRR's `show bgp`.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::path::{Path, RouteEntry, host_length};

/// FRR's name for the community GRACEFUL_SHUTDOWN (RFC 8326), and its number.
const GRACEFUL_SHUTDOWN: [&str; 2] = ["graceful-shutdown", "65535:0"];
/// LOCAL_PREF of routes without this attribute.
const LOCAL_PREFERENCE: u32 = 100;

/// The command that shows the router's AS number. It fails if bgpd is not running.
pub(super) const SUMMARY: &str = "show bgp summary json";

/// Returns the commands that list all routes of both address families.
pub(super) fn list_commands() -> [String; 2] {
    ["ipv4", "ipv6"].map(|family| format!("show bgp {family} unicast json"))
}

/// Returns the commands that show the routes to an address alone. Only the second one shows whether an aggregate
/// suppresses the routes.
pub(super) fn host_commands(vip: IpAddr) -> [String; 2] {
    let command = format!(
        "show bgp {} unicast {vip}/{}",
        family(vip),
        host_length(vip)
    );
    [
        format!("{command} json"),
        format!("{command} longer-prefixes json"),
    ]
}

/// Returns the command that shows the routes to the longest prefix that contains an address.
pub(super) fn covering_command(vip: IpAddr) -> String {
    format!("show bgp {} unicast {vip} json", family(vip))
}

const fn family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "ipv4" } else { "ipv6" }
}

/// Returns the router's AS number from the output of [`SUMMARY`]. `None` = BGP is not configured.
///
/// # Errors
/// Returns the first line of an output that is not JSON.
pub(super) fn parse_as_number(text: &str) -> Result<Option<u32>, String> {
    #[derive(Deserialize)]
    struct Family {
        #[serde(rename = "as")]
        number: Option<u32>,
    }
    let families: BTreeMap<String, serde_json::Value> = parse_json(text)?;
    let mut families = families.into_values();
    Ok(families.find_map(|family| serde_json::from_value::<Family>(family).ok()?.number))
}

/// A list of routes.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Table {
    routes: BTreeMap<String, Vec<ListedPath>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ListedPath {
    suppressed: bool,
}

/// Returns the addresses of host routes with more than one path.
///
/// # Errors
/// Returns the first line of an output that is not JSON.
pub(super) fn parse_list(text: &str) -> Result<Vec<IpAddr>, String> {
    let table: Table = parse_json(text)?;
    let routes = table.routes.iter().filter(|(_, paths)| paths.len() > 1);
    let entries = routes.filter_map(|(prefix, _)| RouteEntry::parse(prefix));
    let hosts = entries.filter(RouteEntry::is_host);
    Ok(hosts.map(|entry| entry.address).collect())
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Detail {
    prefix: Option<String>,
    paths: Vec<DetailPath>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct DetailPath {
    aspath: AsPath,
    origin: String,
    metric: u32,
    loc_prf: Option<u32>,
    weight: u32,
    valid: bool,
    multipath: bool,
    bestpath: BestPath,
    community: Community,
    nexthops: Vec<NextHop>,
    peer: Peer,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AsPath {
    string: String,
    length: usize,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct BestPath {
    overall: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Community {
    string: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NextHop {
    ip: String,
    metric: Option<u32>,
    accessible: bool,
    used: bool,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Peer {
    peer_id: String,
    r#type: String,
}

/// Parses the routes to a prefix: the output of one command, or of both [`host_commands`]. `None` = there is no route.
///
/// # Errors
/// Returns the first line of an output that is not JSON, for example an error message.
pub(super) fn parse_route(text: &str) -> Result<Option<RouteEntry>, String> {
    let mut documents = serde_json::Deserializer::from_str(text).into_iter::<serde_json::Value>();
    let detail: Detail = parse_next(&mut documents, text)?;
    let table: Table = parse_next(&mut documents, text)?;
    let entry = detail.prefix.as_deref().and_then(RouteEntry::parse);
    let Some(mut entry) = entry.filter(|_| !detail.paths.is_empty()) else {
        return Ok(None);
    };
    let mut table_routes = table.routes.values().flatten();
    let is_suppressed = table_routes.any(|path| path.suppressed);
    let paths = detail.paths.into_iter();
    entry.paths = paths.map(|path| path.into_path(is_suppressed)).collect();
    Ok(Some(entry))
}

impl DetailPath {
    fn into_path(self, is_suppressed: bool) -> Path {
        let reachable = self
            .nexthops
            .iter()
            .filter(|it| self.valid && it.accessible);
        // For IPv6, the list contains a global and a link-local address.
        let next_hops = reachable.filter(|it| it.used || self.nexthops.len() == 1);
        let next_hops = next_hops.map(|it| it.ip.clone()).collect();
        let communities = &self.community.string;
        Path {
            source: self.peer.peer_id,
            // The router's own routes have no type.
            is_bgp: !self.peer.r#type.is_empty(),
            is_best: self.bestpath.overall,
            is_selected: self.bestpath.overall || self.multipath,
            next_hops,
            preference: 0,
            weight: self.weight,
            local_preference: self.loc_prf.unwrap_or(LOCAL_PREFERENCE),
            as_path: match self.aspath.string.as_str() {
                "Local" => String::new(),
                text => text.to_owned(),
            },
            as_path_length: self.aspath.length,
            origin: self.origin.to_ascii_lowercase(),
            med: self.metric,
            is_internal: self.peer.r#type == "internal",
            igp_metric: self.nexthops.iter().find_map(|it| it.metric),
            is_drained: GRACEFUL_SHUTDOWN.iter().any(|it| communities.contains(it)),
            is_suppressed,
        }
    }
}

/// Parses an output that consists of one document. Without an entry, some versions print nothing.
fn parse_json<T: DeserializeOwned + Default>(text: &str) -> Result<T, String> {
    let mut documents = serde_json::Deserializer::from_str(text).into_iter::<serde_json::Value>();
    parse_next(&mut documents, text)
}

/// Parses the next document of an output. If there is none, returns the default.
fn parse_next<T: DeserializeOwned + Default>(
    documents: &mut impl Iterator<Item = serde_json::Result<serde_json::Value>>,
    text: &str,
) -> Result<T, String> {
    let document = documents
        .next()
        .unwrap_or_else(|| Ok(serde_json::json!({})));
    let parsed = document.and_then(serde_json::from_value);
    parsed.map_err(|_| text.trim().lines().next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next_hops(path: &Path) -> Vec<&str> {
        path.next_hops.iter().map(String::as_str).collect()
    }

    /// FRR 8.4. The second director is drained.
    #[test]
    fn attributes_of_paths_are_parsed() {
        let entry = parse_route(include_str!("samples/frr-ipv6.json"));
        let entry = entry.unwrap().expect("a route");
        assert_eq!(entry.prefix(), "2001:db8::10/128");
        let expected = [
            Path {
                source: "fd71::15".to_owned(),
                is_bgp: true,
                next_hops: ["fe80::405:80ff:fe4e:7c0c".to_owned()].into(),
                as_path: "65001 65001".to_owned(),
                as_path_length: 2,
                origin: "incomplete".to_owned(),
                med: 5,
                igp_metric: Some(0),
                is_drained: true,
                ..Path::default()
            },
            Path {
                source: "fd71::14".to_owned(),
                is_bgp: true,
                is_best: true,
                is_selected: true,
                next_hops: ["fe80::1c5e:a4ff:fe42:d4ed".to_owned()].into(),
                local_preference: 100,
                as_path: "65001".to_owned(),
                as_path_length: 1,
                origin: "igp".to_owned(),
                igp_metric: Some(0),
                ..Path::default()
            },
        ];
        assert_eq!(entry.paths, expected);
    }

    #[test]
    fn suppressed_routes_and_selected_paths_are_recognized() {
        let entry = parse_route(include_str!("samples/frr-suppressed.json"));
        let entry = entry.unwrap().expect("a route");
        assert!(
            entry
                .paths
                .iter()
                .all(|path| path.is_suppressed && path.is_selected)
        );
        let best: Vec<_> = entry
            .paths
            .iter()
            .filter(|path| path.is_best)
            .map(next_hops)
            .collect();
        assert_eq!(best, [["10.71.0.20"]]);
    }

    #[test]
    fn addresses_with_several_paths_are_listed() {
        let vips = parse_list(include_str!("samples/frr-list.json")).unwrap();
        let vips: Vec<String> = vips.iter().map(ToString::to_string).collect();
        assert_eq!(vips, ["192.0.2.10", "192.0.2.11"]);
        let other_routes = r#"{"routes": {"192.0.2.0/24": [{}, {}], "192.0.2.1/32": [{}]}}"#;
        assert_eq!(parse_list(other_routes), Ok(Vec::new()));
    }

    /// The router's own aggregate is not a path to a director.
    #[test]
    fn own_routes_are_not_bgp_paths() {
        let text = r#"{"prefix": "192.0.2.0/24", "paths": [{"aspath": {"string": "Local", "length": 0},
            "aggregated": true, "local": true, "valid": true, "bestpath": {"overall": true},
            "nexthops": [{"ip": "::", "accessible": true, "used": true}], "peer": {"peerId": "::"}}]}"#;
        let entry = parse_route(text).unwrap().expect("a route");
        assert!(
            !entry.is_host() && entry.usable().next().is_none(),
            "{entry:?}"
        );
    }

    #[test]
    fn missing_routes_and_errors_are_distinguished() {
        for text in ["", "{\n}\n", "{\n}\n{ \"vrfId\": 0, \"routes\": {  }  } \n"] {
            assert_eq!(parse_route(text), Ok(None), "{text:?}");
        }
        let error = "% Unknown command: show bogus";
        assert_eq!(parse_route(error), Err(error.to_owned()));
        assert_eq!(parse_list(error), Err(error.to_owned()));
        assert_eq!(parse_as_number(error), Err(error.to_owned()));
        assert_eq!(parse_as_number("{}"), Ok(None));
        let summary = r#"{"ipv4Unicast": {"routerId": "10.71.0.2", "as": 65000, "vrfId": 0}}"#;
        assert_eq!(parse_as_number(summary), Ok(Some(65000)));
    }
}
