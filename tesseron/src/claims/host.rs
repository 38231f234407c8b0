//! Claims at the app: the state of its claim and of its one channel.
//!
//! ```text
//!                 the right code                            its agent becomes known
//!   Free -------------------------------> Bound, not known --------------------------> Bound, known
//!    ^                                           |                                          |
//!    '-------------------------------------------+------------------------------------------'
//!          the channel has ended: a new claim, with a new code, session id and token
//! ```
//!
//! While the host is Free, the expiry of the claim is postponed at the interval [`HostPolicy::refresh`]. Once the host is Bound, the claim
//! is spent, and the manifest shows the agent that has it.
//!
//! | a gateway connects    | with the code | with another code                    | with none |
//! |-----------------------|---------------|--------------------------------------|-----------|
//! | when Free             | Bound         | `Mismatch`                           | `Unbound` |
//! | when Bound, not known | `Taken`       | `Mismatch`; on a Unix socket `Taken` | `Unbound` |
//! | when Bound, known     | `Spent`       | `Mismatch`; on a Unix socket `Spent` | `Unbound` |
//!
//! (*Known* means that the gateway has named its agent.) On a Unix socket *with none* is any frame that is not a bind. A bind without a
//! code is answered `Malformed` when Free, and otherwise as a bind with the code. On a WebSocket a request that does not name the
//! subprotocol of a gateway is answered `NoGateway`, and one with two codes or an invalid code `Malformed`.
//!
//! In the reference implementation a host has one claim for ever: its manifest still shows the claim when it is spent, and after the first
//! gateway has disconnected, any gateway is admitted. Here a claim is valid for one channel, and a host with claims never admits a gateway
//! without a code.
//!
//! A host without claims has no code. While the host is Free, a gateway without a code is admitted; while it is Bound, the answer is
//! `Occupied`. A gateway with a code gets `Mismatch`, since the code must be that of another app. A Unix socket differs: while the host is
//! Free, a connection is admitted before it has sent anything, and while the host is Bound, every bind is answered with `Occupied`.
//!
//! Unless the host is [for any user](Host::for_any_user), a connection from another user is refused at once, and so is a connection from an
//! unknown user if no code protects the app. All other connections get a place in the backlog ([`Arrival`]), and must bind within a short
//! time. A code is checked after a delay that depends on earlier wrong codes ([`HostPolicy::max_delay`]); the right code is never refused
//! because of wrong ones.

use core::fmt;

use super::backlog::{Arrival, Backlog, Place};
use super::offer::{Offer, OfferedBind};
use super::slow_down::SlowDown;
use super::{BindRefused, ClaimCode, ClaimCodeError, HostPolicy, Peer, PeerUser, ResumeToken, SessionId};
use protocol_core::dialect::Identity;
use protocol_core::dialect::tesseron::pending_agent;
use protocol_core::json::Text;
use protocol_core::time::Instant;

/// The code of a bind: `None` if it is missing or not text, an error if it is not a valid code.
pub(super) type BindCode = Option<Result<ClaimCode, ClaimCodeError>>;

/// The agent that a gateway acts for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    /// The id, for programs.
    pub id: Text,
    /// The name, for people.
    pub name: Text,
}

impl Agent {
    /// The placeholder for an agent that is not known yet.
    #[must_use]
    pub fn pending() -> Self {
        pending_agent().into()
    }
}

impl From<Identity> for Agent {
    /// Converts the identity that a gateway has sent. The name of the identity becomes the id; the title, or the name if there is no title,
    /// becomes the name for people.
    fn from(identity: Identity) -> Self {
        let Identity { name, title, .. } = identity;
        Self { name: title.unwrap_or_else(|| name.clone()).into(), id: name.into() }
    }
}

/// The claim in the manifest of a host.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The code that binds a channel.
    pub code: ClaimCode,
    /// The id of the session of that channel.
    pub session_id: SessionId,
    /// The token that resumes the session.
    pub resume_token: ResumeToken,
    /// The time when the claim was made, in milliseconds since 1970.
    pub minted_at: u64,
    /// The time when the claim expires unless it is refreshed, in milliseconds since 1970.
    pub expires_at: u64,
    /// The agent that has claimed the app; [`Agent::pending`] between the bind and the gateway's message about its agent. `None` if the app
    /// can be claimed.
    pub bound_agent: Option<Agent>,
}

