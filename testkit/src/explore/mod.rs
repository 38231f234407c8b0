//! Search through every state that a machine can come to, breadth first.
//!
//! [`explore`] searches a machine of yours: anything that wraps sessions, such as a gateway with its two legs. Implement [`Explored`]
//! for it, with the steps that can happen next. It need not be cloneable: a state is rebuilt by taking its steps again from the start.
//! [`pair`] searches two real sessions with the same search, and leaves out orders of steps that neither end can tell apart.
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
    /// Something that can happen next.
    type Step: Clone + fmt::Debug;

    /// Everything that can happen in this state, within the bounds of the machine itself: a machine that can always make another call
    /// has states without end.
    fn steps(&self) -> Vec<Self::Step>;

    /// Takes one of the [`steps`](Self::steps) of this state.
    ///
    /// # Panics
    /// If something does not hold; the search ends with the way to it.
    fn take(&mut self, step: &Self::Step);

    /// Everything that decides what can follow: two states with equal values are searched once. A machine that cannot tell may give the
    /// history of its steps, which merges nothing.
    fn state(&self) -> impl Hash;

    /// Checks what must hold where nothing can happen any more.
    ///
    /// # Panics
    /// If it does not.
    fn check_rest(&self) {}
}

/// Bounds of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// States that are looked at, at most. More are a [`Failure`]: the search proves nothing.
    pub states: usize,
    /// Steps from the start to any state. States at that distance are not followed, and counted in [`Found::cut`].
    pub depth: usize,
}

/// A hundred thousand states, and a hundred steps.
impl Default for Bounds {
    fn default() -> Self {
        Self { states: 100_000, depth: 100 }
    }
}

/// Figures of a search in which everything held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Found {
    /// Distinct states.
    pub states: usize,
    /// Steps between them.
    pub steps: usize,
    /// States in which nothing can happen any more.
    pub rests: usize,
    /// States that were not followed, since they are as far from the start as [`Bounds::depth`].
    pub cut: usize,
}

/// The end of a search that proves nothing, or that has found something.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure<Step> {
    /// A bound is zero, or nothing can happen in the first state.
    Nothing,
    /// There are more states than [`Bounds::states`].
    TooMany {
        /// The bound.
        states: usize,
    },
    /// Something does not hold.
    Objection {
        /// The text of the panic.
        what: String,
        /// The shortest way to it.
        way: Vec<Step>,
    },
}

impl<Step: fmt::Debug> fmt::Display for Failure<Step> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing was searched: a bound is zero, or nothing can happen in the first state"),
            Self::TooMany { states } => write!(f, "there are more than {states} states: the machine may have no end of them"),
            Self::Objection { what, way } => write!(f, "{what}\nthe way to it: {way:?}"),
        }
    }
}

impl<Step: fmt::Debug> std::error::Error for Failure<Step> {}

/// Searches every state that the machine can come to from `start`, each by the shortest way.
///
/// # Errors
/// The first thing that does not hold, with the way to it; or that the bounds leave nothing, or not everything, to be searched.
pub fn explore<M: Explored>(start: impl Fn() -> M, bounds: Bounds) -> Result<Found, Failure<M::Step>> {
    if bounds.states == 0 || bounds.depth == 0 || start().steps().is_empty() {
        return Err(Failure::Nothing);
    }
    let mut space = Machines { start, depth: bounds.depth, known: HashMap::new(), ways: Vec::new(), rests: 0, cut: 0 };
    let first = space.number(&(space.start)(), Vec::new());
    match breadth_first(&mut space, first, bounds.states) {
        Ok(walk) => Ok(Found { states: walk.ways.len(), steps: walk.steps, rests: space.rests, cut: space.cut }),
        Err(Stopped::TooMany) => Err(Failure::TooMany { states: bounds.states }),
        Err(Stopped::Wrong { wrong: (what, way), .. }) => Err(Failure::Objection { what, way }),
    }
}

/// States of a user's machine, each as the way to it.
struct Machines<M: Explored, F> {
    start: F,
    depth: usize,
    known: HashMap<u128, u32>,
    ways: Vec<Vec<M::Step>>,
    rests: usize,
    cut: usize,
}

impl<M: Explored, F: Fn() -> M> Machines<M, F> {
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

    /// Puts every state that can follow into `next`, and the step to it.
    fn follow(&mut self, state: Self::State, next: &mut Vec<(Self::Step, Self::State)>) -> Result<(), Self::Wrong>;
}

/// A state, and the first step to it: from which state, by its number, and by which step.
#[derive(Clone, Debug)]
struct Way<State, Step> {
    state: State,
    from: u32,
    last: Option<Step>,
}

/// Every state that was found, in the order in which it was.
#[derive(Debug)]
struct Walk<State, Step> {
    ways: Vec<Way<State, Step>>,
    steps: usize,
}

/// The reason why a search did not come to its end.
enum Stopped<S: Space> {
    TooMany,
    Wrong { walk: Walk<S::State, S::Step>, at: usize, wrong: S::Wrong },
}

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

/// Runs what panics if something is wrong.
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

fn small(count: usize) -> u32 {
    u32::try_from(count).expect("fewer than four thousand million")
}
