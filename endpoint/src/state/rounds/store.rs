//! Stores that make an effect happen at most once, whichever process gets its request.

use core::fmt;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use engine::BoxFuture;
use protocol_core::json::Json;

/// A store of the effects of calls ([`Context::once`](crate::Context::once)), shared by all processes that may serve requests of one call.
/// With [`Service::once_store`](crate::Service::once_store), an effect is claimed before it begins, and its outcome is recorded after it
/// has ended. So an effect with one key runs at most once, even if a state is presented to two processes at once, or a process crashes.
///
/// [`MemoryOnceStore`] is a store for one process. A store for several processes, in a database, needs one atomic operation: to add a row
/// for the key unless there is one. The methods may wait for IO. They are not called under a lock, and a future that they return may be
/// dropped before it is ready.
///
/// ```
/// use endpoint::{BoxFuture, Claim, Lease, OnceStore, StoreError};
/// use protocol_core::Json;
/// # use std::{collections::HashMap, sync::Mutex, time::Duration};
/// # #[derive(Default)] struct Database(Mutex<HashMap<String, Row>>);
/// # #[derive(Clone, Debug, PartialEq)] struct Row { until: Duration, outcome: Option<String> }
/// # impl Database {
/// #     async fn insert_or_get(&self, key: &str, row: Row) -> Result<Option<Row>, StoreError> {
/// #         let mut rows = self.0.lock().unwrap();
/// #         if let Some(row) = rows.get(key) { return Ok(Some(row.clone())) }
/// #         rows.insert(key.to_owned(), row);
/// #         Ok(None)
/// #     }
/// #     async fn update(&self, key: &str, change: impl FnOnce(&mut Row)) -> Result<(), StoreError> {
/// #         Ok(self.0.lock().unwrap().get_mut(key).map(change).unwrap_or_default())
/// #     }
/// # }
///
/// /// A table with the columns `key`, `until` and `outcome`.
/// struct Effects(Database);
///
/// impl OnceStore for Effects {
///     fn claim<'a>(&'a self, key: &'a str, lease: Lease) -> BoxFuture<'a, Result<Claim, StoreError>> {
///         Box::pin(async move {
///             // `INSERT .. ON CONFLICT DO NOTHING`, and the row that was there before, if there was one.
///             let Some(row) = self.0.insert_or_get(key, Row { until: lease.until, outcome: None }).await? else {
///                 return Ok(Claim::Granted);
///             };
///             Ok(match row.outcome {
///                 Some(outcome) => Claim::Recorded(Json::parse(outcome.into_bytes())?),
///                 None if lease.now < row.until => Claim::Held,
///                 None => Claim::Unknown,
///             })
///         })
///     }
///
///     fn record<'a>(&'a self, key: &'a str, outcome: Option<Json>) -> BoxFuture<'a, Result<(), StoreError>> {
///         Box::pin(self.0.update(key, |row| match outcome {
///             Some(outcome) => row.outcome = Some(outcome.as_str().to_owned()),
///             None => row.until = Duration::ZERO,
///         }))
///     }
/// }
/// # futures_lite_block_on(async {
/// #     let (store, lease) = (Effects(Database::default()), |now| Lease::new(Duration::from_secs(now), Duration::from_secs(now + 60)));
/// #     assert_eq!(store.claim("a", lease(0)).await.unwrap(), Claim::Granted);
/// #     assert_eq!(store.claim("a", lease(59)).await.unwrap(), Claim::Held);
/// #     assert_eq!(store.claim("a", lease(60)).await.unwrap(), Claim::Unknown);
/// #     store.record("a", Some(Json::parse("7").unwrap())).await.unwrap();
/// #     assert_eq!(store.claim("a", lease(61)).await.unwrap(), Claim::Recorded(Json::parse("7").unwrap()));
/// # });
/// # fn futures_lite_block_on(future: impl Future<Output = ()>) {
/// #     let mut future = std::pin::pin!(future);
/// #     assert!(future.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_ready());
/// # }
/// ```
pub trait OnceStore: Send + Sync + 'static {
    /// Claims an effect before the effect begins. Must be atomic: of all claims of a key, only one is [`Claim::Granted`], ever.
    ///
    /// # Cancel safety
    /// Not cancel safe: if the future is dropped, the claim may have been granted. The effect then never runs, and other claimants get
    /// [`Claim::Unknown`] once the lease is over.
    ///
    /// # Errors
    /// Any failure of the store. The effect does not run.
    fn claim<'a>(&'a self, key: &'a str, lease: Lease) -> BoxFuture<'a, Result<Claim, StoreError>>;

    /// Records the outcome of an effect whose claim was granted, even if its lease is over. `None` means that the effect was dropped: its
    /// outcome will never be known, and other claimants need not wait any longer.
    ///
    /// # Cancel safety
    /// Cancel safe for its caller: if the future is dropped, the outcome may not have been recorded. The endpoint then records it once
    /// more.
    ///
    /// # Errors
    /// Any failure of the store. The call goes on with the outcome, and other claimants get [`Claim::Unknown`] once the lease is over.
    fn record<'a>(&'a self, key: &'a str, outcome: Option<Json>) -> BoxFuture<'a, Result<(), StoreError>>;

    /// The time for which other claimants wait for the outcome of an effect that has begun. It must be longer than any effect of the
    /// service takes. Default: 60 s.
    fn lease(&self) -> Duration {
        Duration::from_secs(60)
    }
}

/// An error of a store.
pub type StoreError = Box<dyn core::error::Error + Send + Sync>;

