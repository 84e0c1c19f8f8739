//! Parses the output of `birdc show route` of BIRD 2 and 3.
//!
//! A route begins with a line like `192.0.2.10/32 unicast [PROTOCOL TIME] * (100) [AS65001i]`; further routes to the
//! same prefix leave the prefix blank. Lines with next hops and attributes begin with a tab. BIRD 2 writes
//! `BGP.as_path: 65001`, BIRD 3 writes `bgp_path: 65001`.

use std::net::IpAddr;

use super::path::{Path, RouteEntry};

/// GRACEFUL_SHUTDOWN (RFC 8326).
const GRACEFUL_SHUTDOWN: &str = "(65535,0)";
/// LOCAL_PREF of routes without this attribute.
const LOCAL_PREFERENCE: u32 = 100;

/// BIRD's reply if there is no route.
pub(super) const NOT_FOUND: &str = "Network not found";

/// The arguments that list BGP's routes to single addresses. The filter does not compare the address family, so the
/// output can contain IPv6 routes with 32 bits.
pub(super) const LIST: [&str; 4] = [
    "show",
    "route",
    "where",
    "source = RTS_BGP && (net.len = 32 || net.len = 128)",
];

/// Returns the arguments that show the routes to an address, with the longest matching prefix in BIRD's table.
pub(super) fn route_arguments(vip: IpAddr) -> [String; 5] {
    ["show", "route", "for", &vip.to_string(), "all"].map(str::to_owned)
}

/// Parses routes.
///
/// # Errors
/// Returns the first line that is not part of such output, for example an error message.
pub(super) fn parse(text: &str) -> Result<Vec<RouteEntry>, String> {
    let mut entries: Vec<RouteEntry> = Vec::new();
    for line in text.lines() {
        if line.trim().is_empty() || is_heading(line) {
            continue;
        }
        if let Some(attribute) = line.strip_prefix('\t') {
            let path = entries.last_mut().and_then(|entry| entry.paths.last_mut());
            add_attribute(path.ok_or(line)?, attribute.trim());
            continue;
        }
        let (prefix, path) = parse_route(line).ok_or(line)?;
        if let Some(prefix) = prefix {
            entries.push(RouteEntry::parse(prefix).ok_or(line)?);
        }
        let entry = entries.last_mut().ok_or(line)?;
        entry.paths.push(path);
    }
    Ok(entries)
}

fn is_heading(line: &str) -> bool {
    let headings = ["BIRD ", "Table "];
    headings.iter().any(|heading| line.starts_with(heading))
        || ["Access restricted", NOT_FOUND].contains(&line.trim_end())
}

/// Parses the first line of a route. Returns the prefix, unless it is blank.
fn parse_route(line: &str) -> Option<(Option<&str>, Path)> {
    let (start, rest) = line.split_once('[')?;
    let (origin, rest) = rest.split_once(']')?;
    let prefix = match line.starts_with(' ') {
        true => None,
        false => start.split_whitespace().next(),
    };
    let (flags, metrics) = rest.split_once('(')?;
    let (metrics, _) = metrics.split_once(')')?;
    let mut metrics = metrics.split('/');
    let path = Path {
        source: origin.split_whitespace().next()?.to_owned(),
        is_best: flags.contains('*'),
        preference: metrics.next()?.parse().ok()?,
        // `-` and `?` = the next hop is not reachable.
        igp_metric: metrics.next().and_then(|metric| metric.parse().ok()),
        local_preference: LOCAL_PREFERENCE,
        ..Path::default()
    };
    Some((prefix, path))
}

fn add_attribute(path: &mut Path, line: &str) {
    let mut words = line.split_whitespace();
    if let Some(keyword @ ("via" | "dev")) = words.next() {
        // Omit the weight, which differs between the paths of a route.
        let count = if keyword == "via" { 3 } else { 1 };
        let next_hop: Vec<&str> = words.take(count).collect();
        path.next_hops.insert(next_hop.join(" "));
        return;
    }
    let Some((name, value)) = line.split_once(':') else {
        return;
    };
    let (name, value) = (name.to_ascii_lowercase(), value.trim());
    match name.as_str() {
        "type" | "source" => path.is_bgp = value.starts_with("BGP"),
        "bgp.origin" | "bgp_origin" => path.origin = value.to_ascii_lowercase(),
        "bgp.as_path" | "bgp_path" => {
            path.as_path_length = as_path_length(value);
            value.clone_into(&mut path.as_path);
        }
        "bgp.med" | "bgp_med" => path.med = value.parse().unwrap_or(0),
        "bgp.local_pref" | "bgp_local_pref" => {
            path.local_preference = value.parse().unwrap_or(LOCAL_PREFERENCE);
        }
        "bgp.community" | "bgp_community" => {
            path.is_drained = value.contains(GRACEFUL_SHUTDOWN);
        }
        _ => {}
    }
}

