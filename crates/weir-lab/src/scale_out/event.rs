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
    /// Every second director runs a different build, and a director is killed.
    MixedBuildsDirectorKilled,
    /// A director is upgraded to a different build with `weir upgrade`.
    DirectorUpgraded,
    /// A director that still has the old version of the configuration is killed while another one already has the new
    /// version.
    RolloutDirectorKilled,
    /// The only director that has the new version of the configuration is killed. The connections are opened after it
    /// has applied this version.
    RolloutFirstDirectorKilled,
}

impl Event {
    pub(crate) const ALL: [Self; 14] = [
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
        Self::MixedBuildsDirectorKilled,
        Self::DirectorUpgraded,
        Self::RolloutDirectorKilled,
        Self::RolloutFirstDirectorKilled,
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
            Self::MixedBuildsDirectorKilled => "mixed-builds-director-killed",
            Self::DirectorUpgraded => "director-upgraded",
            Self::RolloutDirectorKilled => "rollout-director-killed",
            Self::RolloutFirstDirectorKilled => "rollout-first-director-killed",
        }
    }

    /// Returns whether the event requires directors with Weir, in a group with etcd.
    pub(crate) const fn needs_group(self) -> bool {
        match self {
            Self::MajorityLost
            | Self::MixedBuildsDirectorKilled
            | Self::DirectorUpgraded
            | Self::RolloutDirectorKilled
            | Self::RolloutFirstDirectorKilled => true,
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

    /// Returns whether the event requires a second build of the program.
    pub(crate) const fn needs_second_build(self) -> bool {
        matches!(
            self,
            Self::MixedBuildsDirectorKilled | Self::DirectorUpgraded
        )
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
            | Self::ServerRemovedDirectorStarted
            | Self::MixedBuildsDirectorKilled
            | Self::DirectorUpgraded
            | Self::RolloutDirectorKilled
            | Self::RolloutFirstDirectorKilled => false,
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
            | Self::ServerRemovedDirectorKilled
            | Self::MixedBuildsDirectorKilled
            | Self::RolloutDirectorKilled
            | Self::RolloutFirstDirectorKilled => -1,
            Self::MajorityLost | Self::DirectorUpgraded => 0,
        }
    }
}
