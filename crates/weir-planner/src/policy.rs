//! Computes the row flags that depend on IPVS settings, persistence and removal.
//!
//! The flags determine which clients may still use a server, how a SYN affects an existing flow, and how packets to a
//! removed server are handled.

use weir_abi::{
    DEST_LIVE, DEST_RESCHEDULE, DEST_RESET, POLICY_DOWN, POLICY_EXPIRE, POLICY_PERSISTENT,
    POLICY_SILENT, SETTINGS_CACHE_BYPASS, SETTINGS_EXPIRE_NODEST, SETTINGS_PROBES, SETTINGS_REUSE,
    SETTINGS_REUSE_FIN_WAIT, SETTINGS_SCHEDULE_ICMP, SETTINGS_SLOPPY_TCP, SOCKET_CLIENT_CGROUP,
    SOCKET_CLIENT_UID, TEMPLATE_PORT, TEMPLATE_SERVICE, TEMPLATE_VIP, ticks_from,
};
use weir_model::{Desired, Forward, Ipvs, LocalClient, Ports, Service};

use crate::allocation::{DestSlot, Removal};

/// Port of FTP control connections. Data connections use other ports and must reach the same server.
const FTP_PORT: u16 = 21;

/// Persistence settings in a service's row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Template {
    /// Lifetime of a persistent client's entry, in ticks; 0 = no persistence.
    pub ticks: u32,
    /// Prefix length of IPv4 clients.
    pub prefix4: u8,
    /// Prefix length of IPv6 clients.
    pub prefix6: u8,
    /// Scope of persistence: `TEMPLATE_*`.
    pub scope: u8,
}

/// Returns a service's persistence settings. The scope is the listener's port, the address if the listener has several
/// ports or the FTP port (ip_vs_core.c, `ip_vs_sched_persist`), or the service if it has several listeners or a mark.
/// For a socket service, it is the cgroup or the user of the client.
pub fn template(service: &Service) -> Template {
    let Some(persistence) = service.persistence else {
        return Template::default();
    };
    if service.forward == Forward::Socket {
        return Template {
            ticks: ticks_from(persistence.timeout),
            scope: match service.persistent_client {
                LocalClient::Cgroup => SOCKET_CLIENT_CGROUP,
                LocalClient::Uid => SOCKET_CLIENT_UID,
            },
            ..Template::default()
        };
    }
    let scope = match (service.listen.as_slice(), service.marks.as_slice()) {
        ([listener], []) => match listener.ports {
            Ports::One(FTP_PORT) | Ports::Range(..) | Ports::Any => TEMPLATE_VIP,
            Ports::One(_) => TEMPLATE_PORT,
        },
        _ => TEMPLATE_SERVICE,
    };
    Template {
        ticks: ticks_from(persistence.timeout),
        prefix4: persistence.netmask,
        prefix6: persistence.netmask6,
        scope,
    }
}

/// Returns the `POLICY_*` flags of a configured server. Unless it is down or `expire_quiescent_template` is set,
/// persistent clients may also use a server whose weight is 0 in the configuration or by a weight override.
pub fn policy(dest: &DestSlot, ipvs: &Ipvs) -> u8 {
    let quiesced = dest.quiesced && !ipvs.expire_quiescent_template;
    match dest {
        DestSlot { down: true, .. } => POLICY_DOWN,
        _ if dest.effective > 0 || quiesced => POLICY_PERSISTENT,
        _ => 0,
    }
}

/// Flags of a removed server's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemovedFlags {
    /// `DEST_*`.
    pub flags: u8,
    /// `POLICY_*`.
    pub policy: u8,
}

/// Returns the flags of a removed server's row. With [`Removal::Keep`], flows continue unless `expire_nodest_conn`
/// expires them, or `strict` requires that their packets are dropped, as in the kernel.
pub fn removed_flags(removal: Removal, strict: bool, ipvs: &Ipvs) -> RemovedFlags {
    let (flags, policy) = match removal {
        Removal::Reset => (DEST_RESET, 0),
        Removal::Reschedule => (DEST_RESCHEDULE, 0),
        Removal::Keep if ipvs.expire_nodest_conn => (DEST_RESCHEDULE, POLICY_EXPIRE),
        Removal::Keep if strict => (DEST_RESET, POLICY_SILENT),
        Removal::Keep => (0, 0),
    };
    RemovedFlags {
        flags: DEST_LIVE | flags,
        policy,
    }
}

