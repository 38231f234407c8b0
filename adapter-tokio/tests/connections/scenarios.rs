//! Every scenario over every transport. What must be seen is written beside each in `tests::scenarios::list`, so both adapters and all
//! transports see the same.

use crate::glue;

tests::each_scenario!(tests::scenario_tests, glue::Tokio);
