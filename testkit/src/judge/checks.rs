//! One function for each guarantee. The function reads the ledger, which has the facts so far, and the next fact. If this fact breaks the
//! guarantee, the function returns an error, which describes the fault of the session.
//!
//! Two flags of the ledger make checks of our frames weaker: `missed`, if a request may have arrived that the judge could not read, and
//! `altered`, if the peer may have broken a rule.

use protocol_core::{CancelReason, CloseReason, Event, ExchangeId, InputFailed, InputRequest, Outcome, ReplyKind, RouteKind};
use serde_json::Value;

use super::fact::Fact;
use super::guarantee::Guarantee;
use super::ledger::{CANCELS, Kind, Ledger, PROGRESS, cancelled_request, is_request, progress_of};
use super::members::{carries, carries_request, repeated};
use super::reading::Read;
use super::rounds::{has_only_given, has_rounds};
use super::stateless::{Stamp, subscription};
use crate::summary::number;

/// The result of a check. The error describes the fault.
type Checked = Result<(), String>;
type Check = fn(&Ledger, &Fact<'_>, Option<&Read<'_>>) -> Checked;

/// The check of each guarantee except [`Guarantee::Deterministic`], which needs two runs.
pub(super) const ALL: [(Guarantee, Check); 16] = [
    (Guarantee::RightLane, right_lane),
    (Guarantee::TypedIds, typed_ids),
    (Guarantee::DoneOnce, done_once),
    (Guarantee::OneResponse, one_response),
    (Guarantee::ProgressRises, progress_rises),
    (Guarantee::SilentAfterClosed, silent_after_closed),
    (Guarantee::Bounded, bounded),
    (Guarantee::NeverPanics, never_panics),
    (Guarantee::NoHotLoop, no_hot_loop),
    (Guarantee::OutputReady, output_ready),
    (Guarantee::OnlyTimeoutExpires, only_timeout_expires),
    (Guarantee::DepthBounded, depth_bounded),
    (Guarantee::PayloadUnchanged, payload_unchanged),
    (Guarantee::RoundsApart, rounds_apart),
    (Guarantee::OneDirection, one_direction),
    (Guarantee::CallersApart, callers_apart),
];

fn must(holds: bool, what: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(what()) }
}

/// G1.
fn done_once(ledger: &Ledger, fact: &Fact<'_>, _: Option<&Read<'_>>) -> Checked {
    let new = match fact {
        Fact::Called { id, .. } => Some(number(id)),
        Fact::Asked { key, .. } => Some(number(key)),
        Fact::AlarmSet { id, .. } => Some(number(id)),
        _ => None,
    };
    must(new.is_none_or(|new| new > ledger.newest), || {
        format!("a number that is not above all earlier ones was returned: {new:?}")
    })?;
    let Fact::Polled { event, .. } = fact else { return Ok(()) };
    match event {
        Event::Done { id, .. } => must(ledger.calls.contains_key(&number(id)), || format!("done twice, or never begun: {event:?}")),
        Event::Progress { id, .. } => must(ledger.calls.contains_key(&number(id)), || format!("progress after the end: {event:?}")),
        Event::InputRequested { key, parent, .. } => {
            let is_new = !ledger.peer_input_requests.contains_key(&number(key));
            let is_of_call = parent.is_none_or(|id| ledger.calls.contains_key(&number(id)));
            must(is_new && is_of_call, || format!("an input request that is open already, or whose call is over: {event:?}"))
        }
        Event::InputGone { key } => {
            must(ledger.peer_input_requests.contains_key(&number(key)), || format!("no such input request is open: {event:?}"))
        }
        Event::Input { id, key, .. } => {
            let asker = ledger.input_request(number(key)).map(|input| input.asker);
            must(asker == Some(number(id)), || format!("the answer to an input request that is not open: {event:?}"))
        }
        Event::Closed(_) => must(ledger.calls.is_empty(), || format!("never done: {:?}", ledger.calls.keys())),
        _ => Ok(()),
    }
}

