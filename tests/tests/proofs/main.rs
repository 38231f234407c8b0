//! Tests that consist of many runs: storms of random operations, exhaustive searches, stored cases of fuzzers, and recordings. Also
//! tests of the tables of transitions.

mod callers;
mod corpus;
mod crowd;
mod explore;
mod gateway;
mod hostile_peer;
mod http;
mod http_client;
mod lanes;
mod rounds;
mod stateless;
mod storms;
mod traces;
mod transitions;
mod world;
