//! Describes the causes as findings, with the commands or lines of the router's configuration that remove them.

use std::net::IpAddr;

use super::cause::Cause;
use super::path::{Attribute, Speaker};
use crate::Diagnosis;

/// Maximum number of items that a finding lists.
const MAX_LIST: usize = 8;

/// Minimum number of paths in the commands for FRR. All builds accept it.
const MIN_MAXIMUM_PATHS: usize = 16;

/// The properties of the router that determine the fixes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Context<'a> {
    pub(super) speaker: Speaker,
    /// The command line of `birdc` or `vtysh`.
    pub(super) command: &'a str,
    /// FRR: the router's AS number; `None` = BGP is not configured.
    pub(super) as_number: Option<u32>,
}

/// Returns the finding for a cause.
pub(super) fn diagnosis(cause: &Cause, vips: &[IpAddr], context: Context<'_>) -> Diagnosis {
    let names: Vec<String> = vips.iter().map(IpAddr::to_string).collect();
    let example = names.first().map_or("VIP", String::as_str);
    let vips = match vips {
        [vip] => format!("the VIP {vip}"),
        _ => format!("the VIPs {}", list(&names)),
    };
    let speaker = context.speaker;
    match cause {
        Cause::NotAnnounced { covering } => not_announced(&vips, covering.as_deref(), speaker),
        Cause::OtherProtocol { protocol, sources } => Diagnosis::new(
            format!(
                "{speaker} prefers protocol {protocol}'s route to {vips} over the BGP paths ({})",
                list(sources)
            ),
            "packets follow that route, even if the director to which it leads has withdrawn the VIP or is stopped",
        )
        .fix(format!(
            "remove the route from {protocol}; then: {} configure",
            context.command
        )),
        Cause::NotInKernel {
            is_ipv4,
            covering,
            sources,
        } => not_in_kernel(&vips, covering.as_deref(), sources, *is_ipv4, context),
        Cause::Different { attribute, values } => different(&vips, *attribute, values, context),
        Cause::NotSelected {
            is_ipv4,
            is_internal,
            selected,
            paths,
        } => Diagnosis::new(
            format!("{speaker} uses {selected} of {paths} equal paths to {vips}"),
            "the directors behind the other paths receive no packets",
        )
        .fix(frr_command(
            context,
            Some(*is_ipv4),
            &format!(
                "maximum-paths {}{}",
                if *is_internal { "ibgp " } else { "" },
                paths.next_power_of_two().max(MIN_MAXIMUM_PATHS)
            ),
        )),
        Cause::NotMerged {
            is_ipv4,
            in_kernel,
            sources,
        } => not_merged((&vips, example), *in_kernel, sources, *is_ipv4, context),
        Cause::Suppressed => suppressed(&vips, speaker),
    }
}

fn suppressed(vips: &str, speaker: Speaker) -> Diagnosis {
    Diagnosis::note(
        format!(
            "{speaker} does not send the route to {vips} to its neighbors: an aggregate suppresses it"
        ),
        "the neighbors see only the aggregate: they send packets here even if no director behind this router announces \
         the VIP",
    )
    .fix(
        "if directors are connected to other routers too, remove `summary-only` from the `aggregate-address`, or add \
         `neighbor NEIGHBOR unsuppress-map MAP`",
    )
}

fn not_announced(vips: &str, covering: Option<&str>, speaker: Speaker) -> Diagnosis {
    let route = match covering {
        Some(prefix) => format!("packets follow the route to {prefix}"),
        None => "packets are dropped".to_owned(),
    };
    Diagnosis::new(
        format!("{speaker} has no usable host route to {vips}; {route}"),
        "no director announces the VIP to this router, or the router does not accept host routes",
    )
    .fix(
        "on the directors: weir status, which shows why a VIP is withdrawn; on this router: accept the prefix lengths \
         32 and 128 from the directors",
    )
}

fn not_in_kernel(
    vips: &str,
    covering: Option<&str>,
    sources: &[String],
    is_ipv4: bool,
    context: Context<'_>,
) -> Diagnosis {
    let Context {
        speaker, command, ..
    } = context;
    let sources = list(sources);
    let route = match covering {
        Some(prefix) => format!("follow the route to {prefix}"),
        None => "are dropped".to_owned(),
    };
    let consequence = match covering {
        Some(_) => {
            "the aggregate does not distribute packets across the directors, and remains when a director withdraws \
             the VIP"
        }
        None => "clients cannot reach the VIP through this router",
    };
    let channel = channel(is_ipv4);
    Diagnosis::new(
        format!("{speaker} has paths to {vips} ({sources}), but the kernel has none: packets {route}"),
        consequence,
    )
    .fix(match speaker {
        Speaker::Bird => format!(
            "in bird.conf, export the route to the kernel: `export all;`, or a filter that accepts it, in `{channel}` \
             of `protocol kernel`; then: {command} configure"
        ),
        Speaker::Frr => format!(
            "remove the filter that rejects the route: `ip protocol bgp route-map` (`ipv6 protocol`), or `table-map` \
             in `address-family {channel} unicast` of `router bgp`"
        ),
    })
}

