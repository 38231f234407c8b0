//! Handlers that share state, on TCP: every connection has the same service. `shared_state [ADDRESS]` prints the address that it listens on.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use sansmcp::prelude::*;

/// The notes of all callers. A handler may run many times at once, so they are behind a lock.
#[derive(Default)]
struct Notes(Mutex<BTreeMap<String, String>>);

#[args]
struct Note {
    title: String,
    text: String,
}

/// Writes a note
#[tool]
async fn write(State(notes): State<Notes>, note: Note) -> Result<usize> {
    let mut notes = notes.0.lock().unwrap();
    notes.insert(note.title, note.text);
    Ok(notes.len())
}

/// Reads a note
#[tool(read_only)]
async fn read(
    State(notes): State<Notes>,
    /// The title of the note.
    title: String,
) -> Result<String> {
    let notes = notes.0.lock().unwrap();
    notes.get(&title).cloned().ok_or_else(|| ToolError::failed(format!("there is no note {title}")))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7777".to_owned());
    let service = Arc::new(Service::new("notes", "1.0").state(Notes::default()).tool(write()).tool(read()));
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
