//! The floor, with which the servers are compared: hyper on tokio, with a handler that reads a body and answers with prepared bytes.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Either, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::json;

use super::UPDATES;

/// The response to the tool `echo`, as the server in `ours.rs` makes it.
static ECHOED: LazyLock<Bytes> = LazyLock::new(|| {
    let meta = json!({"io.modelcontextprotocol/serverInfo": {"name": "bench", "version": "1"}});
    let result = json!({"resultType": "complete", "content": [{"type": "text", "text": "hello"}], "_meta": meta});
    Bytes::from(json!({"jsonrpc": "2.0", "id": 1, "result": result}).to_string())
});

/// The events of a call of the tool `report`, one piece each.
static EVENTS: LazyLock<Arc<[Bytes]>> = LazyLock::new(|| {
    let update = |step: usize| {
        let params = json!({"progressToken": 1, "progress": step, "total": UPDATES});
        Bytes::from(format!("data: {}\n\n", json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})))
    };
    (1..=UPDATES)
        .map(update)
        .chain([Bytes::from(format!("data: {}\n\n", json!({"jsonrpc": "2.0", "id": 1, "result": {}})))])
        .collect()
});

/// A body of the pieces of [`EVENTS`], none of which has to be waited for. The number is the index of the next piece.
struct Events(usize);

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let event = EVENTS.get(self.0).cloned();
        self.0 += 1;
        Poll::Ready(event.map(|event| Ok(Frame::data(event))))
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Either<Full<Bytes>, Events>>, hyper::Error> {
    let body = request.into_body().collect().await?.to_bytes();
    let is_report = body.windows(8).any(|word| word == b"\"report\"");
    let (kind, body) = match is_report {
        true => ("text/event-stream", Either::Right(Events(0))),
        false => ("application/json", Either::Left(Full::new(ECHOED.clone()))),
    };
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(kind));
    Ok(response)
}

/// Prints the address, and serves for ever. The runtime is tokio for every adapter, so all have the same floor.
pub(super) fn serve() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        println!("{}", listener.local_addr().expect("an address"));
        loop {
            let (stream, _) = listener.accept().await.expect("a connection");
            let _ = stream.set_nodelay(true);
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer)));
        }
    });
}
