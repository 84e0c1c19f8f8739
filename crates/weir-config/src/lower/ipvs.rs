//! Lowers `[ipvs]`, which has the same numbers as the kernel's sysctls.

use std::time::Duration;

use weir_model::Ipvs;

use crate::view::{Sink, View};

pub(super) fn ipvs(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Ipvs {
    let default = Ipvs::default();
    let seconds = |number: u32| Duration::from_secs(number.into());
    let mut number = |name: &'static str| view.integer(sink, name);
    Ipvs {
        expire_nodest_conn: number("expire_nodest_conn") == Some(1),
        expire_quiescent_template: number("expire_quiescent_template") == Some(1),
        conn_reuse_mode: number("conn_reuse_mode")
            .and_then(|mode| u8::try_from(mode).ok())
            .unwrap_or(default.conn_reuse_mode),
        sloppy_tcp: number("sloppy_tcp") == Some(1),
        lblc_expiration: number("lblc_expiration").map_or(default.lblc_expiration, seconds),
        lblcr_expiration: number("lblcr_expiration").map_or(default.lblcr_expiration, seconds),
        drop_entry: number("drop_entry")
            .and_then(|mode| u8::try_from(mode).ok())
            .unwrap_or(default.drop_entry),
        amemthresh: number("amemthresh").unwrap_or(default.amemthresh),
        schedule_icmp: number("schedule_icmp") == Some(1),
        cache_bypass: number("cache_bypass") == Some(1),
    }
}
