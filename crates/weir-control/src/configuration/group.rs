//! The published configuration of a group as a part of a director's own.

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

/// Adds what the group has published to a director's own configuration, if that is of this group. It gains no rights:
/// programs and files must be those of the director's own.
pub(super) fn with_published<'t>(
    own: &'t str,
    group: Option<&GroupConfiguration>,
) -> Result<Cow<'t, str>, Unpublishable> {
    let Some(published) = group else {
        return Ok(own.into());
    };
    let Some((group, files)) = weir_config::group_of(own) else {
        return Ok(own.into());
    };
    if group != published.group {
        return Ok(own.into());
    }
    // The record of the active configuration contains a published one.
    let own = weir_config::without_published(own, &group);
    if !weir_config::is_publishable(&published.text) {
        return Err(Unpublishable::ControlCharacters);
    }
    let bundle = weir_config::with_published(own, &group, &published.text);
    let found = weir_config::published_findings(own, &bundle, &files);
    if !found.is_empty() {
        return Err(Unpublishable::Findings { bundle, found });
    }
    Ok(bundle.into())
}

/// The director's own part of an active text.
pub(crate) fn own_part<'t>(text: &'t str, group: Option<&GroupConfiguration>) -> &'t str {
    match group {
        Some(published) => weir_config::without_published(text, &published.group),
        None => text,
    }
}

/// The director's own part of a configuration to which its group has published a part; `None` = there is no such part.
pub(crate) fn own_desired(text: &str, desired: &Desired) -> Option<Desired> {
    let group = &desired.cluster.as_ref()?.name;
    weir_config::published_part(text, group)?;
    let own = weir_config::without_published(text, group);
    weir_helper::parse(own, &weir_helper::Environment).ok()
}
