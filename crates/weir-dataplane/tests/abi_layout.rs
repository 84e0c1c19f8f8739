//! The structs of weir-abi lie in memory as the compiled data plane has them.

#[path = "support/elf.rs"]
#[allow(dead_code, reason = "the layout of structs needs sections alone")]
mod elf;

#[path = "support/btf.rs"]
mod btf;

use std::collections::BTreeSet;

#[test]
fn every_shared_struct_is_the_same_in_c_and_rust() {
    let mut seen = BTreeSet::new();
    for object in ["abi_layout", "weir_xdp", "weir_tc"] {
        let path = format!("{}/{object}.bpf.o", env!("OUT_DIR"));
        let Ok(elf) = std::fs::read(&path) else {
            continue;
        };
        let structs = btf::structs(&elf);
        for layout in weir_abi::layouts() {
            let Some(found) = structs.get(layout.c_name) else {
                continue;
            };
            let fields = layout
                .fields
                .iter()
                .map(|field| (field.name.to_owned(), field.offset))
                .collect();
            assert_eq!(
                *found,
                btf::Struct {
                    size: layout.size,
                    fields
                },
                "{} in {object}",
                layout.c_name
            );
            seen.insert(layout.c_name);
        }
    }
    let missing: Vec<_> = weir_abi::layouts()
        .iter()
        .map(|layout| layout.c_name)
        .filter(|name| !seen.contains(name))
        .collect();
    assert!(
        missing.is_empty(),
        "no object uses {missing:?}: nothing to compare them with"
    );
}