impl Claim {
    /// Returns `true` if a gateway may list the app and connect: it is not claimed, and the claim has not expired.
    #[must_use]
    pub const fn is_claimable(&self, epoch_ms: u64) -> bool {
        self.bound_agent.is_none() && epoch_ms <= self.expires_at
    }
}

/// The id of a channel that a [`Host`] has admitted. It is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostChannel(u64);

impl fmt::Display for HostChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "host-channel-{}", self.0)
    }
}

/// Claims at the app: its claim, its backlog, and its one channel.
///
/// Pass each connection to [`accept`](Self::accept), and then to [`accept_web_socket`](Self::accept_web_socket) or
/// [`accept_unix`](Self::accept_unix); call [`leave`](Self::leave) when it has ended. When an admitted channel has ended, or its upgrade
/// could not be completed, call [`handle_closed`](Self::handle_closed): until then the app is occupied. Call
/// [`poll_claim`](Self::poll_claim) after each method of the host or of one of its gates, and write the manifest if it returns a claim.
#[derive(Clone, Debug)]
pub struct Host {
    policy: HostPolicy,
    /// `None` for a host without claims.
    claim: Option<Claim>,
    state: State,
    /// `true` if connections of any user of this machine are accepted.
    any_user: bool,
    backlog: Backlog,
    slow_down: SlowDown,
    /// `true` if the claim has changed since the last [`Self::poll_claim`].
    changed: bool,
    /// The number of channels that were admitted so far.
    channels: u64,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// No channel is bound.
    Free { refresh: Option<Instant> },
    /// A channel is admitted, with or without a code. The claim, if there is one, is spent.
    Bound { channel: HostChannel, agent_known: bool },
}

impl Host {
    /// Creates a host that makes its own claims, the first one at once.
    #[must_use]
    pub fn with_claims(policy: HostPolicy, now: Instant, epoch_ms: u64, random: &mut dyn FnMut(&mut [u8])) -> Self {
        let mut host = Self { policy, ..Self::without_claims() };
        host.mint(now, epoch_ms, random);
        host
    }

    /// Creates a host without claims, which admits any gateway without a code while it is free.
    #[must_use]
    pub fn without_claims() -> Self {
        Self {
            policy: HostPolicy::default(),
            claim: None,
            state: State::Free { refresh: None },
            any_user: false,
            backlog: Backlog::default(),
            slow_down: SlowDown::default(),
            changed: false,
            channels: 0,
        }
    }

    /// Makes the host accept gateways of any user of this machine.
    #[must_use]
    pub fn for_any_user(self) -> Self {
        Self { any_user: true, ..self }
    }

    /// The time limits and bounds.
    pub(super) fn policy(&self) -> &HostPolicy {
        &self.policy
    }

    /// The current claim, spent or not. `None` for a host without claims.
    #[must_use]
    pub fn claim(&self) -> Option<&Claim> {
        self.claim.as_ref()
    }

    /// The claim, if it has changed since the last call. Write it into the manifest.
    pub fn poll_claim(&mut self) -> Option<&Claim> {
        core::mem::take(&mut self.changed).then_some(self.claim.as_ref()).flatten()
    }

    /// The channel that is admitted.
    #[must_use]
    pub fn channel(&self) -> Option<HostChannel> {
        match self.state {
            State::Free { .. } => None,
            State::Bound { channel, .. } => Some(channel),
        }
    }

    /// Adds a new connection to the backlog, until it is admitted or has ended.
    ///
    /// # Errors
    /// [`BindRefused::Foreign`]; close the connection, which has no place.
    pub fn accept(&mut self, peer: impl Into<Peer>) -> Result<Arrival, BindRefused> {
        let peer = peer.into();
        let is_accepted = match peer.user() {
            PeerUser::ThisUser => true,
            PeerUser::OtherUser(_) => self.any_user,
            // A connection of an unknown user is accepted if any user is, or if a code protects the app.
            PeerUser::Unknown => self.any_user || self.claim.is_some(),
        };
        if is_accepted { Ok(self.backlog.arrive(peer, self.policy.places)) } else { Err(BindRefused::Foreign) }
    }

