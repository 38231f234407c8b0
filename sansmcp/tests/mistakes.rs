//! What the compiler says to mistakes of beginners who use no attribute. The message of each is in the file beside it.
//! `TRYBUILD=overwrite` writes the messages.

#[test]
fn a_mistake_in_a_handler_is_reported_with_what_to_write() {
    trybuild::TestCases::new().compile_fail("tests/mistakes/*.rs");
}
