//! Hostile frames to an endpoint with the example service, whose handlers run in virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use endpoint::Endpoint;
use endpoint::testing::{Executor, Pipe, pipe};
use protocol_core::drive::Driver;
use serde_json::{Value, json};

use programs::tools::{Options, service};
use testkit::scripted::initialize;

/// Byte 0: the handshake is made first (bit 0), the peer answers input requests (bit 1), calls have a deadline (bit 2), the partial result
/// is sent with each update of progress (bit 3). The rest: lines. Each is a frame, except that a line of at least two bytes that begins
/// with the byte 1 lets time pass, 100 ms for each unit of its second byte.
pub fn endpoint(data: &[u8]) {
    let ([kind], rest) = super::head(data);
    let executor = Executor::new();
    let options = Options {
        deadline: (kind & 4 != 0).then_some(Duration::from_secs(3)),
        partial_on_progress: kind & 8 != 0,
        ..Options::default()
    };
    let endpoint = Endpoint::server(Arc::new(service(&options)), executor.runtime());
    let (mut peer, io) = pipe();
    let over = Arc::new(AtomicBool::new(false));
    {
        let over = Arc::clone(&over);
        let mut driver = Driver::new(endpoint, io, executor.timer());
        executor.spawn(async move {
            while let Ok(Some(_)) = driver.next_event().await {}
            over.store(true, Ordering::Relaxed);
        });
    }
    let answers = kind & 2 != 0;
    if kind & 1 != 0 {
        let capabilities = r#"{"sampling":{},"elicitation":{},"roots":{}}"#;
        let _ = peer.send(Bytes::from(initialize(0, "2025-11-25", capabilities)));
        let _ = peer.send(Bytes::from_static(br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#));
    }
    let mut asked = None;
    for line in rest.split(|byte| *byte == b'\n') {
        match line {
            [1, tenths, ..] => executor.run_for(Duration::from_millis(100 * u64::from(*tenths))),
            frame => {
                asked = serde_json::from_slice(frame).ok().filter(|_| answers).or(asked);
                let _ = peer.send(Bytes::copy_from_slice(frame));
            }
        }
        executor.run_until_stalled();
        // Frames are read more often than a call can have rounds.
        for _ in 0..10 {
            read(&mut peer, answers, &mut asked);
            executor.run_until_stalled();
        }
    }
    read(&mut peer, false, &mut None);
    peer.end();
    executor.run_for(Duration::from_secs(120));
    read(&mut peer, false, &mut None);
    assert!(over.load(Ordering::Relaxed), "an endpoint whose peer has disconnected ends");
    executor.shutdown();
}

/// The answer to an input request.
fn answer(method: &str) -> Value {
    match method {
        "sampling/createMessage" => json!({"role": "assistant", "content": {"type": "text", "text": "short"}, "model": "m"}),
        "elicitation/create" => json!({"action": "accept", "content": {"name": "n"}}),
        _ => json!({"roots": []}),
    }
}

/// The retry of the request `asked`, whose result is a round.
fn retry(asked: &mut Value, result: &Value) -> Option<Bytes> {
    let id = format!("retry of {}", asked.get("id")?);
    let params = asked.get_mut("params")?.as_object_mut()?;
    let inputs = result["inputRequests"].as_object().into_iter().flatten();
    let answers = inputs.map(|(name, input)| (name.clone(), answer(input["method"].as_str().unwrap_or_default())));
    params.insert("inputResponses".into(), Value::Object(answers.collect()));
    params.insert("requestState".into(), result["requestState"].clone());
    asked["id"] = id.into();
    Some(asked.to_string().into())
}

/// Reads the frames of the endpoint. Answers input requests if `answers` is `true`. Answers a round with the retry of `asked`, the last
/// request.
fn read(peer: &mut Pipe, answers: bool, asked: &mut Option<Value>) {
    while let Some(frame) = peer.try_recv() {
        let text = core::str::from_utf8(&frame).expect("UTF-8");
        let frame: Value = serde_json::from_str(text).expect("every frame is JSON");
        assert!(!text.contains(['\n', '\r']), "one frame is one line");
        if frame["result"]["resultType"] == "input_required" {
            let retry = asked.as_mut().and_then(|asked| retry(asked, &frame["result"]));
            if let Some(retry) = retry {
                let _ = peer.send(retry);
            }
        }
        let (Some(method), Some(id), true) = (frame["method"].as_str(), frame.get("id"), answers) else { continue };
        let answer = json!({"jsonrpc": "2.0", "id": id, "result": answer(method)});
        let _ = peer.send(Bytes::from(answer.to_string()));
    }
}
