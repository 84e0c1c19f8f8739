//! Translates the output of `iptables-legacy-save` to the JSON format of nftables, so that one evaluation handles both.
//! Parts without an equivalent become an unknown match or verdict.

use serde_json::{Value, json};

use super::ruleset::{BaseChain, Chain, Ruleset};
use super::tool::Tool;

/// Match modules for which all options are supported.
const SUPPORTED: [&str; 7] = [
    "tcp",
    "udp",
    "multiport",
    "conntrack",
    "state",
    "mark",
    "comment",
];

/// Targets that neither drop a packet nor change a field that is compared. `MARK` is included because a packet has its
/// final mark from the start of the evaluation.
const NEUTRAL_TARGETS: [&str; 19] = [
    "CT",
    "LOG",
    "NFLOG",
    "ULOG",
    "TRACE",
    "MARK",
    "CONNMARK",
    "SECMARK",
    "CONNSECMARK",
    "TCPMSS",
    "TOS",
    "DSCP",
    "TTL",
    "HL",
    "CLASSIFY",
    "CHECKSUM",
    "SNAT",
    "MASQUERADE",
    "TCPOPTSTRIP",
];

impl Ruleset {
    /// Adds the tables in the output of `iptables-save` or `ip6tables-save`.
    pub(crate) fn add_iptables_tables(&mut self, tool: Tool, text: &str) {
        let mut table = String::new();
        for line in text.lines() {
            if let Some(name) = line.strip_prefix('*') {
                name.clone_into(&mut table);
            } else if let Some(declared) = line.strip_prefix(':') {
                let mut words = declared.split_whitespace();
                if let (Some(name), Some(policy)) = (words.next(), words.next()) {
                    self.push_chain(chain(tool, &table, name, policy));
                }
            } else if let Some(rule) = line.strip_prefix("-A ") {
                let words = split_words(rule);
                let Some((name, options)) = words.split_first() else {
                    continue;
                };
                let is_chain = |name: &str| self.has_chain(tool, &table, name);
                let mut expressions = expressions(tool, options, &is_chain);
                expressions.push(json!({ "words": options.join(" ") }));
                self.push_rule(tool, &table, name, expressions);
            }
        }
    }
}

fn chain(tool: Tool, table: &str, name: &str, policy: &str) -> Chain {
    let priority = match (table, name) {
        ("raw", _) => -300,
        ("mangle", _) => -150,
        ("nat", "PREROUTING" | "OUTPUT") => -100,
        ("nat", _) => 100,
        ("security", _) => 50,
        _ => 0,
    };
    Chain {
        tool,
        family: if tool == Tool::Iptables { "ip" } else { "ip6" }.to_owned(),
        table: table.to_owned(),
        name: name.to_owned(),
        base: (policy != "-").then(|| BaseChain {
            hook: name.to_lowercase(),
            priority,
            policy_drops: policy == "DROP",
        }),
        rules: Vec::new(),
    }
}

/// Splits a line into words as a shell does: iptables quotes arguments that contain spaces.
fn split_words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted, mut was_quoted) =
        (Vec::new(), String::new(), false, false);
    let mut chars = line.chars();
    while let Some(char) = chars.next() {
        match char {
            '"' => (quoted, was_quoted) = (!quoted, true),
            '\\' if quoted => word.extend(chars.next()),
            ' ' if !quoted => {
                if was_quoted || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                was_quoted = false;
            }
            other => word.push(other),
        }
    }
    if was_quoted || !word.is_empty() {
        words.push(word);
    }
    words
}

