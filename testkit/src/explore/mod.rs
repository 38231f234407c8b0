//! Breadth-first search of all states that a machine can reach.
//!
//! [`explore`] searches a machine of yours: anything that wraps sessions, such as a gateway with its two legs. Implement [`Explored`] for
//! it, with the steps that can happen next. The machine need not be cloneable: a state is rebuilt by taking the steps to it again from the
//! start. [`pair`] searches two real sessions with the same algorithm. Where neither end can distinguish several orders of steps, it can
//! search only one of them.
//!
//! ```
//! use protocol_core::{Event, Invoke, OutboundId, Reply, ToolOutput};
//! use testkit::Pair;
//! use testkit::explore::{Bounds, Explored, explore};
//!
//! /// One call, which its caller may cancel and its handler may answer.
//! struct Race { pair: Pair, call: OutboundId, trace: Vec<String> }
//!
//! #[derive(Clone, Debug)]
//! enum Step { Cancel, Respond, Carry }
//!
//! impl Explored for Race {
//!     type Step = Step;
//!     fn steps(&self) -> Vec<Step> {
//!         if self.trace.len() < 3 { vec![Step::Cancel, Step::Respond, Step::Carry] } else { Vec::new() }
//!     }
//!     fn take(&mut self, step: &Step) {
//!         self.trace.push(format!("{step:?}"));
//!         match step {
//!             Step::Cancel => drop(self.pair.client.session.cancel(self.call, None, self.pair.client.now)),
//!             Step::Respond => {
//!                 let request = self.pair.server.events().into_iter().find_map(|event| if let Event::Request { id, .. } = event { Some(id) } else { None });
//!                 let reply = Reply::Tool(ToolOutput::text("ok"));
//!                 let _ = request.map(|id| self.pair.server.session.respond(id, reply, self.pair.server.now));
//!             }
//!             Step::Carry => drop(self.pair.run()),
//!         }
//!     }
//!     fn state(&self) -> impl std::hash::Hash { self.trace.clone() }
//! }
//!
//! let start = || {
//!     let mut pair = Pair::ready();
//!     let call = pair.client.call();
//!     pair.run();
//!     Race { pair, call, trace: Vec::new() }
//! };
//! let found = explore(start, Bounds::default()).unwrap_or_else(|failure| panic!("{failure}"));
//! assert_eq!(found.states, 1 + 3 + 9 + 27);
//! ```

pub mod pair;

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::panics::message;

/// A machine that can be searched. Equal steps from the start must lead to equal states.
pub trait Explored {
    /// A step that can happen next.
    type Step: Clone + fmt::Debug;

    /// All steps that can happen in this state. Bound their number, since a machine that can always make another call has infinitely many
    /// states.
    fn steps(&self) -> Vec<Self::Step>;

    /// Takes one of the [`steps`](Self::steps) of this state.
    ///
    /// # Panics
    /// If an invariant is violated; the search ends with the steps that led to it.
    fn take(&mut self, step: &Self::Step);

    /// A value that determines every later step: states with equal values are searched once. If there is no such value, return the history
    /// of steps, so that no two states are equal.
    fn state(&self) -> impl Hash;

    /// Checks the invariants that must hold when nothing more can happen. Called for each state in which no step is possible.
    ///
    /// # Panics
    /// If an invariant is violated.
    fn check_rest(&self) {}
}

/// Bounds of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The maximum number of states. If there are more, the search proves nothing and returns a [`Failure`].
    pub states: usize,
    /// The maximum number of steps from the start. States at that distance that have further steps are not followed, and are counted in
    /// [`Found::cut`].
    pub depth: usize,
}

/// A hundred thousand states, and a hundred steps.
impl Default for Bounds {
    fn default() -> Self {
        Self { states: 100_000, depth: 100 }
    }
}

/// The figures of a search without a failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Found {
    /// The number of distinct states.
    pub states: usize,
    /// The number of steps between these states.
    pub steps: usize,
    /// The number of states without further steps.
    pub rests: usize,
    /// The number of states that were not followed, since they are as far from the start as [`Bounds::depth`].
    pub cut: usize,
}

/// The reason why a search has failed: it proves nothing, or has found a violated invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure<Step> {
    /// A bound is zero, or the first state has no steps.
    Nothing,
    /// There are more states than [`Bounds::states`].
    TooMany {
        /// The bound.
        states: usize,
    },
    /// An invariant is violated.
    Counterexample {
        /// The text of the panic.
        what: String,
        /// The shortest sequence of steps to the violation.
        way: Vec<Step>,
    },
}

impl<Step: fmt::Debug> fmt::Display for Failure<Step> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing was searched: a bound is zero, or nothing can happen in the first state"),
            Self::TooMany { states } => write!(f, "there are more than {states} states: the machine may have no end of them"),
            Self::Counterexample { what, way } => write!(f, "{what}\nthe way to it: {way:?}"),
        }
    }
}

impl<Step: fmt::Debug> std::error::Error for Failure<Step> {}

