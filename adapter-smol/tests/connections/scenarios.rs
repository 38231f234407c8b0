//! Every scenario over every transport. The scenarios are in `tests::scenarios::list`, with the expected observations, which are the same
//! for both adapters and for all transports.

use crate::adapter;

tests::each_scenario!(tests::scenario_tests, adapter::Smol);
