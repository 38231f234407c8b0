//! The cache of results (MCP 2026-07-28, Caching).
//!
//! The cache keeps the lists of tools, prompts, resources and resource templates, page by page, and the contents of resources, each for the
//! time that the server allows (`ttlMs`), and at most for [`HttpClientTimeouts::cache_max`]. A client is one caller at one server, so
//! `cacheScope` does not matter.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use bytes::Bytes;

use crate::http::limits::{HttpClientLimits, HttpClientTimeouts};
use crate::http::message::Request;
use crate::json::read::{Members, integer, member, string};
use crate::json::write::Object;
use crate::session::ExchangeId;
use crate::time::Instant;

#[derive(Debug, Default)]
pub(super) struct Cache {
    results: BTreeMap<Key, CachedResult>,
    /// The number of bytes of all keys and results.
    bytes: usize,
    /// The number of times at which cached results became out of date, or may have become so.
    changes: u64,
}

/// The request that a result answers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    subject: Subject,
    /// The parameters on which the result depends, exactly as they are written.
    params: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Tools,
    Prompts,
    Resources,
    Templates,
    Contents,
}

#[derive(Debug)]
struct CachedResult {
    result: Bytes,
    until: Instant,
}

/// The right to cache the result of a request that was sent. It ends with the next increment of [`Cache::changes`], whichever results that
/// change is about.
#[derive(Clone, Debug)]
pub(super) struct CachePermit {
    key: Key,
    changes: u64,
}

impl Key {
    fn of(request: &Request) -> Option<Self> {
        let subject = match &*request.method {
            "tools/list" => Subject::Tools,
            "prompts/list" => Subject::Prompts,
            "resources/list" => Subject::Resources,
            "resources/templates/list" => Subject::Templates,
            "resources/read" => Subject::Contents,
            _ => return None,
        };
        request.identity().map(|params| Self { subject, params })
    }
}

impl Cache {
    /// The response to a request, if its result is cached and has not expired.
    pub(super) fn response(&self, exchange: ExchangeId, request: &Request, now: Instant) -> Option<Bytes> {
        let cached = self.results.get(&Key::of(request)?).filter(|cached| cached.until > now)?;
        let mut out = Vec::with_capacity(cached.result.len().saturating_add(64));
        Object::write(&mut out, |object| {
            object.word("jsonrpc", "2.0");
            object.integer("id", exchange.0);
            object.object("result", |object| {
                for (key, value) in Members::of(&cached.result).into_iter().flatten() {
                    if key.is("ttlMs") {
                        let left = cached.until.saturating_duration_since(now);
                        object.integer("ttlMs", u64::try_from(left.as_millis()).unwrap_or(u64::MAX));
                    } else {
                        object.copy(key, value);
                    }
                }
            });
        });
        Some(out.into())
    }

    /// The right to cache the result of a request that is sent now; `None` if results of such requests are not cached.
    pub(super) fn permit(&self, request: &Request) -> Option<CachePermit> {
        Key::of(request).map(|key| CachePermit { key, changes: self.changes })
    }

    /// Caches the result in a response, if the server allows it and the result is not too long. If the cache is full, drops the results
    /// that would expire first.
    pub(super) fn store(
        &mut self,
        permit: CachePermit,
        response: &[u8],
        limits: &HttpClientLimits,
        timeouts: &HttpClientTimeouts,
        now: Instant,
    ) {
        let Some(result) = member(response, "result").filter(|_| permit.changes == self.changes) else { return };
        let is_complete = member(result, "resultType").is_none_or(|kind| string(kind).is_some_and(|kind| kind == "complete"));
        let Some(millis) = member(result, "ttlMs").and_then(integer).filter(|millis| *millis > 0 && is_complete) else { return };
        let until = now.saturating_add(Duration::from_millis(millis).min(timeouts.cache_max));
        self.remove(&permit.key);
        self.results.retain(|key, cached| {
            let is_fresh = cached.until > now;
            if !is_fresh {
                self.bytes = self.bytes.saturating_sub(cached.size(key));
            }
            is_fresh
        });
        let cached = CachedResult { result: Bytes::copy_from_slice(result), until };
        let size = cached.size(&permit.key);
        if size > limits.cache_bytes {
            return;
        }
        while self.results.len() >= limits.cache_results || self.bytes.saturating_add(size) > limits.cache_bytes {
            let Some(first) = self.results.iter().min_by_key(|(_, cached)| cached.until).map(|(key, _)| key.clone()) else {
                return;
            };
            self.remove(&first);
        }
        self.bytes = self.bytes.saturating_add(size);
        self.results.insert(permit.key, cached);
    }

    /// Drops the results that have changed according to a notification of the server.
    pub(super) fn notification(&mut self, frame: &[u8]) {
        let Some(method) = member(frame, "method").and_then(string) else { return };
        match &*method {
            "notifications/tools/list_changed" => self.drop_of(&[Subject::Tools]),
            "notifications/prompts/list_changed" => self.drop_of(&[Subject::Prompts]),
            "notifications/resources/list_changed" => {
                self.drop_of(&[Subject::Resources, Subject::Templates, Subject::Contents]);
            }
            "notifications/resources/updated" => {
                let uri = member(frame, "params").and_then(|params| member(params, "uri")).and_then(string).unwrap_or_default();
                // The resource in the notification may be a part of the one that was read.
                self.drop_if(|key| {
                    let read = member(&key.params, "uri").and_then(string);
                    key.subject == Subject::Contents && read.is_none_or(|read| uri.starts_with(&*read))
                });
            }
            _ => {}
        }
    }

    /// Drops the list of tools, since the server has refused a call because of headers that follow from that list.
    pub(super) fn drop_tools(&mut self) {
        self.drop_of(&[Subject::Tools]);
    }

    /// Drops everything.
    pub(super) fn clear(&mut self) {
        self.drop_if(|_| true);
    }

    fn drop_of(&mut self, subjects: &[Subject]) {
        self.drop_if(|key| subjects.contains(&key.subject));
    }

    fn drop_if(&mut self, has_changed: impl Fn(&Key) -> bool) {
        self.changes = self.changes.saturating_add(1);
        for key in self.results.keys().filter(|key| has_changed(key)).cloned().collect::<Vec<_>>() {
            self.remove(&key);
        }
    }

    fn remove(&mut self, key: &Key) {
        if let Some(cached) = self.results.remove(key) {
            self.bytes = self.bytes.saturating_sub(cached.size(key));
        }
    }
}

impl CachedResult {
    fn size(&self, key: &Key) -> usize {
        self.result.len().saturating_add(key.params.len())
    }
}
