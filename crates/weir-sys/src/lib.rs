//! Wraps kernel interfaces other than netlink and bpf(2): namespaces, capabilities, confinement, files, clocks.
//!
//! It also covers device features, mounts, CPUs, lock files, atomically replaced files and the service manager. Each
//! function reads state or makes one change for the calling thread or process. This crate contains no policy and keeps
//! no state between calls. `weir-netlink` handles routes and addresses, and `weir-dataplane` handles BPF objects; both
//! use this crate. `unsafe` is limited to the few calls without a safe wrapper, for example in [`ethtool`], [`NetNs`],
//! [`FrameSocket`] and [`names`].

mod activation;
mod capability;
mod cgroup;
mod channel;
mod clock;
mod confine;
mod cpu;
mod error;
pub mod ethtool;
mod file;
pub mod guarded_path;
mod limit;
mod lock;
mod mount;
pub mod names;
mod netns;
mod notify;
mod packet;
mod privilege;
pub mod privileged;
mod raw_ip;
mod segment;
mod service_socket;
pub mod untrusted_file;

pub use activation::inherited_files;
pub use capability::{Capabilities, Capability};
pub use cgroup::Cgroup;
pub use channel::{Channel, MAX_FILES, MAX_MESSAGE_BYTES, Message};
pub use clock::{Clock, SteadyClock, boot_id, now_ns};
#[cfg(debug_assertions)]
pub use confine::{ActionResults, try_forbidden_actions};
pub use confine::{
    become_account, drop_capabilities, keep_engine_capabilities, restrict_files,
    restrict_to_agent_calls, restrict_to_daemon_calls,
};
pub use cpu::{pin_thread, possible_cpus};
pub use error::Error;
pub use file::{
    create_private, read_owned_file, replace_file, replace_file_durably, replace_public_file,
    sealed_file,
};
pub use limit::{raise_memlock, raise_nofile, restore_nofile, set_not_dumpable, trim_heap};
pub use lock::LockFile;
pub use mount::{Bpffs, MountView, bpffs_at, mount_bpffs, pins_end_with_namespace};
pub use netns::{NetNs, NetNsGuard, NetNsId};
pub use notify::{Notification, Notifier};
pub use packet::FrameSocket;
pub use privilege::{
    account, command_as, create_shared_file, exit_with_parent, keep_net_raw, may_change_account,
    peer_groups, read_shared_file, read_stdout_file, redirect_stdin_to_null, replace_shared_file,
    replace_stdout_file, set_no_new_privs, set_normal_priority, set_process_name,
    set_real_time_priority, write_stdout_file,
};
pub use raw_ip::{RawIpSocket, RawPacket};
pub use segment::SegmentSocket;
pub use service_socket::{Peer, ServiceSocket, connect_to_service, create_private_listener};

/// The result of every fallible function of this crate.
pub type Result<T> = std::result::Result<T, Error>;
