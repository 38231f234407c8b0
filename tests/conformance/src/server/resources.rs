//! The resources that the conformance suite prescribes.

use endpoint::{Context, Resource, ResourceContents, ResourceTemplate, ResourceUri};
use serde_json::json;

use super::content::PIXEL;

pub(super) fn resources() -> Vec<Resource> {
    vec![
        Resource::new("test://static-text", "static-text", async |_: Context| {
            Ok(ResourceContents::text("This is the content of the static text resource."))
        })
        .description("A text that never changes.")
        .mime_type("text/plain"),
        Resource::new("test://static-binary", "static-binary", async |_: Context| Ok(ResourceContents::blob(PIXEL)))
            .description("An image that never changes.")
            .mime_type("image/png"),
        Resource::new("test://watched-resource", "watched-resource", async |_: Context| {
            Ok(ResourceContents::text("Watched resource content"))
        })
        .description("A text that can be subscribed to.")
        .mime_type("text/plain")
        .subscribable(),
    ]
}

pub(super) fn template() -> ResourceTemplate {
    ResourceTemplate::new("test://template/{id}/data", "template", async |_: Context, uri: ResourceUri| {
        let id = uri.variables.get("id").map_or("", String::as_str);
        Ok(ResourceContents::text(json!({"id": id, "templateTest": true, "data": format!("Data for ID: {id}")}).to_string()))
    })
    .description("The data of a number.")
    .mime_type("application/json")
}
