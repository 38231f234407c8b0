// In names of tests, `item` or `bug` and a number cite a rule or a fault (docs/protocols/tesseron.md, "Former numbers").

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::*;
use crate::claims::draw::sequence;
use crate::claims::{AppIdError, ClaimCodeError};

/// An hour in seconds.
const HOUR: u64 = 60 * 60;

fn at(seconds: u64) -> Instant {
    Instant::from_millis(seconds * 1000)
}

type Random = alloc::boxed::Box<dyn FnMut(&mut [u8])>;

/// A registry with its random source and its wall clock.
struct Gateway {
    registry: SessionRegistry,
    random: Random,
    epoch_ms: u64,
}

impl Gateway {
    fn new() -> Self {
        Self::with(RegistryPolicy::default())
    }

    fn with(policy: RegistryPolicy) -> Self {
        Self { registry: SessionRegistry::new(policy), random: alloc::boxed::Box::new(sequence(30)), epoch_ms: 1000 }
    }

    fn dial(&mut self) -> ChannelId {
        self.registry.open(Dial::Unbound).unwrap()
    }

    fn hello(&mut self, app: &str) -> (ChannelId, Admission) {
        let channel = self.dial();
        (channel, self.registry.hello(channel, app, self.epoch_ms, &mut self.random).unwrap())
    }

    fn claimed(&mut self, app: &str) -> (ChannelId, Admission) {
        let (channel, admission) = self.hello(app);
        self.epoch_ms += 1;
        self.registry.claim(code(&admission), self.epoch_ms).unwrap();
        (channel, admission)
    }

    fn bound(&mut self, dial: &BoundDial, app: &str) -> Result<(ChannelId, Admission), HelloRefused> {
        let channel = self.registry.open(Dial::Bound(dial.clone())).unwrap();
        let answer = self.registry.hello(channel, app, self.epoch_ms, &mut self.random);
        if answer.is_err() {
            self.registry.handle_closed(channel, Instant::ZERO);
        }
        answer.map(|admission| (channel, admission))
    }

    fn resume_on(&mut self, channel: ChannelId, with: &ResumeCredentials, app: &str) -> Result<Admission, ResumeRefused> {
        self.registry.resume(channel, with, app, &mut self.random)
    }

    /// Resumes a session on a new channel.
    fn resume(&mut self, last: &Admission, app: &str) -> Result<(ChannelId, Admission), ResumeRefused> {
        let channel = self.dial();
        let admission = self.resume_on(channel, &credentials(last), app)?;
        Ok((channel, admission))
    }
}

fn code(admission: &Admission) -> &str {
    match &admission.welcome.claim_state {
        ClaimState::Unclaimed { claim_code } => claim_code,
        ClaimState::Bound | ClaimState::Resumed => panic!("it is claimed"),
    }
}

fn token(admission: &Admission) -> &str {
    admission.welcome.resume_token.as_ref().unwrap()
}

fn credentials(admission: &Admission) -> ResumeCredentials {
    credentials_of(&admission.welcome.session_id, token(admission))
}

fn credentials_of(session_id: &str, resume_token: &str) -> ResumeCredentials {
    ResumeCredentials { session_id: session_id.into(), resume_token: resume_token.into() }
}

/// A dial to an app whose manifest has these credentials.
fn bound_dial(id: &str, token: &str) -> BoundDial {
    BoundDial {
        code: ClaimCode::parse("HOST-42").unwrap(),
        session_id: SessionId::parse(id).unwrap(),
        resume_token: ResumeToken::parse(token).unwrap(),
    }
}

// Hello.

#[test]
fn a_hello_on_an_unbound_channel_begins_a_session_that_waits_to_be_claimed() {
    let mut gateway = Gateway::new();
    let (channel, admission) = gateway.hello("ledger");
    assert_eq!((admission.claimed_at, admission.supersedes), (None, None));
    assert!(!gateway.registry.is_claimed(channel));
    assert_eq!(gateway.registry.route("ledger"), None);
    assert!(gateway.registry.routed().is_empty());
    let pending = gateway.registry.pending();
    assert_eq!(pending.len(), 1);
    assert_eq!((pending[0].channel, pending[0].app.as_str(), pending[0].minted_at), (channel, "ledger", 1000));
    assert_eq!(pending[0].session_id.as_str(), admission.welcome.session_id.as_str());
    assert_eq!(pending[0].code.reveal(), code(&admission));
}

#[test]
fn item_28_a_second_hello_or_a_resume_on_a_channel_is_refused_and_the_session_continues() {
    let mut gateway = Gateway::new();
    let (channel, admission) = gateway.claimed("ledger");
    let refused = gateway.registry.hello(channel, "ledger", 0, &mut gateway.random).unwrap_err();
    assert_eq!((refused, refused.error().code), (HelloRefused::AlreadyGreeted, -32600));
    let refused = gateway.resume_on(channel, &credentials(&admission), "ledger").unwrap_err();
    assert_eq!((refused, refused.error().code), (ResumeRefused::AlreadyGreeted, -32600));
    assert_eq!(gateway.registry.route("ledger"), Some(channel));
    assert_eq!(gateway.registry.sessions.len(), 1);
}

