#[macros::tool]
struct Resize {
    files: Vec<String>,
}

fn main() {}
