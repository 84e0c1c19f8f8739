//! Root's configuration together with what a group of directors has published.
//!
//! A daemon without rights supplies the published part, and could supply anything. The result therefore has root's own
//! part, and its last file may only contain what root's file permits: parsing it enforces `[cluster.publish]`, and
//! programs and files must be those that root's file names.

/// Returns root's configuration with the published part of a daemon's text, if both are of the same group.
///
/// # Errors
/// In words: the published part contains what only root's own file may contain.
pub fn with_published_part(own: &str, daemons: &str) -> Result<String, String> {
    let Some((group, files)) = weir_config::group_of(own) else {
        return Ok(own.to_owned());
    };
    let Some(published) = weir_config::published_part(daemons, &group) else {
        return Ok(own.to_owned());
    };
    if !weir_config::is_publishable(published) {
        return Err("the published configuration contains control characters".to_owned());
    }
    let bundle = weir_config::with_published(own, &group, published);
    match weir_config::published_findings(own, &bundle, &files).first() {
        Some(found) => Err(found.message.clone()),
        None => Ok(bundle),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "[cluster]\netcd = [\"http://10.0.0.1:2379\"]\nname = \"edge\"\n";

    #[test]
    fn own_part_is_always_that_of_root() {
        let other = OWN.replace("10.0.0.1", "10.0.0.2");
        let daemons = weir_config::with_published(&other, "edge", "[pool.a]\n");
        let expected = weir_config::with_published(OWN, "edge", "[pool.a]\n");
        assert_eq!(with_published_part(OWN, &daemons), Ok(expected));
        // Another group, or none.
        let daemons = weir_config::with_published(&other, "other", "[pool.a]\n");
        assert_eq!(with_published_part(OWN, &daemons), Ok(OWN.to_owned()));
        assert_eq!(
            with_published_part("[node]\n", &daemons),
            Ok("[node]\n".to_owned())
        );
        assert_eq!(with_published_part(OWN, OWN), Ok(OWN.to_owned()));
    }

    #[test]
    fn published_part_has_no_tables_of_root() {
        for (published, expected) in [
            ("[node]\nmax_flows = 1024\n", "`node` cannot be published"),
            (
                "[cluster.publish]\nvips = [\"0.0.0.0/0\"]\n",
                "`cluster` cannot be published",
            ),
            ("[pool.a]\nnotify = [\"/bin/sh\"]\n", "would run a program"),
        ] {
            let daemons = weir_config::with_published(OWN, "edge", published);
            let refused = with_published_part(OWN, &daemons).unwrap_err();
            assert!(refused.contains(expected), "{refused}");
        }
        let twice = weir_config::with_published(OWN, "edge", "[pool.a]\n");
        let twice = weir_config::with_published(&twice, "edge", "[pool.b]\n");
        assert!(with_published_part(OWN, &twice).is_err());
    }
}
