//! What clients make a service hold, counted for the whole service, for each client and for each connection.
//!
//! Of each unit, a client may hold at most as much as is left for all others, and a connection at most as much as then is left for the other
//! connections of its client. So `n` greedy clients leave a share of `1 / (n + 1)` to those who come later, without a reserve that nobody
//! may use. A client is a [`Principal`] or, behind our own listener, an address; other clients are not told apart.
//!
//! Nothing here takes a lock that all requests share: the counts are atomics, and only a principal is looked up, in one of [`SHARDS`] tables.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use endpoint::{Principal, TimedRuntime};
use protocol_core::Instant;
use protocol_core::http::HttpLimits;

/// The number of tables of clients.
const SHARDS: usize = 16;
/// One exchange in so many is only for answers.
const FOR_ANSWERS: usize = 16;
/// The longest `Retry-After`.
const LONGEST_RETRY: Duration = Duration::from_secs(60);

/// A unit of what a client makes the service hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// HTTP exchanges, from the head of the request to the end of the response.
    Exchanges,
    /// Exchanges with little in them that running calls may wait for, for which there is no room among the others.
    Answers,
    /// Bytes of bodies that are being read, or whose requests are being served.
    RequestBytes,
    /// Handlers that run.
    Calls,
    /// Sessions that have ended, and whose handlers still clean up.
    Ended,
    /// `subscriptions/listen` that are open.
    Subscriptions,
}

/// A value for each unit.
#[derive(Debug, Default)]
struct Each<T> {
    exchanges: T,
    answers: T,
    request_bytes: T,
    calls: T,
    ended: T,
    subscriptions: T,
}

impl<T> Each<T> {
    fn of(&self, unit: Unit) -> &T {
        match unit {
            Unit::Exchanges => &self.exchanges,
            Unit::Answers => &self.answers,
            Unit::RequestBytes => &self.request_bytes,
            Unit::Calls => &self.calls,
            Unit::Ended => &self.ended,
            Unit::Subscriptions => &self.subscriptions,
        }
    }

    fn of_mut(&mut self, unit: Unit) -> &mut T {
        match unit {
            Unit::Exchanges => &mut self.exchanges,
            Unit::Answers => &mut self.answers,
            Unit::RequestBytes => &mut self.request_bytes,
            Unit::Calls => &mut self.calls,
            Unit::Ended => &mut self.ended,
            Unit::Subscriptions => &mut self.subscriptions,
        }
    }
}

/// One unit of the whole service.
#[derive(Debug)]
pub(crate) struct Meter {
    limit: usize,
    held: AtomicUsize,
    /// How often something was refused.
    refused: AtomicU64,
    /// The time of the first refusal since something was given back, in microseconds; 0 if there was none.
    refused_since: AtomicU64,
}

impl Meter {
    fn new(limit: usize) -> Self {
        Self { limit, held: AtomicUsize::new(0), refused: AtomicU64::new(0), refused_since: AtomicU64::new(0) }
    }

    #[cfg(feature = "hyper")]
    pub(crate) fn take(&self) {
        self.held.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts a refusal, and returns the time after which a client may try again: at least as long as nothing was given back until now.
    pub(crate) fn retry_after(&self, now: Instant) -> Duration {
        self.refused.fetch_add(1, Ordering::Relaxed);
        let now = now.as_micros().max(1);
        let since = match self.refused_since.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => now,
            Err(since) => since,
        };
        Duration::from_micros(now.saturating_sub(since)).clamp(Duration::from_secs(1), LONGEST_RETRY)
    }

    /// Takes back what was only tried, so that there is no more room than before.
    pub(crate) fn undo(&self, amount: usize) {
        self.held.fetch_sub(amount, Ordering::AcqRel);
    }

    pub(crate) fn give_back(&self, amount: usize) {
        self.undo(amount);
        if self.refused_since.load(Ordering::Relaxed) != 0 {
            self.refused_since.store(0, Ordering::Relaxed);
        }
    }
}

/// What one client or one connection holds.
#[derive(Debug, Default)]
pub(crate) struct Account {
    held: Each<AtomicUsize>,
    /// `None` for a connection.
    who: Option<Who>,
}

/// Who a client is.
#[cfg_attr(not(feature = "hyper"), allow(dead_code, reason = "only our own listener knows addresses"))]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Who {
    Principal(Principal),
    Address(IpAddr),
}

impl Who {
    /// The client at this address. The addresses of one network of IPv6 (64 bits) count as one, since one client usually has all of them.
    #[cfg_attr(not(feature = "hyper"), allow(dead_code, reason = "only our own listener knows addresses"))]
    pub(crate) fn at(address: IpAddr) -> Self {
        Self::Address(match address.to_canonical() {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
            address @ IpAddr::V4(_) => address,
        })
    }
}

