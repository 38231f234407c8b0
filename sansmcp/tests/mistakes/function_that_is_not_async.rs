use sansmcp::prelude::*;

fn add(_: Context, (): ()) -> Result<u32> {
    Ok(3)
}

fn main() {
    let _ = Tool::new("add", add);
}
