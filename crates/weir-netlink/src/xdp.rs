//! Finds and detaches XDP programs that were attached with netlink, for example with `ip link set … xdp`.
//!
//! Weir's own programs are attached with BPF links, which netlink cannot detach.

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkMessage, LinkXdp};

use crate::{Netlink, Result};

/// `XDP_FLAGS_SKB_MODE` and `XDP_FLAGS_DRV_MODE` in linux/if_link.h.
const MODES: [u32; 2] = [1 << 1, 1 << 2];

impl Netlink {
    /// Returns the ID of the XDP program on a device, regardless of how the program was attached.
    ///
    /// # Errors
    /// Fails if the kernel rejects the dump.
    pub async fn xdp_program(&self, ifindex: u32) -> Result<Option<u32>> {
        let message = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let replies = self.dump("list links", message).await?;
        let mut links = replies.iter().filter_map(|reply| match reply {
            RouteNetlinkMessage::NewLink(message) => Some(message),
            _ => None,
        });
        let link = links.find(|link| link.header.index == ifindex);
        let attributes = link.into_iter().flat_map(|link| &link.attributes);
        let xdp = attributes.filter_map(|attribute| match attribute {
            LinkAttribute::Xdp(xdp) => Some(xdp),
            _ => None,
        });
        Ok(xdp.flatten().find_map(|attribute| match attribute {
            LinkXdp::ProgId(id) | LinkXdp::DrvProgId(id) | LinkXdp::SkbProgId(id) => Some(*id),
            _ => None,
        }))
    }

    /// Detaches a device's XDP programs that were attached with netlink.
    ///
    /// # Errors
    /// Fails if the device does not exist, `CAP_NET_ADMIN` is missing, or the program is attached with a BPF link.
    pub async fn detach_xdp(&self, ifindex: u32) -> Result<()> {
        for mode in MODES {
            let mut message = LinkMessage::default();
            message.header.index = ifindex;
            let no_program = vec![LinkXdp::Fd(-1), LinkXdp::Flags(mode)];
            message.attributes.push(LinkAttribute::Xdp(no_program));
            let request = format!("detach XDP from device {ifindex}");
            self.transact(&request, RouteNetlinkMessage::SetLink(message), 0)
                .await?;
        }
        Ok(())
    }
}
