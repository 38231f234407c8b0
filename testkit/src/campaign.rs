//! Campaigns: many cases whose coverage is checked together, so that a test that exercises nothing fails.

use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::coverage::{Coverage, Happening};
use crate::panics::message;
use crate::recording::Recording;

/// A campaign without a case, or in which a required happening never occurred.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Vacuous {
    /// The number of cases.
    pub cases: u64,
    /// The required happenings that never occurred.
    pub missing: Vec<Happening>,
}

impl fmt::Display for Vacuous {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let missing: Vec<_> = self.missing.iter().map(|happening| happening.missing()).collect();
        write!(f, "vacuous: in {} cases {}", self.cases, missing.join(", "))
    }
}

impl std::error::Error for Vacuous {}

/// A number of cases. None of them may panic, and their coverage is checked together.
///
/// The coverage of a single case is not checked. Otherwise a case that cancels nothing would fail although nothing is wrong. The empty case
/// would fail, too, so shrinking any failing case would end at the empty one.
///
/// ```
/// use testkit::{Campaign, Happening, World, config};
///
/// let mut campaign = Campaign::new(&[Happening::Result, Happening::Cancel, Happening::Progress]);
/// campaign.run(0..30, 60, |recording| {
///     let mut world = World::messages(config::client_config(), config::server_config(), recording.seed);
///     recording.play(&mut world);
///     world.finish(0);
///     world.coverage()
/// });
/// println!("{}", campaign.coverage());
/// campaign.finish();
/// ```
#[derive(Clone, Debug)]
pub struct Campaign {
    required: Vec<Happening>,
    coverage: Coverage,
    cases: u64,
}

impl Campaign {
    /// A campaign in which each of `required` must happen at least once.
    #[must_use]
    pub fn new(required: &[Happening]) -> Self {
        Self { required: required.to_vec(), coverage: Coverage::default(), cases: 0 }
    }

    /// Runs one case for each seed, with a recording of `operations` random operations, and adds the coverage that the case returns.
    ///
    /// # Panics
    /// If a case panics. The message ends with the recording in one line, for [`Self::again`].
    pub fn run(&mut self, seeds: Range<u64>, operations: usize, mut case: impl FnMut(&Recording) -> Coverage) {
        for seed in seeds {
            self.case(&Recording::random(seed, operations), &mut case);
        }
    }

    /// Runs one case again, from the line that its failure has printed: `again("seed 7 operations 00010203", ..)`.
    ///
    /// # Panics
    /// As [`Self::run`], and if `line` is not a recording.
    pub fn again(&mut self, line: &str, case: impl FnOnce(&Recording) -> Coverage) {
        self.case(&line.parse().unwrap_or_else(|error| panic!("{error}: {line}")), case);
    }

    /// Runs one case.
    ///
    /// # Panics
    /// As [`Self::run`].
    pub fn case(&mut self, recording: &Recording, case: impl FnOnce(&Recording) -> Coverage) {
        match catch_unwind(AssertUnwindSafe(|| case(recording))) {
            Ok(coverage) => self.add(&coverage),
            Err(panic) => panic!("{}\nto run it again: campaign.again(\"{recording}\", ..)", message(&*panic)),
        }
    }

    /// Counts a case that was run elsewhere.
    pub fn add(&mut self, coverage: &Coverage) {
        self.cases += 1;
        self.coverage.add(coverage);
    }

    /// The counts of all cases so far.
    #[must_use]
    pub fn coverage(&self) -> &Coverage {
        &self.coverage
    }

    /// Checks the coverage of all cases together.
    ///
    /// # Errors
    /// [`Vacuous`] if a required happening never occurred, or if there was no case.
    pub fn check(&self) -> Result<(), Vacuous> {
        let is_missing = |happening: &Happening| self.coverage.of(*happening) == 0;
        let missing: Vec<_> = self.required.iter().copied().filter(is_missing).collect();
        if missing.is_empty() && self.cases > 0 { Ok(()) } else { Err(Vacuous { cases: self.cases, missing }) }
    }

    /// Ends the campaign.
    ///
    /// # Panics
    /// If the campaign was [`Vacuous`].
    #[track_caller]
    pub fn finish(self) {
        if let Err(vacuous) = self.check() {
            panic!("{vacuous}\n{}", self.coverage);
        }
    }
}