#[test]
fn item_27_a_hello_with_a_reserved_or_malformed_app_id_is_refused() {
    let mut gateway = Gateway::new();
    let channel = gateway.dial();
    for (app, error) in [("tesseron", AppIdError::Reserved), ("Ledger", AppIdError::Malformed), ("", AppIdError::Malformed)] {
        let refused = gateway.registry.hello(channel, app, 0, &mut gateway.random).unwrap_err();
        assert_eq!((refused, refused.error().code), (HelloRefused::AppId(error), -32602), "{app}");
    }
    assert!(gateway.registry.hello(channel, "ledger", 0, &mut gateway.random).is_ok(), "the channel can still be used");
}

#[test]
fn a_request_on_a_channel_that_is_not_open_is_refused() {
    let mut gateway = Gateway::new();
    let (channel, admission) = gateway.claimed("ledger");
    gateway.registry.handle_closed(channel, at(0));
    let refused = gateway.registry.hello(channel, "ledger", 0, &mut gateway.random).unwrap_err();
    assert_eq!((refused, refused.error().code), (HelloRefused::NotOpen, -32600));
    let refused = gateway.resume_on(channel, &credentials(&admission), "ledger").unwrap_err();
    assert_eq!((refused, refused.error().code), (ResumeRefused::NotOpen, -32600));
    gateway.registry.confirm(channel);
    assert_eq!(gateway.registry.handle_closed(channel, at(0)), Departure::Nothing);
}

#[test]
fn channels_and_waiting_sessions_are_bounded() {
    let mut gateway = Gateway::with(RegistryPolicy { max_pending: 2, max_channels: 4, ..RegistryPolicy::default() });
    let (first, _) = gateway.hello("a");
    let (_, second) = gateway.hello("a");
    let third = gateway.dial();
    let refused = gateway.registry.hello(third, "a", 0, &mut gateway.random).unwrap_err();
    assert_eq!((refused, refused.error().code), (HelloRefused::Full, -32603));
    gateway.registry.claim(code(&second), 0).unwrap();
    assert!(gateway.registry.hello(third, "a", 0, &mut gateway.random).is_ok(), "a claimed session does not count as waiting");
    gateway.dial();
    assert_eq!(gateway.registry.open(Dial::Unbound), Err(OpenRefused::Full));
    gateway.registry.handle_closed(first, at(0));
    assert!(gateway.registry.open(Dial::Unbound).is_ok());
}

#[test]
fn a_random_source_that_repeats_itself_makes_no_second_session() {
    let mut registry = SessionRegistry::new(RegistryPolicy::default());
    let hello = |registry: &mut SessionRegistry| {
        let channel = registry.open(Dial::Unbound).unwrap();
        registry.hello(channel, "a", 0, &mut |out: &mut [u8]| out.fill(1))
    };
    assert!(hello(&mut registry).is_ok());
    let refused = hello(&mut registry).unwrap_err();
    assert_eq!((refused, refused.error().code), (HelloRefused::NotRandom, -32603));
    assert_eq!(registry.pending().len(), 1);
}

// Claims.

#[test]
fn item_34_a_claim_is_case_insensitive_and_returns_the_claimed_session() {
    let mut gateway = Gateway::new();
    gateway.hello("other");
    let (channel, admission) = gateway.hello("ledger");
    gateway.hello("other");
    let claimed = gateway.registry.claim(&code(&admission).to_lowercase(), 5000).unwrap();
    assert_eq!((claimed.channel, claimed.app.as_str(), claimed.claimed_at, claimed.first), (channel, "ledger", 5000, true));
    assert_eq!(claimed.session_id.as_str(), admission.welcome.session_id.as_str());
    assert!(gateway.registry.is_claimed(channel));
    assert_eq!(gateway.registry.route("ledger"), Some(channel));
    assert_eq!(gateway.registry.route("other"), None);
    assert_eq!(gateway.registry.pending().len(), 2);
}

#[test]
fn item_35_a_repeated_claim_of_a_live_session_succeeds_and_changes_nothing() {
    let mut gateway = Gateway::new();
    let (_, admission) = gateway.hello("ledger");
    let first = gateway.registry.claim(code(&admission), 5000).unwrap();
    let again = gateway.registry.claim(code(&admission), 9000).unwrap();
    assert_eq!(again, Claimed { first: false, ..first });
}

#[test]
fn a_code_of_no_session_is_a_typed_error() {
    let mut gateway = Gateway::new();
    let (channel, admission) = gateway.hello("ledger");
    assert_eq!(gateway.registry.claim("ABCD-EF", 0), Err(ClaimMissed::Unknown));
    assert_eq!(gateway.registry.claim("", 0), Err(ClaimMissed::Malformed(ClaimCodeError::Length)));
    assert!(!gateway.registry.is_claimed(channel));
    gateway.registry.handle_closed(channel, at(0));
    assert_eq!(gateway.registry.claim(code(&admission), 0), Err(ClaimMissed::Unknown), "its channel has ended");
}

