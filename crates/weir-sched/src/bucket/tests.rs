//! Compares choices with those of a separate implementation, and the modes with each other.

use proptest::prelude::*;

use super::*;

/// Returns members, newest first. The weights are in the order in which the servers were added; the first server is
/// number 1.
fn list(weights: &[u32]) -> Vec<Member> {
    let mut members: Vec<_> = (1..)
        .zip(weights)
        .map(|(seq, &weight)| Member {
            seq,
            dest: seq,
            weight,
            slot: seq,
            usable: true,
        })
        .collect();
    members.reverse();
    members
}

/// Returns the first buckets of 192.0.2.1 to 192.0.2.16.
fn clients() -> [u8; 16] {
    std::array::from_fn(|host| sh_index(0xc000_0201 + host as u32, 0))
}

fn choices(table: &Buckets) -> [u32; 16] {
    clients().map(|index| table[usize::from(index)])
}

/// Returns the server for the clients of each bucket; 0 = rejected.
fn chosen(owners: &Buckets, members: &[Member], mode: Mode) -> Buckets {
    let availability = |dest| {
        let owner = members.iter().find(|member| member.dest == dest);
        owner.map_or(Availability::Quiesced, Member::availability)
    };
    std::array::from_fn(|index| lookup(owners, index as u8, mode, &availability).unwrap_or(0))
}

fn sh_table(members: &[Member], mode: Mode) -> Buckets {
    chosen(&sh_owners(members), members, mode)
}

fn dh_table(members: &[Member], mode: Mode) -> Buckets {
    chosen(&dh_owners(members), members, mode)
}

fn share(table: &Buckets, dest: u32) -> usize {
    table.iter().filter(|&&owner| owner == dest).count()
}

#[test]
fn clients_hash_to_known_buckets() {
    assert_eq!(
        clients(),
        [
            50, 148, 246, 88, 185, 27, 125, 223, 65, 162, 4, 102, 200, 42, 139, 237
        ]
    );
}

#[test]
fn port_is_added_to_the_address() {
    assert_eq!(sh_index(0xc000_0201, 1), sh_index(0xc000_0202, 0));
    assert_eq!(sh_index(u32::MAX, 1), sh_index(0, 0));
    assert_eq!(dh_index(0xc000_0201), sh_index(0xc000_0201, 0));
}

#[test]
fn ports_of_one_client_use_different_buckets() {
    let owners = sh_owners(&list(&[1, 0, 2]));
    let choices: Vec<_> = (1000..1016)
        .map(|port| owners[usize::from(sh_index(0xc000_0201, port))])
        .collect();
    assert_eq!(choices, [2, 1, 3, 1, 3, 1, 3, 2, 3, 2, 1, 3, 1, 3, 1, 3]);
}

#[test]
fn server_takes_as_many_consecutive_buckets_as_its_weight() {
    let owners = sh_owners(&list(&[1, 2, 3]));
    assert_eq!(owners[..13], [3, 3, 3, 2, 2, 1, 3, 3, 3, 2, 2, 1, 3]);
    assert_eq!([1, 2, 3].map(|dest| share(&owners, dest)), [42, 85, 129]);
    assert_eq!(
        choices(&owners),
        [3, 2, 3, 2, 1, 2, 1, 3, 1, 3, 2, 3, 3, 3, 3, 2]
    );
}

#[test]
fn servers_with_equal_weights_get_equal_shares() {
    let owners = sh_owners(&list(&[1, 1, 1, 1]));
    assert_eq!([1, 2, 3, 4].map(|dest| share(&owners, dest)), [64; 4]);
    assert_eq!(
        choices(&owners),
        [2, 4, 2, 4, 3, 1, 3, 1, 3, 2, 4, 2, 4, 2, 1, 3]
    );
}

#[test]
fn weights_are_not_divided_by_their_common_divisor() {
    assert_eq!(sh_owners(&list(&[2, 2]))[..6], [2, 2, 1, 1, 2, 2]);
}

