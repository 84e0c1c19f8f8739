//! Converts forwarding methods and encapsulations to their numbers in the data plane, and numbers back to methods.

use weir_model::{Forward, TunnelKind};

/// Returns the data plane's number for a forwarding method.
pub const fn abi_forward(forward: Forward) -> weir_abi::Forward {
    match forward {
        Forward::Nat => weir_abi::Forward::Nat,
        Forward::Direct => weir_abi::Forward::Direct,
        Forward::Tunnel => weir_abi::Forward::Tunnel,
        Forward::L3dsr => weir_abi::Forward::L3dsr,
        Forward::Socket => weir_abi::Forward::Socket,
    }
}

/// Returns the forwarding method with this number in a server's row, or `None` for any other number, such as 0 in a
/// free row.
pub fn model_forward(number: u8) -> Option<Forward> {
    Forward::ALL
        .into_iter()
        .find(|forward| abi_forward(*forward) as u8 == number)
}

/// Returns the data plane's number for an encapsulation.
pub const fn abi_tunnel(kind: TunnelKind) -> weir_abi::Tunnel {
    match kind {
        TunnelKind::Ipip => weir_abi::Tunnel::Ipip,
        TunnelKind::Gue => weir_abi::Tunnel::Gue,
        TunnelKind::Gre => weir_abi::Tunnel::Gre,
    }
}

#[test]
fn abi_tunnel_has_the_same_name_and_a_known_number() {
    for kind in TunnelKind::ALL {
        let name = format!("{:?}", abi_tunnel(kind)).to_lowercase();
        assert_eq!(name, kind.as_str());
        let number = abi_tunnel(kind) as u8;
        assert_eq!(
            weir_abi::Tunnel::from_number(number),
            Some(abi_tunnel(kind))
        );
    }
}

#[test]
fn each_forward_has_its_own_number() {
    for number in 0..=u8::MAX {
        if let Some(forward) = model_forward(number) {
            assert_eq!(abi_forward(forward) as u8, number);
        }
    }
    assert_eq!(
        (0..=u8::MAX).filter_map(model_forward).count(),
        Forward::ALL.len()
    );
}
