//! The gateway's side: every channel to an app, who is claimed, and who may come back. All transitions of a session's life are here.
//!
//! ```text
//!                              its code                    its channel closes
//!   hello --------> Pending ----------------> Live ----------------------------> Zombie
//!                      |                      ^  ^                               |  |
//!                      | its channel closes   |  `-- its token, on a channel ----'  | `resume_ttl` is over,
//!                      v                      |                                     | more than `max_zombies`
//!                 (forgotten)                 |                                     v
//!   hello on a bound dial --------------------'                                (forgotten)
//! ```
//!
//! |                                         | Pending    | Live                                        | Zombie                |
//! |-----------------------------------------|------------|---------------------------------------------|-----------------------|
//! | its code                                | Live       | found again on the channel where it was said | unknown               |
//! | resume with its token                   | refused    | Live on the new channel, off the old one    | Live                  |
//! | hello on a bound dial, its id and token | refused    | the same, claimed anew                      | Live, claimed anew    |
//! | either of them with another token       | refused    | refused                                     | refused               |
//! | the first frame after the welcome       |            | the token that was used is spent            |                       |
//! | its channel closes                      | forgotten  | Zombie                                      |                       |
//! | a channel that it had before closes     |            |                                             |                       |
//! | `resume_ttl` is over                    |            |                                             | forgotten             |
//!
//! A session has one channel at the most, and knows which; a channel has one session at the most, and knows which. Every transition changes
//! both together, so that the end of a channel that lost its session to another one ends nothing, and a session that becomes
//! a Zombie twice has one deadline (`docs/protocols/tesseron.md`, "Faults of the reference implementation"). Nothing but a right code
//! claims a session, nothing but a right token moves one, a claimed one stays claimed, and whatever is refused changes nothing.

mod refused;
#[cfg(test)]
mod tests;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::fmt;
use core::time::Duration;

use subtle::{Choice, ConditionallySelectable};

use super::{AppId, ClaimCode, ResumeToken, SessionId};
use protocol_core::dialect::tesseron::{ClaimState, ResumeCredentials, Welcome};
use protocol_core::json::Text;
use protocol_core::time::Instant;

pub use refused::{ClaimMissed, HelloRefused, OpenRefused, ResumeRefused};

/// A code or an id that is taken is drawn again, at most so often: a sound random source never repeats itself so long.
const REDRAWS: usize = 16;

/// The numbers of a [`SessionRegistry`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegistryPolicy {
    /// The time that a claimed session waits for its app to come back. Zero: none. 4 h.
    pub resume_ttl: Duration,
    /// The number of sessions that wait so at once; the oldest makes room. Zero: none. 100.
    pub max_zombies: usize,
    /// The number of sessions that wait to be claimed at once. 100.
    pub max_pending: usize,
    /// The number of channels that are open at once. 1024.
    pub max_channels: usize,
}

impl Default for RegistryPolicy {
    fn default() -> Self {
        Self { resume_ttl: Duration::from_secs(4 * 60 * 60), max_zombies: 100, max_pending: 100, max_channels: 1024 }
    }
}

/// A channel to an app. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(u64);

impl ChannelId {
    /// The number of channels that were opened up to and including it.
    pub(crate) const fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for ChannelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "channel-{}", self.0)
    }
}

/// The kind of dial that reached an app.
#[derive(Clone, Debug)]
pub enum Dial {
    /// Without a claim: its session waits to be claimed.
    Plain,
    /// With the claim of its manifest: its session is born claimed. The code was said by a person before.
    Bound(BoundDial),
}

/// The claim of a manifest, as far as it outlives the bind.
#[derive(Clone, Debug)]
pub struct BoundDial {
    /// The code that was bound. Claiming it again finds the session.
    pub code: ClaimCode,
    /// The id of the session.
    pub session_id: SessionId,
    /// The token that resumes it.
    pub resume_token: ResumeToken,
}

/// The answer to a hello or a resume.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Admission {
    /// For [`protocol_core::Session::welcome`].
    pub welcome: Welcome,
    /// Since when the session is claimed, in milliseconds of the epoch. `None`: it waits for that. After a welcome to a
    /// [`ClaimState::Bound`] session [`protocol_core::Session::claim`] follows at once.
    pub claimed_at: Option<u64>,
    /// The channel that this one takes the session from. Close it; frames that still come from it belong to no session.
    pub supersedes: Option<ChannelId>,
}