/// Translates a rule into expressions. `is_chain` returns whether a target is a chain of the rule's table.
fn expressions(tool: Tool, options: &[String], is_chain: &dyn Fn(&str) -> bool) -> Vec<Value> {
    let mut translated = Vec::new();
    let mut end = None;
    let mut words = options.iter().map(String::as_str).peekable();
    let mut operator = "==";
    while let Some(word) = words.next() {
        if word == "!" {
            operator = "!=";
            continue;
        }
        if word == "--comment" {
            // The comment may start with `-` or `!`.
            words.next();
            continue;
        }
        let mut arguments = Vec::new();
        while let Some(argument) = words.next_if(|next| !next.starts_with(['-', '!'])) {
            arguments.push(argument);
        }
        match (word, arguments.as_slice()) {
            ("-m", [name]) if SUPPORTED.contains(name) => {}
            ("-j" | "-g", [target]) => end = Some(verdict(word, target, is_chain)),
            // `--notrack` is an option of the target CT, whose other options set conntrack's zone or helper.
            ("--notrack", []) => end = Some(json!({ "notrack": null })),
            // The remaining words are options of the target, which are not needed.
            _ if end.is_some() => {}
            ("--tcp-flags", [mask, set]) => {
                translated.push(comparison(operator, flags(mask), flag_list(set)));
            }
            (option, [value]) => {
                let expression = translate_match(tool, operator, option, value);
                translated.push(expression.unwrap_or_else(unknown));
            }
            _ => translated.push(unknown()),
        }
        operator = "==";
    }
    translated.extend(end);
    translated
}

fn unknown() -> Value {
    json!({ "xt": null })
}

fn comparison(operator: &str, left: Value, right: Value) -> Value {
    json!({ "match": { "op": operator, "left": left, "right": right } })
}

/// Translates an option with one value. Returns `None` if nftables has no equivalent.
fn translate_match(tool: Tool, operator: &str, option: &str, value: &str) -> Option<Value> {
    let header = |field: &str| {
        let protocol = if tool == Tool::Iptables { "ip" } else { "ip6" };
        json!({ "payload": { "protocol": protocol, "field": field } })
    };
    let port = |field: &str| json!({ "payload": { "protocol": "th", "field": field } });
    let (left, right) = match option {
        "-s" => (header("saddr"), network(value)?),
        "-d" => (header("daddr"), network(value)?),
        "-i" => (json!({ "meta": { "key": "iifname" } }), json!(value)),
        "-o" => (json!({ "meta": { "key": "oifname" } }), json!(value)),
        "-p" => (json!({ "meta": { "key": "l4proto" } }), json!(value)),
        "--sport" | "--sports" => (port("sport"), ports(value)?),
        "--dport" | "--dports" => (port("dport"), ports(value)?),
        "--ctstate" | "--state" => {
            let states = value.to_lowercase();
            // The states SNAT and DNAT do not exclude the other states.
            if states.contains("nat") {
                return None;
            }
            let states: Vec<&str> = states.split(',').collect();
            (json!({ "ct": { "key": "state" } }), json!(states))
        }
        "--mark" => (json!({ "meta": { "key": "mark" } }), parse_mark(value)?),
        _ => return None,
    };
    Some(comparison(operator, left, right))
}

/// Translates an address or a prefix. nftables has no notation for other masks.
fn network(text: &str) -> Option<Value> {
    let Some((address, length)) = text.split_once('/') else {
        return Some(json!(text));
    };
    let length: u8 = length.parse().ok()?;
    Some(json!({ "prefix": { "addr": address, "len": length } }))
}

fn ports(text: &str) -> Option<Value> {
    let port_or_range = |text: &str| -> Option<Value> {
        let Some((first, last)) = text.split_once(':') else {
            return Some(json!(text.parse::<u16>().ok()?));
        };
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        Some(json!({ "range": [first, last] }))
    };
    text.split(',')
        .map(port_or_range)
        .collect::<Option<Vec<_>>>()
        .map(Value::from)
}

/// Parses a mark without a mask.
fn parse_mark(text: &str) -> Option<Value> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.ok().map(Value::from)
}

fn flags(mask: &str) -> Value {
    json!({ "&": [{ "payload": { "protocol": "tcp", "field": "flags" } }, flag_list(mask)] })
}

fn flag_list(text: &str) -> Value {
    if text == "NONE" {
        return json!(0);
    }
    let lower = text.to_lowercase();
    json!(lower.split(',').collect::<Vec<_>>())
}

