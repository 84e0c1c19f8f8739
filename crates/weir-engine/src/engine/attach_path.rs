//! Attaches the packet path to one device: tries XDP and tc in the order of `network::mode`'s [`Plan`].

use weir_dataplane::{Dataplane, Error, Mode, XdpChoice};

use crate::network::Plan;

/// The hooks of a device, without the plane, so that tests can replace the kernel.
pub(super) trait Hooks {
    /// Attaches XDP, and returns its mode. A program of Weir that is already attached keeps its mode.
    ///
    /// # Errors
    /// Those of [`Dataplane::attach`].
    fn attach_xdp(&mut self, choice: XdpChoice) -> Result<Mode, Error>;

    /// Attaches the packet path at tc, and detaches XDP.
    ///
    /// # Errors
    /// Those of [`Dataplane::attach_at_tc`].
    fn attach_at_tc(&mut self) -> Result<Mode, Error>;
}

/// The hooks of a device in the kernel.
pub(super) struct KernelHooks<'a> {
    pub(super) plane: &'a Dataplane,
    pub(super) ifindex: u32,
}

impl Hooks for KernelHooks<'_> {
    fn attach_xdp(&mut self, choice: XdpChoice) -> Result<Mode, Error> {
        self.plane.attach(self.ifindex, choice)
    }

    fn attach_at_tc(&mut self) -> Result<Mode, Error> {
        self.plane.attach_at_tc(self.ifindex)
    }
}

/// Attaches the packet path and returns its mode.
///
/// # Errors
/// [`Error::Busy`]: a different XDP program is attached, which must not be bypassed at tc. All other errors are those
/// of the last hook that was tried.
pub(super) fn attach_path(plan: Plan, hooks: &mut impl Hooks) -> Result<Mode, Error> {
    match plan {
        Plan::Tc => hooks.attach_at_tc(),
        Plan::Xdp => hooks.attach_xdp(XdpChoice::Best),
        Plan::NativeOrTc => match hooks.attach_xdp(XdpChoice::Native) {
            // Generic XDP is left over from an earlier configuration or version.
            Ok(Mode::Generic) => hooks.attach_at_tc(),
            Err(error) if !matches!(error, Error::Busy { .. }) => {
                tracing::debug!(%error, "attaching to tc instead of XDP");
                hooks.attach_at_tc()
            }
            result => result,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// The programs that a device accepts.
    #[derive(Clone, Copy, Debug)]
    enum Device {
        /// Native and generic XDP.
        Native,
        /// Generic XDP only, and no program is attached.
        NoNative,
        /// A generic program of Weir is attached.
        GenericAttached,
        /// A program that is not from Weir is attached.
        Busy,
        /// Neither XDP nor tc.
        Nothing,
    }

    struct FakeHooks {
        device: Device,
        calls: Vec<&'static str>,
    }

    fn kernel_error(operation: &'static str) -> Error {
        Error::Kernel {
            operation,
            subject: "the device".to_owned(),
            source: io::Error::from_raw_os_error(95),
        }
    }

    impl Hooks for FakeHooks {
        fn attach_xdp(&mut self, choice: XdpChoice) -> Result<Mode, Error> {
            self.calls.push(match choice {
                XdpChoice::Best => "best XDP",
                XdpChoice::Native => "native XDP",
                XdpChoice::Generic => "generic XDP",
            });
            match (self.device, choice) {
                (Device::Native, XdpChoice::Best | XdpChoice::Native) => Ok(Mode::Native),
                (Device::GenericAttached, _)
                | (Device::Native | Device::NoNative, XdpChoice::Generic)
                | (Device::NoNative, XdpChoice::Best) => Ok(Mode::Generic),
                (Device::Busy, _) => Err(Error::Busy { ifindex: 2 }),
                (Device::NoNative | Device::Nothing, _) => Err(kernel_error("attach XDP")),
            }
        }

        fn attach_at_tc(&mut self) -> Result<Mode, Error> {
            self.calls.push("tc");
            match self.device {
                Device::Nothing => Err(kernel_error("attach tc")),
                _ => Ok(Mode::Tc),
            }
        }
    }

    /// For each plan and device: the mode or the error, and the hooks that were tried.
    #[test]
    fn plan_and_device_determine_mode() {
        let (native, generic, tc) = (Ok(Mode::Native), Ok(Mode::Generic), Ok(Mode::Tc));
        let busy = Err("busy");
        for (plan, device, expected, calls) in [
            (Plan::Tc, Device::Native, tc, &["tc"][..]),
            (Plan::Tc, Device::GenericAttached, tc, &["tc"]),
            (Plan::Tc, Device::Nothing, Err("attach tc"), &["tc"]),
            (Plan::Xdp, Device::Native, native, &["best XDP"]),
            (Plan::Xdp, Device::NoNative, generic, &["best XDP"]),
            (Plan::Xdp, Device::GenericAttached, generic, &["best XDP"]),
            (Plan::Xdp, Device::Busy, busy, &["best XDP"]),
            (Plan::Xdp, Device::Nothing, Err("attach XDP"), &["best XDP"]),
            (Plan::NativeOrTc, Device::Native, native, &["native XDP"]),
            (
                Plan::NativeOrTc,
                Device::NoNative,
                tc,
                &["native XDP", "tc"],
            ),
            (
                Plan::NativeOrTc,
                Device::GenericAttached,
                tc,
                &["native XDP", "tc"],
            ),
            (Plan::NativeOrTc, Device::Busy, busy, &["native XDP"]),
            (
                Plan::NativeOrTc,
                Device::Nothing,
                Err("attach tc"),
                &["native XDP", "tc"],
            ),
        ] {
            let mut hooks = FakeHooks {
                device,
                calls: Vec::new(),
            };
            let actual = attach_path(plan, &mut hooks).map_err(|error| match error {
                Error::Busy { .. } => "busy",
                Error::Kernel { operation, .. } => operation,
                other => panic!("{plan:?} {device:?}: {other}"),
            });
            assert_eq!(actual, expected, "{plan:?} {device:?}");
            assert_eq!(hooks.calls, calls, "{plan:?} {device:?}");
        }
    }
}
