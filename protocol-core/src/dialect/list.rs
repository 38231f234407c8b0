//! Pages of lists, and the types of their entries.

use alloc::vec::Vec;

use super::{Icon, Op};
use crate::json::read::{self, Kind, Walk};
use crate::json::{Json, Text};
use crate::wire;

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
        let excerpt = || wire::excerpt(result.as_bytes(), 0);
        let list = result.member(name).ok_or_else(|| alloc::format!("`{name}` is missing: {}", excerpt()))?;
        // Some serializers write an empty list as `null`.
        if !list.is_array() && list.as_str() != "null" {
            return Err(alloc::format!("`{name}` is no array: {}", excerpt()).into());
        }
        // An empty string is a cursor, too.
        let next = result.member("nextCursor").and_then(|next| next.as_text_lossy());
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
    entry.member(name).and_then(|value| value.as_text_lossy())
}

fn object(entry: &Json, name: &str) -> Option<Json> {
    entry.member(name).filter(Json::is_object)
}

fn icons(entry: &Json) -> Vec<Icon> {
    Icon::read_all(entry.as_bytes())
}

/// The members of an entry that [`text`] and [`object`] do not read as they are.
fn faults(entry: &Json) -> Vec<&'static str> {
    const TEXTS: [&str; 6] = ["name", "uri", "uriTemplate", "title", "description", "mimeType"];
    const OBJECTS: [&str; 3] = ["inputSchema", "outputSchema", "annotations"];
    let is_faulty = |name: &&str, is_proper: fn(&Json) -> bool| entry.given(name).is_some_and(|value| !is_proper(&value));
    let texts = TEXTS.into_iter().filter(|name| is_faulty(name, |value| read::is_unicode(value.as_bytes())));
    texts.chain(OBJECTS.into_iter().filter(|name| is_faulty(name, Json::is_object))).collect()
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
            /// missing, and an unpaired surrogate is read as U+FFFD: see [`faults`](Self::faults).
            #[must_use]
            pub fn read(json: Json) -> Option<Self> {
                let entry = &json;
                Some(Self { $key: text(entry, $wire)?, $($field: $read(entry),)* json })
            }

            /// The members that were not read as they are: those of a wrong type, and those with an unpaired surrogate.
            #[must_use]
            pub fn faults(&self) -> Vec<&'static str> {
                faults(&self.json)
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
        /// The icons.
        icons: Vec<Icon> = icons;
    }

    /// A prompt, as its server describes it.
    PromptInfo by name "name" {
        /// The title, for people.
        title: Option<Text> = |entry| text(entry, "title");
        /// The purpose.
        description: Option<Text> = |entry| text(entry, "description");
        /// The arguments of the prompt.
        arguments: Vec<PromptArgument> = prompt_arguments;
        /// The icons.
        icons: Vec<Icon> = icons;
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
        /// The icons.
        icons: Vec<Icon> = icons;
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
        /// The icons.
        icons: Vec<Icon> = icons;
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

/// The fault of text that [`Json::mended`] mends.
const SURROGATES: &str = "text with half of a surrogate pair";

/// The result of a request for a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PromptResult {
    /// The purpose of the prompt.
    pub description: Option<Text>,
    /// The messages for the model.
    pub messages: Vec<PromptResultMessage>,
    json: Json,
}

/// A message of a prompt, as its caller gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PromptResultMessage {
    /// The role, usually `user` or `assistant`; empty if there is none.
    pub role: Text,
    /// The content: usually one block.
    pub content: super::Blocks,
}

impl PromptResult {
    /// Reads the result of [`Op::GetPrompt`]; `None` if it has no list of messages. A part that is not as it should be hides no other part
    /// ([`faults`](Self::faults)). An unpaired surrogate is read as U+FFFD.
    #[must_use]
    pub fn read(json: &Json) -> Option<Self> {
        let messages = json.member("messages").filter(|messages| messages.is_array() || messages.as_str() == "null")?;
        let message = |message: Json| {
            let content = message.given("content");
            let blocks = |content: Json| {
                let is_list = content.is_array();
                let one = (!is_list).then(|| content.clone());
                let many = content.elements().collect::<Vec<_>>();
                one.into_iter().chain(many).filter_map(|block| read_block(&block, &mut Walk::new(block.as_bytes()))).collect()
            };
            PromptResultMessage {
                role: text(&message, "role").unwrap_or_default(),
                content: content.map(blocks).unwrap_or_default(),
            }
        };
        let messages = messages.elements().map(message).collect();
        Some(Self { description: text(json, "description"), messages, json: json.clone() })
    }

