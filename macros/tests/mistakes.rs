//! What the attributes say about mistakes: a file for each in `mistakes`, with the message of the compiler beside it. `TRYBUILD=overwrite`
//! writes the messages.

#[test]
fn a_mistake_is_reported_at_its_place_with_what_to_write() {
    trybuild::TestCases::new().compile_fail("tests/mistakes/*.rs");
}