fn verdict(option: &str, target: &str, is_chain: &dyn Fn(&str) -> bool) -> Value {
    match target {
        "ACCEPT" => json!({ "accept": null }),
        "DROP" => json!({ "drop": null }),
        "REJECT" => json!({ "reject": null }),
        "RETURN" => json!({ "return": null }),
        "NOTRACK" => json!({ "notrack": null }),
        chain if is_chain(chain) => {
            let name = if option == "-g" { "goto" } else { "jump" };
            json!({ name: { "target": chain } })
        }
        neutral if NEUTRAL_TARGETS.contains(&neutral) => json!({ "log": null }),
        // The target redirects the packet, or its effect is unknown.
        _ => json!({ "queue": null }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{INBOUND, OUTBOUND, Packet, Tracking};
    use super::*;

    /// Returns a ruleset with a filter table in the format of iptables 1.8.9.
    fn filter_ruleset(policy: &str, rules: &[&str]) -> Ruleset {
        let rules: Vec<String> = rules.iter().map(|rule| format!("-A {rule}\n")).collect();
        let text = format!(
            "# Generated by iptables-save v1.8.9\n*filter\n:INPUT {policy} [0:0]\n:FORWARD ACCEPT [0:0]\n\
             :OUTPUT ACCEPT [12:34]\n:web - [0:0]\n{}COMMIT\n",
            rules.concat()
        );
        let mut ruleset = Ruleset::default();
        ruleset.add_iptables_tables(Tool::Iptables, &text);
        ruleset
    }

    fn syn() -> Packet {
        Packet::syn("192.0.2.10".parse().expect("valid address"), Some(80))
    }

    /// Returns the rule that drops a SYN, or an empty string if the policy drops it.
    fn dropping_rule(policy: &str, rules: &[&str]) -> Option<String> {
        let drop = filter_ruleset(policy, rules).find_drop(syn(), INBOUND)?;
        assert_eq!((drop.tool, &*drop.chain), (Tool::Iptables, "INPUT"));
        Some(drop.rule.unwrap_or_default())
    }

    #[test]
    fn only_definite_drops_are_reported() {
        assert_eq!(dropping_rule("DROP", &[]).as_deref(), Some(""));
        assert_eq!(
            dropping_rule("DROP", &["INPUT -m conntrack --ctstate NEW -j ACCEPT"]),
            None
        );
        let drops = [
            "INPUT -d 192.0.2.0/24 -p tcp -m multiport --dports 22,80 -j DROP",
            "INPUT -p tcp -m tcp --dport 1:100 -m comment --comment \"- a \\\"b\\\"\" -j REJECT --reject-with \
             tcp-reset",
            "INPUT -m conntrack --ctstate NEW -j DROP",
            "INPUT ! -i lo -p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN -j DROP",
            "INPUT ! -p udp -j DROP",
        ];
        for rule in drops {
            let words =
                dropping_rule("ACCEPT", &[rule]).unwrap_or_else(|| panic!("{rule} does not drop"));
            assert!(
                words.ends_with("DROP") || words.contains("REJECT"),
                "{words}"
            );
        }
        let passes = [
            "INPUT -d 192.0.2.11/32 -j DROP",
            "INPUT -s 10.0.0.0/8 -j DROP",
            "INPUT -p tcp -m tcp ! --dport 80 -j DROP",
            "INPUT -i lo -j DROP",
            "INPUT -p udp -m udp --dport 80 -j DROP",
            "INPUT -m state --state INVALID,ESTABLISHED -j DROP",
            "INPUT -m limit --limit 5/sec -j DROP",
            "INPUT -m addrtype --dst-type LOCAL -j DROP",
            "INPUT -p tcp -m tcp --tcp-option 5 -j DROP",
            "INPUT -m conntrack --ctstate DNAT -j DROP",
            "INPUT -m mark --mark 0x5/0xff -j DROP",
            "INPUT -j LOG --log-prefix \"gone: DROP\"",
        ];
        for rule in passes {
            assert_eq!(dropping_rule("ACCEPT", &[rule]), None, "{rule}");
        }
        assert_eq!(
            dropping_rule("DROP", &["INPUT -p tcp -m tcp --dport 80 -j ACCEPT"]),
            None
        );
        assert_eq!(
            dropping_rule("DROP", &["INPUT -m recent --update --seconds 60 -j ACCEPT"]),
            None
        );
        assert_eq!(
            dropping_rule("DROP", &["INPUT -j SYNPROXY --wscale 7"]),
            None
        );
    }

    #[test]
    fn jump_returns_and_goto_does_not() {
        let jumps = [
            "INPUT -j web",
            "web -p tcp -m tcp --dport 443 -j RETURN",
            "web -j DROP",
        ];
        assert_eq!(dropping_rule("ACCEPT", &jumps).as_deref(), Some("-j DROP"));
        let goto = [
            "INPUT -g web",
            "web -s 10.0.0.0/8 -j ACCEPT",
            "INPUT -j DROP",
        ];
        assert_eq!(
            dropping_rule("ACCEPT", &goto),
            None,
            "rules after the goto are not evaluated"
        );
    }

    #[test]
    fn tables_are_evaluated_in_kernel_order() {
        let mut ruleset = filter_ruleset(
            "ACCEPT",
            &["INPUT -m conntrack --ctstate UNTRACKED -j DROP"],
        );
        assert_eq!(ruleset.find_drop(syn(), INBOUND), None);
        ruleset.add_iptables_tables(
            Tool::Iptables,
            "*raw\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -p tcp -m tcp --dport 80 -j CT --notrack\nCOMMIT\n",
        );
        assert!(ruleset.find_drop(syn(), INBOUND).is_some());
        let mut zoned = filter_ruleset("DROP", &["INPUT -m conntrack --ctstate NEW -j ACCEPT"]);
        zoned.add_iptables_tables(
            Tool::Iptables,
            "*raw\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -p tcp -j CT --zone 5\n-A PREROUTING -p tcp -j CT \
             --helper ftp\nCOMMIT\n",
        );
        assert_eq!(
            zoned.find_drop(syn(), INBOUND),
            None,
            "the packet is tracked"
        );
        ruleset.add_iptables_tables(
            Tool::Iptables,
            "*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -p tcp -j DNAT --to-destination 10.0.0.1\n",
        );
        assert_eq!(
            ruleset.find_drop(syn(), INBOUND),
            None,
            "the packet was rewritten"
        );
    }

    #[test]
    fn families_and_marks_are_compared() {
        let mut ipv6 = Ruleset::default();
        ipv6.add_iptables_tables(
            Tool::Ip6tables,
            "*filter\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -s 2001:db8::/32 -p tcp -m tcp --sport 80 -j DROP\n",
        );
        let reply = |text: &str| Packet::reply(text.parse().expect("valid address"), Some(80));
        let drop = ipv6
            .find_drop(reply("2001:db8::1"), OUTBOUND)
            .expect("is dropped");
        assert_eq!(drop.tool, Tool::Ip6tables);
        assert_eq!(ipv6.find_drop(reply("192.0.2.1"), OUTBOUND), None);
        let marked = filter_ruleset("ACCEPT", &["INPUT -m mark --mark 0x7 -j DROP"]);
        let packet = |mark| Packet {
            mark,
            ..syn().ack(Tracking::New)
        };
        assert!(marked.find_drop(packet(Some(7)), INBOUND).is_some());
        assert_eq!(marked.find_drop(packet(Some(8)), INBOUND), None);
        assert_eq!(marked.find_drop(packet(None), INBOUND), None);
    }

    #[test]
    fn malformed_input_is_ignored() {
        let mut ruleset = Ruleset::default();
        let text = "-A INPUT -j DROP\n*\n:\n:INPUT\n-A \n-A X\n*filter\n:INPUT DROP\n-A INPUT ! ! -d\n-A INPUT -d \
         x/y \"\n";
        ruleset.add_iptables_tables(Tool::Iptables, text);
        assert!(
            ruleset.find_drop(syn(), INBOUND).is_some(),
            "dropped by the policy"
        );
    }
}