/// The counts of a service.
pub(crate) struct Budget {
    meters: Each<Meter>,
    shards: [Mutex<Shard>; SHARDS],
    hasher: RandomState,
    runtime: Arc<dyn TimedRuntime>,
    /// The open connections. Their limits are those of the listeners.
    connections: Meter,
}

/// The accounts of clients that hold something.
#[derive(Default)]
struct Shard {
    accounts: HashMap<Who, Weak<Account>>,
    /// The size at which accounts that are not in use any longer are removed.
    clean_at: usize,
}

/// Why something was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    unit: Unit,
    /// `true` if only the share of the client is used up.
    pub(crate) is_share: bool,
    pub(crate) retry_after: Duration,
}

impl Refused {
    pub(crate) const fn why(self) -> &'static str {
        match (self.unit, self.is_share) {
            (Unit::Exchanges | Unit::Answers, false) => "too many requests at once",
            (Unit::Exchanges | Unit::Answers, true) => "too many requests of this client at once",
            (Unit::RequestBytes, false) => "the bodies of the requests take too much memory",
            (Unit::RequestBytes, true) => "the bodies of the requests of this client take too much memory",
            (Unit::Calls | Unit::Ended, false) => "too many calls are running",
            (Unit::Calls | Unit::Ended, true) => "too many calls of this client are running",
            (Unit::Subscriptions, false) => "too many subscriptions",
            (Unit::Subscriptions, true) => "too many subscriptions of this client",
        }
    }
}

impl Budget {
    pub(crate) fn new(limits: &HttpLimits, runtime: Arc<dyn TimedRuntime>) -> Self {
        let meters = Each {
            exchanges: Meter::new(limits.exchanges.saturating_sub(limits.exchanges / FOR_ANSWERS)),
            answers: Meter::new(limits.exchanges / FOR_ANSWERS),
            request_bytes: Meter::new(limits.request_bytes),
            calls: Meter::new(limits.calls),
            ended: Meter::new(limits.ended_sessions),
            subscriptions: Meter::new(limits.subscriptions),
        };
        let connections = Meter::new(usize::MAX);
        Self { meters, shards: Default::default(), hasher: RandomState::new(), runtime, connections }
    }

    /// The account of a client.
    pub(crate) fn account(&self, who: Who) -> Arc<Account> {
        let at = usize::try_from(self.hasher.hash_one(&who)).unwrap_or_default().checked_rem(SHARDS).unwrap_or_default();
        let Some(shard) = self.shards.get(at) else { return Arc::default() };
        let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(account) = shard.accounts.get(&who).and_then(Weak::upgrade) {
            return account;
        }
        if shard.accounts.len() >= shard.clean_at {
            shard.accounts.retain(|_, account| account.strong_count() > 0);
            shard.clean_at = shard.accounts.len().saturating_mul(2).max(64);
        }
        let account = Arc::new(Account { held: Each::default(), who: Some(who.clone()) });
        shard.accounts.insert(who, Arc::downgrade(&account));
        account
    }

    #[cfg(feature = "hyper")]
    pub(crate) const fn connections(&self) -> &Meter {
        &self.connections
    }

    /// The number of open connections.
    pub(crate) fn open_connections(&self) -> usize {
        self.connections.held.load(Ordering::Relaxed)
    }

    /// How much of a unit is held.
    pub(crate) fn held(&self, unit: Unit) -> usize {
        self.meters.of(unit).held.load(Ordering::Relaxed)
    }

    /// How often something was refused.
    pub(crate) fn refused(&self) -> u64 {
        let Each { exchanges, answers, request_bytes, calls, subscriptions, ended: _ } = &self.meters;
        [exchanges, answers, request_bytes, calls, subscriptions, &self.connections]
            .iter()
            .map(|meter| meter.refused.load(Ordering::Relaxed))
            .fold(0, u64::saturating_add)
    }
}

/// Those who are charged for what a request makes the service hold.
#[derive(Clone)]
pub(crate) struct Payer {
    budget: Arc<Budget>,
    client: Option<Arc<Account>>,
    connection: Option<Arc<Account>>,
}

impl Payer {
    pub(crate) const fn new(budget: Arc<Budget>, client: Option<Arc<Account>>, connection: Option<Arc<Account>>) -> Self {
        Self { budget, client, connection }
    }

    /// The same client, on whatever connection.
    pub(crate) fn client(&self) -> Self {
        Self { connection: None, ..self.clone() }
    }

    /// A name of the client, if it is known.
    pub(crate) fn name(&self) -> Option<String> {
        Some(match self.client.as_ref()?.who.as_ref()? {
            Who::Principal(principal) => format!("principal {principal}"),
            Who::Address(address) => format!("address {address}"),
        })
    }

