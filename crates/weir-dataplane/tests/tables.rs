//! Tests the typed maps with the kernel: batches, walks, mapped elements, hops, settings.

mod support;

use std::net::IpAddr;

use support::{Sandbox, privileged};
use weir_abi::{Addr, Be16, Filter, HopParts, Listener, Settings, Traffic};
use weir_dataplane::{Dataplane, Error, Extent, ExtentAllocator};

fn open(sandbox: &Sandbox) -> Dataplane {
    Dataplane::open(&sandbox.options()).unwrap().0
}

fn listeners(count: u16) -> (Vec<Listener>, Vec<u32>) {
    let addr = Addr::from(IpAddr::from([192, 0, 2, 1]));
    let key = |port| Listener {
        addr,
        port: Be16::new(port),
        proto: 6,
        ..Listener::default()
    };
    (
        (0..count).map(key).collect(),
        (0..u32::from(count)).collect(),
    )
}

#[test]
fn batch_writes_and_removes_every_element() {
    if !privileged() {
        return;
    }
    let sandbox = Sandbox::new();
    let dataplane = open(&sandbox);
    let table = &dataplane.maps().listeners;
    let (keys, values) = listeners(50);
    table.set_many(&keys, &values).unwrap();
    let mut found: Vec<u32> = table
        .elements()
        .unwrap()
        .into_iter()
        .map(|(_, value)| value)
        .collect();
    found.sort_unstable();
    assert_eq!(found, values);
    assert_eq!(table.get(&keys[7]).unwrap(), Some(7));
    assert!(table.remove(&keys[7]).unwrap());
    assert!(!table.remove(&keys[7]).unwrap());
    assert_eq!(table.get(&keys[7]).unwrap(), None);
    // A missing key does not end the removal.
    table.remove_many(&keys).unwrap();
    assert_eq!(table.keys().unwrap(), []);
}

#[test]
fn full_table_returns_an_error() {
    if !privileged() {
        return;
    }
    let sandbox = Sandbox::new();
    let dataplane = open(&sandbox);
    let table = &dataplane.maps().listeners;
    let (keys, values) = listeners(table.capacity() as u16 + 1);
    let Err(Error::Kernel { source, .. }) = table.set_many(&keys, &values) else {
        panic!("the map accepts more elements than its capacity")
    };
    assert_eq!(source.raw_os_error(), Some(libc::E2BIG));
    table.clear().unwrap();
    assert_eq!(table.keys().unwrap(), []);
}

#[test]
fn rows_are_read_as_written() {
    if !privileged() {
        return;
    }
    let sandbox = Sandbox::new();
    let dataplane = open(&sandbox);
    let maps = dataplane.maps();
    let hop = HopParts {
        ifindex: 3,
        flags: weir_abi::HOP_READY,
        mtu: 1500,
        dmac: [1; 6],
        smac: [2; 6],
        vlan: 0,
        renewed: 9,
    };
    maps.set_hop(63, 3, &hop.into()).unwrap();
    assert_eq!(HopParts::from(maps.hop(63, 3).unwrap()), hop);
    assert!(matches!(
        maps.set_hop(63, 4, &hop.into()),
        Err(Error::Index { .. })
    ));
    assert!(matches!(
        maps.set_hop(64, 0, &hop.into()),
        Err(Error::Index { .. })
    ));

    let mut settings = Settings {
        syn_budget: 125_000,
        ..Settings::default()
    };
    settings.timeouts[1] = 839;
    maps.set_settings(&settings).unwrap();
    assert_eq!(maps.settings().unwrap(), settings);

    let mut filter = Filter::ZERO;
    filter.add_destination(Addr::from(IpAddr::from([192, 0, 2, 1])));
    filter.add_source(Addr::from(IpAddr::from([10, 0, 0, 1])));
    maps.set_filter(&filter).unwrap();
    assert_eq!(maps.filter().unwrap(), filter);

    assert_eq!(maps.set_elements(10, &[1u32, 2, 3, 4, 5]).unwrap(), 2);
    assert_eq!(maps.elements_as::<u32>(10, 5).unwrap(), [1, 2, 3, 4, 5]);
    assert!(maps.set_elements(4095, &[0u32; 5]).is_err());
}

#[test]
fn traffic_is_summed_over_cpus_and_reset() {
    if !privileged() {
        return;
    }
    let sandbox = Sandbox::new();
    let dataplane = open(&sandbox);
    let maps = dataplane.maps();
    let mut values = maps.traffic.get(5).unwrap();
    values.fill(Traffic {
        packets_in: 1,
        bytes_in: 40,
        packets_out: 2,
        bytes_out: 80,
    });
    maps.traffic.set(5, &values).unwrap();
    let cpus = values.len() as u64;
    let sum = Traffic {
        packets_in: cpus,
        bytes_in: 40 * cpus,
        packets_out: 2 * cpus,
        bytes_out: 80 * cpus,
    };
    assert_eq!(maps.traffic(5).unwrap(), sum);
    let all = maps.all_traffic().unwrap();
    assert_eq!((all.len(), all[5], all[4]), (64, sum, Traffic::ZERO));
    maps.reset_counts(5).unwrap();
    assert_eq!(maps.traffic(5).unwrap(), Traffic::ZERO);
}

#[test]
fn used_extents_are_found_at_startup() {
    if !privileged() {
        return;
    }
    let sandbox = Sandbox::new();
    let dataplane = open(&sandbox);
    support::fill(&dataplane);
    let maps = dataplane.maps();
    let mut extents: Vec<Extent> = (1..maps.services.entries())
        .flat_map(|row| maps.extents_of(&maps.services.get(row).unwrap()).unwrap())
        .collect();
    extents.sort_unstable();
    let extent = |at, length| Extent { at, length };
    // Each service has a header, a list and a spread table.
    let spread = weir_sched::maglev::SIZES[0].div_ceil(4);
    let tables = |at| [extent(at, 5), extent(at + 5, 1), extent(at + 6, spread)];
    assert_eq!(extents, [tables(1), tables(7 + spread)].concat());
    let mut allocator = ExtentAllocator::with_used(dataplane.sizes().elements, extents);
    assert_eq!(allocator.allocate(2), Some(extent(13 + 2 * spread, 2)));
}