/// Searches all states that the machine can reach from `start`, each by a shortest sequence of steps.
///
/// # Errors
/// The first violated invariant, with the steps to it; or a failure because a bound is zero, no step is possible from `start`, or there are
/// more states than [`Bounds::states`]. A search that ends at [`Bounds::depth`] is not a failure: see [`Found::cut`].
pub fn explore<M: Explored>(start: impl Fn() -> M, bounds: Bounds) -> Result<Found, Failure<M::Step>> {
    if bounds.states == 0 || bounds.depth == 0 || start().steps().is_empty() {
        return Err(Failure::Nothing);
    }
    let mut space = Machines { start, depth: bounds.depth, known: HashMap::new(), ways: Vec::new(), rests: 0, cut: 0 };
    let first = space.number(&(space.start)(), Vec::new());
    match breadth_first(&mut space, first, bounds.states) {
        Ok(walk) => Ok(Found { states: walk.ways.len(), steps: walk.steps, rests: space.rests, cut: space.cut }),
        Err(Stopped::TooMany) => Err(Failure::TooMany { states: bounds.states }),
        Err(Stopped::Wrong { wrong: (what, way), .. }) => Err(Failure::Counterexample { what, way }),
    }
}

/// The states of a machine of the user of this crate.
struct Machines<M: Explored, F> {
    start: F,
    depth: usize,
    /// The numbers of the states found so far, by the hash of [`Explored::state`].
    known: HashMap<u128, u32>,
    /// The steps to each state, by its number.
    ways: Vec<Vec<M::Step>>,
    rests: usize,
    cut: usize,
}

impl<M: Explored, F: Fn() -> M> Machines<M, F> {
    /// The number of the state of `machine`. A new state gets the next number, and `way` as the steps to it.
    fn number(&mut self, machine: &M, way: Vec<M::Step>) -> u32 {
        let next = small(self.ways.len());
        let number = *self.known.entry(hash(&machine.state())).or_insert(next);
        if number == next {
            self.ways.push(way);
        }
        number
    }

    fn rebuilt(&self, way: &[M::Step]) -> M {
        let mut machine = (self.start)();
        way.iter().for_each(|step| machine.take(step));
        machine
    }
}

impl<M: Explored, F: Fn() -> M> Space for Machines<M, F> {
    type State = u32;
    type Step = M::Step;
    type Wrong = (String, Vec<M::Step>);

    fn follow(&mut self, state: u32, next: &mut Vec<(M::Step, u32)>) -> Result<(), Self::Wrong> {
        let way = self.ways[state as usize].clone();
        let machine = self.rebuilt(&way);
        let steps = machine.steps();
        if steps.is_empty() {
            self.rests += 1;
            return guarded(|| machine.check_rest()).map_err(|what| (what, way));
        }
        if way.len() >= self.depth {
            self.cut += 1;
            return Ok(());
        }
        for step in steps {
            let then = [&way[..], std::slice::from_ref(&step)].concat();
            let machine = guarded(|| self.rebuilt(&then)).map_err(|what| (what, then.clone()))?;
            next.push((step, self.number(&machine, then)));
        }
        Ok(())
    }
}

/// States and the steps between them, for [`breadth_first`].
trait Space {
    type State: Copy + Eq + Hash;
    type Step: Clone;
    type Wrong;

    /// Adds to `next` every state that can follow `state`, each with the step to it.
    fn follow(&mut self, state: Self::State, next: &mut Vec<(Self::Step, Self::State)>) -> Result<(), Self::Wrong>;
}

/// A state, and the step by which it was first reached: the number of the state before that step, and the step.
#[derive(Clone, Debug)]
struct Way<State, Step> {
    state: State,
    from: u32,
    last: Option<Step>,
}

/// All states in the order in which they were found.
#[derive(Debug)]
struct Walk<State, Step> {
    ways: Vec<Way<State, Step>>,
    steps: usize,
}

/// The reason why a search is incomplete.
enum Stopped<S: Space> {
    TooMany,
    Wrong { walk: Walk<S::State, S::Step>, at: usize, wrong: S::Wrong },
}

/// Visits all states that can be reached from `first`, of which there may be at most `most`.
fn breadth_first<S: Space>(space: &mut S, first: S::State, most: usize) -> Result<Walk<S::State, S::Step>, Stopped<S>> {
    let mut seen = HashSet::from([first]);
    let mut walk = Walk { ways: vec![Way { state: first, from: 0, last: None }], steps: 0 };
    let (mut at, mut next) = (0, Vec::new());
    while let Some(state) = walk.ways.get(at).map(|way| way.state) {
        next.clear();
        if let Err(wrong) = space.follow(state, &mut next) {
            return Err(Stopped::Wrong { walk, at, wrong });
        }
        walk.steps += next.len();
        for (last, then) in next.drain(..) {
            if seen.insert(then) {
                walk.ways.push(Way { state: then, from: small(at), last: Some(last) });
            }
        }
        if walk.ways.len() > most {
            return Err(Stopped::TooMany);
        }
        at += 1;
    }
    Ok(walk)
}

/// Runs code that may panic. Returns the text of the panic as an error.
fn guarded<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| message(&*panic))
}

fn hash(what: &impl Hash) -> u128 {
    let [high, low] = [0_u8, 1].map(|half| {
        let mut hasher = DefaultHasher::new();
        (half, what).hash(&mut hasher);
        u128::from(hasher.finish())
    });
    high << 64 | low
}

/// A count of states as the number of the next state.
fn small(count: usize) -> u32 {
    u32::try_from(count).expect("fewer than four thousand million")
}
