//! A server with a property test of its tool: whatever list it gets, and whenever it is cancelled, the tool keeps its promises.

use std::time::Duration;

use sansmcp::prelude::*;

#[derive(serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
struct List {
    numbers: Vec<i32>,
}

async fn sort(context: Context, mut list: List) -> Result<List, ToolError> {
    let total = list.numbers.len() as u64;
    for done in 1..=total {
        context.sleep(Duration::from_secs(1)).await?; // the work
        context.step(done, total);
    }
    list.numbers.sort_unstable();
    Ok(list)
}

fn service() -> Service {
    Service::new("lists", "1.0").tool(Tool::new("sort", sort))
}

#[tokio::main]
async fn main() -> Result<()> {
    sansmcp::tokio::serve(service(), sansmcp::tokio::stdio()).await
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::{any, proptest};
    use sansmcp::testing::Harness;

    use super::*;

    proptest! {
        #[test]
        fn a_list_is_sorted_after_a_second_for_each_number(numbers in vec(any::<i32>(), 0..50)) {
            let seconds = numbers.len() as u64;
            // Time is virtual: a minute takes no time.
            let run = Harness::new(service()).call_tool("sort", serde_json::json!({ "numbers": numbers }).into());
            assert_eq!(run.ended, Some(Duration::from_secs(seconds)));
            let sorted: List = run.result().member("structuredContent").expect("structured content").decode().expect("a list");
            assert!(sorted.numbers.is_sorted());
            assert_eq!(sorted.numbers.len() as u64, seconds);
        }

        #[test]
        fn a_cancel_ends_the_call_at_once(numbers in vec(any::<i32>(), 1..50), millis in 0..50_000_u64) {
            let cancel = Duration::from_millis(millis);
            let whole = Duration::from_secs(numbers.len() as u64);
            let run = Harness::new(service()).cancel_after(cancel).call_tool("sort", serde_json::json!({ "numbers": numbers }).into());
            assert_eq!(run.ended, Some(cancel.min(whole)));
            assert_eq!(run.outcome() == Some(&Outcome::Cancelled), cancel < whole);
        }
    }
}