    /// Removes a connection that has ended from the backlog. No effect if the connection was admitted or evicted.
    pub fn leave(&mut self, place: Place) {
        self.backlog.leave(place);
    }

    /// The time at which a code that arrives now from the connection at `place` is checked.
    pub(super) fn check_time(&self, place: Place, now: Instant) -> Instant {
        // Without a claim there is no code that could be guessed, so no check is delayed.
        let delay = self.claim.as_ref().map(|_| self.slow_down.delay(&self.policy, place.peer(), now));
        now.saturating_add(delay.unwrap_or_default())
    }

    /// Checks the upgrade of a WebSocket (`docs/protocols/tesseron.md`, "Binding a WebSocket"). `Ok` admits the gateway and spends the
    /// claim.
    pub(super) fn answer_upgrade(&mut self, place: Place, offer: &Offer, now: Instant) -> Result<HostChannel, BindRefused> {
        if !offer.is_gateway() {
            return Err(BindRefused::NoGateway);
        }
        match (offer.bind(), &self.claim) {
            (OfferedBind::Malformed, _) => Err(BindRefused::Malformed),
            (OfferedBind::None, None) => self.admit_without_code(place),
            (OfferedBind::None, Some(_)) => Err(BindRefused::Unbound),
            (OfferedBind::Code(code), _) => {
                self.check_code(place, code, now)?;
                self.check_free()?;
                Ok(self.bind(place))
            }
        }
    }

    /// Checks a bind on a Unix socket (`docs/protocols/tesseron.md`, "Binding a Unix socket"). `is_bound` is `true` if the socket is
    /// already bound.
    pub(super) fn answer_bind(
        &mut self,
        place: Place,
        is_bound: bool,
        code: BindCode,
        now: Instant,
    ) -> Result<HostChannel, BindRefused> {
        if is_bound {
            return Err(BindRefused::BoundHere);
        }
        self.check_free()?;
        match code.ok_or(BindRefused::Malformed)? {
            Ok(code) => self.check_code(place, &code, now)?,
            // Text that is not a valid code counts as a wrong code.
            Err(_) => return Err(self.on_mismatch(place, now)),
        }
        Ok(self.bind(place))
    }

    /// Stores the agent that the gateway has named, in its welcome or by `tesseron/claimed`. No effect if `channel` is not the admitted
    /// channel, or if the host has no claims.
    pub fn handle_agent(&mut self, channel: HostChannel, agent: Agent) {
        if let (State::Bound { channel: bound, agent_known }, Some(claim)) = (&mut self.state, &mut self.claim)
            && *bound == channel
        {
            *agent_known = true;
            self.changed |= claim.bound_agent.as_ref() != Some(&agent);
            claim.bound_agent = Some(agent);
        }
    }

    /// Frees the host after its channel has ended. Makes a new claim, unless the host has no claims. No effect if `channel` is not the
    /// admitted channel.
    pub fn handle_closed(&mut self, channel: HostChannel, now: Instant, epoch_ms: u64, random: &mut dyn FnMut(&mut [u8])) {
        if self.channel() != Some(channel) {
            return;
        }
        self.state = State::Free { refresh: None };
        if self.claim.is_some() {
            self.mint(now, epoch_ms, random);
        }
    }

