//! Manifests: files by which the gateways of a user find the user's apps.

use core::fmt;
use std::borrow::Cow;
use std::fs::{self, File};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::string::String;
use std::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::claims::{Agent, Claim, ClaimCode, ResumeToken, SessionId};
use crate::net::TesseronError;
use crate::net::home::{self, PrivateFile};
use crate::net::{Home, LoopbackUrl, NotLoopback};

/// The version of manifests that is written and read.
const VERSION: u32 = 2;
/// The maximum size of a manifest, in bytes.
const MAX_MANIFEST_BYTES: usize = 64 * 1024;
/// The maximum number of files that are read.
const MAX_FILES: usize = 1024;
/// The maximum length of an id, in bytes.
const MAX_ID_BYTES: usize = 128;
const MAX_NAME_BYTES: usize = 256;
/// The maximum length of the path of a Unix socket, in bytes, on the system with the lowest limit.
const MAX_PATH_BYTES: usize = 103;

/// A running app, as its manifest describes it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Instance {
    /// The id of the instance, which is the name of the manifest without `.json`. It contains no path separator.
    pub id: String,
    /// The name of the app for people, without control characters.
    pub app_name: String,
    /// The time when the app was started, in milliseconds since 1970.
    pub added_at: u64,
    /// The id of the app's process; `None` if the manifest does not contain it.
    pub process: Option<u32>,
    /// The address that the app listens on.
    pub address: Address,
    /// `true` if the app has made its own claim and waits for a bind with its code.
    pub hello_handled_by_host: bool,
    /// The claim that the app has made; `None` if the manifest contains none.
    pub claim: Option<Claim>,
}

/// The address that an app listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Address {
    /// A WebSocket.
    WebSocket(LoopbackUrl),
    /// A Unix socket.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WebSocket(url) => f.write_str(url.as_str()),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

impl Instance {
    /// Returns `true` if the app can be claimed at the time `epoch_ms`, in milliseconds since 1970: it has a claim that has not expired,
    /// and no agent has claimed it.
    #[must_use]
    pub fn is_claimable(&self, epoch_ms: u64) -> bool {
        self.claim.as_ref().is_some_and(|claim| claim.bound_agent.is_none() && claim.expires_at >= epoch_ms)
    }

    fn document(&self) -> Document<'_> {
        let transport = match &self.address {
            Address::WebSocket(url) => Transport::Ws { url: url.as_str().into() },
            // Our own paths are UTF-8, since other paths were refused.
            Address::Unix(path) => Transport::Uds { path: path.to_string_lossy() },
        };
        Document {
            version: VERSION,
            instance_id: self.id.as_str().into(),
            app_name: self.app_name.as_str().into(),
            added_at: self.added_at,
            pid: self.process,
            transport,
            hello_handled_by_host: self.hello_handled_by_host,
            host_minted_claim: self.claim.as_ref().map(MintedClaim::of),
        }
    }
}

/// The manifest of an app of this process. Dropping this removes the file, unless another file has replaced it.
#[derive(Debug)]
pub(super) struct Manifest {
    instance: Instance,
    file: PrivateFile,
}

impl Manifest {
    /// Prepares the manifest. Nothing is written yet.
    pub(super) fn new(home: &Home, instance: Instance) -> Result<Self, TesseronError> {
        let folder = home.instances();
        home.make(&folder)?;
        let mut name = instance.id.clone();
        name.push_str(".json");
        Ok(Self { instance, file: PrivateFile::at(folder.join(name)) })
    }

    pub(super) fn path(&self) -> &Path {
        self.file.path()
    }

    pub(super) fn address(&self) -> &Address {
        &self.instance.address
    }

    /// Writes the manifest with this claim.
    pub(super) fn publish(&mut self, claim: Option<&Claim>) -> Result<(), TesseronError> {
        self.instance.claim = claim.cloned();
        let written = serde_json::to_vec(&self.instance.document()).map_err(io::Error::from);
        written
            .and_then(|bytes| self.file.write(&bytes))
            .map_err(|source| TesseronError::Manifest { path: self.path().into(), source })
    }

