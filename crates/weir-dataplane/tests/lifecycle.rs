//! Tests with the kernel how the data plane is opened, activated, attached, reopened, replaced and cleaned.
//!
//! Each test has its own namespaces.

mod support;

use std::fs;
use std::sync::Barrier;
use std::thread;

use support::{ACK, SYN, Sandbox, fill, privileged, small_sizes, tcp, veth};
use weir_abi::Reason;
use weir_dataplane::{
    Dataplane, Error, Hook, Mode, OpenOutcome, PinDir, Sizes, TestInput, XdpChoice, clean,
    open_readonly,
};
use weir_sys::LockFile;

const XDP_PASS: u32 = 2;

fn count(dataplane: &Dataplane, reason: Reason) -> u64 {
    dataplane.maps().reasons().unwrap()[reason.number() as usize]
}

fn send(dataplane: &Dataplane, packet: &[u8]) -> u32 {
    dataplane
        .test_run("weir_xdp", &TestInput::xdp(packet))
        .unwrap()
        .verdict
}

#[test]
fn fresh_data_plane_passes_foreign_packets() {
    if !privileged() {
        return;
    }
    let sandbox = Sandbox::new();
    let (dataplane, opened) = Dataplane::open(&sandbox.options()).unwrap();
    assert_eq!(opened, OpenOutcome::Fresh);
    assert_eq!(send(&dataplane, &tcp(1, 1000, SYN)), XDP_PASS);
    assert_eq!(count(&dataplane, Reason::PassNotOurs), 1);
    assert_eq!(dataplane.maps().flows.walk().count(), 0);
}

#[test]
fn flow_is_created_and_counted_once() {
    if !privileged() {
        return;
    }
    let sandbox = Sandbox::new();
    let (mut dataplane, _) = Dataplane::open(&sandbox.options()).unwrap();
    fill(&dataplane);
    dataplane.activate().unwrap();
    for port in 1000..1010 {
        send(&dataplane, &tcp(1, port, SYN));
        send(&dataplane, &tcp(1, port, ACK));
    }
    let flows: Vec<_> = dataplane.maps().flows.walk().collect();
    assert_eq!(flows.len(), 10);
    assert!(
        flows
            .iter()
            .all(|flow| flow.dest() == 1 && flow.cold.service == 1)
    );
    let live = dataplane.maps().live(1).unwrap();
    assert_eq!((live.active + live.inactive, live.total), (10, 10));
    assert_eq!(dataplane.maps().traffic(1).unwrap().packets_in, 20);
}

#[test]
fn pinned_maps_are_adopted_with_their_flows() {
    if !privileged() {
        return;
    }
    let sandbox = Sandbox::new();
    let (mut first, _) = Dataplane::open(&sandbox.options()).unwrap();
    fill(&first);
    first.activate().unwrap();
    let ifindex = veth("va", "vb");
    assert_eq!(
        first.attach(ifindex, XdpChoice::Best).unwrap(),
        Mode::Native
    );
    send(&first, &tcp(1, 1000, SYN));
    let before = first.attachments().unwrap();
    drop(first);

    let other_secret = weir_dataplane::OpenOptions {
        secret: Some([7, 7]),
        ..sandbox.options()
    };
    let (mut second, opened) = Dataplane::open(&other_secret).unwrap();
    assert_eq!(opened, OpenOutcome::Adopted);
    assert_eq!(second.secret(), support::SECRET);
    second.activate().unwrap();
    assert_eq!(
        second.attachments().unwrap(),
        before,
        "the program is not replaced"
    );
    assert_eq!(
        second.attach(ifindex, XdpChoice::Best).unwrap(),
        Mode::Native
    );
    send(&second, &tcp(1, 1000, ACK));
    assert_eq!(second.maps().flows.walk().count(), 1);
    let service = second.maps().services.get(1).unwrap();
    assert_eq!(second.maps().extents_of(&service).unwrap().len(), 3);
}

