//! Tests that the structs in weir-abi have the same memory layout as in the compiled data plane.

#[path = "support/elf.rs"]
#[allow(dead_code, reason = "the layout of structs needs only sections")]
mod elf;

#[path = "support/btf.rs"]
mod btf;

use std::collections::BTreeSet;

use weir_dataplane::elements_of;

#[test]
fn every_shared_struct_has_the_same_layout_in_c_and_rust() {
    let mut compared = BTreeSet::new();
    for object in ["abi_layout", "weir_xdp", "weir_tc"] {
        let path = format!("{}/{object}.bpf.o", env!("OUT_DIR"));
        let Ok(elf) = std::fs::read(&path) else {
            continue;
        };
        let structs = btf::structs(&elf);
        for layout in weir_abi::layouts() {
            let Some(c_struct) = structs.get(layout.c_name) else {
                continue;
            };
            let fields = layout
                .fields
                .iter()
                .map(|field| (field.name.to_owned(), field.offset))
                .collect();
            assert_eq!(
                *c_struct,
                btf::Struct {
                    size: layout.size,
                    fields
                },
                "{} in {object}",
                layout.c_name
            );
            compared.insert(layout.c_name);
        }
    }
    let missing: Vec<_> = weir_abi::layouts()
        .iter()
        .map(|layout| layout.c_name)
        .filter(|name| !compared.contains(name))
        .collect();
    assert!(
        missing.is_empty(),
        "no object uses {missing:?}, so their layout cannot be compared"
    );
}

#[test]
fn structs_as_elements_have_the_bytes_of_the_c_structs() {
    let mut bytes = (1u8..=u8::MAX).cycle();
    let mut word = || {
        let bytes: [u8; 4] = std::array::from_fn(|_| bytes.next().unwrap());
        u32::from_ne_bytes(bytes)
    };
    let extent = weir_abi::Extent {
        scheduler: word(),
        flags: word(),
        generation: word(),
        list_at: word(),
        list_len: word(),
        hash_at: word(),
        hash_len: word(),
        spread_at: word(),
        spread_len: word(),
        max_weight: word(),
        gcd: word(),
        start_seq: word(),
        start_weight: word(),
        max_load: word(),
        tree_at: word(),
        tree_width: word(),
        weight: u64::from(word()) << 32 | u64::from(word()),
        former_at: word(),
        former_len: word(),
    };
    assert_eq!(extent.elements().to_vec(), elements_of(&[extent]));
    let member = weir_abi::Member {
        seq: word(),
        dest: word(),
        weight: word(),
        live: word(),
    };
    assert_eq!(vec![member.element()], elements_of(&[member]));
    for count in 0..=9 {
        let words: Vec<u32> = (0..count).map(|_| word()).collect();
        let packed: Vec<_> = weir_abi::Element::pack(&words).collect();
        assert_eq!(packed, elements_of(&words));
    }
}
