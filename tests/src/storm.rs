//! Storms: random operations on a [`World`], a pure function of their seed.

use crate::world::check::Subject;
use crate::world::{World, ops};

pub use crate::world::rng::Rng;

/// Lets `steps` random things happen. Nobody closes anything: one end of all is enough, and [`World::finish`] brings it.
pub fn storm<S: Subject>(world: &mut World<S>, seed: u64, steps: usize) {
    let mut rng = Rng::new(seed);
    for _ in 0..steps {
        let op = ops::random(&mut rng);
        if !ops::ends(op) {
            world.apply(op);
        }
    }
}
