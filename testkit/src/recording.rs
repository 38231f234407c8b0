//! A seed and the operations that a test applies to a world, as one line of text.

use std::fmt;
use std::str::FromStr;

use crate::world::World;
use crate::world::ops::{self, Operation};
use crate::{Rng, Subject};

/// A seed, and the operations that a test applies to a [`World`]. It is displayed and parsed as one line:
/// `seed 7 operations 00010203 11000405`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    /// The seed of the links and of all other random choices of the world.
    pub seed: u64,
    /// The operations, in order.
    pub operations: Vec<Operation>,
}

impl Recording {
    /// Draws random operations from `seed`. None of them closes an end or a link.
    #[must_use]
    pub fn random(seed: u64, operations: usize) -> Self {
        let mut rng = Rng::new(seed);
        let all = std::iter::repeat_with(|| ops::random(&mut rng)).filter(|operation| !ops::ends(*operation));
        Self { seed, operations: all.take(operations).collect() }
    }

    /// Delivers what can be delivered in a world, and then applies all operations to it.
    pub fn play<S: Subject>(&self, world: &mut World<S>) {
        world.deliver_all();
        self.operations.iter().for_each(|operation| world.apply(*operation));
    }
}

impl fmt::Display for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {} operations", self.seed)?;
        self.operations.iter().try_for_each(|[opcode, a, b, c]| write!(f, " {opcode:02x}{a:02x}{b:02x}{c:02x}"))
    }
}

/// An error: the text is not a [`Recording`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRecording;

impl fmt::Display for NoRecording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not of the form `seed 7 operations 00010203 ..`")
    }
}

impl std::error::Error for NoRecording {}

impl FromStr for Recording {
    type Err = NoRecording;

    fn from_str(text: &str) -> Result<Self, NoRecording> {
        let mut words = text.split_whitespace();
        let (Some("seed"), Some(seed), Some("operations")) = (words.next(), words.next(), words.next()) else {
            return Err(NoRecording);
        };
        let operation = |word: &str| {
            let is_whole = word.len() == 8 && word.is_ascii();
            u32::from_str_radix(word, 16).ok().filter(|_| is_whole).map(u32::to_be_bytes).ok_or(NoRecording)
        };
        Ok(Self { seed: seed.parse().map_err(|_| NoRecording)?, operations: words.map(operation).collect::<Result<_, _>>()? })
    }
}