    /// The next deadline, at which [`Self::handle_timeout`] must be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Free { refresh } => refresh,
            State::Bound { .. } => None,
        }
    }

    /// Refreshes the claim if its refresh is due. Harmless if called early or repeatedly.
    pub fn handle_timeout(&mut self, now: Instant, epoch_ms: u64) {
        if self.poll_timeout().is_some_and(|due| due <= now)
            && let Some(claim) = &mut self.claim
        {
            claim.expires_at = expiry(&self.policy, epoch_ms);
            self.changed = true;
            self.state = State::Free { refresh: next_refresh(&self.policy, now) };
        }
    }

    fn mint(&mut self, now: Instant, epoch_ms: u64, random: &mut dyn FnMut(&mut [u8])) {
        self.claim = Some(Claim {
            code: ClaimCode::mint(random),
            session_id: SessionId::mint(random),
            resume_token: ResumeToken::mint(random),
            minted_at: epoch_ms,
            expires_at: expiry(&self.policy, epoch_ms),
            bound_agent: None,
        });
        self.changed = true;
        self.state = State::Free { refresh: next_refresh(&self.policy, now) };
    }

    fn check_code(&mut self, place: Place, code: &ClaimCode, now: Instant) -> Result<(), BindRefused> {
        match &self.claim {
            Some(claim) if claim.code.matches(code) => Ok(()),
            _ => Err(self.on_mismatch(place, now)),
        }
    }

    fn on_mismatch(&mut self, place: Place, now: Instant) -> BindRefused {
        self.slow_down.on_failure(place.peer(), now);
        BindRefused::Mismatch
    }

    fn check_free(&self) -> Result<(), BindRefused> {
        match self.state {
            State::Free { .. } => Ok(()),
            State::Bound { .. } if self.claim.is_none() => Err(BindRefused::Occupied),
            State::Bound { agent_known: true, .. } => Err(BindRefused::Spent),
            State::Bound { agent_known: false, .. } => Err(BindRefused::Taken),
        }
    }

    fn bind(&mut self, place: Place) -> HostChannel {
        self.slow_down.on_success(place.peer());
        if let Some(claim) = &mut self.claim {
            claim.bound_agent = Some(Agent::pending());
            self.changed = true;
        }
        self.admit(place)
    }

    fn admit_without_code(&mut self, place: Place) -> Result<HostChannel, BindRefused> {
        self.check_free()?;
        Ok(self.admit(place))
    }

    pub(super) fn admit(&mut self, place: Place) -> HostChannel {
        self.backlog.leave(place);
        self.channels = self.channels.saturating_add(1);
        let channel = HostChannel(self.channels);
        self.state = State::Bound { channel, agent_known: false };
        channel
    }
}

fn expiry(policy: &HostPolicy, epoch_ms: u64) -> u64 {
    epoch_ms.saturating_add(u64::try_from(policy.code_life.as_millis()).unwrap_or(u64::MAX))
}

fn next_refresh(policy: &HostPolicy, now: Instant) -> Option<Instant> {
    (!policy.refresh.is_zero()).then(|| now.saturating_add(policy.refresh))
}

#[cfg(test)]
// In names of tests, `item` or `bug` and a number cite a rule or a fault (docs/protocols/tesseron.md, "Former numbers").
mod tests {
    use core::time::Duration;

    use super::*;
    use crate::claims::UnixChannel;
    use crate::claims::draw::sequence;
    use alloc::string::{String, ToString};

    const EPOCH: u64 = 1_795_259_000_000;

    fn at(seconds: u64) -> Instant {
        Instant::from_millis(seconds * 1000)
    }

    fn host_with_claims() -> Host {
        Host::with_claims(HostPolicy::default(), at(0), EPOCH, &mut sequence(7))
    }

    fn code(host: &Host) -> String {
        host.claim().unwrap().code.reveal().to_string()
    }

    /// Connects by an upgrade with a code, or without one.
    fn dial(host: &mut Host, code: Option<&str>, now: Instant) -> Result<HostChannel, BindRefused> {
        let code = code.map(|code| ClaimCode::parse(code).unwrap());
        upgrade(host, &Offer::parse([&*Offer::header(code.as_ref())]), now)
    }

    fn upgrade(host: &mut Host, offer: &Offer, now: Instant) -> Result<HostChannel, BindRefused> {
        let place = host.accept(PeerUser::ThisUser)?.place;
        let answer = host.answer_upgrade(place, offer, now);
        host.leave(place);
        answer
    }

    fn accept_unix(host: &mut Host, now: Instant) -> UnixChannel {
        let place = host.accept(PeerUser::ThisUser).unwrap().place;
        host.accept_unix(place, now)
    }

    fn agent() -> Agent {
        Agent { id: "acme-cli".into(), name: "Acme".into() }
    }