/// A session that a code was right for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Claimed {
    /// Its channel.
    pub channel: ChannelId,
    /// The id of the session.
    pub session_id: SessionId,
    /// Whose it is.
    pub app: AppId,
    /// In milliseconds of the epoch.
    pub claimed_at: u64,
    /// It was claimed by this very call: `tesseron/claimed` goes out, and the tools have changed. Otherwise it had been before, and
    /// nothing has.
    pub first: bool,
}

/// The effect of the end of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// It had no session, or no longer, or was never open.
    Nothing,
    /// A session that was not claimed; it is forgotten.
    Unclaimed,
    /// A claimed session; it waits for its app. The tools have changed.
    Kept,
    /// A claimed session; the policy keeps none. The tools have changed.
    Forgotten,
}

/// A session that waits to be claimed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Pending {
    /// Its channel.
    pub channel: ChannelId,
    /// The id of the session.
    pub session_id: SessionId,
    /// Whose it is.
    pub app: AppId,
    /// The code that claims it.
    pub code: ClaimCode,
    /// The time of its arrival, in milliseconds of the epoch.
    pub minted_at: u64,
}

/// The session that serves an app.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Routed {
    /// The app.
    pub app: AppId,
    /// The channel that its calls go to.
    pub channel: ChannelId,
    /// The id of the session.
    pub session_id: SessionId,
}

/// The target of a tool's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resolved<'a> {
    /// The channel that the call goes to.
    pub channel: ChannelId,
    /// The app.
    pub app: &'a AppId,
    /// The app's name for the tool. It may be empty.
    pub action: &'a str,
}

/// Every channel of a gateway to an app, and every session that has one or may get one again.
///
/// [`open`](Self::open) names a channel, [`handle_closed`](Self::handle_closed) must follow when it is gone. The first frame of the app decides
/// between [`hello`](Self::hello) and [`resume`](Self::resume), any later one is told to [`confirm`](Self::confirm).
///
/// All tables are bounded by [`RegistryPolicy`], equal verbs give equal results, and only [`handle_timeout`](Self::handle_timeout) expires
/// anything. A `now` that runs backwards is read as the latest one seen.
#[derive(Clone, Debug)]
pub struct SessionRegistry {
    policy: RegistryPolicy,
    now: Instant,
    channels: BTreeMap<ChannelId, Channel>,
    sessions: BTreeMap<SessionId, Session>,
    /// The sessions without a channel, in the order in which they expire.
    zombies: BTreeMap<Expiry, SessionId>,
    /// The number of channels that were opened.
    opened: u64,
    /// One number for every admission, claim and departure, so that they have an order whatever the clocks do.
    order: u64,
}

#[derive(Clone, Debug)]
enum Channel {
    /// Nothing was said on it yet.
    Dialled(Dial),
    /// It has this session.
    Seated(SessionId),
    /// Its session went on to another channel.
    Superseded,
}

#[derive(Clone, Debug)]
struct Session {
    app: AppId,
    /// The time of its first admission, in milliseconds of the epoch, and its place in that order.
    minted: (u64, u64),
    /// The time of its claim, in milliseconds of the epoch, and its place in that order.
    claimed: Option<(u64, u64)>,
    /// The code that it was or can be claimed by, on the channel that said it.
    code: Option<ClaimCode>,
    token: ResumeToken,
    /// The token before that, until the app is known to have the new one.
    previous: Option<ResumeToken>,
    place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Live(ChannelId),
    Zombie(Expiry),
}

/// The time at which a session without a channel is forgotten, and its place in the order of losses.
type Expiry = (Instant, u64);

impl Session {
    /// Returns `true` if `token` resumes it. Both are compared whatever the first comparison gives.
    fn accepts(&self, token: &ResumeToken) -> bool {
        let previous = self.previous.as_ref().map_or_else(|| Choice::from(0), |previous| previous.ct_eq(token));
        (self.token.ct_eq(token) | previous).into()
    }

    fn channel(&self) -> Option<ChannelId> {
        match self.place {
            Place::Live(channel) => Some(channel),
            Place::Zombie(_) => None,
        }
    }

    /// The channel, and the order of the claim, of a session that serves calls.
    fn serving(&self) -> Option<(ChannelId, u64)> {
        self.channel().zip(self.claimed.map(|(_, order)| order))
    }
}

impl SessionRegistry {
    /// An empty one.
    #[must_use]
    pub fn new(policy: RegistryPolicy) -> Self {
        Self {
            policy,
            now: Instant::ZERO,
            channels: BTreeMap::new(),
            sessions: BTreeMap::new(),
            zombies: BTreeMap::new(),
            opened: 0,
            order: 0,
        }
    }

