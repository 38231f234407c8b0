//! What outlives one request of a call: its answers and the outcomes of its effects, which the next request finds again.
//!
//! A *call* whose caller is asked in rounds (MCP 2026-07-28, Multi Round-Trip Requests) is the chain of a first request and its retries, each
//! of which is an inbound call of the session; a *run* is the execution of a handler for one of these requests. A handler that awaits an
//! answer is dropped, and its request ends with the input requests that are open and a sealed log. The retry opens the log and runs the
//! handler from its first line. Input requests and effects that are in the log resolve at once, and the first input request that is not in
//! the log ends the retry in the same way. Any other call has a log only for its effects, and that log is never sealed.
//!
//! ```text
//!   first request ---> the handler runs --- it is pending with open input requests ---> the request ends with a sealed log
//!                              ^                                                                 |
//!                              '------------- retry: the log opens, the handler runs again ------'
//! ```
//!
//! An answer is found in the log by a digest of its input request and by the number of equal input requests before it, and not by its
//! position. The digest covers kind, name and parameters, and whether the handler keeps only a part of the answer. So a handler that takes
//! another path than before never gets the answer to a different input request.
//!
//! | Part | What it is |
//! |---|---|
//! | `call` | the verbs of an inbound call, under the lock of the endpoint. A request comes in by `ServedCall::resume`, and goes out by `ServedCall::round_reply` |
//! | `in_rounds` | the request of an inbound call and what is counted for its rounds; the keys and names to seal states with |
//! | `log` | the log of a call and the state of its current run: plain values, no lock, no time of their own |
//! | `seal`, `canonical` | the log as text that a caller can neither read nor change, bound to its request |
//! | `once`, `effect_mark` | the run of an effect, whose outcome goes into the log and the store |
//! | `store` | the store that makes an effect happen at most once in all processes |

mod call;
mod canonical;
mod effect_mark;
mod in_rounds;
mod log;
mod once;
mod seal;
mod store;

pub(crate) use call::{EffectWait, RoundStep, RoundWait};
pub(crate) use effect_mark::is_in_effect;
pub(crate) use in_rounds::{InRounds, RoundSetup};
pub(crate) use log::{AskPlace, Asking, RoundLog};
#[cfg(test)]
pub(crate) use log::{AskStep, EffectStep, RunEnd};
pub use once::EffectKey;
pub(crate) use once::run_effect;
pub use seal::SealKeys;
pub(crate) use seal::Sealer;
#[cfg(all(test, feature = "seal"))]
pub(crate) use seal::encode;
pub use store::{Claim, Lease, MemoryOnceStore, OnceStore, StoreError};
