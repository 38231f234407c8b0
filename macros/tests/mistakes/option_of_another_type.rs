#[macros::tool(title = 3)]
async fn a() {}

#[macros::tool(deadline = 60)]
async fn b() {}

#[macros::tool(read_only = true)]
async fn c() {}

#[macros::tool(destructive = "no")]
async fn d() {}

#[macros::tool("Resize")]
async fn e() {}

fn main() {}
