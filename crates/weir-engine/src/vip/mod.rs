//! Adds, announces and removes VIPs of proxy services while there is no layer 4 engine.
//!
//! VIPs are added to `[node] vip_interface`, and removed when neither the configuration nor an open connection needs
//! them. Addresses are handed over to and from a virtual router on the same interface ([`Netlink::hand_over_address`]).
//! If there is an engine, it does this for layer 4 and proxy services; when it opens, it takes over the addresses
//! recorded here ([`read_record`]). An address is written to `RUNTIME_DIR/vips.json` before it is added, so
//! `weir clean` and the next daemon can remove it.

mod announce;
mod error;
mod record;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use weir_defense::{Defense, View};
use weir_model::Desired;
use weir_netlink::{Address, Change, Link, Netlink, TcpState, tcp_sockets};
use weir_sys::{Capabilities, Capability, FrameSocket};
use weir_wire::MacAddr;

pub(crate) use self::announce::Announcements;
pub use self::error::Error;
pub use self::record::{read_record, remove_record, write as write_record};

/// Minimum interval between searches for addresses without connections: each search lists all TCP sockets.
const WITHDRAW_INTERVAL: Duration = Duration::from_secs(5);

/// The VIPs that Weir has added for proxy services.
#[derive(Debug)]
pub struct Vips {
    runtime_dir: PathBuf,
    /// Added addresses, with their interfaces.
    added: BTreeSet<(String, IpAddr)>,
    announcements: Announcements,
    /// Finds other machines that reply for these VIPs.
    defense: Defense,
    /// Whether addresses that are already present have been announced and deprecated. Neighbors may have learned a
    /// different MAC address while no daemon was running.
    has_adopted_present: bool,
    /// Time of the last search for unneeded addresses.
    last_withdrawal: Instant,
    /// Whether links or addresses have changed.
    is_stale: bool,
}

impl Vips {
    /// Creates a `Vips` with the addresses that an earlier daemon added.
    pub fn new(runtime_dir: &Path) -> Self {
        Self {
            runtime_dir: runtime_dir.to_owned(),
            added: read_record(runtime_dir),
            announcements: Announcements::default(),
            defense: Defense::default(),
            has_adopted_present: false,
            last_withdrawal: Instant::now(),
            is_stale: false,
        }
    }

    /// Returns the addresses that Weir added, with their interfaces.
    pub const fn added(&self) -> &BTreeSet<(String, IpAddr)> {
        &self.added
    }

    /// Records that links or addresses have changed.
    pub const fn note_change(&mut self) {
        self.is_stale = true;
    }

    /// Adds the addresses that `desired` needs and this machine lacks, and removes added addresses that are no longer
    /// needed.
    ///
    /// # Errors
    /// Fails if `vip_interface` does not exist, an address cannot be added, handed over, removed or announced, or the
    /// record cannot be written.
    pub async fn apply(&mut self, desired: &Desired) -> Result<(), Error> {
        if desired.node.vip_interface.is_none() && self.added.is_empty() {
            return Ok(());
        }
        let netlink = Netlink::open()?;
        let links = netlink.links().await?;
        self.add(desired, &netlink, &links).await?;
        self.withdraw(desired, &netlink, &links).await?;
        self.is_stale = false;
        Ok(self
            .announcements
            .send(&netlink, |index| mac(&links, index))?)
    }

    /// Finds other machines that reply for VIPs, repeats announcements, adds addresses that other programs removed, and
    /// removes unneeded addresses without connections. The caller runs it once per second.
    ///
    /// # Errors
    /// See [`Self::apply`].
    pub async fn tick(&mut self, desired: &Desired) -> Result<(), Error> {
        let has_unneeded = self.added.iter().any(|entry| !is_needed(desired, entry));
        if self.is_stale || (has_unneeded && self.last_withdrawal.elapsed() >= WITHDRAW_INTERVAL) {
            let expected: BTreeSet<IpAddr> =
                self.added.iter().map(|(_, address)| *address).collect();
            let present_vips = present_addresses(&Netlink::open()?).await?;
            for address in expected.difference(&present_vips) {
                tracing::warn!(%address, "re-adding a VIP that another program removed");
            }
            return self.apply(desired).await;
        }
        let must_defend =
            desired.node.vip_interface.is_some() && self.defense.is_due(Instant::now());
        if self.announcements.is_empty() && !must_defend {
            return Ok(());
        }
        let netlink = Netlink::open()?;
        let links = netlink.links().await?;
        if must_defend && can_announce()? {
            self.defend(desired, &netlink, &links).await?;
        }
        Ok(self
            .announcements
            .send(&netlink, |index| mac(&links, index))?)
    }