/// G2.
fn one_response(ledger: &Ledger, fact: &Fact<'_>, read: Option<&Read<'_>>) -> Checked {
    match fact {
        Fact::Sent { transmit, .. } => {
            let Some(Read { text, value }) = read else { return Ok(()) };
            match (value["method"].as_str(), value.get("id")) {
                (Some(_), Some(id)) => {
                    let Some(id) = id.as_u64() else { return Ok(()) };
                    must(!ledger.requests.all.contains(&id), || format!("an id was used twice: {text}"))?;
                    let within = ledger.requests.within.get(&id).filter(|(_, wire)| !wire.is_empty());
                    let is_open = within.is_none_or(|(lane, wire)| ledger.pending_of(*lane, wire).is_some());
                    must(is_open, || format!("an input request after the end of the request that it belongs to: {text}"))
                }
                (Some(method), None) if CANCELS.contains(&method) => {
                    let id = cancelled_request(&value["params"]).filter(|id| ledger.requests.all.contains(id));
                    must(id.is_some(), || format!("a cancel without a request: {text}"))?;
                    let is_open = id.is_some_and(|id| ledger.requests.open.contains(&id));
                    must(is_open, || format!("cancelled although it was already cancelled or answered: {text}"))
                }
                (None, Some(id)) if !id.is_null() => {
                    let is_owed = ledger.pending_of(transmit.route.lane, &id.to_string()).is_some() || ledger.missed;
                    must(is_owed, || format!("a response to a request that is not open: {text}"))
                }
                _ => Ok(()),
            }
        }
        Fact::Responded { id, accepted: true, .. } => {
            // A cancelled call stays in `inbound_calls` until its `Cancelled` event is polled. Until then, a reply that the session wrongly
            // accepts is noticed only by its frame.
            must(ledger.inbound_calls.contains_key(&number(id)), || format!("{id} was answered although it was over"))
        }
        Fact::Polled { event: event @ Event::Request { id, .. }, .. } => {
            must(!ledger.inbound_calls.contains_key(&number(id)), || format!("two events for one request: {event:?}"))
        }
        Fact::Polled { event: event @ Event::Cancelled { id, .. }, .. } => {
            must(ledger.inbound_calls.contains_key(&number(id)), || format!("cancelled although it is over: {event:?}"))
        }
        _ => Ok(()),
    }
}

/// G3.
fn progress_rises(ledger: &Ledger, fact: &Fact<'_>, read: Option<&Read<'_>>) -> Checked {
    if let Fact::Polled { event: event @ Event::Progress { id, progress }, .. } = fact
        && let (Some(call), Some(value)) = (ledger.calls.get(&number(id)), progress.value)
    {
        let is_in_range = !ledger.terms.is_percent || (0.0..=100.0).contains(&value);
        must(is_in_range, || format!("not a percentage: {event:?}"))?;
        return must(call.last.is_none_or(|last| value > f64::from_bits(last)), || format!("not above the last value: {event:?}"));
    }
    let (Fact::Sent { transmit, .. }, Some(Read { text, value })) = (fact, read) else { return Ok(()) };
    let (Some(method), None) = (value["method"].as_str().filter(|method| PROGRESS.contains(method)), value.get("id")) else {
        return Ok(());
    };
    let params = &value["params"];
    let (token, is_percent) = progress_of(method, params);
    let value = params[if is_percent { "percent" } else { "progress" }].as_f64();
    must(!is_percent || value.is_none_or(|value| (0.0..=100.0).contains(&value)), || format!("not a percentage: {text}"))?;
    let Some(at) = ledger.reported_by(transmit.route.lane, &token) else {
        return must(ledger.missed, || format!("progress before its request or after its end: {text}"));
    };
    let Some(value) = value else { return must(is_percent, || format!("progress without a value: {text}")) };
    let rises = ledger.pending[at].last.is_none_or(|last| value > f64::from_bits(last));
    must(rises || (ledger.altered && ledger.pending[at].shares_token), || format!("not above the last value: {text}"))
}