    /// A channel is being dialled.
    ///
    /// # Errors
    /// [`OpenRefused`]: do not dial.
    pub fn open(&mut self, dial: Dial) -> Result<ChannelId, OpenRefused> {
        if self.channels.len() >= self.policy.max_channels {
            return Err(OpenRefused::Full);
        }
        if let Dial::Bound(bound) = &dial {
            let is_same =
                |channel: &Channel| matches!(channel, Channel::Dialled(Dial::Bound(other)) if other.session_id == bound.session_id);
            if self.channels.values().any(is_same) {
                return Err(OpenRefused::AlreadyDialled);
            }
        }
        self.opened = self.opened.saturating_add(1);
        let channel = ChannelId(self.opened);
        self.channels.insert(channel, Channel::Dialled(dial));
        Ok(channel)
    }

    /// The app says hello: a session begins. On a plain dial it waits to be claimed; on a bound one it has the id and the token of the
    /// manifest, and is claimed.
    ///
    /// # Errors
    /// [`HelloRefused`]; nothing has changed.
    pub fn hello(
        &mut self,
        channel: ChannelId,
        app: &str,
        epoch_ms: u64,
        random: &mut dyn FnMut(&mut [u8]),
    ) -> Result<Admission, HelloRefused> {
        let dial = match self.channels.get(&channel) {
            None => return Err(HelloRefused::NotOpen),
            Some(Channel::Seated(_) | Channel::Superseded) => return Err(HelloRefused::AlreadyGreeted),
            Some(Channel::Dialled(dial)) => dial.clone(),
        };
        let app = AppId::parse(app)?;
        match dial {
            Dial::Plain => self.begin_pending(channel, app, epoch_ms, random),
            Dial::Bound(bound) => self.begin_bound(channel, app, bound, epoch_ms),
        }
    }

    fn begin_pending(
        &mut self,
        channel: ChannelId,
        app: AppId,
        epoch_ms: u64,
        random: &mut dyn FnMut(&mut [u8]),
    ) -> Result<Admission, HelloRefused> {
        if self.sessions.values().filter(|session| session.claimed.is_none()).count() >= self.policy.max_pending {
            return Err(HelloRefused::Full);
        }
        let mut ids = (0..REDRAWS).map(|_| SessionId::mint(random));
        let session_id = ids.find(|id| !self.sessions.contains_key(id)).ok_or(HelloRefused::NotRandom)?;
        let mut codes = (0..REDRAWS).map(|_| ClaimCode::mint(random));
        let code = codes.find(|code| self.find_code(code).is_none()).ok_or(HelloRefused::NotRandom)?;
        let token = ResumeToken::mint(random);
        let standing = ClaimState::Unclaimed { claim_code: Text::from(code.reveal()) };
        let session = Session {
            app,
            minted: (epoch_ms, self.next_order()),
            claimed: None,
            code: Some(code),
            token,
            previous: None,
            place: Place::Live(channel),
        };
        Ok(self.admit(channel, session_id, session, standing))
    }

    /// A session of this name may be known: a host that keeps its name and token over several claims has come back. Without the token it is
    /// somebody else.
    fn begin_bound(&mut self, channel: ChannelId, app: AppId, bound: BoundDial, epoch_ms: u64) -> Result<Admission, HelloRefused> {
        let BoundDial { code, session_id, resume_token } = bound;
        let is_foreign = |known: &Session| known.claimed.is_none() || known.app != app || !known.accepts(&resume_token);
        if self.sessions.get(&session_id).is_some_and(is_foreign) {
            return Err(HelloRefused::SessionTaken);
        }
        let order = self.next_order();
        let session = Session {
            app,
            minted: (epoch_ms, order),
            claimed: Some((epoch_ms, order)),
            code: Some(code),
            token: resume_token,
            previous: None,
            place: Place::Live(channel),
        };
        Ok(self.admit(channel, session_id, session, ClaimState::Bound))
    }

