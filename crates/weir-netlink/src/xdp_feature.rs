//! Reads the XDP features of drivers from the generic netlink family `netdev`.
//!
//! Requires kernel 6.3 (`Documentation/netlink/specs/netdev.yaml`). A driver reports its current features: veth, for
//! example, reports transmission only while its peer has a program attached or GRO enabled.

use rustix::io::Errno;

use crate::generic::{GenericMessage, GenericSocket};
use crate::{Netlink, Result};

const FAMILY: &str = "netdev";
const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;

/// The XDP features of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XdpFeatures {
    /// The kernel's bits (`enum netdev_xdp_act`).
    pub bits: u64,
}

impl XdpFeatures {
    /// Returns whether programs run in the driver, with DROP, PASS, TX and ABORTED.
    pub const fn can_run_in_driver(self) -> bool {
        self.bits & 1 != 0
    }

    /// Returns whether programs can redirect to other devices.
    pub const fn can_redirect(self) -> bool {
        self.bits & 2 != 0
    }

    /// Returns whether the device transmits packets that programs of other devices redirect to it.
    pub const fn can_transmit(self) -> bool {
        self.bits & 4 != 0
    }
}

impl Netlink {
    /// Returns the XDP features of a device; `None` = the kernel is older than 6.3.
    ///
    /// # Errors
    /// Fails if the device does not exist, or the kernel rejects the request for another reason.
    pub async fn xdp_features(&self, ifindex: u32) -> Result<Option<XdpFeatures>> {
        let mut slot = self.generic.lock().await;
        let generic = match &mut *slot {
            Some(generic) => generic,
            empty => empty.insert(self.run_in_namespace(GenericSocket::open)??),
        };
        let Some(family) = generic.find_family(FAMILY).await? else {
            return Ok(None);
        };
        let message = GenericMessage::new(family, NETDEV_CMD_DEV_GET)
            .with(NETDEV_A_DEV_IFINDEX, &ifindex.to_ne_bytes());
        let request = format!("get XDP features of device {ifindex}");
        match generic.transact(&request, message).await {
            Ok(replies) => Ok(replies.iter().find_map(features_of)),
            Err(error) if error.has_errno(Errno::OPNOTSUPP) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn features_of(reply: &GenericMessage) -> Option<XdpFeatures> {
    let value = reply.attribute(NETDEV_A_DEV_XDP_FEATURES)?;
    let bits = u64::from_ne_bytes(value.try_into().ok()?);
    Some(XdpFeatures { bits })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feature_bits_are_parsed() {
        let reply = GenericMessage::new(30, NETDEV_CMD_DEV_GET)
            .with(NETDEV_A_DEV_IFINDEX, &7_u32.to_ne_bytes())
            .with(NETDEV_A_DEV_XDP_FEATURES, &0b100011_u64.to_ne_bytes());
        let features = features_of(&reply).unwrap();
        assert!(features.can_run_in_driver() && features.can_redirect());
        assert!(!features.can_transmit());
        let short = GenericMessage::new(30, 1).with(NETDEV_A_DEV_XDP_FEATURES, &[1]);
        assert_eq!(features_of(&short), None);
    }
}
