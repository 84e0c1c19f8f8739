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

macro_rules! codes {
    ($($(#[$doc:meta])+ $name:ident = $text:literal,)+) => {
        /// Number of a diagnostic.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code { $($(#[$doc])+ $name,)+ }

        impl Code {
            /// Every code.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// The number as printed, `E003`.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }
        }
    };
}

codes! {
    /// Not TOML, or not JSON.
    Syntax = "E001",
    /// A key or table is written twice.
    DuplicateKey = "E002",
    /// No such key here.
    UnknownKey = "E003",
    /// The value is of another type.
    WrongType = "E004",
    /// The number or duration is too small or too large.
    OutOfRange = "E005",
    /// The word is none of those known.
    UnknownValue = "E006",
    /// Part of Weir's language, and not of this build.
    NotBuilt = "E007",
    /// A key that must be there is not.
    MissingKey = "E008",
    /// Not an address, or one that cannot be used here.
    BadAddress = "E009",
    /// Not `[tcp/|udp/]ADDRESS:PORT`.
    BadListener = "E010",
    /// Not a port, or not a range of ports.
    BadPort = "E011",
    /// Not a duration.
    BadDuration = "E012",
    /// Two listeners claim one address and port with the same precision.
    DuplicateListener = "E013",
    /// One server, or one interface, is listed twice.
    DuplicateEntry = "E014",
    /// The pool named here does not exist.
    DanglingPool = "E015",
    /// The forwarding method cannot carry a listener's family to this server.
    FamilyMismatch = "E016",
    /// A name that no command line could take.
    BadName = "E017",
    /// Two values that exclude each other.
    Contradiction = "E018",
    /// A list that needs an entry has none.
    EmptyList = "E019",
    /// More than `[node]` allows.
    OverLimit = "E020",
    /// The file is missing, or cannot be read.
    Unreadable = "E021",
    /// The file is larger than any configuration.
    TooLarge = "E022",
    /// The file is not UTF-8.
    NotUtf8 = "E023",
    /// The file has NUL bytes.
    HasNul = "E024",
    /// The check named here does not exist.
    DanglingCheck = "E040",
    /// A text that cannot stand where it is to be sent.
    BadText = "E041",
    /// A check that has no port to go to.
    NoCheckPort = "E042",
    /// No service uses this pool.
    UnusedPool = "W001",
    /// The server's port differs from the listener's where the client's port stays.
    PortStays = "W002",
    /// Every server of a pool in use has weight 0.
    AllQuiesced = "W003",
    /// The source ports are also the director's own.
    LocalPorts = "W004",
    /// A key that nothing reads as the rest stands.
    NoEffect = "W005",
    /// A pool in use has no server.
    NoServers = "W006",
    /// A server is the service's own VIP and port.
    ServerIsVip = "W007",
    /// A listener takes the packets of the admin address.
    AdminShadowed = "W008",
    /// No request can come to this route.
    UnreachableRoute = "W009",
    /// Packets that carry a mark come here only where the kernel forwards.
    NoForwarding = "W010",
    /// No pool and no server uses this check.
    UnusedCheck = "W020",
    /// The services of a pool listen on several ports, and its check goes to one of them.
    CheckPort = "W021",
    /// A pool in use has servers that nothing checks.
    Unchecked = "W022",
    /// Read and kept for a later build; nothing acts on it.
    Kept = "W040",
    /// A scheduler was named by its alias.
    Alias = "N001",
    /// Findings were left out.
    TooMany = "N002",
    /// Packets that carry a mark go through the kernel's stack.
    MarkCost = "N003",
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
}