#[test]
fn changed_sizes_replace_maps_and_keep_counts_and_flows() {
    if !privileged() {
        return;
    }
    let sandbox = Sandbox::new();
    let (mut first, _) = Dataplane::open(&sandbox.options()).unwrap();
    fill(&first);
    first.activate().unwrap();
    let ifindex = veth("va", "vb");
    first.attach(ifindex, XdpChoice::Best).unwrap();
    let before = first.attachments().unwrap();
    send(&first, &tcp(1, 1000, SYN));

    let sizes = Sizes {
        dests: 128,
        elements: 8192,
        ..small_sizes()
    };
    let bigger = weir_dataplane::OpenOptions {
        sizes,
        ..sandbox.options()
    };
    let (mut second, opened) = Dataplane::open(&bigger).unwrap();
    assert_eq!(opened, OpenOutcome::Replaced);
    assert_eq!(
        first.attachments().unwrap(),
        before,
        "nothing changes before activation"
    );
    send(&first, &tcp(1, 1001, SYN));
    second.activate().unwrap();
    assert_ne!(
        second.attachments().unwrap()[0].program_id,
        before[0].program_id
    );

    let live = second.maps().live(1).unwrap();
    assert_eq!(
        (live.active + live.inactive, live.total),
        (2, 2),
        "including packets between opening and activation"
    );
    assert_eq!(second.maps().traffic(1).unwrap().packets_in, 2);
    send(&second, &tcp(1, 1001, ACK));
    assert_eq!(second.maps().flows.walk().count(), 2);
    assert_eq!(second.maps().dests.entries(), 128);
}

#[test]
fn pin_of_half_the_size_is_not_adopted() {
    if !privileged() {
        return;
    }
    let sandbox = Sandbox::new();
    let (mut first, _) = Dataplane::open(&sandbox.options()).unwrap();
    first.activate().unwrap();
    drop(first);
    let half = weir_dataplane::OpenOptions {
        pin_dir: sandbox.pin_dir().with_file_name("other"),
        sizes: Sizes {
            dests: 32,
            ..small_sizes()
        },
        ..sandbox.options()
    };
    Dataplane::open(&half).unwrap();
    let pin = |directory: &str| {
        sandbox
            .pin_dir()
            .with_file_name(directory)
            .join("state-1/weir_dests")
    };
    std::fs::remove_file(pin("weir")).unwrap();
    std::fs::rename(pin("other"), pin("weir")).unwrap();

    let (second, opened) = Dataplane::open(&sandbox.options()).unwrap();
    assert_eq!(opened, OpenOutcome::Replaced);
    assert_eq!(second.maps().dests.entries(), 64);
}

#[test]
fn next_open_removes_objects_of_an_open_without_activation() {
    if !privileged() {
        return;
    }
    let sandbox = Sandbox::new();
    let (mut first, _) = Dataplane::open(&sandbox.options()).unwrap();
    first.activate().unwrap();
    let before = first.pins().list().unwrap();
    let bigger = weir_dataplane::OpenOptions {
        sizes: Sizes {
            dests: 128,
            flows: 7 * 128,
            ..small_sizes()
        },
        ..sandbox.options()
    };
    Dataplane::open(&bigger).unwrap();
    assert_ne!(first.pins().list().unwrap(), before);
    let (_, opened) = Dataplane::open(&sandbox.options()).unwrap();
    assert_eq!(opened, OpenOutcome::Adopted);
    assert_eq!(first.pins().list().unwrap(), before);
}

#[test]
fn generic_mode_is_used_without_native_mode() {
    if !privileged() {
        return;
    }
    let sandbox = Sandbox::new();
    let (mut dataplane, _) = Dataplane::open(&sandbox.options()).unwrap();
    assert!(matches!(
        dataplane.attach(1, XdpChoice::Best),
        Err(Error::NotActive)
    ));
    dataplane.activate().unwrap();
    assert!(
        dataplane.attach(1, XdpChoice::Native).is_err(),
        "the loopback device has no native XDP"
    );
    assert_eq!(dataplane.attach(1, XdpChoice::Best).unwrap(), Mode::Generic);
    assert_eq!(dataplane.attachments().unwrap()[0].hook, Hook::XdpGeneric);
    dataplane.detach(1).unwrap();
    assert_eq!(dataplane.attachments().unwrap(), []);
}

