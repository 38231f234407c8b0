//! Stores of tokens.

use core::time::Duration;
use std::boxed::Box;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::string::String;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

use crate::output::{StoreAnswer, StoreTask};
use crate::record::{Registration, Tokens};

/// How long a lock is waited for: longer than a refresh may take, which is four requests of 30 s: one, its repetition, and both again with
/// a nonce.
pub const LOCK_TIMEOUT: Duration = Duration::from_secs(125);

/// Names the tokens of one principal for one MCP server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreKey(String);

impl StoreKey {
    /// The key of `principal`, which may be empty if there is only one, for the MCP server at this address.
    #[must_use]
    pub fn new(server: &str, principal: &str) -> Self {
        let mut hash = Sha256::new();
        for part in [server, principal] {
            hash.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            hash.update(part.as_bytes());
        }
        Self(HEXLOWER.encode(&hash.finalize()))
    }

    /// 64 characters that can be the name of a file.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Why a store cannot do something.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Someone else holds the lock for longer than was waited.
    #[error("the lock of the tokens is not free")]
    Busy,
    /// A file or its folder is a link, is another user's, or can be read by others.
    #[error("the tokens are not in a file of this user alone")]
    Exposed,
    /// The system refused.
    #[error("the tokens cannot be read or written")]
    Io(#[from] std::io::Error),
}

/// The lock of a key. It is released when it is dropped, or when its process ends.
pub struct StoreLock(#[allow(dead_code, reason = "what is dropped is the lock")] Box<dyn Send>);

impl StoreLock {
    /// A lock that is released when `held` is dropped.
    #[must_use]
    pub fn new(held: impl Send + 'static) -> Self {
        Self(Box::new(held))
    }
}

impl fmt::Debug for StoreLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreLock")
    }
}

/// A store of tokens and of clients. Its methods block: a runtime calls them on a thread for such work.
///
/// The lock is what keeps two processes from using one refresh token twice: it is held from the reading of the token to the saving of the
/// next one, and must exclude all who use the same store.
pub trait TokenStore: Send + Sync {
    /// The tokens of a key; `None` if there are none, or none that can be read.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn load(&self, key: &StoreKey) -> Result<Option<Tokens>, StoreError>;

    /// Waits for the lock of a key, for at most `wait`.
    ///
    /// # Errors
    /// [`StoreError::Busy`] after that time.
    fn lock(&self, key: &StoreKey, wait: Duration) -> Result<StoreLock, StoreError>;

    /// Replaces the tokens of a key. Whoever calls it has the lock. After it returns they outlast the process, if the store is one that does.
    ///
    /// # Errors
    /// See [`StoreError`]. Then the former tokens are still there.
    fn save(&self, key: &StoreKey, tokens: &Tokens) -> Result<(), StoreError>;

    /// Removes the tokens of a key. Whoever calls it has the lock.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn forget(&self, key: &StoreKey) -> Result<(), StoreError>;

    /// The client at an issuer.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn load_registration(&self, issuer: &str) -> Result<Option<Registration>, StoreError>;

    /// Replaces the client at its issuer.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn save_registration(&self, client: &Registration) -> Result<(), StoreError>;

    /// Removes the client at an issuer.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn forget_registration(&self, issuer: &str) -> Result<(), StoreError>;
}

/// Does the tasks of one login in a store.
pub struct Keeper {
    store: Arc<dyn TokenStore>,
    key: StoreKey,
    lock: Option<StoreLock>,
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper").field("key", &self.key).field("lock", &self.lock).finish_non_exhaustive()
    }
}

impl Keeper {
    /// Keeps the tokens of `key` in `store`.
    #[must_use]
    pub fn new(store: Arc<dyn TokenStore>, key: StoreKey) -> Self {
        Self { store, key, lock: None }
    }

