//! Sessions under test in virtual time: no runtime, no socket, no clock.
//!
//! | Part | Contents |
//! |---|---|
//! | [`Scripted`] | one session; the test is its peer, sends exact frames and compares exact frames |
//! | [`Pair`] | two sessions on a perfect connection |
//! | [`World`] | two sessions over links with faults, and operations drawn from a seed |
//! | [`FarEnd`] | the transport of an event loop under test: links with faults, and a peer at their other end |
//! | [`FarEnds`] | the two peers of a gateway under test |
//! | [`link`] | the links without the sessions: latency, loss, repetition, reordering, damage, splits, stalls |
//! | [`Watched`] | a wrapper of `Session` that checks the guarantees after every method |
//! | [`Leg`] | a check of one leg of a machine that wraps sessions, by the frames of the leg |
//! | [`judge`] | the checks of the guarantees G1 to G16 of [`Session`](protocol_core::Session) |
//! | [`Campaign`] | many cases that together must exercise each required [`Happening`] |
//! | [`explore`] | a search of all states of a machine of yours, or of two sessions |
//! | [`broken`] | sessions with one fault each, to prove that a test detects faults |
//! | `strategies`, `fuzz` | inputs for proptest and for fuzzers, with the features `proptest` and `arbitrary` |
//!
//! Everything is a pure function of its seed and its arguments. A case of a campaign that fails prints one line, with which
//! [`Campaign::again`] runs that case again.
//!
//! # A loop of your own
//!
//! Your event loop uses a [`FarEnd`] as its transport. If it names the type of its session only once, [`Watched`] can replace that type:
//! `use testkit::Watched as Session`.
//!
//! ```
//! use protocol_core::{Instant, Session};
//! use testkit::link::Faults;
//! use testkit::{Campaign, FarEnd, Happening, Watched, config};
//! # mod own {
//! #     use protocol_core::{Event, Instant, Lane, Reply, ToolOutput};
//! #     use testkit::{FarEnd, Watched, link::Arrival};
//! #     pub fn turn(session: &mut Watched, far_end: &mut FarEnd, now: Instant) -> Option<Instant> {
//! #         while let Some(arrival) = far_end.receive(now) {
//! #             match arrival {
//! #                 Arrival::Message(frame) => drop(session.handle_frame(frame, Lane::CHANNEL, now).expect("there is room")),
//! #                 Arrival::End(end) => session.handle_end(end, now),
//! #             }
//! #         }
//! #         session.handle_timeout(now);
//! #         while let Some(event) = session.poll_event() {
//! #             if let Event::Request { id, .. } = event {
//! #                 let _ = session.respond(id, Reply::Tool(ToolOutput::text("ok")), now);
//! #             }
//! #         }
//! #         while far_end.accepts(now) && let Some(out) = session.poll_transmit() {
//! #             far_end.send(&out.frame, now);
//! #         }
//! #         session.poll_timeout()
//! #     }
//! # }
//!
//! let mut campaign = Campaign::new(&[Happening::Request, Happening::Garbage]);
//! campaign.run(0..20, 0, |case| {
//!     let mut far_end = FarEnd::new(config::client_config(), Faults::hostile(), case.seed);
//!     let mut session = Watched::new(Session::new(config::server_config(), Instant::ZERO), Instant::ZERO);
//!     session.judge_mut().distrust_peer();
//!     far_end.run(|far_end, now| own::turn(&mut session, far_end, now)); // One turn of your loop, which returns its next deadline.
//!     session.coverage().clone()
//! });
//! campaign.finish();
//! ```
//!
//! # A tool
//!
//! Handlers are tested with the crate `endpoint` and its feature `testing`.
//!
//! ```
//! use endpoint::testing::{Harness, every_cancel_point, every_drop_point};
//! use protocol_core::{Json, Outcome};
//! # use endpoint::{Context, Service, Tool, ToolError};
//! # fn deploy() -> Service {
//! #     Service::new("server", "1").tool(Tool::new("deploy", async |context: Context, ()| {
//! #         if !context.confirm("Deploy now?").await {
//! #             return Ok::<_, ToolError>("left as it was");
//! #         }
//! #         context.sleep(std::time::Duration::from_secs(60)).await?;
//! #         Ok("deployed")
//! #     }))
//! # }
//!
//! let call = |harness: Harness| harness.call_tool("deploy", Json::empty_object());
//! let confirmed = || Harness::new(deploy()).answer(protocol_core::InputResponse::Confirm(true));
//! let runs = every_cancel_point(confirmed, call);
//! assert!(runs.iter().all(|run| run.outcome() == Some(&Outcome::Cancelled)));
//! every_drop_point(confirmed, call);
//! assert_eq!(call(confirmed()).text(), "deployed");
//! assert_eq!(call(Harness::new(deploy())).text(), "left as it was", "a refusal is no consent");
//! let unanswered = call(Harness::new(deploy()).answer_with(|_| None));
//! assert_eq!(unanswered.text(), "left as it was", "no answer is no consent");
//! ```
//!
//! # A client
//!
//! A scripted server, frame by frame: it reports progress, and then sends nothing more.
//!
//! ```
//! use protocol_core::{Outcome, TimeoutKind};
//! use testkit::scripted::progress;
//! use testkit::{Scripted, config};
//!
//! let mut client = Scripted::client(config::client_config());
//! client.call();
//! assert!(client.sent()[0].contains(r#""method":"tools/call""#));
//! client.at(59_000).frame(&progress(2, 1.0));
//! assert!(client.at(118_999).sent().is_empty(), "progress restarts the idle timeout");
//! client.at(119_000);
//! assert!(client.sent()[0].contains("notifications/cancelled"));
//! assert_eq!(client.outcome(), Outcome::TimedOut(TimeoutKind::Idle));
//! client.frame(&testkit::scripted::result(2)).expect_silence();
//! ```
//!
//! # A gateway between protocols
//!
//! Both legs are a [`Watched`], and so are the sessions of the [`FarEnds`]: all of them are checked. [`explore`] can search every order of
//! the gateway's steps.
//!
//! ```
//! use protocol_core::{Instant, Outcome};
//! use testkit::{FarEnds, config};
//! # mod own {
//! #     use protocol_core::{Event, InboundId, Instant, Invoke, Outcome, OutboundId, Reply, Request, Session};
//! #     use testkit::config::{gateway_config, server_config};
//! #     use testkit::{Relay, Watched};
//! #     /// The gateway under test: a server of MCP for an agent, and the gateway end of Tesseron for an app.
//! #     pub struct Gateway { pub agent: Watched, pub app: Watched, calls: Vec<(OutboundId, InboundId)> }
//! #     impl Gateway {
//! #         pub fn new(now: Instant) -> Self {
//! #             let [agent, app] = [server_config(), gateway_config()].map(|config| Watched::new(Session::new(config, now), now));
//! #             Self { agent, app, calls: Vec::new() }
//! #         }
//! #     }
//! #     impl Relay for Gateway {
//! #         type Leg = Watched;
//! #         fn legs(&mut self) -> [&mut Watched; 2] {
//! #             [&mut self.agent, &mut self.app]
//! #         }
//! #         fn relay(&mut self, now: Instant) {
//! #             while let Some(event) = self.agent.poll_event() {
//! #                 if let Event::Request { id, request: Request::CallTool(call), .. } = event {
//! #                     let arguments = call.into_arguments().unwrap_or_else(protocol_core::Json::empty_object);
//! #                     self.calls.extend(self.app.invoke(Invoke::call_tool("t", arguments), now).map(|call| (call, id)));
//! #                 }
//! #             }
//! #             while let Some(event) = self.app.poll_event() {
//! #                 if let Event::Done { id, outcome: Outcome::Result(result), .. } = event {
//! #                     let place = self.calls.iter().position(|(call, _)| *call == id).expect("a known call");
//! #                     let _ = self.agent.respond(self.calls.remove(place).1, Reply::Raw(result), now);
//! #                 }
//! #             }
//! #         }
//! #     }
//! # }
//!
//! let now = Instant::ZERO;
//! let mut gateway = own::Gateway::new(now); // It implements `Relay`.
//! let mut ends = FarEnds::new(config::client_config(), config::app_config());
//! ends.pass(&mut gateway, now);
//! gateway.app.claim(config::agent(), config::agent_capabilities(), 1, now)?;
//! ends.pass(&mut gateway, now).agent.call();
//! let id = ends.pass(&mut gateway, now).app.request();
//! ends.app.respond(id);
//! let outcome = ends.pass(&mut gateway, now).agent.outcome();
//! assert!(matches!(outcome, Outcome::Result(result) if result.as_str().contains("ok")));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod broken;
mod campaign;
pub mod config;
mod coverage;
pub mod explore;
mod far_end;
mod far_ends;
#[cfg(feature = "arbitrary")]
pub mod fuzz;
pub mod judge;
mod leg;
pub mod link;
mod pair;
mod panics;
mod recording;
mod rng;
pub mod scripted;
#[cfg(feature = "proptest")]
pub mod strategies;
mod subject;
mod summary;
pub mod tesseron;
mod watched;
pub mod world;

pub use campaign::{Campaign, Vacuous};
pub use coverage::{Coverage, Happening, Transition};
pub use far_end::FarEnd;
pub use far_ends::{FarEnds, Relay};
pub use judge::{Guarantee, Judge, Objection};
pub use leg::Leg;
pub use pair::{Pair, carry};
pub use recording::{NoRecording, Recording};
pub use rng::Rng;
pub use scripted::Scripted;
pub use subject::Subject;
pub use watched::{KnownIds, ODD, ODD_RESULT, Watched};
pub use world::{Wire, World};
