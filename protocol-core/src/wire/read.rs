//! Reading frames into envelopes (JSON-RPC 2.0 sections 4 to 6).

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::vec::Vec;

use bytes::Bytes;

use super::recover::{Recovered, recover};
use super::{Tolerated, WireId};
use crate::error::{RpcError, Violation};
use crate::json::cursor::Cursor;
use crate::json::cursor::{IndexedObject, Members};
use crate::json::read::{Kind, integer, is_unicode, number, string, string_bytes};
use crate::json::scan::{ScanError, is_text};
use crate::json::{Frame, Text, read};

/// The limits of a reader, and the rules in which protocols differ.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    /// The maximum nesting of a frame.
    pub(crate) depth: u8,
    /// The maximum length of an id, in bytes.
    pub(crate) id: usize,
    /// The maximum number of messages in a batch; `None` if the revision has no batches.
    pub(crate) batch: Option<usize>,
    /// `true` for Tesseron: a request may have the id `null`, a response with neither a result nor an error has the result `null`, and of a
    /// response with both only the error counts. Less lenient in one point: a message without `"jsonrpc":"2.0"` is a violation without a
    /// reply, even if it is a request.
    pub(crate) lenient: bool,
}

/// A message of a frame, or the violation if the text is not a message.
pub(crate) type Element<'a> = Result<Envelope<'a>, Malformed>;

/// One message. A method is bytes that passed the UTF-8 check of the frame: a `str` would need a second check.
#[derive(Debug)]
pub(crate) enum Envelope<'a> {
    Request {
        id: WireId,
        method: &'a [u8],
        params: Option<&'a IndexedObject<'a>>,
    },
    Notification {
        method: &'a [u8],
        params: Option<&'a IndexedObject<'a>>,
    },
    Response {
        id: WireId,
        body: Body<'a>,
    },
    /// A response whose id is neither text nor an integer. `number` is the id if that is a whole number in another form, such as `7.0`.
    /// `why` is the fault of the id, for people.
    Misaddressed {
        number: Option<u64>,
        why: &'static str,
    },
}

