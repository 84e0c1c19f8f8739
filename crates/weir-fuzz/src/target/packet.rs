//! Fuzzes Ethernet frames.

use weir_flow::{Arrival, Config, Load, Model, Scheduler};
use weir_wire::{Packet, TcpFlags, describe};

/// Passes a frame to the packet library.
pub(super) fn wire(input: &[u8]) {
    if let Ok(parsed) = Packet::parse(input) {
        let _ = (parsed.has_valid_checksums(), parsed.five_tuple());
    }
    let _ = describe(input);
    let _ = weir_flow::parse(input);
}

/// Always chooses the first server.
struct FirstServer;

impl Scheduler for FirstServer {
    fn choose(&mut self, _: u32, _: &Arrival<'_>, _: &dyn Fn(u32) -> Load) -> Option<u32> {
        Some(1)
    }
}

/// Passes a frame twice through the model of the data plane. The model's filter accepts every address.
pub(super) fn verdict(input: &[u8]) {
    let mut config = Config::new([1, 2], 64);
    config.filter.to.fill(!0);
    config.filter.from.fill(!0);
    let mut model = Model::new(config, FirstServer);
    let first = model.process(input, 1);
    assert!(
        !first.counted.is_empty() || first.frame == input,
        "{first:?}"
    );
    let _ = model.process(input, 2);
    let _ = model.sweep(1 << 20);
}

pub(super) fn packets() -> Vec<Vec<u8>> {
    let frame = || Packet::ethernet([2, 0, 0, 0, 0, 1].into(), [2, 0, 0, 0, 0, 2].into());
    let (client, vip) = ([192, 0, 2, 1].into(), [192, 0, 2, 10].into());
    vec![
        frame()
            .vlan(10)
            .ipv4(client, vip)
            .tcp(40000, 80)
            .flags(TcpFlags::SYN)
            .build(),
        frame().ipv4(client, vip).udp(40000, 53).build(),
    ]
}
