//! Adds the published configuration of a group to a director's own configuration.

use std::borrow::Cow;

use crate::group_configuration::GroupConfiguration;
use weir_config::{Desired, Diagnostic};

/// Why a published text cannot be used.
pub(super) enum Unpublishable {
    ControlCharacters,
    Findings {
        bundle: String,
        found: Vec<Diagnostic>,
    },
}

/// Adds the group's published configuration to a director's own configuration if the director is a member of this
/// group. The published part cannot gain privileges: it may refer only to programs and files that the director's own
/// part references.
pub(super) fn with_published<'t>(
    own_text: &'t str,
    published: Option<&GroupConfiguration>,
) -> Result<Cow<'t, str>, Unpublishable> {
    let Some(published) = published else {
        return Ok(own_text.into());
    };
    let Some((group, files)) = weir_config::group_of(own_text) else {
        return Ok(own_text.into());
    };
    if group != published.group {
        return Ok(own_text.into());
    }
    // The text may be the recorded active configuration, which already contains a published part.
    let own_text = weir_config::own_part(own_text, &group);
    if !weir_config::is_publishable(&published.text) {
        return Err(Unpublishable::ControlCharacters);
    }
    let bundle = weir_config::with_published(own_text, &group, &published.text);
    let found = weir_config::published_findings(own_text, &bundle, &files);
    if !found.is_empty() {
        return Err(Unpublishable::Findings { bundle, found });
    }
    Ok(bundle.into())
}

/// Returns the director's own part of the active configuration's text.
pub(crate) fn own_part<'t>(text: &'t str, published: Option<&GroupConfiguration>) -> &'t str {
    match published {
        Some(published) => weir_config::own_part(text, &published.group),
        None => text,
    }
}

/// Returns the director's own part of a configuration that includes its group's published part; `None` = the director
/// is in no group, nothing is published, or the director's own part is not valid by itself.
pub(crate) fn own_desired(text: &str, desired: &Desired) -> Option<Desired> {
    let group = &desired.cluster.as_ref()?.name;
    weir_config::published_part(text, group)?;
    let own = weir_config::own_part(text, group);
    weir_helper::parse(own, &weir_helper::Environment).ok()
}
