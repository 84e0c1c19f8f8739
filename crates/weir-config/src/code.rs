//! Defines the stable diagnostic codes: `E` is an error, which rejects the configuration; `W` is a warning; `N` is
//! informational.
//!
//! A code is never reused. The table below explains each code; diagnostic messages contain the details.

use std::fmt;

/// Severity of a diagnostic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The configuration is rejected.
    Error,
    /// Legal but suspicious; fails `weir check --strict`.
    Warning,
    /// Informational.
    Note,
}

impl Severity {
    /// Returns the severity as printed before a message, such as `error`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

/// Explanation of a code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Explanation {
    /// The meaning of the code, in one line.
    pub title: &'static str,
    /// Why the code is reported.
    pub cause: &'static str,
    /// How to fix the problem.
    pub fix: &'static str,
}

macro_rules! codes {
    ($(#[doc = $title:literal] $name:ident = $text:literal, $cause:literal, $fix:literal;)+) => {
        /// Code of a diagnostic.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code { $(#[doc = $title] $name,)+ }

        impl Code {
            /// Every code.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// Returns the code as printed, such as `E003`.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }

            /// Parses a code, such as `E003`, in upper or lower case.
            pub fn parse(number: &str) -> Option<Self> {
                let is_same = |code: &&Self| code.as_str().eq_ignore_ascii_case(number);
                Self::ALL.iter().find(is_same).copied()
            }

            /// Returns the explanation for users.
            pub fn explanation(self) -> Explanation {
                let (title, cause, fix) = match self { $(Self::$name => ($title, $cause, $fix),)+ };
                Explanation { title: title.trim_ascii(), cause, fix }
            }
        }
    };
}

// Each code has a title, a cause and a fix.
codes! {
    /// The file is not valid TOML or JSON.
    Syntax = "E001",
        "The parser cannot continue at this position. The rest of the line, or of a JSON file, is not checked.",
        "Write `KEY = VALUE`, put strings in double quotes, and close every bracket and quotation mark.";
    /// A key or table is defined twice.
    DuplicateKey = "E002",
        "TOML allows each key once per table, and each table header once. It is unclear which of the two is intended.",
        "Remove or rename one of them. Write several routes or checks as arrays of tables, with double brackets.";
    /// Unknown configuration key.
    UnknownKey = "E003",
        "Unknown keys are rejected, because an ignored misspelled key would silently leave its setting at the default.",
        "Use the key that the message suggests, or look it up in docs/manual/configuration/.";
    /// The value has the wrong type.
    WrongType = "E004",
        "Each key has one type: string, integer, boolean, list or table. Durations and sizes are strings with a unit.",
        "Write the value as shown on the key's manual page, for example `tcp = \"15m\"` instead of `tcp = 900`.";
    /// The number or duration is out of range.
    OutOfRange = "E005",
        "The kernel, the protocol or the data plane cannot represent such a value, or it would disable the service.",
        "Use a value in the range shown in the message.";
    /// Unknown value.
    UnknownValue = "E006",
        "The key accepts only a fixed set of values. Equivalent names from other programs are accepted for some keys.",
        "Use one of the values listed in the message.";
    /// The feature is not built yet.
    NotImplemented = "E007",
        "The key or value is reserved, but this version does not implement it. Such settings are rejected instead of \
         being ignored.",
        "Remove it, or use a version that supports it.";
    /// A required key is missing.
    MissingKey = "E008",
        "The key is required, and no default value is suitable for every installation.",
        "Add the key; the message has an example.";
    /// Invalid IP address, or one that is not allowed here.
    BadAddress = "E009",
        "Listener and server addresses must be unicast. Multicast, broadcast, unspecified and link-local addresses are \
         not allowed, and host names are not resolved here.",
        "Write the IP address. For servers known by name, use `servers_dns = { name = \"web.internal\", port = 8080 \
         }` in the pool.";
    /// Invalid listener.
    BadListener = "E010",
        "A listener is `fwmark/N`, `fwmark6/N`, or `[tcp/|udp/]ADDRESS:PORT`, where PORT may also be a range `A-B` or \
         `*`.",
        "Write for example \"192.0.2.10:80\", \"udp/192.0.2.10:53\" or \"[2001:db8::1]:80\".";
    /// Invalid port or port range.
    BadPort = "E011",
        "Ports are numbers from 1 to 65535. Service names are not supported.",
        "Write the number; a range is `A-B` with the smaller port first.";
    /// Invalid duration.
    BadDuration = "E012",
        "A duration is a whole number and a unit: `ms`, `s`, `m`, `h` or `d`.",
        "Write for example \"500ms\", \"30s\" or \"1h\".";
    /// Two listeners have the same address and port with the same precedence.
    DuplicateListener = "E013",
        "An exact port takes precedence over a range, and a range over `*`. Between two listeners with the same \
         precedence the choice would be ambiguous.",
        "Remove one of them, or change its port. Both listeners are shown.";
    /// A list contains a duplicate entry.
    DuplicateEntry = "E014",
        "A duplicate server would accidentally get twice its share of clients, and one name would refer to two \
         servers.",
        "Remove one of them. For a larger share, increase `weight`.";
    /// The pool does not exist.
    DanglingPool = "E015",
        "A service, a route or a split refers to a pool, but there is no `[pool.NAME]` with that name.",
        "Correct the name, or add the pool.";
    /// The forwarding method does not support this server's address family for this listener.
    FamilyMismatch = "E016",
        "`direct`, `nat` and `l3dsr` do not change the IP version of a packet, so a server must have the listener's \
         address family. `tunnel` encapsulates the packet and `proxy` opens a new connection: both support servers of \
         either family.",
        "Use a pool with servers of the listener's family, `forward = \"tunnel\"`, or `forward = \"proxy\"`.";
    /// Invalid name.
    BadName = "E017",
        "Names are used on command lines, in metrics and in `POOL/ADDRESS`. Names of header fields, cookies and groups \
         follow other rules.",
        "Pool, service and check names consist of ASCII letters, digits, `-`, `_` and `.`. For other names, see the \
         message.";
    /// Two settings are mutually exclusive.
    Contradiction = "E018",
        "Each setting is valid on its own, but not both together. Both locations are shown.",
        "Change or remove one of them.";
    /// A list that needs at least one entry is empty.
    EmptyList = "E019",
        "With an empty list nothing would be served, checked or selected; omitting the key has a different meaning.",
        "Add an entry, or remove the key.";
    /// The file exceeds a limit in `[node]`.
    OverLimit = "E020",
        "Kernel tables are allocated at startup, with the sizes `max_services` and `max_servers`. A server counts once \
         for each layer 4 service that uses it. The message shows the smallest value that is accepted. Servers and \
         services that a reload removes count until their flows have ended: a reload may need up to twice the value.",
        "Raise the limit in `[node]`, or remove the key: the default is at least twice the value that the file needs. \
         Then restart the daemon.";
    /// The configuration file is missing or cannot be read.
    Unreadable = "E021",
        "The file does not exist, or the user has no permission to read it.",
        "Specify the file with `--config`, or correct its owner and mode.";
    /// The file is too large.
    TooLarge = "E022",
        "Configuration files are limited to 16 MiB.",
        "Check that the right file is specified. Long server lists belong in `servers_file`.";
    /// The file is not UTF-8.
    NotUtf8 = "E023",
        "TOML and JSON must be UTF-8. The message shows the first invalid byte.",
        "Save the file as UTF-8.";
    /// The file contains NUL bytes.
    NulByte = "E024",
        "Text files contain no NUL bytes. The file may have been damaged by a crash, or it may be a binary file.",
        "Restore the file from a backup.";
    /// The interface does not exist.
    NoInterface = "E025",
        "Weir would attach a program or add an address to it, so `run` and `reload` would fail.",
        "Correct the name (`ip link` lists them), or create the interface first.";
    /// The check does not exist.
    DanglingCheck = "E040",
        "A pool or server refers to a check, but there is no `[check.NAME]` with that name.",
        "Correct the name, or add the check.";
    /// Invalid text.
    BadText = "E041",
        "Header fields must not contain control characters, file names must be absolute paths, and regular \
         expressions must be valid.",
        "Correct the value as the message describes.";
    /// The check has no port to connect to.
    NoCheckPort = "E042",
        "A server without a port uses the port of the client's connection. A check without `port` uses the service's \
         port, so the service must have exactly one.",
        "Add `port` to the check, or a port to the server.";
    /// The API would be reachable from other machines without TLS.
    AdminWithoutTls = "E060",
        "Tokens and configurations would be sent over the network in clear text.",
        "Add `tls` to `[node.admin]`, or listen on 127.0.0.1 or [::1].";
    /// Only the owner of the daemon may make this change.
    OwnerOnly = "E061",
        "A configuration that is uploaded as text must not add or change programs, accounts, files, or the daemon's \
         access control; otherwise, every client that may upload one would gain the privileges of the daemon's user.",
        "Reload the file as root or as the user who runs Weir.";
    /// A secret cannot be read.
    SecretUnavailable = "E070",
        "The file, environment variable or systemd credential that should contain the secret is missing, empty or \
         unreadable.",
        "Create it where the message indicates, readable by the user who runs Weir.";
    /// A list file cannot be used.
    BadListFile = "E075",
        "The file that lists networks, hosts, users or map entries is missing, unreadable or too large, or a line is \
         invalid. Without the list, the wrong requests would be admitted or rejected.",
        "Create it where the message indicates, readable by the user who runs Weir, with one entry per line.";
    /// An included file cannot be used.
    BadInclude = "E076",
        "A file listed in `include` does not exist, cannot be read, or is included twice.",
        "Correct the path, which is relative to the file that contains the `include`.";
    /// No service uses this pool.
    UnusedPool = "W001",
        "No service or route refers to the pool, so its servers are neither used nor checked.",
        "Use it in a service or route, or remove it.";
    /// The server's port differs from the listener's, and the forwarding method does not change ports.
    PortNotRewritten = "W002",
        "With `direct`, `tunnel` and `l3dsr` the destination port is not changed. A server's port is used only for \
         checks.",
        "Remove the port, listen on it, or use `forward = \"nat\"`.";
    /// Every server in a pool that is used has weight 0.
    AllQuiesced = "W003",
        "Servers with weight 0 do not receive new clients, so the service rejects every new client.",
        "Set the weight of at least one server to 1 or more.";
    /// The SNAT source ports overlap the director's local ports.
    LocalPorts = "W004",
        "The kernel allocates source ports for outgoing connections from `net.ipv4.ip_local_port_range`. If SNAT \
         selects a port that one of the director's own connections already uses, the replies to one of the two are \
         lost.",
        "Choose other `ports`, or change net.ipv4.ip_local_port_range.";
    /// The key has no effect here.
    NoEffect = "W005",
        "Another setting prevents this key from being used: the forwarding method, the protocol or the kind of check \
         does not support it.",
        "Remove it, or change the setting shown with the diagnostic.";
    /// A pool that is used has no servers.
    NoServers = "W006",
        "The service rejects all clients.",
        "Add `servers`, `servers_file` or `servers_dns`.";
    /// A server has the service's VIP and port.
    ServerIsVip = "W007",
        "Forwarded packets would return to the director as client packets.",
        "Use the server's own address.";
    /// A service listens on the API address.
    AdminShadowed = "W008",
        "The data plane processes packets before local sockets do, so the API would not be reachable at this address.",
        "Change the address or port of `admin` or of the service.";
    /// No request can reach this route.
    UnreachableRoute = "W009",
        "Routes are evaluated in order, and an earlier one matches every request that this one would match.",
        "Move the route up, or make the earlier one more specific.";
    /// Firewall mark services need IP forwarding, which is disabled.
    NoForwarding = "W010",
        "A service on `fwmark/N` handles packets that the kernel's network stack has marked and routed, but \
         forwarding is disabled on this machine.",
        "Set net.ipv4.ip_forward=1, or net.ipv6.conf.all.forwarding=1 for IPv6.";
    /// The `listen` address in `[sync]` is not configured on this machine.
    MissingSyncAddress = "W011",
        "Flows are not synchronized until an interface has the address. The file may be for another director.",
        "Use an address of this machine; `ip -brief address` lists them.";
    /// A server of `direct` is behind a router.
    DirectThroughRouter = "W012",
        "`direct` changes only the destination MAC address of a packet. A router that receives such a packet routes it \
         by its destination address, the VIP, so it returns the packet to the director. Servers from lists \
         (`servers_file`, `servers_dns`, API) are examined when the file is checked, planned, reloaded, or loaded at \
         startup, but not when a list changes later.",
        "Use `forward = \"tunnel\"` or `forward = \"l3dsr\"`, which work through routers, or connect the server to a \
         network of the director.";
    /// GRE tunnels have checksums, and the data plane receives packets of many segments.
    GreChecksum = "W013",
        "On virtual devices, with drivers of virtual machines that reject native XDP, and with `attach = \"tc\"`, \
         packets may consist of many segments, which a device splits later. The kernel cannot compute the GRE \
         checksum of each segment, so Weir drops these packets (`drop_gso_tunnel`), and uploads stall. Which mode a \
         driver accepts is known while a director runs; otherwise only drivers that report no XDP are recognized.",
        "Remove `checksum` from `tunnel` here and on the servers, or use `type = \"gue\"`, which omits the checksum of \
         such packets.";
    /// No pool or server uses this check.
    UnusedCheck = "W020",
        "A `[check.NAME]` has no effect until a pool or server refers to it.",
        "Add `check = \"NAME\"` to a pool, or remove the check.";
    /// The pool's services listen on several ports, but the check connects to only one.
    CheckPort = "W021",
        "A failure on the other ports is not detected.",
        "If checking one port is enough, set `port` in the check; otherwise, add one check for each port.";
    /// A pool that is used has servers without a health check.
    Unchecked = "W022",
        "A failed server keeps its share of the clients until an operator drains it.",
        "Add `check = { kind = \"tcp\" }` or a more specific check to the pool.";
    /// A service that terminates TLS sends unencrypted data to the same port on its servers.
    PlainToTlsPort = "W023",
        "A server without a port uses the port of the client's connection. The service terminates TLS, so the server \
         receives plain HTTP or TCP on a port where it probably expects TLS, and every request fails with 502.",
        "Add the server's port: `\"10.0.0.5:80\"`. If it expects TLS, add `tls` to the pool.";
    /// A route path is not compared in the form in which it is written.
    PathSpelling = "W030",
        "Paths are compared in normalized form (RFC 3986 section 6.2.2): unnecessary percent-encodings are decoded, \
         and the others are converted to upper case.",
        "Write the path as shown in the message.";
    /// A route path cannot match any normalized request path.
    PathNotNormalized = "W031",
        "Dot segments, duplicate slashes and unnecessary percent-encodings are removed before routes compare paths, so \
         this route never matches.",
        "Write the path in normalized form, or set `normalize_path = false` in the service.";
    /// The SNAT source address does not fail over with the VIP.
    FixedSnatAddress = "W040",
        "Another director that takes over the flows does not take over this director's own address, so the replies are \
         lost.",
        "List addresses that fail over with the VIP, for example those in the `excluded_addresses` of the same \
         [vrrp.NAME].";
    /// Every user on the machine can read a secret.
    ExposedSecret = "W070",
        "The configuration contains a secret or refers to a file that contains one, and the file mode lets every user \
         read it.",
        "Run `chmod 600` on the file, or store the secret in a separate file: `{ file = \"/etc/weir/cookie.secret\" \
         }`.";
    /// The connection to etcd is not encrypted.
    UnencryptedEtcd = "W071",
        "A URL in `etcd` begins with http:// and refers to another machine. Anyone who can read the packets learns the \
         password of `user`; anyone who can modify them can change the configuration, unless the directors have a \
         `group_key`.",
        "Use https:// URLs with `ca`, and `group_key`.";
    /// The scheduler name is an alias.
    Alias = "N001",
        "Names used by HAProxy and nginx are accepted. The note shows the equivalent Weir scheduler.",
        "No change is required. Using Weir's own name avoids the note.";
    /// Diagnostics were omitted.
    TooManyDiagnostics = "N002",
        "A file with more than 1000 different problems is probably not the intended file.",
        "Fix the reported problems, then check again.";
    /// Packets for firewall mark services pass through the kernel's network stack.
    MarkOverhead = "N003",
        "The mark is set by the firewall in the network stack, so XDP cannot process these packets earlier. They cost \
         more than packets to a listener with an address.",
        "Use an address and port if possible.";
    /// Connections are lost when another director takes over the VIP.
    FailoverEndsFlows = "N004",
        "Without `[sync]`, the other director has no entries for these flows. It sends their packets to the right \
         servers only if the scheduler is stateless.",
        "Use `[sync]`, or `scheduler = \"maglev\"` with `direct`, `tunnel` or `l3dsr`, and the same file on both \
         directors (docs/manual/failover.md).";
    /// Directors divide the SNAT source ports among themselves.
    DividedPorts = "N005",
        "With `[sync]`, each director assigns its own part of the ports, so that flows that two directors accept at \
         the same time never have the same port. The parts are derived from the sorted addresses in `listen` and \
         `peers`.",
        "No change is required. If the part is too small, use more `ports` or `addresses`.";
    /// A virtual router's interface does not exist.
    MissingRouterInterface = "N006",
        "The virtual router is in the fault state until the interface exists and has a carrier. The interface may be \
         created later, or the file may be for another machine.",
        "Correct the name, or create the interface.";
    /// A configured program does not exist or is not executable.
    MissingProgram = "N007",
        "A check whose program cannot be started fails, so its servers go down. A tracked program that cannot be \
         started counts as failed. Notifications are not sent; the log reports this only when one is due.",
        "Install the program, make it executable with `chmod +x`, or correct the path.";
    /// The last group of a server's IPv6 address may be meant as a port.
    PossiblePort = "N008",
        "Without brackets, `2001:db8::22:80` is an address that ends in `:80`, and the server has no port.",
        "Write `[2001:db8::22]:80` for port 80, or `[2001:db8::22:80]` for the address, which avoids the note.";
}

impl Code {
    /// Returns the severity, which the first letter of the code determines.
    pub const fn severity(self) -> Severity {
        match self.as_str().as_bytes()[0] {
            b'E' => Severity::Error,
            b'W' => Severity::Warning,
            _ => Severity::Note,
        }
    }

    /// Returns whether the code reports that something is missing or unused. After a syntax error, such diagnostics are
    /// unreliable, because the parser may have skipped the rest of the file.
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
    fn codes_are_unique() {
        let mut numbers: Vec<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), Code::ALL.len());
    }

    #[test]
    fn every_code_has_unique_explanation() {
        let mut seen = std::collections::HashSet::new();
        for code in Code::ALL {
            let Explanation { title, cause, fix } = code.explanation();
            for text in [title, cause, fix] {
                assert!(text.len() > 12 && text.ends_with('.'), "{code}: {text}");
                assert!(!text.contains("  "), "{code}: {text}");
            }
            assert!(seen.insert(title) && seen.insert(cause), "{code}: {title}");
            assert_eq!(Code::parse(&code.as_str().to_lowercase()), Some(*code));
        }
        assert_eq!(Code::parse("E999"), None);
    }
}