    /// The app comes back: a session that was claimed goes on, on this channel, whether its last one is gone or not. Its token is a new
    /// one; the one that was used stays good until [`Self::confirm`], in case the answer is lost.
    ///
    /// # Errors
    /// [`ResumeRefused`], found in this order; nothing has changed, so that the attempt may be repeated, and a hello on the same
    /// channel is still possible.
    pub fn resume(
        &mut self,
        channel: ChannelId,
        credentials: &ResumeCredentials,
        app: &str,
        random: &mut dyn FnMut(&mut [u8]),
    ) -> Result<Admission, ResumeRefused> {
        match self.channels.get(&channel) {
            None => return Err(ResumeRefused::NotOpen),
            Some(Channel::Seated(_) | Channel::Superseded) => return Err(ResumeRefused::AlreadyGreeted),
            Some(Channel::Dialled(_)) => {}
        }
        let app = AppId::parse(app)?;
        let session_id = SessionId::parse(&credentials.session_id).map_err(|_| ResumeRefused::UnknownSession)?;
        let known = self.sessions.get(&session_id).ok_or(ResumeRefused::UnknownSession)?;
        if known.app != app {
            return Err(ResumeRefused::OtherApp);
        }
        if known.claimed.is_none() {
            return Err(ResumeRefused::NeverClaimed);
        }
        let used = ResumeToken::parse(&credentials.resume_token).map_err(|_| ResumeRefused::WrongToken)?;
        if !known.accepts(&used) {
            return Err(ResumeRefused::WrongToken);
        }
        let session = Session {
            code: None,
            token: ResumeToken::mint(random),
            previous: Some(used),
            place: Place::Live(channel),
            ..known.clone()
        };
        Ok(self.admit(channel, session_id, session, ClaimState::Resumed))
    }

    /// The app has sent a frame after its welcome, so it has the welcome: the token before the last one is no longer good. Without a
    /// session on the channel, or repeated, it changes nothing.
    pub fn confirm(&mut self, channel: ChannelId) {
        if let Some(Channel::Seated(id)) = self.channels.get(&channel)
            && let Some(session) = self.sessions.get_mut(id)
        {
            session.previous = None;
        }
    }

    /// A person has said `code`, in any case. A session that is claimed already is found again as long as it keeps the channel on which
    /// it was claimed.
    ///
    /// # Errors
    /// [`ClaimMissed`]: it is no code, or belongs to no session here. It may be one of a manifest.
    pub fn claim(&mut self, code: &str, epoch_ms: u64) -> Result<Claimed, ClaimMissed> {
        let code = ClaimCode::parse(code)?;
        let channel = self.find_code(&code).ok_or(ClaimMissed::Unknown)?;
        let Some(Channel::Seated(session_id)) = self.channels.get(&channel) else { return Err(ClaimMissed::Unknown) };
        let session_id = session_id.clone();
        let order = self.next_order();
        let session = self.sessions.get_mut(&session_id).ok_or(ClaimMissed::Unknown)?;
        let first = session.claimed.is_none();
        let (claimed_at, _) = *session.claimed.get_or_insert((epoch_ms, order));
        Ok(Claimed { channel, session_id, app: session.app.clone(), claimed_at, first })
    }

    /// The channel is gone.
    pub fn handle_closed(&mut self, channel: ChannelId, now: Instant) -> Departure {
        self.now = self.now.max(now);
        let Some(Channel::Seated(id)) = self.channels.remove(&channel) else { return Departure::Nothing };
        let order = self.next_order();
        let Some(session) = self.sessions.get_mut(&id) else { return Departure::Nothing };
        if session.claimed.is_none() {
            self.sessions.remove(&id);
            return Departure::Unclaimed;
        }
        if self.policy.resume_ttl.is_zero() || self.policy.max_zombies == 0 {
            self.sessions.remove(&id);
            return Departure::Forgotten;
        }
        let expiry = (self.now.saturating_add(self.policy.resume_ttl), order);
        session.place = Place::Zombie(expiry);
        self.zombies.insert(expiry, id);
        if self.zombies.len() > self.policy.max_zombies {
            self.forget_oldest();
        }
        Departure::Kept
    }

