//! A list of servers that another program writes, for `servers_file`.
//!
//! Two forms: JSON, as the value of `servers` or as an object that has it, and lines, `ADDRESS[:PORT] [KEY=NUMBER]…`, where
//! `#` begins a comment. Both are read by the rules of `servers` in the configuration itself.

use weir_model::Server;

use crate::code::Severity;
use crate::diagnostic::Diagnostic;
use crate::parse::parse_json;
use crate::verify::Host;

const POOL: &str = "members";

/// Reads a list.
///
/// # Errors
/// The first thing that is wrong with it, in one line.
pub fn members(text: &str) -> Result<Vec<Server>, String> {
    let begin = text.trim_start();
    let list = match begin.as_bytes().first() {
        Some(b'[') => format!("{{\"servers\":{text}}}"),
        Some(b'{') => text.to_owned(),
        _ => format!("{{\"servers\":{}}}", lines(text)?),
    };
    let whole = format!("{{\"pool\":{{\"{POOL}\":{list}}}}}");
    let said = |found: &[Diagnostic]| {
        let first = found.iter().find(|one| one.severity() == Severity::Error);
        first.map_or_else(|| "no list".to_owned(), |one| one.message.clone())
    };
    let parsed = parse_json(&whole, &Host::default()).map_err(|found| said(&found))?;
    match parsed.desired.pools.as_slice() {
        [pool] if pool.name == POOL && pool.servers_file.is_none() => Ok(pool.servers.clone()),
        _ => Err("expected servers, and nothing else".to_owned()),
    }
}

/// Lines as a JSON list.
fn lines(text: &str) -> Result<String, String> {
    let mut list = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let Some(address) = words.next() else {
            continue;
        };
        let wrong = |what: &str| format!("line {number}: {what}");
        let plain = |word: &str| !word.contains(['"', '\\']);
        if !plain(address) {
            return Err(wrong("no address"));
        }
        let mut server = format!("{{\"address\":\"{address}\"");
        for word in words {
            let pair = word.split_once('=').filter(|(key, _)| plain(key));
            let (key, value) = pair.ok_or_else(|| wrong("expected KEY=NUMBER"))?;
            let value: u32 = value.parse().map_err(|_| wrong("expected KEY=NUMBER"))?;
            server.push_str(&format!(",\"{key}\":{value}"));
        }
        list.push(server + "}");
    }
    Ok(format!("[{}]", list.join(",")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str) -> Vec<(String, u32)> {
        let servers = members(text).unwrap();
        servers.into_iter().map(|s| (s.name, s.weight)).collect()
    }

    #[test]
    fn every_form_gives_the_same_servers() {
        let wanted = [("10.0.0.5:80".to_owned(), 1), ("10.0.0.6".to_owned(), 3)];
        for text in [
            "# written by somebody\n10.0.0.5:80\n\n10.0.0.6 weight=3 # big\n",
            "[\"10.0.0.5:80\", {\"address\": \"10.0.0.6\", \"weight\": 3}]",
            "{\"servers\": [\"10.0.0.5:80\", {\"address\": \"10.0.0.6\", \"weight\": 3}]}",
        ] {
            assert_eq!(named(text), wanted, "{text}");
        }
        assert!(named("").is_empty());
        assert!(named("[]").is_empty());
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for text in [
            "10.0.0.300",
            "10.0.0.5 weight=many",
            "10.0.0.5 weight",
            "10.0.0.5 colour=3",
            "10.0.0.5\n10.0.0.5",
            "[\"10.0.0.5\"",
            "{\"servers\": [], \"servers_file\": \"/x\"}",
            "\"}]}},\"service\":{}",
            "[\"10.0.0.5\"]}},\"node\":{\"admin\":\"127.0.0.1:1\"},\"x\":{\"y\":{\"z\":[]",
        ] {
            assert!(members(text).is_err(), "{text}");
        }
    }
}