/// The body of a response.
#[derive(Debug)]
pub(crate) enum Body<'a> {
    Result(&'a [u8]),
    Error(RpcError),
    /// Neither a result nor an error. Only with [`Options::lenient`], where this is the result `null`.
    Missing,
    /// Both a result and an error (unless [`Options::lenient`]), an error that is `null`, or a response without `"jsonrpc":"2.0"`. Contains
    /// the reason.
    Malformed(&'static str),
}

/// The violation of text that is not a valid message.
#[derive(Debug)]
pub(crate) struct Malformed {
    pub(crate) violation: Violation,
    /// The error to reply with, and the id of the request if it could be read. `None` for a response, for a notification and, with
    /// [`Options::lenient`], for a message without `"jsonrpc":"2.0"`. The dialect may still decide not to reply.
    pub(crate) answer: Option<(Option<WireId>, RpcError)>,
    /// The description of the frame. `None` for a message in a batch.
    pub(crate) recovered: Option<Box<Recovered>>,
}

impl Malformed {
    fn silent(violation: Violation) -> Self {
        Self { violation, answer: None, recovered: None }
    }

    fn answered(violation: Violation, id: Option<WireId>, code: i64) -> Self {
        Self { violation, answer: Some((id, RpcError::fixed(code, violation.as_str()))), recovered: None }
    }

    fn invalid(id: Option<WireId>) -> Self {
        Self::answered(Violation::InvalidEnvelope, id, RpcError::INVALID_REQUEST)
    }
}

impl From<ScanError> for Malformed {
    fn from(error: ScanError) -> Self {
        let violation = match error {
            ScanError::Syntax => Violation::NotJson,
            ScanError::TooDeep => Violation::TooDeep,
        };
        Self::answered(violation, None, RpcError::PARSE)
    }
}

/// Reads a frame. If it is one message, calls `each` with the message and returns the result. If it is a batch, calls `each` with every
/// message, then `all` with the results, and returns the result of `all`. If it is neither, or the batch is refused, calls `each` with the
/// violation and returns the result; if the batch is too long, the results for its first messages are dropped. `each` and `all` are
/// closures, so that a result is built in place and not moved.
/// `tolerated` counts what is read although it breaks a rule.
pub(crate) fn read<T>(
    frame: &Bytes,
    options: Options,
    tolerated: &Tolerated,
    mut each: impl FnMut(Element<'_>) -> T,
    all: impl FnOnce(Vec<T>) -> T,
) -> T {
    let mut found = Found::default();
    let mut cursor = Cursor::new(frame, options.depth);
    let element = match cursor.peek() {
        _ if !is_text(frame) => Err(ScanError::Syntax.into()),
        Some(b'{') => found.read_to_end(cursor, tolerated).and_then(|()| found.envelope(Frame::new(frame), options, tolerated)),
        Some(b'[') => match batch(cursor, Frame::new(frame), options, tolerated, &mut each) {
            Ok(messages) => return all(messages),
            Err(malformed) => Err(malformed),
        },
        _ => Err(cursor.whole().map_or_else(Malformed::from, |_| Malformed::invalid(None))),
    };
    each(element.map_err(|malformed| {
        let recovered = Some(recover(frame, malformed.violation, options.depth));
        Malformed { recovered, ..malformed }
    }))
}

fn batch<T>(
    mut cursor: Cursor<'_>,
    frame: Frame<'_>,
    options: Options,
    tolerated: &Tolerated,
    each: &mut impl FnMut(Element<'_>) -> T,
) -> Result<Vec<T>, Malformed> {
    // The whole text is checked first: a truncated batch is not JSON, and none of its messages is handled.
    cursor.whole()?;
    let refused = |rule| Malformed::answered(rule, None, RpcError::INVALID_REQUEST);
    let max = options.batch.ok_or_else(|| refused(Violation::BatchUnsupported))?;
    let mut all = Vec::new();
    cursor.take(b'[');
    while cursor.peek() != Some(b']') {
        if all.len() >= max {
            return Err(refused(Violation::BatchTooLong));
        }
        if cursor.peek() == Some(b'{') {
            let mut found = Found::default();
            cursor = found.read(cursor, tolerated)?;
            all.push(each(found.envelope(frame, options, tolerated)));
        } else {
            cursor.value()?;
            all.push(each(Err(Malformed::invalid(None))));
        }
        cursor.take(b',');
    }
    if all.is_empty() { Err(refused(Violation::EmptyBatch)) } else { Ok(all) }
}

/// The text that nearly every message begins with.
const USUAL_START: &str = r#"{"jsonrpc":"2.0""#;
/// The fault of a response whose id this end has given to no request.
pub(crate) const UNKNOWN_ID: &str = "no request has this id";
/// The value of the member `jsonrpc` in its usual spelling.
const VERSION_2: &[u8] = br#""2.0""#;

/// The members of one message that were found in its text, before they are checked.
#[derive(Default)]
struct Found<'a> {
    jsonrpc: Option<&'a [u8]>,
    id: Option<&'a [u8]>,
    /// The method. The inner option is `None` if the method is not a JSON string, or has an invalid escape.
    method: Option<Option<Cow<'a, [u8]>>>,
    /// `true` if the method is `null`.
    has_null_method: bool,
    params: Option<IndexedObject<'a>>,
    result: Option<&'a [u8]>,
    error: Option<&'a [u8]>,
    repeated: bool,
}

impl<'a> Found<'a> {
    /// Finds the members of the object at `cursor`, after which only white space may follow.
    fn read_to_end(&mut self, cursor: Cursor<'a>, tolerated: &Tolerated) -> Result<(), Malformed> {
        Ok(self.read(cursor, tolerated)?.end()?)
    }

    /// Finds the members of the object at `cursor`, and returns the cursor after it.
    fn read(&mut self, cursor: Cursor<'a>, tolerated: &Tolerated) -> Result<Cursor<'a>, Malformed> {
        let mut members = match Members::starting_with(cursor, USUAL_START) {
            Some(mut members) => {
                self.jsonrpc = Some(VERSION_2);
                // Nearly every message continues with these members. Members in another order are read one by one below.
                if members.take_exact(r#","id":"#) {
                    self.id = Some(members.value()?);
                }
                if members.take_exact(r#","result":"#) {
                    self.result = Some(members.value()?);
                } else if members.take_exact(r#","method":"#) {
                    self.method = Some(match members.take_unescaped() {
                        Some(plain) => Some(Cow::Borrowed(plain)),
                        None => {
                            let method = members.value()?;
                            self.has_null_method = method == b"null";
                            string_bytes(method)
                        }
                    });
                    if members.take_exact(r#","params":"#) {
                        members.index(self.params.insert(IndexedObject::default()))?;
                    }
                }
                members
            }
            None => Members::at(cursor).ok_or_else(|| Malformed::invalid(None))?,
        };
        while let Some(key) = members.next_key()? {
            let slot = match &*key.name() {
                "jsonrpc" => &mut self.jsonrpc,
                "id" => &mut self.id,
                "method" => {
                    let method = members.value()?;
                    self.has_null_method = method == b"null";
                    self.repeated |= self.method.replace(string_bytes(method)).is_some();
                    continue;
                }
                "params" => {
                    self.repeated |= self.params.is_some();
                    members.index(self.params.insert(IndexedObject::default()))?;
                    continue;
                }
                "result" => &mut self.result,
                "error" => &mut self.error,
                _ => {
                    members.value()?;
                    continue;
                }
            };
            self.repeated |= slot.replace(members.value()?).is_some();
        }
        if !self.repeated {
            self.drop_nulls(tolerated);
        }
        Ok(members.rest())
    }

    /// Treats members whose value is `null` as absent, as serializers that write every member mean it: each member but the version, the id
    /// and the result of a response, which may be `null` on Tesseron. Beside an error, a result that is `null` is absent, too.
    fn drop_nulls(&mut self, tolerated: &Tolerated) {
        let is_null = |value: Option<&[u8]>| value == Some(b"null");
        if self.params.as_ref().is_some_and(|params| params.text() == b"null") {
            self.params = None;
            tolerated.count();
        }
        // A message that has nothing but a method of `null` is no response.
        if self.has_null_method && (self.result.is_some() || self.error.is_some()) {
            self.method = None;
            tolerated.count();
        }
        // An error that is `null` stays if there is nothing else: it is then the fault of the message.
        if is_null(self.error) && (self.method.is_some() || self.result.is_some()) {
            self.error = None;
            tolerated.count();
        }
        if is_null(self.result) && (self.method.is_some() || self.error.is_some()) {
            self.result = None;
            tolerated.count();
        }
    }

    /// Checks the members that were found.
    fn envelope(&'a self, frame: Frame<'a>, options: Options, tolerated: &Tolerated) -> Element<'a> {
        let mut id = self.id.and_then(|id| WireId::read(id, options.id));
        let mut result = self.result;
        let is_version_2 = self.jsonrpc.is_some_and(|value| value == VERSION_2 || string(value).as_deref() == Some("2.0"));
        if self.repeated {
            // The repeated member may be the id, so the reply has no id.
            let is_request = self.method.is_some() && self.id.is_some();
            let answer = is_request.then(|| (None, RpcError::fixed(RpcError::INVALID_REQUEST, Violation::RepeatedMember.as_str())));
            return Err(Malformed { violation: Violation::RepeatedMember, answer, recovered: None });
        }
        if options.lenient {
            if !is_version_2 {
                return Err(Malformed::silent(Violation::InvalidEnvelope));
            }
            match &self.method {
                Some(_) if self.id == Some(b"null") => id = Some(WireId::Null),
                None if self.error.is_some() => result = None,
                None if result.is_none() => {
                    let silent = || Malformed::silent(Violation::InvalidEnvelope);
                    return id.map(|id| Envelope::Response { id, body: Body::Missing }).ok_or_else(silent);
                }
                _ => {}
            }
        }
        match &self.method {
            Some(method) => self.request_or_notification(method.as_deref(), id, is_version_2),
            None if result.is_some() || self.error.is_some() => self.response(id, result, is_version_2, frame, tolerated),
            None => Err(Malformed::invalid(id)),
        }
    }

    /// Checks a message that has a method.
    fn request_or_notification(&'a self, method: Option<&'a [u8]>, id: Option<WireId>, is_version_2: bool) -> Element<'a> {
        let is_response_too = self.result.is_some() || self.error.is_some();
        let (Some(method), true, false) = (method, is_version_2, is_response_too) else {
            let is_notification = self.id.is_none();
            return Err(if is_notification { Malformed::silent(Violation::InvalidEnvelope) } else { Malformed::invalid(id) });
        };
        let params = self.params.as_ref();
        let is_valid = params.is_none_or(|params| Kind::of(params.text()) == Kind::Object);
        match (self.id, id) {
            (None, _) if is_valid => Ok(Envelope::Notification { method, params }),
            (None, _) => Err(Malformed::silent(Violation::InvalidParams)),
            (Some(_), Some(id)) if is_valid => Ok(Envelope::Request { id, method, params }),
            (Some(_), Some(id)) => Err(Malformed::answered(Violation::InvalidParams, Some(id), RpcError::INVALID_PARAMS)),
            // The id is not valid (`null`, a fraction, an object and so on) and cannot be copied into a reply, so the error is sent without
            // one.
            (Some(_), None) => Err(Malformed::invalid(None)),
        }
    }

    /// Checks a message that has no method, but a result or an error.
    fn response(
        &self,
        id: Option<WireId>,
        result: Option<&'a [u8]>,
        is_version_2: bool,
        frame: Frame<'_>,
        tolerated: &Tolerated,
    ) -> Element<'a> {
        let Some(id) = id else { return self.misaddressed(is_version_2) };
        let body = match (result, self.error) {
            (Some(result), None) if is_version_2 => Body::Result(result),
            (None, Some(error)) if is_version_2 && error != b"null" => Body::Error(error_object(error, frame, tolerated)),
            (Some(_), Some(_)) => Body::Malformed("it has a result and an error"),
            _ if is_version_2 => Body::Malformed("`error` is null"),
            _ => Body::Malformed(r#"`jsonrpc` is not "2.0""#),
        };
        Ok(Envelope::Response { id, body })
    }

    /// Checks a response without a valid id.
    #[cold]
    #[inline(never)]
    fn misaddressed(&self, is_version_2: bool) -> Element<'a> {
        let (number, why) = match self.id {
            None | Some(b"null") if self.error.is_some() => return Err(Malformed::silent(Violation::ErrorWithoutId)),
            // A log record may have a result, too.
            None if !is_version_2 => return Err(Malformed::silent(Violation::InvalidEnvelope)),
            None => (None, "it has no id"),
            Some(b"null") => (None, "its id is null"),
            Some(id) => match whole_number(id).and_then(|number| u64::try_from(number).ok()) {
                Some(number) => (Some(number), "its id is not written as a whole number"),
                None => (None, UNKNOWN_ID),
            },
        };
        Ok(Envelope::Misaddressed { number, why })
    }
}