    #[test]
    fn an_agent_is_read_from_the_identity_that_its_gateway_names() {
        let mut identity = Identity::new("acme-cli", "");
        assert_eq!(Agent::from(identity.clone()), Agent { id: "acme-cli".into(), name: "acme-cli".into() });
        identity.title = Some("Acme".into());
        assert_eq!(Agent::from(identity), agent());
        assert_eq!(Agent::pending(), Agent { id: "pending".into(), name: "Awaiting agent".into() });
    }

    #[test]
    fn every_row_of_the_table_of_upgrades_gets_its_answer() {
        let offer = |header: &str| Offer::parse([header]);
        let refused = |host: &mut Host, header: &str| {
            let refused = upgrade(host, &offer(header), at(0)).unwrap_err();
            (refused, refused.http_status())
        };

        let mut host = host_with_claims();
        let right = code(&host);
        let with_code = alloc::format!("tesseron-gateway,tesseron-bind.{right}");
        assert_eq!(refused(&mut host, &alloc::format!("tesseron-bind.{right}")), (BindRefused::NoGateway, None));
        assert_eq!(refused(&mut host, ""), (BindRefused::NoGateway, None));
        assert_eq!(refused(&mut host, "tesseron-gateway,tesseron-bind.!"), (BindRefused::Malformed, Some(400)));
        assert_eq!(refused(&mut host, &alloc::format!("{with_code},tesseron-bind.{right}")), (BindRefused::Malformed, Some(400)));
        assert_eq!(refused(&mut host, "tesseron-gateway,tesseron-bind.WRONG"), (BindRefused::Mismatch, Some(403)));
        assert_eq!(refused(&mut host, "tesseron-gateway"), (BindRefused::Unbound, Some(426)));

        let channel = upgrade(&mut host, &offer(&with_code.to_lowercase()), at(0)).unwrap();
        assert_eq!(host.channel(), Some(channel));
        assert_eq!(refused(&mut host, &with_code), (BindRefused::Taken, Some(409)));
        host.handle_agent(channel, agent());
        assert_eq!(refused(&mut host, &with_code), (BindRefused::Spent, Some(409)));
        assert_eq!(refused(&mut host, "tesseron-gateway"), (BindRefused::Unbound, Some(426)));
        for _ in 0..20 {
            assert_eq!(refused(&mut host, "tesseron-gateway,tesseron-bind.WRONG").0, BindRefused::Mismatch);
        }
        assert_eq!(
            refused(&mut host, &with_code),
            (BindRefused::Spent, Some(409)),
            "wrong codes do not change the answer to the right one"
        );

        let mut host = Host::without_claims();
        assert!(upgrade(&mut host, &offer("tesseron-gateway"), at(0)).is_ok());
        assert_eq!(refused(&mut host, "tesseron-gateway"), (BindRefused::Occupied, Some(409)));
    }

    #[test]
    fn item_113_any_number_of_wrong_codes_does_not_lock_a_peer_out() {
        let mut host = host_with_claims();
        for _ in 0..1000 {
            assert_eq!(dial(&mut host, Some("WRONG"), at(0)), Err(BindRefused::Mismatch));
        }
        let right = code(&host);
        assert!(dial(&mut host, Some(&right), at(0)).is_ok());
    }

    #[test]
    fn only_a_wrong_code_delays_the_next_one() {
        let mut host = host_with_claims();
        for _ in 0..20 {
            assert_eq!(dial(&mut host, None, at(0)), Err(BindRefused::Unbound));
            let malformed = Offer::parse(["tesseron-gateway,tesseron-bind.!"]);
            assert_eq!(upgrade(&mut host, &malformed, at(0)), Err(BindRefused::Malformed));
        }
        let place = host.accept(PeerUser::ThisUser).unwrap().place;
        assert_eq!(host.check_time(place, at(0)), at(0));
        assert_eq!(dial(&mut host, Some("WRONG"), at(0)), Err(BindRefused::Mismatch));
        assert_eq!(host.check_time(place, at(0)), Instant::from_millis(125));
    }

