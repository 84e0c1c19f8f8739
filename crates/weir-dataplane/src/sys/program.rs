//! Runs the bpf(2) commands for programs, links and test runs.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use super::{Command, call, object_info, take_ownership};

/// The first fields of `struct bpf_prog_info`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProgramInfo {
    pub(crate) kind: u32,
    pub(crate) id: u32,
    pub(crate) tag: [u8; 8],
}

/// Returns information about a program.
pub(crate) fn program_info(program: BorrowedFd<'_>) -> io::Result<ProgramInfo> {
    // SAFETY: ProgramInfo is the head of struct bpf_prog_info and ends before its first pointer.
    unsafe { object_info(program) }
}

/// `struct bpf_link_info` of a link on a device.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LinkInfo {
    pub(crate) kind: u32,
    pub(crate) id: u32,
    /// The program's ID.
    pub(crate) program: u32,
    pad: u32,
    /// 0 = the device was removed, and the link is detached.
    pub(crate) ifindex: u32,
    attach_type: u32,
}

/// Returns information about a link.
pub(crate) fn link_info(link: BorrowedFd<'_>) -> io::Result<LinkInfo> {
    // SAFETY: LinkInfo is the head of struct bpf_link_info as XDP, tcx and netkit links fill it: integers only.
    unsafe { object_info(link) }
}

/// `struct bpf_link_info` of a link on a cgroup.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CgroupLinkInfo {
    kind: u32,
    id: u32,
    program_id: u32,
    pad: u32,
    /// 0 = the cgroup was removed, and the link is detached.
    pub(crate) cgroup: u64,
}

/// Returns information about a link on a cgroup.
pub(crate) fn cgroup_link_info(link: BorrowedFd<'_>) -> io::Result<CgroupLinkInfo> {
    // SAFETY: CgroupLinkInfo is the head of struct bpf_link_info as cgroup links fill it: integers only.
    unsafe { object_info(link) }
}

/// The hook of a program: enum bpf_attach_type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum AttachType {
    Xdp = 37,
    TcxIngress = 46,
    TcxEgress = 47,
    SockOps = 3,
    Connect4 = 10,
    Connect6 = 11,
    Sendmsg4 = 14,
    Sendmsg6 = 15,
    Recvmsg4 = 19,
    Recvmsg6 = 20,
    Getpeername4 = 29,
    Getpeername6 = 30,
    SockRelease = 34,
}

#[repr(C)]
struct LinkCreateAttr {
    program: u32,
    target: u32,
    kind: u32,
    flags: u32,
    relative: u32,
    pad: u32,
    expected_revision: u64,
}

/// Attaches a program to a cgroup, in addition to other programs.
pub(crate) fn cgroup_link_create(
    program: BorrowedFd<'_>,
    cgroup: BorrowedFd<'_>,
    kind: AttachType,
) -> io::Result<OwnedFd> {
    link_create(program, cgroup.as_raw_fd() as u32, kind, 0)
}

/// Attaches a program. `target` is the index of a device in the calling thread's network namespace, or the file
/// descriptor of a cgroup.
pub(crate) fn link_create(
    program: BorrowedFd<'_>,
    target: u32,
    kind: AttachType,
    flags: u32,
) -> io::Result<OwnedFd> {
    let mut attr = LinkCreateAttr {
        program: program.as_raw_fd() as u32,
        target,
        kind: kind as u32,
        flags,
        relative: 0,
        pad: 0,
        expected_revision: 0,
    };
    // SAFETY: the attributes contain no pointers.
    unsafe { call(Command::LinkCreate, &mut attr) }.map(take_ownership)
}

#[repr(C)]
struct LinkUpdateAttr {
    link: u32,
    program: u32,
    flags: u32,
    old_program: u32,
}