fn different(
    vips: &str,
    attribute: Attribute,
    values: &[(String, Vec<String>)],
    context: Context<'_>,
) -> Diagnosis {
    let values: Vec<String> = values
        .iter()
        .map(|(value, sources)| format!("{value} ({})", list(sources)))
        .collect();
    let noun = match attribute {
        Attribute::Preference => "preferences",
        Attribute::Weight => "weights",
        Attribute::LocalPreference => "local preferences",
        Attribute::AsPathLength => "AS path lengths",
        Attribute::Origin => "origins",
        Attribute::Med => "MEDs",
        Attribute::PeerType => "session types",
        Attribute::IgpMetric => "next hop metrics",
        Attribute::AsPath => "AS paths",
    };
    let observation = format!(
        "the paths to {vips} have different {noun}: {}",
        list(&values)
    );
    let consequence = "the router uses only the paths that it prefers; the directors behind the others receive no \
                       packets";
    Diagnosis::new(observation, consequence).fix(difference_fix(attribute, context))
}

fn difference_fix(attribute: Attribute, context: Context<'_>) -> String {
    let speaker = context.speaker;
    let import = match speaker {
        Speaker::Bird => "the import filters of bird.conf",
        Speaker::Frr => "the `route-map … in` of the neighbors",
    };
    match attribute {
        Attribute::Origin => {
            "on the directors whose origin differs, announce the VIP with Weir, which uses the origin IGP with every \
             speaker; other programs: GoBGP `origin igp`, FRR `set origin igp`, BIRD `bgp_origin = ORIGIN_IGP;`"
                .to_owned()
        }
        Attribute::LocalPreference => {
            format!("set the same local preference for all directors in {import}")
        }
        Attribute::AsPathLength => {
            "remove the prepending on the directors' speakers and routers, so that all AS paths have the same length"
                .to_owned()
        }
        Attribute::Med => format!("announce the same MED on all directors, or set it in {import}"),
        Attribute::Preference => "set the same `preference` in the BGP channels of bird.conf".to_owned(),
        Attribute::Weight => "remove `neighbor … weight` and `set weight` from FRR".to_owned(),
        Attribute::PeerType => {
            "connect all directors with the same kind of session: eBGP, or iBGP".to_owned()
        }
        Attribute::IgpMetric => {
            "set equal costs for the links to the directors in the interior routing protocol, or connect all \
             directors to this router"
                .to_owned()
        }
        Attribute::AsPath => frr_command(context, None, "bgp bestpath as-path multipath-relax"),
    }
}

fn not_merged(
    (vips, example): (&str, &str),
    in_kernel: usize,
    sources: &[String],
    is_ipv4: bool,
    context: Context<'_>,
) -> Diagnosis {
    let Context {
        speaker, command, ..
    } = context;
    let next_hops = match in_kernel {
        1 => "one next hop".to_owned(),
        count => format!("{count} next hops"),
    };
    let observation = format!(
        "the kernel has {next_hops} for {vips}, but {speaker} has equal paths from {}",
        list(sources)
    );
    let channel = channel(is_ipv4);
    let fix = match (speaker, in_kernel) {
        (Speaker::Bird, 1) => format!(
            "in bird.conf, add `merge paths on;` to the `protocol kernel` with `{channel}`; then: {command} \
             configure"
        ),
        (Speaker::Bird, _) => format!(
            "in bird.conf, increase the limit of the `protocol kernel` with `{channel}`: `merge paths on limit 64;`; \
             then: {command} configure"
        ),
        (Speaker::Frr, _) => format!(
            "{command} -c 'show {} route {example}', which shows the next hops that zebra does not use; zebra's option \
             `--ecmp` limits their number",
            if is_ipv4 { "ip" } else { "ipv6" },
        ),
    };
    Diagnosis::new(
        observation,
        "the directors behind the other paths receive no packets",
    )
    .fix(fix)
}

/// Returns the finding for a hash policy that ignores ports.
pub(super) fn hash_policy(sysctl: &str, value: &str) -> Diagnosis {
    Diagnosis::new(
        format!("{sysctl} is {value}: the kernel ignores ports when it selects a path"),
        "all connections from one client address go to the same director, so clients behind a NAT or a proxy are not \
         distributed",
    )
    .fix(format!("sysctl -w {sysctl}=1"))
}

/// Returns the finding for a router without VIPs that several directors announce.
pub(super) fn nothing_found(speaker: Speaker) -> Diagnosis {
    Diagnosis::new(
        format!("{speaker} has no host route (/32, /128) with more than one BGP path"),
        "no VIP that several directors announce was found, so nothing was examined",
    )
    .fix("weir doctor --router VIP, which shows why BGP has no path to a VIP")
}

/// Returns the note about VIPs that were not examined.
pub(super) fn omitted(examined: usize, omitted: usize) -> Diagnosis {
    Diagnosis::note(
        format!("only the first {examined} VIPs were examined, not the other {omitted}"),
        "the causes usually apply to all VIPs; specify VIPs after `--router` to examine others",
    )
}

const fn channel(is_ipv4: bool) -> &'static str {
    if is_ipv4 { "ipv4" } else { "ipv6" }
}

/// Returns the command that adds a line to FRR's BGP configuration, or to one of its address families.
fn frr_command(context: Context<'_>, is_ipv4: Option<bool>, line: &str) -> String {
    let number = context.as_number;
    let number = number.map_or("ASN".to_owned(), |number| number.to_string());
    let family =
        is_ipv4.map(|is_ipv4| format!(" -c 'address-family {} unicast'", channel(is_ipv4)));
    format!(
        "{} -c 'configure terminal' -c 'router bgp {number}'{} -c '{line}'",
        context.command,
        family.unwrap_or_default()
    )
}

/// Lists at most [`MAX_LIST`] items, and the number of the others.
fn list(items: &[String]) -> String {
    match items.len() {
        0..=MAX_LIST => items.join(", "),
        count => format!(
            "{} and {} more",
            items[..MAX_LIST].join(", "),
            count - MAX_LIST
        ),
    }
}