    pub(super) fn remove(&mut self) {
        self.file.remove();
    }
}

/// A manifest that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the manifest {} is not used: {reason}", path.display())]
#[non_exhaustive]
pub struct ManifestRefused {
    /// The path of the file.
    pub path: PathBuf,
    /// The reason.
    pub reason: RefusedFor,
    /// The file that was read, kept open so that [`Self::remove_if_dead`] can check that `path` still leads to it.
    file: Option<HiddenFile>,
}

/// An open file, hidden in debug output.
struct HiddenFile(File);

impl fmt::Debug for HiddenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}

impl ManifestRefused {
    /// Removes the manifest if its process is dead ([`RefusedFor::Dead`]), unless another file has replaced it.
    ///
    /// # Errors
    /// The error of the system.
    pub fn remove_if_dead(&self) -> io::Result<()> {
        let is_same_file =
            matches!(self.reason, RefusedFor::Dead(_)) && self.file.as_ref().is_some_and(|file| home::is_at(&file.0, &self.path));
        if is_same_file { fs::remove_file(&self.path) } else { Ok(()) }
    }
}

/// The reason why a manifest cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RefusedFor {
    /// The file cannot be read.
    #[error(transparent)]
    Unreadable(#[from] io::Error),
    /// The path names a link, a folder, a pipe or the like, and not a regular file.
    #[error("it is no plain file")]
    NotAFile,
    /// The file belongs to another user.
    #[error("it belongs to another user")]
    Foreign,
    /// Other users may write it. Contains its permissions.
    #[error("others may write it (mode {0:o})")]
    Open(u32),
    /// The file has more than 64 KiB.
    #[error("it is too large")]
    TooLarge,
    /// The content is not a JSON object.
    #[error("it is no JSON object")]
    NoObject,
    /// The version of the manifest is missing, or not 2.
    #[error("it is not of version {VERSION}")]
    Version,
    /// A member is missing, or has another type or a number that is out of range.
    #[error("it is malformed")]
    Malformed,
    /// The id is not the name of the file, is empty, has over 128 bytes, begins with a dot, or has characters other than letters, digits,
    /// `_`, `-` and `.`.
    #[error("its id is not the name of the file")]
    Id,
    /// The name of the app is empty, has over 256 bytes, or has a control character.
    #[error("its name is unfit to be shown")]
    Name,
    /// The claim has an invalid code, session id or token.
    #[error("its claim is malformed")]
    Claim,
    /// The URL does not lead to this machine.
    #[error(transparent)]
    NotLoopback(#[from] NotLoopback),
    /// The path of the socket is not absolute, has over 103 bytes, or contains `..` or a control character.
    #[error("its path is unfit for a socket")]
    Path,
    /// The process of the app is dead.
    #[error("its process {0} is dead")]
    Dead(u32),
}

impl Home {
    /// Reads the manifests of all apps of this user, in no particular order: the files `*.json`, at most 1024 of them. A manifest that
    /// cannot be used is an error in the list. Without the folder the list is empty.
    ///
    /// # Errors
    /// [`TesseronError::Folder`] if the folder, or the folder `.tesseron` that it is in, belongs to another user, may be written by other
    /// users, is no folder or cannot be read.
    pub fn read_instances(&self) -> Result<Vec<Result<Instance, ManifestRefused>>, TesseronError> {
        let folder = self.instances();
        let refused = |refused| TesseronError::Folder { path: self.instances(), refused };
        if !self.check(&folder)? {
            return Ok(Vec::new());
        }
        let entries = fs::read_dir(&folder).map_err(|error| refused(error.into()))?;
        let paths = entries.flatten().map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|kind| kind == "json"));
        Ok(paths.take(MAX_FILES).map(|path| read(&path)).collect())
    }
}

