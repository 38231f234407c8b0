//! A login against servers, a store and callbacks of any bytes, in any order.

use auth::{
    Answer, CallbackAnswer, GivenClient, Grant, Login, LoginConfig, Now, Output, PageAddress, Reach, Request, Secret, StoreAnswer,
    StoreTask, Tag, TicketId,
};
use protocol_core::Instant;

const STATUSES: [u16; 12] = [200, 201, 204, 302, 307, 400, 401, 403, 404, 429, 500, 503];
const SERVER: &str = "https://rs.example/mcp";
const CALLBACK: &str = "http://127.0.0.1:9/callback";

/// A login with what its owner has not done yet.
struct Bench {
    login: Login,
    now: Now,
    request: Option<Request>,
    store: Option<(TicketId, StoreTask)>,
    page: Option<PageAddress>,
    is_locked: bool,
    /// For each of two requests to the MCP server: whether it is on its way; absent if there is none.
    calls: [Option<bool>; 2],
}

/// Byte 0: the grant (bits 0 and 1). The rest: lines, each of which is a step. The first byte of a line is the kind of the step, and the
/// second chooses a status or a request; `|` in a body stands for a line feed.
///
/// A server answers a request (`a`), with headers before a tab and the body after it, or does not answer (`f`). The store does its task
/// (`s`), or fails (`S`); it loads tokens from JSON (`k`). The MCP server is called (`c`), and refuses with a challenge (`r`), or answers
/// (`d`). A listener begins (`l`). A callback comes with a query (`q`), in which `$` stands for the state of the page. A token of who we are
/// comes (`p`). Time passes (`t`). The login is aborted (`x`) or restarted (`y`).
pub fn login(data: &[u8]) {
    let ([grant], steps) = super::head(data);
    let mut config = LoginConfig::new(SERVER, "fuzz");
    let given = || {
        let mut client = GivenClient::new("id");
        client.issuer = Some("https://as.example".into());
        client.client_secret = Some("secret".into());
        client
    };
    config.grant = match grant % 4 {
        0 => config.grant,
        1 => Grant::ClientCredentials(given()),
        2 => Grant::EnterpriseManaged { provider: "https://idp.example/".into(), provider_client: given(), client: given() },
        _ => Grant::Workload { issuer: "https://as.example".into(), client_id: None },
    };
    let login = Login::new(config, Box::new(|bytes| bytes.fill(7)));
    let now = Now { instant: Instant::ZERO, unix: 1_000_000 };
    let mut bench = Bench { login, now, request: None, store: None, page: None, is_locked: false, calls: [None; 2] };
    for line in steps.split(|byte| *byte == b'\n').take(200) {
        if let [kind, chosen, rest @ ..] = line {
            bench.step(*kind, *chosen, &String::from_utf8_lossy(rest).replace('|', "\n"));
            bench.drain();
        }
    }
}

impl Bench {
    fn step(&mut self, kind: u8, chosen: u8, text: &str) {
        let now = self.now;
        let at = usize::from(chosen % 2);
        match kind {
            b'a' | b'f' => {
                let Some(request) = self.request.take() else { return };
                let (head, body) = text.split_once('\t').unwrap_or(("", text));
                let headers: Vec<_> = head.lines().filter_map(|line| line.split_once(':')).collect();
                let status = STATUSES[usize::from(chosen) % STATUSES.len()];
                let answer = Answer::Response { status, headers: &headers, body: body.as_bytes() };
                self.login.handle_response(request.id, if kind == b'a' { answer } else { Answer::Failed }, now);
            }
            b's' | b'S' | b'k' => {
                let Some((id, task)) = self.store.take() else { return };
                let tokens = || serde_json::from_str(text).ok().filter(|_| kind == b'k');
                let answer = match task {
                    StoreTask::Load => StoreAnswer::Loaded(tokens()),
                    StoreTask::Lock if kind == b'S' => StoreAnswer::Busy(None),
                    StoreTask::Lock => {
                        self.is_locked = true;
                        StoreAnswer::Locked(tokens())
                    }
                    StoreTask::Save(_) => StoreAnswer::Saved(kind != b'S'),
                    _ => StoreAnswer::Registration(serde_json::from_str(text).ok()),
                };
                self.login.handle_store(id, answer, now);
            }
            b'c' if self.calls[at].is_none() => {
                self.calls[at] = Some(false);
                self.login.authorize(Tag(at as u64), "POST", now);
            }
            b'r' | b'd' if self.calls[at] == Some(true) => {
                let status = if chosen & 2 == 0 { 401 } else { 403 };
                let is_ours = kind == b'r' && self.login.handle_rejected(Tag(at as u64), status, &[text], Some(text), now);
                self.calls[at] = is_ours.then_some(false);
                self.login.finished(Tag(if is_ours { 9 } else { at as u64 }));
            }
            b'l' => self.login.handle_listening(Some(if chosen == b'0' { text } else { CALLBACK }), now),
            b'q' => {
                let page = self.page.as_ref().map(PageAddress::as_str).unwrap_or_default();
                let state = page.split_once("state=").map_or("", |(_, rest)| rest.split('&').next().unwrap_or_default());
                let answer = self.login.handle_callback(&format!("{CALLBACK}?{}", text.replace('$', state)), now);
                assert!(
                    answer == CallbackAnswer::Stray || text.contains('$') || text.contains(state),
                    "a callback without our state"
                );
            }
            b'p' => self.login.handle_subject(Some(Secret::from(text)), now),
            b't' => {
                let seconds = u64::from(chosen) * 10;
                self.now.unix += seconds;
                self.now.instant = now.instant.saturating_add(std::time::Duration::from_secs(seconds));
                self.login.handle_timeout(self.now);
            }
            b'x' => self.login.abort(now),
            b'y' => self.login.restart(),
            _ => {}
        }
    }

    fn drain(&mut self) {
        while let Some(output) = self.login.poll_output() {
            match output {
                Output::Request(request) => {
                    assert!(request.address.to_ascii_lowercase().starts_with("https://"), "{request:?}");
                    assert!(
                        request.headers.iter().all(|(_, value)| value.expose().bytes().all(|byte| matches!(byte, b' '..=b'~')))
                    );
                    assert!(request.reach == Reach::Public && self.login.poll_timeout().is_some());
                    self.request = Some(request);
                }
                Output::Store(id, task) => match task {
                    StoreTask::Save(tokens) if tokens.intent => assert!(self.is_locked),
                    StoreTask::Unlock => assert!(std::mem::take(&mut self.is_locked), "what is unlocked was locked"),
                    StoreTask::Forget { .. } => assert!(self.is_locked),
                    StoreTask::SaveRegistration(_) | StoreTask::ForgetRegistration(_) => {}
                    task => self.store = Some((id, task)),
                },
                Output::Open(page) => {
                    assert!(!self.is_locked && page.as_str().to_ascii_lowercase().starts_with("https://"));
                    self.page = Some(page);
                }
                Output::Send(tag, headers) => {
                    assert_eq!(self.calls[tag.0 as usize].replace(true), Some(false), "what is sent was waiting");
                    assert!(headers.iter().all(|(_, value)| value.expose().bytes().all(|byte| matches!(byte, b' '..=b'~'))));
                }
                Output::GiveUp(tag, reason) => {
                    assert_eq!(self.calls[tag.0 as usize].take(), Some(false), "what is given up was waiting");
                    assert!(!reason.to_string().contains(char::is_control));
                }
                _ => {}
            }
        }
    }
}
