//! Tokens in files that several processes share.
#![cfg(unix)]

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use auth::{
    Answer, FileStore, Keeper, Login, LoginConfig, MemoryStore, Now, Output, StoreAnswer, StoreError, StoreKey, StoreTask, Tag,
    TokenStore, Tokens,
};

const SERVER: &str = "https://rs.example/mcp";
const PROCESSES: usize = 8;
const CALLS: usize = 150;
/// How many calls an access token is good for.
const USES: u32 = 20;

fn tokens() -> Tokens {
    let text = r#"{"generation":1,"issuer":"https://as.example","token_endpoint":"https://as.example/token","client":{"issuer":"https://as.example",
        "client_id":"c","client_secret":null,"secret_expires_at":null,"method":"none","redirect_uri":null},"resource":null,"requested":[],"granted":[],
        "access":"at-0","refresh":"rt-0","bound_to":null,"received_at":1000,"expires_at":null}"#;
    serde_json::from_str(text).unwrap()
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("sansmcp-auth-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    folder
}

/// An authorization server that revokes all tokens when a refresh token is used twice, and the MCP server that takes its access tokens.
#[derive(Default)]
struct Family {
    current: u32,
    uses: u32,
    refreshes: u32,
    reused: Vec<String>,
    callers: BTreeSet<String>,
}

impl Family {
    fn answer(&mut self, line: &str) -> String {
        match line.split_once(' ') {
            Some(("call", rest)) => {
                let (process, token) = rest.split_once(' ').unwrap();
                self.callers.insert(process.to_owned());
                self.uses += 1;
                let is_good = token == format!("Bearer at-{}", self.current) && self.uses <= USES && self.reused.is_empty();
                if is_good { "200".into() } else { "401".into() }
            }
            Some(("refresh", token)) if token == format!("rt-{}", self.current) && self.reused.is_empty() => {
                self.current += 1;
                self.refreshes += 1;
                self.uses = 0;
                format!(r#"{{"access_token":"at-{0}","refresh_token":"rt-{0}"}}"#, self.current)
            }
            _ => {
                self.reused.push(line.to_owned());
                r#"{"error":"invalid_grant"}"#.into()
            }
        }
    }
}

fn ask(address: &str, line: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    writeln!(stream, "{line}").unwrap();
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).unwrap();
    answer.trim().to_owned()
}

/// What each of the processes does: calls, with the tokens of all.
fn child(address: &str, folder: &Path) {
    let store = Arc::new(FileStore::open(folder).unwrap());
    let mut keeper = Keeper::new(store, StoreKey::new(SERVER, ""));
    let mut login = Login::new(LoginConfig::new(SERVER, "test"), Box::new(|bytes: &mut [u8]| bytes.fill(7)));
    let (now, process) = (Now { unix: 1000, ..Now::default() }, std::process::id());
    let mut done = 0;
    let mut lost = 0;
    while done < CALLS {
        login.authorize(Tag(0), "POST", now);
        while let Some(output) = login.poll_output() {
            match output {
                Output::Store(id, task) => {
                    if let Some(answer) = keeper.perform(task) {
                        login.handle_store(id, answer, now);
                    }
                }
                Output::Request(request) => {
                    let form = request.body.expose().to_owned();
                    match form.split_once("refresh_token=rt-") {
                        Some((_, rest)) => {
                            let body = ask(address, &format!("refresh rt-{}", rest.split('&').next().unwrap()));
                            let answer = Answer::Response { status: 200, headers: &[], body: body.as_bytes() };
                            login.handle_response(request.id, answer, now);
                        }
                        // The tokens of one call were used up by others twice: it is made again.
                        None => login.handle_response(request.id, Answer::Failed, now),
                    }
                }
                Output::Send(tag, headers) => {
                    if ask(address, &format!("call {process} {}", headers[0].1.expose())) == "200" {
                        login.finished(tag);
                        done += 1;
                    } else {
                        login.handle_rejected(tag, 401, &["Bearer"], None, now);
                    }
                }
                Output::GiveUp(..) => {
                    lost += 1;
                    assert!(lost < CALLS, "no call gets through");
                    login.restart();
                }
                output => panic!("{output:?}"),
            }
        }
    }
}