/// Returns the `SETTINGS_*` flags for `[ipvs]`.
pub fn ipvs_settings(ipvs: &Ipvs) -> u32 {
    let flag_if = |flag: u32, condition: bool| if condition { flag } else { 0 };
    flag_if(SETTINGS_SLOPPY_TCP, ipvs.sloppy_tcp)
        | flag_if(SETTINGS_REUSE, ipvs.conn_reuse_mode != 0)
        | flag_if(SETTINGS_REUSE_FIN_WAIT, ipvs.conn_reuse_mode & 2 != 0)
        | flag_if(SETTINGS_EXPIRE_NODEST, ipvs.expire_nodest_conn)
        | flag_if(SETTINGS_SCHEDULE_ICMP, ipvs.schedule_icmp)
        | flag_if(SETTINGS_CACHE_BYPASS, ipvs.cache_bypass)
}

/// Returns whether `drop_entry` currently drops flow table entries (ip_vs_ctl.c, `update_defense_level`).
pub(crate) const fn drops_entries(ipvs: &Ipvs, memory_is_low: bool) -> bool {
    match ipvs.drop_entry {
        0 => false,
        1 | 2 => memory_is_low,
        _ => true,
    }
}

/// Returns the `SETTINGS_*` flags for checks: the tc programs look for probes only if a check uses a service's
/// forwarding method.
pub fn probe_flags(desired: &Desired) -> u32 {
    if desired.has_path_checks() {
        SETTINGS_PROBES
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use weir_model::{Check, Family, Listener, Mark, Persistence, Pool, Probe, Protocol, Via};

    use super::*;
    use crate::tests::dest_slot;

    fn service(listen: &[Ports], marks: usize) -> Service {
        let mut service = Service::new("web", Forward::Direct, "web");
        service.persistence = Some(Persistence::default());
        service.listen = listen
            .iter()
            .map(|ports| Listener {
                protocol: Protocol::Tcp,
                address: "192.0.2.10".parse().unwrap(),
                ports: *ports,
            })
            .collect();
        let mark = |number: u32| Mark {
            mark: number.try_into().unwrap(),
            family: Family::V4,
        };
        service.marks = (1..).take(marks).map(mark).collect();
        service
    }

    #[test]
    fn listeners_determine_persistence_scope() {
        let cases: [(&[Ports], usize, u8); 7] = [
            (&[Ports::One(80)], 0, TEMPLATE_PORT),
            (&[Ports::One(FTP_PORT)], 0, TEMPLATE_VIP),
            (&[Ports::Range(80, 90)], 0, TEMPLATE_VIP),
            (&[Ports::Any], 0, TEMPLATE_VIP),
            (&[Ports::One(80), Ports::One(443)], 0, TEMPLATE_SERVICE),
            (&[Ports::One(80)], 1, TEMPLATE_SERVICE),
            (&[], 1, TEMPLATE_SERVICE),
        ];
        for (listen, marks, scope) in cases {
            assert_eq!(template(&service(listen, marks)).scope, scope, "{listen:?}");
        }
        for (client, scope) in [
            (LocalClient::Cgroup, SOCKET_CLIENT_CGROUP),
            (LocalClient::Uid, SOCKET_CLIENT_UID),
        ] {
            let mut socket = service(&[Ports::One(80)], 0);
            socket.forward = Forward::Socket;
            socket.persistent_client = client;
            let expected = Template {
                ticks: ticks_from(Persistence::default().timeout),
                scope,
                ..Template::default()
            };
            assert_eq!(template(&socket), expected, "{client:?}");
        }
        let mut plain = service(&[Ports::One(80)], 0);
        plain.persistence = None;
        assert_eq!(template(&plain), Template::default());
    }

    #[test]
    fn on_remove_overrides_ipvs_settings() {
        let expire = Ipvs {
            expire_nodest_conn: true,
            ..Ipvs::default()
        };
        let (plain, reset, reschedule) = (
            DEST_LIVE,
            DEST_LIVE | DEST_RESET,
            DEST_LIVE | DEST_RESCHEDULE,
        );
        let cases = [
            (Removal::Keep, false, Ipvs::default(), (plain, 0)),
            (Removal::Keep, true, Ipvs::default(), (reset, POLICY_SILENT)),
            (Removal::Keep, false, expire, (reschedule, POLICY_EXPIRE)),
            (Removal::Keep, true, expire, (reschedule, POLICY_EXPIRE)),
            (Removal::Reset, true, expire, (reset, 0)),
            (Removal::Reschedule, true, expire, (reschedule, 0)),
        ];
        for (removal, strict, ipvs, (flags, policy)) in cases {
            let expected = RemovedFlags { flags, policy };
            assert_eq!(
                removed_flags(removal, strict, &ipvs),
                expected,
                "{removal:?} {strict}"
            );
        }
    }

    #[test]
    fn drop_entry_applies_always_or_while_memory_is_low() {
        let mode = |drop_entry| Ipvs {
            drop_entry,
            ..Ipvs::default()
        };
        let drops =
            |memory_is_low| [0, 1, 2, 3].map(|number| drops_entries(&mode(number), memory_is_low));
        assert_eq!(drops(false), [false, false, false, true]);
        assert_eq!(drops(true), [false, true, true, true]);
    }

    #[test]
    fn each_ipvs_setting_sets_its_flag() {
        let default = Ipvs::default();
        assert_eq!(ipvs_settings(&default), SETTINGS_REUSE);
        let mode = |conn_reuse_mode| Ipvs {
            conn_reuse_mode,
            ..default
        };
        assert_eq!(ipvs_settings(&mode(0)), 0);
        let both = SETTINGS_REUSE | SETTINGS_REUSE_FIN_WAIT;
        assert_eq!(
            (ipvs_settings(&mode(2)), ipvs_settings(&mode(3))),
            (both, both)
        );
        let flag_of = |change: &dyn Fn(&mut Ipvs)| {
            let mut ipvs = mode(0);
            change(&mut ipvs);
            ipvs_settings(&ipvs)
        };
        let found = [
            flag_of(&|ipvs| ipvs.sloppy_tcp = true),
            flag_of(&|ipvs| ipvs.expire_nodest_conn = true),
            flag_of(&|ipvs| ipvs.schedule_icmp = true),
            flag_of(&|ipvs| ipvs.cache_bypass = true),
        ];
        let expected = [
            SETTINGS_SLOPPY_TCP,
            SETTINGS_EXPIRE_NODEST,
            SETTINGS_SCHEDULE_ICMP,
            SETTINGS_CACHE_BYPASS,
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn probe_flag_is_set_only_if_a_check_uses_the_forwarding_path() {
        for (via, expected) in [
            (Via::Server, 0),
            (Via::Path, SETTINGS_PROBES),
            (Via::Both, SETTINGS_PROBES),
        ] {
            let mut check = Check::new(Probe::Tcp);
            check.target.via = via;
            let mut pool = Pool::new("web");
            pool.checks = vec![check];
            let desired = Desired {
                pools: vec![pool],
                ..Desired::default()
            };
            assert_eq!(probe_flags(&desired), expected, "{via:?}");
        }
        assert_eq!(probe_flags(&Desired::default()), 0);
    }

    #[test]
    fn quiesced_server_keeps_its_persistent_clients_unless_a_setting_expires_them() {
        let dest = |effective, quiesced, down| DestSlot {
            effective,
            quiesced,
            down,
            ..dest_slot()
        };
        let expire = Ipvs {
            expire_quiescent_template: true,
            ..Ipvs::default()
        };
        for (dest, expected, expected_with_setting) in [
            (dest(1, false, false), POLICY_PERSISTENT, POLICY_PERSISTENT),
            (dest(0, true, false), POLICY_PERSISTENT, 0),
            (dest(0, false, false), 0, 0),
            (dest(0, true, true), POLICY_DOWN, POLICY_DOWN),
        ] {
            let found = (policy(&dest, &Ipvs::default()), policy(&dest, &expire));
            assert_eq!(found, (expected, expected_with_setting), "{dest:?}");
        }
    }
}