fn read(path: &Path) -> Result<Instance, ManifestRefused> {
    let refused = |reason, file| ManifestRefused { path: path.into(), reason, file };
    let (file, bytes) = read_file(path, MAX_MANIFEST_BYTES).map_err(|reason| refused(reason, None))?;
    let id = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    parse(&bytes, id).map_err(|reason| refused(reason, Some(HiddenFile(file))))
}

/// Reads a regular file that only this user can have written, of at most `largest` bytes.
pub(super) fn read_file(path: &Path, largest: usize) -> Result<(File, Vec<u8>), RefusedFor> {
    // The kind of the file is checked before it is opened, since opening a pipe or a device may have effects. A link is not followed.
    if !fs::symlink_metadata(path)?.is_file() {
        return Err(RefusedFor::NotAFile);
    }
    let file = home::open(path)?;
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(RefusedFor::NotAFile);
    }
    if !home::is_ours(&about) {
        return Err(RefusedFor::Foreign);
    }
    if home::mode(&about) & home::WRITABLE_BY_OTHERS != 0 {
        return Err(RefusedFor::Open(home::mode(&about)));
    }
    let bytes = home::read_at_most(&file, largest)?.ok_or(RefusedFor::TooLarge)?;
    Ok((file, bytes))
}

fn parse(bytes: &[u8], id: &str) -> Result<Instance, RefusedFor> {
    // Parsed as an object first, since serde also accepts an array for a struct.
    let object: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(bytes).map_err(|_| RefusedFor::NoObject)?;
    if object.get("version").and_then(serde_json::Value::as_u64) != Some(VERSION.into()) {
        return Err(RefusedFor::Version);
    }
    let document = Document::deserialize(serde_json::Value::Object(object)).map_err(|_| RefusedFor::Malformed)?;
    if document.instance_id != id || !is_id(id) {
        return Err(RefusedFor::Id);
    }
    if !is_name(&document.app_name) {
        return Err(RefusedFor::Name);
    }
    let address = match document.transport {
        Transport::Ws { url } => Address::WebSocket(LoopbackUrl::parse(&url)?),
        Transport::Uds { path } if is_socket_path(Path::new(&*path)) => Address::Unix(path.into_owned().into()),
        Transport::Uds { .. } => return Err(RefusedFor::Path),
    };
    let claim = document.host_minted_claim.map(|claim| claim.read().ok_or(RefusedFor::Claim)).transpose()?;
    // The process is checked last, so that only a valid manifest can be removed as that of a dead process.
    if let Some(process) = document.pid.filter(|process| !home::is_alive(*process)) {
        return Err(RefusedFor::Dead(process));
    }
    Ok(Instance {
        id: id.into(),
        app_name: document.app_name.into_owned(),
        added_at: document.added_at,
        process: document.pid,
        address,
        hello_handled_by_host: document.hello_handled_by_host,
        claim,
    })
}

fn is_id(id: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    !id.is_empty() && id.len() <= MAX_ID_BYTES && !id.starts_with('.') && id.bytes().all(fits)
}

/// Returns `true` if a name can be shown to a person unchanged.
pub(super) fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= MAX_NAME_BYTES && !name.chars().any(char::is_control)
}