/// A whole number, also if it is written with a fraction of zero or with an exponent.
fn whole_number(value: &[u8]) -> Option<i64> {
    // A number below 9e15 fits into an `i64`, and is whole if the conversion to `i64` and back does not change it.
    let is_whole = |number: &f64| number.abs() < 9e15 && *number as i64 as f64 == *number;
    integer(value).or_else(|| number(value).filter(is_whole).map(|number| number as i64))
}

/// The code of an error: a whole number, also if it is text.
fn error_code(value: &[u8]) -> Option<i64> {
    string(value).map_or_else(|| whole_number(value), |text| integer(text.as_bytes()))
}

/// Reads an error with what can be read of it. A code that is missing or no whole number becomes [`RpcError::INTERNAL`], a message that is
/// missing becomes a fixed one, and an error that is no object becomes the message.
fn error_object(value: &[u8], frame: Frame<'_>, tolerated: &Tolerated) -> RpcError {
    let (mut code, mut message, mut data) = (None, None, None);
    match read::Members::of(value) {
        Some(members) => members.for_each(|(key, value)| match &*key.name() {
            "code" => code = Some(value),
            "message" => message = Some(value),
            "data" => data = Some(Box::new(frame.json(value))),
            _ => {}
        }),
        None => message = Some(value),
    }
    let given = (code.and_then(error_code), message.filter(|message| is_unicode(message)));
    if let (None, _) | (_, None) = given {
        tolerated.count();
    }
    let message = match message.filter(|message| *message != b"null") {
        Some(message) => frame.text_lossy(message).unwrap_or_else(|| frame.json(message).into_text()),
        None => Text::from_static("the error has no message"),
    };
    RpcError { code: given.0.unwrap_or(RpcError::INTERNAL), message, data }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: Options = Options { depth: 128, id: 64, batch: None, lenient: false };

    fn shown(text: &str) -> alloc::string::String {
        shown_with(text, OPTIONS)
    }

    fn shown_with(text: &str, options: Options) -> alloc::string::String {
        shown_of(&Bytes::copy_from_slice(text.as_bytes()), options)
    }

    fn shown_of(frame: &Bytes, options: Options) -> alloc::string::String {
        read(frame, options, &Tolerated::default(), described, |all| all.join("; "))
    }

    fn described(element: Element<'_>) -> alloc::string::String {
        fn utf8(text: &[u8]) -> &str {
            core::str::from_utf8(text).unwrap()
        }
        match element {
            Ok(Envelope::Request { id, method, params }) => {
                alloc::format!("request {id:?} {} {:?}", utf8(method), params.map(|params| utf8(params.text())))
            }
            Ok(Envelope::Notification { method, params }) => {
                alloc::format!("notification {} {:?}", utf8(method), params.map(|params| utf8(params.text())))
            }
            Ok(Envelope::Response { id, body: Body::Result(result) }) => {
                alloc::format!("response {id:?} Result({:?})", utf8(result))
            }
            Ok(Envelope::Response { id, body: Body::Malformed(_) }) => alloc::format!("response {id:?} Malformed"),
            Ok(Envelope::Response { id, body }) => alloc::format!("response {id:?} {body:?}"),
            Ok(Envelope::Misaddressed { number, why }) => alloc::format!("misaddressed {number:?} ({why})"),
            Err(malformed) => alloc::format!(
                "{:?} {:?}",
                malformed.violation,
                malformed.answer.as_ref().map(|(id, error)| (id.clone(), error.code))
            ),
        }
    }

    #[test]
    fn requests_notifications_and_responses_are_distinguished() {
        assert_eq!(
            shown(r#"{"jsonrpc":"2.0","id":1,"method":"a/b","params":{"x":[1]}}"#),
            r#"request Int(1) a/b Some("{\"x\":[1]}")"#
        );
        assert_eq!(shown(r#" { "method" : "a" , "jsonrpc" : "2.0" } "#), "notification a None");
        assert_eq!(shown(r#"{"jsonrpc":"2.0","id":"1","result":{}}"#), r#"response Str("1") Result("{}")"#);
        assert!(
            shown(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no","data":[1]}}"#)
                .starts_with("response Int(1) Error(")
        );
    }

    #[test]
    fn unknown_members_are_ignored() {
        assert_eq!(shown(r#"{"jsonrpc":"2.0","x":{"y":[{}]},"id":1,"result":{},"z":null}"#), r#"response Int(1) Result("{}")"#);
    }

    #[test]
    fn escaped_member_names_and_methods_are_decoded() {
        assert_eq!(shown(r#"{"jsonrpc":"\u0032.0","\u0069d":1,"method":"tools\/call"}"#), "request Int(1) tools/call None");
    }

    #[test]
    fn text_that_is_not_json_is_answered_once_without_an_id() {
        let cases = [
            "",
            " ",
            "{",
            "nope",
            "{\"a\":1,}",
            "[1,]",
            "{} {}",
            "\u{feff}{}",
            "{'a':1}",
            "{\"a\":01}",
            "{\"a\":\"\x01\"}",
            "[}",
            "{\"a\" 1}",
            "[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\"},{]",
        ];
        let not_utf8 = Bytes::from_static(b"{\"a\":\"\xff\"}");
        for frame in cases.map(|text| Bytes::from_static(text.as_bytes())).into_iter().chain([not_utf8]) {
            for batch in [None, Some(3)] {
                let mut all = Vec::new();
                read(&frame, Options { batch, ..OPTIONS }, &Tolerated::default(), |element| all.push(described(element)), |_| ());
                assert_eq!(all, ["NotJson Some((None, -32700))"], "{frame:?}");
            }
        }
    }

    #[test]
    fn nesting_is_bounded_so_that_two_hundred_thousand_brackets_are_an_error() {
        let bomb = "[".repeat(200_000);
        assert_eq!(shown(&bomb), "TooDeep Some((None, -32700))");
        let inside = alloc::format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{{"a":{bomb}"#);
        assert_eq!(shown(&inside), "TooDeep Some((None, -32700))");
        let nested = |depth: usize| alloc::format!("{}1{}", r#"{"a":"#.repeat(depth), "}".repeat(depth));
        assert_eq!(shown(&nested(128)), "InvalidEnvelope Some((None, -32600))");
        assert_eq!(shown(&nested(129)), "TooDeep Some((None, -32700))");
        assert_eq!(shown_with(&nested(3), Options { depth: 2, ..OPTIONS }), "TooDeep Some((None, -32700))");
    }

    #[test]
    fn json_that_is_no_message_is_an_invalid_request() {
        for text in ["1", "null", "\"a\"", "true", "{}", r#"{"jsonrpc":"2.0"}"#] {
            assert_eq!(shown(text), "InvalidEnvelope Some((None, -32600))", "{text}");
        }
        assert_eq!(shown(r#"{"jsonrpc":"2.0","id":7}"#), "InvalidEnvelope Some((Some(Int(7)), -32600))");
        assert_eq!(shown(r#"{"id":7,"method":"a"}"#), "InvalidEnvelope Some((Some(Int(7)), -32600))");
        assert_eq!(shown(r#"{"jsonrpc":"1.0","id":7,"method":"a"}"#), "InvalidEnvelope Some((Some(Int(7)), -32600))");
        assert_eq!(shown(r#"{"jsonrpc":2.0,"id":7,"method":"a"}"#), "InvalidEnvelope Some((Some(Int(7)), -32600))");
        assert_eq!(shown(r#"{"jsonrpc":"2.0","id":7,"method":1}"#), "InvalidEnvelope Some((Some(Int(7)), -32600))");
        assert_eq!(shown(r#"{"jsonrpc":"2.0","id":7,"method":"a","result":{}}"#), "InvalidEnvelope Some((Some(Int(7)), -32600))");
    }

    #[test]
    fn a_request_whose_id_cannot_be_copied_into_a_reply_is_invalid_and_not_a_notification() {
        for id in
            ["null", "1.0", "1.5", "true", "{}", "[]", "-0", "1e3", "18446744073709551616", "-9223372036854775809", r#""\ud800""#]
        {
            let text = alloc::format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"a"}}"#);
            assert_eq!(shown(&text), "InvalidEnvelope Some((None, -32600))", "{id}");
        }
        let long = alloc::format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"a"}}"#, "x".repeat(63));
        assert_eq!(shown(&long), "InvalidEnvelope Some((None, -32600))", "two quotes and 63 characters are over 64 bytes");
        assert_eq!(shown(r#"{"jsonrpc":"2.0","id":-5,"method":"a"}"#), "request Int(-5) a None");
        // Seen in the field: ids of 64 bits without a sign.
        let largest = r#"{"jsonrpc":"2.0","id":18446744073709551615,"method":"a"}"#;
        assert_eq!(shown(largest), "request Large(18446744073709551615) a None");
        assert_eq!(shown(r#"{"jsonrpc":"2.0","id":"","method":"a"}"#), r#"request Str("") a None"#);
    }

    #[test]
    fn a_notification_is_never_answered_however_malformed() {
        for text in [r#"{"method":"a"}"#, r#"{"jsonrpc":"2.0","method":[]}"#, r#"{"jsonrpc":"2.0","method":"a","error":{}}"#] {
            assert_eq!(shown(text), "InvalidEnvelope None", "{text}");
        }
        assert_eq!(shown(r#"{"jsonrpc":"2.0","method":"a","params":[]}"#), "InvalidParams None");
    }

    #[test]
    fn parameters_that_are_no_object_are_refused_with_the_id_of_the_request() {
        for params in ["[]", "1", "false", "\"x\""] {
            let text = alloc::format!(r#"{{"jsonrpc":"2.0","id":1,"method":"a","params":{params}}}"#);
            assert_eq!(shown(&text), "InvalidParams Some((Some(Int(1)), -32602))", "{params}");
        }
    }

    #[test]
    fn a_response_is_never_answered_however_malformed() {
        for body in
            [r#""result":{},"error":{"code":1,"message":""}"#, r#""error":null"#, r#""error":null,"params":null,"method":null"#]
        {
            let text = alloc::format!(r#"{{"jsonrpc":"2.0","id":1,{body}}}"#);
            assert_eq!(shown(&text), "response Int(1) Malformed", "{body}");
        }
        assert_eq!(shown(r#"{"id":1,"result":{}}"#), "response Int(1) Malformed");
        assert_eq!(shown(r#"{"result":{}}"#), "InvalidEnvelope None", "it may be a record of a log");
        for (id, number, why) in [
            ("", "None", "it has no id"),
            (r#""id":null,"#, "None", "its id is null"),
            (r#""id":7.0,"#, "Some(7)", "its id is not written as a whole number"),
            (r#""id":70e-1,"#, "Some(7)", "its id is not written as a whole number"),
            (r#""id":1.5,"#, "None", UNKNOWN_ID),
            (r#""id":-7.0,"#, "None", UNKNOWN_ID),
            (r#""id":18446744073709551616,"#, "None", UNKNOWN_ID),
            (r#""id":[7],"#, "None", UNKNOWN_ID),
            (r#""id":"\ud800","#, "None", UNKNOWN_ID),
        ] {
            let response = alloc::format!(r#"{{"jsonrpc":"2.0",{id}"result":{{}}}}"#);
            assert_eq!(shown(&response), alloc::format!("misaddressed {number} ({why})"), "{id}");
        }
        assert!(shown(r#"{"jsonrpc":"2.0","id":7.0,"error":{"code":1,"message":""}}"#).starts_with("misaddressed Some(7)"));
        assert_eq!(shown(r#"{"jsonrpc":"2.0","error":{"code":1,"message":""}}"#), "ErrorWithoutId None");
        assert_eq!(shown(r#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":""}}"#), "ErrorWithoutId None");
    }

    /// Seen in the field: serializers that write every member of a message write `null` for those that it does not have.
    #[test]
    fn a_member_of_the_envelope_that_is_null_counts_as_absent_and_is_tolerated() {
        for (text, expected, faults) in [
            (r#""id":1,"method":"ping","params":null"#, "request Int(1) ping None", 1),
            (r#""method":"a","params":null"#, "notification a None", 1),
            (r#""id":1,"method":"a","params":null,"result":null,"error":null"#, "request Int(1) a None", 3),
            (r#""id":1,"result":{},"error":null"#, r#"response Int(1) Result("{}")"#, 1),
            (r#""error":null,"method":null,"params":null,"result":{},"id":1"#, r#"response Int(1) Result("{}")"#, 3),
            (r#""id":1,"result":{"error":null}"#, r#"response Int(1) Result("{\"error\":null}")"#, 0),
        ] {
            let text = alloc::format!(r#"{{"jsonrpc":"2.0",{text}}}"#);
            let tolerated = Tolerated::default();
            for options in [OPTIONS, Options { lenient: true, ..OPTIONS }] {
                let shown = read(&Bytes::from(text.clone()), options, &tolerated, described, |all| all.join("; "));
                assert_eq!(shown, expected, "{text}");
            }
            assert_eq!(tolerated.get(), 2 * faults, "{text}");
        }
    }

    /// Seen in the field: errors without a code or a message, with a code that is text or has a fraction, and errors that are only text.
    #[test]
    fn an_error_is_read_with_what_can_be_read_of_it() {
        for (error, code, message, faults) in [
            (r#"{"code":-1,"message":"no","extra":null}"#, -1, "no", 0),
            (r#"{"code":-32601.0,"message":"no"}"#, -32601, "no", 0),
            (r#"{"code":"-7","message":"no"}"#, -7, "no", 0),
            (r#"{"message":"no"}"#, -32603, "no", 1),
            (r#"{"code":null,"message":"no"}"#, -32603, "no", 1),
            (r#"{"code":1.5,"message":"no"}"#, -32603, "no", 1),
            (r#"{"code":1}"#, 1, "the error has no message", 1),
            (r#"{"code":1,"message":null}"#, 1, "the error has no message", 1),
            (r#"{"code":1,"message":{"text":"no"}}"#, 1, r#"{"text":"no"}"#, 1),
            (r#"{"code":1,"message":"cut \ud83d"}"#, 1, "cut \u{fffd}", 1),
            ("{}", -32603, "the error has no message", 1),
            (r#""unauthorized""#, -32603, "unauthorized", 1),
            ("[1]", -32603, "[1]", 1),
        ] {
            let text = alloc::format!(r#"{{"jsonrpc":"2.0","result":null,"id":1,"error":{error}}}"#);
            for options in [OPTIONS, Options { lenient: true, ..OPTIONS }] {
                let tolerated = Tolerated::default();
                let check = |element: Element<'_>| match element {
                    Ok(Envelope::Response { id: WireId::Int(1), body: Body::Error(read) }) => {
                        assert_eq!((read.code, read.message.as_str(), read.data), (code, message, None), "{error}");
                    }
                    other => panic!("{error}: {other:?}"),
                };
                read(&Bytes::from(text.clone()), options, &tolerated, check, |_| ());
                // The result beside the error is `null`.
                assert_eq!(tolerated.get(), faults + 1, "{error}");
            }
        }
    }

    #[test]
    fn g13_a_repeated_member_is_refused_even_if_its_name_has_an_escape() {
        assert_eq!(shown(r#"{"jsonrpc":"2.0","id":1,"\u0069d":2,"method":"a"}"#), "RepeatedMember Some((None, -32600))");
        assert_eq!(shown(r#"{"jsonrpc":"2.0","id":1,"method":"a","method":"b"}"#), "RepeatedMember Some((None, -32600))");
        assert_eq!(shown(r#"{"jsonrpc":"2.0","id":1,"result":{},"result":{}}"#), "RepeatedMember None");
        assert_eq!(shown(r#"{"jsonrpc":"2.0","method":"a","params":{},"params":{}}"#), "RepeatedMember None");
    }

    #[test]
    fn a_lenient_reader_accepts_the_id_null_and_a_response_without_a_result() {
        let lenient = Options { lenient: true, ..OPTIONS };
        assert_eq!(shown_with(r#"{"jsonrpc":"2.0","id":null,"method":"a"}"#, lenient), "request Null a None");
        assert_eq!(shown_with(r#"{"jsonrpc":"2.0","id":1}"#, lenient), "response Int(1) Missing");
        let both = r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":-1,"message":"no"}}"#;
        assert!(shown_with(both, lenient).starts_with("response Int(1) Error("));
        assert_eq!(shown_with(r#"{"jsonrpc":"2.0","id":1,"error":null}"#, lenient), "response Int(1) Malformed");
        let null = r#"{"jsonrpc":"2.0","id":1,"result":null,"error":null}"#;
        assert_eq!(shown_with(null, lenient), "response Int(1) Result(\"null\")");
        for other in
            [r#"{"id":1,"method":"a"}"#, r#"{"jsonrpc":"1.0","id":1,"result":{}}"#, r#"{"jsonrpc":2.0,"id":1,"method":"a"}"#]
        {
            assert_eq!(shown_with(other, lenient), "InvalidEnvelope None");
        }
    }

    #[test]
    fn a_batch_is_split_only_in_a_revision_with_batches() {
        let batch = r#"[{"jsonrpc":"2.0","method":"a"}, 1 ,{"jsonrpc":"2.0","id":1,"method":"b"}]"#;
        assert_eq!(shown(batch), "BatchUnsupported Some((None, -32600))");
        let with_batches = Options { batch: Some(3), ..OPTIONS };
        assert_eq!(
            shown_with(batch, with_batches),
            "notification a None; InvalidEnvelope Some((None, -32600)); request Int(1) b None"
        );
        assert_eq!(shown_with("[]", with_batches), "EmptyBatch Some((None, -32600))");
        assert_eq!(shown_with("[1,2,3,4]", with_batches), "BatchTooLong Some((None, -32600))");
        assert_eq!(shown_with(r#"[{"jsonrpc":"2.0","method":"a"},"#, with_batches), "NotJson Some((None, -32700))");
    }

    #[test]
    fn this_reader_and_serde_json_accept_the_same_texts() {
        // Every text of five characters from an alphabet with the corner cases of JSON. Shorter texts are among them, padded with spaces.
        let alphabet = [b'{', b'}', b'[', b']', b'"', b':', b',', b'0', b'-', b'1', b'.', b'e', b'\\', b'n', b' '];
        let mut text = Vec::new();
        let mut index = 0_usize;
        let length = 5;
        loop {
            text.clear();
            let mut rest = index;
            for _ in 0..length {
                text.push(alphabet[rest % alphabet.len()]);
                rest /= alphabet.len();
            }
            if rest > 0 {
                break;
            }
            let ours = Cursor::new(&text, 128).whole().is_ok();
            let theirs = serde_json::from_slice::<&serde_json::value::RawValue>(&text).is_ok();
            assert_eq!(ours, theirs, "{}", text.escape_ascii());
            index += 1;
        }
    }
}