/// The span of time for which a claim holds. Its ends are counted from the beginning of 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lease {
    /// The time of the claim.
    pub now: Duration,
    /// The time after which the outcome of the effect is unknown, unless it was recorded.
    pub until: Duration,
}

impl Lease {
    /// A lease from `now` to `until`.
    #[must_use]
    pub const fn new(now: Duration, until: Duration) -> Self {
        Self { now, until }
    }
}

/// The answer of a store to a claim.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Claim {
    /// The key was not claimed before: the effect may run.
    Granted,
    /// The effect is under way elsewhere. The endpoint claims it again after a while.
    Held,
    /// The effect has ended. This is the outcome that was passed to [`OnceStore::record`].
    Recorded(Json),
    /// The effect was claimed, and was dropped ([`OnceStore::record`] with `None`), or its lease is over without an outcome. The effect
    /// must not run again.
    Unknown,
}

/// A store in the memory of one process. If it is full, the claim of a new key is an error, and the effect does not run. By default it
/// holds at most 65,536 effects, each for 24 hours.
pub struct MemoryOnceStore {
    effects: Mutex<Effects>,
    most: usize,
    kept: Duration,
}

#[derive(Default)]
struct Effects {
    by_key: BTreeMap<String, Effect>,
    /// The keys and the times of their claims, oldest first.
    claimed: VecDeque<(Duration, String)>,
}

enum Effect {
    Held { until: Duration },
    Ended(Json),
    Dropped,
}

impl Default for MemoryOnceStore {
    fn default() -> Self {
        Self::new(1 << 16, Duration::from_secs(24 * 3600))
    }
}

impl MemoryOnceStore {
    /// A store for up to `most` effects, which forgets each of them when the time `kept` has passed since its claim. A call can go on for
    /// an hour, so with a shorter `kept` an effect may run again.
    #[must_use]
    pub fn new(most: usize, kept: Duration) -> Self {
        Self { effects: Mutex::default(), most, kept }
    }

    fn effects(&self) -> MutexGuard<'_, Effects> {
        self.effects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn claim_now(&self, key: &str, lease: Lease) -> Result<Claim, StoreError> {
        let mut effects = self.effects();
        let effects = &mut *effects;
        while effects.claimed.front().is_some_and(|(at, _)| at.saturating_add(self.kept) <= lease.now) {
            if let Some((_, key)) = effects.claimed.pop_front() {
                effects.by_key.remove(&key);
            }
        }
        if let Some(effect) = effects.by_key.get(key) {
            return Ok(match effect {
                Effect::Held { until } if lease.now < *until => Claim::Held,
                Effect::Held { .. } | Effect::Dropped => Claim::Unknown,
                Effect::Ended(outcome) => Claim::Recorded(outcome.clone()),
            });
        }
        if effects.by_key.len() >= self.most {
            return Err(StoreError::from("the store of effects is full"));
        }
        effects.by_key.insert(String::from(key), Effect::Held { until: lease.until });
        effects.claimed.push_back((lease.now, String::from(key)));
        Ok(Claim::Granted)
    }
}

impl OnceStore for MemoryOnceStore {
    fn claim<'a>(&'a self, key: &'a str, lease: Lease) -> BoxFuture<'a, Result<Claim, StoreError>> {
        Box::pin(async move { self.claim_now(key, lease) })
    }

    fn record<'a>(&'a self, key: &'a str, outcome: Option<Json>) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            if let Some(effect) = self.effects().by_key.get_mut(key) {
                *effect = outcome.map_or(Effect::Dropped, Effect::Ended);
            }
            Ok(())
        })
    }
}

impl fmt::Debug for MemoryOnceStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryOnceStore").field("effects", &self.effects().by_key.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(now: u64) -> Lease {
        Lease::new(Duration::from_secs(now), Duration::from_secs(now + 60))
    }

    fn record(store: &MemoryOnceStore, key: &str, outcome: Option<&str>) {
        let outcome = outcome.map(|outcome| Json::parse(outcome.to_owned()).unwrap());
        let recorded = crate::testing::Executor::new().block_on(async { store.record(key, outcome).await.is_ok() });
        assert_eq!(recorded, Some(true));
    }

    #[test]
    fn a_key_is_granted_once_and_its_outcome_is_known_as_soon_as_it_is_recorded() {
        let store = MemoryOnceStore::default();
        let claim = |key, now| store.claim_now(key, lease(now)).unwrap();
        assert_eq!(
            [claim("a", 0), claim("a", 59), claim("a", 60), claim("b", 60)],
            [Claim::Granted, Claim::Held, Claim::Unknown, Claim::Granted]
        );
        // An outcome that is recorded after the lease still counts.
        record(&store, "a", Some("7"));
        assert_eq!(claim("a", 61), Claim::Recorded(Json::parse("7").unwrap()));
        record(&store, "b", None);
        assert_eq!(claim("b", 61), Claim::Unknown);
    }

    #[test]
    fn a_full_store_refuses_claims_until_older_ones_are_forgotten() {
        let store = MemoryOnceStore::new(2, Duration::from_secs(100));
        for key in ["a", "b"] {
            assert_eq!(store.claim_now(key, lease(0)).unwrap(), Claim::Granted);
        }
        assert_eq!(store.claim_now("c", lease(99)).unwrap_err().to_string(), "the store of effects is full");
        assert_eq!(store.claim_now("a", lease(99)).unwrap(), Claim::Unknown, "a known key is found in a full store");
        assert_eq!(store.claim_now("c", lease(100)).unwrap(), Claim::Granted);
        assert_eq!(store.effects().by_key.len(), 1);
    }
}