/// Returns `true` if a path is valid for a socket and in a manifest.
pub(super) fn is_socket_path(path: &Path) -> bool {
    let fits = |text: &str| text.len() <= MAX_PATH_BYTES && !text.chars().any(char::is_control);
    path.is_absolute() && path.to_str().is_some_and(fits) && !path.components().any(|part| part == Component::ParentDir)
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    version: u32,
    instance_id: Cow<'a, str>,
    app_name: Cow<'a, str>,
    added_at: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    transport: Transport<'a>,
    #[serde(default, skip_serializing_if = "is_false")]
    hello_handled_by_host: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    host_minted_claim: Option<MintedClaim<'a>>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_false(value: &bool) -> bool {
    !value
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Transport<'a> {
    Ws { url: Cow<'a, str> },
    Uds { path: Cow<'a, str> },
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct MintedClaim<'a> {
    code: Cow<'a, str>,
    session_id: Cow<'a, str>,
    resume_token: Cow<'a, str>,
    minted_at: u64,
    /// `None` if the claim does not expire.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<u64>,
    bound_agent: Option<BoundAgent<'a>>,
}

#[derive(Serialize, Deserialize)]
struct BoundAgent<'a> {
    id: Cow<'a, str>,
    name: Cow<'a, str>,
}

impl<'a> MintedClaim<'a> {
    fn of(claim: &'a Claim) -> Self {
        Self {
            code: claim.code.reveal().into(),
            session_id: claim.session_id.as_str().into(),
            resume_token: claim.resume_token.reveal().into(),
            minted_at: claim.minted_at,
            expires_at: Some(claim.expires_at),
            bound_agent: claim.bound_agent.as_ref().map(|agent| BoundAgent { id: (*agent.id).into(), name: (*agent.name).into() }),
        }
    }

    fn read(&self) -> Option<Claim> {
        Some(Claim {
            code: ClaimCode::parse(&self.code).ok()?,
            session_id: SessionId::parse(&self.session_id).ok()?,
            resume_token: ResumeToken::parse(&self.resume_token).ok()?,
            minted_at: self.minted_at,
            expires_at: self.expires_at.unwrap_or(u64::MAX),
            bound_agent: self.bound_agent.as_ref().map(|agent| Agent { id: (&*agent.id).into(), name: (&*agent.name).into() }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::vec;

    /// A temporary home folder, removed at the end of the test.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new() -> Self {
            static NEXT: AtomicUsize = AtomicUsize::new(0);
            let name = format!("instances-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
            Self(std::env::temp_dir().join(name))
        }

        fn home(&self) -> Home {
            Home::at(&self.0)
        }

        /// Writes a file into the folder of manifests, and returns its path.
        fn put(&self, name: &str, content: &str) -> PathBuf {
            self.home().make(&self.home().instances()).unwrap();
            let path = self.home().instances().join(name);
            PrivateFile::at(path.clone()).keep(content.as_bytes());
            path
        }

        /// The error of the only manifest.
        fn refusal(&self) -> ManifestRefused {
            let [Err(refused)] = <[_; 1]>::try_from(self.home().read_instances().unwrap()).unwrap() else {
                panic!("it is not refused")
            };
            refused
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    impl PrivateFile {
        /// Writes the file, which is not removed afterwards.
        fn keep(mut self, bytes: &[u8]) {
            self.write(bytes).unwrap();
            std::mem::forget(self);
        }
    }

    /// A recorded manifest of the reference implementation, without its process id.
    const RECORDED: &str = r#"{"version":2,"instanceId":"inst-mwqdc9dk-65806c3c","appName":"interop-app","addedAt":1795263172478,
        "transport":{"kind":"ws","url":"ws://127.0.0.1:45987/"},"helloHandledByHost":true,"hostMintedClaim":{"code":"NATB-BJ",
        "sessionId":"s_f1tvekrlmwqdc9dl","resumeToken":"4Idnys-EN0SoJJl-Oht8JVI_Ps3cE1PM","mintedAt":1795263172472,
        "expiresAt":1795263772472,"boundAgent":null}}"#;

    /// The recorded manifest with one member changed, or removed if `value` is null.
    fn with(member: &str, value: serde_json::Value) -> String {
        let mut manifest: serde_json::Value = serde_json::from_str(RECORDED).unwrap();
        let (path, name) = member.rsplit_once('/').unwrap_or(("", member));
        let object = manifest.pointer_mut(path).unwrap().as_object_mut().unwrap();
        if value.is_null() {
            object.remove(name)
        } else {
            object.insert(name.into(), value)
        };
        manifest.to_string()
    }

    fn parsed(manifest: &str) -> Result<Instance, RefusedFor> {
        parse(manifest.as_bytes(), "inst-mwqdc9dk-65806c3c")
    }

    #[test]
    fn a_manifest_of_the_reference_is_read() {
        let instance = parsed(RECORDED).unwrap();
        assert_eq!((instance.app_name.as_str(), instance.added_at, instance.process), ("interop-app", 1_795_263_172_478, None));
        assert_eq!(instance.address.to_string(), "ws://127.0.0.1:45987/");
        let claim = instance.claim.as_ref().unwrap();
        assert_eq!((claim.code.reveal(), claim.session_id.as_str()), ("NATB-BJ", "s_f1tvekrlmwqdc9dl"));
        assert!(instance.hello_handled_by_host);
        assert!(instance.is_claimable(1_795_263_772_472));
        assert!(!instance.is_claimable(1_795_263_772_473), "it has expired");
    }

    #[test]
    fn a_manifest_may_have_no_claim_a_bound_or_lasting_claim_unknown_members_or_a_unix_socket() {
        let plain = parsed(&with("hostMintedClaim", serde_json::Value::Null)).unwrap();
        assert!(plain.claim.is_none() && !plain.is_claimable(0));
        let bound = parsed(&with("/hostMintedClaim/boundAgent", serde_json::json!({"id": "a", "name": "An agent"}))).unwrap();
        assert!(!bound.is_claimable(0), "it is spent");
        let lasting = parsed(&with("/hostMintedClaim/expiresAt", serde_json::Value::Null)).unwrap();
        assert!(lasting.is_claimable(u64::MAX), "it does not expire");
        assert!(parsed(&with("unknownField", 1.into())).is_ok());
        let unix = parsed(&with("transport", serde_json::json!({"kind": "uds", "path": "/run/user/1/a.sock"}))).unwrap();
        assert_eq!(unix.address, Address::Unix("/run/user/1/a.sock".into()));
    }

    #[test]
    fn a_file_that_is_not_a_manifest_is_refused_with_a_reason() {
        let long = "x".repeat(300);
        for (manifest, reason) in [
            (String::new(), "it is no JSON object"),
            ("{".into(), "it is no JSON object"),
            ("null".into(), "it is no JSON object"),
            (format!("[{RECORDED}]"), "it is no JSON object"),
            (format!("{}{}", "[".repeat(10_000), "]".repeat(10_000)), "it is no JSON object"),
            ("{}".into(), "it is not of version 2"),
            (with("version", 3.into()), "it is not of version 2"),
            (with("version", 1.into()), "it is not of version 2"),
            (with("version", "2".into()), "it is not of version 2"),
            (with("instanceId", "inst-other".into()), "its id is not the name of the file"),
            (with("instanceId", 1.into()), "it is malformed"),
            (with("appName", serde_json::Value::Null), "it is malformed"),
            (with("appName", "".into()), "its name is unfit to be shown"),
            (with("appName", "two\nlines".into()), "its name is unfit to be shown"),
            (with("appName", "\u{1b}[2J".into()), "its name is unfit to be shown"),
            (with("appName", long.as_str().into()), "its name is unfit to be shown"),
            (with("addedAt", (-1).into()), "it is malformed"),
            (with("addedAt", 1.5.into()), "it is malformed"),
            (with("pid", (-1).into()), "it is malformed"),
            (with("pid", 5_000_000_000_u64.into()), "it is malformed"),
            (with("transport", serde_json::Value::Null), "it is malformed"),
            (with("/transport/kind", "tcp".into()), "it is malformed"),
            (with("helloHandledByHost", "yes".into()), "it is malformed"),
            (with("hostMintedClaim", vec![1].into()), "it is malformed"),
            (with("/hostMintedClaim/code", "../../x".into()), "its claim is malformed"),
            (with("/hostMintedClaim/code", "A\r\nHost: x".into()), "its claim is malformed"),
            (with("/hostMintedClaim/code", long.as_str().into()), "its claim is malformed"),
            (with("/hostMintedClaim/code", serde_json::Value::Null), "it is malformed"),
            (with("/hostMintedClaim/sessionId", "".into()), "its claim is malformed"),
            (with("/hostMintedClaim/resumeToken", long.as_str().into()), "its claim is malformed"),
            (with("/hostMintedClaim/mintedAt", "now".into()), "it is malformed"),
        ] {
            assert_eq!(parsed(&manifest).unwrap_err().to_string(), reason, "{manifest}");
        }
    }

    #[test]
    fn a_manifest_with_an_unsafe_address_is_refused() {
        for url in ["ws://10.0.0.1:80/", "wss://127.0.0.1:80/", "ws://127.0.0.1:80@example.com/", "file:///etc/passwd"] {
            assert!(matches!(parsed(&with("/transport/url", url.into())), Err(RefusedFor::NotLoopback(NotLoopback))), "{url}");
        }
        for path in ["", "a.sock", "../a.sock", "/run/../etc/a.sock", "/run/a\0.sock", "/run/a\n", &format!("/{}", "x".repeat(103))]
        {
            let manifest = with("transport", serde_json::json!({"kind": "uds", "path": path}));
            assert!(matches!(parsed(&manifest), Err(RefusedFor::Path)), "{path}");
        }
    }

    #[test]
    fn an_invalid_id_is_refused_even_if_it_is_the_name_of_the_file() {
        for id in ["", ".", "..", ".hidden", "a b", "a/b", "a\u{e9}", &"x".repeat(129)] {
            let manifest = with("instanceId", id.into());
            assert!(matches!(parse(manifest.as_bytes(), id), Err(RefusedFor::Id)), "{id}");
        }
    }

    #[test]
    fn without_a_folder_of_manifests_no_app_is_listed() {
        assert!(Scratch::new().home().read_instances().unwrap().is_empty());
    }

    #[test]
    fn a_manifest_that_we_write_can_be_read_and_is_removed_when_it_is_dropped() {
        let scratch = Scratch::new();
        let instance = parsed(&with("pid", std::process::id().into())).unwrap();
        let claim = instance.claim.clone();
        let mut manifest = Manifest::new(&scratch.home(), instance).unwrap();
        assert!(scratch.home().read_instances().unwrap().is_empty(), "not yet");
        manifest.publish(claim.as_ref()).unwrap();
        let expected: serde_json::Value = serde_json::from_str(&with("pid", std::process::id().into())).unwrap();
        let written: serde_json::Value = serde_json::from_slice(&fs::read(manifest.path()).unwrap()).unwrap();
        assert_eq!(written, expected);
        let [Ok(read)] = &scratch.home().read_instances().unwrap()[..] else { panic!("it is refused") };
        assert_eq!((&read.id, read.process), (&manifest.instance.id, Some(std::process::id())));
        // Again, without a claim.
        manifest.publish(None).unwrap();
        let [Ok(read)] = &scratch.home().read_instances().unwrap()[..] else { panic!("it is refused") };
        assert!(read.claim.is_none());
        let path = manifest.path().to_owned();
        drop(manifest);
        assert!(!path.exists());
        assert_eq!(fs::read_dir(scratch.home().instances()).unwrap().count(), 0);
    }

    #[test]
    fn a_manifest_that_replaced_ours_is_not_removed() {
        let scratch = Scratch::new();
        let mut manifest = Manifest::new(&scratch.home(), parsed(RECORDED).unwrap()).unwrap();
        manifest.publish(None).unwrap();
        let path = scratch.put("inst-mwqdc9dk-65806c3c.json", "theirs");
        drop(manifest);
        assert_eq!(fs::read(path).unwrap(), b"theirs");
    }

    #[test]
    fn the_error_for_a_manifest_that_cannot_be_written_names_it_and_no_file_remains() {
        let scratch = Scratch::new();
        let mut manifest = Manifest::new(&scratch.home(), parsed(RECORDED).unwrap()).unwrap();
        fs::create_dir(manifest.path()).unwrap();
        let error = manifest.publish(None).unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot write the manifest {}: ", manifest.path().display())), "{error}");
        assert_eq!(fs::read_dir(scratch.home().instances()).unwrap().count(), 1);
    }

    #[test]
    fn files_with_other_names_are_not_read_as_manifests() {
        let scratch = Scratch::new();
        for name in ["inst-a.new", "inst-a", ".json", "README.md"] {
            scratch.put(name, "{}");
        }
        assert!(scratch.home().read_instances().unwrap().is_empty());
    }

    #[test]
    fn a_huge_manifest_is_refused_and_is_not_read_to_its_end() {
        let scratch = Scratch::new();
        let path = scratch.put("inst-a.json", "");
        File::options().write(true).open(path).unwrap().set_len(1 << 40).unwrap();
        assert!(matches!(scratch.refusal().reason, RefusedFor::TooLarge));
    }

    #[cfg(unix)]
    mod on_unix {
        use super::*;
        use crate::net::FolderRefused;
        use std::os::unix::fs::{PermissionsExt, symlink};
        use std::process::Command;

        fn set_mode(path: &Path, mode: u32) {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }

        #[test]
        fn a_manifest_that_is_not_a_plain_file_is_refused_and_not_opened() {
            let scratch = Scratch::new();
            let elsewhere = scratch.put("elsewhere", RECORDED);
            let path = scratch.home().instances().join("inst-mwqdc9dk-65806c3c.json");
            symlink(&elsewhere, &path).unwrap();
            assert!(matches!(scratch.refusal().reason, RefusedFor::NotAFile));
            fs::remove_file(&path).unwrap();
            symlink("nowhere", &path).unwrap();
            assert!(matches!(scratch.refusal().reason, RefusedFor::NotAFile));
            fs::remove_file(&path).unwrap();
            fs::create_dir(&path).unwrap();
            assert!(matches!(scratch.refusal().reason, RefusedFor::NotAFile));
            fs::remove_dir(&path).unwrap();
            // Opening a pipe without a writer would block.
            assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
            assert!(matches!(scratch.refusal().reason, RefusedFor::NotAFile));
        }

        #[test]
        fn a_manifest_that_others_may_write_is_refused_but_a_readable_one_is_not() {
            let scratch = Scratch::new();
            let path = scratch.put("inst-mwqdc9dk-65806c3c.json", RECORDED);
            for mode in [0o660, 0o602] {
                set_mode(&path, mode);
                assert!(matches!(scratch.refusal().reason, RefusedFor::Open(open) if open == mode));
            }
            set_mode(&path, 0o644);
            assert!(scratch.home().read_instances().unwrap()[0].is_ok());
        }

        #[test]
        fn a_folder_that_others_may_write_is_refused() {
            let scratch = Scratch::new();
            scratch.put("inst-mwqdc9dk-65806c3c.json", RECORDED);
            set_mode(&scratch.home().instances(), 0o770);
            let error = scratch.home().read_instances().unwrap_err();
            assert!(matches!(&error, TesseronError::Folder { refused: FolderRefused::Open(0o770), .. }), "{error}");
            assert!(error.to_string().ends_with("it is open to others (mode 770, should be 700)"), "{error}");
            set_mode(&scratch.home().instances(), 0o755);
            assert_eq!(scratch.home().read_instances().unwrap().len(), 1);
        }

        #[test]
        fn a_folder_is_private_to_this_user_or_nothing_is_written() {
            let scratch = Scratch::new();
            let folder = scratch.home().instances();
            scratch.home().make(&folder).unwrap();
            for made in [&folder, folder.parent().unwrap()] {
                assert_eq!(fs::metadata(made).unwrap().permissions().mode() & 0o777, 0o700);
            }
            for mode in [0o755, 0o701, 0o770] {
                set_mode(&folder, mode);
                let error = Manifest::new(&scratch.home(), parsed(RECORDED).unwrap()).unwrap_err();
                assert!(matches!(error, TesseronError::Folder { refused: FolderRefused::Open(open), .. } if open == mode));
            }
            fs::remove_dir(&folder).unwrap();
            symlink("/tmp", &folder).unwrap();
            let error = scratch.home().make(&folder).unwrap_err();
            assert!(matches!(error, TesseronError::Folder { refused: FolderRefused::NotAFolder, .. }), "{error}");
            fs::remove_file(&folder).unwrap();
            fs::write(&folder, "").unwrap();
            let error = scratch.home().make(&folder).unwrap_err();
            assert!(matches!(error, TesseronError::Folder { refused: FolderRefused::System(_), .. }), "{error}");
        }

        /// In the field only the folders below `.tesseron` were checked. Who can write to `.tesseron` itself can replace them.
        #[test]
        fn the_folder_above_is_checked_like_those_in_it() {
            let scratch = Scratch::new();
            let home = scratch.home();
            scratch.put("inst-mwqdc9dk-65806c3c.json", RECORDED);
            let above = home.instances().parent().unwrap().to_owned();
            let written = || Manifest::new(&home, parsed(RECORDED).unwrap()).map(drop);
            let read = || home.read_instances().map(drop);
            for mode in [0o770, 0o702] {
                set_mode(&above, mode);
                for error in [written().unwrap_err(), read().unwrap_err()] {
                    let TesseronError::Folder { path, refused: FolderRefused::Open(open) } = error else { panic!("{error}") };
                    assert_eq!((path, open), (above.clone(), mode));
                }
            }
            set_mode(&above, 0o755);
            assert!(
                written().is_err() && read().is_ok(),
                "a folder that others can only read is used, but nothing is written to it"
            );
            set_mode(&above, 0o700);
            let moved = above.with_extension("moved");
            fs::rename(&above, &moved).unwrap();
            symlink(&moved, &above).unwrap();
            for error in [written().unwrap_err(), read().unwrap_err()] {
                assert!(
                    matches!(&error, TesseronError::Folder { path, refused: FolderRefused::NotAFolder } if *path == above),
                    "{error}"
                );
            }
        }

        #[test]
        fn a_folder_of_another_user_is_foreign() {
            let scratch = Scratch::new();
            let given = scratch.home().instances();
            scratch.home().make(&given).unwrap();
            // The superuser, who owns the other two folders, can give this one away.
            let _ = std::os::unix::fs::chown(&given, Some(12345), None);
            let folders = [&*given, Path::new("/"), Path::new("/etc")];
            let Some(theirs) = folders.into_iter().find(|path| !home::is_ours(&fs::metadata(path).unwrap())) else {
                std::eprintln!("not tested: this user owns every folder, and may give none away");
                return;
            };
            let error = scratch.home().check(theirs).unwrap_err();
            assert!(matches!(error, TesseronError::Folder { refused: FolderRefused::Foreign, .. }), "{error}");
        }

        #[test]
        fn only_the_manifest_of_a_dead_process_is_removed() {
            let mut child = Command::new("true").spawn().unwrap();
            let dead = child.id();
            child.wait().unwrap();
            let scratch = Scratch::new();
            let name = "inst-mwqdc9dk-65806c3c.json";
            let path = scratch.put(name, &with("pid", dead.into()));
            let refused = scratch.refusal();
            assert!(matches!(refused.reason, RefusedFor::Dead(process) if process == dead), "{refused}");
            assert_eq!(refused.to_string(), format!("the manifest {} is not used: its process {dead} is dead", path.display()));
            scratch.put(name, RECORDED);
            refused.remove_if_dead().unwrap();
            assert!(path.exists(), "another manifest has replaced it");
            scratch.put(name, "{}");
            scratch.refusal().remove_if_dead().unwrap();
            assert!(path.exists(), "it was refused for another reason");
            scratch.put(name, &with("pid", dead.into()));
            scratch.refusal().remove_if_dead().unwrap();
            assert!(!path.exists());
            for process in [0, u32::MAX] {
                assert!(matches!(parsed(&with("pid", process.into())), Err(RefusedFor::Dead(_))), "{process}");
            }
        }

        #[test]
        fn a_manifest_is_private_to_this_user() {
            let scratch = Scratch::new();
            let mut manifest = Manifest::new(&scratch.home(), parsed(RECORDED).unwrap()).unwrap();
            manifest.publish(None).unwrap();
            assert_eq!(fs::metadata(manifest.path()).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }
}
