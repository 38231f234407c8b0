//! Breadcrumbs: files in which a gateway announces each unclaimed code that it has made. Another gateway of the same user that gets such a
//! code from its agent can then name the gateway that the code belongs to (`docs/protocols/tesseron.md`, "Files").
//!
//! The file is named after the code. Only this user can read it. It is removed when the app's session is claimed or has ended, or when the
//! agent's session has ended. The first time that a gateway scans for apps, it also removes old breadcrumbs ([`sweep`]). A breadcrumb gives
//! no access to an app: its contents are only shown to people.

use std::borrow::Cow;
use std::format;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::string::String;

use serde::{Deserialize, Serialize};

use crate::claims::{ClaimCode, Pending};
use crate::net::TesseronError;
use crate::net::home::{self, PrivateFile};
use crate::net::{Home, instance};

/// The version of breadcrumbs that is written and read.
const VERSION: u32 = 1;
/// The maximum size of a breadcrumb that is read, in bytes. Our own breadcrumbs have less than 1 KiB, since names and ids are bounded.
const MAX_BREADCRUMB_BYTES: usize = 4 * 1024;
/// The maximum number of files that one sweep reads.
const MAX_FILES: usize = 1024;
/// The time for which a breadcrumb is valid, in milliseconds: 24 h. Later, the process id in the breadcrumb may belong to another process.
const LIFE_MS: u64 = 24 * 60 * 60 * 1000;
/// The age from which a sweep removes the breadcrumb of a dead process, in milliseconds: 1 h. Until then an agent that gives its code gets
/// a message that names the dead process ([`Minter::why_not_here`]).
const STALE_MS: u64 = 60 * 60 * 1000;
/// The maximum time by which the writer's clock may be ahead, in milliseconds: 10 min.
const AHEAD_MS: u64 = 10 * 60 * 1000;

/// A breadcrumb of this gateway. Dropping it removes the file, unless another gateway has replaced it.
#[derive(Debug)]
pub(super) struct Breadcrumb(#[expect(dead_code, reason = "dropping it removes the file")] PrivateFile);

impl Breadcrumb {
    /// Writes the breadcrumb of a session that waits to be claimed.
    pub(super) fn write(home: &Home, pending: &Pending, app_name: &str) -> Result<Self, TesseronError> {
        let app_name = if instance::is_name(app_name) { app_name } else { pending.app.as_str() };
        home.make(&home.claims())?;
        let mut file = PrivateFile::at(path(home, &pending.code));
        let document = Document {
            version: VERSION,
            code: pending.code.reveal().into(),
            session_id: pending.session_id.as_str().into(),
            app_id: pending.app.as_str().into(),
            app_name: app_name.into(),
            gateway_pid: std::process::id(),
            minted_at: pending.minted_at,
        };
        let written = serde_json::to_vec(&document).map_err(io::Error::from).and_then(|bytes| file.write(&bytes));
        written.map_err(|source| TesseronError::Breadcrumb { folder: home.claims(), source })?;
        Ok(Self(file))
    }
}

/// The gateway that has made a code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Minter {
    app_name: String,
    process: u32,
    is_alive: bool,
}

impl Minter {
    /// Reads the breadcrumb for this code, if there is one. `epoch_ms` is the current time.
    pub(super) fn of(home: &Home, code: &ClaimCode, epoch_ms: u64) -> Option<Self> {
        home.check(&home.claims()).ok().filter(|exists| *exists)?;
        read(&path(home, code)).filter(|found| found.is_current(epoch_ms)).map(|found| found.minter)
    }

    /// The message that explains why the code cannot be claimed at this gateway.
    pub(super) fn why_not_here(&self) -> String {
        let Self { app_name, process, is_alive } = self;
        if !is_alive {
            return format!(
                "it was made by a gateway that has ended (process {process}); {app_name} shows a new code once this gateway is connected"
            );
        }
        if *process == std::process::id() {
            return format!("the session of {app_name} for which it was made has ended");
        }
        format!(
            "{app_name} is with another gateway (process {process}); only the agent of that gateway can claim the app, until the gateway ends"
        )
    }
}

