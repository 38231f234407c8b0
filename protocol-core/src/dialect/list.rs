//! Pages of lists, and the types of their entries.

use alloc::vec::Vec;

use super::Op;
use crate::json::read::{self, Kind, Walk};
use crate::json::{Json, Text};

/// One page of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Page {
    /// The entries, each as the JSON that is in the frame.
    pub items: Vec<Json>,
    /// The cursor of the next page; `None` on the last page.
    pub next: Option<Text>,
}

impl Page {
    /// The last page of a list.
    #[must_use]
    pub fn last(items: impl IntoIterator<Item = Json>) -> Self {
        Self { items: items.into_iter().collect(), next: None }
    }

    /// Sets the cursor of the next page.
    #[must_use]
    pub fn followed_by(mut self, cursor: impl Into<Text>) -> Self {
        self.next = Some(cursor.into());
        self
    }

    /// Reads the result of a request for a list. `op` is the kind of the request.
    ///
    /// # Errors
    /// A description of the first fault of the result.
    pub fn read(op: Op, result: &Json) -> Result<Self, Text> {
        let name = list_of(op).ok_or_else(|| Text::from_static("the request was not for a list"))?;
        let list = result.member(name).ok_or_else(|| alloc::format!("`{name}` is missing"))?;
        if !list.is_array() {
            return Err(alloc::format!("`{name}` is no array").into());
        }
        // An empty string is a cursor, too.
        let next = result.member("nextCursor").and_then(|next| next.as_text());
        Ok(Self { items: list.elements().collect(), next })
    }
}

/// The name of the member of a result that contains the list; `None` if `op` does not request a list.
pub(crate) const fn list_of(op: Op) -> Option<&'static str> {
    Some(match op {
        Op::ListTools => "tools",
        Op::ListPrompts => "prompts",
        Op::ListResources => "resources",
        Op::ListResourceTemplates => "resourceTemplates",
        _ => return None,
    })
}

fn text(entry: &Json, name: &str) -> Option<Text> {
    entry.member(name).and_then(|value| value.as_text())
}

fn object(entry: &Json, name: &str) -> Option<Json> {
    entry.member(name).filter(Json::is_object)
}

macro_rules! entries {
    ($($(#[$doc:meta])* $name:ident by $key:ident $wire:literal { $($(#[$member:meta])* $field:ident: $type:ty = $read:expr;)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct $name {
            /// The name or URI that identifies the entry.
            pub $key: Text,
            $($(#[$member])* pub $field: $type,)*
            json: Json,
        }

        impl $name {
            /// Reads an entry of a list; `None` if the name or URI that identifies the entry is missing. Members of a wrong type count as
            /// missing.
            #[must_use]
            pub fn read(json: Json) -> Option<Self> {
                let entry = &json;
                Some(Self { $key: text(entry, $wire)?, $($field: $read(entry),)* json })
            }

            /// The entry exactly as the peer describes it, unknown members included.
            #[must_use]
            pub fn json(&self) -> &Json {
                &self.json
            }
        }
    )*};
}

entries! {
    /// A tool, as its server describes it.
    ToolInfo by name "name" {
        /// The title, for people.
        title: Option<Text> = |entry| text(entry, "title");
        /// The purpose, for the model.
        description: Option<Text> = |entry| text(entry, "description");
        /// The JSON Schema of the arguments; `{}` if there is none.
        input_schema: Json = |entry| object(entry, "inputSchema").unwrap_or_else(Json::empty_object);
        /// The JSON Schema of the structured content.
        output_schema: Option<Json> = |entry| object(entry, "outputSchema");
        /// Hints about the effects of the tool. Trust them only if you trust the server.
        annotations: Option<Json> = |entry| object(entry, "annotations");
    }

    /// A prompt, as its server describes it.
    PromptInfo by name "name" {
        /// The title, for people.
        title: Option<Text> = |entry| text(entry, "title");
        /// The purpose.
        description: Option<Text> = |entry| text(entry, "description");
        /// The arguments of the prompt.
        arguments: Vec<PromptArgument> = prompt_arguments;
    }

    /// A resource, as its server describes it.
    ResourceInfo by uri "uri" {
        /// The name, for programs.
        name: Option<Text> = |entry| text(entry, "name");
        /// The title, for people.
        title: Option<Text> = |entry| text(entry, "title");
        /// The purpose.
        description: Option<Text> = |entry| text(entry, "description");
        /// The MIME type of the contents.
        mime_type: Option<Text> = |entry| text(entry, "mimeType");
        /// The size of the contents, in bytes.
        size: Option<u64> = |entry: &Json| entry.member("size").and_then(|size| read::integer(size.as_bytes()));
        /// Hints about the audience and the importance of the resource.
        annotations: Option<Json> = |entry| object(entry, "annotations");
    }

    /// A resource template, as its server describes it.
    ResourceTemplateInfo by uri_template "uriTemplate" {
        /// The name, for programs.
        name: Option<Text> = |entry| text(entry, "name");
        /// The title, for people.
        title: Option<Text> = |entry| text(entry, "title");
        /// The purpose.
        description: Option<Text> = |entry| text(entry, "description");
        /// The MIME type of the contents of all resources of the template.
        mime_type: Option<Text> = |entry| text(entry, "mimeType");
        /// Hints about the audience and the importance of the resources of the template.
        annotations: Option<Json> = |entry| object(entry, "annotations");
    }
}

/// An argument of a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PromptArgument {
    /// The name.
    pub name: Text,
    /// The title, for people.
    pub title: Option<Text>,
    /// The purpose.
    pub description: Option<Text>,
    /// `true` if the argument must be given.
    pub required: bool,
}

fn prompt_arguments(entry: &Json) -> Vec<PromptArgument> {
    let argument = |argument: Json| {
        let required = argument.member("required").is_some_and(|required| required.as_str() == "true");
        let (title, description) = (text(&argument, "title"), text(&argument, "description"));
        Some(PromptArgument { name: text(&argument, "name")?, title, description, required })
    };
    entry.member("arguments").map(|all| all.elements().filter_map(argument).collect()).unwrap_or_default()
}

/// The result of a tool, as its caller gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ToolResult {
    /// The content for the model, in order. A block of text is [`Content::Text`], unless it has members other than `type` and `text`.
    ///
    /// [`Content::Text`]: super::Content::Text
    pub content: super::Blocks,
    /// The structured content, for programs.
    pub structured: Option<Json>,
    /// `true` if the tool failed; the content then describes the error.
    pub is_error: bool,
    json: Json,
}