    /// The deadline at which the next session that waits for its app is forgotten.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.zombies.first_key_value().map(|((at, _), _)| *at)
    }

    /// Forgets the sessions whose time is over. Early or repeated, it changes nothing.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = self.now.max(now);
        while self.poll_timeout().is_some_and(|due| due <= self.now) {
            self.forget_oldest();
        }
    }

    /// Returns `true` if the channel has a claimed session: only then may it be called, and may it ask.
    #[must_use]
    pub fn is_claimed(&self, channel: ChannelId) -> bool {
        matches!(self.channels.get(&channel), Some(Channel::Seated(id))
            if self.sessions.get(id).is_some_and(|session| session.claimed.is_some()))
    }

    /// The session that a channel has.
    #[must_use]
    pub fn session_on(&self, channel: ChannelId) -> Option<&SessionId> {
        if let Channel::Seated(id) = self.channels.get(&channel)? { Some(id) } else { None }
    }

    /// Returns `true` if a session has a channel, or may get one again.
    #[must_use]
    pub fn knows(&self, session: &SessionId) -> bool {
        self.sessions.contains_key(session)
    }

    /// Returns `true` if the session on some channel was or can be claimed by this code.
    #[must_use]
    pub fn holds(&self, code: &ClaimCode) -> bool {
        self.find_code(code).is_some()
    }

    /// The channel that calls to this app go to: of the session that was claimed last, of those that have a channel.
    #[must_use]
    pub fn route(&self, app: &str) -> Option<ChannelId> {
        let serving = self.serving().filter(|(_, session, _, _)| session.app.as_str() == app);
        serving.max_by_key(|(_, _, _, order)| *order).map(|(_, _, channel, _)| channel)
    }

    /// The session that [`Self::route`] leads to, for every app that has one, in the order of their ids.
    #[must_use]
    pub fn routed(&self) -> Vec<Routed> {
        let mut newest: BTreeMap<&AppId, (u64, ChannelId, &SessionId)> = BTreeMap::new();
        for (id, session, channel, order) in self.serving() {
            let entry = newest.entry(&session.app).or_insert((order, channel, id));
            *entry = (*entry).max((order, channel, id));
        }
        let routed = |(app, (_, channel, id)): (&AppId, (u64, ChannelId, &SessionId))| Routed {
            app: app.clone(),
            channel,
            session_id: id.clone(),
        };
        newest.into_iter().map(routed).collect()
    }

    /// Finds the target of a tool called `<app id>__<action>`. Both parts may hold `__`; the longest id that serves calls is meant.
    #[must_use]
    pub fn resolve<'a>(&'a self, tool: &'a str) -> Option<Resolved<'a>> {
        let named = self.serving().filter_map(|(_, session, channel, order)| {
            let action = tool.strip_prefix(session.app.as_str())?.strip_prefix("__")?;
            Some((order, Resolved { channel, app: &session.app, action }))
        });
        named.max_by_key(|(order, resolved)| (resolved.app.as_str().len(), *order)).map(|(_, resolved)| resolved)
    }

    /// The sessions that wait to be claimed, newest first.
    #[must_use]
    pub fn pending(&self) -> Vec<Pending> {
        let mut pending: Vec<(u64, Pending)> = Vec::new();
        for (id, session) in &self.sessions {
            if let (None, Some(code), Some(channel)) = (session.claimed, &session.code, session.channel()) {
                let (minted_at, order) = session.minted;
                let (session_id, app, code) = (id.clone(), session.app.clone(), code.clone());
                pending.push((order, Pending { channel, session_id, app, code, minted_at }));
            }
        }
        pending.sort_by_key(|(order, _)| Reverse(*order));
        pending.into_iter().map(|(_, pending)| pending).collect()
    }

    /// The sessions that serve calls, with their channel and the order of their claims.
    fn serving(&self) -> impl Iterator<Item = (&SessionId, &Session, ChannelId, u64)> {
        self.sessions.iter().filter_map(|(id, session)| session.serving().map(|(channel, order)| (id, session, channel, order)))
    }

    /// The channel of the session with this code. Every candidate is compared, whichever it is.
    fn find_code(&self, code: &ClaimCode) -> Option<ChannelId> {
        // Channels count from 1.
        let mut found = 0;
        for session in self.sessions.values() {
            if let (Some(candidate), Some(ChannelId(channel))) = (&session.code, session.channel()) {
                found.conditional_assign(&channel, candidate.ct_eq(code));
            }
        }
        (found != 0).then_some(ChannelId(found))
    }

    /// Gives the channel its session, and the session its channel; if it is known, it leaves where it was.
    fn admit(&mut self, channel: ChannelId, id: SessionId, session: Session, standing: ClaimState) -> Admission {
        let supersedes = self.unseat(&id);
        let admission = Admission {
            welcome: Welcome {
                session_id: Text::from(id.as_str()),
                resume_token: Some(Text::from(session.token.reveal())),
                standing,
            },
            claimed_at: session.claimed.map(|(at, _)| at),
            supersedes,
        };
        self.channels.insert(channel, Channel::Seated(id.clone()));
        self.sessions.insert(id, session);
        admission
    }

    /// Takes a session from where it is, if it is known: its channel, which is named, or its place among those that wait.
    fn unseat(&mut self, id: &SessionId) -> Option<ChannelId> {
        match self.sessions.get(id)?.place {
            Place::Zombie(expiry) => {
                self.zombies.remove(&expiry);
                None
            }
            Place::Live(channel) => {
                self.channels.insert(channel, Channel::Superseded);
                Some(channel)
            }
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((_, id)) = self.zombies.pop_first() {
            self.sessions.remove(&id);
        }
    }

    fn next_order(&mut self) -> u64 {
        self.order = self.order.saturating_add(1);
        self.order
    }
}
