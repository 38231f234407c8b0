#[macros::tool]
async fn resize<T>(job: T) {}

fn main() {}