impl ToolResult {
    /// Reads the result of [`Op::CallTool`]; `None` if it is malformed. The output of a Tesseron action becomes the structured content, and
    /// is repeated as one block of text.
    #[must_use]
    pub fn read(json: &Json) -> Option<Self> {
        let (mut content, mut structured, mut output, mut is_error) = (None, None, None, false);
        // The result may be long, so one walk finds all members and all blocks.
        let mut walk = Walk::new(json.as_bytes());
        if walk.kind() != Kind::Object {
            return None;
        }
        walk.enter();
        while let Some(key) = walk.next_key() {
            if key.is("content") && walk.kind() == Kind::Array {
                walk.enter();
                let next_block = || if walk.next_element() { read_block(json, &mut walk) } else { None };
                content = Some(core::iter::from_fn(next_block).collect());
                continue;
            }
            let value = walk.value()?;
            match () {
                () if key.is("content") => content = None,
                () if key.is("structuredContent") => structured = Some(value).filter(|value| Kind::of(value) == Kind::Object),
                () if key.is("isError") => is_error = value == b"true",
                () if key.is("output") => output = Some(value),
                () => {}
            }
        }
        if let Some(content) = content {
            return Some(Self { content, structured: structured.map(|value| json.part(value)), is_error, json: json.clone() });
        }
        let output = json.part(output?);
        let text = super::Content::Text(output.as_text().unwrap_or_else(|| output.clone().into_text()));
        Some(Self { content: text.into(), structured: Some(output), is_error: false, json: json.clone() })
    }

    /// The text of all blocks of text, joined by line feeds. The text of a single block refers to the frame that it arrived in, or is a
    /// copy if it has escapes, or is less than an eighth of a result of more than 4 KiB. To keep a text for long, copy it with `to_string`,
    /// so that the frame can be freed.
    #[must_use]
    pub fn text(&self) -> Text {
        let mut texts = self.content.iter().filter_map(|block| match block {
            super::Content::Text(text) => Some(Text::clone(text)),
            super::Content::Raw(block) => (text(block, "type")? == "text").then(|| text(block, "text"))?,
        });
        let Some(first) = texts.next() else { return Text::default() };
        let Some(second) = texts.next() else { return self.json.copy_if_small(first) };
        let mut all = alloc::string::String::from(&*first);
        for text in core::iter::once(second).chain(texts) {
            all.push('\n');
            all.push_str(&text);
        }
        all.into()
    }

    /// The result exactly as it arrived.
    #[must_use]
    pub fn json(&self) -> &Json {
        &self.json
    }
}

/// Reads the block at the position of `walk`, which is a walk through `result`, and moves `walk` to the end of the block.
fn read_block(result: &Json, walk: &mut Walk<'_>) -> Option<super::Content> {
    let start = *walk;
    let (mut is_text, mut text, mut more) = (false, None, false);
    if walk.kind() == Kind::Object {
        walk.enter();
        while let Some(key) = walk.next_key() {
            let value = walk.value()?;
            match () {
                () if key.is("type") => is_text = value == br#""text""#,
                () if key.is("text") && Kind::of(value) == Kind::String => text = Some(value),
                () => more = true,
            }
        }
    } else {
        walk.value()?;
    }
    let text = text.filter(|_| is_text && !more).and_then(|text| result.text_of(text));
    Some(text.map_or_else(|| super::Content::Raw(result.part(walk.since(start))), super::Content::Text))
}

