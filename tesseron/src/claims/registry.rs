//! The gateway's side of claims: the channels to apps and their sessions. A *Pending* session waits to be claimed, a *Live* session is
//! claimed and has a channel, and a *Disconnected* session is claimed, has lost its channel, and may be resumed (Tesseron calls it a
//! zombie):
//!
//! ```text
//!                              its code                    its channel closes
//!   hello --------> Pending ----------------> Live ----------------------------> Disconnected
//!                      |                      ^  ^                               |  |
//!                      | its channel closes   |  `-- a resume with its token ----'  | `resume_ttl` is over,
//!                      v                      |                                     | more than `max_disconnected`
//!                 (forgotten)                 |                                     v
//!   hello on a bound channel -----------------'                                (forgotten)
//! ```
//!
//! |                                         | Pending    | Live                                        | Disconnected          |
//! |-----------------------------------------|------------|---------------------------------------------|-----------------------|
//! | its code                                | Live       | found, if still on the channel of that code | unknown               |
//! | resume with its token                   | refused    | Live, moved to the new channel              | Live                  |
//! | bound hello with its id and token       | refused    | Live, moved, claimed anew                   | Live, claimed anew    |
//! | resume or bound hello, another token    | refused    | refused                                     | refused               |
//! | the first frame after the welcome       |            | the token that was used is spent            |                       |
//! | its channel closes                      | forgotten  | Disconnected; forgotten if none may be kept |                       |
//! | an earlier channel of it closes         |            |                                             |                       |
//! | `resume_ttl` is over                    |            |                                             | forgotten             |
//! | more than `max_disconnected`            |            |                                             | the oldest: forgotten |
//!
//! (A *bound hello* is a hello on a channel that was bound with a claim code.)
//!
//! A session has at most one channel, and a channel at most one session; every transition changes both together. So the end of a channel
//! whose session has moved to another channel has no effect, and a session that becomes Disconnected twice has one deadline
//! (`docs/protocols/tesseron.md`, "Faults of the reference implementation"). Only the right code claims a session, only the right token
//! moves a session to another channel, a claimed session stays claimed, and a refused request changes nothing.

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

/// The maximum number of times that a code or an id is drawn again because it is in use. A random source does not need that many.
const REDRAWS: usize = 16;

/// The time limits and bounds of a [`SessionRegistry`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegistryPolicy {
    /// The time for which a claimed session without a channel may be resumed. Zero means not at all. Default: 4 h.
    pub resume_ttl: Duration,
    /// The maximum number of claimed sessions without a channel. A further one replaces the oldest. Default: 100.
    pub max_disconnected: usize,
    /// The maximum number of sessions that wait to be claimed. Default: 100.
    pub max_pending: usize,
    /// The maximum number of open channels. Default: 1024.
    pub max_channels: usize,
}

impl Default for RegistryPolicy {
    fn default() -> Self {
        Self { resume_ttl: Duration::from_secs(4 * 60 * 60), max_disconnected: 100, max_pending: 100, max_channels: 1024 }
    }
}

/// The id of a channel to an app. It is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(u64);

impl ChannelId {
    /// The number of the channel, counted from 1.
    pub(crate) const fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for ChannelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "channel-{}", self.0)
    }
}

/// The way in which a gateway has connected to an app.
#[derive(Clone, Debug)]
pub enum Dial {
    /// Without a code: the session of the app waits to be claimed.
    Unbound,
    /// With the claim code of the app, which the agent has sent: the session of the app is claimed from the beginning.
    Bound(BoundDial),
}

/// The claim with which a channel was bound, as it is in the manifest of the app.
#[derive(Clone, Debug)]
pub struct BoundDial {
    /// The code, by which [`SessionRegistry::claim`] finds the session.
    pub code: ClaimCode,
    /// The id of the session.
    pub session_id: SessionId,
    /// The token that resumes the session.
    pub resume_token: ResumeToken,
}

/// The answer to a hello or a resume.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Admission {
    /// The argument for [`protocol_core::Session::welcome`].
    pub welcome: Welcome,
    /// The time of the claim, in milliseconds since 1970; `None` if the session waits to be claimed. After the welcome of a
    /// [`ClaimState::Bound`] session call [`protocol_core::Session::claim`] immediately.
    pub claimed_at: Option<u64>,
    /// The channel that had the session before. Close it, and drop its frames.
    pub supersedes: Option<ChannelId>,
}