#[test]
fn server_with_weight_zero_takes_one_bucket_per_round() {
    let owners = sh_owners(&list(&[1, 0, 2]));
    assert_eq!(owners[..8], [3, 3, 2, 1, 3, 3, 2, 1]);
    assert_eq!([1, 2, 3].map(|dest| share(&owners, dest)), [64, 64, 128]);
}

#[test]
fn strict_rejects_clients_of_servers_with_weight_zero() {
    let table = sh_table(&list(&[1, 0, 2]), Mode::Strict);
    assert_eq!(
        choices(&table),
        [0, 3, 0, 3, 3, 1, 3, 1, 3, 0, 3, 0, 3, 0, 1, 3]
    );
}

#[test]
fn fallback_probes_from_twice_the_index() {
    let table = sh_table(&list(&[1, 0, 2]), Mode::Fallback);
    assert_eq!(
        choices(&table),
        [3, 3, 3, 3, 3, 1, 3, 1, 3, 3, 3, 3, 3, 3, 1, 3]
    );
}

#[test]
fn repair_differs_from_fallback_only_for_overloaded_servers() {
    let mut members = list(&[1, 0, 2]);
    assert_eq!(
        sh_table(&members, Mode::Repair),
        sh_table(&members, Mode::Fallback)
    );
    members[0].usable = false;
    let owners = sh_owners(&members);
    let availability = |dest: u32| members[3 - dest as usize].availability();
    let choose =
        |mode| clients().map(|index| lookup(&owners, index, mode, &availability).unwrap_or(0));
    assert_eq!(
        choose(Mode::Strict),
        [0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0]
    );
    assert_eq!(
        choose(Mode::Repair),
        [0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0]
    );
    assert_eq!(choose(Mode::Fallback), [1; 16]);
}

#[test]
fn flows_are_rejected_in_every_mode_without_servers() {
    for mode in [Mode::Strict, Mode::Fallback, Mode::Repair] {
        assert_eq!(sh_table(&[], mode), [0; BUCKETS]);
        assert_eq!(sh_table(&list(&[0, 0]), mode), [0; BUCKETS]);
    }
}

#[test]
fn server_with_weight_above_the_table_size_takes_all_remaining_buckets() {
    assert_eq!(sh_owners(&list(&[1, 1000])), [2; BUCKETS]);
    assert_eq!(sh_owners(&list(&[1000, 1]))[..3], [2, 1, 1]);
}

#[test]
fn oldest_servers_get_no_bucket_if_there_are_too_many() {
    let owners = dh_owners(&list(&[1; 300]));
    assert_eq!((owners[0], owners[255]), (300, 45));
}

#[test]
fn dh_ignores_weights() {
    let members = list(&[1, 0, 5]);
    assert_eq!(dh_owners(&members)[..7], [3, 2, 1, 3, 2, 1, 3]);
    assert_eq!(dh_table(&members, Mode::Strict)[..7], [3, 0, 1, 3, 0, 1, 3]);
    assert!(!dh_table(&members, Mode::Repair).contains(&2));
    assert!(!dh_table(&members, Mode::Repair).contains(&0));
}

#[test]
fn probes_visit_every_bucket_once() {
    for index in 0..=u8::MAX {
        let mut visited: Vec<_> = (0..=u8::MAX).map(|step| probe(index, step)).collect();
        visited.sort_unstable();
        visited.dedup();
        assert_eq!(visited.len(), BUCKETS);
    }
    assert_eq!(probe(100, 0), 200);
    assert_eq!(probe(200, 100), 244);
}

proptest! {
    #[test]
    fn fallback_rejects_only_if_all_servers_are_unavailable(
        servers in prop::collection::vec((0_u32..5, any::<bool>()), 1..12),
        index in any::<u8>(),
    ) {
        let weights: Vec<_> = servers.iter().map(|server| server.0).collect();
        let mut members = list(&weights);
        for member in &mut members {
            member.usable = servers[member.seq as usize - 1].1;
        }
        let availability = |dest: u32| members[members.len() - dest as usize].availability();
        let choice = lookup(&sh_owners(&members), index, Mode::Fallback, &availability);
        prop_assert_eq!(choice.is_some(), members.iter().any(Member::is_available));
    }
}
