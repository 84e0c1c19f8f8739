//! Attaches programs to devices through pinned links, which outlive this process.
//!
//! A link is created, then pinned: if the process dies in between, the kernel detaches the program. If the kernel has
//! no tcx, a filter on the clsact qdisc with a fixed priority and handle is used, and its program is pinned so the
//! filter can be found later.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use aya::programs::tc::{
    NlOptions, SchedClassifierLink, TcAttachOptions, TcHandle, qdisc_add_clsact,
};
use aya::programs::{SchedClassifier, TcAttachType};

use crate::error::{Context, Error, Result};
use crate::pins::{Hook, PinDir, remove_file};
use crate::sys::{self, AttachType};

const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
/// Without a target program: attach before all other tcx programs, so none of them sees a packet first.
const BPF_F_BEFORE: u32 = 1 << 3;

/// Priority of Weir's filters at clsact ingress (after XDP) and egress.
const CLSACT_PRIORITY: u16 = 0x57;
/// Priority of the filter with the whole packet path, which runs before Weir's other filter at ingress.
const CLSACT_BALANCE_PRIORITY: u16 = 0x56;
/// Handle of all of Weir's clsact filters.
const CLSACT_HANDLE: TcHandle = TcHandle::new(0, 0x5765);

/// The mode in which the packet path runs on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// XDP in the driver.
    Native,
    /// XDP on socket buffers, after GRO.
    Generic,
    /// At tc ingress, on socket buffers, which can be GRO aggregates and have partial checksums.
    Tc,
}

impl Mode {
    /// Returns the name used in configuration, status and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Generic => "generic",
            Self::Tc => "tc",
        }
    }

    /// Returns the mode of a hook; `None` for hooks outside the packet path.
    pub const fn from_hook(hook: Hook) -> Option<Self> {
        match hook {
            Hook::XdpNative => Some(Self::Native),
            Hook::XdpGeneric => Some(Self::Generic),
            Hook::Balance | Hook::ClsactBalance => Some(Self::Tc),
            _ => None,
        }
    }
}

/// The purpose of a tc program, which determines its hooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TcRole {
    /// Ingress, after XDP.
    Ingress,
    /// Egress.
    Egress,
    /// Ingress, with the whole packet path, instead of XDP.
    Balance,
}

impl TcRole {
    /// Returns the name used in error messages.
    const fn as_str(self) -> &'static str {
        match self {
            Self::Ingress => "tc ingress",
            Self::Egress => "tc egress",
            Self::Balance => "tc balancing",
        }
    }

    /// Returns the role's hooks: tcx, and clsact for kernels without tcx.
    pub(crate) const fn hooks(self) -> [Hook; 2] {
        match self {
            Self::Ingress => [Hook::Ingress, Hook::ClsactIngress],
            Self::Egress => [Hook::Egress, Hook::ClsactEgress],
            Self::Balance => [Hook::Balance, Hook::ClsactBalance],
        }
    }

    const fn clsact(self) -> (TcAttachType, u16) {
        match self {
            Self::Ingress => (TcAttachType::Ingress, CLSACT_PRIORITY),
            Self::Egress => (TcAttachType::Egress, CLSACT_PRIORITY),
            Self::Balance => (TcAttachType::Ingress, CLSACT_BALANCE_PRIORITY),
        }
    }
}

/// The requested XDP mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum XdpChoice {
    /// Native, or generic if native is not possible.
    #[default]
    Best,
    /// Native; an error if native is not possible.
    Native,
    /// Generic, even if the driver supports native XDP.
    Generic,
}

/// Attaches an XDP program to a device in the calling thread's network namespace, and pins the link in the pin
/// directory.
///
/// # Errors
/// Fails if a different program is attached ([`Error::Busy`]), or the device supports none of the allowed modes.
pub fn attach_xdp(
    pins: &PinDir,
    program: BorrowedFd<'_>,
    ifindex: u32,
    choice: XdpChoice,
) -> Result<Mode> {
    let attempt = |mode: Mode| -> Result<std::result::Result<Mode, io::Error>> {
        let (flags, hook) = match mode {
            Mode::Native => (XDP_FLAGS_DRV_MODE, Hook::XdpNative),
            Mode::Generic | Mode::Tc => (XDP_FLAGS_SKB_MODE, Hook::XdpGeneric),
        };
        let link = match sys::link_create(program, ifindex, AttachType::Xdp, flags) {
            Ok(link) => link,
            Err(error) if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST)) => {
                return Err(Error::Busy { ifindex });
            }
            Err(error) => return Ok(Err(error)),
        };
        let path = pins.link(ifindex, hook);
        remove_file(&path)?;
        sys::pin(link.as_fd(), &path).at(&path)?;
        Ok(Ok(mode))
    };
    let subject = || format!("the XDP program to device {ifindex}");
    match choice {
        XdpChoice::Native => attempt(Mode::Native)?.during("attach", subject),
        XdpChoice::Generic => attempt(Mode::Generic)?.during("attach", subject),
        XdpChoice::Best => {
            let native = match attempt(Mode::Native)? {
                Ok(mode) => return Ok(mode),
                Err(error) => error,
            };
            attempt(Mode::Generic)?.map_err(|generic| Error::NoXdp {
                ifindex,
                native,
                generic,
            })
        }
    }
}

