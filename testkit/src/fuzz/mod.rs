//! Inputs for your own fuzz targets: frames and operations that a fuzzer can generate, a dictionary, and initial frames.
//!
//! `docs/guides/fuzzing.md` shows a target that uses these inputs, from the first command to the first stored case.

use arbitrary::{Arbitrary, Result, Unstructured};
use bytes::Bytes;

use crate::Recording;
use crate::world::ops::{self, Operation};

/// Words of the protocols in the format of libFuzzer and AFL, for `-dict=`.
pub const DICTIONARY: &str = include_str!("json.dict");

/// Initial frames of both protocols, each with a name for its file.
pub const SEEDS: [(&str, &str); 20] = [
    (
        "initialize",
        r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"sampling":{},"elicitation":{}},"clientInfo":{"name":"c","version":"1"}}}"#,
    ),
    ("initialized", r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#),
    (
        "welcome",
        r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"logging":{}},"serverInfo":{"name":"s","version":"1"}}}"#,
    ),
    (
        "call",
        r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t","arguments":{"n":1.50e+3},"_meta":{"progressToken":2}}}"#,
    ),
    ("result", r#"{"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"ok"}]}}"#),
    ("error", r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32602,"message":"no","data":{}}}"#),
    (
        "progress",
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":2,"progress":1,"total":3,"message":"m"}}"#,
    ),
    ("cancelled", r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2,"reason":"why"}}"#),
    (
        "sampling",
        r#"{"jsonrpc":"2.0","id":"q","method":"sampling/createMessage","params":{"messages":[{"role":"user","content":{"type":"text","text":"?"}}],"maxTokens":5}}"#,
    ),
    (
        "elicitation",
        r#"{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":{"message":"?","requestedSchema":{"type":"object","properties":{"a":{"type":"string"}}}}}"#,
    ),
    ("roots", r#"{"jsonrpc":"2.0","id":"r","method":"roots/list"}"#),
    ("ping", r#"{"jsonrpc":"2.0","id":9,"method":"ping"}"#),
    ("batch", r#"[{"jsonrpc":"2.0","id":3,"method":"ping"},{"jsonrpc":"2.0","method":"notifications/initialized"}]"#),
    (
        "stateless-call",
        r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/logLevel":"debug","progressToken":2}}}"#,
    ),
    (
        "discovered",
        r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true},"logging":{}},"ttlMs":0,"cacheScope":"private"}}"#,
    ),
    (
        "listen",
        r#"{"jsonrpc":"2.0","id":3,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["u:"]},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#,
    ),
    (
        "acknowledged",
        r#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/subscriptionId":2}}}"#,
    ),
    (
        "hello",
        r#"{"jsonrpc":"2.0","id":1,"method":"tesseron/hello","params":{"protocolVersion":"1.2.0","app":{"id":"ledger","name":"Ledger","origin":"unknown"},"actions":[],"resources":[],"capabilities":{"streaming":true,"subscriptions":true,"sampling":true,"elicitation":true}}}"#,
    ),
    ("invoke", r#"{"jsonrpc":"2.0","id":2,"method":"actions/invoke","params":{"name":"t","input":{},"invocationId":"inv_2"}}"#),
    ("invoked", r#"{"jsonrpc":"2.0","id":2,"result":{"invocationId":"inv_2","output":"ok"}}"#),
];

/// A valid JSON-RPC message: one of [`SEEDS`], or one whose ids, methods and members are from a small set, so that they match those of
/// other frames. A member of its parameters or its result may be written twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame(pub Bytes);

impl<'a> Arbitrary<'a> for Frame {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let id = id(u)?;
        let text = match u.int_in_range(0..=4)? {
            0 => u.choose(&SEEDS)?.1.to_owned(),
            1 => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{}}}"#, object(u)?),
            2 => format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{},"message":"no"}}}}"#, i16::arbitrary(u)?),
            3 => format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{}","params":{}}}"#, method(u)?, object(u)?),
            _ => format!(r#"{{"jsonrpc":"2.0","method":"{}","params":{}}}"#, method(u)?, object(u)?),
        };
        Ok(Self(text.into()))
    }
}

fn id(u: &mut Unstructured<'_>) -> Result<String> {
    let number = u.int_in_range(0..=9)?;
    Ok(if u.ratio(1, 6)? { format!("\"{number}\"") } else { number.to_string() })
}

fn method<'a>(u: &mut Unstructured<'a>) -> Result<&'a str> {
    const METHODS: [&str; 12] = [
        "initialize",
        "notifications/initialized",
        "notifications/cancelled",
        "notifications/progress",
        "tools/call",
        "tools/list",
        "ping",
        "sampling/createMessage",
        "elicitation/create",
        "actions/invoke",
        "actions/cancel",
        "x/y",
    ];
    u.choose(&METHODS).copied()
}

fn object(u: &mut Unstructured<'_>) -> Result<String> {
    const NAMES: [&str; 8] = ["name", "arguments", "_meta", "progressToken", "requestId", "progress", "invocationId", "content"];
    let mut members = Vec::new();
    for _ in 0..u.int_in_range(0..=4)? {
        let name = *u.choose(&NAMES)?;
        let value = match u.int_in_range(0..=5)? {
            0 => "{}".to_owned(),
            1 => "[ ]".to_owned(),
            2 => "null".to_owned(),
            3 => id(u)?,
            4 => format!("{{\"progressToken\":{}}}", id(u)?),
            _ => "\"t\"".to_owned(),
        };
        members.push(format!("\"{name}\":{value}"));
    }
    Ok(format!("{{{}}}", members.join(",")))
}

/// A [`Frame`] with up to four changes (a byte replaced, removed or inserted, or the rest cut off), or any bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostileFrame(pub Bytes);

impl<'a> Arbitrary<'a> for HostileFrame {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        if u.ratio(1, 8)? {
            return Ok(Self(Bytes::copy_from_slice(<&[u8]>::arbitrary(u)?)));
        }
        let mut bytes = Frame::arbitrary(u)?.0.to_vec();
        for _ in 0..u.int_in_range(0..=4)? {
            let Some(last) = bytes.len().checked_sub(1) else { break };
            let place = u.int_in_range(0..=last)?;
            match u.int_in_range(0..=3)? {
                0 => bytes[place] = u8::arbitrary(u)?,
                1 => drop(bytes.remove(place)),
                2 => bytes.insert(place, *u.choose(b"{}[]\",:019eE+-.\\\n")?),
                _ => bytes.truncate(place),
            }
        }
        Ok(Self(bytes.into()))
    }
}

/// Operations for a [`World`](crate::World), none of which closes an end or a link, and a seed for its links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operations(pub Recording);

impl<'a> Arbitrary<'a> for Operations {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        // Calls, cancels, progress, replies, input requests, answers and time.
        const OFTEN: [u8; 16] = [0, 0, 0, 3, 4, 4, 5, 5, 5, 6, 7, 7, 17, 17, 18, 28];
        let seed = u8::arbitrary(u)?.into();
        let bytes = u.bytes(u.len().min(4 * 400))?;
        // Half of the values of the first byte select an opcode of `OFTEN`.
        let chosen = |[opcode, a, b, c]: [u8; 4]| match opcode {
            128.. => [OFTEN[usize::from(opcode % 16)], a, b, c],
            _ => [opcode, a, b, c],
        };
        let operations: Vec<Operation> = bytes.as_chunks::<4>().0.iter().copied().map(chosen).collect();
        Ok(Self(Recording { seed, operations: operations.into_iter().filter(|operation| !ops::ends(*operation)).collect() }))
    }
}
