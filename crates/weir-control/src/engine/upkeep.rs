//! What goes on between configurations: the network's changes, and the second's upkeep.

use std::time::{Duration, Instant};

use weir_netlink::Event;

use super::allocation::DestSlot;
use super::{Engine, Result, servers};

/// Bursts of route changes are followed at this pace: one picture costs a question a server.
const PACE: Duration = Duration::from_millis(100);

impl Engine {
    /// Follows a change of links, addresses, routes or neighbours.
    ///
    /// # Errors
    /// The network cannot be read or the rows not be written; the next upkeep tries again.
    pub async fn network_event(&mut self, event: &Event) -> Result<()> {
        if self.network.follow(event) {
            self.stale = true;
            if self.taken.elapsed() >= PACE {
                return self.look_again().await;
            }
            return Ok(());
        }
        match event {
            Event::Neighbour { neighbour, .. } => {
                let behind = self.network.servers_behind(neighbour.ifindex, neighbour.ip);
                if !behind.is_empty() {
                    self.write_hops(self.plane.maps(), |server| behind.contains(&server))?;
                }
            }
            Event::Link { .. } => self.write_devices(self.plane.maps())?,
            _ => {}
        }
        Ok(())
    }

    /// Takes the picture anew and brings everything in line with it.
    async fn look_again(&mut self) -> Result<()> {
        self.network
            .take(servers(&self.desired, &self.memory.allocation))
            .await?;
        self.taken = Instant::now();
        self.stale = false;
        self.keep_neighbours().await?;
        self.rewrite()
    }

    /// Once a second: gives rows back whose flows have ended, follows what nothing tells of.
    ///
    /// # Errors
    /// A map or the network cannot be read; the next upkeep tries again.
    pub async fn tick(&mut self) -> Result<()> {
        if self.stale {
            self.look_again().await?;
        }
        self.give_back()?;
        self.withdraw_vips_in_time().await?;
        self.announce()?;
        self.writer
            .mend_shared_counts(self.plane.maps(), &self.rows, &mut self.off)?;
        if self.network.refresh_drivers().await? {
            self.write_devices(self.plane.maps())?;
            self.write_hops(self.plane.maps(), |_| true)?;
        }
        Ok(())
    }

    fn give_back(&mut self) -> Result<()> {
        if self
            .memory
            .allocation
            .dests()
            .all(|(_, dest)| dest.removed.is_none())
            && !self
                .memory
                .allocation
                .services
                .values()
                .any(|slot| slot.removed)
        {
            return Ok(());
        }
        let maps = self.plane.maps();
        let ended = |dest: &DestSlot| {
            let live = maps.live(dest.id).ok()?;
            (live.active == 0 && live.inactive == 0)
                .then(|| super::status::totals(maps, dest.id).ok())?
        };
        let (dests, services) = self.memory.allocation.release(&ended);
        if dests.is_empty() && services.is_empty() {
            return Ok(());
        }
        for id in &dests {
            self.rows.removed.remove(id);
        }
        // Cleared before the state file lets a row be given out again.
        self.writer.clear_dests(maps, &dests)?;
        self.rewrite()
    }
}
