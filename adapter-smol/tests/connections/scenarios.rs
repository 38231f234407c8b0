//! Every scenario over every transport. The expected observations of each are in `tests::scenarios::list`, the same for both adapters and
//! for all transports.

use crate::glue;

tests::each_scenario!(tests::scenario_tests, glue::Smol);