#[test]
fn a_code_is_valid_while_the_session_keeps_the_channel_on_which_it_was_sent() {
    let mut gateway = Gateway::new();
    let (channel, admission) = gateway.claimed("ledger");
    gateway.registry.handle_closed(channel, at(0));
    assert_eq!(gateway.registry.claim(code(&admission), 0), Err(ClaimMissed::Unknown), "while the session has no channel");
    gateway.resume(&admission, "ledger").unwrap();
    assert_eq!(gateway.registry.claim(code(&admission), 0), Err(ClaimMissed::Unknown), "and after it was resumed");

    let (_, admission) = gateway.claimed("ledger");
    gateway.resume(&admission, "ledger").unwrap();
    assert_eq!(
        gateway.registry.claim(code(&admission), 0),
        Err(ClaimMissed::Unknown),
        "also if it was resumed before its old channel closed"
    );
}

#[test]
fn bug_18_a_claim_code_that_could_be_a_path_is_malformed() {
    let mut gateway = Gateway::new();
    for text in ["../claims/x", "A/B", "A\0", "*", &"A".repeat(65)] {
        assert!(matches!(gateway.registry.claim(text, 0), Err(ClaimMissed::Malformed(_))), "{text}");
    }
}

#[test]
fn unclaimed_sessions_are_listed_newest_first_even_if_the_wall_clock_was_set_back() {
    let mut gateway = Gateway::new();
    let mut expected = Vec::new();
    for (app, epoch_ms) in [("a", 500), ("b", 300), ("c", 400)] {
        gateway.epoch_ms = epoch_ms;
        expected.insert(0, (app.to_string(), epoch_ms));
        gateway.hello(app);
    }
    let listed: Vec<_> = gateway.registry.pending().iter().map(|one| (one.app.to_string(), one.minted_at)).collect();
    assert_eq!(listed, expected);
}

// Bound dials.

#[test]
fn item_117_a_hello_on_a_bound_dial_begins_the_session_of_the_manifest_which_is_claimed_at_once() {
    let mut gateway = Gateway::new();
    let dial = bound_dial("s_host", "token");
    let (channel, admission) = gateway.bound(&dial, "ledger").unwrap();
    assert_eq!((&*admission.welcome.session_id, token(&admission)), ("s_host", "token"));
    assert_eq!(admission.welcome.claim_state, ClaimState::Bound, "no code; `tesseron/claimed` follows the welcome");
    assert_eq!(admission.claimed_at, Some(1000));
    assert!(gateway.registry.is_claimed(channel));
    assert_eq!(gateway.registry.route("ledger"), Some(channel));
    assert!(gateway.registry.pending().is_empty());
    let again = gateway.registry.claim("host-42", 7000).unwrap();
    assert_eq!((again.channel, again.claimed_at, again.first), (channel, 1000, false));
}

#[test]
fn a_claim_is_not_dialled_twice_at_the_same_time() {
    let mut gateway = Gateway::new();
    let dial = bound_dial("s_host", "token");
    let first = gateway.registry.open(Dial::Bound(dial.clone())).unwrap();
    assert_eq!(gateway.registry.open(Dial::Bound(dial.clone())), Err(OpenRefused::AlreadyDialled));
    assert!(gateway.registry.open(Dial::Bound(bound_dial("s_other", "token"))).is_ok());
    assert_eq!(gateway.registry.handle_closed(first, at(0)), Departure::Nothing);
    assert!(gateway.registry.open(Dial::Bound(dial)).is_ok(), "the first connection has ended without a session");
}

#[test]
fn a_manifest_cannot_take_a_session_that_is_not_its_own() {
    let mut gateway = Gateway::new();
    let dial = bound_dial("s_host", "token");
    let (channel, _) = gateway.bound(&dial, "ledger").unwrap();
    let (_, pending) = gateway.hello("ledger");
    let unclaimed = bound_dial(&pending.welcome.session_id, token(&pending));
    for (dial, app) in [(bound_dial("s_host", "guess"), "ledger"), (dial.clone(), "notes"), (unclaimed, "ledger")] {
        let refused = gateway.bound(&dial, app).unwrap_err();
        assert_eq!((refused, refused.error().code), (HelloRefused::SessionTaken, -32009));
    }
    assert_eq!(gateway.registry.route("ledger"), Some(channel));

    // A session whose app is disconnected cannot be taken, either.
    gateway.registry.handle_closed(channel, at(0));
    assert_eq!(gateway.bound(&bound_dial("s_host", "guess"), "ledger").unwrap_err(), HelloRefused::SessionTaken);
    let (back, admission) = gateway.bound(&dial, "ledger").unwrap();
    assert_eq!((gateway.registry.route("ledger"), admission.supersedes), (Some(back), None));
    assert_eq!(gateway.registry.poll_timeout(), None);
}

#[test]
fn bug_13_a_resume_on_a_bound_dial_is_admitted_like_any_other() {
    let mut gateway = Gateway::new();
    let (channel, last) = gateway.claimed("ledger");
    gateway.registry.handle_closed(channel, at(0));
    let bound = gateway.registry.open(Dial::Bound(bound_dial("s_new", "other"))).unwrap();
    let admission = gateway.resume_on(bound, &credentials(&last), "ledger").unwrap();
    assert_eq!(admission.welcome.session_id, last.welcome.session_id);
    assert_eq!(gateway.registry.route("ledger"), Some(bound));
}

