//! The stable numbers of diagnostics: `E` refuses the file, `W` lets it pass with a doubt, `N` only tells.
//!
//! A number is never given to another mistake. The table below is all there is to a code; what a message says in
//! detail is written where the mistake is found.

use std::fmt;

/// How much a diagnostic weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The configuration is refused.
    Error,
    /// Legal and suspicious; fails `weir check --strict`.
    Warning,
    /// Neither; what was understood.
    Note,
}

impl Severity {
    /// The word in front of a message.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

/// What a code means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Explanation {
    /// In one line.
    pub title: &'static str,
    /// Why it is reported.
    pub cause: &'static str,
    /// What to do.
    pub fix: &'static str,
}

macro_rules! codes {
    ($(#[doc = $title:literal] $name:ident = $text:literal, $cause:literal, $fix:literal;)+) => {
        /// Number of a diagnostic.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code { $(#[doc = $title] $name,)+ }

        impl Code {
            /// Every code.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// The number as printed, `E003`.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }

            /// The code of that number, in upper or lower case.
            pub fn named(number: &str) -> Option<Self> {
                let same = |code: &&Self| code.as_str().eq_ignore_ascii_case(number);
                Self::ALL.iter().find(same).copied()
            }

            /// What it means, for someone who met it.
            pub fn explanation(self) -> Explanation {
                let (title, cause, fix) = match self { $(Self::$name => ($title, $cause, $fix),)+ };
                Explanation { title: title.trim_ascii(), cause, fix }
            }
        }
    };
}

// Each code has its meaning in one line, why it is reported, and what to do.
codes! {
    /// The file is not TOML, or not JSON.
    Syntax = "E001",
        "The text cannot be read any further at this place. What follows on the same line is not judged.",
        "Write `KEY = VALUE`, put text in double quotes, and close every bracket and quotation mark.";
    /// A key or table is written twice.
    DuplicateKey = "E002",
        "TOML allows each key once in a table, and each table header once. Which of the two was meant cannot be \
         known.",
        "Take one of them out, or rename it. Several routes or checks are arrays of tables, with double brackets.";
    /// There is no such key here.
    UnknownKey = "E003",
        "A misspelled key that was ignored would leave its setting at the default without a word, so unknown keys \
         are refused.",
        "Write the key that the message suggests, or look for it in docs/manual/configuration/.";
    /// The value has another type than its key.
    WrongType = "E004",
        "Each key takes one type: text, a number, a flag, a list or a table. Durations and sizes are text with a \
         unit.",
        "Write the value as the key's card shows, for example `tcp = \"15m\"` in place of `tcp = 900`.";
    /// The number or duration is too small or too large.
    OutOfRange = "E005",
        "The kernel, the protocol or the data plane has no room for such a value, or it would stop the service.",
        "Write a value within the range that the message names.";
    /// The word is none of those that the key knows.
    UnknownValue = "E006",
        "A key with a fixed set of words takes no other. Names of other programs are understood where they mean the \
         same.",
        "Write one of the words that the message lists.";
    /// This build does not have the feature yet.
    NotBuilt = "E007",
        "The key or value belongs to Weir's language, and this version cannot act on it. Nothing is accepted and \
         then ignored.",
        "Take it out, or use a version that has it.";
    /// A key that is required is missing.
    MissingKey = "E008",
        "The table means nothing without this key, and there is no default that would be right for everyone.",
        "Add the key; the message has an example.";
    /// Not an IP address, or one that cannot be used here.
    BadAddress = "E009",
        "Listeners and servers are addresses of single machines. Multicast, broadcast, unspecified and link-local \
         addresses are not, and host names are not looked up in these places.",
        "Write the address. A pool whose servers are known by name has `servers_dns = { name = \"web.internal\", \
         port = 8080 }`.";
    /// Not a listener.
    BadListener = "E010",
        "A listener is `[tcp/|udp/]ADDRESS:PORT`, with a range `A-B` or `*` for the port, or `fwmark/N` and \
         `fwmark6/N`.",
        "Write for example \"192.0.2.10:80\", \"udp/192.0.2.10:53\" or \"[2001:db8::1]:80\".";
    /// Not a port, or not a range of ports.
    BadPort = "E011",
        "Ports are numbers from 1 to 65535. Names of services are not looked up.",
        "Write the number; a range is `A-B` with the smaller port first.";
    /// Not a duration.
    BadDuration = "E012",
        "A duration is a whole number and a unit: `ms`, `s`, `m`, `h` or `d`.",
        "Write for example \"500ms\", \"30s\" or \"1h\".";
    /// Two listeners claim the same address and port with the same precision.
    DuplicateListener = "E013",
        "An exact port precedes a range, and a range precedes `*`. Between two listeners of the same kind nothing \
         decides.",
        "Take one of them out, or give it another port. Both places are shown.";
    /// A list names the same thing twice.
    DuplicateEntry = "E014",
        "A server that is listed twice would get a double share by accident, and one name would mean two servers.",
        "Take one of them out. A larger share is a larger `weight`.";
    /// The pool that is named here does not exist.
    DanglingPool = "E015",
        "A service, a route or a split names a pool, and the file has no `[pool.NAME]` of that name.",
        "Correct the name, or add the pool.";
    /// The forwarding method cannot carry the listener's address family to this server.
    FamilyMismatch = "E016",
        "`direct`, `nat` and `l3dsr` leave the client's packet an IPv4 or IPv6 packet, so a server must have the \
         family of the listener. `tunnel` puts the packet into another one, and `proxy` opens a connection of its \
         own: both take servers of either family.",
        "Use a pool with servers of the listener's family, `forward = \"tunnel\"`, or `forward = \"proxy\"`.";
    /// A name that cannot be used here.
    BadName = "E017",
        "Names appear on command lines, in metrics and in `POOL/ADDRESS`, and header fields, cookies and groups have \
         rules of their own.",
        "Names of pools, services and checks have ASCII letters, digits, `-`, `_` and `.`. The message says what \
         else is expected here.";
    /// Two values exclude each other.
    Contradiction = "E018",
        "Each of the two is valid alone, and together they cannot both hold. The finding shows both places.",
        "Change or remove one of them.";
    /// A list that needs an entry has none.
    EmptyList = "E019",
        "An empty list here would mean that nothing is served, checked or chosen, and leaving the key out means \
         something else.",
        "Add an entry, or leave the key out.";
    /// The file has more than `[node]` allows.
    OverLimit = "E020",
        "Tables in the kernel are allocated at start. `max_services` and `max_servers` say how large they are.",
        "Raise the limit in `[node]`; the daemon has to be restarted for it.";
    /// The configuration file is missing or cannot be read.
    Unreadable = "E021",
        "The file does not exist, or the user who runs the command may not read it.",
        "Name the file with `--config`, or correct its owner and mode.";
    /// The file is larger than any configuration.
    TooLarge = "E022",
        "A configuration has at most 16 MiB.",
        "Check that the right file is named. Long lists of servers belong in `servers_file`.";
    /// The file is not UTF-8.
    NotUtf8 = "E023",
        "TOML and JSON are UTF-8 text. The message names the first byte that is not.",
        "Save the file as UTF-8.";
    /// The file contains NUL bytes.
    HasNul = "E024",
        "Text has none; the file was truncated by a crash, or is not a text file.",
        "Restore the file from a copy.";
    /// This machine has no interface of that name.
    NoInterface = "E025",
        "Weir would have to attach a program or add an address to it, so `run` and `reload` would fail.",
        "Correct the name (`ip link` lists them), or create the interface first.";
    /// The check that is named here does not exist.
    DanglingCheck = "E040",
        "A pool or server names a check, and the file has no `[check.NAME]` of that name.",
        "Correct the name, or add the check.";
    /// A text that cannot be sent, or used, where it is written.
    BadText = "E041",
        "Header fields cannot contain control characters, files are named by absolute paths, and expressions must be \
         valid.",
        "Write what the message asks for.";
    /// The check has no port to connect to.
    NoCheckPort = "E042",
        "A server without a port gets the port that the client used. A check has no client: without `port` it takes \
         the port of the service, and there is not exactly one.",
        "Add `port` to the check, or a port to the server.";
    /// The API would listen where other machines can connect, without TLS.
    AdminWithoutTls = "E060",
        "Tokens and configurations would cross the network in clear text.",
        "Add `tls` to `[node.admin]`, or listen on 127.0.0.1 or [::1].";
    /// Only the owner of the daemon may bring this change.
    OwnerOnly = "E061",
        "A configuration that is sent as text may not add or change programs, accounts, files, or who controls the \
         daemon: whoever may send one would otherwise have the rights of the daemon's user.",
        "Let root, or the user that runs Weir, reload the file.";
    /// A secret cannot be read.
    NoSecret = "E070",
        "The file, the variable or the systemd credential that should hold the secret is missing, empty or not \
         readable.",
        "Create it where the message says, readable by the user that runs Weir.";
    /// No service uses this pool.
    UnusedPool = "W001",
        "Neither a service nor a route names it, so that its servers get no clients and are not checked.",
        "Name it in a service or route, or take it out.";
    /// The server's port is not the listener's, and this forwarding method does not change ports.
    PortStays = "W002",
        "Under `direct`, `tunnel` and `l3dsr` the packet keeps the client's destination port. A server's port is \
         used by checks alone.",
        "Leave the port out, listen on it, or use `forward = \"nat\"`.";
    /// Every server of a pool in use has weight 0.
    AllQuiesced = "W003",
        "Weight 0 takes no new clients, so that the service refuses them all.",
        "Give at least one server a weight of 1 or more.";
    /// The source ports of `snat` are also the director's own.
    LocalPorts = "W004",
        "The kernel takes the source ports of outgoing connections from `net.ipv4.ip_local_port_range`. A connection \
         of the director may already use a port that `snat` chooses, and the replies of one of them are lost.",
        "Choose other `ports`, or change net.ipv4.ip_local_port_range.";
    /// A key that has no effect here.
    NoEffect = "W005",
        "Another setting makes sure that nothing reads this key: the forwarding method, the protocol or the kind of \
         check does not use it.",
        "Leave it out, or change the setting that the finding shows.";
    /// A pool in use has no servers.
    NoServers = "W006",
        "The service refuses all its clients.",
        "Add `servers`, `servers_file` or `servers_dns`.";
    /// A server is the service's own VIP and port.
    ServerIsVip = "W007",
        "The packets would come back to the director as a client's.",
        "Write the server's own address.";
    /// A service takes the packets of the API's address.
    AdminShadowed = "W008",
        "The data plane sees packets before the machine's own sockets do, so that the API cannot be reached there.",
        "Give `admin` or the service another address or port.";
    /// No request reaches this route.
    UnreachableRoute = "W009",
        "Routes are tried in order, and one above it takes every request that would fit.",
        "Move the route up, or make the one above more specific.";
    /// Packets with a firewall mark arrive only where the kernel forwards.
    NoForwarding = "W010",
        "A service on `fwmark/N` takes packets that the kernel's stack has marked and routed, and forwarding is off \
         on this machine.",
        "Set net.ipv4.ip_forward=1, for IPv6 net.ipv6.conf.all.forwarding=1.";
    /// No pool and no server uses this check.
    UnusedCheck = "W020",
        "A `[check.NAME]` does nothing until a pool or server names it.",
        "Write `check = \"NAME\"` in a pool, or take the check out.";
    /// The pool's services listen on several ports, and the check connects to one of them.
    CheckPort = "W021",
        "A failure of the others is not noticed.",
        "Add `port` to the check to confirm the choice, or add one check for each port.";
    /// A pool in use has servers without a check.
    Unchecked = "W022",
        "A server that fails keeps its share of the clients until someone drains it.",
        "Add `check = { kind = \"tcp\" }` or a better one to the pool.";
    /// A route's path is compared in another spelling than the one that is written.
    PathSpelling = "W030",
        "Paths are compared in their normal form (RFC 3986 section 6.2.2): unneeded escapes decoded, escapes in \
         upper case.",
        "Write the path as the message shows it.";
    /// No request has such a path after normalization.
    PathNotNormal = "W031",
        "Dot segments, doubled slashes and unneeded escapes are gone before routes compare paths, so that this route \
         never fits.",
        "Write the path for normalized requests, or set `normalize_path = false` in the service.";
    /// The table is read and kept, and nothing acts on it.
    Kept = "W040",
        "It is for a later version; this one moves no addresses between directors.",
        "Leave that task to keepalived (docs/manual/failover.md).";
    /// Every user of the machine can read a secret.
    ExposedSecret = "W070",
        "The configuration holds a secret as text, or names a file that holds it, and the mode lets everyone read \
         it.",
        "Run `chmod 600` on the file, or keep the secret in a file of its own: `{ file = \"/etc/weir/cookie.secret\" \
         }`.";
    /// A scheduler was named by an alias.
    Alias = "N001",
        "HAProxy's and nginx's names are understood. The note says which of Weir's schedulers it became.",
        "Nothing has to be changed; Weir's own name avoids the note.";
    /// Findings were left out.
    TooMany = "N002",
        "A file with more than 1000 different errors or warnings is probably not the intended one.",
        "Correct those that are shown, and check again.";
    /// Packets with a firewall mark pass through the kernel's stack.
    MarkCost = "N003",
        "The mark is set by the stack's firewall, so that XDP cannot take these packets first. They cost more than \
         those of a listener with an address.",
        "Use an address and a port where possible.";
    /// Connections end when another director takes the VIP over.
    FailoverEndsFlows = "N004",
        "The other director has no entries for these flows. It sends their packets to the right servers only if it \
         chooses without memory.",
        "Use `scheduler = \"maglev\"` under `direct`, `tunnel` or `l3dsr`, and the same file on both directors \
         (docs/manual/failover.md).";
}

impl Code {
    /// The weight, which the first letter tells.
    pub const fn severity(self) -> Severity {
        match self.as_str().as_bytes()[0] {
            b'E' => Severity::Error,
            b'W' => Severity::Warning,
            _ => Severity::Note,
        }
    }

    /// Whether it says that something is not there. A file that broke off may hold it all the same, so beside syntax
    /// errors such findings are worth nothing.
    pub(crate) const fn is_absence(self) -> bool {
        matches!(
            self,
            Self::MissingKey
                | Self::DanglingPool
                | Self::DanglingCheck
                | Self::NoCheckPort
                | Self::UnusedCheck
                | Self::Unchecked
                | Self::EmptyList
                | Self::UnusedPool
                | Self::NoServers
                | Self::AllQuiesced
                | Self::NoEffect
        )
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_is_given_twice() {
        let mut numbers: Vec<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), Code::ALL.len());
    }

    #[test]
    fn every_code_is_explained_in_sentences_of_its_own() {
        let mut seen = std::collections::HashSet::new();
        for code in Code::ALL {
            let Explanation { title, cause, fix } = code.explanation();
            for text in [title, cause, fix] {
                assert!(text.len() > 12 && text.ends_with('.'), "{code}: {text}");
                assert!(!text.contains("  "), "{code}: {text}");
            }
            assert!(seen.insert(title) && seen.insert(cause), "{code}: {title}");
            assert_eq!(Code::named(&code.as_str().to_lowercase()), Some(*code));
        }
        assert_eq!(Code::named("E999"), None);
    }
}
