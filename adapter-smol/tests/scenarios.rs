//! Every scenario over every transport. What must be seen is written beside each in `tests::scenarios::list`, so both adapters and all
//! transports see the same.
#![cfg(unix)]

#[path = "../examples/glue/mod.rs"]
mod glue;

tests::the_far_end!(glue::Smol);
tests::each_scenario!(tests::scenario_tests, glue::Smol);