    /// Schedules announcements of the VIPs on `[node] vip_interface` for which another machine replies or has stopped
    /// replying.
    async fn defend(
        &mut self,
        desired: &Desired,
        netlink: &Netlink,
        links: &[Link],
    ) -> Result<(), Error> {
        let name = desired.node.vip_interface.as_ref();
        let link = links.iter().find(|link| Some(&link.name) == name);
        let mut view = View::default();
        if let Some(link) = link {
            let addresses = netlink.addresses().await?;
            let needed_addresses: BTreeSet<IpAddr> = desired.proxy_addresses().collect();
            let is_owned = |it: &&Address| {
                it.ifindex == link.index
                    && needed_addresses.contains(&it.ip)
                    && !desired.is_vrrp_address(it.ip)
            };
            let owned_addresses = addresses.iter().filter(is_owned);
            view.addresses
                .extend(owned_addresses.map(|address| (link.index, address.ip)));
            let links: Vec<&Link> = links.iter().collect();
            view.add_interface(link.index, &links, &addresses);
        }
        let open = |ifindex, ethertype| {
            let open = || FrameSocket::open_listener(ifindex, ethertype);
            Ok::<_, weir_netlink::Error>(netlink.run_in_namespace(open)??)
        };
        for event in self.defense.tick(&view, open, Instant::now()) {
            event.log(name.map_or("", String::as_str));
            self.announcements.add_for(&event);
        }
        Ok(())
    }

    async fn add(
        &mut self,
        desired: &Desired,
        netlink: &Netlink,
        links: &[Link],
    ) -> Result<(), Error> {
        let Some(name) = &desired.node.vip_interface else {
            return Ok(());
        };
        let Some(link) = links.iter().find(|link| link.name == *name) else {
            return Err(Error::NoInterface { name: name.clone() });
        };
        let addresses = netlink.addresses().await?;
        let on_link = || addresses.iter().filter(|it| it.ifindex == link.index);
        let handed_over: BTreeMap<IpAddr, u8> = on_link()
            .filter(|it| it.handed_over)
            .map(|it| (it.ip, it.prefix))
            .collect();
        // Addresses that a virtual router has handed over need an owner, so treat them like missing addresses.
        let owned_addresses = addresses.iter().map(|address| address.ip);
        let present_vips: BTreeSet<IpAddr> = owned_addresses
            .filter(|it| !handed_over.contains_key(it))
            .collect();
        let needed_addresses: BTreeSet<IpAddr> = desired
            .proxy_addresses()
            .filter(|vip| !desired.is_vrrp_address(*vip))
            .collect();
        if !std::mem::replace(&mut self.has_adopted_present, true) {
            let is_added = |it: &&Address| self.added.contains(&(name.clone(), it.ip));
            for address in on_link().filter(is_added).filter(|it| is_preferred(it)) {
                deprecate(netlink, link.index, address.ip).await;
            }
            if can_announce()? {
                for address in on_link().filter(|it| needed_addresses.contains(&it.ip)) {
                    self.announcements.add(link.index, address.ip);
                }
            }
        }
        let missing: Vec<IpAddr> = needed_addresses
            .difference(&present_vips)
            .copied()
            .collect();
        let Some(first) = missing.first() else {
            return Ok(());
        };
        if !Capabilities::effective()?
            .missing(&[Capability::NetAdmin])
            .is_empty()
        {
            return Err(Error::MissingCapability { address: *first });
        }
        let previous = self.added.clone();
        self.added
            .extend(missing.iter().map(|vip| (name.clone(), *vip)));
        // Persist first: after a crash, the record may name an address that was not added, but every added address is
        // recorded.
        record::write(&self.runtime_dir, &self.added)?;
        for vip in missing {
            if let Some(prefix) = handed_over.get(&vip) {
                netlink.take_over_address(link.index, vip, *prefix).await?;
                self.announcements.add(link.index, vip);
            } else if netlink.add_address(link.index, vip, prefix(vip)).await? == Change::Made {
                self.announcements.add(link.index, vip);
            } else if !previous.contains(&(name.clone(), vip)) {
                self.added.remove(&(name.clone(), vip));
            }
        }
        record::write(&self.runtime_dir, &self.added)
    }

