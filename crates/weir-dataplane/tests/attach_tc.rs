//! Tests the tc programs on a device: tcx links, clsact filters, and opening the data plane a second time.

mod support;

use support::{Sandbox, privileged, small_sizes, veth};
use weir_dataplane::{Dataplane, Hook, OpenOptions, Sizes, TcRole, clean};

fn filters(device: &str, direction: &str) -> String {
    let output = std::process::Command::new("tc")
        .args(["filter", "show", "dev", device, direction])
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn attach_both(clsact: bool, expected: [Hook; 2]) {
    let sandbox = Sandbox::new();
    let options = OpenOptions {
        clsact,
        ..sandbox.options()
    };
    let ifindex = veth("va", "vb");
    let (mut first, _) = Dataplane::open(&options).unwrap();
    first.activate().unwrap();
    let attached =
        [TcRole::Ingress, TcRole::Egress].map(|role| first.attach_tc(ifindex, role).unwrap());
    assert_eq!(attached, expected);
    assert_eq!(
        first.attach_tc(ifindex, TcRole::Ingress).unwrap(),
        expected[0],
        "a second attachment has no effect"
    );
    let before = first.attachments().unwrap();
    assert_eq!(before.len(), 2);
    if clsact {
        assert_eq!(filters("va", "ingress").matches("direct-action").count(), 1);
    }

    let larger_options = OpenOptions {
        sizes: Sizes {
            dests: 128,
            ..small_sizes()
        },
        ..options.clone()
    };
    let (mut second, _) = Dataplane::open(&larger_options).unwrap();
    second.activate().unwrap();
    let after = second.attachments().unwrap();
    assert_eq!(after.len(), 2);
    assert!(
        before
            .iter()
            .zip(&after)
            .all(|(before, after)| before.program_id != after.program_id)
    );
    if clsact {
        let ingress_filters = filters("va", "ingress");
        assert_eq!(
            ingress_filters.matches("direct-action").count(),
            1,
            "{ingress_filters}"
        );
        assert!(
            ingress_filters.contains(&format!(
                "id {}",
                after
                    .iter()
                    .find(|a| a.hook == expected[0])
                    .unwrap()
                    .program_id
            )),
            "{ingress_filters}"
        );
    }
    clean(second.pins()).unwrap();
    assert_eq!(filters("va", "ingress"), "");
    assert_eq!(filters("va", "egress"), "");
}

#[test]
fn programs_are_attached_with_tcx_links() {
    if privileged() {
        attach_both(false, [Hook::Ingress, Hook::Egress]);
    }
}

#[test]
fn programs_are_attached_with_clsact_filters() {
    if privileged() {
        attach_both(true, [Hook::ClsactIngress, Hook::ClsactEgress]);
    }
}
