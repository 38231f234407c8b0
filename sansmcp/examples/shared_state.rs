//! Handlers that share state, on TCP: every connection has the same service. `shared_state [ADDRESS]` prints the address that it listens on.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use sansmcp::prelude::*;

/// The notes of all callers. A handler may run many times at once, so they are behind a lock.
#[derive(Default)]
struct Notes(Mutex<BTreeMap<String, String>>);

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Write {
    title: String,
    text: String,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Read {
    title: String,
}

async fn write(State(notes): State<Notes>, note: Write) -> Result<usize> {
    let mut notes = notes.0.lock().unwrap();
    notes.insert(note.title, note.text);
    Ok(notes.len())
}

async fn read(State(notes): State<Notes>, Read { title }: Read) -> Result<String> {
    let notes = notes.0.lock().unwrap();
    notes.get(&title).cloned().ok_or_else(|| ToolError::failed(format!("there is no note {title}")))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7777".to_owned());
    let service = Service::new(Identity::new("notes", "1.0"))
        .state(Notes::default())
        .tool(Tool::new("write", write))
        .tool(Tool::new("read", read).read_only());
    let service = Arc::new(service);
    let listener = sansmcp::tokio::TcpListener::bind(&address).await?;
    println!("{}", listener.local_addr());
    loop {
        let connection = sansmcp::tokio::serve(Arc::clone(&service), listener.accept().await?);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                eprintln!("{error}");
            }
        });
    }
}
