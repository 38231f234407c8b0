//! Tools that change the lists of the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use endpoint::{Catalog, Context, Prompt, PromptMessage, PromptOutput, Tool};

pub(super) fn tools(catalog: &Catalog) -> Vec<Tool> {
    let toggle = |name: &str, add: fn(&Catalog), remove: fn(&Catalog)| {
        let catalog = catalog.clone();
        let is_there = Arc::new(AtomicBool::new(false));
        Tool::new(name, move |_: Context, ()| {
            let change = if is_there.fetch_xor(true, Ordering::Relaxed) { remove } else { add };
            change(&catalog);
            async { Ok("The list has changed.") }
        })
    };
    vec![
        toggle(
            "test_trigger_tool_change",
            |catalog| {
                let tool =
                    Tool::new("test_temporary_tool", async |_: Context, ()| Ok("still here")).description("Is there for a while.");
                catalog.add_tool(tool).expect("its schema is checked");
            },
            |catalog| assert!(catalog.remove_tool("test_temporary_tool"), "it was added"),
        )
        .description("Adds a tool, or removes it again."),
        toggle(
            "test_trigger_prompt_change",
            |catalog| {
                let prompt = Prompt::typed("test_temporary_prompt", async |_: Context, ()| {
                    Ok(PromptOutput::new([PromptMessage::user("Still here?")]))
                });
                catalog.add_prompt(prompt.description("Is there for a while.")).expect("it has no schema");
            },
            |catalog| assert!(catalog.remove_prompt("test_temporary_prompt"), "it was added"),
        )
        .description("Adds a prompt, or removes it again."),
    ]
}