/// Removes each breadcrumb that is older than 24 h, or more than 10 min ahead of the clock, or older than 1 h if its process is dead. Reads
/// at most 1024 files.
pub(super) fn sweep(home: &Home, epoch_ms: u64) -> Result<(), TesseronError> {
    let folder = home.claims();
    let refused = |refused| TesseronError::Folder { path: home.claims(), refused };
    if !home.check(&folder)? {
        return Ok(());
    }
    let entries = fs::read_dir(&folder).map_err(|error| refused(error.into()))?;
    for path in entries.flatten().take(MAX_FILES).map(|entry| entry.path()) {
        if let Some(found) = read(&path)
            && (!found.is_current(epoch_ms) || found.is_left_by_dead_process(epoch_ms))
            && home::is_at(&found.file, &path)
        {
            // If the file cannot be removed now, the next sweep finds it again.
            let _ = fs::remove_file(&path);
        }
    }
    Ok(())
}

fn path(home: &Home, code: &ClaimCode) -> PathBuf {
    home.claims().join(format!("{}.json", code.reveal()))
}

/// A breadcrumb that was read.
struct Found {
    minter: Minter,
    minted_at: u64,
    file: File,
}

impl Found {
    fn is_current(&self, epoch_ms: u64) -> bool {
        self.minted_at <= epoch_ms.saturating_add(AHEAD_MS) && epoch_ms.saturating_sub(self.minted_at) <= LIFE_MS
    }

    fn is_left_by_dead_process(&self, epoch_ms: u64) -> bool {
        !self.minter.is_alive && epoch_ms.saturating_sub(self.minted_at) > STALE_MS
    }
}

/// Reads a file, if it is a breadcrumb.
fn read(path: &Path) -> Option<Found> {
    let (file, bytes) = instance::read_file(path, MAX_BREADCRUMB_BYTES).ok()?;
    // Parsed as an object first, since serde also accepts an array for a struct.
    let object: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(&bytes).ok()?;
    let document = Document::deserialize(serde_json::Value::Object(object)).ok()?;
    let is_named_after_code = path.file_name().is_some_and(|name| *name == *format!("{}.json", document.code));
    let is_valid = document.version == VERSION && is_named_after_code && instance::is_name(&document.app_name);
    let minter = Minter {
        app_name: document.app_name.into_owned(),
        process: document.gateway_pid,
        is_alive: home::is_alive(document.gateway_pid),
    };
    is_valid.then_some(Found { minter, minted_at: document.minted_at, file })
}

