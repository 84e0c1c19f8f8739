//! Compares map contents with the written values, and repairs differences.
//!
//! Twice per second, whole hash maps are read, thousands of elements per system call, and arrays are read through their
//! memory mapping. A change by another program is therefore found within a second, even in large tables. Scheduler
//! lists are not compared: their trees change with every packet, and array elements cannot be removed.

use weir_abi::{Addr, Vip};
use weir_dataplane::Maps;
use weir_planner::row_set::RowSet;

use super::address::{listener, vip_row};
use super::{Writer, service_row};
use crate::error::Result;

impl Writer {
    /// Restores elements that another program removed or changed, and removes elements that it added. Returns the
    /// number of repaired elements.
    ///
    /// # Errors
    /// Fails if a map cannot be read or written.
    pub(crate) fn repair_elements(&self, maps: &Maps, rows: &RowSet) -> Result<u64> {
        let mut repaired = self.repair_listeners(maps)? + self.repair_vips(maps)?;
        repaired += self.repair_arrays(maps)?;
        if maps.settings()? != rows.settings {
            maps.set_settings(&rows.settings)?;
            repaired += 1;
        }
        if maps.filter()? != *rows.filter {
            maps.set_filter(&rows.filter)?;
            repaired += 1;
        }
        Ok(repaired)
    }

    fn repair_listeners(&self, maps: &Maps) -> Result<u64> {
        let (mut intact, mut foreign) = (0, Vec::new());
        maps.listeners.for_each(|key, service| {
            let address = (key.addr.to_ip(), key.port.get(), key.proto);
            match self.listeners.get(&address) {
                Some(expected) if expected == service => intact += 1,
                Some(_) => {}
                None => foreign.push(*key),
            }
        })?;
        let mut repaired = 0;
        for key in &foreign {
            repaired += u64::from(maps.listeners.remove(key)?);
        }
        if intact == self.listeners.len() {
            return Ok(repaired);
        }
        for (key, service) in &self.listeners {
            let key = listener(*key);
            if maps.listeners.get(&key)? != Some(*service) {
                maps.listeners.set(&key, service)?;
                repaired += 1;
            }
        }
        Ok(repaired)
    }

    fn repair_vips(&self, maps: &Maps) -> Result<u64> {
        let expected_row = |key: &Addr| -> Option<Option<Vip>> {
            let written = self.vips.get(&key.to_ip())?;
            // The position of the ranges is unknown for a row of an earlier daemon.
            let is_known = written.ranges.is_some() || written.row.ranges.is_empty();
            Some(is_known.then(|| vip_row(&written.row, written.ranges)))
        };
        let (mut present, mut changed, mut foreign) = (0, Vec::new(), Vec::new());
        maps.vips.for_each(|key, vip| match expected_row(key) {
            Some(row) => {
                present += 1;
                changed.extend(row.filter(|row| row != vip).map(|row| (*key, row)));
            }
            None => foreign.push(*key),
        })?;
        if present < self.vips.len() {
            for address in self.vips.keys() {
                let key = Addr::from(*address);
                if maps.vips.get(&key)?.is_none()
                    && let Some(Some(row)) = expected_row(&key)
                {
                    changed.push((key, row));
                }
            }
        }
        let mut repaired = 0;
        for (key, row) in &changed {
            maps.vips.set(key, row)?;
            repaired += 1;
        }
        for key in &foreign {
            repaired += u64::from(maps.vips.remove(key)?);
        }
        Ok(repaired)
    }

    /// Restores the rows of services and servers.
    fn repair_arrays(&self, maps: &Maps) -> Result<u64> {
        let mut repaired = 0;
        for (index, written) in &self.services {
            let snat = written.snat.map_or(0, |run| run.at);
            let row = service_row(&written.row, written.tables.at, snat);
            if maps.services.get(*index)? != row {
                maps.services.set(*index, &row)?;
                repaired += 1;
            }
        }
        for (id, row) in &self.dests {
            if maps.dests.get(*id)? != *row {
                maps.dests.set(*id, row)?;
                repaired += 1;
            }
        }
        Ok(repaired)
    }
}