/// Attaches a tc program with a pinned tcx link, or with clsact if the kernel has no tcx or `clsact` is set.
///
/// `program_pin` is the program's pin, which is needed for clsact.
///
/// # Errors
/// Fails if the device does not exist, or the kernel rejects the request.
pub fn attach_tc(
    pins: &PinDir,
    program: BorrowedFd<'_>,
    program_pin: &Path,
    ifindex: u32,
    role: TcRole,
    clsact: bool,
) -> Result<Hook> {
    let [hook, _] = role.hooks();
    let kind = match role {
        TcRole::Ingress | TcRole::Balance => AttachType::TcxIngress,
        TcRole::Egress => AttachType::TcxEgress,
    };
    let subject = || format!("the {} program to device {ifindex}", role.as_str());
    if !clsact {
        match sys::link_create(program, ifindex, kind, BPF_F_BEFORE) {
            Ok(link) => {
                let path = pins.link(ifindex, hook);
                remove_file(&path)?;
                sys::pin(link.as_fd(), &path).at(&path)?;
                return Ok(hook);
            }
            // Kernels before 6.6 lack the attach type.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            Err(error) => return Err(error).during("attach", subject),
        }
    }
    attach_clsact(pins, program, program_pin, ifindex, role)
}

fn attach_clsact(
    pins: &PinDir,
    program: BorrowedFd<'_>,
    program_pin: &Path,
    ifindex: u32,
    role: TcRole,
) -> Result<Hook> {
    let [_, hook] = role.hooks();
    let (kind, priority) = role.clsact();
    let name = device_name(ifindex)?;
    // The qdisc may already exist. If the call fails for another reason, adding the filter fails too.
    let _ = qdisc_add_clsact(&name);
    // Pin first: if the process dies in between, there is a pin without a filter, not a filter without a pin.
    let path = pins.link(ifindex, hook);
    remove_file(&path)?;
    sys::pin(program, &path).at(&path)?;
    let result = classifier(program_pin, ifindex).and_then(|mut classifier| {
        let options = NlOptions {
            priority,
            handle: CLSACT_HANDLE,
            classid: None,
        };
        let id = classifier
            .attach_with_options(&name, kind, TcAttachOptions::Netlink(options))
            .map_err(|error| clsact_error(ifindex, &error))?;
        let link = classifier
            .take_link(id)
            .map_err(|error| clsact_error(ifindex, &error))?;
        // Dropping the link would remove the filter.
        std::mem::forget(link);
        Ok(hook)
    });
    if result.is_err() {
        remove_file(&path)?;
    }
    result
}

/// Replaces the program of a clsact filter atomically.
fn replace_clsact(
    pins: &PinDir,
    program: BorrowedFd<'_>,
    program_pin: &Path,
    ifindex: u32,
    role: TcRole,
    hook: Hook,
) -> Result<()> {
    let link = clsact_link(ifindex, role)?;
    let mut classifier = classifier(program_pin, ifindex)?;
    let id = classifier
        .attach_to_link(link)
        .map_err(|error| clsact_error(ifindex, &error))?;
    let link = classifier
        .take_link(id)
        .map_err(|error| clsact_error(ifindex, &error))?;
    std::mem::forget(link);
    let path = pins.link(ifindex, hook);
    remove_file(&path)?;
    sys::pin(program, &path).at(&path)
}

fn classifier(program_pin: &Path, ifindex: u32) -> Result<SchedClassifier> {
    SchedClassifier::from_pin(program_pin).map_err(|error| clsact_error(ifindex, &error))
}

fn clsact_link(ifindex: u32, role: TcRole) -> Result<SchedClassifierLink> {
    let (kind, priority) = role.clsact();
    SchedClassifierLink::attached(&device_name(ifindex)?, kind, priority, CLSACT_HANDLE, None)
        .during("find the filter of", || format!("device {ifindex}"))
}

fn clsact_error(ifindex: u32, error: &dyn std::error::Error) -> Error {
    let mut message = error.to_string();
    if let Some(cause) = error.source() {
        message = format!("{message}: {cause}");
    }
    Error::Kernel {
        operation: "change the clsact filter of",
        subject: format!("device {ifindex}"),
        source: io::Error::other(message),
    }
}

fn device_name(ifindex: u32) -> Result<String> {
    interface_name(ifindex).during("get the name of", || format!("device {ifindex}"))
}

#[allow(unsafe_code, reason = "if_indextoname(3) fills a buffer")]
fn interface_name(ifindex: u32) -> io::Result<String> {
    let mut name = [0u8; libc::IF_NAMESIZE];
    // SAFETY: the buffer has the required size.
    let name_start = unsafe { libc::if_indextoname(ifindex, name.as_mut_ptr().cast()) };
    if name_start.is_null() {
        return Err(io::Error::last_os_error());
    }
    let end = name
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(name.len());
    Ok(String::from_utf8_lossy(&name[..end]).into_owned())
}