/// Replaces a link's program atomically: every packet is processed by the old or the new program.
pub(crate) fn link_update(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let mut attr = LinkUpdateAttr {
        link: link.as_raw_fd() as u32,
        program: program.as_raw_fd() as u32,
        flags: 0,
        old_program: 0,
    };
    // SAFETY: the attributes contain no pointers.
    unsafe { call(Command::LinkUpdate, &mut attr) }.map(drop)
}

/// Detaches a link from its device, even if there are other references to the link.
pub(crate) fn link_detach(link: BorrowedFd<'_>) -> io::Result<()> {
    let mut attr = link.as_raw_fd() as u32;
    // SAFETY: the attributes contain no pointers.
    unsafe { call(Command::LinkDetach, &mut attr) }.map(drop)
}

/// `bpf_attr.query` of programs on a device.
#[repr(C)]
struct QueryAttr {
    ifindex: u32,
    kind: u32,
    query_flags: u32,
    attach_flags: u32,
    ids: u64,
    count: u32,
    pad: u32,
    program_flags: u64,
    links: u64,
    link_flags: u64,
    revision: u64,
}

/// Returns the IDs of the programs at a tcx hook, in execution order. The kernel allows at most 64.
pub(crate) fn programs_at(ifindex: u32, kind: AttachType) -> io::Result<Vec<u32>> {
    let mut ids = [0u32; 64];
    let mut attr = QueryAttr {
        ifindex,
        kind: kind as u32,
        query_flags: 0,
        attach_flags: 0,
        ids: ids.as_mut_ptr() as u64,
        count: ids.len() as u32,
        pad: 0,
        program_flags: 0,
        links: 0,
        link_flags: 0,
        revision: 0,
    };
    // SAFETY: the array has `count` elements; the other pointers are null, so nothing is written through them.
    unsafe { call(Command::ProgramQuery, &mut attr) }?;
    Ok(ids.into_iter().take(attr.count as usize).collect())
}

/// `bpf_attr.test`.
#[repr(C)]
#[derive(Default)]
pub(crate) struct TestRunAttr {
    program: u32,
    pub(crate) verdict: u32,
    packet_length: u32,
    pub(crate) out_length: u32,
    packet: u64,
    out: u64,
    repeat: u32,
    pub(crate) duration_ns: u32,
    context_length: u32,
    context_out_length: u32,
    context: u64,
    context_out: u64,
    flags: u32,
    cpu: u32,
    batch_size: u32,
    pad: u32,
}

impl TestRunAttr {
    /// Returns the attributes for `repeat` runs.
    pub(crate) fn new(repeat: u32, flags: u32) -> Self {
        Self {
            repeat,
            flags,
            ..Self::default()
        }
    }
}

/// Runs a program on a packet. Afterwards, `attr` contains the verdict, the length of the output and the duration.
/// `context` is read; it is written only if `out` is not empty.
pub(crate) fn test_run(
    program: BorrowedFd<'_>,
    attr: &mut TestRunAttr,
    packet: &[u8],
    out: &mut [u8],
    context: &mut [u8],
) -> io::Result<()> {
    let pointer = |length: usize, address: u64| if length == 0 { 0 } else { address };
    attr.program = program.as_raw_fd() as u32;
    attr.packet_length = packet.len() as u32;
    attr.out_length = out.len() as u32;
    attr.packet = packet.as_ptr() as u64;
    attr.out = pointer(out.len(), out.as_mut_ptr() as u64);
    attr.context_length = context.len() as u32;
    attr.context = pointer(context.len(), context.as_ptr() as u64);
    let wants_context_out = !context.is_empty() && !out.is_empty();
    attr.context_out_length = if wants_context_out {
        context.len() as u32
    } else {
        0
    };
    attr.context_out = if wants_context_out {
        context.as_mut_ptr() as u64
    } else {
        0
    };
    // SAFETY: every pointer and its length are those of a live slice; the kernel reads the context before it writes it.
    unsafe { call(Command::TestRun, attr) }.map(drop)
}