    #[test]
    fn item_114_bug_9_after_the_bound_gateway_has_disconnected_one_without_a_code_is_refused() {
        let mut host = host_with_claims();
        let mut random = sequence(9);
        for _ in 0..3 {
            let right = code(&host);
            let channel = dial(&mut host, Some(&right), at(0)).unwrap();
            host.handle_closed(channel, at(1), EPOCH, &mut random);
            assert_eq!(dial(&mut host, None, at(1)), Err(BindRefused::Unbound));
            assert_eq!(
                dial(&mut host, Some(&right), at(1)),
                Err(BindRefused::Mismatch),
                "the spent code is not valid for the new claim"
            );
            assert!(matches!(accept_unix(&mut host, at(1)), UnixChannel::Gated(_)));
        }
    }

    #[test]
    fn bug_10_a_spent_claim_is_never_advertised() {
        let mut host = host_with_claims();
        let first = host.poll_claim().unwrap().clone();
        assert!(first.is_claimable(EPOCH));
        assert!(host.poll_claim().is_none(), "once for each change");

        let channel = dial(&mut host, Some(first.code.reveal()), at(1)).unwrap();
        let spent = host.poll_claim().unwrap();
        assert_eq!(spent.bound_agent, Some(Agent::pending()));
        assert!(!spent.is_claimable(EPOCH));
        host.handle_agent(channel, agent());
        assert_eq!(host.poll_claim().unwrap().bound_agent, Some(agent()));
        host.handle_agent(channel, agent());
        assert!(host.poll_claim().is_none());

        host.handle_closed(channel, at(2), EPOCH + 2000, &mut sequence(10));
        let second = host.poll_claim().unwrap();
        assert!(second.is_claimable(EPOCH + 2000));
        assert_eq!((second.minted_at, second.expires_at), (EPOCH + 2000, EPOCH + 602_000));
        assert!(!second.code.matches(&first.code));
        assert!(!second.resume_token.matches(&first.resume_token));
        assert_ne!(second.session_id, first.session_id);
    }

    #[test]
    fn a_claim_is_refreshed_every_300_s_until_it_is_bound() {
        let mut host = host_with_claims();
        let first = host.poll_claim().unwrap().clone();
        assert_eq!((first.minted_at, first.expires_at), (EPOCH, EPOCH + 600_000));
        assert_eq!(host.poll_timeout(), Some(at(300)));
        host.handle_timeout(at(299), EPOCH + 299_000);
        assert!(host.poll_claim().is_none(), "too early");
        host.handle_timeout(at(310), EPOCH + 310_000);
        let refreshed = host.poll_claim().unwrap();
        assert_eq!((refreshed.minted_at, refreshed.expires_at), (EPOCH, EPOCH + 910_000));
        assert!(refreshed.code.matches(&first.code), "a person may be reading it");
        assert_eq!(host.poll_timeout(), Some(at(610)));

        let channel = dial(&mut host, Some(first.code.reveal()), at(400)).unwrap();
        assert_eq!(host.poll_timeout(), None);
        let _ = host.poll_claim();
        host.handle_timeout(at(700), EPOCH + 700_000);
        assert!(host.poll_claim().is_none());
        host.handle_closed(channel, at(800), EPOCH + 800_000, &mut sequence(11));
        assert_eq!(host.poll_timeout(), Some(at(1100)));
    }

    #[test]
    fn a_host_with_a_refresh_of_zero_has_no_deadline() {
        let policy = HostPolicy { refresh: Duration::ZERO, ..HostPolicy::default() };
        let mut host = Host::with_claims(policy, at(0), EPOCH, &mut sequence(12));
        assert_eq!(host.poll_timeout(), None);
        let _ = host.poll_claim();
        host.handle_timeout(at(1_000_000), EPOCH);
        assert!(host.poll_claim().is_none());
    }

    #[test]
    fn a_claim_that_was_not_refreshed_is_not_claimable() {
        let claim = host_with_claims().claim().unwrap().clone();
        assert!(claim.is_claimable(EPOCH + 600_000));
        assert!(!claim.is_claimable(EPOCH + 600_001));
    }

