//! The description of an end in messages: its name and version, and its capabilities.

use alloc::borrow::Cow;

use super::{Revision, Side};
use crate::dialect::{Capabilities, Icon, Identity, LocalEnd};
use crate::json::Json;
use crate::json::read::{member, string_lossy};
use crate::json::write::{Object, push_json};

pub(super) fn read_identity(object: &[u8]) -> Option<Identity> {
    let text = |name: &str| member(object, name).and_then(string_lossy).map(Cow::into_owned);
    Some(Identity {
        name: text("name")?,
        version: text("version")?,
        title: text("title"),
        website: text("websiteUrl"),
        icons: Icon::read_all(object),
    })
}

/// Writes the identity of an end that introduces itself.
pub(super) fn write_introduction(object: &mut Object<'_>, revision: Revision, identity: &Identity) {
    write_identity(object, revision, identity);
    if revision >= Revision::R2025_11_25 {
        if let Some(website) = &identity.website {
            object.string("websiteUrl", website);
        }
        Icon::write_all(&identity.icons, object);
    }
}

/// Writes the identity of an end in a message that only names it, as every message without a handshake does.
pub(super) fn write_identity(object: &mut Object<'_>, revision: Revision, identity: &Identity) {
    object.string("name", &identity.name);
    object.string("version", &identity.version);
    if let (Some(title), true) = (&identity.title, revision >= Revision::R2025_06_18) {
        object.string("title", title);
    }
}

/// Reads the capabilities of a client or a server. A capability is declared if its member is an object.
pub(super) fn read_capabilities(declared: &Json) -> Capabilities {
    let object = |name: &str| declared.member(name).filter(Json::is_object);
    let part = |of: &Option<Json>, name: &str| of.as_ref().and_then(|of| of.given(name));
    let is_true = |value: Option<Json>| value.is_some_and(|value| value.as_str() == "true");
    let (sampling, elicitation, roots) = (object("sampling"), object("elicitation"), object("roots"));
    let (tools, prompts, resources) = (object("tools"), object("prompts"), object("resources"));
    // An object without a mode, such as an empty one, means form mode only; any other object lists each mode ("Elicitation", section
    // "Capabilities").
    let by_form = elicitation.is_some() && (part(&elicitation, "form").is_some() || part(&elicitation, "url").is_none());
    Capabilities {
        sampling_tools: part(&sampling, "tools").is_some_and(|tools| tools.is_object()),
        sampling: sampling.is_some(),
        elicitation: by_form,
        elicitation_url: part(&elicitation, "url").is_some_and(|url| url.is_object()),
        roots_list_changed: is_true(part(&roots, "listChanged")),
        roots: roots.is_some(),
        tools_list_changed: is_true(part(&tools, "listChanged")),
        tools: tools.is_some(),
        prompts_list_changed: is_true(part(&prompts, "listChanged")),
        prompts: prompts.is_some(),
        resources_subscribe: is_true(part(&resources, "subscribe")),
        resources_list_changed: is_true(part(&resources, "listChanged")),
        resources: resources.is_some(),
        completions: object("completions").is_some(),
        logging: object("logging").is_some(),
    }
}

pub(super) fn write_capabilities(object: &mut Object<'_>, side: Side, revision: Revision, own: &Capabilities) {
    let mut capability = |name: &'static str, has: bool, parts: &[(&'static str, bool)]| {
        if has {
            object.object(name, |object| {
                for (part, _) in parts.iter().filter(|(_, has)| *has) {
                    object.boolean(part, true);
                }
            });
        }
    };
    match side {
        Side::Client => {
            // Without a handshake, the client does not send the notification that its roots have changed.
            capability("roots", own.roots, &[("listChanged", own.roots_list_changed && revision.has_handshake())]);
            let (by_form, by_url) = (own.elicitation, own.elicitation_url && revision >= Revision::R2025_11_25);
            if (by_form && revision >= Revision::R2025_06_18) || by_url {
                object.object("elicitation", |object| {
                    // An empty object means form mode, the only mode before 2025-11-25.
                    for (mode, _) in [("form", by_form), ("url", by_url)].iter().filter(|(_, has)| by_url && *has) {
                        object.object(mode, |_| {});
                    }
                });
            }
            if own.sampling {
                object.object("sampling", |object| {
                    if own.sampling_tools && revision >= Revision::R2025_11_25 {
                        object.object("tools", |_| {});
                    }
                });
            }
        }
        Side::Server => {
            capability("tools", own.tools, &[("listChanged", own.tools_list_changed)]);
            capability("prompts", own.prompts, &[("listChanged", own.prompts_list_changed)]);
            let resources = [("subscribe", own.resources_subscribe), ("listChanged", own.resources_list_changed)];
            capability("resources", own.resources, &resources);
            capability("completions", own.completions && revision >= Revision::R2025_03_26, &[]);
            capability("logging", own.logging, &[]);
        }
    }
}

/// Writes the capabilities and the extensions of this end.
pub(super) fn declare(object: &mut Object<'_>, side: Side, revision: Revision, local: &LocalEnd<'_>) {
    write_capabilities(object, side, revision, local.capabilities);
    let mut extensions = local.extensions.iter().filter(|(_, settings)| settings.is_object()).peekable();
    if extensions.peek().is_some() {
        object.object("extensions", |object| {
            extensions.for_each(|(name, settings)| push_json(object.named(name), settings.as_bytes()))
        });
    }
}