/// The session that a claim code has claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Claimed {
    /// Its channel.
    pub channel: ChannelId,
    /// The id of the session.
    pub session_id: SessionId,
    /// The app that it belongs to.
    pub app: AppId,
    /// The time of the claim, in milliseconds since 1970.
    pub claimed_at: u64,
    /// `true` if this call has claimed the session: send `tesseron/claimed`, and report that the tools have changed. `false` if the session
    /// was claimed before.
    pub first: bool,
}

/// The effect of the end of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// The channel had no session, or was not open.
    Nothing,
    /// The session was not claimed, and is forgotten.
    Unclaimed,
    /// The session was claimed, and may be resumed. The tools have changed.
    Kept,
    /// The session was claimed, and is forgotten, since the [`RegistryPolicy`] allows no session to be resumed. The tools have changed.
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
    /// The app that it belongs to.
    pub app: AppId,
    /// The code that claims it.
    pub code: ClaimCode,
    /// The time of its hello, in milliseconds since 1970.
    pub minted_at: u64,
}

/// The session that serves the calls of an app.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Routed {
    /// The app.
    pub app: AppId,
    /// The channel for its calls.
    pub channel: ChannelId,
    /// The id of the session.
    pub session_id: SessionId,
}

/// The target of a call of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resolved<'a> {
    /// The channel for the call.
    pub channel: ChannelId,
    /// The app.
    pub app: &'a AppId,
    /// The name of the action. It may be empty.
    pub action: &'a str,
}

/// The channels of a gateway to apps, and the sessions that have a channel or may be resumed.
///
/// Call [`open`](Self::open) for a new channel, and [`handle_closed`](Self::handle_closed) when it has ended. Call [`hello`](Self::hello)
/// or [`resume`](Self::resume) for the first frame of the app, and [`confirm`](Self::confirm) for every later one.
///
/// [`RegistryPolicy`] bounds all tables. The same sequence of method calls has the same results. Only
/// [`handle_timeout`](Self::handle_timeout) expires a session. A `now` before the latest one counts as the latest one.
#[derive(Clone, Debug)]
pub struct SessionRegistry {
    policy: RegistryPolicy,
    now: Instant,
    channels: BTreeMap<ChannelId, Channel>,
    sessions: BTreeMap<SessionId, Session>,
    /// The claimed sessions without a channel, in the order in which they expire.
    disconnected: BTreeMap<Expiry, SessionId>,
    /// The number of channels that were opened so far.
    opened: u64,
    /// A counter of admissions, claims and departures, which orders them independently of the clocks.
    order: u64,
}

#[derive(Clone, Debug)]
enum Channel {
    /// The channel has no session yet: no hello or resume was accepted on it.
    Dialled(Dial),
    /// The channel has the session with this id.
    Attached(SessionId),
    /// The session of the channel has moved to another channel.
    Superseded,
}

#[derive(Clone, Debug)]
struct Session {
    app: AppId,
    /// The time of the session's last hello, in milliseconds since 1970, and the value of [`SessionRegistry::order`] then.
    minted: (u64, u64),
    /// The time of the claim, in milliseconds since 1970, and the value of [`SessionRegistry::order`] then.
    claimed: Option<(u64, u64)>,
    /// The code with which the session was or can be claimed. `None` after a resume.
    code: Option<ClaimCode>,
    token: ResumeToken,
    /// The previous token, until [`SessionRegistry::confirm`].
    previous: Option<ResumeToken>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The session has this channel. It is *Pending* or, once it is claimed, *Live*.
    Connected(ChannelId),
    Disconnected(Expiry),
}

/// The time at which a session without a channel is forgotten, and the value of [`SessionRegistry::order`] when it lost its channel.
type Expiry = (Instant, u64);

impl Session {
    /// Returns `true` if `token` resumes the session. `token` is always compared with both tokens, so that the time is constant.
    fn accepts(&self, token: &ResumeToken) -> bool {
        let previous = self.previous.as_ref().map_or_else(|| Choice::from(0), |previous| previous.ct_eq(token));
        (self.token.ct_eq(token) | previous).into()
    }

    fn channel(&self) -> Option<ChannelId> {
        match self.state {
            State::Connected(channel) => Some(channel),
            State::Disconnected(_) => None,
        }
    }

    /// The channel, and the order number of the claim, if the session serves calls: it is claimed, and has a channel.
    fn serving(&self) -> Option<(ChannelId, u64)> {
        self.channel().zip(self.claimed.map(|(_, order)| order))
    }
}

impl SessionRegistry {
    /// Creates an empty registry.
    #[must_use]
    pub fn new(policy: RegistryPolicy) -> Self {
        Self {
            policy,
            now: Instant::ZERO,
            channels: BTreeMap::new(),
            sessions: BTreeMap::new(),
            disconnected: BTreeMap::new(),
            opened: 0,
            order: 0,
        }
    }