    #[test]
    fn the_end_of_an_earlier_channel_does_not_free_the_host() {
        let mut host = host_with_claims();
        let mut random = sequence(13);
        let right = code(&host);
        let first = dial(&mut host, Some(&right), at(0)).unwrap();
        host.handle_closed(first, at(0), EPOCH, &mut random);
        let right = code(&host);
        let second = dial(&mut host, Some(&right), at(0)).unwrap();
        let _ = host.poll_claim();
        host.handle_closed(first, at(0), EPOCH, &mut random);
        host.handle_agent(first, agent());
        assert_eq!(host.channel(), Some(second));
        assert!(host.poll_claim().is_none());
    }

    #[test]
    fn a_host_without_claims_has_one_channel_at_a_time_and_no_claim() {
        let mut host = Host::without_claims();
        let mut random = sequence(14);
        assert!(host.claim().is_none() && host.poll_claim().is_none() && host.poll_timeout().is_none());
        for _ in 0..10 {
            assert_eq!(dial(&mut host, Some("ABCD-EF"), at(0)), Err(BindRefused::Mismatch));
        }
        let first = dial(&mut host, None, at(0)).unwrap();
        assert_eq!(dial(&mut host, None, at(0)), Err(BindRefused::Occupied));
        assert!(matches!(accept_unix(&mut host, at(0)), UnixChannel::Gated(_)), "its bind is answered with `Occupied`");
        host.handle_closed(first, at(1), EPOCH, &mut random);
        assert!(host.claim().is_none());
        let UnixChannel::Open(second) = accept_unix(&mut host, at(1)) else { panic!("it is free again") };
        assert_ne!(first, second);
    }

    #[test]
    fn only_the_current_code_is_accepted_and_a_claim_shows_an_agent_if_and_only_if_it_is_spent() {
        const STEPS: [fn(&mut Host, &mut Seen); 8] = [
            |host, seen| seen.dialled(host, true),
            |host, seen| {
                let spent = seen.codes.first().cloned();
                assert!(spent.is_none_or(|spent| dial(host, Some(&spent), seen.now).is_err()));
            },
            |host, seen| seen.dialled(host, false),
            |host, seen| assert!(dial(host, None, seen.now).is_err()),
            |host, seen| {
                if let Some(channel) = host.channel() {
                    host.handle_closed(channel, seen.now, EPOCH, &mut sequence(seen.codes.len() as u64 + 100));
                }
            },
            // The end of a channel that was never admitted.
            |host, seen| host.handle_closed(HostChannel(0), seen.now, EPOCH, &mut sequence(99)),
            |host, _| {
                if let Some(channel) = host.channel() {
                    host.handle_agent(channel, agent());
                }
            },
            |host, seen| {
                seen.now = seen.now.saturating_add(Duration::from_secs(300));
                host.handle_timeout(seen.now, EPOCH);
                assert!(host.poll_timeout().is_none_or(|next| next > seen.now));
            },
        ];

        #[derive(Clone)]
        struct Seen {
            now: Instant,
            /// The codes that have admitted a gateway.
            codes: alloc::vec::Vec<String>,
        }

        impl Seen {
            /// Connects with the current code if `right`, otherwise with a wrong one.
            fn dialled(&mut self, host: &mut Host, right: bool) {
                let (free, current) = (host.channel().is_none(), code(host));
                let answer = dial(host, Some(if right { &current } else { "WRONG" }), self.now);
                if answer.is_ok() {
                    assert!(right && free);
                    self.codes.push(current);
                } else {
                    assert!(!right || !free);
                }
            }
        }

        fn explore(host: &Host, seen: &Seen, left: u32) {
            if left == 0 {
                return;
            }
            for step in STEPS {
                let (mut host, mut seen) = (host.clone(), seen.clone());
                step(&mut host, &mut seen);
                let claim = host.claim().unwrap();
                assert_eq!(claim.bound_agent.is_some(), host.channel().is_some());
                assert_eq!(claim.bound_agent.is_some(), seen.codes.contains(&code(&host)));
                explore(&host, &seen, left - 1);
            }
        }
        explore(&host_with_claims(), &Seen { now: at(0), codes: alloc::vec::Vec::new() }, 5);
    }
}