    async fn withdraw(
        &mut self,
        desired: &Desired,
        netlink: &Netlink,
        links: &[Link],
    ) -> Result<(), Error> {
        let unneeded = self.added.iter().filter(|entry| !is_needed(desired, entry));
        let unneeded: Vec<(String, IpAddr)> = unneeded.cloned().collect();
        if unneeded.is_empty() {
            return Ok(());
        }
        self.last_withdrawal = Instant::now();
        let addresses = netlink.addresses().await?;
        let needed_addresses: BTreeSet<IpAddr> = desired.proxy_addresses().collect();
        let mut idle_addresses: BTreeSet<IpAddr> =
            unneeded.iter().map(|(_, address)| *address).collect();
        idle_addresses.retain(|address| !needed_addresses.contains(address));
        remove_connected(netlink, &mut idle_addresses)?;
        for entry in unneeded {
            let (name, address) = &entry;
            let link = links.iter().find(|link| link.name == *name);
            let to_router = link.filter(|link| {
                let has_source = |source| {
                    let mut host_addresses = addresses.iter();
                    host_addresses.any(|it| (it.ifindex, it.ip) == (link.index, source))
                };
                desired.is_vrrp_address_on(name, *address, has_source)
            });
            // An address that is needed on a different interface is removed even if it has connections, and is added to
            // that interface below.
            if to_router.is_none()
                && !idle_addresses.contains(address)
                && !needed_addresses.contains(address)
            {
                continue;
            }
            if let Some(link) = to_router {
                let prefix = prefix(*address);
                netlink
                    .hand_over_address(link.index, *address, prefix)
                    .await?;
            } else if let Some(link) = link {
                remove_address(netlink, link.index, *address).await?;
                tracing::info!(%address, interface = name, "removed a VIP that Weir had added");
            }
            self.announcements.cancel(*address);
            self.added.remove(&entry);
        }
        record::write(&self.runtime_dir, &self.added)?;
        // An address that moves to a different interface was present on the previous one.
        self.add(desired, netlink, links).await
    }
}

/// Returns whether this process may send announcements.
pub(crate) fn can_announce() -> Result<bool, weir_sys::Error> {
    let effective = Capabilities::effective()?;
    Ok(effective.missing(&[Capability::NetRaw]).is_empty())
}

/// Returns whether the kernel can select an added IPv6 VIP as the source of this machine's own packets, as with VIPs
/// that earlier versions added. An address that was handed over is deprecated when it is taken over.
pub(crate) fn is_preferred(address: &Address) -> bool {
    let is_single = address.ip.is_ipv6() && address.prefix == 128;
    is_single && !address.destination_only && !address.handed_over
}

/// Deprecates an added IPv6 VIP, so that the kernel no longer selects it as a source. Logs errors: the VIP is usable
/// either way.
pub(crate) async fn deprecate(netlink: &Netlink, ifindex: u32, address: IpAddr) {
    // This sets the lifetimes that a new VIP gets.
    match netlink
        .take_over_address(ifindex, address, prefix(address))
        .await
    {
        Ok(()) => tracing::info!(%address, "deprecated a VIP, so that it is not a source address"),
        Err(error) => tracing::warn!(%address, %error, "failed to deprecate a VIP"),
    }
}

/// Returns whether an added address is needed on its interface.
fn is_needed(desired: &Desired, (name, address): &(String, IpAddr)) -> bool {
    desired.node.vip_interface.as_ref() == Some(name)
        && !desired.is_vrrp_address(*address)
        && desired.proxy_addresses().any(|needed| needed == *address)
}

/// Removes an added address from a device. An IPv6 address that a virtual router has handed over has the prefix of the
/// virtual router.
pub(crate) async fn remove_address(
    netlink: &Netlink,
    ifindex: u32,
    address: IpAddr,
) -> Result<Change, weir_netlink::Error> {
    let change = netlink
        .remove_address(ifindex, address, prefix(address))
        .await?;
    if change == Change::Made || address.is_ipv4() {
        return Ok(change);
    }
    let present = netlink.addresses().await?;
    match present
        .iter()
        .find(|it| (it.ifindex, it.ip) == (ifindex, address))
    {
        Some(found) => netlink.remove_address(ifindex, address, found.prefix).await,
        None => Ok(Change::None),
    }
}

async fn present_addresses(netlink: &Netlink) -> Result<BTreeSet<IpAddr>, weir_netlink::Error> {
    let addresses = netlink.addresses().await?;
    Ok(addresses.iter().map(|address| address.ip).collect())
}

const fn prefix(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn mac(links: &[Link], index: u32) -> Option<MacAddr> {
    let link = links.iter().find(|link| link.index == index)?;
    Some(MacAddr::new(link.mac?.octets()))
}

/// Removes from the set the local addresses of this machine's TCP connections.
///
/// # Errors
/// Fails if the kernel's sockets cannot be listed.
pub(crate) fn remove_connected(
    netlink: &Netlink,
    addresses: &mut BTreeSet<IpAddr>,
) -> Result<(), weir_netlink::Error> {
    if addresses.is_empty() {
        return Ok(());
    }
    for socket in netlink.run_in_namespace(|| tcp_sockets(&TcpState::SENDING))?? {
        addresses.remove(&socket.local.ip().to_canonical());
    }
    Ok(())
}