#[test]
fn attaching_to_a_device_with_another_program_fails() {
    if !privileged() {
        return;
    }
    let sandbox = Sandbox::new();
    let ifindex = veth("va", "vb");
    let mut planes = ["one", "two"].map(|name| {
        let options = weir_dataplane::OpenOptions {
            pin_dir: sandbox.pin_dir().with_file_name(name),
            ..sandbox.options()
        };
        Dataplane::open(&options).unwrap().0
    });
    planes
        .iter_mut()
        .for_each(|plane| plane.activate().unwrap());
    planes[0].attach(ifindex, XdpChoice::Best).unwrap();
    assert!(matches!(
        planes[1].attach(ifindex, XdpChoice::Best),
        Err(Error::Busy { .. })
    ));
}

#[test]
fn link_of_removed_device_is_unpinned() {
    if !privileged() {
        return;
    }
    let sandbox = Sandbox::new();
    let (mut first, _) = Dataplane::open(&sandbox.options()).unwrap();
    first.activate().unwrap();
    let ifindex = veth("va", "vb");
    first.attach(ifindex, XdpChoice::Best).unwrap();
    support::run("ip link del va");
    assert_eq!(first.attachments().unwrap(), []);
    let (second, _) = Dataplane::open(&sandbox.options()).unwrap();
    let pins = second.pins().list().unwrap();
    assert!(
        pins.iter()
            .all(|pin| !matches!(pin.kind, weir_dataplane::PinKind::Link { .. })),
        "{pins:?}"
    );
}

#[test]
fn pinned_data_plane_is_read_without_changes() {
    if !privileged() {
        return;
    }
    let sandbox = Sandbox::new();
    let (mut dataplane, _) = Dataplane::open(&sandbox.options()).unwrap();
    fill(&dataplane);
    dataplane.activate().unwrap();
    send(&dataplane, &tcp(1, 1000, SYN));
    let plane = open_readonly(dataplane.pins()).unwrap();
    assert_eq!(plane.maps.flows.walk().count(), 1);
    assert_eq!(plane.maps.live(1).unwrap().total, 1);
    assert_eq!(plane.sizes, small_sizes());
    assert!(matches!(plane.maps.set_extent(1, 0), Err(Error::ReadOnly)));
}

#[test]
fn clean_removes_everything_and_reports_it() {
    if !privileged() {
        return;
    }
    let sandbox = Sandbox::new();
    let (mut dataplane, _) = Dataplane::open(&sandbox.options()).unwrap();
    dataplane.activate().unwrap();
    let ifindex = veth("va", "vb");
    dataplane.attach(ifindex, XdpChoice::Best).unwrap();
    let pins = dataplane.pins().clone();
    drop(dataplane);
    assert!(clean(&pins).unwrap());
    assert!(!pins.path().exists());
    assert!(!clean(&pins).unwrap());
    assert!(matches!(open_readonly(&pins), Err(Error::Absent { .. })));
    // The hook is free again.
    let (mut fresh, opened) = Dataplane::open(&sandbox.options()).unwrap();
    assert_eq!(opened, OpenOutcome::Fresh);
    fresh.activate().unwrap();
    fresh.attach(ifindex, XdpChoice::Best).unwrap();
}

#[test]
fn bpffs_is_not_mounted_over_non_empty_directory() {
    if !privileged() {
        return;
    }
    let sandbox = Sandbox::new();
    let parent = sandbox.pin_dir().parent().unwrap().to_owned();
    std::fs::create_dir_all(&parent).unwrap();
    std::fs::write(parent.join("precious"), "").unwrap();
    assert!(matches!(
        Dataplane::open(&sandbox.options()),
        Err(Error::NoBpffs { .. })
    ));
    assert!(parent.join("precious").exists());
}