// Resume.

#[test]
fn item_105_a_resume_gives_the_same_session_a_new_token_no_code_and_the_old_claim() {
    let mut gateway = Gateway::new();
    let (channel, last) = gateway.claimed("ledger");
    let claimed = gateway.epoch_ms;
    assert_eq!(gateway.registry.handle_closed(channel, at(10)), Departure::Kept);
    assert_eq!(gateway.registry.route("ledger"), None);
    gateway.epoch_ms += 1_000_000;
    let (back, admission) = gateway.resume(&last, "ledger").unwrap();
    assert_eq!(admission.welcome.session_id, last.welcome.session_id);
    assert_ne!(token(&admission), token(&last));
    assert_eq!(admission.welcome.claim_state, ClaimState::Resumed, "no code, and no `tesseron/claimed` after the welcome");
    assert_eq!((admission.claimed_at, admission.supersedes), (Some(claimed), None));
    assert_eq!(gateway.registry.route("ledger"), Some(back));
    assert_eq!(gateway.registry.poll_timeout(), None);
}

#[test]
fn item_106_the_old_token_fails_once_the_new_one_has_arrived() {
    let mut gateway = Gateway::new();
    let (channel, first) = gateway.claimed("ledger");
    gateway.registry.handle_closed(channel, at(0));
    let (channel, second) = gateway.resume(&first, "ledger").unwrap();
    gateway.registry.confirm(channel);
    gateway.registry.confirm(channel);
    assert_eq!(gateway.resume(&first, "ledger").unwrap_err(), ResumeRefused::WrongToken, "while the session has a channel");
    gateway.registry.handle_closed(channel, at(0));
    assert_eq!(gateway.resume(&first, "ledger").unwrap_err(), ResumeRefused::WrongToken, "and while it has none");
    assert!(gateway.resume(&second, "ledger").is_ok());
}

#[test]
fn a_resume_whose_answer_was_lost_is_repeated_with_the_same_token() {
    let mut gateway = Gateway::new();
    let (channel, first) = gateway.claimed("ledger");
    gateway.registry.handle_closed(channel, at(0));
    let mut admission = None;
    for _ in 0..3 {
        let (channel, lost) = gateway.resume(&first, "ledger").unwrap();
        assert_eq!(gateway.registry.handle_closed(channel, at(1)), Departure::Kept);
        admission = Some(lost);
    }
    // The last answer did arrive: its token is valid, too.
    let (channel, _) = gateway.resume(&admission.unwrap(), "ledger").unwrap();
    assert_eq!(gateway.resume(&first, "ledger").unwrap_err(), ResumeRefused::WrongToken);
    assert_eq!(gateway.registry.route("ledger"), Some(channel));
}

#[test]
fn item_106_a_refused_resume_does_not_use_up_the_token() {
    let mut gateway = Gateway::new();
    let (channel, last) = gateway.claimed("ledger");
    gateway.registry.handle_closed(channel, at(0));
    let channel = gateway.dial();
    for _ in 0..20 {
        assert!(gateway.resume_on(channel, &credentials_of(&last.welcome.session_id, "wrong"), "ledger").is_err());
        assert!(gateway.resume_on(channel, &credentials(&last), "notes").is_err());
    }
    assert_eq!(gateway.registry.poll_timeout(), Some(at(4 * HOUR)));
    assert!(gateway.resume_on(channel, &credentials(&last), "ledger").is_ok(), "on the same channel, too");
}

#[test]
fn item_107_each_reason_to_refuse_a_resume_has_the_same_error_code() {
    let mut gateway = Gateway::new();
    let (channel, last) = gateway.claimed("ledger");
    gateway.registry.handle_closed(channel, at(0));
    let (_, unclaimed) = gateway.hello("ledger");
    let channel = gateway.dial();
    let (id, good) = (&*last.welcome.session_id, token(&last));
    let cases = [
        (id, good, "Ledger", ResumeRefused::AppId(AppIdError::Malformed)),
        (id, good, "mcp", ResumeRefused::AppId(AppIdError::Reserved)),
        ("s_unknown", good, "ledger", ResumeRefused::UnknownSession),
        ("", good, "ledger", ResumeRefused::UnknownSession),
        (&"s".repeat(129), good, "ledger", ResumeRefused::UnknownSession),
        (id, good, "notes", ResumeRefused::OtherApp),
        (&*unclaimed.welcome.session_id, token(&unclaimed), "ledger", ResumeRefused::NeverClaimed),
        (id, token(&unclaimed), "ledger", ResumeRefused::WrongToken),
        (id, "", "ledger", ResumeRefused::WrongToken),
        (id, &good.to_lowercase(), "ledger", ResumeRefused::WrongToken),
        (id, &"t".repeat(257), "ledger", ResumeRefused::WrongToken),
        (id, &good[1..], "ledger", ResumeRefused::WrongToken),
    ];
    for (id, token, app, expected) in cases {
        let refused = gateway.resume_on(channel, &credentials_of(id, token), app).unwrap_err();
        assert_eq!((refused, refused.error().code), (expected, -32011), "{app} {token}");
    }
    let hidden = [ResumeRefused::UnknownSession, ResumeRefused::OtherApp, ResumeRefused::NeverClaimed, ResumeRefused::WrongToken];
    assert!(hidden.iter().all(|refused| refused.error() == hidden[0].error()), "the error does not tell which part was wrong");

    gateway.registry.handle_timeout(at(4 * HOUR));
    let refused = gateway.resume(&last, "ledger").unwrap_err();
    assert_eq!((refused, refused.error().code), (ResumeRefused::UnknownSession, -32011), "expired");
}

