//! Combines root's configuration with the part that a group of directors has published.
//!
//! An unprivileged daemon supplies the published part, and could supply any text. The result therefore contains root's
//! own part, and the published part may contain only what root's configuration file permits: parsing enforces
//! `[cluster.publish]`, and root's configuration file must name all programs and files.

/// Returns root's configuration with the published part of a daemon's text, or without it if the text has no such part
/// for root's group.
///
/// # Errors
/// Returns a message if the published part contains something that only root's own file may contain.
pub fn with_published_part(root_text: &str, daemon_text: &str) -> Result<String, String> {
    let Some((group, files)) = weir_config::group_of(root_text) else {
        return Ok(root_text.to_owned());
    };
    let Some(published) = weir_config::published_part(daemon_text, &group) else {
        return Ok(root_text.to_owned());
    };
    if !weir_config::is_publishable(published) {
        return Err("the published configuration contains control characters".to_owned());
    }
    let bundle = weir_config::with_published(root_text, &group, published);
    match weir_config::published_findings(root_text, &bundle, &files).first() {
        Some(finding) => Err(finding.message.clone()),
        None => Ok(bundle),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT_TEXT: &str = "[cluster]\netcd = [\"http://10.0.0.1:2379\"]\nname = \"edge\"\n";

    #[test]
    fn root_part_always_comes_from_root() {
        let other = ROOT_TEXT.replace("10.0.0.1", "10.0.0.2");
        let daemon_text = weir_config::with_published(&other, "edge", "[pool.a]\n");
        let expected = weir_config::with_published(ROOT_TEXT, "edge", "[pool.a]\n");
        assert_eq!(with_published_part(ROOT_TEXT, &daemon_text), Ok(expected));
        // The daemon's text is for a different group, or for none.
        let daemon_text = weir_config::with_published(&other, "other", "[pool.a]\n");
        assert_eq!(
            with_published_part(ROOT_TEXT, &daemon_text),
            Ok(ROOT_TEXT.to_owned())
        );
        assert_eq!(
            with_published_part("[node]\n", &daemon_text),
            Ok("[node]\n".to_owned())
        );
        assert_eq!(
            with_published_part(ROOT_TEXT, ROOT_TEXT),
            Ok(ROOT_TEXT.to_owned())
        );
    }

    #[test]
    fn published_part_with_tables_of_root_is_rejected() {
        for (published, expected) in [
            ("[node]\nmax_flows = 1024\n", "`node` cannot be published"),
            (
                "[cluster.publish]\nvips = [\"0.0.0.0/0\"]\n",
                "`cluster` cannot be published",
            ),
            ("[pool.a]\nnotify = [\"/bin/sh\"]\n", "would run a program"),
        ] {
            let daemon_text = weir_config::with_published(ROOT_TEXT, "edge", published);
            let message = with_published_part(ROOT_TEXT, &daemon_text).unwrap_err();
            assert!(message.contains(expected), "{message}");
        }
        let twice = weir_config::with_published(ROOT_TEXT, "edge", "[pool.a]\n");
        let twice = weir_config::with_published(&twice, "edge", "[pool.b]\n");
        assert!(with_published_part(ROOT_TEXT, &twice).is_err());
    }
}
