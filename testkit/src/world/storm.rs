//! Random operations on a world.

use super::{World, ops};
use crate::{Rng, Subject};

/// Applies up to `steps` random operations, which depend on `seed` alone. None of them closes an end: call [`World::finish`] for that.
pub fn storm<S: Subject>(world: &mut World<S>, seed: u64, steps: usize) {
    let mut rng = Rng::new(seed);
    for _ in 0..steps {
        let op = ops::random(&mut rng);
        if !ops::ends(op) {
            world.apply(op);
        }
    }
}