#[test]
fn item_108_with_a_resume_ttl_or_max_disconnected_of_zero_no_session_is_kept() {
    for policy in [
        RegistryPolicy { resume_ttl: Duration::ZERO, ..RegistryPolicy::default() },
        RegistryPolicy { max_disconnected: 0, ..RegistryPolicy::default() },
    ] {
        let mut gateway = Gateway::with(policy);
        let (channel, last) = gateway.claimed("ledger");
        assert_eq!(gateway.registry.handle_closed(channel, at(0)), Departure::Forgotten);
        assert_eq!(gateway.registry.poll_timeout(), None);
        assert_eq!(gateway.resume(&last, "ledger").unwrap_err(), ResumeRefused::UnknownSession);
    }
}

#[test]
fn item_108_one_session_over_max_disconnected_replaces_the_oldest() {
    let mut gateway = Gateway::with(RegistryPolicy { max_disconnected: 2, ..RegistryPolicy::default() });
    let sessions: Vec<_> = (0..4).map(|_| gateway.claimed("ledger")).collect();
    // The sessions end at the same time, and not in the order of their claims.
    for index in [2, 0, 3, 1] {
        assert_eq!(gateway.registry.handle_closed(sessions[index].0, at(0)), Departure::Kept);
    }
    let kept: Vec<_> = sessions.iter().map(|(_, last)| gateway.resume(last, "ledger").is_ok()).collect();
    assert_eq!(kept, [false, true, false, true]);
}

#[test]
fn item_108_a_session_that_is_not_resumed_in_time_is_forgotten() {
    let mut gateway = Gateway::new();
    let (first, _) = gateway.claimed("ledger");
    let (second, last) = gateway.claimed("ledger");
    gateway.registry.handle_closed(first, at(0));
    gateway.registry.handle_closed(second, at(60));
    assert_eq!(gateway.registry.poll_timeout(), Some(at(4 * HOUR)));
    gateway.registry.handle_timeout(Instant::from_millis(4 * HOUR * 1000 - 1));
    assert_eq!(gateway.registry.sessions.len(), 2);
    gateway.registry.handle_timeout(at(4 * HOUR));
    gateway.registry.handle_timeout(at(4 * HOUR));
    assert_eq!(gateway.registry.sessions.len(), 1);
    assert_eq!(gateway.registry.poll_timeout(), Some(at(4 * HOUR + 60)));
    assert!(gateway.resume(&last, "ledger").is_ok());
}

#[test]
fn an_unclaimed_session_that_ends_does_not_count_toward_max_disconnected() {
    let mut gateway = Gateway::with(RegistryPolicy { max_disconnected: 1, ..RegistryPolicy::default() });
    let (channel, last) = gateway.claimed("ledger");
    gateway.registry.handle_closed(channel, at(0));
    let (channel, unclaimed) = gateway.hello("ledger");
    assert_eq!(gateway.registry.handle_closed(channel, at(0)), Departure::Unclaimed);
    assert_eq!(gateway.resume(&unclaimed, "ledger").unwrap_err(), ResumeRefused::UnknownSession);
    assert!(gateway.resume(&last, "ledger").is_ok());
}

#[test]
fn item_109_bug_11_the_late_end_of_an_old_channel_does_not_end_the_session() {
    let mut gateway = Gateway::new();
    let (old, last) = gateway.claimed("ledger");
    let (new, admission) = gateway.resume(&last, "ledger").unwrap();
    assert_eq!(admission.supersedes, Some(old), "the owner must close it");
    assert!(!gateway.registry.is_claimed(old) && gateway.registry.is_claimed(new));
    gateway.registry.confirm(old);
    assert_eq!(gateway.registry.handle_closed(old, at(1)), Departure::Nothing);
    assert_eq!(gateway.registry.route("ledger"), Some(new));
    assert_eq!(gateway.registry.poll_timeout(), None);

    // The same for an app that was bound twice with the session of its manifest.
    let dial = bound_dial("s_host", "token");
    let (old, _) = gateway.bound(&dial, "notes").unwrap();
    let (new, admission) = gateway.bound(&dial, "notes").unwrap();
    assert_eq!(admission.supersedes, Some(old));
    assert_eq!(gateway.registry.handle_closed(old, at(1)), Departure::Nothing);
    assert_eq!(gateway.registry.route("notes"), Some(new));
}

