//! Every order of answers, refusals, callbacks, deadlines and aborts, up to a length; and long random ones.

use std::vec::Vec;
use std::{format, vec};

use super::{CALLBACK, CHALLENGE, PAIRS, Reply, World, filled, healthy, reply};
use crate::*;

/// What the owner of a login has not done yet.
struct Search {
    world: World,
    request: Option<Request>,
    store: Option<(TicketId, StoreTask)>,
    listens: bool,
    page: Option<PageAddress>,
    /// The requests to the MCP server: whether each is on its way.
    on_way: Vec<Option<bool>>,
    sends: Vec<u32>,
    codes: u32,
}

/// How many ways there are to go on from each state, at most.
const WAYS: u32 = 12;

impl Search {
    fn new(is_stored: bool) -> Self {
        let mut world = World::new();
        if is_stored {
            world.log_in();
            world.login.finished(Tag(1));
            let stored = world.stored.take();
            world = World::new();
            world.stored = stored;
            world.now.unix += 3580;
        }
        Self { world, request: None, store: None, listens: false, page: None, on_way: vec![None; 2], sends: vec![0; 2], codes: 0 }
    }

    fn drain(&mut self) {
        while let Some(output) = self.world.login.poll_output() {
            match output {
                Output::Request(request) => {
                    assert!(
                        request.address.starts_with("https://as.example/") || request.address.starts_with("https://rs.example/")
                    );
                    // Where nothing names a server, the resource is its own: but the tokens of another do not go there.
                    let body = request.body.expose();
                    assert!(!body.contains("rt-") || request.address.starts_with("https://as.example/"), "{request:?}");
                    if body.contains("code=the-code") {
                        self.codes += 1;
                        let page = self.page.as_ref().map(PageAddress::origin).unwrap();
                        assert!(request.address.starts_with(&page), "a code goes to the server of its page");
                    }
                    self.request = Some(request);
                }
                Output::Store(id, task) => match task {
                    StoreTask::Save(ref tokens) if tokens.intent => drop(self.world.store(task)),
                    StoreTask::Load | StoreTask::Lock | StoreTask::Save(_) | StoreTask::LoadRegistration(_) => {
                        self.store = Some((id, task));
                    }
                    task => drop(self.world.store(task)),
                },
                Output::Listen { .. } => self.listens = true,
                Output::Open(page) => {
                    assert!(!self.world.is_locked);
                    self.codes = 0;
                    self.page = Some(page);
                }
                Output::Send(tag, headers) => {
                    let at = tag.0 as usize;
                    assert_eq!(self.on_way[at].replace(true), Some(false), "what is sent was waiting");
                    self.sends[at] += 1;
                    assert!(self.sends[at] <= 6 && headers.len() <= 1);
                }
                Output::GiveUp(tag, _) => {
                    assert_eq!(self.on_way[tag.0 as usize].take(), Some(false), "what is given up was waiting")
                }
                Output::Notice(_) => {}
                Output::Subject => panic!("there is a person"),
            }
            assert!(self.codes <= 1, "a code is sent once");
        }
    }

