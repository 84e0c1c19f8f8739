//! Writes a configuration to the maps of a data plane, as the rows and tables that weir-planner computes.
//!
//! weir-engine writes the same rows in an order that is safe under traffic. In tests, no packets arrive during writes,
//! so the order does not matter, and replaced tables are freed immediately.

#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::HashMap;
use std::time::Instant;

use weir_abi::Addr;
use weir_dataplane::{Dataplane, Extent, ExtentAllocator, Pod, Sizes};
use weir_model::{Desired, Indexed};
use weir_planner::allocation::{Allocation, AllocationInput, PoolWeights, ServiceSlot};
use weir_planner::extent::{self, Tables};
use weir_planner::row_set::{self, RowSet};
use weir_planner::rows::{self, NetworkState};
use weir_sched::{Counts, Cursor};

/// A configuration, its allocated rows, and the published tables.
#[derive(Debug)]
pub(crate) struct PlannedRows {
    pub(crate) desired: Desired,
    pub(crate) surroundings: NetworkState,
    allocation: Allocation,
    sizes: Sizes,
    elements: ExtentAllocator,
    /// Published tables by service row.
    published: HashMap<u32, PublishedTables>,
}

/// A service's tables and their positions in the map.
#[derive(Debug)]
struct PublishedTables {
    tables: Tables,
    run: Extent,
}

impl PublishedTables {
    fn tree_at(&self) -> u32 {
        self.tables.header(self.run.at).0.tree_at
    }
}

impl PlannedRows {
    /// Creates a configuration without services. All elements are free.
    pub(crate) fn new(sizes: Sizes) -> Self {
        Self {
            desired: Desired::default(),
            surroundings: NetworkState::default(),
            allocation: Allocation::default(),
            sizes,
            elements: ExtentAllocator::new(sizes.elements),
            published: HashMap::new(),
        }
    }

    /// Allocates one service according to the configuration. `cursor` is the position of the service's walk.
    pub(crate) fn reconcile(&mut self, service: &str, cursor: Cursor) -> &ServiceSlot {
        self.reconcile_all(&[service], cursor);
        &self.allocation.services[service]
    }

    fn reconcile_all(&mut self, services: &[&str], cursor: Cursor) {
        let allocation_input = AllocationInput {
            service_rows: self.sizes.services,
            dest_rows: self.sizes.dests,
            now_ms: 1,
            cursor: &|_| cursor,
            weights: &|_, pool| PoolWeights::from_config(pool),
        };
        let desired = Indexed::from(self.desired.clone());
        let names = services.iter().copied();
        self.allocation
            .reconcile(&desired, names, &allocation_input)
            .unwrap();
    }

    /// Sets the map sizes, before any tables are published.
    pub(crate) fn resize(&mut self, sizes: Sizes) {
        assert!(self.published.is_empty());
        (self.sizes, self.elements) = (sizes, ExtentAllocator::new(sizes.elements));
    }

    /// Returns the rows of the whole configuration, allocated in the order of its services.
    pub(crate) fn rows(&mut self) -> RowSet {
        let services: Vec<String> = self
            .desired
            .services
            .iter()
            .map(|service| service.name.clone())
            .collect();
        let services: Vec<&str> = services.iter().map(String::as_str).collect();
        self.reconcile_all(&services, Cursor::default());
        let desired = Indexed::from(self.desired.clone());
        let rows = row_set::rows(
            &desired,
            &self.allocation,
            &self.surroundings,
            self.sizes.dests,
        );
        rows.unwrap().0
    }

    /// Returns the tables of one service for a slot that [`Self::reconcile`] returned; the caller may have changed the
    /// slot.
    pub(crate) fn tables(
        &self,
        service: &str,
        slot: &ServiceSlot,
        is_tree_disabled: bool,
    ) -> Tables {
        let desired = Indexed::from(self.desired.clone());
        let rule = extent::Rule {
            is_tree_disabled,
            ..rows::rule(
                &desired,
                desired.service(service).unwrap(),
                self.sizes.dests,
            )
        };
        extent::tables(service, slot, &rule).unwrap()
    }

