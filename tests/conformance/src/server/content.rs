//! Tools that return fixed content of each kind, a tool that fails, and tools whose schemas have special keywords.

use endpoint::{Context, Tool, ToolError};
use protocol_core::{Content, Json, ToolOutput};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

/// A PNG image of one pixel.
pub(super) const PIXEL: &[u8] = &[
    0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, 0, 0, 0, 13, b'I', b'H', b'D', b'R', 0, 0, 0, 1, 0, 0, 0, 1, 8, 6, 0, 0, 0,
    0x1f, 0x15, 0xc4, 0x89, 0, 0, 0, 13, b'I', b'D', b'A', b'T', 0x78, 0x9c, 0x63, 0xf8, 0xcf, 0xc0, 0xf0, 0x1f, 0, 0x05, 0, 0x01,
    0xff, 0x56, 0xc7, 0x2f, 0x0d, 0, 0, 0, 0, b'I', b'E', b'N', b'D', 0xae, 0x42, 0x60, 0x82,
];
/// A WAV recording of no samples.
const SILENCE: &[u8] = b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x80\x3e\0\0\x02\0\x10\0data\0\0\0\0";

pub(super) fn tools() -> Vec<Tool> {
    vec![
        Tool::new("test_simple_text", async |_: Context, ()| Ok("This is a simple text response for testing."))
            .description("Returns one text."),
        content("test_image_content", "Returns one image.", || vec![Content::image(PIXEL, "image/png")]),
        content("test_audio_content", "Returns one recording.", || vec![Content::audio(SILENCE, "audio/wav")]),
        content("test_embedded_resource", "Returns one resource.", || {
            vec![Content::embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")]
        }),
        content("test_multiple_content_types", "Returns a text, an image and a resource.", || {
            vec![
                Content::text("Multiple content types test:"),
                Content::image(PIXEL, "image/png"),
                Content::embedded("test://mixed-content-resource", "application/json", r#"{"test":"data","value":123}"#),
            ]
        }),
        Tool::new("test_error_handling", async |_: Context, ()| {
            Err::<String, _>(ToolError::failed("This tool intentionally returns an error for testing"))
        })
        .description("Fails."),
        Tool::new("test_custom_header", async |_: Context, arguments: Located| Ok(format!("In {}", arguments.region)))
            .description("Has an argument that clients over HTTP repeat in a header."),
        tool_with_special_keywords(),
    ]
}

/// A tool without arguments that returns these blocks and no structured content.
fn content(name: &str, description: &str, blocks: fn() -> Vec<Content>) -> Tool {
    Tool::with_content(name, move |_: Context, ()| async move { Ok(ToolOutput::blocks(blocks())) }).description(description)
}

#[derive(Deserialize, JsonSchema)]
struct Located {
    /// where it is run
    #[schemars(extend("x-mcp-header" = "Region"))]
    region: String,
}

/// A tool whose schema has keywords of JSON Schema 2020-12 that a schema made from a Rust type does not have.
fn tool_with_special_keywords() -> Tool {
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            },
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": false,
    });
    Tool::from_schema("json_schema_2020_12_tool", schema.into(), async |_: Context, arguments: Json| {
        Ok(ToolOutput::text(format!("Contact: {arguments}")))
    })
    .expect("a schema")
    .description("Has a schema with keywords of JSON Schema 2020-12.")
}