#[test]
fn eight_processes_with_one_refresh_token_never_use_it_twice() {
    if let (Ok(address), Ok(folder)) = (std::env::var("AUTH_TEST_SERVER"), std::env::var("AUTH_TEST_FOLDER")) {
        return child(&address, Path::new(&folder));
    }
    let folder = folder("family");
    let store = FileStore::open(&folder).unwrap();
    store.save(&StoreKey::new(SERVER, ""), &tokens()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let family = Arc::new(Mutex::new(Family::default()));
    let served = Arc::clone(&family);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            let answer = served.lock().unwrap().answer(line.trim());
            writeln!(stream, "{answer}").unwrap();
        }
    });
    let start = |_| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "eight_processes_with_one_refresh_token_never_use_it_twice"]);
        command.env("AUTH_TEST_SERVER", &address).env("AUTH_TEST_FOLDER", &folder).spawn().unwrap()
    };
    let children: Vec<_> = (0..PROCESSES).map(start).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let family = family.lock().unwrap();
    assert_eq!(family.reused, [""; 0], "a refresh token was used twice");
    assert_eq!(family.callers.len(), PROCESSES);
    assert!(family.refreshes as usize >= PROCESSES * CALLS / USES as usize - 1, "{} refreshes", family.refreshes);
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_store_keeps_what_it_was_given_and_excludes_others_by_its_lock() {
    let folder = folder("store");
    let stores: [Arc<dyn TokenStore>; 2] = [Arc::new(MemoryStore::default()), Arc::new(FileStore::open(&folder).unwrap())];
    for store in stores {
        let (key, other) = (StoreKey::new(SERVER, "me"), StoreKey::new(SERVER, "you"));
        let mut keeper = Keeper::new(Arc::clone(&store), key.clone());
        assert_eq!(keeper.perform(StoreTask::Lock), Some(StoreAnswer::Locked(None)));
        assert!(matches!(store.lock(&key, Duration::ZERO), Err(StoreError::Busy)));
        assert!(store.lock(&other, Duration::ZERO).is_ok(), "another key has another lock");
        assert_eq!(keeper.perform(StoreTask::Save(Box::new(tokens()))), Some(StoreAnswer::Saved(true)));
        assert_eq!(keeper.perform(StoreTask::Forget { generation: 9 }), None);
        assert_eq!(keeper.perform(StoreTask::Load), Some(StoreAnswer::Loaded(Some(tokens()))));
        assert_eq!(keeper.perform(StoreTask::Unlock), None);
        assert!(store.lock(&key, Duration::ZERO).is_ok());
        assert_eq!(keeper.perform(StoreTask::Forget { generation: 1 }), None);
        assert_eq!(store.load(&key).unwrap(), None);
        let client = tokens().client;
        store.save_registration(&client).unwrap();
        assert_eq!(store.load_registration(&client.issuer).unwrap(), Some(client.clone()));
        assert_eq!(store.load_registration("https://as.example/").unwrap(), None);
        store.forget_registration(&client.issuer).unwrap();
        assert_eq!(store.load_registration(&client.issuer).unwrap(), None);
    }
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn files_that_others_can_read_or_replace_are_refused() {
    let folder = folder("exposed");
    let store = FileStore::open(&folder).unwrap();
    let key = StoreKey::new(SERVER, "");
    store.save(&key, &tokens()).unwrap();
    let file = folder.join(format!("{}.tokens", key.as_str()));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(matches!(store.load(&key), Err(StoreError::Exposed)));
    let store = Arc::new(store);
    let mut keeper = Keeper::new(Arc::clone(&store) as Arc<dyn TokenStore>, key.clone());
    assert_eq!(keeper.perform(StoreTask::Lock), Some(StoreAnswer::Busy(None)), "that the tokens cannot be read is no logout");
    assert!(store.lock(&key, Duration::ZERO).is_ok(), "the lock is free again");
    let elsewhere = folder.join("elsewhere");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    fs::rename(&file, &elsewhere).unwrap();
    symlink(&elsewhere, &file).unwrap();
    assert!(matches!(store.load(&key), Err(StoreError::Exposed)));
    // Saving replaces the link, and does not follow it.
    let before = fs::read(&elsewhere).unwrap();
    store.save(&key, &tokens()).unwrap();
    assert_eq!(fs::read(&elsewhere).unwrap(), before);
    assert!(!fs::symlink_metadata(&file).unwrap().is_symlink());
    for unreadable in ["", "x", r#"{"version":2,"content":{}}"#] {
        fs::write(&file, unreadable).unwrap();
        assert_eq!(store.load(&key).unwrap(), None);
        assert_eq!(fs::read_to_string(&file).unwrap(), unreadable, "who only reads moves nothing");
        store.save(&key, &tokens()).unwrap();
        assert_eq!(fs::read_to_string(file.with_extension("unread")).unwrap(), unreadable, "a copy is kept");
    }
    let link = folder.join("link");
    symlink(&folder, &link).unwrap();
    assert!(matches!(FileStore::open(&link), Err(StoreError::Exposed)));
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(matches!(FileStore::open(&folder), Err(StoreError::Exposed)));
    assert!(fs::read_dir(&folder).unwrap().all(|entry| !entry.unwrap().path().to_string_lossy().ends_with(".new")));
    fs::remove_dir_all(&folder).unwrap();
}
