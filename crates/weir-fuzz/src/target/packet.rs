//! Frames.

use weir_flow::{Arrival, Config, Load, Model, Scheduler};
use weir_wire::{Packet, TcpFlags, describe};

/// A frame as the packet library reads it.
pub(super) fn wire(input: &[u8]) {
    if let Ok(parsed) = Packet::parse(input) {
        let _ = (parsed.has_valid_checksums(), parsed.five_tuple());
    }
    let _ = describe(input);
    let _ = weir_flow::parse(input);
}

struct First;

impl Scheduler for First {
    fn choose(&mut self, _: u32, _: &Arrival<'_>, _: &dyn Fn(u32) -> Load) -> Option<u32> {
        Some(1)
    }
}

/// A frame, and the same once more, through the model of the data plane; every address concerns it.
pub(super) fn verdict(input: &[u8]) {
    let mut config = Config::new([1, 2], 64);
    config.filter.to.fill(!0);
    config.filter.from.fill(!0);
    let mut model = Model::new(config, First);
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
    let (a, b) = ([192, 0, 2, 1].into(), [192, 0, 2, 10].into());
    vec![
        frame()
            .vlan(10)
            .ipv4(a, b)
            .tcp(40000, 80)
            .flags(TcpFlags::SYN)
            .build(),
        frame().ipv4(a, b).udp(40000, 53).build(),
    ]
}
