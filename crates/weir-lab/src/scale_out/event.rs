//! Defines the events that affect the group while connections are open.

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
    /// Two of the three etcd members are killed and started again.
    MajorityLost,
    /// Another server joins, and a director is killed immediately afterwards.
    ServerAddedDirectorKilled,
    /// A server is drained, and another director joins immediately afterwards.
    ServerDrainedDirectorAdded,
    /// A server is removed, and another director joins immediately afterwards.
    ServerRemovedDirectorAdded,
    /// A server is removed, and a director is killed immediately afterwards.
    ServerRemovedDirectorKilled,
    /// A server is removed, and a director whose pool never had that server starts immediately afterwards.
    ServerRemovedDirectorStarted,
}

impl Event {
    pub(crate) const ALL: [Self; 10] = [
        Self::DirectorAdded,
        Self::DirectorDrained,
        Self::DirectorKilled,
        Self::DirectorCut,
        Self::MajorityLost,
        Self::ServerAddedDirectorKilled,
        Self::ServerDrainedDirectorAdded,
        Self::ServerRemovedDirectorAdded,
        Self::ServerRemovedDirectorKilled,
        Self::ServerRemovedDirectorStarted,
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
            Self::ServerRemovedDirectorAdded => "server-removed-director-added",
            Self::ServerRemovedDirectorKilled => "server-removed-director-killed",
            Self::ServerRemovedDirectorStarted => "server-removed-director-started",
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
            | Self::ServerDrainedDirectorAdded
            | Self::ServerRemovedDirectorAdded
            | Self::ServerRemovedDirectorKilled
            | Self::ServerRemovedDirectorStarted => false,
        }
    }

    /// Returns whether a director joins within a second of another change. The lab starts this director before it opens
    /// connections, because the start can take longer than a second.
    pub(crate) const fn needs_spare_director(self) -> bool {
        match self {
            Self::ServerDrainedDirectorAdded | Self::ServerRemovedDirectorAdded => true,
            Self::DirectorAdded
            | Self::DirectorDrained
            | Self::DirectorKilled
            | Self::DirectorCut
            | Self::MajorityLost
            | Self::ServerAddedDirectorKilled
            | Self::ServerRemovedDirectorKilled
            | Self::ServerRemovedDirectorStarted => false,
        }
    }

    /// Returns the change in the number of announced paths.
    pub(crate) const fn path_change(self) -> i8 {
        match self {
            Self::DirectorAdded
            | Self::ServerDrainedDirectorAdded
            | Self::ServerRemovedDirectorAdded
            | Self::ServerRemovedDirectorStarted => 1,
            Self::DirectorDrained
            | Self::DirectorKilled
            | Self::DirectorCut
            | Self::ServerAddedDirectorKilled
            | Self::ServerRemovedDirectorKilled => -1,
            Self::MajorityLost => 0,
        }
    }
}