/// G4.
fn silent_after_closed(ledger: &Ledger, fact: &Fact<'_>, _: Option<&Read<'_>>) -> Checked {
    match fact {
        _ if !ledger.closed => Ok(()),
        Fact::Sent { transmit, .. } => Err(format!("a frame after the end: {}", String::from_utf8_lossy(&transmit.frame))),
        Fact::Polled { event, .. } => Err(format!("an event after the end: {event:?}")),
        Fact::Returned { due: Some(due), .. } => Err(format!("a deadline after the end: {due:?}")),
        _ => Ok(()),
    }
}

/// G5.
fn bounded(ledger: &Ledger, fact: &Fact<'_>, _: Option<&Read<'_>>) -> Checked {
    if let (Fact::Sent { transmit, .. }, Some(limit)) = (fact, ledger.frame_bytes.0) {
        // A refusal has a fixed length, which may exceed a tiny limit.
        let length = transmit.frame.len();
        return must(length <= limit.max(512), || format!("a frame of {length} bytes, and the limit is {limit}"));
    }
    let Fact::Returned { stats, limits, .. } = fact else { return Ok(()) };
    // Each message of a batch may cause two events. The events about the ends of calls and input requests, in both directions, may exceed
    // `limits.events`.
    let most = limits.events + 2 * limits.batch + 8 * limits.in_flight + limits.alarms + 16;
    must(ledger.in_a_row.0 <= most, || format!("{} events are polled in a row, and the limit is {most}", ledger.in_a_row.0))?;
    let calls = stats.outbound_calls <= limits.in_flight && stats.inbound_calls <= limits.in_flight;
    let bytes = stats.queued_bytes <= limits.output_bytes_hard && stats.request_bytes <= limits.request_bytes;
    must(calls && bytes && stats.cancelled_calls <= stats.inbound_calls, || format!("{stats:?} exceeds {limits:?}"))
}

/// G6.
fn never_panics(_: &Ledger, fact: &Fact<'_>, _: Option<&Read<'_>>) -> Checked {
    match fact {
        Fact::Panicked { method, message } => Err(format!("{method} panicked: {message}")),
        _ => Ok(()),
    }
}

/// G7.
fn no_hot_loop(ledger: &Ledger, fact: &Fact<'_>, _: Option<&Read<'_>>) -> Checked {
    let (Fact::Returned { due: Some(due), .. }, Some(timed)) = (fact, ledger.timed) else { return Ok(()) };
    must(*due > timed.0, || format!("a deadline at {due:?} after handle_timeout({:?})", timed.0))
}

/// G8.
fn output_ready(_: &Ledger, fact: &Fact<'_>, _: Option<&Read<'_>>) -> Checked {
    let Fact::Probed { before, after } = fact else { return Ok(()) };
    must(before == after, || format!("a needless handle_timeout changed the output from {before} to {after}"))
}

/// G9.
fn only_timeout_expires(ledger: &Ledger, fact: &Fact<'_>, _: Option<&Read<'_>>) -> Checked {
    let Fact::Polled { event, .. } = fact else { return Ok(()) };
    let is_possible = match event {
        Event::Done { id, outcome: Outcome::TimedOut(_), .. } => {
            ledger.calls.get(&number(id)).is_none_or(|call| call.expiry.is_possible)
        }
        Event::Cancelled { id, why: CancelReason::Deadline } => {
            ledger.inbound_calls.get(&number(id)).is_none_or(|inbound| inbound.expiry.is_possible)
        }
        Event::Input { key, answer: Err(InputFailed::TimedOut), .. } => {
            ledger.input_request(number(key)).is_none_or(|input| input.expiry.is_possible)
        }
        Event::Alarm(id) => ledger.alarms.get(&number(id)).is_none_or(|expiry| expiry.is_possible),
        Event::Closed(CloseReason::HandshakeTimeout) => ledger.was_due || ledger.terms.zero[0],
        _ => true,
    };
    must(is_possible, || format!("expired without handle_timeout: {event:?}"))
}

