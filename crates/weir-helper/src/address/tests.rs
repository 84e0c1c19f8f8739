//! Tests addresses and their record in a new network namespace.

use std::fs;
use std::path::PathBuf;

use weir_sys::NetNs;

use super::*;
use crate::machine::{self, Environment};

const VIP: &str = "192.0.2.10";

/// Runs `work` in a new network namespace, if this process is root. Passes it the path of a directory that does not
/// exist.
fn run_in_namespace(test: &str, work: impl AsyncFnOnce(PathBuf) + Send) {
    if !weir_testing::require_root() {
        return;
    }
    let name = format!("weir-address-{test}-{}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    let _ = fs::remove_dir_all(&directory);
    let namespace = NetNs::create().unwrap();
    let path = directory.clone();
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build().unwrap();
        runtime.block_on(work(path));
    };
    namespace.run(run).unwrap();
    let _ = fs::remove_dir_all(&directory);
}

/// Returns a virtual router on the loopback interface, the only one of a new namespace.
fn router(name: &str) -> VirtualRouter {
    let text = format!(
        "[vrrp.{name}]\ninterface = \"lo\"\nvirtual_router_id = 51\naddresses = [\"{VIP}/32\"]\n"
    );
    let desired = machine::parse(&text, &Environment).unwrap();
    desired.vrrp.into_iter().next().unwrap()
}

async fn has_vip(addresses: &Addresses) -> bool {
    let present = addresses.netlink.addresses().await.unwrap();
    present.iter().any(|it| it.ip.to_string() == VIP)
}

/// The helper that received the request to remove the address may have exited before it executed the request.
#[test]
fn recorded_address_of_an_inactive_router_is_removed() {
    run_in_namespace("recorded", async |directory| {
        fs::create_dir(&directory).unwrap();
        let router = router("outside");
        let mut first = Addresses::open(&directory, false).await.unwrap();
        first.add(&router).await.unwrap();
        let mut next = Addresses::open(&directory, true).await.unwrap();
        assert!(has_vip(&next).await);
        next.remove_inactive(&router).await.unwrap();
        assert!(!has_vip(&next).await);
        assert!(record::read(&directory).is_empty());
    });
}

#[test]
fn addresses_change_although_record_cannot_be_written() {
    run_in_namespace("unwritable", async |directory| {
        let router = router("outside");
        let mut addresses = Addresses::open(&directory, false).await.unwrap();
        assert!(matches!(
            addresses.add(&router).await,
            Err(Error::File { .. })
        ));
        assert!(has_vip(&addresses).await);
        // The next request writes the record, although it changes nothing else.
        fs::create_dir(&directory).unwrap();
        addresses.add(&router).await.unwrap();
        assert_eq!(record::read(&directory), addresses.record);
        assert_eq!(addresses.record.added.len(), 1);

        // Another program has added the address of an inactive virtual router.
        fs::remove_dir_all(&directory).unwrap();
        let mut addresses = Addresses::open(&directory, false).await.unwrap();
        assert!(has_vip(&addresses).await);
        addresses.remove_inactive(&router).await.unwrap();
        assert!(!has_vip(&addresses).await);
    });
}

#[test]
fn request_for_former_owner_does_not_remove_address() {
    run_in_namespace("owner", async |directory| {
        fs::create_dir(&directory).unwrap();
        let mut addresses = Addresses::open(&directory, false).await.unwrap();
        addresses.add(&router("former")).await.unwrap();
        addresses.add(&router("next")).await.unwrap();
        addresses.remove(&|name| name == "former").await.unwrap();
        assert!(has_vip(&addresses).await);
        addresses.remove(&|name| name == "next").await.unwrap();
        assert!(!has_vip(&addresses).await);
    });
}