#[cfg(test)]
mod tests {
    use alloc::string::String;

    use super::*;

    fn json(text: &'static str) -> Json {
        Json::parse(text).unwrap()
    }

    #[test]
    fn entries_are_read_with_unknown_and_invalid_members() {
        let entry = r#"{"name":"t","title":"T","description":7,"inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true},"x":[1]}"#;
        let tool = ToolInfo::read(json(entry)).unwrap();
        assert_eq!((&*tool.name, tool.title.as_deref(), tool.description.as_deref()), ("t", Some("T"), None));
        assert_eq!((tool.input_schema.as_str(), tool.output_schema.as_ref()), (r#"{"type":"object"}"#, None));
        assert_eq!((tool.annotations.unwrap().as_str(), tool.json.as_str()), (r#"{"readOnlyHint":true}"#, entry));
        for nameless in ["{}", "[]", "null", r#"{"name":1}"#] {
            assert_eq!(ToolInfo::read(json(nameless)), None);
        }
        let prompt = PromptInfo::read(json(r#"{"name":"p","arguments":[{"name":"a","required":true},{},{"name":"b"}]}"#)).unwrap();
        let arguments: Vec<_> = prompt.arguments.iter().map(|one| (&*one.name, one.required)).collect();
        assert_eq!(arguments, [("a", true), ("b", false)]);
        let resource = ResourceInfo::read(json(r#"{"uri":"u:x","name":"x","mimeType":"text/plain","size":12}"#)).unwrap();
        assert_eq!((&*resource.uri, resource.mime_type.as_deref(), resource.size), ("u:x", Some("text/plain"), Some(12)));
        let template = ResourceTemplateInfo::read(json(r#"{"uriTemplate":"u:{x}","name":"x"}"#)).unwrap();
        assert_eq!((&*template.uri_template, template.name.as_deref()), ("u:{x}", Some("x")));
    }

    #[test]
    fn a_page_has_its_list_and_the_cursor_of_the_next_page() {
        let page = Page::read(Op::ListTools, &json(r#"{"tools":[{"name":"a"},1],"nextCursor":""}"#)).unwrap();
        assert_eq!((page.items.len(), page.next.as_deref()), (2, Some("")));
        let page = Page::read(Op::ListPrompts, &json(r#"{"prompts":[],"nextCursor":null}"#)).unwrap();
        assert_eq!((page.items.len(), page.next), (0, None));
        assert_eq!(Page::read(Op::ListTools, &json("{}")).unwrap_err().as_str(), "`tools` is missing");
        assert_eq!(Page::read(Op::ListTools, &json(r#"{"tools":{}}"#)).unwrap_err().as_str(), "`tools` is no array");
    }

    #[test]
    fn a_text_that_is_a_small_part_of_a_large_result_is_copied() {
        let padding = "x".repeat(10_000);
        let is_slice = |result: String| {
            let json = Json::parse(result).unwrap();
            let text = ToolResult::read(&json).unwrap().text();
            assert_eq!(text.as_str(), "a");
            json.as_bytes().as_ptr_range().contains(&text.as_bytes().as_ptr())
        };
        let extra = r#"{"type":"text","text":"a","annotations":{}}"#;
        assert!(is_slice(alloc::format!(r#"{{"content":[{extra}]}}"#)));
        assert!(!is_slice(alloc::format!(r#"{{"content":[{extra}],"_meta":{{"x":"{padding}"}}}}"#)));
        assert!(!is_slice(alloc::format!(r#"{{"output":"a","pad":"{padding}"}}"#)));
    }

    #[test]
    fn the_blocks_and_the_failure_of_a_tool_are_read_from_its_result() {
        use crate::dialect::Content;
        let image = r#"{"type":"image","data":"","mimeType":"image/png"}"#;
        let extra = r#"{"type":"text","text":"b","annotations":{}}"#;
        let text = alloc::format!(
            r#"{{"content":[{{"type":"text","text":"a\n"}},{image},{extra}],"structuredContent":{{"n":1}},"isError":true,"_meta":{{}}}}"#
        );
        let result = ToolResult::read(&Json::parse(text.clone()).unwrap()).unwrap();
        let raw = |text: &'static str| Content::Raw(json(text));
        assert_eq!(result.content[..], [Content::Text("a\n".into()), raw(image), raw(extra)]);
        assert_eq!((result.structured.as_ref().map(Json::as_str), result.is_error), (Some(r#"{"n":1}"#), true));
        assert_eq!((result.text().as_str(), result.json().as_str()), ("a\n\nb", &*text));
        assert!(!ToolResult::read(&json(r#"{"content":[]}"#)).unwrap().is_error);
        let action = ToolResult::read(&json(r#"{"invocationId":"inv_1","output":{"n":1}}"#)).unwrap();
        assert_eq!((action.text().as_str(), action.is_error), (r#"{"n":1}"#, false));
        for malformed in ["{}", "null", r#"{"content":{}}"#] {
            assert_eq!(ToolResult::read(&json(malformed)), None);
        }
    }
}