#[test]
fn a_channel_whose_session_has_moved_gets_no_other_session() {
    let mut gateway = Gateway::new();
    let (old, last) = gateway.claimed("ledger");
    gateway.resume(&last, "ledger").unwrap();
    assert_eq!(gateway.registry.hello(old, "ledger", 0, &mut gateway.random).unwrap_err(), HelloRefused::AlreadyGreeted);
    let refused = gateway.resume_on(old, &credentials(&last), "ledger").unwrap_err();
    assert_eq!(refused, ResumeRefused::AlreadyGreeted);
}

#[test]
fn bug_12_a_session_that_loses_its_channel_twice_has_one_deadline() {
    let mut gateway = Gateway::new();
    let (channel, last) = gateway.claimed("ledger");
    gateway.registry.handle_closed(channel, at(0));
    let (channel, last) = gateway.resume(&last, "ledger").unwrap();
    gateway.registry.handle_closed(channel, at(HOUR));
    assert_eq!(gateway.registry.poll_timeout(), Some(at(5 * HOUR)));
    gateway.registry.handle_timeout(at(4 * HOUR));
    assert!(gateway.resume(&last, "ledger").is_ok(), "the first deadline no longer applies");
    assert_eq!(gateway.registry.poll_timeout(), None);
}

#[test]
fn a_time_before_the_latest_one_counts_as_the_latest_one() {
    let mut gateway = Gateway::with(RegistryPolicy { max_disconnected: 1, ..RegistryPolicy::default() });
    let (first, _) = gateway.claimed("ledger");
    let (second, last) = gateway.claimed("ledger");
    gateway.registry.handle_closed(first, at(100));
    gateway.registry.handle_closed(second, at(50));
    assert_eq!(gateway.registry.poll_timeout(), Some(at(4 * HOUR + 100)));
    assert!(gateway.resume(&last, "ledger").is_ok(), "the session that lost its channel last is kept");
}

// Routing.

#[test]
fn item_121_calls_go_to_the_session_that_was_claimed_last_of_those_with_a_channel() {
    let mut gateway = Gateway::new();
    let (first, last) = gateway.claimed("ledger");
    let (second, _) = gateway.claimed("ledger");
    gateway.hello("ledger");
    assert_eq!(gateway.registry.route("ledger"), Some(second));
    // A resume is not a new claim.
    gateway.registry.handle_closed(first, at(0));
    let (first, _) = gateway.resume(&last, "ledger").unwrap();
    assert_eq!(gateway.registry.route("ledger"), Some(second));
    gateway.registry.handle_closed(second, at(0));
    assert_eq!(gateway.registry.route("ledger"), Some(first));
    assert_eq!(gateway.registry.route("ledge"), None);
}

#[test]
fn item_121_calls_go_to_the_last_claim_even_if_the_wall_clock_was_set_back() {
    let mut gateway = Gateway::new();
    gateway.claimed("ledger");
    gateway.epoch_ms = 0;
    let (second, _) = gateway.claimed("ledger");
    assert_eq!(gateway.registry.route("ledger"), Some(second));
}

#[test]
fn item_121_bug_14_an_app_is_listed_once_however_many_sessions_it_has() {
    let mut gateway = Gateway::new();
    let (notes, _) = gateway.claimed("notes");
    gateway.claimed("ledger");
    let (ledger, admission) = gateway.claimed("ledger");
    gateway.hello("other");
    let routed = gateway.registry.routed();
    let shown: Vec<_> = routed.iter().map(|one| (one.app.as_str(), one.channel)).collect();
    assert_eq!(shown, [("ledger", ledger), ("notes", notes)]);
    assert_eq!(routed[0].session_id.as_str(), admission.welcome.session_id.as_str());
}

