//! The `clsact` hook, where kernels before 6.6 attach tc programs.
//!
//! It queues nothing and changes no packet's order. Queueing disciplines proper
//! are the operator's.

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage};

use crate::{Change, Error, Netlink, Result};

const CLSACT: &str = "clsact";

fn hook_message(ifindex: u32) -> TcMessage {
    let mut message = TcMessage::default();
    // Indexes of devices are positive ints in the kernel; one above cannot exist.
    message.header.index = i32::try_from(ifindex).unwrap_or(i32::MAX);
    message.header.handle = TcHandle {
        major: TcHandle::CLSACT.major,
        minor: 0,
    };
    message.header.parent = TcHandle::CLSACT;
    message
        .attributes
        .push(TcAttribute::Kind(CLSACT.to_owned()));
    message
}

impl Netlink {
    /// Whether a device has the `clsact` hook.
    ///
    /// # Errors
    /// The kernel refuses the dump.
    pub async fn has_clsact(&self, ifindex: u32) -> Result<bool> {
        let message = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default());
        let answers = self.dump("list qdiscs", message).await?;
        Ok(answers.iter().any(|answer| {
            let RouteNetlinkMessage::NewQueueDiscipline(found) = answer else {
                return false;
            };
            let kind = TcAttribute::Kind(CLSACT.to_owned());
            u32::try_from(found.header.index) == Ok(ifindex) && found.attributes.contains(&kind)
        }))
    }

    /// Gives a device the `clsact` hook.
    ///
    /// # Errors
    /// The older `ingress` qdisc is in its place (it has no egress side), there is no
    /// such device, or no `CAP_NET_ADMIN`.
    pub async fn ensure_clsact(&self, ifindex: u32) -> Result<Change> {
        let request = format!("add clsact to device {ifindex}");
        let message = RouteNetlinkMessage::NewQueueDiscipline(hook_message(ifindex));
        let change = self.create(&request, message).await?;
        if change == Change::None && !self.has_clsact(ifindex).await? {
            let occupied = rustix::io::Errno::EXIST.into();
            return Err(Error::refused(request, occupied));
        }
        Ok(change)
    }

    /// Removes the hook with every filter on it, also those of others.
    ///
    /// # Errors
    /// No `CAP_NET_ADMIN`.
    pub async fn remove_clsact(&self, ifindex: u32) -> Result<Change> {
        if !self.has_clsact(ifindex).await? {
            return Ok(Change::None);
        }
        let request = format!("remove clsact from device {ifindex}");
        let message = RouteNetlinkMessage::DelQueueDiscipline(hook_message(ifindex));
        self.remove(&request, message).await
    }
}
