//! Strategies for proptest: payloads, frames, hostile frames, and operations of a [`World`](crate::World). All of them shrink.
//!
//! ```
//! use proptest::prelude::*;
//! use testkit::{World, config, strategies};
//!
//! proptest! {
//!     #![proptest_config(ProptestConfig::with_cases(16))]
//!     // Your test has `#[test]` here.
//!     fn two_ends_keep_every_guarantee(recording in strategies::recording(60)) {
//!         let mut world = World::messages(config::client_config(), config::server_config(), recording.seed);
//!         recording.play(&mut world);
//!         world.finish(0);
//!     }
//! }
//! # fn main() { two_ends_keep_every_guarantee(); }
//! ```

use bytes::Bytes;
use proptest::prelude::*;
use protocol_core::Json;

use crate::Recording;
use crate::scripted::{
    cancelled, discovered, error, json, notification, progress, request, result, stateless_request, stateless_result,
};
use crate::world::ops::{self, Operation};

/// An operation of a world. Most are about time, calls and answers, and none closes an end.
pub fn operation() -> impl Strategy<Value = Operation> {
    let opcode = prop_oneof![
        // 26 and 27 close an end or a link.
        20 => prop_oneof![0..26_u8, 28..ops::OPCODES],
        1 => Just(ops::OPEN_URL),
        // Time passes: until the next deadline or arrival, or for a span.
        12 => Just(17_u8),
        4 => Just(18_u8),
        // Calls, their progress, responses and cancels, and input requests with their answers.
        32 => prop_oneof![Just(0_u8), Just(3_u8), Just(4_u8), Just(5_u8), Just(6_u8), Just(7_u8), Just(28_u8)],
    ];
    (opcode, any::<u8>(), any::<u8>(), any::<u8>()).prop_map(|(opcode, a, b, c)| [opcode, a, b, c])
}

/// A seed and up to `most` operations.
pub fn recording(most: usize) -> impl Strategy<Value = Recording> {
    let operations = prop::collection::vec(operation(), 0..=most);
    (any::<u64>(), operations).prop_map(|(seed, operations)| Recording { seed, operations })
}

/// JSON with blanks, escapes and numbers that a careless serializer would change.
pub fn payload() -> impl Strategy<Value = Json> {
    object(3).prop_map(|text| json(&text))
}

fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("null".to_owned()),
        any::<bool>().prop_map(|value| value.to_string()),
        any::<i32>().prop_map(|value| value.to_string()),
        any::<i16>().prop_map(|value| format!("{value}.50e+3")),
        "[a-zé ]{0,8}".prop_map(|text| format!("\"{text}\"")),
        Just(r#""\u00e9\ud83d\ude00\n\\""#.to_owned()),
    ]
}

fn object(depth: u32) -> impl Strategy<Value = String> {
    let blank = || prop_oneof![3 => Just(""), 1 => Just(" "), 1 => Just("\n")];
    let inner = value().prop_recursive(depth, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|all| format!("[{}]", all.join(" ,"))),
            members(inner, blank()),
        ]
    });
    members(inner, blank())
}

fn members(value: impl Strategy<Value = String>, blank: impl Strategy<Value = &'static str>) -> impl Strategy<Value = String> {
    prop::collection::vec(("[a-e]", blank, value), 0..4).prop_map(|all| {
        let all: Vec<_> =
            all.into_iter().map(|(name, blank, value)| format!("{blank}\"{name}\"{blank}:{blank}{value}{blank}")).collect();
        format!("{{{}}}", all.join(","))
    })
}

/// A valid frame. Its ids are small, so that they match those of other frames.
pub fn frame() -> impl Strategy<Value = Bytes> {
    let (id, small) = (0..8_u64, 0..8_u64);
    let text = prop_oneof![
        id.clone().prop_map(result),
        id.clone().prop_map(|id| error(id, 1, "no")),
        (id.clone(), small).prop_map(|(id, value)| progress(id, value as f64)),
        id.clone().prop_map(cancelled),
        id.clone().prop_map(|id| request(id, "ping", "{}")),
        (id.clone(), object(2)).prop_map(|(id, arguments)| request(
            id,
            "tools/call",
            &format!(r#"{{"name":"t","arguments":{arguments},"_meta":{{"progressToken":{id}}}}}"#)
        )),
        id.clone().prop_map(|id| request(id, "roots/list", "{}")),
        object(1).prop_map(|params| notification("notifications/x", &params)),
        // Without a handshake (MCP 2026-07-28).
        (id.clone(), object(2)).prop_map(|(id, arguments)| stateless_request(
            id,
            "tools/call",
            &format!(r#""name":"t","arguments":{arguments},"#),
            r#"{"sampling":{}}"#,
            &format!(r#","progressToken":{id}"#),
        )),
        id.clone().prop_map(|id| stateless_request(id, "server/discover", "", "{}", "")),
        id.clone().prop_map(|id| {
            stateless_request(id, "subscriptions/listen", r#""notifications":{"toolsListChanged":true},"#, "{}", "")
        }),
        id.clone().prop_map(|id| discovered(id, r#""2026-07-28""#, r#"{"tools":{"listChanged":true}}"#)),
        id.clone().prop_map(|id| stateless_result(id, r#""content":[],"#)),
        id.clone().prop_map(|id| stateless_result(id, "")
            .replace(r#""resultType":"complete""#, r#""resultType":"input_required","requestState":"s""#)),
        (id, any::<bool>()).prop_map(|(id, is_first)| {
            let (method, kinds) = match is_first {
                true => ("subscriptions/acknowledged", r#""notifications":{"toolsListChanged":true},"#),
                false => ("tools/list_changed", ""),
            };
            let meta = format!(r#""_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}}"#);
            notification(&format!("notifications/{method}"), &format!("{{{kinds}{meta}}}"))
        }),
    ];
    text.prop_map(Bytes::from)
}

/// A frame with a few changed bytes; it shrinks to a valid one.
pub fn hostile_frame() -> impl Strategy<Value = Bytes> {
    let edits = prop::collection::vec((any::<prop::sample::Index>(), 0..4_u8, any::<u8>()), 0..5);
    (frame(), edits).prop_map(|(frame, edits)| {
        let mut bytes = frame.to_vec();
        for (place, kind, byte) in edits {
            if bytes.is_empty() {
                break;
            }
            let place = place.index(bytes.len());
            match kind {
                0 => bytes[place] = byte,
                1 => drop(bytes.remove(place)),
                2 => bytes.insert(place, byte),
                _ => bytes.truncate(place),
            }
        }
        Bytes::from(bytes)
    })
}
