//! The parameters of a request, in which what is asked for first has been found.

use core::fmt;
use core::ops::Deref;

use bytes::Bytes;

use super::Op;
use crate::json::scan::{Noted, Span};
use crate::json::{Json, Payload, read};

/// The parameters of a request of the peer: an object, to be read like the [`Json`] that it is.
///
/// What the request is about was found while its frame was checked, so nobody need look for it again but in parameters that are made
/// from JSON.
#[derive(Clone)]
pub struct Params {
    json: Json,
    /// The value that names what the request is about; nowhere, if neither of the two was looked for.
    target: Span,
    /// The value of the arguments; nowhere, if there are none.
    arguments: Span,
}

impl Params {
    pub(crate) const ARGUMENTS: &str = "arguments";

    /// `target` and `arguments` say where in `json` the two stand, if the first is anywhere; beyond 4 GiB nobody can say.
    pub(crate) fn found(json: Json, target: Span, arguments: Span) -> Self {
        let fits = u32::try_from(json.as_bytes().len()).is_ok();
        Self { json, target: if fits { target } else { Span::default() }, arguments }
    }

    /// What the request, which is one for `op`, is about: the name of a tool or a prompt, or the uri of a resource. `None` if nothing
    /// names it, or something that is no text. `op` must be the operation of the request that these came with.
    #[must_use]
    pub fn target(&self, op: &Op) -> Option<alloc::borrow::Cow<'_, str>> {
        let text = self.json.as_bytes();
        if self.target.is_nowhere() {
            read::string(read::member(text, op.names_by()?)?)
        } else {
            read::string(self.target.cut(text))
        }
    }

    /// The arguments for the tool or the prompt. `None` if there are none; `null` is none.
    #[must_use]
    pub fn arguments(&self) -> Option<Json> {
        let text = self.json.as_bytes();
        let is_some = |value: &&[u8]| *value != b"null";
        let value = if self.target.is_nowhere() {
            let members = read::Members::of(text)?.filter(|(key, _)| key.is(Self::ARGUMENTS));
            members.map(|(_, value)| value).filter(is_some).last()
        } else {
            Some(self.arguments).filter(|place| !place.is_nowhere()).map(|place| place.cut(text)).filter(is_some)
        };
        value.map(|value| self.json.part(value))
    }

    /// [`Self::arguments`] without a second handle of the frame.
    #[must_use]
    pub fn into_arguments(self) -> Option<Json> {
        if self.target.is_nowhere() || self.arguments.is_nowhere() {
            return self.arguments();
        }
        let arguments = self.json.into_part(self.arguments);
        (arguments.as_bytes() != b"null").then_some(arguments)
    }
}

/// Parameters that are still in the frame that brought them.
#[derive(Debug)]
pub(crate) struct Uncut {
    json: Payload,
    target: Span,
    arguments: Span,
}

impl Uncut {
    /// Those of an `op`. `json` must be the text of `noted`.
    pub(crate) fn noted(json: Payload, op: &Op, noted: &Noted<'_>) -> Self {
        let places = op.names_by().and_then(|key| noted.places([key, Params::ARGUMENTS]));
        let [target, arguments] = places.unwrap_or_default();
        Self { json, target, arguments }
    }

    /// `frame` must be the one that brought them.
    pub(crate) fn cut(self, frame: Bytes) -> Params {
        Params::found(self.json.cut(frame), self.target, self.arguments)
    }
}

impl From<Params> for Uncut {
    fn from(params: Params) -> Self {
        Self { json: Payload::Own(params.json), target: params.target, arguments: params.arguments }
    }
}

impl Deref for Params {
    type Target = Json;

    fn deref(&self) -> &Json {
        &self.json
    }
}

impl From<Json> for Params {
    fn from(json: Json) -> Self {
        Self::found(json, Span::default(), Span::default())
    }
}

impl From<Params> for Json {
    fn from(params: Params) -> Self {
        params.json
    }
}

impl PartialEq for Params {
    fn eq(&self, other: &Self) -> bool {
        self.json == other.json
    }
}

impl fmt::Debug for Params {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.json.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::scan::{Cursor, Members};
    use alloc::string::String;

    /// The parameters as a frame brings them.
    fn noted(text: &str, op: &Op) -> Params {
        let frame = alloc::format!(r#"{{"params":{text}}}"#);
        let mut members = Members::at(Cursor::new(frame.as_bytes(), 9)).unwrap();
        members.next_key().unwrap().unwrap();
        let mut noted = Noted::default();
        members.note(&mut noted).unwrap();
        let json = Payload::Own(Json::parse(String::from(text)).unwrap());
        Uncut::noted(json, op, &noted).cut(Bytes::new())
    }

    #[test]
    fn what_a_request_is_about_is_the_same_whether_it_was_noted_or_is_looked_for() {
        let cases = [
            (r#"{"name":"a","arguments":{"x":[1]}}"#, Some("a"), Some(r#"{"x":[1]}"#)),
            (r#"{ "arguments" : [ ] , "_meta":{}, "name" : "\u0061\"" }"#, Some("a\""), Some("[ ]")),
            (r#"{"name":"a","arguments":null}"#, Some("a"), None),
            (r#"{"name":"a"}"#, Some("a"), None),
            (r#"{"name":7,"arguments":7}"#, None, Some("7")),
            (r#"{"name":"\ud800"}"#, None, None),
            (r#"{"uri":"a"}"#, None, None),
            ("{}", None, None),
            (r#"{"name":"a","name":"b","arguments":1,"arguments":2}"#, Some("b"), Some("2")),
            (r#"{"name":"a","arguments":1,"arguments":null}"#, Some("a"), Some("1")),
            (r#"{"n\u0061me":"a","argument\u0073":1}"#, Some("a"), Some("1")),
            (r#"{"a":1,"b":2,"c":3,"d":4,"name":"a","arguments":{}}"#, Some("a"), Some("{}")),
        ];
        for (text, target, arguments) in cases {
            for params in [noted(text, &Op::CallTool), Json::parse(text).unwrap().into()] {
                assert_eq!(params.target(&Op::CallTool).as_deref(), target, "{text}");
                assert_eq!(params.arguments().as_ref().map(Json::as_str), arguments, "{text}");
                assert_eq!(params.as_str(), text);
            }
        }
        let uri = r#"{"uri":"x:y","name":"a"}"#;
        assert_eq!(noted(uri, &Op::ReadResource).target(&Op::ReadResource).as_deref(), Some("x:y"));
        assert_eq!(noted(uri, &Op::ListTools).target(&Op::ListTools), None);
    }
}
