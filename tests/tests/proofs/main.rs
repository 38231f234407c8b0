//! Tests that consist of many runs: the model, exhaustive searches, storms, stored cases of fuzzers, recordings and tables.

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