    /// The part of a unit that is the largest share of one who holds nothing: one in so many.
    pub(crate) fn divisor(&self) -> usize {
        [&self.client, &self.connection].into_iter().flatten().count().saturating_add(1)
    }

    /// A charge for nothing yet.
    pub(crate) fn charge(&self) -> Charge {
        Charge { payer: self.clone(), amounts: Each::default() }
    }

    /// What the client and the connection hold of a unit, the client first.
    fn accounts(&self, unit: Unit) -> impl Iterator<Item = &AtomicUsize> {
        [&self.client, &self.connection].into_iter().flatten().map(move |account| account.held.of(unit))
    }

    /// Takes `amount` of a unit off the accounts. The meter of the service has its own count.
    fn clear(&self, unit: Unit, amount: usize) {
        for account in self.accounts(unit) {
            account.fetch_sub(amount, Ordering::AcqRel);
        }
    }

    /// Checks whether `amount` more of a unit fits, if `total` of it is held and `own` is what an account holds.
    fn check(&self, unit: Unit, amount: usize, total: usize, mut own: impl FnMut(&AtomicUsize) -> usize) -> Result<(), bool> {
        let mut room = self.budget.meters.of(unit).limit.saturating_sub(total);
        if amount > room {
            return Err(false);
        }
        // What is left is counted after `amount` was taken, so that a long body leaves room for short ones. The last one may be taken.
        let taken = amount.saturating_sub(1);
        room = room.saturating_sub(taken);
        for account in self.accounts(unit) {
            let own = own(account);
            if own.saturating_add(amount) > room {
                return Err(true);
            }
            room = room.saturating_sub(own).saturating_sub(taken);
        }
        Ok(())
    }
}

/// What a request makes the service hold. Dropping it gives everything back.
pub(crate) struct Charge {
    payer: Payer,
    amounts: Each<usize>,
}

impl Charge {
    pub(crate) const fn payer(&self) -> &Payer {
        &self.payer
    }

    /// How much of a unit it is for.
    pub(crate) fn amount(&self, unit: Unit) -> usize {
        *self.amounts.of(unit)
    }

