//! Events that happen to the group while connections are open.

/// An event during a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Another director joins.
    DirectorAdded,
    /// A director is drained: `weir node drain`, or its route is removed.
    DirectorDrained,
    /// `kill -9` of the BGP speaker and of all processes of the balancer.
    DirectorKilled,
    /// The link of a director drops all frames; the router detects it with BFD.
    DirectorCut,
    /// Two of three members of etcd are killed, and started again.
    MajorityLost,
    /// Another server joins, and a director is killed at once.
    ServerAddedDirectorKilled,
    /// A server is drained, and another director joins at once.
    ServerDrainedDirectorAdded,
}

impl Event {
    pub(crate) const ALL: [Self; 7] = [
        Self::DirectorAdded,
        Self::DirectorDrained,
        Self::DirectorKilled,
        Self::DirectorCut,
        Self::MajorityLost,
        Self::ServerAddedDirectorKilled,
        Self::ServerDrainedDirectorAdded,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::DirectorAdded => "director-added",
            Self::DirectorDrained => "director-drained",
            Self::DirectorKilled => "director-killed",
            Self::DirectorCut => "director-cut",
            Self::MajorityLost => "majority-lost",
            Self::ServerAddedDirectorKilled => "server-added-director-killed",
            Self::ServerDrainedDirectorAdded => "server-drained-director-added",
        }
    }

    /// Returns whether the event requires a group with etcd.
    pub(crate) const fn needs_etcd(self) -> bool {
        match self {
            Self::MajorityLost => true,
            Self::DirectorAdded
            | Self::DirectorDrained
            | Self::DirectorKilled
            | Self::DirectorCut
            | Self::ServerAddedDirectorKilled
            | Self::ServerDrainedDirectorAdded => false,
        }
    }

    /// Returns the change of the number of announced paths.
    pub(crate) const fn path_change(self) -> i8 {
        match self {
            Self::DirectorAdded | Self::ServerDrainedDirectorAdded => 1,
            Self::DirectorDrained
            | Self::DirectorKilled
            | Self::DirectorCut
            | Self::ServerAddedDirectorKilled => -1,
            Self::MajorityLost => 0,
        }
    }
}