    /// Goes one of the ways; `false` if it is not open.
    fn go(&mut self, way: u32) -> bool {
        let now = self.world.now;
        let done = match way {
            // Good first, so that an end can be reached by the first way that is open.
            0 => self.answer(healthy),
            1 => self.answer_store(true),
            2 if self.listens => {
                self.listens = false;
                self.world.login.handle_listening(Some(CALLBACK), now);
                true
            }
            3 => self.callback(PAIRS),
            4 => self.answer(|_, _| None),
            5 => self.answer(|request, _| reply(if request.method == "GET" { 404 } else { 400 }, r#"{"error":"invalid_grant"}"#)),
            6 => self.answer_store(false),
            7 => self.callback("code=x&state=wrong") | self.callback("error=access_denied&state=STATE&iss=https://as.example"),
            8 => {
                let free = self.on_way.iter().position(Option::is_none);
                free.is_some_and(|at| {
                    self.sends[at] = 0;
                    self.on_way[at] = Some(false);
                    self.world.login.authorize(Tag(at as u64), "POST", now);
                    true
                })
            }
            9 | 10 => {
                let sent = self.on_way.iter().position(|state| *state == Some(true));
                sent.is_some_and(|at| {
                    self.on_way[at] = Some(false);
                    let short = r#"Bearer error="insufficient_scope", scope="more""#;
                    let (status, challenge) = if way == 9 { (401, CHALLENGE) } else { (403, short) };
                    self.world.login.handle_rejected(Tag(at as u64), status, &[challenge], None, now)
                })
            }
            11 => {
                self.world.login.abort(now);
                self.world.now.unix += 3600;
                self.world.now.instant = now.instant.saturating_add(core::time::Duration::from_secs(601));
                self.world.login.handle_timeout(self.world.now);
                true
            }
            _ => false,
        };
        self.drain();
        done
    }

    fn answer(&mut self, how: impl Fn(&Request, &mut u32) -> Option<Reply>) -> bool {
        let Some(request) = self.request.take() else { return false };
        let answer = how(&request, &mut self.world.issued);
        let answer = match &answer {
            Some(Reply(status, _, body)) => Answer::Response { status: *status, headers: &[], body: body.as_bytes() },
            None => Answer::Failed,
        };
        self.world.login.handle_response(request.id, answer, self.world.now);
        true
    }

    fn answer_store(&mut self, works: bool) -> bool {
        let Some((id, task)) = self.store.take() else { return false };
        let answer = if works {
            self.world.store(task)
        } else {
            Some(match task {
                StoreTask::Load => StoreAnswer::Loaded(None),
                StoreTask::Lock => StoreAnswer::Busy(None),
                StoreTask::Save(_) => StoreAnswer::Saved(false),
                _ => StoreAnswer::Registration(None),
            })
        };
        if let Some(answer) = answer {
            self.world.login.handle_store(id, answer, self.world.now);
        }
        true
    }

    fn callback(&mut self, query: &str) -> bool {
        let Some(page) = &self.page else { return false };
        let address = format!("{CALLBACK}?{}", filled(query, page.as_str()));
        self.world.login.handle_callback(&address, self.world.now) != CallbackAnswer::Stray
    }

    /// Nothing waits for ever: with good answers, each request is sent or given up.
    fn finish(&mut self) {
        for _ in 0..60 {
            if !(0..4).any(|way| self.go(way)) {
                break;
            }
        }
        assert!(!self.on_way.contains(&Some(false)), "a request waits for ever: {:?}", self.world.login);
        assert!(!self.world.is_locked, "the lock is kept for ever: {:?}", self.world.login);
    }
}

/// Goes a path of ways, and returns whether all were open.
fn walk(path: &[u32], is_stored: bool) -> Option<Search> {
    let mut search = Search::new(is_stored);
    search.go(8);
    path.iter().all(|way| search.go(*way)).then_some(search)
}

fn explore(path: &mut Vec<u32>, depth: usize, is_stored: bool, paths: &mut u32) {
    let Some(mut search) = walk(path, is_stored) else { return };
    *paths += 1;
    search.finish();
    if path.len() < depth {
        for way in 0..WAYS {
            path.push(way);
            explore(path, depth, is_stored, paths);
            path.pop();
        }
    }
}

#[test]
fn whatever_comes_in_whatever_order_each_request_ends_and_the_lock_is_released() {
    let mut paths = 0;
    for is_stored in [false, true] {
        explore(&mut Vec::new(), 6, is_stored, &mut paths);
    }
    assert!(paths > 2000, "{paths} paths");
}

#[test]
fn long_random_orders_keep_the_same_promises() {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    for round in 0..3000 {
        let mut search = Search::new(round % 2 == 0);
        search.go(8);
        for _ in 0..60 {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            // Good answers are likelier, so that later states are reached.
            let way = (seed >> 33) as u32 % (WAYS + 8);
            search.go(if way >= WAYS { way % 4 } else { way });
        }
        search.finish();
    }
}
