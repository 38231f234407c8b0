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

impl Notes {
    fn write(&self, note: Write) -> usize {
        let mut notes = self.0.lock().unwrap();
        notes.insert(note.title, note.text);
        notes.len()
    }

    fn read(&self, title: &str) -> Result<String, ToolError> {
        let notes = self.0.lock().unwrap();
        notes.get(title).cloned().ok_or_else(|| ToolError::failed(format!("there is no note {title}")))
    }
}

fn service(notes: Arc<Notes>) -> Service {
    let writes = Arc::clone(&notes);
    let write = Tool::new("write", move |_: Context, note: Write| {
        let notes = Arc::clone(&writes);
        async move { Ok(notes.write(note)) }
    });
    let read = Tool::new("read", move |_: Context, Read { title }: Read| {
        let notes = Arc::clone(&notes);
        async move { notes.read(&title) }
    });
    Service::new(Identity::new("notes", "1.0")).tool(write).tool(read.read_only())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7777".to_owned());
    let service = Arc::new(service(Arc::default()));
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