/// Returns the length of an AS path: a set `{…}` counts as one, a confederation segment `(…)` does not count.
fn as_path_length(text: &str) -> usize {
    let spaced: String = text
        .chars()
        .flat_map(|c| match c {
            '{' | '}' | '(' | ')' => vec![' ', c, ' '],
            c => vec![c],
        })
        .collect();
    let mut length = 0;
    let mut segment_end = None;
    for word in spaced.split_whitespace() {
        match (segment_end, word) {
            (Some(end), word) if word == end => segment_end = None,
            (Some(_), _) => {}
            (None, "{") => {
                length += 1;
                segment_end = Some("}");
            }
            (None, "(") => segment_end = Some(")"),
            (None, _) => length += 1,
        }
    }
    length
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_of_as_path_counts_sets_once_and_no_confederations() {
        for (text, length) in [
            ("", 0),
            ("65001 65001 65002", 3),
            ("65001 {65002 65003}", 2),
            ("(65010 65011) 65001", 1),
        ] {
            assert_eq!(as_path_length(text), length, "{text:?}");
        }
    }

    /// BIRD 2.0.12. The second director is drained.
    #[test]
    fn attributes_of_paths_are_parsed() {
        let entries = parse(include_str!("samples/bird.txt")).unwrap();
        assert_eq!(entries, [expected()]);
    }

    /// Returns the content of `samples/bird.txt`.
    fn expected() -> RouteEntry {
        let mut entry = RouteEntry::parse("192.0.2.10/32").unwrap();
        entry.paths = vec![
            Path {
                source: "d0".to_owned(),
                is_bgp: true,
                is_best: true,
                next_hops: ["10.71.0.20 on br0".to_owned()].into(),
                preference: 100,
                local_preference: 100,
                as_path: "65001".to_owned(),
                as_path_length: 1,
                origin: "igp".to_owned(),
                ..Path::default()
            },
            Path {
                source: "d1".to_owned(),
                is_bgp: true,
                next_hops: ["10.71.0.21 on br0".to_owned()].into(),
                preference: 100,
                local_preference: 100,
                as_path: "65001 65001".to_owned(),
                as_path_length: 2,
                origin: "incomplete".to_owned(),
                med: 5,
                is_drained: true,
                ..Path::default()
            },
        ];
        entry
    }

    /// BIRD 3 has different names for attributes, and more attributes.
    #[test]
    fn attributes_of_bird_3_are_parsed() {
        let text = include_str!("samples/bird.txt")
            .replace("BIRD 2.0.12", "BIRD 3.2.0")
            .replace("\tType: BGP univ", "\tpreference: 100\n\tsource: BGP")
            .replace("BGP.as_path", "bgp_path")
            .replace("BGP.", "bgp_")
            + "\tInternal route handling values: 0L 16G 0S id 19\n";
        assert_eq!(parse(&text).unwrap(), [expected()]);
    }

    #[test]
    fn list_contains_both_families() {
        let entries = parse(include_str!("samples/bird-list.txt")).unwrap();
        let prefixes: Vec<_> = entries
            .iter()
            .map(|entry| (entry.prefix(), entry.paths.len()))
            .collect();
        let expected = ["192.0.2.11/32", "192.0.2.10/32", "2001:db8::10/128"];
        assert_eq!(prefixes, expected.map(|prefix| (prefix.to_owned(), 2)));
    }

    #[test]
    fn routes_of_other_protocols_and_unreachable_paths_are_recognized() {
        let entries = parse(include_str!("samples/bird-static.txt")).unwrap();
        let [entry] = entries.as_slice() else {
            panic!("{entries:?}");
        };
        let path = &entry.paths[0];
        assert_eq!((path.source.as_str(), path.preference), ("agg", 200));
        assert!(path.is_best && !path.is_bgp);
        let text = "192.0.2.10/32 unreachable [d0 15:12:16 from 10.0.0.9] * (100/-) [AS65001i]\n\tType: BGP univ\n";
        let entry = &parse(text).unwrap()[0];
        assert!(entry.paths[0].is_bgp && !entry.paths[0].is_usable());
        let resolved =
            "192.0.2.10/32        unicast [d0 15:12:16 from 10.0.0.9] * (100/20) [AS65001i]\n";
        assert_eq!(parse(resolved).unwrap()[0].paths[0].igp_metric, Some(20));
    }

    #[test]
    fn missing_routes_and_errors_are_distinguished() {
        let heading = "BIRD 2.0.12 ready.\nAccess restricted\n";
        assert_eq!(parse(heading), Ok(Vec::new()));
        assert_eq!(parse(&format!("{heading}{NOT_FOUND}\n")), Ok(Vec::new()));
        let error = "syntax error, unexpected CF_SYM_UNDEFINED";
        assert_eq!(parse(&format!("{heading}{error}\n")), Err(error.to_owned()));
        for line in [
            "\tvia 10.0.0.1 on eth0",
            "192.0.2.10/32",
            "x/32 unicast [d] (100)",
        ] {
            assert_eq!(parse(line), Err(line.to_owned()));
        }
    }
}
