//! The speed of an adapter, of a floor without an SDK, and of other SDKs: the table that the examples `bench` and `smol-bench` print.
//!
//! A [`Program`] is a list of [`Contender`]s. Each number is measured by a process of its own, which the program starts from itself, in
//! rounds, so that other load of the machine affects all contenders alike. [`floor::Floor`] and [`ours::Ours`] are the contenders of every
//! adapter; those of `tests/against` are other SDKs.

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
pub use contender::{About, Caller, Contender, Kind, Leave, Listener, Running, Updates};
pub use report::{Cell, Machine, Report};
pub use row::{Carried, EchoTool, Over, Row, Unit, What};
pub use table::human;