    /// Writes all rows.
    pub(crate) fn write(&mut self, plane: &Dataplane, rows: &RowSet) {
        let maps = plane.maps();
        maps.set_settings(&rows.settings).unwrap();
        for (id, row) in &rows.dests {
            let (upper, lower) = rows.thresholds[id];
            maps.set_thresholds(row.live, upper, lower).unwrap();
            maps.dests.set(*id, row).unwrap();
        }
        for (index, row) in &rows.services {
            let snat_at = self.write_values(plane, &row.snat_addresses);
            maps.services
                .set(*index, &row.to_record(0, snat_at))
                .unwrap();
            self.publish(plane, *index, row.tables.clone());
        }
        maps.set_filter(&rows.filter).unwrap();
        for (address, row) in &rows.vips {
            let ranges_at = self.write_values(plane, &row.ranges);
            let address = Addr::from(*address);
            maps.vips.set(&address, &row.to_record(ranges_at)).unwrap();
        }
        for (key, service) in &rows.listeners {
            let key = rows::listener_key(*key);
            maps.listeners.set(&key, service).unwrap();
        }
    }

    /// Writes constant values. Returns the index of the first element, or 0 if there are no values.
    pub(crate) fn write_values<T: Pod>(&mut self, plane: &Dataplane, values: &[T]) -> u32 {
        if values.is_empty() {
            return 0;
        }
        let length = size_of_val(values).div_ceil(size_of::<weir_abi::Element>()) as u32;
        let run = self.allocate(length);
        plane.maps().set_elements(run.at, values).unwrap();
        run.at
    }

    /// Writes a service's tables, and then stores their position in the service's row.
    pub(crate) fn publish(&mut self, plane: &Dataplane, service: u32, tables: Tables) {
        let run = self.allocate(tables.elements());
        let maps = plane.maps();
        maps.set_elements(run.at, &tables.image(run.at)).unwrap();
        let published = PublishedTables { tables, run };
        write_tree(plane, &published);
        maps.set_extent(service, run.at).unwrap();
        if let Some(replaced) = self.published.insert(service, published) {
            self.elements.retire(replaced.run, Instant::now());
            self.elements.reclaim_all();
        }
    }

    /// Computes and writes the tree of a service from the counts in the maps, like weir-engine after a change to a
    /// threshold.
    pub(crate) fn refresh_tree(&self, plane: &Dataplane, service: u32) {
        if let Some(published) = self.published.get(&service) {
            write_tree(plane, published);
        }
    }

    /// Returns a service's tree as packets have updated it, and as computed from the counts in the maps.
    pub(crate) fn trees(&self, plane: &Dataplane, service: u32) -> (Vec<u32>, Vec<u32>) {
        let published = &self.published[&service];
        let expected = tree(plane, &published.tables);
        let nodes = plane
            .maps()
            .elements_as(published.tree_at(), expected.len() as u32);
        (nodes.unwrap(), expected)
    }

    fn allocate(&mut self, elements: u32) -> Extent {
        let run = self.elements.allocate(elements);
        run.expect("allocate elements")
    }
}

fn write_tree(plane: &Dataplane, published: &PublishedTables) {
    let nodes = tree(plane, &published.tables);
    if !nodes.is_empty() {
        let first = published.tree_at();
        plane.maps().set_elements(first, &nodes).unwrap();
    }
}

fn tree(plane: &Dataplane, tables: &Tables) -> Vec<u32> {
    let live = |row| plane.maps().live(row).unwrap();
    let counts = |row| Counts {
        active: live(row).active as u32,
        inactive: live(row).inactive as u32,
    };
    tables.tree(&counts, &|row| live(row).overloaded != 0)
}