    /// The parts that were not read as they are, in words.
    #[must_use]
    pub fn faults(&self) -> Vec<&'static str> {
        let messages = || self.json.member("messages").into_iter().flat_map(|messages| messages.elements().collect::<Vec<_>>());
        let is_text = |value: Json| Kind::of(value.as_bytes()) == Kind::String;
        [
            (!messages().all(|message| message.member("role").is_some_and(is_text)), "a message without a role"),
            (
                !messages().all(|message| message.member("content").is_some_and(|content| content.is_object())),
                "content that is no block",
            ),
            (!self.json.given("description").is_none_or(is_text), "a description that is no text"),
            (self.json.mended().is_some(), SURROGATES),
        ]
        .into_iter()
        .filter_map(|(is_faulty, fault)| is_faulty.then_some(fault))
        .collect()
    }

    /// The result exactly as it arrived.
    #[must_use]
    pub fn json(&self) -> &Json {
        &self.json
    }
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
    /// Reads the result of [`Op::CallTool`]; `None` if it has none of the members of such a result. The output of a Tesseron action becomes
    /// the structured content, and is repeated as one block of text.
    ///
    /// A part that is not as it should be hides no other part ([`faults`](Self::faults)): content that is no list is one block, and
    /// `isError` says that the tool failed unless its value means false. An unpaired surrogate is read as U+FFFD.
    #[must_use]
    pub fn read(json: &Json) -> Option<Self> {
        let (mut content, mut structured, mut output, mut is_error) = (None::<super::Blocks>, None, None, None);
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
            if key.is("content") && walk.kind() != Kind::Null {
                content = read_block(json, &mut walk).map(super::Blocks::from);
                continue;
            }
            let value = walk.value()?;
            match () {
                // Some serializers write an empty list as `null`.
                () if key.is("content") => content = Some(super::Blocks::default()),
                () if key.is("structuredContent") => structured = Some(value).filter(|value| *value != b"null"),
                () if key.is("isError") => is_error = Some(value).filter(|value| *value != b"null"),
                () if key.is("output") => output = Some(value),
                () => {}
            }
        }
        let is_error = is_error.map(|value| !matches!(value, b"false" | b"0" | br#""""# | br#""false""#));
        if content.is_some() || structured.is_some() || is_error.is_some() {
            let structured = structured.filter(|value| Kind::of(value) == Kind::Object).map(|value| json.part(value));
            return Some(Self {
                content: content.unwrap_or_default(),
                structured,
                is_error: is_error.unwrap_or_default(),
                json: json.clone(),
            });
        }
        let output = json.part(output?);
        let text = super::Content::Text(output.as_text_lossy().unwrap_or_else(|| output.clone().into_text()));
        Some(Self { content: text.into(), structured: Some(output), is_error: false, json: json.clone() })
    }

    /// The parts that were not read as they are, in words.
    #[must_use]
    pub fn faults(&self) -> Vec<&'static str> {
        let content = self.json.given("content");
        let is_array = content.as_ref().is_none_or(Json::is_array);
        let blocks = content.iter().flat_map(Json::elements);
        let is_untyped = |block: Json| block.member("type").and_then(|kind| kind.as_text()).is_none();
        let is_error = self.json.given("isError").is_some_and(|value| Kind::of(value.as_bytes()) != Kind::Bool);
        [
            (content.is_none() && self.json.member("output").is_none(), "no `content`"),
            (!is_array, "`content` that is no list"),
            (is_array && blocks.into_iter().any(is_untyped), "a block of content without a type"),
            (is_error, "`isError` that is no boolean"),
            (self.json.mended().is_some(), SURROGATES),
        ]
        .into_iter()
        .filter_map(|(is_faulty, fault)| is_faulty.then_some(fault))
        .collect()
    }

    /// The text of all blocks of text, joined by line feeds. The text of a single block refers to the frame that it arrived in, or is a
    /// copy if it has escapes, or is less than an eighth of a result of more than 4 KiB. To keep a text for long, copy it with `to_string`,
    /// so that the frame can be freed.
    #[must_use]
    pub fn text(&self) -> Text {
        let mut texts = self.content.iter().filter_map(super::Content::as_text);
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
    let text = text.filter(|_| is_text && !more).and_then(|text| result.lossy_text_of(text));
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
        assert_eq!((tool.annotations.as_ref().unwrap().as_str(), tool.json.as_str()), (r#"{"readOnlyHint":true}"#, entry));
        assert_eq!(tool.faults(), ["description"]);
        // Seen in the field: a description that was cut within a character.
        let cut = ToolInfo::read(json(r#"{"name":"a","description":"cut \ud83d","title":null,"inputSchema":{}}"#)).unwrap();
        assert_eq!((cut.description.as_deref(), cut.faults()), (Some("cut \u{fffd}"), alloc::vec!["description"]));
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
        assert_eq!(Page::read(Op::ListTools, &json(r#"{"tools":null}"#)), Ok(Page::default()), "an empty list of some serializers");
        assert_eq!(Page::read(Op::ListTools, &json("{}")).unwrap_err().as_str(), "`tools` is missing: {}");
        assert_eq!(
            Page::read(Op::ListTools, &json(r#"{"tools":{}}"#)).unwrap_err().as_str(),
            r#"`tools` is no array: {"tools":{}}"#
        );
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
        for malformed in ["{}", "null", "[]", r#"{"task":{}}"#] {
            assert_eq!(ToolResult::read(&json(malformed)), None);
        }
    }

    /// Seen in the field: text that was cut within a character, results of tools without a list of content, and servers that write an empty
    /// list as `null`.
    #[test]
    fn one_part_of_a_result_that_is_not_as_it_should_be_hides_no_other_part() {
        for (result, text, is_error, faults) in [
            (
                r#"{"content":[{"type":"text","text":"failed: cut \ud83d"}],"isError":true}"#,
                "failed: cut \u{fffd}",
                true,
                &[SURROGATES][..],
            ),
            (r#"{"content":[7,{"type":"text","text":"a"},{"text":"b"}]}"#, "a", false, &["a block of content without a type"]),
            (r#"{"content":"plain","isError":null}"#, "plain", false, &["`content` that is no list"]),
            (r#"{"content":{"type":"text","text":"one"}}"#, "one", false, &["`content` that is no list"]),
            (r#"{"content":null,"isError":true}"#, "", true, &["no `content`"]),
            (r#"{"isError":"true"}"#, "", true, &["no `content`", "`isError` that is no boolean"]),
            (r#"{"structuredContent":{"n":1},"content":[],"isError":0}"#, "", false, &["`isError` that is no boolean"]),
            (r#"{"content":[{"type":"text","text":"a","_meta":null}],"structuredContent":null}"#, "a", false, &[]),
        ] {
            let read = ToolResult::read(&json(result)).unwrap();
            assert_eq!((read.text().as_str(), read.is_error, &*read.faults()), (text, is_error, faults), "{result}");
            assert_eq!(read.json().as_str(), result, "verbatim");
        }
    }

    #[test]
    fn one_message_of_a_prompt_that_is_not_as_it_should_be_hides_no_other() {
        let text = r#"{"description":7,"messages":[{"role":"user","content":{"type":"text","text":"a"}},{"content":"b"},1]}"#;
        let read = PromptResult::read(&json(text)).unwrap();
        let shown: Vec<_> = read.messages.iter().map(|message| (&*message.role, message.content.len())).collect();
        assert_eq!((shown, read.description.clone()), (alloc::vec![("user", 1), ("", 1), ("", 0)], None));
        assert_eq!(read.faults(), ["a message without a role", "content that is no block", "a description that is no text"]);
        assert_eq!(PromptResult::read(&json(r#"{"messages":{}}"#)), None);
        assert!(PromptResult::read(&json(r#"{"messages":[]}"#)).unwrap().faults().is_empty());
    }
}