    /// Adds a channel that is being connected, or is connected and has no session yet.
    ///
    /// # Errors
    /// [`OpenRefused`]; do not connect, or close the connection.
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

    /// Handles a hello, which begins a session. On a [`Dial::Unbound`] channel the session waits to be claimed. On a [`Dial::Bound`]
    /// channel it has the id and the token of the manifest, and is claimed; if there is a session with this id and token already, that
    /// session is claimed anew.
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
            Some(Channel::Attached(_) | Channel::Superseded) => return Err(HelloRefused::AlreadyGreeted),
            Some(Channel::Dialled(dial)) => dial.clone(),
        };
        let app = AppId::parse(app)?;
        match dial {
            Dial::Unbound => self.begin_pending(channel, app, epoch_ms, random),
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
        let claim_state = ClaimState::Unclaimed { claim_code: Text::from(code.reveal()) };
        let session = Session {
            app,
            minted: (epoch_ms, self.next_order()),
            claimed: None,
            code: Some(code),
            token,
            previous: None,
            state: State::Connected(channel),
        };
        Ok(self.admit(channel, session_id, session, claim_state))
    }

    /// Begins the session of a bound channel. There may be a session with this id already, if the app uses the same session id and token
    /// for several claims; that session must then be claimed, and have the same app and token.
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
            state: State::Connected(channel),
        };
        Ok(self.admit(channel, session_id, session, ClaimState::Bound))
    }

    /// Handles a resume: moves a claimed session to this channel, even if its previous channel has not ended. The session gets a new token.
    /// The token that was used stays valid until [`Self::confirm`], in case the answer is lost.
    ///
    /// # Errors
    /// [`ResumeRefused`]; if there are several reasons, the first in the order of its variants. Nothing has changed, and a hello on the
    /// same channel is still possible.
    pub fn resume(
        &mut self,
        channel: ChannelId,
        credentials: &ResumeCredentials,
        app: &str,
        random: &mut dyn FnMut(&mut [u8]),
    ) -> Result<Admission, ResumeRefused> {
        match self.channels.get(&channel) {
            None => return Err(ResumeRefused::NotOpen),
            Some(Channel::Attached(_) | Channel::Superseded) => return Err(ResumeRefused::AlreadyGreeted),
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
            state: State::Connected(channel),
            ..known.clone()
        };
        Ok(self.admit(channel, session_id, session, ClaimState::Resumed))
    }

    /// Records that the app has sent a frame after its welcome, so that it has the new token: the previous token is no longer valid. No
    /// effect without a session on the channel, or if repeated.
    pub fn confirm(&mut self, channel: ChannelId) {
        if let Some(Channel::Attached(id)) = self.channels.get(&channel)
            && let Some(session) = self.sessions.get_mut(id)
        {
            session.previous = None;
        }
    }

    /// Claims the session with `code`, in upper or lower case. A session that is already claimed is found while it has the channel on which
    /// it was claimed.
    ///
    /// # Errors
    /// [`ClaimMissed`] if `code` is not valid, or belongs to no session here. The code may still be in a manifest.
    pub fn claim(&mut self, code: &str, epoch_ms: u64) -> Result<Claimed, ClaimMissed> {
        let code = ClaimCode::parse(code)?;
        let channel = self.find_code(&code).ok_or(ClaimMissed::Unknown)?;
        let Some(Channel::Attached(session_id)) = self.channels.get(&channel) else { return Err(ClaimMissed::Unknown) };
        let session_id = session_id.clone();
        let order = self.next_order();
        let session = self.sessions.get_mut(&session_id).ok_or(ClaimMissed::Unknown)?;
        let first = session.claimed.is_none();
        let (claimed_at, _) = *session.claimed.get_or_insert((epoch_ms, order));
        Ok(Claimed { channel, session_id, app: session.app.clone(), claimed_at, first })
    }

    /// Handles the end of a channel.
    pub fn handle_closed(&mut self, channel: ChannelId, now: Instant) -> Departure {
        self.now = self.now.max(now);
        let Some(Channel::Attached(id)) = self.channels.remove(&channel) else { return Departure::Nothing };
        let order = self.next_order();
        let Some(session) = self.sessions.get_mut(&id) else { return Departure::Nothing };
        if session.claimed.is_none() {
            self.sessions.remove(&id);
            return Departure::Unclaimed;
        }
        if self.policy.resume_ttl.is_zero() || self.policy.max_disconnected == 0 {
            self.sessions.remove(&id);
            return Departure::Forgotten;
        }
        let expiry = (self.now.saturating_add(self.policy.resume_ttl), order);
        session.state = State::Disconnected(expiry);
        self.disconnected.insert(expiry, id);
        if self.disconnected.len() > self.policy.max_disconnected {
            self.forget_oldest();
        }
        Departure::Kept
    }

    /// The time at which the next session without a channel is forgotten.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.disconnected.first_key_value().map(|((at, _), _)| *at)
    }

    /// Forgets the sessions that can no longer be resumed. Harmless if called early or repeatedly.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = self.now.max(now);
        while self.poll_timeout().is_some_and(|due| due <= self.now) {
            self.forget_oldest();
        }
    }

    /// Returns `true` if the session on a channel is claimed. Calls and input requests are allowed only then.
    #[must_use]
    pub fn is_claimed(&self, channel: ChannelId) -> bool {
        matches!(self.channels.get(&channel), Some(Channel::Attached(id))
            if self.sessions.get(id).is_some_and(|session| session.claimed.is_some()))
    }

    /// The session on a channel.
    #[must_use]
    pub fn session_on(&self, channel: ChannelId) -> Option<&SessionId> {
        if let Channel::Attached(id) = self.channels.get(&channel)? { Some(id) } else { None }
    }

    /// Returns `true` if a session has a channel, or may be resumed.
    #[must_use]
    pub fn contains(&self, session: &SessionId) -> bool {
        self.sessions.contains_key(session)
    }

    /// Returns `true` if a session that has a channel was or can be claimed with this code.
    #[must_use]
    pub fn has_code(&self, code: &ClaimCode) -> bool {
        self.find_code(code).is_some()
    }

    /// The channel for calls to an app. If several claimed sessions of the app have a channel, it is the channel of the session that was
    /// claimed last.
    #[must_use]
    pub fn route(&self, app: &str) -> Option<ChannelId> {
        let serving = self.serving().filter(|(_, session, _, _)| session.app.as_str() == app);
        serving.max_by_key(|(_, _, _, order)| *order).map(|(_, _, channel, _)| channel)
    }

    /// The session of every app that serves calls, as [`Self::route`] finds it, in the order of app ids.
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

    /// Finds the target of a tool named `<app id>__<action>`. Both parts may contain `__`; of the apps that serve calls, the one with the
    /// longest matching id is used.
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

    /// The sessions that serve calls, with their channels and the numbers of their claims.
    fn serving(&self) -> impl Iterator<Item = (&SessionId, &Session, ChannelId, u64)> {
        self.sessions.iter().filter_map(|(id, session)| session.serving().map(|(channel, order)| (id, session, channel, order)))
    }

    /// The channel of the session with this code. All codes are compared, so that the time is constant.
    fn find_code(&self, code: &ClaimCode) -> Option<ChannelId> {
        // 0 stands for no channel, since channels are numbered from 1.
        let mut found = 0;
        for session in self.sessions.values() {
            if let (Some(candidate), Some(ChannelId(channel))) = (&session.code, session.channel()) {
                found.conditional_assign(&channel, candidate.ct_eq(code));
            }
        }
        (found != 0).then_some(ChannelId(found))
    }

    /// Attaches a session to a channel. A session with this id that exists already is detached from its previous channel, and replaced.
    fn admit(&mut self, channel: ChannelId, id: SessionId, session: Session, claim_state: ClaimState) -> Admission {
        let supersedes = self.detach(&id);
        let admission = Admission {
            welcome: Welcome {
                session_id: Text::from(id.as_str()),
                resume_token: Some(Text::from(session.token.reveal())),
                claim_state,
            },
            claimed_at: session.claimed.map(|(at, _)| at),
            supersedes,
        };
        self.channels.insert(channel, Channel::Attached(id.clone()));
        self.sessions.insert(id, session);
        admission
    }

    /// Removes the session with this id from its channel, and returns the channel; or removes it from the table of sessions that may be
    /// resumed. No effect if there is no such session.
    fn detach(&mut self, id: &SessionId) -> Option<ChannelId> {
        match self.sessions.get(id)?.state {
            State::Disconnected(expiry) => {
                self.disconnected.remove(&expiry);
                None
            }
            State::Connected(channel) => {
                self.channels.insert(channel, Channel::Superseded);
                Some(channel)
            }
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((_, id)) = self.disconnected.pop_first() {
            self.sessions.remove(&id);
        }
    }

    fn next_order(&mut self) -> u64 {
        self.order = self.order.saturating_add(1);
        self.order
    }
}