#[test]
fn test_run_returns_the_sent_frame() {
    if !privileged() {
        return;
    }
    let sandbox = Sandbox::new();
    let (dataplane, _) = Dataplane::open(&sandbox.options()).unwrap();
    fill(&dataplane);
    let run = dataplane
        .test_run("weir_xdp", &TestInput::xdp(&tcp(1, 1000, SYN)))
        .unwrap();
    assert_eq!(run.packet.len(), tcp(1, 1000, SYN).len());
    assert_eq!(
        run.packet[..12],
        [2, 0, 0, 0, 0, 5, 2, 0, 0, 0, 0, 1],
        "the server's MAC, the device's MAC"
    );
    assert_eq!(run.metadata, []);
    // Without a MAC address, XDP passes the frame to the stack with the metadata that the tc program needs.
    (0..weir_abi::HOPS_PER_DEST).for_each(|slot| {
        let link = weir_abi::HopParts {
            ifindex: 1,
            ..weir_abi::HopParts::default()
        };
        dataplane.maps().set_hop(1, slot, &link.into()).unwrap();
    });
    let run = dataplane
        .test_run("weir_xdp", &TestInput::xdp(&tcp(1, 1001, SYN)))
        .unwrap();
    assert_eq!(run.verdict, XDP_PASS);
    assert_eq!(run.packet.len(), tcp(1, 1001, SYN).len());
    assert_eq!(run.metadata.len(), size_of::<weir_abi::Meta>());
    assert_eq!(run.metadata[..4], weir_abi::META_MAGIC.to_ne_bytes());
}

#[test]
fn live_frames_are_counted_like_other_frames() {
    if !privileged() {
        return;
    }
    let sandbox = Sandbox::new();
    let (dataplane, _) = Dataplane::open(&sandbox.options()).unwrap();
    let ingress_ifindex = veth("va", "vb");
    let packet = tcp(1, 1000, SYN);
    let input = TestInput {
        repeat: 1_000,
        live_frames: true,
        ingress_ifindex,
        ..TestInput::xdp(&packet)
    };
    dataplane.test_run("weir_xdp", &input).unwrap();
    assert_eq!(count(&dataplane, Reason::PassNotOurs), 1_000);
}

/// Each daemon has its own runtime directory and lock.
#[test]
fn one_of_several_daemons_that_start_together_gets_the_pin_directory() {
    if !privileged() {
        return;
    }
    let sandbox = Sandbox::new();
    let pins = PinDir::new(sandbox.pin_dir());
    let pin_dir = sandbox.pin_dir();
    let root = pin_dir.ancestors().nth(2).unwrap();
    let locks = ["a", "b", "c"].map(|name| {
        let runtime_dir = root.join(name);
        fs::create_dir_all(&runtime_dir).unwrap();
        LockFile::acquire(runtime_dir.join("lock")).unwrap()
    });
    // Mount the bpffs first: mounting is not part of the test.
    pins.claim(locks[0].path()).unwrap();
    for _ in 0..100 {
        clean(&pins).unwrap();
        let start = Barrier::new(locks.len());
        let claims: Vec<_> = thread::scope(|scope| {
            let claims = locks.each_ref().map(|lock| {
                scope.spawn(|| {
                    start.wait();
                    pins.claim(lock.path())
                })
            });
            claims.map(|claim| claim.join().unwrap()).into()
        });
        let successes = claims.iter().filter(|claim| claim.is_ok()).count();
        assert_eq!(successes, 1, "{claims:?}");
        for claim in claims.into_iter().filter_map(Result::err) {
            assert!(matches!(claim, Error::InUse { .. }), "{claim}");
        }
        // A second claim by the same daemon, as after a restart, is not rejected.
        let second_claims = locks.iter().filter(|lock| pins.claim(lock.path()).is_ok());
        assert_eq!(second_claims.count(), 1);
    }
    clean(&pins).unwrap();
    assert!(!pins.path().exists());
}