/// The contents of a breadcrumb.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    version: u32,
    code: Cow<'a, str>,
    session_id: Cow<'a, str>,
    app_id: Cow<'a, str>,
    app_name: Cow<'a, str>,
    gateway_pid: u32,
    minted_at: u64,
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::{RegistryPolicy, SessionRegistry};
    use crate::net::FolderRefused;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::process::Command;
    use std::string::ToString;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::vec::Vec;

    const NOW: u64 = 1_795_263_172_478;

    /// A temporary home folder, removed at the end of the test.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new() -> Self {
            static NEXT: AtomicUsize = AtomicUsize::new(0);
            let name = format!("breadcrumbs-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
            Self(std::env::temp_dir().join(name))
        }

        fn home(&self) -> Home {
            Home::at(&self.0)
        }

        /// Writes a file.
        fn put(&self, name: &str, content: &str) -> PathBuf {
            self.home().make(&self.home().claims()).unwrap();
            let path = self.home().claims().join(name);
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            path
        }

        fn minter(&self, code: &str) -> Option<Minter> {
            Minter::of(&self.home(), &ClaimCode::parse(code).unwrap(), NOW)
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(self.home().claims()).unwrap();
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort_unstable();
            names
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    /// A session that waits to be claimed.
    fn pending() -> Pending {
        let mut registry = SessionRegistry::new(RegistryPolicy::default());
        let channel = registry.open(crate::claims::Dial::Unbound).unwrap();
        registry.hello(channel, "ledger", NOW, &mut |bytes| bytes.fill(7)).unwrap();
        registry.pending().remove(0)
    }

    /// A breadcrumb for `PQ7N-4D` of another gateway, with one member changed.
    fn with(member: &str, value: serde_json::Value) -> String {
        let mut document = serde_json::json!({
            "version": 1, "code": "PQ7N-4D", "sessionId": "s_k3j9x0aammwz1q2p", "appId": "ledger", "appName": "Ledger",
            "gatewayPid": parent(), "mintedAt": NOW,
        });
        document[member] = value;
        document.to_string()
    }

    /// A breadcrumb for `PQ7N-4D` of a gateway whose process id is `process`.
    fn of(process: u32) -> String {
        with("gatewayPid", process.into())
    }

    /// A live process other than this one.
    fn parent() -> u32 {
        std::os::unix::process::parent_id()
    }

    /// A process that has ended.
    fn dead() -> u32 {
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        child.id()
    }

    #[test]
    fn a_breadcrumb_has_the_specified_members_is_private_and_is_removed_with_its_session() {
        let (scratch, pending) = (Scratch::new(), pending());
        let code = pending.code.reveal();
        let breadcrumb = Breadcrumb::write(&scratch.home(), &pending, "Ledger").unwrap();
        let path = scratch.home().claims().join(format!("{code}.json"));
        let written: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let expected = serde_json::json!({
            "version": 1, "code": code, "sessionId": pending.session_id.as_str(), "appId": "ledger", "appName": "Ledger",
            "gatewayPid": std::process::id(), "mintedAt": NOW,
        });
        assert_eq!(written, expected);
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        assert_eq!(scratch.names(), [format!("{code}.json")], "no other file remains");
        assert_eq!(scratch.minter(code).unwrap().process, std::process::id());
        drop(breadcrumb);
        assert_eq!(scratch.names(), [""; 0]);
    }

    #[test]
    fn an_app_name_that_is_unsafe_to_show_is_replaced_by_the_id_of_the_app() {
        let (scratch, pending) = (Scratch::new(), pending());
        for name in ["", "two\nlines", "\u{1b}[2J", &"x".repeat(257)] {
            let _breadcrumb = Breadcrumb::write(&scratch.home(), &pending, name).unwrap();
            assert_eq!(scratch.minter(pending.code.reveal()).unwrap().app_name, "ledger");
        }
    }

    #[test]
    fn the_breadcrumb_of_a_gateway_that_minted_the_same_code_is_left_alone() {
        let (scratch, pending) = (Scratch::new(), pending());
        let breadcrumb = Breadcrumb::write(&scratch.home(), &pending, "Ledger").unwrap();
        let name = format!("{}.json", pending.code.reveal());
        let path = scratch.put("theirs", "theirs");
        fs::rename(path, scratch.home().claims().join(&name)).unwrap();
        drop(breadcrumb);
        assert_eq!(scratch.names(), [name]);
    }

    #[test]
    fn the_message_for_a_code_names_the_gateway_that_minted_it() {
        let scratch = Scratch::new();
        let (dead, here) = (dead(), std::process::id());
        for (process, words) in [
            (parent(), format!("Ledger is with another gateway (process {})", parent())),
            (dead, format!("a gateway that has ended (process {dead})")),
            (here, "the session of Ledger for which it was made has ended".into()),
        ] {
            scratch.put("PQ7N-4D.json", &of(process));
            let why = scratch.minter("pq7n-4d").unwrap().why_not_here();
            assert!(why.contains(&words), "{why}");
        }
        assert_eq!(scratch.minter("AB3X-7K"), None);
    }

    #[test]
    fn a_file_that_is_no_current_breadcrumb_is_ignored() {
        let scratch = Scratch::new();
        let long = "x".repeat(257);
        let whole = of(parent());
        for content in [
            String::new(),
            "{".into(),
            "null".into(),
            format!("[{whole}]"),
            format!("{whole}{}", " ".repeat(MAX_BREADCRUMB_BYTES)),
            "[".repeat(MAX_BREADCRUMB_BYTES),
            with("version", 2.into()),
            with("code", "AB3X-7K".into()),
            with("code", "../PQ7N-4D".into()),
            with("appName", "two\nlines".into()),
            with("appName", long.as_str().into()),
            with("appName", 1.into()),
            with("gatewayPid", (-1).into()),
            with("gatewayPid", "1".into()),
            with("mintedAt", "now".into()),
            with("mintedAt", (NOW - LIFE_MS - 1).into()),
            with("mintedAt", (NOW + AHEAD_MS + 1).into()),
            with("mintedAt", u64::MAX.into()),
        ] {
            scratch.put("PQ7N-4D.json", &content);
            assert_eq!(scratch.minter("PQ7N-4D"), None, "{content:.200}");
        }
        for minted_at in [NOW - LIFE_MS, NOW + AHEAD_MS] {
            scratch.put("PQ7N-4D.json", &with("mintedAt", minted_at.into()));
            assert!(scratch.minter("PQ7N-4D").is_some());
        }
        // No process has the id 0.
        scratch.put("PQ7N-4D.json", &of(0));
        assert!(!scratch.minter("PQ7N-4D").unwrap().is_alive);
    }

    #[test]
    fn a_link_and_a_file_that_others_may_write_are_ignored() {
        let scratch = Scratch::new();
        let path = scratch.put("PQ7N-4D.json", &of(parent()));
        for mode in [0o620, 0o602] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(scratch.minter("PQ7N-4D"), None);
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let elsewhere = scratch.home().claims().join("elsewhere");
        fs::rename(&path, &elsewhere).unwrap();
        symlink(&elsewhere, &path).unwrap();
        assert_eq!(scratch.minter("PQ7N-4D"), None);
        fs::remove_file(&path).unwrap();
        fs::rename(&elsewhere, &path).unwrap();
        assert!(scratch.minter("PQ7N-4D").is_some());
        let folder = scratch.home().claims();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o770)).unwrap();
        assert_eq!(scratch.minter("PQ7N-4D"), None);
        assert!(matches!(sweep(&scratch.home(), NOW), Err(TesseronError::Folder { refused: FolderRefused::Open(0o770), .. })));
        let written = Breadcrumb::write(&scratch.home(), &pending(), "Ledger");
        assert!(
            matches!(written, Err(TesseronError::Folder { refused: FolderRefused::Open(0o770), .. })),
            "nothing is written there"
        );
    }

    /// In the field this error gave the path of the file, and so the code that the file is named after.
    #[test]
    fn the_error_for_a_breadcrumb_that_cannot_be_written_names_its_folder_and_not_its_code() {
        let (scratch, pending) = (Scratch::new(), pending());
        let path = scratch.home().claims().join(format!("{}.json", pending.code.reveal()));
        scratch.home().make(&scratch.home().claims()).unwrap();
        fs::create_dir(&path).unwrap();
        let error = Breadcrumb::write(&scratch.home(), &pending, "Ledger").unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot write a file to {}: ", path.parent().unwrap().display())), "{error}");
        assert!(!error.contains(pending.code.reveal()), "{error}");
    }

    #[test]
    fn a_sweep_removes_only_old_breadcrumbs() {
        let scratch = Scratch::new();
        sweep(&scratch.home(), NOW).unwrap();
        let of_code = |code: &str, document: String| document.replace("PQ7N-4D", code);
        let (dead, hour_ago) = (dead(), NOW - STALE_MS - 1);
        let long_dead = of(dead).replace(&NOW.to_string(), &hour_ago.to_string());
        for (name, content) in [
            ("DEAD-11.json", of_code("DEAD-11", long_dead.clone())),
            ("JUST-11.json", of_code("JUST-11", of(dead))),
            ("LONG-11.json", of_code("LONG-11", with("mintedAt", hour_ago.into()))),
            ("PAST-11.json", of_code("PAST-11", with("mintedAt", 0.into()))),
            ("LATE-11.json", of_code("LATE-11", with("mintedAt", u64::MAX.into()))),
            ("LIVE-11.json", of_code("LIVE-11", of(parent()))),
            ("README.md", long_dead.clone()),
            ("OTHER.json", long_dead),
            ("TEXT.json", "text".into()),
        ] {
            scratch.put(name, &content);
        }
        sweep(&scratch.home(), NOW).unwrap();
        let kept = ["JUST-11.json", "LIVE-11.json", "LONG-11.json", "OTHER.json", "README.md", "TEXT.json"];
        assert_eq!(scratch.names(), kept);
    }
}
