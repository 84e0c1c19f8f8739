//! What maps hold, beside what was written into them.
//!
//! Hash maps are read as a whole each second, thousands of elements with a system call, and arrays through their
//! mapping, so that what somebody removes or changes is found within a second however large the tables are. Lists that
//! schedulers read are not compared: trees in them change with every packet, and nobody can remove an element of an
//! array.

use weir_abi::{Addr, Vip};
use weir_dataplane::Maps;
use weir_planner::row_set::RowSet;

use super::Result;
use super::write::{Writer, listener, service_row, vip_row};

impl Writer {
    /// Looks whether what is written is still there, and writes it again where somebody removed or changed it; what
    /// somebody added is removed. Answers how many elements that were.
    ///
    /// # Errors
    /// A map cannot be read or written.
    pub(super) fn mend_elements(&self, maps: &Maps, rows: &RowSet) -> Result<u64> {
        let mut mended = self.mend_listeners(maps)? + self.mend_vips(maps)?;
        mended += self.mend_arrays(maps)?;
        if maps.settings()? != rows.settings {
            maps.set_settings(&rows.settings)?;
            mended += 1;
        }
        if maps.filter()? != *rows.filter {
            maps.set_filter(&rows.filter)?;
            mended += 1;
        }
        Ok(mended)
    }

    fn mend_listeners(&self, maps: &Maps) -> Result<u64> {
        let (mut right, mut foreign) = (0, Vec::new());
        maps.listeners.each(|key, service| {
            let known = (key.addr.to_ip(), key.port.get(), key.proto);
            match self.listeners.get(&known) {
                Some(wanted) if wanted == service => right += 1,
                Some(_) => {}
                None => foreign.push(*key),
            }
        })?;
        let mut mended = 0;
        for key in &foreign {
            mended += u64::from(maps.listeners.remove(key)?);
        }
        if right == self.listeners.len() {
            return Ok(mended);
        }
        for (key, service) in &self.listeners {
            let key = listener(*key);
            if maps.listeners.get(&key)? != Some(*service) {
                maps.listeners.set(&key, service)?;
                mended += 1;
            }
        }
        Ok(mended)
    }

    fn mend_vips(&self, maps: &Maps) -> Result<u64> {
        let wanted = |key: &Addr| -> Option<Option<Vip>> {
            let written = self.vips.get(&key.to_ip())?;
            // Of a former daemon's row it is not known where its ranges lie.
            let known = written.ranges.is_some() || written.row.ranges.is_empty();
            Some(known.then(|| vip_row(&written.row, written.ranges)))
        };
        let (mut there, mut others, mut foreign) = (0, Vec::new(), Vec::new());
        maps.vips.each(|key, vip| match wanted(key) {
            Some(row) => {
                there += 1;
                others.extend(row.filter(|row| row != vip).map(|row| (*key, row)));
            }
            None => foreign.push(*key),
        })?;
        if there < self.vips.len() {
            for address in self.vips.keys() {
                let key = Addr::from(*address);
                if maps.vips.get(&key)?.is_none()
                    && let Some(Some(row)) = wanted(&key)
                {
                    others.push((key, row));
                }
            }
        }
        let mut mended = 0;
        for (key, row) in &others {
            maps.vips.set(key, row)?;
            mended += 1;
        }
        for key in &foreign {
            mended += u64::from(maps.vips.remove(key)?);
        }
        Ok(mended)
    }

    /// Rows of services and servers.
    fn mend_arrays(&self, maps: &Maps) -> Result<u64> {
        let mut mended = 0;
        for (index, written) in &self.services {
            let snat = written.snat.map_or(0, |run| run.at);
            let row = service_row(&written.row, written.tables.at, snat);
            if maps.services.get(*index)? != row {
                maps.services.set(*index, &row)?;
                mended += 1;
            }
        }
        for (id, row) in &self.dests {
            if maps.dests.get(*id)? != *row {
                maps.dests.set(*id, row)?;
                mended += 1;
            }
        }
        Ok(mended)
    }
}
