//! What Weir asks of the kernel outside netlink and bpf(2): namespaces, device
//! features, mounts, capabilities, clocks, CPUs, lock files, files that are replaced
//! and the service manager.
//!
//! Every function reads a fact or makes one change to the calling
//! thread or process. Nothing here decides policy, keeps state between calls or
//! touches routes, addresses and BPF objects: those belong to `weir-netlink` and
//! `weir-dataplane`, which use this crate. `unsafe` is confined to the few
//! calls that have no safe wrapper ([`ethtool`], [`NetNs`], [`FrameSocket`], [`names`]).

mod activation;
mod capability;
mod channel;
mod clock;
mod cpu;
mod error;
pub mod ethtool;
mod file;
mod limit;
mod lock;
mod mount;
pub mod names;
mod netns;
mod notify;
mod packet;
mod privilege;
mod raw_ip;
pub mod untrusted_file;

pub use activation::inherited_files;
pub use capability::{Capabilities, Capability};
pub use channel::{Channel, FILES_MAX, MESSAGE_MAX, Message};
pub use clock::{Clock, boot_id, now_ns};
pub use cpu::{pin_thread, possible_cpus};
pub use error::Error;
pub use file::{create_private, replace_file, sealed_file};
pub use limit::{hide_memory, raise_memlock, raise_nofile, restore_nofile, trim_heap};
pub use lock::LockFile;
pub use mount::{Bpffs, MountView, bpffs_at, mount_bpffs};
pub use netns::{Entered, NetNs, NetNsId};
pub use notify::{Notification, Notifier};
pub use packet::FrameSocket;
pub use privilege::{account, close_stdin, end_with_parent, keep_net_raw, run_in_real_time};
pub use raw_ip::{RawIpSocket, RawPacket};

/// The result of every fallible function of this crate.
pub type Result<T> = std::result::Result<T, Error>;
