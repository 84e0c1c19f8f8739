//! What makes a proxy service send a request to another server.

/// A way to fail that is not a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RetryCondition {
    /// The server could not be reached, or was not who it should be.
    Connect,
    /// It ended before it said anything.
    Empty,
    /// Its response did not begin in time.
    Timeout,
    /// What it said is no response, or only the beginning of a head.
    Malformed,
}

impl RetryCondition {
    /// Every condition.
    pub const ALL: [Self; 4] = [Self::Connect, Self::Empty, Self::Timeout, Self::Malformed];

    /// The name in configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Empty => "empty",
            Self::Timeout => "timeout",
            Self::Malformed => "malformed",
        }
    }
}

/// `retry_on` of a proxy service.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RetryOn {
    /// Sorted, each once.
    pub conditions: Vec<RetryCondition>,
    /// First and last status of each range.
    pub statuses: Vec<(u16, u16)>,
}

impl RetryOn {
    /// Statuses that may be listed: others are no failures.
    pub const STATUSES: (u16, u16) = (400, 599);

    /// Whether a condition is listed.
    pub fn has(&self, condition: RetryCondition) -> bool {
        self.conditions.contains(&condition)
    }

    /// Whether a status is.
    pub fn has_status(&self, status: u16) -> bool {
        let mut ranges = self.statuses.iter();
        ranges.any(|(from, to)| (*from..=*to).contains(&status))
    }
}

impl Default for RetryOn {
    fn default() -> Self {
        Self {
            conditions: vec![RetryCondition::Connect, RetryCondition::Empty],
            statuses: Vec::new(),
        }
    }
}

/// As in configuration, with commas between.
impl std::fmt::Display for RetryOn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let conditions = self.conditions.iter().map(|one| one.as_str().to_owned());
        let statuses = self.statuses.iter().map(|(from, to)| match from == to {
            true => from.to_string(),
            false => format!("{from}-{to}"),
        });
        let all: Vec<String> = conditions.chain(statuses).collect();
        match all.is_empty() {
            true => f.write_str("nothing"),
            false => f.write_str(&all.join(", ")),
        }
    }
}
