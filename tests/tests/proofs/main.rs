//! Tests that consist of many runs: random operations with a model, exhaustive searches, stored cases of fuzzers, and recordings. Also
//! tests of the tables of transitions.

mod callers;
mod corpus;
mod explore;
mod gateway;
mod guarantees;
mod hostile_peer;
mod http;
mod http_client;
mod lanes;
mod model;
mod rounds;
mod stateless;
mod traces;
mod transitions;
mod world;