/// G11.
fn typed_ids(ledger: &Ledger, fact: &Fact<'_>, read: Option<&Read<'_>>) -> Checked {
    match fact {
        Fact::Sent { transmit, .. } => {
            let Some(Read { text, value }) = read else { return Ok(()) };
            match (value["method"].as_str(), value.get("id")) {
                (Some(method), Some(id)) => {
                    must(id.is_u64(), || format!("an id of ours that is not a number: {text}"))?;
                    let is_named = method != "actions/invoke" || value["params"]["invocationId"] == format!("inv_{id}");
                    must(is_named, || format!("an invocation whose name is not that of its id: {text}"))
                }
                (None, Some(id)) if !id.is_null() => {
                    let is_known = ledger.pending_of(transmit.route.lane, &id.to_string()).is_some();
                    let bare = |id: &str| id.trim_matches('"').to_owned();
                    let written = id.to_string();
                    let named = bare(&written);
                    let of_another_type =
                        || ledger.pending.iter().any(|pending| bare(&pending.id) == named && pending.id != written);
                    must(is_known || ledger.missed || !of_another_type(), || {
                        format!("the id was changed from a number to a string, or back: {text}")
                    })
                }
                _ => Ok(()),
            }
        }
        Fact::Polled { event: event @ Event::Done { id, outcome, .. }, .. } => match outcome {
            // These calls need no response: a change of a subscription is answered by an acknowledgement, and a log level is not sent at
            // all.
            Outcome::Result(_) | Outcome::Invalid(_) if ledger.is_answered_by_session(number(id)) => Ok(()),
            Outcome::Result(_) | Outcome::Error(_) => {
                let is_answered = ledger.missed || ledger.requests.responses.contains_key(&number(id));
                must(is_answered, || format!("no response had its id: {event:?}"))
            }
            Outcome::Invalid(_) => {
                // A call whose request was never sent can be invalid without a response. A round that exceeds a limit ends its call. If frames
                // were altered, the judge may not be able to read the response.
                let was_sent = ledger.requests.all.contains(&number(id));
                let has_response = ledger.requests.responses.contains_key(&number(id));
                let has_round = ledger.rounds.between(number(id)).is_some();
                let is_answered = !was_sent || ledger.altered || has_response || has_round;
                must(is_answered, || format!("no response had its id: {event:?}"))
            }
            Outcome::Cancelled => {
                let is_cancelled = ledger.closing || ledger.calls.get(&number(id)).is_none_or(|call| call.cancelled);
                must(is_cancelled, || format!("its owner did not cancel it: {event:?}"))
            }
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

/// G12.
fn depth_bounded(_: &Ledger, fact: &Fact<'_>, read: Option<&Read<'_>>) -> Checked {
    match fact {
        Fact::Sent { max_depth, .. } => {
            let Some(Read { text, value }) = read else { return Ok(()) };
            let depth = value["params"]["_meta"]["protocol-core/samplingDepth"].as_u64().unwrap_or(0);
            let is_request = value.get("method").is_some() && value.get("id").is_some();
            must(!is_request || depth <= u64::from(*max_depth), || format!("a sampling request that is nested too deep: {text}"))
        }
        Fact::Polled { event: event @ Event::InputRequested { ask: InputRequest::Sample(_), depth, .. }, max_depth } => {
            must((1..=*max_depth).contains(depth), || format!("a sampling request that is nested too deep: {event:?}"))
        }
        _ => Ok(()),
    }
}

/// G13.
fn payload_unchanged(ledger: &Ledger, fact: &Fact<'_>, read: Option<&Read<'_>>) -> Checked {
    match fact {
        Fact::Sent { transmit, .. } => {
            let Some(Read { text, value }) = read else { return Ok(()) };
            must(!text.contains(['\n', '\r']), || format!("a frame with a line break: {text:?}"))?;
            let id = value.get("id");
            let payload = match value.get("method") {
                Some(_) => id.and_then(Value::as_u64).and_then(|id| ledger.calls.get(&id)?.payload.as_deref()),
                None if value.get("result").is_some() => {
                    let (lane, id) = (transmit.route.lane, id.map(Value::to_string).unwrap_or_default());
                    let mut same = ledger.pending.iter().filter(|pending| pending.id == id && pending.lane == lane);
                    // If the peer has repeated an id, it is uncertain which of its requests this result answers.
                    same.next().filter(|_| same.next().is_none()).and_then(|pending| pending.result.as_deref())
                }
                None => None,
            };
            let carries = if value.get("method").is_some() { carries_request } else { carries };
            must(payload.is_none_or(|payload| carries(text, payload)), || {
                format!("{payload:?} was given, and this was sent: {text}")
            })
        }
        Fact::Received { effect, .. } => {
            let Some(twice) = read.filter(|_| effect.began > 0).and_then(|read| repeated(read.text)) else { return Ok(()) };
            Err(format!("a call began although {twice:?} is written twice in its frame"))
        }
        Fact::Polled { event: event @ Event::Request { request, .. }, .. } => {
            let Some(arrived) = ledger.arrived.front().filter(|arrived| !arrived.frame.is_empty()) else { return Ok(()) };
            let params = request.params().as_str();
            must(params == "{}" || carries(&arrived.frame, params), || {
                format!("{event:?} differs from its frame {}", arrived.frame)
            })
        }
        Fact::Polled { event: event @ Event::Done { id, outcome: Outcome::Result(result), .. }, .. } => {
            let Some(responses) = ledger.requests.responses.get(&number(id)) else { return Ok(()) };
            // On Tesseron a response without a result has the result null.
            let is_carried = result.as_str() == "null" || responses.iter().any(|response| carries(response, result.as_str()));
            must(is_carried, || format!("{event:?} differs from its frame {}", responses.concat()))
        }
        _ => Ok(()),
    }
}

/// G14. A request whose id no method has returned must be the retry of one round, with the state and the names of the input requests of
/// that round. Any other request must have only the state and the answers that its owner gave.
fn rounds_apart(ledger: &Ledger, fact: &Fact<'_>, read: Option<&Read<'_>>) -> Checked {
    let (Fact::Sent { transmit, .. }, Some(Read { text, value })) = (fact, read) else { return Ok(()) };
    let (RouteKind::Request(_), Some(id)) = (transmit.route.kind, value["id"].as_u64()) else { return Ok(()) };
    if !ledger.era.calls_stateless || !has_rounds(value) {
        return Ok(());
    }
    let is_fit = match ledger.calls.get(&id) {
        // The owner may have given a state and answers itself.
        Some(call) => {
            let given: Value = call.payload.as_deref().and_then(|given| serde_json::from_str(given).ok()).unwrap_or_default();
            has_only_given(value, &given)
        }
        None => ledger.missed || ledger.rounds.has_retried(value),
    };
    if is_fit {
        Ok(())
    } else {
        Err(format!("no round of the peer is answered by {text}; those without a retry: {:?}", ledger.rounds.asked()))
    }
}

/// G15.
fn one_direction(ledger: &Ledger, fact: &Fact<'_>, read: Option<&Read<'_>>) -> Checked {
    match fact {
        Fact::Asked { id, .. } => {
            let is_stateless = ledger.inbound_calls.get(&number(id)).is_some_and(|inbound| inbound.kind != Kind::Served);
            must(!is_stateless, || format!("an input request was made for {id}, whose caller is stateless"))
        }
        Fact::Sent { transmit, .. } => {
            let Some(Read { text, value }) = read else { return Ok(()) };
            match (value["method"].as_str(), value.get("id")) {
                (Some(_), Some(id)) => {
                    // A ping of ours may be made before the first request of the peer, and sent after that request.
                    let is_early = id.as_u64().is_some_and(|id| ledger.calls.get(&id).is_some_and(|call| call.is_early));
                    must(is_early || !ledger.era.serves_stateless_alone(), || format!("a stateless server sent a request: {text}"))
                }
                (None, Some(id)) if !id.is_null() => {
                    // A request that came before this end chose its era may be answered.
                    let asked = ledger.pending_of(transmit.route.lane, &id.to_string()).map(|at| &ledger.pending[at]);
                    let is_early = asked.is_some_and(|asked| asked.is_early);
                    must(is_early || !ledger.era.calls_stateless, || format!("a response of a client: {text}"))
                }
                (Some(_), None) => {
                    let Some(id) = subscription(value).filter(|_| !ledger.missed) else { return Ok(()) };
                    let is_open = |lane| ledger.pending_of(lane, &id).is_some();
                    let of_any = || ledger.pending.iter().any(|pending| pending.id == id);
                    must(is_open(transmit.route.lane) || of_any(), || format!("sent after the result of its subscription: {text}"))
                }
                _ => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

/// G16.
fn callers_apart(ledger: &Ledger, fact: &Fact<'_>, read: Option<&Read<'_>>) -> Checked {
    match fact {
        Fact::Sent { transmit, .. } if !ledger.missed => {
            let Some(Read { text, value }) = read else { return Ok(()) };
            let lane = transmit.route.lane;
            if let Some(id) = subscription(value).filter(|_| value.get("method").is_some()) {
                let mut own = ledger.pending.iter().filter(|pending| pending.lane == lane && pending.id == id);
                let wants = |stamp: &Stamp| stamp.wants(value);
                let is_wanted = own.any(|pending| pending.stamp.as_ref().is_some_and(wants));
                return must(is_wanted, || format!("no subscription on {lane} asked for it: {text}"));
            }
            if !ledger.era.serves_stateless_alone() {
                return Ok(());
            }
            let mut of_lane = ledger.pending.iter().filter(|pending| pending.lane == lane);
            match (value["method"].as_str(), value.get("id")) {
                (Some("notifications/message"), None) if transmit.route.kind == RouteKind::Notification => {
                    must(ledger.early_records > 0, || format!("a record of no request: {text}"))
                }
                (Some("notifications/message"), None) => {
                    let admits = |stamp: &Stamp| stamp.admits(&value["params"]["level"]);
                    let is_wanted = of_lane.any(|pending| pending.stamp.as_ref().is_some_and(admits));
                    must(is_wanted, || format!("a log record that no request on {lane} asked for: {text}"))
                }
                (None, Some(id)) if value.get("result").is_some() => {
                    let id = id.to_string();
                    let Some(pending) = of_lane.find(|pending| pending.id == id) else { return Ok(()) };
                    let is_stateless = value["result"].get("resultType").is_some();
                    must(pending.began_call != Some(true) || pending.stamp.is_none() || is_stateless, || {
                        format!("a stateless request got a result without `resultType`: {text}")
                    })
                }
                _ => Ok(()),
            }
        }
        Fact::Polled { event: Event::Request { id, caller, .. }, .. } => {
            let Some(arrived) = ledger.arrived.front().filter(|arrived| !arrived.frame.is_empty()) else { return Ok(()) };
            let stamp = arrived.stamp.as_ref();
            match stamp {
                Some(stamp) if caller.protocol() == stamp.protocol => {
                    must(stamp.names(caller), || format!("{caller:?} of {id} is not the caller of its frame {}", arrived.frame))
                }
                Some(_) => must(!ledger.era.serves_stateless_alone(), || {
                    format!("{caller:?} of {id} is not the caller of its frame {}", arrived.frame)
                }),
                None => must(caller.protocol() != super::stateless::REVISION, || {
                    format!("{caller:?} of {id} is not the caller of its frame, which names none: {}", arrived.frame)
                }),
            }
        }
        _ => Ok(()),
    }
}

/// A guarantee without a number: every frame is sent on the right lane, and its route has the right kind.
fn right_lane(ledger: &Ledger, fact: &Fact<'_>, read: Option<&Read<'_>>) -> Checked {
    match fact {
        Fact::Received { effect, .. } => {
            let Some(Read { text, value }) = read.filter(|read| read.value.is_object()) else { return Ok(()) };
            let is_owed = value.get("id").is_some() && is_request(value) && !effect.dropped;
            let counted = effect.received.replies;
            let is_right = counted == usize::from(is_owed) || (counted == 0 && ledger.era.may_be_a_stateless_client());
            must(ledger.altered || is_right, || format!("{counted} replies were counted for {text}"))
        }
        Fact::Sent { transmit, .. } => {
            let Some(Read { text, value }) = read else { return Ok(()) };
            let (lane, kind) = (transmit.route.lane, transmit.route.kind);
            must(!ledger.stopped.contains(&lane), || format!("sent although {lane} is stopped: {text}"))?;
            must(!ledger.gone.contains(&lane), || format!("sent although {lane} is gone: {text}"))?;
            let belongs = |expected, is_right_kind: bool| {
                must(lane == expected && is_right_kind, || {
                    format!("belongs to {expected}, but was sent on {lane} as {kind:?}: {text}")
                })
            };
            let channel = protocol_core::Lane::CHANNEL;
            let params = &value["params"];
            match (value["method"].as_str(), value.get("id")) {
                (Some(_), Some(id)) => {
                    let Some(id) = id.as_u64() else { return Ok(()) };
                    match ledger.requests.within.get(&id) {
                        Some((lane, _)) => belongs(*lane, kind == RouteKind::Within),
                        None => belongs(channel, kind == RouteKind::Request(ExchangeId::from_number(id))),
                    }
                }
                (Some(method), None) if CANCELS.contains(&method) => {
                    let Some(id) = cancelled_request(params) else { return Ok(()) };
                    match ledger.requests.within.get(&id) {
                        Some((lane, _)) => belongs(*lane, kind == RouteKind::Within),
                        None => belongs(channel, kind == RouteKind::Cancel(ExchangeId::from_number(id))),
                    }
                }
                (Some(method), None) if PROGRESS.contains(&method) => {
                    let (token, _) = progress_of(method, params);
                    if ledger.reported_by(lane, &token).is_some() {
                        return belongs(lane, kind == RouteKind::Within);
                    }
                    let other = ledger.pending.iter().find(|pending| pending.token.as_ref() == Some(&token));
                    other.filter(|_| !ledger.missed).map_or(Ok(()), |other| belongs(other.lane, false))
                }
                (None, Some(id)) if !id.is_null() => {
                    let id = id.to_string();
                    let Some(at) = ledger.pending_of(lane, &id) else {
                        let other = ledger.pending.iter().find(|pending| pending.id == id);
                        return other.filter(|_| !ledger.missed).map_or(Ok(()), |other| belongs(other.lane, false));
                    };
                    let (began_call, is_error) = (ledger.pending[at].began_call, value.get("error").is_some());
                    let is_right_kind = match kind {
                        RouteKind::InputResponse(_) => began_call != Some(true),
                        RouteKind::Reply(ReplyKind::Result) => !is_error,
                        RouteKind::Reply(ReplyKind::Error) => is_error && began_call != Some(false),
                        RouteKind::Reply(ReplyKind::Refused) => is_error && began_call != Some(true),
                        _ => false,
                    };
                    belongs(lane, is_right_kind || ledger.missed || ledger.altered)
                }
                (Some("log" | "notifications/message"), None) if kind == RouteKind::Within => {
                    let is_known = lane == channel || ledger.served.contains(&lane);
                    must(is_known, || format!("a log record on {lane}, on which no call has arrived: {text}"))?;
                    let Some(name) = params.get("invocationId").map(Value::to_string) else { return Ok(()) };
                    let is_known = ledger.altered || ledger.missed || ledger.reported_by(lane, &name).is_some();
                    must(is_known, || format!("a log record on {lane} for a call that did not arrive on it: {text}"))
                }
                (Some(_), None) if subscription(value).is_some() => {
                    let id = subscription(value).unwrap_or_default();
                    if ledger.pending_of(lane, &id).is_some() {
                        return belongs(lane, kind == RouteKind::Within);
                    }
                    let other = ledger.pending.iter().find(|pending| pending.id == id);
                    other.filter(|_| !ledger.missed).map_or(Ok(()), |other| belongs(other.lane, false))
                }
                // Any other notification, and a log record that belongs to no call.
                (Some(_), None) => belongs(channel, kind == RouteKind::Notification),
                _ => Ok(()),
            }
        }
        _ => Ok(()),
    }
}