/// Returns the ids of all tcx programs at a device's ingress; empty if the kernel has no tcx.
///
/// # Errors
/// Fails if the device does not exist, or the kernel rejects the request.
pub fn tcx_ingress_programs(ifindex: u32) -> Result<Vec<u32>> {
    match sys::programs_at(ifindex, AttachType::TcxIngress) {
        // ENOENT: no program is attached. EINVAL: kernels before 6.6 lack the attach type.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINVAL)) => {
            Ok(Vec::new())
        }
        found => found.during("list the tcx programs of", || format!("device {ifindex}")),
    }
}

/// The current state of a pinned attachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// Index of the device.
    pub ifindex: u32,
    /// The hook.
    pub hook: Hook,
    /// The kernel's id of the attached program.
    pub program_id: u32,
}

/// Returns the attachments pinned in a directory. Skips pins of removed devices.
///
/// # Errors
/// Fails if the directory cannot be read or a pin cannot be opened.
pub fn attachments(pins: &PinDir) -> Result<Vec<Attachment>> {
    let mut found = Vec::new();
    for (ifindex, hook, path) in pins.links()? {
        let object = sys::open_pin(&path, sys::Access::Full).at(&path)?;
        let program_id = if clsact_role(hook).is_some() {
            if device_name(ifindex).is_err() {
                continue;
            }
            sys::program_info(object.as_fd()).at(&path)?.id
        } else {
            let info = sys::link_info(object.as_fd()).at(&path)?;
            if info.ifindex == 0 {
                continue;
            }
            info.program
        };
        found.push(Attachment {
            ifindex,
            hook,
            program_id,
        });
    }
    Ok(found)
}

fn clsact_role(hook: Hook) -> Option<TcRole> {
    match hook {
        Hook::ClsactIngress => Some(TcRole::Ingress),
        Hook::ClsactEgress => Some(TcRole::Egress),
        Hook::ClsactBalance => Some(TcRole::Balance),
        _ => None,
    }
}

/// Replaces the program of a pinned attachment atomically. Returns false if the program is already attached.
///
/// # Errors
/// Fails if the kernel rejects a request. The old program then stays attached, except if the new program has replaced
/// it at clsact and only the pin could not be replaced.
pub(crate) fn replace(
    pins: &PinDir,
    attachment: Attachment,
    program: BorrowedFd<'_>,
    program_pin: &Path,
) -> Result<bool> {
    let Attachment {
        ifindex,
        hook,
        program_id,
    } = attachment;
    let new_program =
        sys::program_info(program).during("read the properties of", || "a program".to_owned())?;
    if new_program.id == program_id {
        return Ok(false);
    }
    if let Some(role) = clsact_role(hook) {
        replace_clsact(pins, program, program_pin, ifindex, role, hook)?;
        return Ok(true);
    }
    let path = pins.link(ifindex, hook);
    let link = sys::open_pin(&path, sys::Access::Full).at(&path)?;
    sys::link_update(link.as_fd(), program)
        .during("replace the program of", || path.display().to_string())?;
    Ok(true)
}

/// Detaches and unpins an attachment. If the device was removed, only unpins it.
///
/// # Errors
/// Fails if the kernel returns an error; the pin stays.
pub fn detach(pins: &PinDir, ifindex: u32, hook: Hook) -> Result<()> {
    let path = pins.link(ifindex, hook);
    if let Some(role) = clsact_role(hook) {
        if device_name(ifindex).is_ok() {
            detach_clsact(ifindex, role)?;
        }
        return remove_file(&path);
    }
    let link = match sys::open_pin(&path, sys::Access::Full) {
        Ok(link) => link,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).at(&path),
    };
    match sys::link_detach(link.as_fd()) {
        Ok(()) => {}
        // Some links cannot be detached explicitly: removing the pin and closing the descriptor detaches them.
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {}
        Err(error) => return Err(error).during("detach", || path.display().to_string()),
    }
    remove_file(&path)
}

fn detach_clsact(ifindex: u32, role: TcRole) -> Result<()> {
    use aya::programs::links::Link;
    let link = clsact_link(ifindex, role)?;
    match link.detach() {
        Ok(()) => Ok(()),
        Err(error) => Err(clsact_error(ifindex, &error)),
    }
}

/// Unpins attachments of removed devices.
///
/// # Errors
/// Fails if the directory cannot be read or a pin cannot be removed.
pub(crate) fn unpin_removed_devices(pins: &PinDir) -> Result<()> {
    let live_attachments = attachments(pins)?;
    for (ifindex, hook, path) in pins.links()? {
        if !live_attachments
            .iter()
            .any(|attachment| attachment.ifindex == ifindex && attachment.hook == hook)
        {
            remove_file(&path)?;
        }
    }
    Ok(())
}
