//! Defines when a proxy service retries a request on another server.

named_enum! {
    /// A failure other than a response with an error status.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum RetryCondition {
        /// Connecting failed, or the server's certificate was rejected.
        Connect = "connect",
        /// The server closed the connection without a response.
        Empty = "empty",
        /// The response did not start in time.
        Timeout = "timeout",
        /// The response is invalid or its head is incomplete.
        Malformed = "malformed",
    }
}

/// A proxy service's `retry_on` setting.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RetryOn {
    /// Conditions, sorted, without duplicates.
    pub conditions: Vec<RetryCondition>,
    /// Status codes, as inclusive ranges.
    pub statuses: Vec<(u16, u16)>,
}

impl RetryOn {
    /// Range of allowed status codes; other codes are not errors.
    pub const STATUSES: (u16, u16) = (400, 599);

    /// Returns whether `condition` triggers a retry.
    pub fn has(&self, condition: RetryCondition) -> bool {
        self.conditions.contains(&condition)
    }

    /// Returns whether `status` triggers a retry.
    pub fn has_status(&self, status: u16) -> bool {
        let mut ranges = self.statuses.iter();
        ranges.any(|(first, last)| (*first..=*last).contains(&status))
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

/// Formats the conditions and status codes as in the configuration, separated by commas.
impl std::fmt::Display for RetryOn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let conditions = self.conditions.iter().map(|it| it.as_str().to_owned());
        let statuses = self
            .statuses
            .iter()
            .map(|(first, last)| match first == last {
                true => first.to_string(),
                false => format!("{first}-{last}"),
            });
        let all: Vec<String> = conditions.chain(statuses).collect();
        match all.is_empty() {
            true => f.write_str("none"),
            false => f.write_str(&all.join(", ")),
        }
    }
}