#[test]
fn item_120_bug_19_a_tool_name_leads_to_the_longest_app_id_it_begins_with() {
    let mut gateway = Gateway::new();
    for app in ["a", "a__b", "c_", "d"] {
        gateway.claimed(app);
    }
    gateway.hello("d__e");
    let of = |tool: &str| match gateway.registry.resolve(tool) {
        Some(resolved) => format!("{} {:?}", resolved.app, resolved.action),
        None => String::new(),
    };
    assert_eq!(of("a__x"), r#"a "x""#);
    assert_eq!(of("a__b__x"), r#"a__b "x""#);
    assert_eq!(of("a__b"), r#"a "b""#);
    assert_eq!(of("a__b_x"), r#"a "b_x""#);
    assert_eq!(of("a__b__c__d"), r#"a__b "c__d""#);
    assert_eq!(of("c___x"), r#"c_ "x""#);
    assert_eq!(of("c____x"), r#"c_ "_x""#);
    assert_eq!(of("d__e__x"), r#"d "e__x""#, "an unclaimed app has no tools");
    assert_eq!(of("d__"), r#"d """#);
    for tool in ["", "a", "a_x", "x__y", "__x", "c__x", "tesseron__claim_session", "A__x"] {
        assert_eq!(of(tool), "", "{tool}");
    }
}

#[test]
fn a_tool_name_leads_to_the_session_of_its_app() {
    let mut gateway = Gateway::new();
    gateway.claimed("ledger");
    let (newest, _) = gateway.claimed("ledger");
    assert_eq!(gateway.registry.resolve("ledger__post").map(|resolved| resolved.channel), Some(newest));
}

// Everything together.

/// A registry, and a model of the sessions of two apps. The two must agree.
#[derive(Clone)]
struct World {
    registry: SessionRegistry,
    seed: u64,
    now: Instant,
    /// The sessions that were admitted and are not forgotten, in the order in which they last got or lost a channel.
    sessions: Vec<KnownSession>,
}

#[derive(Clone)]
struct KnownSession {
    id: SessionId,
    app: usize,
    claimed: bool,
    channel: Option<ChannelId>,
    code: Option<String>,
    current: String,
    /// The other valid token, until the new one is confirmed.
    previous: Option<String>,
    /// A token that is no longer valid.
    spent: Option<String>,
}

impl KnownSession {
    fn accepts(&self, token: &str) -> bool {
        self.current == token || self.previous.as_deref() == Some(token)
    }
}

const APPS: [&str; 2] = ["a", "a__b"];
const TTL: Duration = Duration::from_secs(100);
const LIMIT: usize = 2;

/// The operations, from `hello` to `wait`, are those of an app, a person or the clock. Each returns `None` if it is not possible now, or
/// has changed nothing.
impl World {
    fn new() -> Self {
        let policy = RegistryPolicy { resume_ttl: TTL, max_disconnected: LIMIT, max_pending: LIMIT, max_channels: 4 };
        Self { registry: SessionRegistry::new(policy), seed: 0, now: Instant::ZERO, sessions: Vec::new() }
    }

    fn random(&mut self) -> impl FnMut(&mut [u8]) + use<> {
        self.seed += 1;
        sequence(self.seed)
    }

    fn find(&self, app: usize, wanted: impl Fn(&KnownSession) -> bool) -> Option<usize> {
        self.sessions.iter().rposition(|known| known.app == app && wanted(known))
    }

    fn hello(&mut self, app: usize) -> Option<()> {
        let channel = self.registry.open(Dial::Unbound).ok()?;
        let has_room = self.sessions.iter().filter(|known| !known.claimed).count() < LIMIT;
        let mut random = self.random();
        let answer = self.registry.hello(channel, APPS[app], 0, &mut random);
        assert_eq!(answer.is_ok(), has_room);
        let Ok(admission) = answer else { return self.close(channel) };
        self.sessions.push(KnownSession {
            code: Some(code(&admission).to_string()),
            current: token(&admission).to_string(),
            id: SessionId::parse(&admission.welcome.session_id).unwrap(),
            app,
            claimed: false,
            channel: Some(channel),
            previous: None,
            spent: None,
        });
        Some(())
    }

    fn bound(&mut self, app: usize) -> Option<()> {
        let token = format!("token_{app}");
        let dial = bound_dial(&format!("s_host_{app}"), &token);
        let channel = self.registry.open(Dial::Bound(dial.clone())).ok()?;
        let mut random = self.random();
        let answer = self.registry.hello(channel, APPS[app], 0, &mut random);
        let known = self.find(app, |known| known.id == dial.session_id);
        assert_eq!(answer.is_ok(), known.is_none_or(|known| self.sessions[known].accepts(&token)));
        let Ok(admission) = answer else { return self.close(channel) };
        let old = known.map(|known| self.sessions.remove(known));
        assert_eq!(admission.supersedes, old.as_ref().and_then(|known| known.channel));
        self.sessions.push(KnownSession {
            id: dial.session_id,
            app,
            claimed: true,
            channel: Some(channel),
            code: None,
            current: token,
            previous: None,
            spent: old.and_then(|known| known.spent),
        });
        self.close_superseded(admission.supersedes);
        Some(())
    }

    /// Resumes the session of the app that is last in the order, with the token that `which` picks.
    fn resume(&mut self, app: usize, which: fn(&KnownSession) -> Option<&String>) -> Option<()> {
        let index = self.find(app, |_| true)?;
        let used = which(&self.sessions[index])?.clone();
        let channel = self.registry.open(Dial::Unbound).ok()?;
        let mut random = self.random();
        let known = &self.sessions[index];
        let answer = self.registry.resume(channel, &credentials_of(known.id.as_str(), &used), APPS[app], &mut random);
        assert_eq!(answer.is_ok(), known.claimed && known.accepts(&used));
        let Ok(admission) = answer else { return self.close(channel) };
        assert_eq!((&*admission.welcome.session_id, admission.supersedes), (known.id.as_str(), known.channel));
        let mut known = self.sessions.remove(index);
        let invalid = if known.current == used { known.previous } else { Some(known.current) };
        known.spent = invalid.or(known.spent);
        known.previous = Some(used);
        known.current = token(&admission).to_string();
        known.channel = Some(channel);
        known.code = None;
        self.sessions.push(known);
        self.close_superseded(admission.supersedes);
        Some(())
    }

    /// Closes the channel that had the session before. The session has moved, so this changes nothing else.
    fn close_superseded(&mut self, old: Option<ChannelId>) {
        assert!(old.is_none_or(|old| self.close(old).is_none()));
    }

    fn confirm(&mut self, app: usize) -> Option<()> {
        let index = self.find(app, |known| known.channel.is_some() && known.previous.is_some())?;
        let known = &mut self.sessions[index];
        known.spent = known.previous.take();
        self.registry.confirm(known.channel?);
        Some(())
    }

    fn claim(&mut self, app: usize) -> Option<()> {
        let index = self.find(app, |known| known.code.is_some())?;
        let known = &mut self.sessions[index];
        let claimed = self.registry.claim(known.code.as_ref()?, 0).unwrap();
        assert_eq!((claimed.first, Some(claimed.channel)), (!known.claimed, known.channel));
        known.claimed = true;
        claimed.first.then_some(())
    }

    fn leave(&mut self, app: usize) -> Option<()> {
        let index = self.find(app, |known| known.channel.is_some())?;
        self.close(self.sessions[index].channel?)
    }

    fn close(&mut self, channel: ChannelId) -> Option<()> {
        let departure = self.registry.handle_closed(channel, self.now);
        let Some(index) = self.sessions.iter().position(|known| known.channel == Some(channel)) else {
            assert_eq!(departure, Departure::Nothing);
            return None;
        };
        let mut known = self.sessions.remove(index);
        assert_eq!(departure, if known.claimed { Departure::Kept } else { Departure::Unclaimed });
        if known.claimed {
            (known.channel, known.code) = (None, None);
            self.sessions.push(known);
            let disconnected: Vec<_> = (0..self.sessions.len()).filter(|index| self.sessions[*index].channel.is_none()).collect();
            if disconnected.len() > LIMIT {
                self.sessions.remove(disconnected[0]);
            }
        }
        Some(())
    }

    fn wait(&mut self) -> Option<()> {
        self.now = self.now.saturating_add(TTL);
        self.registry.handle_timeout(self.now);
        let before = self.sessions.len();
        self.sessions.retain(|known| known.channel.is_some());
        (self.sessions.len() < before).then_some(())
    }

    fn check(&self) {
        let registry = &self.registry;
        assert_eq!(registry.sessions.len(), self.sessions.len());
        for known in &self.sessions {
            let session = &registry.sessions[&known.id];
            assert_eq!((session.app.as_str(), session.claimed.is_some()), (APPS[known.app], known.claimed));
            assert_eq!(session.channel(), known.channel);
            assert!(registry.contains(&known.id) && !registry.contains(&SessionId::parse("s_unknown").unwrap()));
            match session.state {
                State::Connected(channel) => {
                    assert_eq!(registry.session_on(channel), Some(&known.id));
                    assert_eq!(registry.is_claimed(channel), known.claimed);
                }
                State::Disconnected(expiry) => {
                    assert!(known.claimed && expiry.0 > self.now);
                    assert_eq!(registry.disconnected[&expiry], known.id);
                }
            }
        }
        let disconnected = self.sessions.iter().filter(|known| known.channel.is_none()).count();
        assert_eq!(registry.disconnected.len(), disconnected);
        assert_eq!(registry.channels.len(), self.sessions.len() - disconnected, "every other channel was closed");
        assert_eq!(registry.poll_timeout(), registry.disconnected.keys().map(|expiry| expiry.0).min());
        assert_eq!(registry.pending().len(), self.sessions.iter().filter(|known| !known.claimed).count());
        let routed = registry.routed();
        let serves = |app: &usize| self.find(*app, |known| known.claimed && known.channel.is_some()).is_some();
        assert_eq!(routed.len(), (0..APPS.len()).filter(serves).count());
        for one in &routed {
            assert_eq!(registry.route(one.app.as_str()), Some(one.channel));
            assert_eq!(registry.resolve(&format!("{}__x", one.app)).map(|resolved| resolved.channel), Some(one.channel));
        }
    }
}

#[test]
fn after_any_five_operations_on_two_apps_the_registry_agrees_with_the_model() {
    const OPERATIONS: [fn(&mut World, usize) -> Option<()>; 9] = [
        World::hello,
        World::bound,
        World::claim,
        World::leave,
        World::confirm,
        |world, app| world.resume(app, |known| Some(&known.current)),
        |world, app| world.resume(app, |known| known.previous.as_ref()),
        |world, app| world.resume(app, |known| known.spent.as_ref()),
        |world, _| world.wait(),
    ];

    /// Explores all sequences. A step without a change is not followed further.
    fn explore(world: &World, left: u32) -> u32 {
        let mut explored = 0;
        for operation in OPERATIONS {
            for app in 0..APPS.len() {
                let mut world = world.clone();
                let changed = operation(&mut world, app);
                world.check();
                explored += 1;
                if changed.is_some() && left > 1 {
                    explored += explore(&world, left - 1);
                }
            }
        }
        explored
    }
    let explored = explore(&World::new(), 5);
    assert!(explored > 20_000, "{explored}");
    std::eprintln!("explored {explored}");
}