    /// Charges for `amount` more of a unit.
    pub(crate) fn add(&mut self, unit: Unit, amount: usize) -> Result<(), Refused> {
        if amount == 0 {
            return Ok(());
        }
        let payer = &self.payer;
        let meter = payer.budget.meters.of(unit);
        // Checked before anything is written, so that requests that are refused take no room from others, and again afterwards, since
        // another thread may have taken the room meanwhile.
        let load = |count: &AtomicUsize| count.load(Ordering::Acquire);
        let mut checked = payer.check(unit, amount, load(&meter.held), load);
        if checked.is_ok() {
            let total = meter.held.fetch_add(amount, Ordering::AcqRel);
            // What each account had, in their order: so of two threads that take the last room, one gets it.
            let mut had = [0; 2];
            for (had, account) in had.iter_mut().zip(payer.accounts(unit)) {
                *had = account.fetch_add(amount, Ordering::AcqRel);
            }
            let mut had = had.into_iter();
            checked = payer.check(unit, amount, total, |_| had.next().unwrap_or_default());
            if checked.is_ok() {
                let held = self.amounts.of_mut(unit);
                *held = held.saturating_add(amount);
            } else {
                payer.clear(unit, amount);
                meter.undo(amount);
            }
        }
        let wait = || meter.retry_after(payer.budget.runtime.now());
        checked.map_err(|is_share| Refused { unit, is_share, retry_after: wait() })
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        for unit in [Unit::Exchanges, Unit::Answers, Unit::RequestBytes, Unit::Calls, Unit::Ended, Unit::Subscriptions] {
            let amount = *self.amounts.of(unit);
            if amount > 0 {
                self.payer.clear(unit, amount);
                self.payer.budget.meters.of(unit).give_back(amount);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use endpoint::testing::Executor;

    use super::*;

    fn budget(calls: usize) -> (Executor, Arc<Budget>) {
        let executor = Executor::new();
        let mut limits = HttpLimits::default();
        limits.calls = calls;
        let budget = Budget::new(&limits, Arc::new(executor.clone()));
        (executor, Arc::new(budget))
    }

    fn client(budget: &Arc<Budget>, last: u8) -> Option<Arc<Account>> {
        Some(budget.account(Who::at(Ipv4Addr::new(10, 0, 0, last).into())))
    }

    fn take(payer: &Payer) -> Result<Charge, Refused> {
        let mut charge = payer.charge();
        charge.add(Unit::Calls, 1).map(|()| charge)
    }

    /// Takes as many calls as there is room for.
    fn take_all(payer: &Payer) -> Vec<Charge> {
        core::iter::from_fn(|| take(payer).ok()).collect()
    }

    #[test]
    fn greedy_clients_share_the_room_with_one_that_comes_later() {
        for greedy in 1..=9_u8 {
            let (_executor, budget) = budget(1000);
            let payers: Vec<_> = (0..greedy).map(|at| Payer::new(Arc::clone(&budget), client(&budget, at), None)).collect();
            let mut held: Vec<Vec<Charge>> = payers.iter().map(|_| Vec::new()).collect();
            // They take turns until none gets any more.
            while payers.iter().zip(&mut held).fold(false, |any, (payer, held)| {
                let charge = take(payer).ok();
                let is_more = charge.is_some();
                held.extend(charge);
                any | is_more
            }) {}
            let share = 1000 / (usize::from(greedy) + 1);
            let left = 1000 - budget.held(Unit::Calls);
            assert!(left.abs_diff(share) <= usize::from(greedy), "{greedy}: {left}");
            let late = Payer::new(Arc::clone(&budget), client(&budget, 200), None);
            assert!(take(&late).is_ok());
            drop(held);
            assert_eq!(budget.held(Unit::Calls), 0);
        }
    }

    #[test]
    fn connections_of_one_client_share_its_part_and_leave_room_for_one_more() {
        let (_executor, budget) = budget(900);
        let client = client(&budget, 1);
        let [first, second, late] = [(); 3].map(|()| Payer::new(Arc::clone(&budget), client.clone(), Some(Arc::default())));
        let alone = take_all(&first);
        assert_eq!(alone.len(), 300);
        let beside = take_all(&second);
        assert_eq!(
            beside.len(),
            100,
            "of the 300 that are left for this client, as many as are then left for further connections, twice"
        );
        assert!(take(&late).is_ok());
        assert_eq!(take(&first).err().map(|refused| refused.is_share), Some(true));
        // The same client on no connection of ours.
        assert!(take(&first.client()).is_ok());
    }

    #[test]
    fn connections_with_long_bodies_leave_room_for_a_short_one_of_the_same_client() {
        let (_executor, budget) = budget(1000);
        let client = client(&budget, 1);
        let payer = || Payer::new(Arc::clone(&budget), client.clone(), Some(Arc::default()));
        let mut held = Vec::new();
        for _ in 0..30 {
            let mut charge = payer().charge();
            held.extend(charge.add(Unit::Calls, 100).ok().map(|()| charge));
        }
        assert_eq!(held.len(), 4);
        assert!(payer().charge().add(Unit::Calls, 60).is_ok());
    }

    #[test]
    fn clients_that_are_not_known_fill_the_service() {
        let (_executor, budget) = budget(10);
        let unknown = Payer::new(Arc::clone(&budget), None, None);
        assert_eq!(take_all(&unknown).len(), 10);
        let held = take_all(&unknown);
        assert_eq!(held.len(), 10);
        let refused = take(&unknown).err().expect("it is full");
        assert!(!refused.is_share);
        assert_eq!(budget.refused(), 3);
    }

    #[test]
    fn a_client_is_told_to_wait_as_long_as_nothing_was_given_back() {
        let (executor, budget) = budget(1);
        let unknown = Payer::new(Arc::clone(&budget), None, None);
        let held = take(&unknown).ok();
        let wait = |executor: &Executor, seconds| {
            executor.run_for(Duration::from_secs(seconds));
            take(&unknown).err().map(|refused| refused.retry_after.as_secs())
        };
        assert_eq!(wait(&executor, 100), Some(1), "the first to be refused");
        assert_eq!(wait(&executor, 5), Some(5));
        assert_eq!(wait(&executor, 5), Some(10));
        assert_eq!(wait(&executor, 500), Some(60));
        drop(held);
        let held = take(&unknown);
        assert!(held.is_ok());
        assert_eq!(wait(&executor, 7), Some(1), "something was given back since");
    }

    #[test]
    fn the_addresses_of_a_network_of_ipv6_are_one_client() {
        let at = |text: &str| Who::at(text.parse().unwrap());
        assert_eq!(at("2001:db8::1"), at("2001:db8::ffff:2"));
        assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
        assert_eq!(at("::ffff:10.0.0.1"), at("10.0.0.1"));
        assert_ne!(at("10.0.0.1"), at("10.0.0.2"));
    }

    #[test]
    fn accounts_that_nobody_uses_are_forgotten() {
        let (_executor, budget) = budget(1);
        for number in 0..100_000_u32 {
            drop(budget.account(Who::Address(Ipv4Addr::from_bits(number).into())));
        }
        let kept: usize = budget.shards.iter().map(|shard| shard.lock().unwrap().accounts.len()).sum();
        assert!(kept <= SHARDS * 64, "{kept}");
    }
}
