use sansmcp::prelude::*;

async fn size(_: Context, (): ()) -> std::io::Result<u64> {
    Ok(std::fs::metadata("a.png")?.len())
}

fn main() {
    let _ = Tool::new("size", size);
}
