//! Generates the cluster configuration of the fourth field report, with Weir instead of ldirectord.

use std::path::Path;

/// The files that the configuration refers to; their paths are the same on all nodes.
pub(super) struct Paths<'a> {
    pub(super) weir: &'a Path,
    pub(super) config: &'a Path,
    pub(super) app: &'a Path,
    pub(super) node: &'a Path,
}

/// Returns the sections of the configuration, in the order in which the lab writes them.
pub(super) fn sections(vip: &str, paths: &Paths<'_>) -> [(&'static str, String); 3] {
    let options = "<crm_config><cluster_property_set id=\"options\">\
                   <nvpair id=\"stonith\" name=\"stonith-enabled\" value=\"false\"/>\
                   </cluster_property_set></crm_config>";
    [
        ("crm_config", options.to_owned()),
        ("resources", resources(vip, paths)),
        ("constraints", CONSTRAINTS.to_owned()),
    ]
}

/// Constraints that place Weir and the VIP on one node, and the application, with the VIP on lo, on the other nodes.
const CONSTRAINTS: &str = "<constraints>\
    <rsc_colocation id=\"weir-with-vip\" rsc=\"weir\" with-rsc=\"vip\" score=\"INFINITY\"/>\
    <rsc_colocation id=\"lo-not-vip\" rsc=\"lo-clone\" with-rsc=\"vip\" score=\"-INFINITY\"/>\
    <rsc_colocation id=\"app-not-vip\" rsc=\"app-clone\" with-rsc=\"vip\" score=\"-INFINITY\"/>\
    <rsc_order id=\"vip-then-weir\" first=\"vip\" then=\"weir\"/>\
    </constraints>";

/// Returns a primitive of class ocf.
fn primitive(id: &str, agent: (&str, &str), parameters: &[(&str, &str)], monitor: &str) -> String {
    let mut attributes = String::new();
    for (name, value) in parameters {
        attributes.push_str(&format!(
            "<nvpair id=\"{id}-{name}\" name=\"{name}\" value=\"{}\"/>",
            value
                .replace('&', "&amp;")
                .replace('"', "&quot;")
                .replace('<', "&lt;")
        ));
    }
    format!(
        "<primitive id=\"{id}\" class=\"ocf\" provider=\"{}\" type=\"{}\">\
         <instance_attributes id=\"{id}-parameters\">{attributes}</instance_attributes>\
         <meta_attributes id=\"{id}-meta\">\
         <nvpair id=\"{id}-stickiness\" name=\"resource-stickiness\" value=\"100\"/></meta_attributes>\
         <operations><op id=\"{id}-monitor\" name=\"monitor\" interval=\"{monitor}\" timeout=\"20s\"/>\
         <op id=\"{id}-start\" name=\"start\" interval=\"0\" timeout=\"60s\"/></operations></primitive>",
        agent.0, agent.1
    )
}

fn resources(vip: &str, paths: &Paths<'_>) -> String {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let app = primitive(
        "app",
        ("heartbeat", "anything"),
        &[
            ("binfile", &text(paths.node)),
            ("cmdline_options", &text(paths.app)),
            ("pidfile", "/run/app.pid"),
        ],
        "2s",
    );
    let lo = primitive("lo", ("lab", "loopback"), &[("ip", vip)], "5s");
    let weir = primitive(
        "weir",
        ("weir", "weir"),
        &[
            ("binary", &text(paths.weir)),
            ("config", &text(paths.config)),
            // Each node has its own /run and bpffs.
            ("runtime_dir", "/run/weir"),
            ("pin_dir", "/run/bpf/weir"),
        ],
        "5s",
    );
    let address = primitive(
        "vip",
        ("heartbeat", "IPaddr2"),
        &[
            ("ip", vip),
            ("nic", "eth0"),
            ("cidr_netmask", "32"),
            ("lvs_support", "true"),
        ],
        "2s",
    );
    format!(
        "<resources><clone id=\"app-clone\">{app}</clone><clone id=\"lo-clone\">{lo}</clone>{weir}{address}</resources>"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_balanced_and_values_escaped() {
        let path = Path::new("/a&b");
        let paths = Paths {
            weir: path,
            config: path,
            app: path,
            node: path,
        };
        for (name, text) in sections("10.0.0.1", &paths) {
            assert!(
                text.starts_with(&format!("<{name}>")) && text.ends_with(&format!("</{name}>"))
            );
            let count = |what: &str| text.matches(what).count();
            for element in ["primitive", "clone", "operations", "instance_attributes"] {
                assert_eq!(
                    count(&format!("<{element} ")) + count(&format!("<{element}>")),
                    count(&format!("</{element}>")),
                    "{element}"
                );
            }
            assert!(!text.contains("a&b"), "{text}");
        }
    }
}
