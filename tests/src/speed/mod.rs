//! The speed of an adapter, compared with that of other SDKs and with a *floor*, which is a baseline: the same messages without an SDK. The
//! examples `bench` and `smol-bench` print the table.
//!
//! A [`Program`] measures [`Contender`]s. Each measurement has a process of its own, which is started with the hidden flag `--part`. The
//! contenders are timed in turn, once in each round, so that other load of the machine affects all of them alike. [`floor::Floor`] and
//! [`ours::Ours`] are the contenders of every adapter; those of `tests/against` are other SDKs.

mod command;
mod contender;
pub mod floor;
pub mod ours;
mod parts;
pub mod payload;
mod report;
mod row;
mod table;
pub mod values;
mod work;

pub use command::Program;
pub use contender::{About, Caller, Contender, HandlerCount, Kind, Leave, Listener, Updates};
pub use report::{Cell, Machine, Report};
pub use row::{Carried, EchoTool, Over, Row, Unit, What};
pub use table::human;