    /// Does one task; returns the answer for `Login::handle_store`, if the task has one. Blocks: a lock is waited for up to
    /// [`LOCK_TIMEOUT`].
    pub fn perform(&mut self, task: StoreTask) -> Option<StoreAnswer> {
        let load = |keeper: &Self| keeper.store.load(&keeper.key).ok().flatten();
        match task {
            StoreTask::Load => Some(StoreAnswer::Loaded(load(self))),
            StoreTask::Lock => Some(match self.store.lock(&self.key, LOCK_TIMEOUT) {
                // What cannot be read now is no logout: the tokens in memory stay, and nothing is written over.
                Ok(lock) => match self.store.load(&self.key) {
                    Ok(tokens) => {
                        self.lock = Some(lock);
                        StoreAnswer::Locked(tokens)
                    }
                    Err(_) => StoreAnswer::Busy(None),
                },
                Err(_) => StoreAnswer::Busy(load(self)),
            }),
            StoreTask::Save(tokens) => Some(StoreAnswer::Saved(self.store.save(&self.key, &tokens).is_ok())),
            StoreTask::Forget { generation } => {
                if load(self).is_some_and(|tokens| tokens.generation == generation) {
                    let _ = self.store.forget(&self.key);
                }
                None
            }
            StoreTask::Unlock => {
                self.lock = None;
                None
            }
            StoreTask::LoadRegistration(issuer) => {
                Some(StoreAnswer::Registration(self.store.load_registration(&issuer).ok().flatten()))
            }
            StoreTask::SaveRegistration(client) => {
                let _ = self.store.save_registration(&client);
                None
            }
            StoreTask::ForgetRegistration(issuer) => {
                let _ = self.store.forget_registration(&issuer);
                None
            }
        }
    }
}

/// A store that ends with its process.
#[derive(Debug, Default)]
pub struct MemoryStore(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    contents: Mutex<Contents>,
    unlocked: Condvar,
}

#[derive(Debug, Default)]
struct Contents {
    tokens: BTreeMap<StoreKey, Tokens>,
    clients: BTreeMap<String, Registration>,
    locked: BTreeSet<StoreKey>,
}

impl MemoryStore {
    fn with<T>(&self, change: impl FnOnce(&mut Contents) -> T) -> T {
        change(&mut self.0.contents.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl TokenStore for MemoryStore {
    fn load(&self, key: &StoreKey) -> Result<Option<Tokens>, StoreError> {
        Ok(self.with(|contents| contents.tokens.get(key).cloned()))
    }

    fn lock(&self, key: &StoreKey, wait: Duration) -> Result<StoreLock, StoreError> {
        struct Held(Arc<Shared>, StoreKey);
        impl Drop for Held {
            fn drop(&mut self) {
                self.0.contents.lock().unwrap_or_else(PoisonError::into_inner).locked.remove(&self.1);
                self.0.unlocked.notify_all();
            }
        }
        let contents = self.0.contents.lock().unwrap_or_else(PoisonError::into_inner);
        let is_taken = |contents: &mut Contents| contents.locked.contains(key);
        let waited = self.0.unlocked.wait_timeout_while(contents, wait, is_taken);
        let (mut contents, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if !contents.locked.insert(key.clone()) {
            return Err(StoreError::Busy);
        }
        Ok(StoreLock::new(Held(Arc::clone(&self.0), key.clone())))
    }

    fn save(&self, key: &StoreKey, tokens: &Tokens) -> Result<(), StoreError> {
        self.with(|contents| contents.tokens.insert(key.clone(), tokens.clone()));
        Ok(())
    }

    fn forget(&self, key: &StoreKey) -> Result<(), StoreError> {
        self.with(|contents| contents.tokens.remove(key));
        Ok(())
    }

    fn load_registration(&self, issuer: &str) -> Result<Option<Registration>, StoreError> {
        Ok(self.with(|contents| contents.clients.get(issuer).cloned()))
    }

    fn save_registration(&self, client: &Registration) -> Result<(), StoreError> {
        self.with(|contents| contents.clients.insert(client.issuer.clone(), client.clone()));
        Ok(())
    }

    fn forget_registration(&self, issuer: &str) -> Result<(), StoreError> {
        self.with(|contents| contents.clients.remove(issuer));
        Ok(())
    }
}

/// Calls `attempt` every 10 ms until it succeeds or `wait` is over.
#[cfg(unix)]
pub(crate) fn until<T>(wait: Duration, mut attempt: impl FnMut() -> Result<Option<T>, StoreError>) -> Result<T, StoreError> {
    const STEP: Duration = Duration::from_millis(10);
    let mut left = wait;
    loop {
        if let Some(value) = attempt()? {
            return Ok(value);
        }
        if left.is_zero() {
            return Err(StoreError::Busy);
        }
        std::thread::sleep(STEP.min(left));
        left = left.saturating_sub(STEP);
    }
}
